"""Gives up a turn that was interrupted too often, and no other turn.

Its session is suspended and stays readable. In the same transaction, what waits behind the turn
moves to a new session that becomes the live one. A moved turn keeps its id and its message: its
events are written again in the new journal, and the rows that name it (updates, parts) are changed
too. The people are told, and on a platform they get the part of the answer that exists, because
nobody else will ever send it.

A turn that asks no model (a result, a message sent from elsewhere) cannot be the cause of a crash,
and its words are known: it is not given up, its words are said here.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.domain.ids import ConversationId, MediaId, MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import given_in
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    NoticePosted,
    Recorded,
    TurnMoved,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import joined, reply_text
from perdure.domain.kinds import UNASKED, TurnKind, UpdateKind
from perdure.domain.outcomes import Interruption, Outcome, StopReason
from perdure.domain.sayings.saying import in_language
from perdure.domain.turn.recovery import given_up_text
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.delivery import replies
from perdure.store.operations.delivery.notices import language_in
from perdure.store.operations.questions import effects
from perdure.store.operations.sessions.sessions import make_live, open_successor
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns import errands
from perdure.store.operations.turns.endings import (
    Closing,
    arrivals,
    close_turn,
    end_row,
    end_turn,
    free_steers,
    open_call_endings,
    queue_freed,
)
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, many, one, run, sql_list

# Locks a turn's conversation, unless the turn is an errand's.
_LOCK_CONVERSATION = """
    SELECT c.id FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE t.id = $1 AND s.kind = '' FOR NO KEY UPDATE OF c"""
# Suspends a session at the turn that is given up.
_SUSPEND = """
    UPDATE sessions SET state = 'suspended', head_turn = $1, ready_at = NULL WHERE id = $2
    RETURNING conversation_id, kind"""
# Finds the waiting turns of a session that never began.
_WAITING = f"""
    SELECT id, queued_seq FROM turns
    WHERE session_id = $1 AND outcome IS NULL AND state = '{State.QUEUED}' AND attempts = 0
    ORDER BY queued_seq"""
# Finds the turns of a session that have begun before and wait for their next attempt.
_BEGUN = f"""
    SELECT id FROM turns
    WHERE session_id = $1 AND outcome IS NULL AND state = '{State.QUEUED}' AND attempts > 0
    ORDER BY queued_seq"""
# Moves a turn to another session, at a place in its line.
_MOVE = "UPDATE turns SET session_id = $1, queued_seq = $2 WHERE id = $3"
# The messages of a turn in all journals; a command stands only in the journal it was given in.
_ITS_MESSAGES = """
    (SELECT j.message_id FROM journal j WHERE j.turn_id = $2 AND j.message_id IS NOT NULL)"""
# Make the updates and parts of a turn follow it. Edits and deletions have message ids that no
# journal holds, so they are found by their kind. A reaction belongs to the message it is on.
_FOLLOW = (
    f"UPDATE inbox SET session_id = $1 WHERE turn_id = $2 AND message_id IN {_ITS_MESSAGES}",
    "UPDATE inbox SET session_id = $1 WHERE turn_id = $2 AND kind IN "
    + sql_list((UpdateKind.EDIT, UpdateKind.DELETE)),
    "UPDATE outbox SET session_id = $1 WHERE turn_id = $2",
    f"UPDATE outbox SET session_id = $1 WHERE message_id IN {_ITS_MESSAGES} AND step = 'react'",
)
SAID = Closing(Outcome.DONE, StopReason.STOP)
LEFT = Closing(Outcome.INTERRUPTED, "its session was given up; it is said in the next one")


class _Suspended(NamedTuple):
    conversation: ConversationId
    errand: str


class _Waiting(NamedTuple):
    turn: TurnId
    arrived: int


class Fallen(NamedTuple):
    """Holds a turn at its limit. `so_far` is its journal before the last attempt ended; `ending`
    holds the last events of that attempt, which are not appended yet."""

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
    """Lock a turn's conversation before its session, because giving the turn up may change the live
    session. All code that starts from a conversation locks in this order; another order could
    deadlock. Errands lock the other way round, and are never live."""
    yield from run(_LOCK_CONVERSATION, turn)


def give_up(fallen: Fallen, stamp: Stamp) -> Op[list[Recorded]]:
    """Give up a turn that was interrupted too often, and move what waits to a new session."""
    first = fallen.so_far[0].event
    if isinstance(first, TurnQueued) and first.kind in UNASKED:
        return (yield from _say(fallen, first, stamp))
    turn, session = fallen.turn, fallen.session
    closing = Closing(Outcome.SUSPENDED, fallen.reason)
    settled = closing.settled(turn)
    # Ended before the fallen turn: the session's head must be the fallen turn, which /retry asks
    # again.
    begun, recorded = yield from _end_begun(session, stamp)
    known = [*(each.event for each in fallen.so_far), *fallen.ending]
    never_run = open_call_endings(turn, known)
    ending = [*fallen.ending, *never_run, settled]
    recorded += yield from journal.append(session, ending, at=stamp.at)
    yield from effects.note(turn, known, never_run, at=stamp.at)
    yield from end_row(settled, State.INTERRUPTED, closing, stamp)
    suspended = yield from one(_Suspended, _SUSPEND, turn, session)
    assert suspended is not None
    if suspended.errand:
        return recorded + (yield from errands.ended(turn, recorded, stamp))
    said = [*fallen.so_far, *recorded]
    waiting = yield from many(_Waiting, _WAITING, session)
    freed = free_steers(fallen.so_far, stamp)
    if not waiting and not freed and not begun:
        return recorded + (yield from _tell(fallen, said, session, stamp))
    conversation, by = suspended.conversation, fallen.found.principal
    opened = yield from open_successor(session, conversation, stamp, by=by)
    successor = opened.session
    recorded.append(opened)
    ranks = _ranks(waiting, freed, arrivals(fallen.so_far))
    for each in waiting:
        rank = ranks[each.turn]
        recorded += yield from _move(each.turn, session, successor, rank, stamp)
    # Only after the moves: watchers switch to the new session at its present end, so they do not
    # hear the moved turns a second time.
    yield from make_live(conversation, successor)
    recorded += yield from _tell(fallen, said, successor, stamp)
    if freed:
        recorded += yield from _free(freed, successor, ranks, stamp)
    recorded += yield from errands.bring_unsaid(begun, successor, stamp)
    yield from make_ready(successor, stamp)
    return recorded


def _say(fallen: Fallen, queued: TurnQueued, stamp: Stamp) -> Op[list[Recorded]]:
    """Settle a turn of an unasked kind by saying its words here. No model is asked, so this cannot
    fail."""
    said = AssistantSaid(
        turn=fallen.turn,
        attempt=fallen.found.attempts,
        message=MessageId(stamp.mint("msg")),
        text=queued.answer,
        attachments=queued.files,
        origin=TurnKind.SENT if queued.kind == TurnKind.SENT else "",
    )
    closing = SAID._replace(reason=queued.finish or SAID.reason)
    settled = TurnSettled(
        turn=fallen.turn, outcome=closing.outcome, reason=closing.reason, agent=queued.agent
    )
    events: list[AnyEvent] = [said, settled, *free_steers(fallen.so_far, stamp)]
    session, last_seq = fallen.session, fallen.found.last_seq
    recorded = yield from close_turn(
        session, fallen.turn, events, closing, stamp, last_seq, was=State.INTERRUPTED
    )
    yield from queue_freed(recorded, stamp, places=arrivals(fallen.so_far))
    yield from make_ready(session, stamp)
    yield from replies.put_whole(session, fallen.turn, queued.answer, _files(recorded), stamp)
    return recorded


def _end_begun(session: SessionId, stamp: Stamp) -> Op[tuple[list[TurnId], list[Recorded]]]:
    """End turns that have begun before and wait again. Only a turn of an unasked kind can: it may
    begin while another turn is interrupted. It is not moved, because its attempts belong to this
    journal; its words are brought to the new session by another turn. Returns these turns and the
    events."""
    begun = yield from many(TurnId, _BEGUN, session)
    recorded: list[Recorded] = []
    for turn in begun:
        found = yield from locked(turn)
        assert found is not None
        assert found.kind in UNASKED, f"{turn} has begun, and another turn of its session ran"
        recorded += yield from end_turn(turn, found, LEFT, stamp)
    return begun, recorded


def _ranks(
    waiting: Sequence[_Waiting], freed: Sequence[TurnQueued], places: Mapping[MessageId, int]
) -> dict[str, int]:
    """Return positions in the new session's line: waiting turns, and untaken messages to the fallen
    turn, together in the order of their arrival. Each of them adds an event to the new journal, so
    everything that comes later gets a higher number."""
    arrived: dict[str, int] = {each.turn: each.arrived for each in waiting}
    arrived |= {each.message: places[each.message] for each in freed}
    in_order = sorted(arrived, key=lambda name: arrived[name])
    return {name: rank for rank, name in enumerate(in_order, start=1)}


def _move(
    turn: TurnId, left: SessionId, successor: SessionId, rank: int, stamp: Stamp
) -> Op[list[Recorded]]:
    """Move a turn: its events are written again in the new journal, except commands, which belong
    to the journal they were given in."""
    events = [each.event for each in (yield from journal.of_turn(turn))]
    again = [event for event in events if not isinstance(event, CommandTaken)]
    moved = TurnMoved(turn=turn, to=successor)
    recorded = yield from journal.append(left, [moved], at=stamp.at)
    written = yield from journal.append(successor, again, at=stamp.at)
    yield from run(_MOVE, successor, rank, turn)
    yield from _follow(turn, successor)
    return recorded + written


def _follow(turn: TurnId, successor: SessionId) -> Op[None]:
    """Change the rows that name a turn, so that they name the session it is in now."""
    for update in _FOLLOW:
        yield from run(update, successor, turn)


def _free(
    freed: Sequence[TurnQueued], successor: SessionId, ranks: Mapping[str, int], stamp: Stamp
) -> Op[list[Recorded]]:
    """Queue the untaken messages to the turn as turns of their own."""
    recorded = yield from journal.append(successor, freed, at=stamp.at)
    places = {event.message: ranks[event.message] for event in freed}
    yield from queue_freed(recorded, stamp, places=places)
    for event in freed:
        yield from _follow(event.turn, successor)
    return recorded


def _tell(
    fallen: Fallen, said: Sequence[Recorded], session: SessionId, stamp: Stamp
) -> Op[list[Recorded]]:
    """Tell the people in the session that they read from now on. On a platform the notice stands
    under the part of the answer that exists."""
    told = given_up_text(fallen.strikes, goes_on=session != fallen.session)
    text = in_language(told, (yield from language_in(session)))
    message = MessageId(stamp.mint("msg"))
    posted = NoticePosted(message=message, text=text, about=fallen.turn)
    recorded = yield from journal.append(session, [posted], at=stamp.at)
    text = joined([reply_text(said), f"⚠️ {text}"])
    yield from replies.put_whole(fallen.session, fallen.turn, text, _files(said), stamp)
    return recorded


def _files(said: Sequence[Recorded]) -> list[MediaId]:
    """Return the files that the turn has given."""
    return [each.media for each in given_in(said) if each.media is not None]
