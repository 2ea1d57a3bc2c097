"""Holds what a command's handler returns, and how handlers end turns."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import ConversationId, SessionId, TurnId
from perdure.domain.inbound.updates import UpdateEffect
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import UNASKED
from perdure.domain.outcomes import Outcome
from perdure.domain.sayings.saying import worded
from perdure.domain.turn.turn import AT_WORK, State
from perdure.ports.turns.turns import Claimed
from perdure.store.operations.turn_context import LockedTurn, TurnContext
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.operations.turns.turns import STOPPED
from perdure.store.statement import Op

REPLACED = Closing(Outcome.INTERRUPTED, "replaced by a command")
STOPPED_TOO: Final = worded("What was running is stopped; /retry asks again.")


class CommandResult(NamedTuple):
    """Holds what a command did: the answer, the appended events, the turns it ended, the turn it
    queued or spoke to, and the new session or conversation if that has changed. `moved` lists
    conversations that continue in another session now. `choices` are commands to offer as buttons
    under the answer."""

    reply: str
    recorded: list[Recorded] = []  # noqa: RUF012 - never changed
    ended: tuple[TurnId, ...] = ()
    turn: TurnId | None = None
    session: SessionId | None = None
    effect: UpdateEffect = UpdateEffect.COMMANDED
    claimed: Claimed | None = None
    conversation: ConversationId | None = None
    moved: tuple[tuple[ConversationId, SessionId], ...] = ()
    choices: tuple[str, ...] = ()


def started(context: TurnContext) -> tuple[TurnId, ...]:
    """Return the turn that has begun and is not over: it runs, or waits to be resumed. At most
    one."""
    return ids([turn for turn in context.open_turns if turn.attempts])[:1]


def ids(turns: Sequence[LockedTurn]) -> tuple[TurnId, ...]:
    """Return the ids of these turns."""
    return tuple(turn.id for turn in turns)


def end(
    context: TurnContext, turns: Sequence[TurnId], *, cut: Closing = REPLACED
) -> Op[list[Recorded]]:
    """Settle these turns: as stopped by the person, or as `cut` says if they were interrupted and
    only waited to continue."""
    recorded: list[Recorded] = []
    for turn in turns:
        found = yield from locked(turn)
        if found is None or found.state == State.SETTLED:
            continue
        is_cut = found.attempts and found.state not in AT_WORK
        closing = cut if is_cut else STOPPED
        recorded += yield from end_turn(turn, found, closing, context.stamp)
    return recorded


def end_all(
    context: TurnContext, turns: Sequence[TurnId], *, cut: Closing = REPLACED
) -> Op[tuple[list[Recorded], tuple[TurnId, ...]]]:
    """Settle these turns and the turns that steers become because of it. Returns the appended
    events and every turn that was ended."""
    recorded = yield from end(context, turns, cut=cut)
    freed = freed_in(recorded)
    recorded += yield from end(context, freed)
    return recorded, (*turns, *freed)


def freed_in(recorded: Sequence[Recorded]) -> tuple[TurnId, ...]:
    """Return the turns made from messages to a turn that ended without taking them."""
    queued = [each.event for each in recorded if isinstance(each.event, TurnQueued)]
    return tuple(event.turn for event in queued if event.kind not in UNASKED)
