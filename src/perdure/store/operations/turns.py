"""Claim, write under a lease, settle; and end attempts from outside."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from perdure.domain.address import Address
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.outcomes import Ending, Interruption, Outcome, Repeat
from perdure.domain.recovery import closing_text, tail_key
from perdure.domain.turn import State, require
from perdure.ports.turns import Claimed, Lease, Piece, Settlement
from perdure.store.dialect import Dialect
from perdure.store.operations import journal, outbox
from perdure.store.operations.accept import MAKE_READY
from perdure.store.statement import Op, Row, row, rows, run

_READY = """
    SELECT id FROM sessions WHERE ready_at IS NOT NULL
    ORDER BY ready_at LIMIT $1 FOR UPDATE SKIP LOCKED"""
_NEXT = """
    SELECT t.id, t.attempts, s.head_turn, s.epoch, s.principal_id, s.conversation_id,
           c.adapter, c.account, c.place, c.thread, c.person
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE t.session_id = $1 AND t.outcome IS NULL AND t.state = 'queued'
    ORDER BY t.queued_seq LIMIT 1"""
_START = """
    UPDATE turns SET state = 'running', attempts = attempts + 1, parent_id = $1, node_id = $2,
                     started_at = COALESCE(started_at, $3), reason = ''
    WHERE id = $4"""
_LEASE = "UPDATE sessions SET epoch = epoch + 1, ready_at = NULL WHERE id = $1 RETURNING epoch"
_END = """
    UPDATE turns SET state = $1, outcome = $2, reason = $3, settled_at = $4, node_id = NULL
    WHERE id = $5"""
# The epoch moves too: nothing of a turn may be written once it is settled.
_HEAD = """
    UPDATE sessions SET head_turn = $1, strikes = $2 * strikes, epoch = epoch + 1 WHERE id = $3"""
_STRIKE = """
    UPDATE sessions SET strikes = strikes + $1, epoch = epoch + 1 WHERE id = $2 RETURNING strikes"""
_SUSPEND = "UPDATE sessions SET state = 'suspended', head_turn = $1, ready_at = NULL WHERE id = $2"
_NOT_READY = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
_DETAIL = "UPDATE turns SET detail = $1 WHERE id = $2"
_TAKE_PARTIALS = """
    DELETE FROM partials WHERE turn_id = $1 RETURNING message_id, start, text"""
_FORGET_PARTIALS = "DELETE FROM partials WHERE turn_id = $1"
_FORGET_MESSAGE = "DELETE FROM partials WHERE turn_id = $1 AND message_id = $2"
_PARTIALS = """
    SELECT message_id, attempt, text FROM partials WHERE turn_id = $1
    ORDER BY attempt, message_id, start"""
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
_LOCK_SESSION = "SELECT principal_id FROM sessions WHERE id = $1 FOR UPDATE"
_TURN = "SELECT session_id, state, attempts, reason FROM turns WHERE id = $1"
_ORPHANS = """
    SELECT t.id FROM turns t WHERE t.state IN ('running', 'waiting')
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = t.node_id AND n.left_at IS NULL
                      AND n.lease_until > {now_ms})
    ORDER BY t.queued_at LIMIT $1"""
_OWNED = "SELECT id FROM turns WHERE node_id = $1 AND state IN ('running', 'waiting')"
_INTERRUPTED = """
    SELECT id FROM turns WHERE state = 'interrupted' ORDER BY queued_at LIMIT $1"""
_WAITING_BEHIND = (
    "SELECT id FROM turns WHERE session_id = $1 AND outcome IS NULL AND state = 'queued'"
)


class Stamp(NamedTuple):
    """Who writes, when, and how ids are made."""

    node: NodeId
    at: int
    part_id: Callable[[], str]


class Locked(NamedTuple):
    """A turn whose session is ours until the transaction ends."""

    session: SessionId
    state: str
    attempts: int
    reason: str
    principal: PrincipalId


def _locked(turn: TurnId) -> Op[Locked | None]:
    """The session is locked before the turn is read: one statement that did both would wait for the
    lock and then show the turn as it was before."""
    session = yield from row(_SESSION_OF, turn)
    if session is None:
        return None
    principal = yield from row(_LOCK_SESSION, session[0])
    found = yield from row(_TURN, turn)
    assert principal is not None
    assert found is not None
    session_id, state, attempts, reason = found
    return Locked(session_id, state, attempts, reason, principal[0])


def claim(dialect: Dialect, stamp: Stamp, *, limit: int) -> Op[list[Claimed]]:
    ready = yield from rows(_READY, limit)
    claimed = []
    for (session,) in ready:
        claimed.append((yield from _claim_next(dialect, session, stamp)))
    return claimed


def _claim_next(dialect: Dialect, session: SessionId, stamp: Stamp) -> Op[Claimed]:
    found = yield from row(_NEXT, session)
    assert found is not None, f"{session} is marked ready and has no queued turn"
    turn, attempts, head, _, principal, conversation, *address = found
    leased = yield from row(_LEASE, session)
    assert leased is not None
    yield from run(_START, head, stamp.node, stamp.at, turn)
    lease = Lease(session=session, turn=turn, epoch=leased[0], attempt=attempts + 1)
    started = TurnStarted(turn=turn, attempt=lease.attempt, parent=head, node=stamp.node)
    yield from journal.append(dialect, session, [started], at=stamp.at, epoch=lease.epoch)
    return Claimed(
        lease=lease,
        conversation=conversation,
        principal=principal,
        address=_address(address),
        parent=head,
        events=tuple((yield from journal.of_turn(turn))),
    )


def _address(columns: Sequence[str]) -> Address:
    adapter, account, place, thread, person = columns
    return Address(adapter=adapter, account=account, place=place, thread=thread, person=person)


def append(
    dialect: Dialect,
    lease: Lease,
    events: Sequence[AnyEvent],
    *,
    piece: Piece | None,
    at: int,
) -> Op[list[Recorded]]:
    """The runner's own events. A message that became final takes the place of its partials."""
    recorded = yield from journal.append(dialect, lease.session, events, at=at, epoch=lease.epoch)
    if piece is not None:
        yield from dialect.flush([piece])
    for event in events:
        if isinstance(event, AssistantSaid):
            yield from run(_FORGET_MESSAGE, lease.turn, event.message)
    return recorded


def settle(
    dialect: Dialect, lease: Lease, settlement: Settlement, stamp: Stamp
) -> Op[list[Recorded]]:
    yield from journal.fence(lease.session, lease.epoch)
    shown = yield from _take_shown(lease.turn)
    events: list[AnyEvent] = []
    if settlement.acknowledges is not None:
        events.append(
            InterruptionAcknowledged(turn=lease.turn, interruption=settlement.acknowledges)
        )
    events += _said(lease, settlement, shown)
    if not settlement.calls:
        so_far = yield from journal.of_turn(lease.turn)
        events += _open_call_endings(lease.turn, [recorded.event for recorded in so_far])
    events.append(
        TurnSettled(
            turn=lease.turn,
            outcome=settlement.outcome,
            reason=settlement.reason,
            detail=settlement.detail,
            agent=settlement.agent,
            usage=settlement.usage,
        )
    )
    recorded = yield from journal.append(dialect, lease.session, events, at=stamp.at)
    yield from _close_turn(lease.session, lease.turn, settlement.outcome, settlement.reason, stamp)
    if settlement.detail:
        yield from run(_DETAIL, settlement.detail, lease.turn)
    if settlement.parts:
        yield from outbox.put(lease, settlement.parts, stamp.part_id, at=stamp.at)
    return recorded


def _take_shown(turn: TurnId) -> Op[dict[MessageId, str]]:
    """Text that was shown and is in no message yet, by message; its rows are gone."""
    pieces = yield from rows(_TAKE_PARTIALS, turn)
    shown: dict[MessageId, str] = {}
    for message, _, text in sorted(pieces, key=lambda piece: (piece[0], piece[1])):
        shown[message] = shown.get(message, "") + text
    return shown


def _said(lease: Lease, settlement: Settlement, shown: dict[MessageId, str]) -> list[AnyEvent]:
    """The final message, and whatever else was shown: no settlement makes shown text vanish."""
    texts = dict(shown)
    if settlement.message is not None:
        flushed = texts.pop(settlement.message, "")
        is_whole = settlement.text.startswith(flushed)
        texts[settlement.message] = settlement.text if is_whole else flushed
    return [
        AssistantSaid(
            turn=lease.turn,
            attempt=lease.attempt,
            message=message,
            text=text,
            calls=settlement.calls if message == settlement.message else (),
        )
        for message, text in texts.items()
        if text.strip() or (settlement.calls and message == settlement.message)
    ]


def _close_turn(
    session: SessionId, turn: TurnId, outcome: Outcome, reason: str, stamp: Stamp
) -> Op[None]:
    """The rows beside a `TurnSettled` of a turn that had started."""
    yield from run(_END, State.SETTLED, outcome, reason, stamp.at, turn)
    keeps_strikes = int(outcome is not Outcome.DONE)
    yield from run(_HEAD, turn, keeps_strikes, session)
    yield from run(MAKE_READY, stamp.at, session)


def stop(
    dialect: Dialect, turn: TurnId, stamp: Stamp, *, by: PrincipalId | None
) -> Op[list[Recorded]]:
    """Settle a turn as stopped, whatever its runner is doing. The epoch moves with the head; a turn
    that never started has no runner, and the one at work before it must not be fenced."""
    found = yield from _locked(turn)
    if found is None or (by is not None and found.principal != by):
        raise NotFound(f"there is no turn {turn}")
    session, state, attempts = found.session, found.state, found.attempts
    if state == State.SETTLED:
        raise Conflict(f"turn {turn} has already finished", code="already_finished")
    require(State(state), TurnSettled, turn=turn)
    events = yield from _closing_events(turn, attempts, is_interrupted=False)
    events.append(TurnSettled(turn=turn, outcome=Outcome.STOPPED, reason="stopped by the user"))
    recorded = yield from journal.append(dialect, session, events, at=stamp.at)
    yield from run(_NOT_READY, session)
    if attempts:
        yield from run(_FORGET_PARTIALS, turn)
        yield from _close_turn(session, turn, Outcome.STOPPED, "stopped by the user", stamp)
        return recorded
    yield from run(_END, State.SETTLED, Outcome.STOPPED, "stopped by the user", stamp.at, turn)
    yield from run(MAKE_READY, stamp.at, session)
    return recorded


def interrupt(
    dialect: Dialect, lease: Lease, reason: Interruption, stamp: Stamp, *, attempts_max: int
) -> Op[list[Recorded]]:
    """End our own attempt, at a drain that ran out of time."""
    yield from journal.fence(lease.session, lease.epoch)
    return (
        yield from _interrupt(
            dialect, lease.turn, lease.session, lease.attempt, reason, stamp, attempts_max
        )
    )


def reap(dialect: Dialect, stamp: Stamp, *, attempts_max: int, limit: int) -> Op[list[Recorded]]:
    """End the attempts of turns whose owner is gone."""
    orphans = yield from rows(_ORPHANS.format(now_ms=dialect.now_ms), limit)
    recorded: list[Recorded] = []
    for (turn,) in orphans:
        found = yield from _locked(turn)
        if found is None or found.state not in (State.RUNNING, State.WAITING):
            continue  # another node's reaper was faster
        recorded += yield from _interrupt(
            dialect, turn, found.session, found.attempts, Interruption.CRASH, stamp, attempts_max
        )
    return recorded


def reclaim(
    dialect: Dialect, stamp: Stamp, *, known: Sequence[TurnId], attempts_max: int
) -> Op[list[Recorded]]:
    """After a claim of unknown fate: give back turns that are ours by the rows and nobody runs."""
    recorded: list[Recorded] = []
    for (turn,) in (yield from rows(_OWNED, stamp.node)):
        if turn in known:
            continue
        found = yield from _locked(turn)
        assert found is not None
        recorded += yield from _interrupt(
            dialect, turn, found.session, found.attempts, Interruption.CRASH, stamp, attempts_max
        )
    return recorded


def _interrupt(  # noqa: PLR0913, PLR0917 - the whole story of one ended attempt
    dialect: Dialect,
    turn: TurnId,
    session: SessionId,
    attempt: int,
    reason: Interruption,
    stamp: Stamp,
    attempts_max: int,
) -> Op[list[Recorded]]:
    events = yield from _closing_events(turn, attempt, is_interrupted=True)
    so_far = yield from journal.of_turn(turn)
    tail = tail_key([*(recorded.event for recorded in so_far), *events])
    events.append(AttemptInterrupted(turn=turn, attempt=attempt, reason=reason, tail=tail))
    struck = yield from row(_STRIKE, int(reason.counts_towards_limit), session)
    assert struck is not None
    is_last = reason.counts_towards_limit and struck[0] >= attempts_max
    waiting = (yield from rows(_WAITING_BEHIND, session)) if is_last else []
    for each in [turn, *(found[0] for found in waiting)] if is_last else []:
        events.append(TurnSettled(turn=each, outcome=Outcome.SUSPENDED, reason=reason))
    recorded = yield from journal.append(dialect, session, events, at=stamp.at)
    yield from run(_FORGET_PARTIALS, turn)
    if not is_last:
        yield from run(_END, State.INTERRUPTED, None, reason, None, turn)
        return recorded
    for each in [turn, *(found[0] for found in waiting)]:
        yield from run(_END, State.SETTLED, Outcome.SUSPENDED, reason, stamp.at, each)
    yield from run(_SUSPEND, turn, session)
    return recorded


def resume(dialect: Dialect, stamp: Stamp, *, limit: int) -> Op[list[Recorded]]:
    """Queue interrupted turns again: the same turn, its next attempt."""
    interrupted = yield from rows(_INTERRUPTED, limit)
    recorded: list[Recorded] = []
    for (turn,) in interrupted:
        found = yield from _locked(turn)
        if found is None or found.state != State.INTERRUPTED:
            continue
        session, reason = found.session, found.reason
        requeued = TurnRequeued(turn=turn, reason=Interruption(reason))
        recorded += yield from journal.append(dialect, session, [requeued], at=stamp.at)
        yield from run(_END, State.QUEUED, None, reason, None, turn)
        yield from run(MAKE_READY, stamp.at, session)
    return recorded


def _closing_events(turn: TurnId, attempt: int, *, is_interrupted: bool) -> Op[list[AnyEvent]]:
    """What an attempt leaves behind: flushed text as a message, an ending for each open call."""
    events: list[AnyEvent] = []
    partials = yield from rows(_PARTIALS, turn)
    for message, text in _joined(partials):
        if text.strip():
            events.append(
                AssistantSaid(
                    turn=turn,
                    attempt=attempt,
                    message=message,
                    text=text,
                    is_interrupted=is_interrupted,
                )
            )
    so_far = yield from journal.of_turn(turn)
    return events + _open_call_endings(turn, [recorded.event for recorded in so_far])


def _joined(partials: Sequence[Row]) -> list[tuple[MessageId, str]]:
    grouped = groupby(partials, key=lambda each: each[0])
    return [(message, "".join(text for _, _, text in pieces)) for message, pieces in grouped]


def _open_call_endings(turn: TurnId, events: Sequence[AnyEvent]) -> list[AnyEvent]:
    started = {event.call for event in events if isinstance(event, ToolStarted)}
    finished = {event.call for event in events if isinstance(event, ToolFinished)}
    endings: list[AnyEvent] = []
    for event in events:
        for call in event.calls if isinstance(event, AssistantSaid) else ():
            if call.id in finished:
                continue
            may_have_happened = call.repeat is Repeat.ONCE and call.id in started
            ending = Ending.UNKNOWN if may_have_happened else Ending.INTERRUPTED
            endings.append(
                ToolFinished(turn=turn, call=call.id, ending=ending, result=closing_text(ending))
            )
    return endings
