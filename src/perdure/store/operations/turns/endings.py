"""Ends turns, whoever ends them: their runner, a person, a newer message or the reaper.

An ending is always the same few facts: shown text becomes a message, open calls get a result, the
turn is settled or interrupted, and messages that were sent to it and never taken (steers) become
turns of their own. The rows beside the journal change in the same transaction, so after a crash a
turn has ended as a whole or not at all.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from perdure.domain.ids import CallId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolCall,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.session_events import HeadMoved
from perdure.domain.outcomes import CallEnding, Outcome, Repeat
from perdure.domain.people.access import is_access_ended
from perdure.domain.turn.endings import STOPPED_MARK
from perdure.domain.turn.errands import is_watched
from perdure.domain.turn.next_action import open_calls, open_questions, started_calls
from perdure.domain.turn.recovery import closed
from perdure.domain.turn.turn import AT_WORK, State
from perdure.store.operations import attaching, journal
from perdure.store.operations.delivery import replies
from perdure.store.operations.people import spending
from perdure.store.operations.questions import effects
from perdure.store.operations.questions.withdrawing import withdraw
from perdure.store.operations.reading import search
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked
from perdure.store.operations.turns import errands, turn_rows
from perdure.store.operations.turns.session_queue import look_again, queue_rows
from perdure.store.statement import Op, many, run

# Makes an ended turn the session's head. The epoch moves if the turn was at work: nothing of it may
# be written once it is settled. For an interrupted turn the epoch moved at the interruption, and
# must not move again: another turn may be running, and would be fenced.
_MOVE_HEAD = """
    UPDATE sessions SET last_seq = $1, head_turn = $2, strikes = $3 * strikes, epoch = epoch + $4
    WHERE id = $5"""
# Copies what the request was made from out of the turn's shown text. When an attempt is ended from
# outside, it is recorded nowhere else.
_KEEP_ORIGIN = """
    UPDATE turns SET prefix = (
        SELECT p.prefix FROM partials p WHERE p.turn_id = $1 AND p.prefix <> ''
        ORDER BY p.attempt DESC, p.message_id DESC LIMIT 1)
    WHERE id = $1 AND EXISTS (SELECT 1 FROM partials p WHERE p.turn_id = $1 AND p.prefix <> '')"""
# Deletes the shown text of a turn: it is in messages now.
_FORGET_PARTIALS = "DELETE FROM partials WHERE turn_id = $1"
# Reads the text that was shown of a turn and is in no message yet, piece by piece.
_PARTIALS = """
    SELECT message_id, attempt, text FROM partials WHERE turn_id = $1
    ORDER BY attempt, message_id, start"""
# Makes an update that was sent to one turn belong to the turn it has become.
_MOVE_UPDATE = "UPDATE inbox SET turn_id = $1 WHERE message_id = $2"
# How long the final words wait if another node may still be sending a preview, which must not
# appear after them.
LATE_PREVIEW_MS = 1_000


class _Shown(NamedTuple):
    message: MessageId
    attempt: int
    text: str


class Closing(NamedTuple):
    """Says how a turn is settled. A turn ended from outside has only an outcome and a reason.
    `mark` is what people on a platform read under the words that were said."""

    outcome: Outcome
    reason: str
    context_tokens: int = 0
    prefix: str = ""
    mark: str = STOPPED_MARK

    def settled(self, turn: TurnId) -> TurnSettled:
        """Return the event that ends a turn in this way."""
        return TurnSettled(turn=turn, outcome=self.outcome, reason=self.reason)


def keep_origin(turn: TurnId) -> Op[None]:
    """Store with a turn what the request was made from that its last shown text answers."""
    yield from run(_KEEP_ORIGIN, turn)


def forget_partials(turn: TurnId) -> Op[None]:
    """Delete the shown text of a turn. Call it once the text is in messages."""
    yield from run(_FORGET_PARTIALS, turn)


def end_turn(turn: TurnId, found: Locked, closing: Closing, stamp: Stamp) -> Op[list[Recorded]]:
    """Settle a turn, whatever its runner is doing; a runner finds out by a refused write. A turn
    that never started or was interrupted has no runner, and the turn at work in the same session is
    not fenced."""
    session, attempts = found.session, found.attempts
    so_far = yield from journal.of_turn(turn)
    events = yield from closing_events(turn, attempts, so_far, is_interrupted=False)
    events.append(closing.settled(turn))
    events += steps_aside([*(recorded.event for recorded in so_far), *events])
    events += free_steers(so_far, stamp)
    cut_short: list[ToolCall] = []
    if attempts:
        yield from withdraw(turn, stamp)
        known = [each.event for each in so_far]
        cut_short = yield from effects.note(turn, known, events, at=stamp.at)
        yield from keep_origin(turn)
        yield from forget_partials(turn)
        yield from spending.charge_reserved(turn, stamp)
        recorded = yield from close_turn(
            session, turn, events, closing, stamp, found.last_seq, was=found.state
        )
    else:
        recorded = yield from journal.append(session, events, at=stamp.at)
        yield from end_row(closing.settled(turn), found.state, closing, stamp)
        yield from attaching.close(turn, stamp)
    if attempts and not found.kind.is_errand:
        # In this transaction: if the process died between two, nobody would mark the words as
        # stopped.
        delay_ms = LATE_PREVIEW_MS if found.node not in (None, stamp.node) else 0
        said = [*so_far, *recorded]
        # A person who lost access gets no new message, like a stranger; only words already shown
        # are marked.
        if not is_access_ended(closing.reason) or (yield from replies.is_shown(turn)):
            yield from replies.put_rest(session, turn, said, closing.mark, stamp, delay_ms=delay_ms)
    if not is_access_ended(closing.reason):
        recorded += yield from effects.tell_people(session, turn, cut_short, stamp)
    yield from queue_freed(recorded, stamp, places=arrivals(so_far))
    yield from look_again(session, stamp)
    recorded += yield from errands.ended(turn, [*so_far, *recorded], stamp)
    return recorded


def close_turn(  # noqa: PLR0913 - all that changes with it
    session: SessionId,
    turn: TurnId,
    events: Sequence[AnyEvent],
    closing: Closing,
    stamp: Stamp,
    last_seq: int,
    *,
    was: State,
) -> Op[list[Recorded]]:
    """Append the last events of a turn that had started, and make it the session's head, unless it
    steps aside. `was` is its state until now. A turn that is done clears the session's strikes."""
    settled = next(each for each in events if isinstance(each, TurnSettled))
    is_at_work = was in AT_WORK
    keeps_strikes = int(closing.outcome is not Outcome.DONE)
    head = next((each.head for each in events if isinstance(each, HeadMoved)), turn)
    yield from run(
        _MOVE_HEAD, last_seq + len(events), head, keeps_strikes, int(is_at_work), session
    )
    recorded = yield from journal.write(session, events, after=last_seq, at=stamp.at)
    yield from end_row(settled, was, closing, stamp)
    return recorded


def end_row(settled: TurnSettled, was: State, closing: Closing, stamp: Stamp) -> Op[None]:
    """Write that a turn is over, and queue its words for the search index."""
    yield from turn_rows.settle(
        settled,
        was,
        context_tokens=closing.context_tokens,
        prefix=closing.prefix,
        at=stamp.at,
    )
    yield from search.wait(settled.turn)


def closing_events(
    turn: TurnId, attempt: int, so_far: Sequence[Recorded], *, is_interrupted: bool
) -> Op[list[AnyEvent]]:
    """Return the last events of an attempt: its shown text as a message, and a result for each open
    call. At an interruption, a call that never started stays open, so that the next attempt runs
    it; and text that nobody could see is not kept."""
    is_kept = not is_interrupted or is_watched(so_far)
    partials = (yield from many(_Shown, _PARTIALS, turn)) if is_kept else []
    said: list[AnyEvent] = [
        AssistantSaid(
            turn=turn,
            attempt=attempt,
            message=message,
            text=text,
            is_interrupted=is_interrupted,
        )
        for message, text in _joined(partials)
        if text.strip()
    ]
    events = [recorded.event for recorded in so_far]
    return said + open_call_endings(turn, events, only_started=is_interrupted)


def _joined(partials: Sequence[_Shown]) -> list[tuple[MessageId, str]]:
    """Return the shown text of each message, with its pieces joined."""
    grouped = groupby(partials, key=lambda each: each.message)
    return [(message, "".join(each.text for each in pieces)) for message, pieces in grouped]


def open_call_endings(
    turn: TurnId, events: Sequence[AnyEvent], *, only_started: bool = False
) -> list[AnyEvent]:
    """Return a result for each call that has none; with `only_started`, only for calls that were
    started. A started call that must not be repeated ends as unknown: it may have happened."""
    started = started_calls(events)
    asked = {each.call for each in open_questions(events) if not each.is_midway}
    endings: list[AnyEvent] = []
    for call in open_calls(events):
        if only_started and call.id not in started:
            continue
        endings.append(closed(turn, call.id, _ending_of(call, started, asked)))
    return endings


def _ending_of(
    call: ToolCall, started: Collection[CallId], asked: Collection[CallId | None]
) -> CallEnding:
    """Return how a call ends that gets no result of its own."""
    if call.id in asked:
        return CallEnding.DENIED  # nobody has allowed it
    may_have_happened = call.repeat is Repeat.ONCE and call.id in started
    return CallEnding.UNKNOWN if may_have_happened else CallEnding.INTERRUPTED


def steps_aside(turn: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Return the event that takes a refused turn off the chain, if its person lost access and
    nothing was said in it: then no model is told of it, in later turns either. `turn` holds its
    events up to the end."""
    queued, settled = turn[0], turn[-1]
    started = [event for event in turn if isinstance(event, TurnStarted)]
    assert isinstance(settled, TurnSettled)
    is_refused = settled.outcome is Outcome.REFUSED and is_access_ended(settled.reason)
    is_said = any(isinstance(event, AssistantSaid) for event in turn)
    if not started or not is_refused or is_said or not isinstance(queued, TurnQueued):
        return []
    by = queued.by or PrincipalId("")
    return [HeadMoved(by=by, reason=Outcome.REFUSED, head=started[-1].parent)]


def waiting_steers(so_far: Sequence[Recorded]) -> list[SteerAccepted]:
    """Return the messages that were sent to a turn and not taken, as last edited by their
    authors."""
    taken = {r.event.message for r in so_far if isinstance(r.event, SteerTaken)}
    amended = {r.event.message: r.event for r in so_far if isinstance(r.event, TurnAmended)}
    return [
        _reworded(recorded.event, amended.get(recorded.event.message))
        for recorded in so_far
        if isinstance(recorded.event, SteerAccepted) and recorded.event.message not in taken
    ]


def _reworded(steer: SteerAccepted, amended: TurnAmended | None) -> SteerAccepted:
    """Return a steer with the words of its last edit."""
    if amended is None:
        return steer
    return msgspec.structs.replace(steer, text=amended.text, passed_on=amended.passed_on)


def free_steers(so_far: Sequence[Recorded], stamp: Stamp) -> list[TurnQueued]:
    """Return a new turn for each steer that was never taken, for the agent it was sent to."""
    steered = so_far[0].event if so_far else None
    first = steered if isinstance(steered, TurnQueued) else None
    return [
        TurnQueued(
            turn=TurnId(stamp.mint("trn")),
            message=steer.message,
            text=steer.text,
            agent=first.agent if first else "",
            attachments=steer.attachments,
            persona=first.persona if first else "",
            effort=first.effort if first else "",
            by=steer.by,
            sender=steer.sender,
            via=steer.via,
            traits=steer.traits,
            passed_on=steer.passed_on,
        )
        for steer in waiting_steers(so_far)
    ]


def arrivals(so_far: Sequence[Recorded]) -> dict[MessageId, int]:
    """Return the seq at which each message to a turn arrived, by message."""
    return {r.event.message: r.seq for r in so_far if isinstance(r.event, SteerAccepted)}


def queue_freed(
    recorded: Sequence[Recorded], stamp: Stamp, *, places: Mapping[MessageId, int]
) -> Op[None]:
    """Write the rows of turns that were made from steers. They take the place of their arrival in
    line, so that messages which came after a steer are answered after it."""
    yield from queue_rows(recorded, stamp, places=places)
    for each in recorded:
        if isinstance(each.event, TurnQueued):
            yield from run(_MOVE_UPDATE, each.event.turn, each.event.message)
