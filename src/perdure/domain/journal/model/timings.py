"""Describes where the time of a turn went that an external agent has answered."""

from typing import Final

import msgspec


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds how long each step took, in milliseconds, as one session of the agent has measured it.

    `transport` is `pool` if a process was there already, and `cold` if one was started for the
    turn; it is empty if no process was asked. `spawn` is the start of the process, `session` the
    opening of the agent's own session, and `bridge` the time until the agent had fetched its tools.
    `first_tool` and `first_token` are counted from the prompt, and `generation` from the first
    token to the end. What a turn did not need is 0.
    """

    transport: str = ""
    spawn: int = 0
    session: int = 0
    bridge: int = 0
    first_tool: int = 0
    first_token: int = 0
    generation: int = 0

    @property
    def steps(self) -> list[tuple[str, int]]:
        """Return the steps that took time, in their order, with their milliseconds."""
        return [(name, ms) for name in STEPS if (ms := getattr(self, name))]


STEPS: Final = ("spawn", "session", "bridge", "first_tool", "first_token", "generation")
UNTIMED: Final = Timings()
