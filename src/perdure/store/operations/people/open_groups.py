"""Decides who may give the commands that stop or reset, where everybody may speak."""

from collections.abc import Sequence
from typing import Final

from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.commands import Given
from perdure.domain.sayings.saying import worded
from perdure.domain.turn.turn import State
from perdure.ports.people.principals import Principal
from perdure.store.operations.turn_context import LockedTurn, TurnContext
from perdure.store.statement import Op, one

# Commands that end an answer, or take away what the conversation stands on.
ENDING: Final = frozenset(
    {"stop", "new", "reset", "undo", "redo", "retry", "resume", "branch", "continue"}
)
# The order in which `/stop` chooses a turn.
_RANK: Final = {State.RUNNING: 0, State.WAITING: 0, State.INTERRUPTED: 1, State.QUEUED: 2}
# Finds for whom a turn is.
_PERSON = "SELECT principal_id FROM turns WHERE id = $1"


def in_order(turns: Sequence[LockedTurn]) -> list[LockedTurn]:
    """Return turns in the order in which `/stop` stops them."""
    return sorted(turns, key=lambda turn: _RANK[State(turn.state)])


def refusal(context: TurnContext, given: Given, who: Principal) -> Op[str]:
    """Return why a person may not give a command in an open group, or an empty string. It is for
    those whose turns it would end; if no turn is open, for the person of the last one. Operators
    may always."""
    update = context.update
    is_open = update.is_open_place and update.is_shared
    if not is_open or who.is_operator or given.name not in ENDING:
        return ""
    concerned = yield from _concerned(context, given)
    if concerned <= {update.principal}:
        return ""
    return worded(
        "/{command} would end or undo what is somebody else's here. It is for them, and for "
        "operators.",
        command=given.name,
    )


def _concerned(context: TurnContext, given: Given) -> Op[set[PrincipalId]]:
    """Return the people whose turns a command would end."""
    turns = context.open_turns
    if given.name == "stop" and not given.arguments:
        turns = in_order(turns)[:1]
    if turns or context.place.head is None or given.name == "stop":
        return {turn.sender for turn in turns}
    person = yield from one(PrincipalId, _PERSON, context.place.head)
    return {person} if person is not None else set()
