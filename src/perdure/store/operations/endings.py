"""How turns end, whoever ends them: their runner, a person, a newer message, the reaper.

An ending is always the same few facts: text that was shown becomes a message, calls that were open
get a result, the turn is settled or interrupted, and what was meant for it and never taken (steers)
gets turns of its own. The rows beside the journal follow in the same transaction.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from perdure.domain.access import is_access_ended
from perdure.domain.endings import STOPPED_MARK
from perdure.domain.errands import errand_of, is_watched
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    HeadMoved,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.outcomes import Ending, Outcome, Repeat
from perdure.domain.recovery import closed
from perdure.store.dialect import Dialect
from perdure.store.operations import attaching, errands, journal, replies, search, spending
from perdure.store.operations.line import NOT_READY, make_ready, queue_rows
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, RaceLost, Row, row, rows, run

_END = """
    UPDATE turns SET state = 'settled', outcome = $1, reason = $2, detail = $3,
                     context_tokens = $4, prefix = $5, settled_at = $6, node_id = NULL
    WHERE id = $7"""
# The epoch moves too: nothing of a turn may be written once it is settled.
_MOVE_HEAD = """
    UPDATE sessions SET last_seq = $1, head_turn = $2, strikes = $3 * strikes, epoch = epoch + 1
    WHERE id = $4"""
FORGET_PARTIALS = "DELETE FROM partials WHERE turn_id = $1"
_PARTIALS = """
    SELECT message_id, attempt, text FROM partials WHERE turn_id = $1
    ORDER BY attempt, message_id, start"""
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
_LOCK_SESSION = "SELECT principal_id, last_seq FROM sessions WHERE id = $1 FOR UPDATE"
_TURN = "SELECT session_id, state, attempts, reason, kind, node_id FROM turns WHERE id = $1"
# A preview that another node has under way must not come after the final words.
LATE_PREVIEW_MS = 1_000
_MOVE_UPDATE = "UPDATE inbox SET turn_id = $1 WHERE message_id = $2"


class Locked(NamedTuple):
    """A turn whose session is ours until the transaction ends."""

    session: SessionId
    state: str
    attempts: int
    reason: str
    kind: str
    node: NodeId | None
    principal: PrincipalId
    last_seq: int


class Closing(NamedTuple):
    """How a turn is settled; from outside, only by an outcome and a reason. `mark` is what people
    on a platform then read under the words that were said."""

    outcome: Outcome
    reason: str
    detail: str = ""
    context_tokens: int = 0
    prefix: str = ""
    mark: str = STOPPED_MARK


def locked(turn: TurnId) -> Op[Locked | None]:
    """The session is locked before the turn is read: one statement that did both would wait for the
    lock and then show the turn as it was before."""
    session = yield from row(_SESSION_OF, turn)
    if session is None:
        return None
    held = yield from row(_LOCK_SESSION, session[0])
    found = yield from row(_TURN, turn)
    assert held is not None
    assert found is not None
    if found[0] != session[0]:
        raise RaceLost  # it has moved on meanwhile: run again, and lock where it is now
    return Locked(*found, *held)


def end_turn(
    dialect: Dialect, turn: TurnId, found: Locked, closing: Closing, stamp: Stamp
) -> Op[list[Recorded]]:
    """Settle a turn whatever its runner is doing. The epoch moves with the head; a turn that never
    started has no runner, and the one at work before it must not be fenced."""
    session, attempts = found.session, found.attempts
    so_far = yield from journal.of_turn(turn)
    events = yield from closing_events(turn, attempts, so_far, is_interrupted=False)
    events.append(TurnSettled(turn=turn, outcome=closing.outcome, reason=closing.reason))
    events += steps_aside([*(recorded.event for recorded in so_far), *events])
    events += free_steers(so_far, stamp)
    if attempts:
        yield from run(FORGET_PARTIALS, turn)
        yield from spending.charge_reserved(turn, stamp)
        recorded = yield from close_turn(session, turn, events, closing, stamp, found.last_seq)
    else:
        recorded = yield from journal.append(dialect, session, events, at=stamp.at)
        yield from end_row(turn, closing, stamp)
        yield from attaching.close(turn, stamp)
    if attempts and errand_of(found.kind) is None:
        # In this transaction: if the process dies behind it, nobody else would mark the words.
        delay_ms = LATE_PREVIEW_MS if found.node not in (None, stamp.node) else 0
        said = [*so_far, *recorded]
        # Whoever may not speak any more gets nothing new, as strangers do.
        if not is_access_ended(closing.reason) or (yield from replies.is_shown(turn)):
            yield from replies.leave(session, turn, said, closing.mark, stamp, delay_ms=delay_ms)
    yield from run(NOT_READY, session)
    yield from queue_freed(recorded, stamp, places=arrivals(so_far))
    yield from make_ready(session, stamp)
    recorded += yield from errands.ended(dialect, turn, [*so_far, *recorded], stamp)
    return recorded


def close_turn(
    session: SessionId,
    turn: TurnId,
    events: Sequence[AnyEvent],
    closing: Closing,
    stamp: Stamp,
    last_seq: int,
) -> Op[list[Recorded]]:
    """Append the last events of a turn that had started: it becomes the session's head, unless it
    steps aside."""
    keeps_strikes = int(closing.outcome is not Outcome.DONE)
    head = next((each.head for each in events if isinstance(each, HeadMoved)), turn)
    yield from run(_MOVE_HEAD, last_seq + len(events), head, keeps_strikes, session)
    recorded = yield from journal.write(session, events, after=last_seq, at=stamp.at)
    yield from end_row(turn, closing, stamp)
    return recorded


def end_row(turn: TurnId, closing: Closing, stamp: Stamp) -> Op[None]:
    """The row beside a `TurnSettled`."""
    outcome, reason, detail, tokens, prefix, _ = closing
    yield from run(_END, outcome, reason, detail, tokens, prefix, stamp.at, turn)
    yield from search.wait(turn)


def closing_events(
    turn: TurnId, attempt: int, so_far: Sequence[Recorded], *, is_interrupted: bool
) -> Op[list[AnyEvent]]:
    """What an attempt leaves behind: flushed text as a message, an ending for each open call. Text
    that nobody has seen is not kept of an attempt after which there is another."""
    is_kept = not is_interrupted or is_watched(so_far)
    partials = (yield from rows(_PARTIALS, turn)) if is_kept else []
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
    return said + open_call_endings(turn, [recorded.event for recorded in so_far])


def _joined(partials: Sequence[Row]) -> list[tuple[MessageId, str]]:
    grouped = groupby(partials, key=lambda each: each[0])
    return [(message, "".join(text for _, _, text in pieces)) for message, pieces in grouped]


def open_call_endings(turn: TurnId, events: Sequence[AnyEvent]) -> list[AnyEvent]:
    started = {event.call for event in events if isinstance(event, ToolStarted)}
    finished = {event.call for event in events if isinstance(event, ToolFinished)}
    endings: list[AnyEvent] = []
    for event in events:
        for call in event.calls if isinstance(event, AssistantSaid) else ():
            if call.id in finished:
                continue
            may_have_happened = call.repeat is Repeat.ONCE and call.id in started
            ending = Ending.UNKNOWN if may_have_happened else Ending.INTERRUPTED
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
    """In the words their authors have last given them."""
    taken = {r.event.message for r in so_far if isinstance(r.event, SteerTaken)}
    amended = {r.event.message: r.event.text for r in so_far if isinstance(r.event, TurnAmended)}
    return [
        msgspec.structs.replace(
            recorded.event, text=amended.get(recorded.event.message, recorded.event.text)
        )
        for recorded in so_far
        if isinstance(recorded.event, SteerAccepted) and recorded.event.message not in taken
    ]


def free_steers(so_far: Sequence[Recorded], stamp: Stamp) -> list[TurnQueued]:
    """Steers that were never taken, as turns of their own: for the agent they were said to."""
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
