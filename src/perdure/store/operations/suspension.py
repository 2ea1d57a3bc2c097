"""Giving up a turn that was interrupted too often, and no other.

Its session is suspended, and stays as it is. What waits behind the turn has done nothing wrong: in
the same transaction it moves on to a session that takes the place of the suspended one. A turn that
moves keeps its id and its message; what the journal holds of it is written once more where it goes,
and its update follows it. The people are told, and on a platform they get what there is of the
answer, for nobody else will ever send it.

What is said without asking a model cannot be the reason of an interruption, and its words are
known: it is not given up but said, by whoever finds it.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from perdure.domain.attachments import given_in
from perdure.domain.errands import UNASKED
from perdure.domain.events import (
    SENT,
    AnyEvent,
    AssistantSaid,
    CommandTaken,
    NoticePosted,
    Recorded,
    TurnMoved,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.ids import MediaId, MessageId, SessionId, TurnId
from perdure.domain.outcomes import Interruption, Outcome, StopReason
from perdure.domain.recovery import given_up_text
from perdure.domain.transcript import joined, reply_text
from perdure.store.dialect import Dialect
from perdure.store.operations import errands, journal, replies
from perdure.store.operations.endings import (
    Closing,
    Locked,
    arrivals,
    close_turn,
    end_row,
    free_steers,
    queue_freed,
)
from perdure.store.operations.line import make_ready
from perdure.store.operations.sessions import make_live, open_successor
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, Row, row, rows, run

_LOCK_CONVERSATION = """
    SELECT c.id FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE t.id = $1 AND s.kind = '' FOR NO KEY UPDATE OF c"""
_SUSPEND = """
    UPDATE sessions SET state = 'suspended', head_turn = $1, ready_at = NULL WHERE id = $2
    RETURNING conversation_id, kind"""
_WAITING = """
    SELECT id, queued_seq FROM turns
    WHERE session_id = $1 AND outcome IS NULL AND state = 'queued' ORDER BY queued_seq"""
_MOVE = "UPDATE turns SET session_id = $1, queued_seq = $2 WHERE id = $3"
_MOVE_UPDATE = "UPDATE inbox SET session_id = $1 WHERE message_id = $2 AND turn_id = $3"
SAID = Closing(Outcome.DONE, StopReason.STOP)


class Fallen(NamedTuple):
    """A turn at its limit: as it was found, what the journal held of it before its last attempt
    ended, and what that leaves behind."""

    turn: TurnId
    found: Locked
    so_far: Sequence[Recorded]
    ending: Sequence[AnyEvent]
    strikes: int
    reason: Interruption

    @property
    def session(self) -> SessionId:
        return self.found.session


def lock_conversation(turn: TurnId) -> Op[None]:
    """Before the session, as everybody does who comes to it by its conversation: giving the turn up
    may make another session the live one. Errands go the other way round, and are never live."""
    yield from run(_LOCK_CONVERSATION, turn)


def give_up(dialect: Dialect, fallen: Fallen, stamp: Stamp) -> Op[list[Recorded]]:
    first = fallen.so_far[0].event
    if isinstance(first, TurnQueued) and first.kind in UNASKED:
        return (yield from _say(fallen, first, stamp))
    turn, session = fallen.turn, fallen.session
    closing = Closing(Outcome.SUSPENDED, fallen.reason)
    settled = TurnSettled(turn=turn, outcome=closing.outcome, reason=closing.reason)
    recorded = yield from journal.append(dialect, session, [*fallen.ending, settled], at=stamp.at)
    yield from end_row(turn, closing, stamp)
    found = yield from row(_SUSPEND, turn, session)
    assert found is not None
    conversation, errand = found
    if errand:
        return recorded + (yield from errands.ended(dialect, turn, recorded, stamp))
    said = [*fallen.so_far, *recorded]
    waiting = yield from rows(_WAITING, session)
    freed = free_steers(fallen.so_far, stamp)
    if not waiting and not freed:
        return recorded + (yield from _tell(dialect, fallen, said, session, stamp))
    by = fallen.found.principal
    opened = yield from open_successor(dialect, session, conversation, stamp, by=by)
    successor = opened.session
    recorded.append(opened)
    arrived = arrivals(fallen.so_far)
    ranks = _ranks([*waiting, *((each.message, arrived[each.message]) for each in freed)])
    for each, _ in waiting:
        recorded += yield from _move(dialect, each, session, successor, ranks[each], stamp)
    # Only now: whoever watches has heard of what is carried over, and does not hear it again.
    yield from make_live(conversation, successor)
    recorded += yield from _tell(dialect, fallen, said, successor, stamp)
    if freed:
        recorded += yield from _free(dialect, freed, successor, ranks, stamp)
    yield from make_ready(successor, stamp)
    return recorded


def _say(fallen: Fallen, queued: TurnQueued, stamp: Stamp) -> Op[list[Recorded]]:
    said = AssistantSaid(
        turn=fallen.turn,
        attempt=fallen.found.attempts,
        message=MessageId(stamp.mint("msg")),
        text=queued.answer,
        attachments=queued.files,
        origin=SENT if queued.kind == SENT else "",
    )
    closing = SAID._replace(reason=queued.finish or SAID.reason)
    settled = TurnSettled(
        turn=fallen.turn, outcome=closing.outcome, reason=closing.reason, agent=queued.agent
    )
    events: list[AnyEvent] = [said, settled, *free_steers(fallen.so_far, stamp)]
    session, last_seq = fallen.session, fallen.found.last_seq
    recorded = yield from close_turn(session, fallen.turn, events, closing, stamp, last_seq)
    yield from queue_freed(recorded, stamp, places=arrivals(fallen.so_far))
    yield from make_ready(session, stamp)
    yield from replies.put_whole(session, fallen.turn, queued.answer, _files(recorded), stamp)
    return recorded


def _ranks(arrived: Sequence[Row]) -> dict[str, int]:
    """Return the places in the successor's line: turns that waited, and messages that were said to
    the fallen turn and not taken, together in the order in which they came. Each of them adds an
    event to the successor's journal, so whatever comes later has a higher number."""
    in_order = sorted(arrived, key=itemgetter(1))
    return {name: rank for rank, (name, _) in enumerate(in_order, start=1)}


def _move(
    dialect: Dialect,
    turn: TurnId,
    left: SessionId,
    successor: SessionId,
    rank: int,
    stamp: Stamp,
) -> Op[list[Recorded]]:
    """What was written of the turn, but for commands: those were given where they stand."""
    events = [each.event for each in (yield from journal.of_turn(turn))]
    again = [event for event in events if not isinstance(event, CommandTaken)]
    moved = TurnMoved(turn=turn, to=successor)
    recorded = yield from journal.append(dialect, left, [moved], at=stamp.at)
    written = yield from journal.append(dialect, successor, again, at=stamp.at)
    yield from run(_MOVE, successor, rank, turn)
    for message in {getattr(event, "message", None) for event in again} - {None}:
        yield from run(_MOVE_UPDATE, successor, message, turn)
    return recorded + written


def _free(
    dialect: Dialect,
    freed: Sequence[TurnQueued],
    successor: SessionId,
    ranks: Mapping[str, int],
    stamp: Stamp,
) -> Op[list[Recorded]]:
    """What was said to the turn and never taken, as turns of their own."""
    recorded = yield from journal.append(dialect, successor, freed, at=stamp.at)
    places = {event.message: ranks[event.message] for event in freed}
    yield from queue_freed(recorded, stamp, places=places)
    for event in freed:
        yield from run(_MOVE_UPDATE, successor, event.message, event.turn)
    return recorded


def _tell(
    dialect: Dialect, fallen: Fallen, said: Sequence[Recorded], session: SessionId, stamp: Stamp
) -> Op[list[Recorded]]:
    """In the session that people read from now on. On a platform it stands under what there is of
    the answer."""
    text = given_up_text(fallen.strikes, goes_on=session != fallen.session)
    message = MessageId(stamp.mint("msg"))
    posted = NoticePosted(message=message, text=text, about=fallen.turn)
    recorded = yield from journal.append(dialect, session, [posted], at=stamp.at)
    text = joined([reply_text(said), f"⚠️ {text}"])
    yield from replies.put_whole(fallen.session, fallen.turn, text, _files(said), stamp)
    return recorded


def _files(said: Sequence[Recorded]) -> list[MediaId]:
    return [each.media for each in given_in(said) if each.media is not None]
