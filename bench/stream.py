"""Measures what a streamed token costs, in and out, against a proxy that forwards the same stream:
at the pace of real models, where each token is a wake-up of its own, and at a faster pace that
fills pipes."""

from pathlib import Path
from statistics import median

import msgspec

from bench.load import Client, client
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate

ROUNDS = 5
STREAMS = 20


class Pace(msgspec.Struct, frozen=True):
    """Says how many tokens a second each stream brings, and for how long."""

    per_s: int
    lasts_s: float = 2.0

    @property
    def tokens(self) -> int:
        return round(self.per_s * self.lasts_s)

    @property
    def delay_ms(self) -> float:
        return 1000 / self.per_s


PACES = (Pace(20, lasts_s=10.0), Pace(50), Pace(200))


async def measure(folder: Path) -> Findings:
    facts: list[str] = []
    gates: list[Gate] = []
    for pace in PACES:
        costs = await _costs(folder / f"home-{pace.per_s}", pace)
        facts += [
            f"{name}: {median(each) * 1e6:.1f} µs of CPU per token"
            f" ({STREAMS} streams, {pace.per_s} tokens a second each)"
            for name, each in costs.items()
        ]
        pairs = zip(costs["perdure"], costs["proxy"], strict=True)
        ratio = median(ours_s / proxy_s for ours_s, proxy_s in pairs)
        name = f"CPU per streamed token against a bare proxy, {pace.per_s} tokens a second"
        gates.append(Gate(name=name, measured=ratio, limit=2))
    return Findings(part="stream", facts=facts, gates=gates)


async def _costs(home: Path, pace: Pace) -> dict[str, list[float]]:
    """Return the cost of a token in each round, by program."""
    slow = ("--words", str(pace.tokens), "--delay-ms", str(pace.delay_ms))
    async with (
        running("model", *slow) as model,
        running("proxy", model.url) as proxy,
        perdure(home, model_url=model.url) as ours,
        client() as load,
    ):
        programs = (proxy, ours)
        costs: dict[str, list[float]] = {program.name: [] for program in programs}
        for number in range(ROUNDS + 1):
            for program in programs if number % 2 else programs[::-1]:
                cost_s = await _cost(load, program, pace, number)
                if number:  # the first round warms up
                    costs[program.name].append(cost_s)
    return costs


async def _cost(load: Client, program: Program, pace: Pace, number: int) -> float:
    names = [f"stream-{number}-{each}" for each in range(STREAMS)]
    lap = await load.together(program, names)
    return lap.cpu_s / (STREAMS * pace.tokens)
