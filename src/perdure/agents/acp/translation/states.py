"""Reads what an agent tells of its own session: its mode, and the commands that it knows. It is
pure."""

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.domain.journal.model.agent_state import COMMANDS_MAX, AgentState
from perdure.domain.text import storable, without_disguise

if TYPE_CHECKING:
    from acp import schema

    from perdure.agents.acp.pool.seam import Update

_NAME_MAX: Final = 100


def state_after(state: AgentState, update: "Update") -> AgentState:
    """Return what is known of a session after an update. Most say nothing of it."""
    if update.session_update == "current_mode_update":
        return msgspec.structs.replace(state, mode=_line(update.current_mode_id))
    if update.session_update == "available_commands_update":
        names = [_line(each.name) for each in update.available_commands[:COMMANDS_MAX]]
        return msgspec.structs.replace(state, commands=tuple(filter(None, names)))
    return state


def first_state(modes: "schema.SessionModeState | None", state: AgentState) -> AgentState:
    """Return what is known of a session that was opened in one of these modes."""
    if modes is None or state.mode:
        return state
    return msgspec.structs.replace(state, mode=_line(modes.current_mode_id))


def _line(text: str) -> str:
    """Return a name as one line of bounded length."""
    return " ".join(without_disguise(storable(text[: 4 * _NAME_MAX])).split())[:_NAME_MAX]
