"""Checks that two thousand turns at once against a slow model all end well, in bounded memory."""

import asyncio
import resource
from pathlib import Path
from statistics import median

from bench.load import client, p95
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate

TURNS = 2_000
WORDS = 30
DELAY_MS = 300
THINK_MS = 10_000
FILES = 16_384


async def measure(folder: Path) -> Findings:
    _allow_files()
    slow = ("--words", str(WORDS), "--delay-ms", str(DELAY_MS), "--think-ms", str(THINK_MS))
    async with (
        running("model", *slow) as model,
        perdure(folder / "home", model_url=model.url) as ours,
        client() as load,
    ):
        names = [f"flight-{number}" for number in range(TURNS)]
        watching = asyncio.create_task(_peak_mb(ours))
        lap = await load.together(ours, names)
        watching.cancel()
        peak_mb = await watching
        seen = await load.seen(model)
    ideal_s = (THINK_MS + WORDS * DELAY_MS) / 1000
    facts = [
        f"{len(lap.times_s):,} turns ended well, {seen['peak']:,} of them at the model at once",
        f"a turn took p50 {median(lap.times_s):.1f} s, p95 {p95(lap.times_s):.1f} s",
        f"the model alone takes {ideal_s:.1f} s",
        f"CPU {lap.cpu_s:.1f} s in all, {lap.cpu_per_turn_s * 1e3:.2f} ms per turn",
    ]
    gates = [
        Gate(name="turns at once", measured=seen["peak"], limit=TURNS, unit="turns", is_floor=True),
        Gate(name="resident memory at its peak", measured=peak_mb, limit=400, unit="MB"),
    ]
    return Findings(part="flight", facts=facts, gates=gates)


async def _peak_mb(program: Program) -> float:
    peak = 0.0
    try:
        while True:
            peak = max(peak, program.resident_mb())
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        return peak


def _allow_files() -> None:
    """Raise the limit of open files for the load and the model. The gateway raises its own
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
