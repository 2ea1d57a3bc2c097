"""Measures what a gateway costs the machine, as the kernel counts it, and counts what its log
says."""

import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import psutil

# How much more than a fresh process a process may cost after a long time of work.
MORE_MB, MORE_DESCRIPTORS, MORE_THREADS = 20.0, 8, 8
# How busy a process may be that has nothing to do. A process that looks for work without a pause,
# or retries something again and again, is far above.
IDLE_PERCENT = 10.0
_NUMBERS = re.compile(r"[0-9a-z]*[0-9][0-9a-z]*")


class Cost(msgspec.Struct, frozen=True):
    """Holds the resident memory, descriptors and threads of one process, and the share of a core
    that it has used since the last look."""

    resident_mb: float
    descriptors: int
    threads: int
    busy: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.resident_mb:.1f} MB, {self.descriptors} descriptors, {self.threads} threads, "
            f"{self.busy:.1%} of a core"
        )


def cost_of(process: psutil.Process) -> Cost:
    """Look at a process. The first look at it cannot tell how busy it is."""
    return Cost(
        resident_mb=process.memory_info().rss / 1e6,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        busy=process.cpu_percent() / 100,
    )


def excess(cost: Cost, fresh: Cost) -> list[str]:
    """Name what an idle process has kept that a fresh process would not have."""
    kept = {
        "MB": (cost.resident_mb, fresh.resident_mb + MORE_MB),
        "descriptors": (cost.descriptors, fresh.descriptors + MORE_DESCRIPTORS),
        "threads": (cost.threads, fresh.threads + MORE_THREADS),
        "% of a core": (cost.busy * 100, IDLE_PERCENT),
    }
    return [
        f"{has:.0f} {what}, over {most:.0f}" for what, (has, most) in kept.items() if has > most
    ]


def log_lines(home: Path) -> Counter[str]:
    """Count the lines of all log files by level and kind. Ids and numbers make no new kind."""
    kinds: Counter[str] = Counter()
    for path in sorted((home / "logs").glob("*.log*")):
        for line in path.read_text("utf-8", "replace").splitlines():
            said = json.loads(line)
            kinds[f"{said['level']}: {_NUMBERS.sub('#', str(said['event']))[:80]}"] += 1
    return kinds


def tracebacks(home: Path) -> Counter[str]:
    """Count the tracebacks in all log files by the error and the last line of this project that it
    passed."""
    kinds: Counter[str] = Counter()
    for path in sorted((home / "logs").glob("*.log*")):
        for line in path.read_text("utf-8", "replace").splitlines():
            if "Traceback" not in line:
                continue
            frames = json.loads(line).get("exception", line).strip().splitlines()
            ours = [frame.strip() for frame in frames if "/perdure/" in frame]
            kinds[f"{frames[-1]} ({ours[-1] if ours else 'none of our lines'})"] += 1
    return kinds
