"""Measures what an idle gateway costs: its help, its way to readiness, and its memory at rest."""

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.processes import COMMAND, elapsed_s, perdure
from bench.report import Findings, Gate

TRIES = 9
REST_S = 1.0


async def measure(folder: Path) -> Findings:
    helps_s, starts_s, idle_mb = [], [], []
    elapsed_s([COMMAND, "--help"])
    for number in range(TRIES):
        helps_s.append(elapsed_s([COMMAND, "--help"]))
        begun = time.perf_counter()
        async with perdure(folder / f"home-{number}") as ours:
            starts_s.append(time.perf_counter() - begun)
            await asyncio.sleep(REST_S)
            idle_mb.append(ours.resident_mb())
    facts = [
        f"help took {min(helps_s) * 1e3:.0f} to {max(helps_s) * 1e3:.0f} ms",
        f"ready after {min(starts_s) * 1e3:.0f} to {max(starts_s) * 1e3:.0f} ms",
    ]
    help_ms = median(helps_s) * 1e3
    gates = [
        Gate(name="`perdure --help`", measured=help_ms, limit=150, unit="ms"),
        Gate(name="from start to ready", measured=median(starts_s), limit=1, unit="s"),
        Gate(name="resident memory at rest", measured=median(idle_mb), limit=60, unit="MB"),
    ]
    return Findings(part="start", facts=facts, gates=gates)
