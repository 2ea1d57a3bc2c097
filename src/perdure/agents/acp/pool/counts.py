"""Counts what a pool does."""

from dataclasses import dataclass, field


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
    client_calls: int = 0
    ignored_cancels: int = 0
    skipped_lines: int = 0
    lost_updates: int = 0
