"""Tells a client what came of a message that it sent under an id of its own."""

from typing import NamedTuple

from perdure.domain.ids import MessageId, TurnId
from perdure.domain.journal.records import AnswerSoFar
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.endings import Audience, visible_reason
from perdure.store.operations import journal
from perdure.store.statement import Op, one

# Finds the newest message that was sent under an id, and its turn.
ASKED = f"""
    SELECT message_id, turn_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND kind = '{UpdateKind.MESSAGE}'
    ORDER BY at DESC LIMIT 1"""
# Finds why the newest message that was sent under an id was refused.
_REFUSED = f"""
    SELECT reason FROM refusals
    WHERE external_id = $1 AND adapter = $2 AND kind = '{UpdateKind.MESSAGE}'
    ORDER BY at DESC LIMIT 1"""
# Reads how a turn has ended.
_OUTCOME = "SELECT outcome, reason, detail FROM turns WHERE id = $1"


class _Asked(NamedTuple):
    """Holds a message, and the turn it became."""

    message: MessageId
    turn: TurnId | None


class _Ended(NamedTuple):
    """Holds how a turn has ended, if it has."""

    outcome: str | None
    reason: str
    detail: str


def answer(adapter: str, external_id: str) -> Op[AnswerSoFar | None]:
    """Return what came of the newest message with this id, or None if there is none."""
    asked = yield from one(_Asked, ASKED, external_id, adapter)
    if asked is None:
        return (yield from _refusal(adapter, external_id))
    turn = asked.turn
    ended = (yield from one(_Ended, _OUTCOME, turn)) if turn else None
    if turn is None or ended is None:
        return (yield from _command(asked.message))
    if ended.outcome is None:
        return AnswerSoFar(state="pending")
    said = reply_text((yield from journal.of_turn(turn)))
    if ended.outcome == Outcome.DONE:
        return AnswerSoFar(state="done", text=said)
    shown = visible_reason(Outcome(ended.outcome), ended.reason, ended.detail, Audience.PEOPLE)
    # A turn that a budget refused says so in its own text already.
    why = "" if ended.outcome == Outcome.REFUSED and ended.detail else shown or ended.reason
    return AnswerSoFar(state="failed", text=joined([said, why]))


def _command(message: str) -> Op[AnswerSoFar]:
    """Return the reply of a command."""
    events = [recorded.event for recorded in (yield from journal.of_message(message))]
    replies = [event.reply for event in events if isinstance(event, CommandTaken)]
    return AnswerSoFar(state="done", text=joined(replies))


def _refusal(adapter: str, external_id: str) -> Op[AnswerSoFar | None]:
    """Return why a message was refused, or None if none was."""
    reason = yield from one(str, _REFUSED, external_id, adapter)
    return (
        None if reason is None else AnswerSoFar(state="failed", text=f"it was not taken: {reason}")
    )
