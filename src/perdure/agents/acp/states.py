"""Reads what an agent tells of its own session: its mode, and the commands that it knows. It is
pure."""

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.domain.journal.model.agent_state import COMMANDS_MAX, AgentState
from perdure.domain.text import storable, without_disguise

if TYPE_CHECKING:
    from acp import schema

    StateUpdate = schema.CurrentModeUpdate | schema.AvailableCommandsUpdate

_NAME_MAX: Final = 100


def state_after(state: AgentState, update: "StateUpdate") -> AgentState:
    """Return what is known of a session after an update that tells of it."""
    if update.session_update == "current_mode_update":
        return msgspec.structs.replace(state, mode=_line(update.current_mode_id))
    names = [_line(each.name) for each in update.available_commands[:COMMANDS_MAX]]
    return msgspec.structs.replace(state, commands=tuple(filter(None, names)))


def first_state(modes: "schema.SessionModeState | None", state: AgentState) -> AgentState:
    """Return what is known of a session that was opened in one of these modes."""
    if modes is None or state.mode:
        return state
    return msgspec.structs.replace(state, mode=_line(modes.current_mode_id))


def _line(text: str) -> str:
    """Return a name as one line of bounded length."""
    return " ".join(without_disguise(storable(text[: 4 * _NAME_MAX])).split())[:_NAME_MAX]
