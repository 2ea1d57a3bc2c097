"""What a streamed token costs, in and out, against a proxy that forwards the same stream."""

from pathlib import Path
from statistics import median

from bench.load import Client, client
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate

ROUNDS = 7
STREAMS = 20
TOKENS = 400
DELAY_MS = 5


async def measure(folder: Path) -> Findings:
    async with (
        running("model", "--words", str(TOKENS), "--delay-ms", str(DELAY_MS)) as model,
        running("proxy", model.url) as proxy,
        perdure(folder / "home", model_url=model.url) as ours,
        client() as load,
    ):
        programs = (proxy, ours)
        costs: dict[str, list[float]] = {program.name: [] for program in programs}
        for number in range(ROUNDS + 1):
            for program in programs if number % 2 else programs[::-1]:
                cost_s = await _cost(load, program, number)
                if number:  # the first round warms up
                    costs[program.name].append(cost_s)
    facts = [
        f"{name}: {median(each) * 1e6:.1f} µs of CPU per token"
        f" ({STREAMS} streams, one token every {DELAY_MS} ms each)"
        for name, each in costs.items()
    ]
    pairs = zip(costs["perdure"], costs["proxy"], strict=True)
    ratio = median(ours_s / proxy_s for ours_s, proxy_s in pairs)
    gate = Gate(name="CPU per streamed token against a bare proxy", measured=ratio, limit=2)
    return Findings(part="stream", facts=facts, gates=[gate])


async def _cost(load: Client, program: Program, number: int) -> float:
    names = [f"stream-{number}-{each}" for each in range(STREAMS)]
    lap = await load.together(program, names)
    return lap.cpu_s / (STREAMS * TOKENS)
