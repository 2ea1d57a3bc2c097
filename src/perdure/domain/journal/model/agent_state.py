"""Holds what an external agent says of its own session beside its answers."""

from typing import Final

import msgspec

COMMANDS_MAX: Final = 100


class AgentState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the mode that an agent works in, and the names of the commands that it knows. What it
    has never told is empty."""

    mode: str = ""
    commands: tuple[str, ...] = ()


UNTOLD: Final = AgentState()
