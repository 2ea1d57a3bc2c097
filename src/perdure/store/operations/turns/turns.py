"""Claims turns, writes under their lease, settles them and stops them.

Every write of a runner carries the epoch of its lease. A stop, a newer message or the reaper moves
the epoch in its own transaction, so a late write of the old runner is refused as a whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import MessageId, PrincipalId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    ContentLeftOut,
    NoticePosted,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnSettled,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.session_events import WindowExceeded
from perdure.domain.outcomes import Outcome
from perdure.domain.people.notices import still_message
from perdure.domain.prompt.prefix import KeptText, RequestOrigin
from perdure.domain.tools.callers import is_left_to_caller
from perdure.domain.turn.errands import is_errand
from perdure.domain.turn.spent import Spent, spent_earlier
from perdure.domain.turn.turn import AT_WORK, State
from perdure.ports.turns.turns import Settled, Settlement, TextPiece, TurnLease
from perdure.store.drivers.dialect import Dialect, Written
from perdure.store.operations import journal, texts
from perdure.store.operations.delivery import replies
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import spending
from perdure.store.operations.questions import effects
from perdure.store.operations.reading import history
from perdure.store.operations.sessions import room
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns import errands
from perdure.store.operations.turns.endings import (
    Closing,
    arrivals,
    close_turn,
    end_turn,
    forget_partials,
    free_steers,
    open_call_endings,
    queue_freed,
    steps_aside,
    waiting_steers,
)
from perdure.store.operations.turns.interruption_notes import mark_told
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, many, one, run

# Reads the text that was shown of a turn and is in no message yet, piece by piece.
_PARTIALS = "SELECT message_id, text FROM partials WHERE turn_id = $1 ORDER BY message_id, start"
# Stores what the request was made from that the turn's newest message answers.
_ANSWERS = "UPDATE turns SET prefix = $1 WHERE id = $2"
# Deletes the shown text of a message that the journal holds now.
_FORGET_MESSAGE = "DELETE FROM partials WHERE turn_id = $1 AND message_id = $2"
# Finds the message that a turn answers.
_MESSAGE = "SELECT message_id FROM turns WHERE id = $1"
STOPPED = Closing(Outcome.STOPPED, "stopped by the user")


class _Shown(NamedTuple):
    message: MessageId
    text: str


def append(
    dialect: Dialect,
    lease: TurnLease,
    events: Sequence[AnyEvent],
    *,
    piece: TextPiece | None,
    origin: RequestOrigin,
    stamp: Stamp,
) -> Op[list[Recorded]]:
    """Append the runner's own events, if its lease still holds. The text of a message that became
    final is deleted from `partials` in the same transaction, so it is never missing and never in
    both."""
    recorded = yield from journal.append(lease.session, events, at=stamp.at, epoch=lease.epoch)
    yield from mark_told(recorded)
    recorded += yield from effects.note_of_running(lease.session, lease.turn, events, stamp)
    yield from texts.keep(origin.texts)
    if origin.prefix:
        yield from run(_ANSWERS, origin.prefix, lease.turn)
    if piece is not None:
        yield from flush(dialect, [piece], piece.origin.texts)
    for event in events:
        if isinstance(event, AssistantSaid):
            yield from run(_FORGET_MESSAGE, lease.turn, event.message)
        elif isinstance(event, WindowExceeded):
            yield from room.learn(event, at=stamp.at)
    return recorded


def flush(
    dialect: Dialect, pieces: Sequence[TextPiece], new: Sequence[KeptText]
) -> Op[set[Written]]:
    """Write pieces of growing text, and those texts of their requests that may be new. Both are one
    transaction: after a crash, shown text always has the request it answers."""
    yield from texts.keep(new)
    return (yield from dialect.flush(pieces))


def take_steers(lease: TurnLease, *, at: int) -> Op[list[Recorded]]:
    """Move messages that were sent to the running turn into it, between two steps, and what people
    have found out about calls. Returns the appended events. The fence keeps a second transaction
    from taking the same messages."""
    yield from journal.fence(lease.session, lease.epoch)
    marked = yield from effects.tell(lease.session, lease.turn)
    waiting = waiting_steers((yield from journal.of_turn(lease.turn)))
    if not waiting and not marked:
        return []
    taken: list[AnyEvent] = [
        SteerTaken(
            turn=lease.turn,
            message=steer.message,
            text=steer.text,
            attachments=steer.attachments,
            sender=steer.sender,
            passed_on=steer.passed_on,
        )
        for steer in waiting
    ]
    return (yield from journal.append(lease.session, [*marked, *taken], at=at))


def tell(lease: TurnLease, text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Post a notice in a running turn's conversation, if the lease still holds."""
    yield from journal.fence(lease.session, lease.epoch)
    return (yield from notice(lease.session, lease.turn, text, stamp))


def tell_still(lease: TurnLease, text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell people that a running turn is still at work, unless they were told before."""
    yield from journal.fence(lease.session, lease.epoch)
    message = still_message(lease.turn)
    if (yield from journal.of_message(message)):
        return []
    return (yield from notice(lease.session, lease.turn, text, stamp, message=message))


def settle(lease: TurnLease, settlement: Settlement, stamp: Stamp) -> Op[Settled]:
    """End a running turn as its runner says, with everything that follows from it, in one
    transaction: last words, outcome, spending, the next turn in line, and the parts of the reply.
    So after a crash the turn is either still running (the reaper finds it) or over with its reply
    in the outbox."""
    last_seq = yield from journal.fence(lease.session, lease.epoch)
    shown = yield from _take_shown(lease.turn)
    so_far = yield from journal.of_turn(lease.turn)
    events = _last_events(lease, settlement, shown, so_far, stamp)
    closing = Closing(
        settlement.outcome, settlement.reason, settlement.context_tokens, settlement.asked.prefix
    )
    recorded = yield from close_turn(
        lease.session, lease.turn, events, closing, stamp, last_seq, was=State.RUNNING
    )
    yield from mark_told(recorded)
    yield from effects.note(lease.turn, [each.event for each in so_far], events, at=stamp.at)
    yield from texts.keep(settlement.asked.texts)
    spent = Spent(agent=settlement.agent, usage=settlement.usage, cost=settlement.cost)
    # A turn counts once, when it ends, also if only its earlier attempts have asked a model.
    used = settlement.usage + spent_earlier(recorded.event for recorded in so_far).usage
    yield from spending.spend(lease.turn, spent, stamp, turns=int(used != Usage()))
    if settlement.is_reserved:
        yield from spending.release(lease.turn)
    yield from queue_freed(recorded, stamp, places=arrivals(so_far))
    is_ready = yield from make_ready(lease.session, stamp)
    if settlement.parts or settlement.files:
        final = replies.FinalWords(
            settlement.parts, settlement.files, settlement.choices, settlement.spoken
        )
        yield from replies.put_reply(lease.session, lease.turn, final, stamp)
    brought = yield from errands.ended(lease.turn, [*so_far, *recorded], stamp)
    # A session may have been held back by this errand even if it brings no event.
    has_more = is_ready or bool(brought) or is_errand(so_far)
    return Settled(recorded=[*recorded, *brought], has_more=has_more)


def _last_events(
    lease: TurnLease,
    settlement: Settlement,
    shown: dict[MessageId, str],
    so_far: Sequence[Recorded],
    stamp: Stamp,
) -> list[AnyEvent]:
    """Return the events that end a turn as its runner says. Steers that were never taken become
    turns of their own."""
    turn = lease.turn
    known = [recorded.event for recorded in so_far]
    earlier = spent_earlier(known)
    # Open calls are closed before the last words are appended: a result must stand directly behind
    # the message that asked for it. With new calls in the settlement itself nothing is closed, and
    # neither are calls that the caller answers.
    is_left = is_left_to_caller(settlement.outcome, settlement.reason)
    never_ended = [] if settlement.calls or is_left else open_call_endings(turn, known)
    said = _said(lease, settlement, shown)
    events: list[AnyEvent] = [*settlement.acknowledgements, *never_ended, *said]
    if settlement.note:
        message = MessageId(stamp.mint("msg"))
        events.append(NoticePosted(message=message, text=settlement.note, about=turn))
    if settlement.left_out:
        # In this transaction: if the process died between two, the next request would be refused
        # for the same reason as this one.
        events.append(ContentLeftOut(turn=turn, what=settlement.left_out))
    events.append(
        TurnSettled(
            turn=turn,
            outcome=settlement.outcome,
            reason=settlement.reason,
            detail=settlement.detail,
            agent=settlement.agent,
            usage=settlement.usage + earlier.usage,
            cost=settlement.cost + earlier.cost,
            prefix_break=settlement.prefix_break,
            reach=settlement.reach,
            agent_session=settlement.agent_session,
            timings=settlement.timings,
            agent_state=settlement.agent_state,
        )
    )
    events += steps_aside([*known, *events])
    return [*events, *free_steers(so_far, stamp)]


def _take_shown(turn: TurnId) -> Op[dict[MessageId, str]]:
    """Return the text that was shown and is in no message yet, by message, and delete its rows."""
    pieces = yield from many(_Shown, _PARTIALS, turn)
    shown: dict[MessageId, str] = {}
    for message, text in pieces:
        shown[message] = shown.get(message, "") + text
    if pieces:
        yield from forget_partials(turn)
    return shown


def _said(lease: TurnLease, settlement: Settlement, shown: dict[MessageId, str]) -> list[AnyEvent]:
    """Return the final message, and a message for any other text that was shown: no settlement
    makes shown text disappear."""
    texts = dict(shown)
    if settlement.message is not None:
        flushed = texts.pop(settlement.message, "")
        # The final text must continue what people have seen. If it does not, what they saw is kept.
        is_whole = settlement.text.startswith(flushed)
        texts[settlement.message] = settlement.text if is_whole else flushed
    has_more = settlement.calls or settlement.attachments
    return [
        AssistantSaid(
            turn=lease.turn,
            attempt=lease.attempt,
            message=message,
            text=text,
            calls=settlement.calls if message == settlement.message else (),
            origin=settlement.origin,
            attachments=settlement.attachments if message == settlement.message else (),
        )
        for message, text in texts.items()
        if text.strip() or (has_more and message == settlement.message)
    ]


def stop(turn: TurnId, stamp: Stamp, *, by: PrincipalId | None) -> Op[list[Recorded]]:
    """End a turn because its person asked for that. Raises `NotFound` for another person's turn,
    and `Conflict` if it is over already."""
    found = yield from locked(turn)
    if found is None or not (yield from history.is_own(found.session, by)):
        raise NotFound(f"there is no turn {turn}")
    if found.state == State.SETTLED:
        raise Conflict(f"turn {turn} has already finished", code="already_finished")
    return (yield from end_turn(turn, found, STOPPED, stamp))


def turn_away(turn: TurnId, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """End a turn whose person lost access: it becomes stopped if it is at work, otherwise refused.
    Does nothing if the turn has ended meanwhile."""
    found = yield from locked(turn)
    if found is None or found.state == State.SETTLED:
        return []
    is_at_work = found.state in AT_WORK
    closing = Closing(Outcome.STOPPED if is_at_work else Outcome.REFUSED, reason)
    return (yield from end_turn(turn, found, closing, stamp))


def amend(turn: TurnId, text: str, stamp: Stamp, *, by: PrincipalId | None) -> Op[list[Recorded]]:
    """Replace the text of a message whose turn has not begun. Raises `Conflict` if it has."""
    found = yield from locked(turn)
    if found is None or not (yield from history.is_own(found.session, by)):
        raise NotFound(f"there is no turn {turn}")
    if found.state != State.QUEUED or found.attempts:
        raise Conflict(
            f"turn {turn} has already begun; only waiting messages can be rewritten",
            code="already_begun",
        )
    if not text.strip():
        raise Rejected("a message needs text; stop the turn to remove it", code="empty_message")
    message = yield from one(MessageId, _MESSAGE, turn)
    assert message is not None
    amended = TurnAmended(turn=turn, message=message, text=text)
    return (yield from journal.append(found.session, [amended], at=stamp.at))
