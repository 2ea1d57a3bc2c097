"""Defines how many processes and sessions a pool keeps, and how long it waits for what."""

import msgspec


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the bounds of a pool.

    Counts: `processes` of one group, and `processes_max` of all; `sessions` at once in a process (0
    is what the preset says); `said_items` and `said_bytes`, what a prompt may have said that nobody
    has read yet.

    Times in seconds, of the start of a process (`start_s`), of a session (`session_s`), of its
    tools (`bridge_s`) and its end (`close_s`); of a call that waits for room (`room_s`); of an
    agent that was told to cancel (`cancel_s`), and of the process if it does not (`ignored_s`); of
    silence before a process is asked whether it lives (`silence_s`), and of its answer (`ping_s`);
    of idleness (`idle_s`) and age (`age_s`) before a process is replaced, and of the prompts that
    it may finish then (`drain_s`).
    """

    processes: int = 1
    processes_max: int = 16
    sessions: int = 0
    has_prewarm: bool = True
    said_items: int = 100_000
    said_bytes: int = 64 << 20
    start_s: float = 60.0
    session_s: float = 60.0
    bridge_s: float = 20.0
    close_s: float = 10.0
    room_s: float = 60.0
    cancel_s: float = 5.0
    ignored_s: float = 60.0
    silence_s: float = 60.0
    ping_s: float = 30.0
    idle_s: float = 900.0
    age_s: float = 86_400.0
    drain_s: float = 7_200.0
