"""Defines what people and metrics can see of a pool."""

from dataclasses import dataclass, field

import msgspec


@dataclass(slots=True)
class PoolCounts:
    """Counts what a pool has done since the gateway has started."""

    starts: int = 0
    joined_starts: int = 0
    failed_starts: int = 0
    crashes: int = 0
    retired: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    resumed: int = 0
    closed: int = 0
    unclosable: int = 0
    taken_back: int = 0
    prompts: int = 0
    permissions: int = 0
    ignored_cancels: int = 0
    skipped_lines: int = 0
    lost_updates: int = 0


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows one process. `group` is the folder of its group, which names nobody."""

    name: str
    pid: int
    group: str
    server: str
    sessions: int
    prompts: int
    unclosable: int
    age_s: float
    memory_bytes: int
    has_sandbox: bool
    leaving: str = ""
    commands: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows a pool. `trouble` is why its last start failed or its last process crashed, or an empty
    string, and `no_sandbox` why its processes run without a sandbox."""

    processes: tuple[ProcessView, ...]
    starting: int
    resting_s: float
    takes_tools: bool
    is_shared: bool
    trouble: str = ""
    no_sandbox: str = ""
