"""How turns end, whoever ends them: their runner, a person, a newer message, the reaper.

An ending is always the same few facts: text that was shown becomes a message, calls that were open
get a result, the turn is settled or interrupted, and what was meant for it and never taken (steers)
gets turns of its own. The rows beside the journal follow in the same transaction.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from perdure.domain.ids import MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    HeadMoved,
    Recorded,
    SteerAccepted,
    SteerTaken,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome, Repeat
from perdure.domain.people.access import is_access_ended
from perdure.domain.turn.endings import STOPPED_MARK
from perdure.domain.turn.errands import is_watched
from perdure.domain.turn.next_action import open_calls, started_calls
from perdure.domain.turn.recovery import closed
from perdure.domain.turn.turn import State
from perdure.store.operations import attaching, journal
from perdure.store.operations.delivery import replies
from perdure.store.operations.people import spending
from perdure.store.operations.reading import search
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import errands, turn_rows
from perdure.store.operations.turns.session_queue import look_again, queue_rows
from perdure.store.statement import Op, RaceLost, many, one, run

# Lets the session stand at a turn that has ended. The epoch moves with a turn at work: nothing of
# it may be written once it is settled. Of one that was interrupted the epoch has moved then, and
# what is said meanwhile must not be fenced.
_MOVE_HEAD = """
    UPDATE sessions SET last_seq = $1, head_turn = $2, strikes = $3 * strikes, epoch = epoch + $4
    WHERE id = $5"""
# Lets a turn say what its request was made from, as the text tells that was shown of it. Of an
# attempt that ends from outside nothing else does.
_KEEP_ORIGIN = """
    UPDATE turns SET prefix = (
        SELECT p.prefix FROM partials p WHERE p.turn_id = $1 AND p.prefix <> ''
        ORDER BY p.attempt DESC, p.message_id DESC LIMIT 1)
    WHERE id = $1 AND EXISTS (SELECT 1 FROM partials p WHERE p.turn_id = $1 AND p.prefix <> '')"""
# Forgets the text that was shown of a turn: it is in messages now.
_FORGET_PARTIALS = "DELETE FROM partials WHERE turn_id = $1"
# Reads the text that was shown of a turn and is in no message yet, piece by piece.
_PARTIALS = """
    SELECT message_id, attempt, text FROM partials WHERE turn_id = $1
    ORDER BY attempt, message_id, start"""
# Finds the session that a turn is in.
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
# Locks a session.
_LOCK_SESSION = "SELECT principal_id, last_seq FROM sessions WHERE id = $1 FOR UPDATE"
# Reads a turn as it stands once its session is locked.
_TURN = "SELECT session_id, state, attempts, reason, kind, node_id FROM turns WHERE id = $1"
# Lets an update that was said to one turn belong to the turn it has become.
_MOVE_UPDATE = "UPDATE inbox SET turn_id = $1 WHERE message_id = $2"
# A preview that another node has under way must not come after the final words.
LATE_PREVIEW_MS = 1_000


class _Shown(NamedTuple):
    message: MessageId
    attempt: int
    text: str


class _Held(NamedTuple):
    principal: PrincipalId
    last_seq: int


class _Turn(NamedTuple):
    session: SessionId
    state: str
    attempts: int
    reason: str
    kind: str
    node: NodeId | None


class Locked(NamedTuple):
    """A turn whose session is ours until the transaction ends."""

    session: SessionId
    state: State
    attempts: int
    reason: str
    kind: TurnKind
    node: NodeId | None
    principal: PrincipalId
    last_seq: int


class Closing(NamedTuple):
    """How a turn is settled; from outside, only by an outcome and a reason. `mark` is what people
    on a platform then read under the words that were said."""

    outcome: Outcome
    reason: str
    context_tokens: int = 0
    prefix: str = ""
    mark: str = STOPPED_MARK

    def settled(self, turn: TurnId) -> TurnSettled:
        """Return the fact that ends a turn so."""
        return TurnSettled(turn=turn, outcome=self.outcome, reason=self.reason)


def locked(turn: TurnId) -> Op[Locked | None]:
    """Lock a turn's session and return the turn, if there is one. The session is locked before the
    turn is read: one statement that did both would wait for the lock and then show the turn as it
    was before."""
    session = yield from one(SessionId, _SESSION_OF, turn)
    if session is None:
        return None
    held = yield from one(_Held, _LOCK_SESSION, session)
    found = yield from one(_Turn, _TURN, turn)
    assert held is not None
    assert found is not None
    if found.session != session:
        raise RaceLost  # it has moved on meanwhile: run again, and lock where it is now
    return Locked(
        session,
        State(found.state),
        found.attempts,
        found.reason,
        TurnKind(found.kind),
        found.node,
        held.principal,
        held.last_seq,
    )


def keep_origin(turn: TurnId) -> Op[None]:
    """Keep with a turn what the request was made from that the text shown last answers."""
    yield from run(_KEEP_ORIGIN, turn)


def forget_partials(turn: TurnId) -> Op[None]:
    """Forget the text that was shown of a turn, once it is in messages."""
    yield from run(_FORGET_PARTIALS, turn)


def end_turn(turn: TurnId, found: Locked, closing: Closing, stamp: Stamp) -> Op[list[Recorded]]:
    """Settle a turn whatever its runner is doing. One that never started, or was interrupted, has
    no runner, and the one at work before or behind it must not be fenced."""
    session, attempts = found.session, found.attempts
    so_far = yield from journal.of_turn(turn)
    events = yield from closing_events(turn, attempts, so_far, is_interrupted=False)
    events.append(closing.settled(turn))
    events += steps_aside([*(recorded.event for recorded in so_far), *events])
    events += free_steers(so_far, stamp)
    if attempts:
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
        # In this transaction: if the process dies behind it, nobody else would mark the words.
        delay_ms = LATE_PREVIEW_MS if found.node not in (None, stamp.node) else 0
        said = [*so_far, *recorded]
        # Whoever may not speak any more gets nothing new, as strangers do.
        if not is_access_ended(closing.reason) or (yield from replies.is_shown(turn)):
            yield from replies.leave(session, turn, said, closing.mark, stamp, delay_ms=delay_ms)
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
    """Append the last events of a turn that had started: it becomes the session's head, unless it
    steps aside. `was` is its state until now."""
    settled = next(each for each in events if isinstance(each, TurnSettled))
    is_at_work = was in (State.RUNNING, State.WAITING)
    keeps_strikes = int(closing.outcome is not Outcome.DONE)
    head = next((each.head for each in events if isinstance(each, HeadMoved)), turn)
    yield from run(
        _MOVE_HEAD, last_seq + len(events), head, keeps_strikes, int(is_at_work), session
    )
    recorded = yield from journal.write(session, events, after=last_seq, at=stamp.at)
    yield from end_row(settled, was, closing, stamp)
    return recorded


def end_row(settled: TurnSettled, was: State, closing: Closing, stamp: Stamp) -> Op[None]:
    """Write the row of a turn that is over, and let the index find what was said in it."""
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
    """Return what an attempt leaves behind: flushed text as a message, and an ending for each open
    call. At an interruption a call that never started stays open: the next attempt runs it. Text
    that nobody has seen is not kept of an attempt after which there is another."""
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
    grouped = groupby(partials, key=lambda each: each.message)
    return [(message, "".join(each.text for each in pieces)) for message, pieces in grouped]


def open_call_endings(
    turn: TurnId, events: Sequence[AnyEvent], *, only_started: bool = False
) -> list[AnyEvent]:
    """Return a result for each call that has none."""
    started = started_calls(events)
    endings: list[AnyEvent] = []
    for call in open_calls(events):
        if only_started and call.id not in started:
            continue
        may_have_happened = call.repeat is Repeat.ONCE and call.id in started
        ending = CallEnding.UNKNOWN if may_have_happened else CallEnding.INTERRUPTED
        endings.append(closed(turn, call.id, ending))
    return endings


def steps_aside(turn: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Take a turn off the chain that was refused because its person's access ended, if nothing was
    said in it: what they wanted is told to no model, in no later turn either. `turn` are its events
    up to its end."""
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
    """Return what was said to a turn and not taken, in the words their authors have last given
    them."""
    taken = {r.event.message for r in so_far if isinstance(r.event, SteerTaken)}
    amended = {r.event.message: r.event for r in so_far if isinstance(r.event, TurnAmended)}
    return [
        _reworded(recorded.event, amended.get(recorded.event.message))
        for recorded in so_far
        if isinstance(recorded.event, SteerAccepted) and recorded.event.message not in taken
    ]


def _reworded(steer: SteerAccepted, amended: TurnAmended | None) -> SteerAccepted:
    if amended is None:
        return steer
    return msgspec.structs.replace(steer, text=amended.text, passed_on=amended.passed_on)


def free_steers(so_far: Sequence[Recorded], stamp: Stamp) -> list[TurnQueued]:
    """Return steers that were never taken as turns of their own, for the agent they were said
    to."""
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
            by=steer.by,
            sender=steer.sender,
            via=steer.via,
            traits=steer.traits,
            passed_on=steer.passed_on,
        )
        for steer in waiting_steers(so_far)
    ]


def arrivals(so_far: Sequence[Recorded]) -> dict[MessageId, int]:
    """Return where the journal holds the arrival of each message that was said to a turn."""
    return {r.event.message: r.seq for r in so_far if isinstance(r.event, SteerAccepted)}


def queue_freed(
    recorded: Sequence[Recorded], stamp: Stamp, *, places: Mapping[MessageId, int]
) -> Op[None]:
    """Write the rows of turns that freed steers have become. They do not go to the end of the line:
    whatever came after a steer was to be answered after it."""
    yield from queue_rows(recorded, stamp, places=places)
    for each in recorded:
        if isinstance(each.event, TurnQueued):
            yield from run(_MOVE_UPDATE, each.event.turn, each.event.message)
