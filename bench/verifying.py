"""Measures what a check of everything costs: of a large archive, of a quarter of it, and with
nothing new."""

import asyncio
import resource
import sys
import time
from pathlib import Path

from bench.archive import FILE, TURNS_A_SESSION, fill
from bench.processes import environment
from bench.report import Findings, Gate

SESSIONS = 50_000
PART = 4
LIMIT_S = 120
# Allows linear growth, and some room for a cache that holds the smaller archive and not the larger.
GROWTH_LIMIT = 1.5 * PART
NEW_LIMIT_S = 5


async def measure(folder: Path) -> Findings:
    begun = time.perf_counter()
    for name, sessions in (("whole", SESSIONS), ("part", SESSIONS // PART)):
        await fill(folder / name, sessions)
    filled_s = time.perf_counter() - begun
    size = (folder / "whole" / FILE).stat().st_size
    part_s, _ = await _verified_s(folder / "part")
    whole_s, cpu_s = await _verified_s(folder / "whole")
    new_s, _ = await _verified_s(folder / "whole", "--new")
    messages = 2 * TURNS_A_SESSION * SESSIONS
    facts = [
        f"{SESSIONS:,} sessions with {messages:,} messages, {size / 1e9:.1f} GB",
        f"they and those of a smaller archive were written in {filled_s:.0f} s",
        f"`perdure verify` took {whole_s:.1f} s, CPU {cpu_s:.1f} s",
        f"`perdure verify` of {SESSIONS // PART:,} sessions took {part_s:.1f} s",
        f"`perdure verify --new`, with nothing new, took {new_s:.2f} s",
    ]
    gates = [
        Gate(name=f"checking {messages:,} messages", measured=whole_s, limit=LIMIT_S, unit="s"),
        Gate(
            name=f"checking {PART} times as many sessions",
            measured=whole_s / part_s,
            limit=GROWTH_LIMIT,
        ),
        Gate(name="checking that nothing is new", measured=new_s, limit=NEW_LIMIT_S, unit="s"),
    ]
    return Findings(part="verifying", facts=facts, gates=gates)


async def _verified_s(home: Path, *options: str) -> tuple[float, float]:
    """Return how many seconds the command took, and how much processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    command = [sys.executable, "-m", "perdure", "--home", str(home), "verify", *options]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    took_s = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, said.decode()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took_s, cpu_s
