"""Claim, write under a lease, settle, stop."""

from collections.abc import Sequence

from perdure.domain.address import Address, is_shared
from perdure.domain.errands import is_errand
from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.outcomes import Outcome
from perdure.domain.recovery import telling_own
from perdure.domain.turn import State
from perdure.ports.turns import Claimed, Lease, Piece, Settled, Settlement
from perdure.store.dialect import Dialect
from perdure.store.operations import errands, history, journal, replies, speakers, spending
from perdure.store.operations.endings import (
    FORGET_PARTIALS,
    Closing,
    arrivals,
    close_turn,
    end_turn,
    free_steers,
    locked,
    open_call_endings,
    queue_freed,
    steps_aside,
    waiting_steers,
)
from perdure.store.operations.line import make_ready
from perdure.store.operations.memories import Person, recall
from perdure.store.operations.setting import Stamp
from perdure.store.operations.telling import looking_back, mark_told
from perdure.store.statement import Op, row, rows, run

_READY = """
    SELECT id FROM sessions WHERE ready_at <= $1
    ORDER BY ready_at LIMIT $2 FOR UPDATE SKIP LOCKED"""
_NEXT_READY = "SELECT MIN(ready_at) FROM sessions WHERE ready_at IS NOT NULL"
_NEXT = f"""
    SELECT t.id, t.attempts, s.head_turn, t.principal_id, s.conversation_id, s.view, s.title,
           t.fetching, t.kind, t.told_seq, {speakers.FACTS}, c.kind, c.adapter, c.account, c.place,
           c.thread, c.person
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) {speakers.WHO}
    WHERE t.session_id = $1 AND t.outcome IS NULL AND t.state = 'queued'
    ORDER BY t.queued_seq LIMIT 1"""
_START = """
    UPDATE turns SET state = 'running', attempts = attempts + 1, parent_id = $1, node_id = $2,
                     started_at = COALESCE(started_at, $3), attempt_at = $3, reason = ''
    WHERE id = $4"""
_LEASE = """
    UPDATE sessions SET epoch = epoch + 1, ready_at = NULL, hold_until = NULL
    WHERE id = $1 RETURNING epoch"""
_PARTIALS = "SELECT message_id, text FROM partials WHERE turn_id = $1 ORDER BY message_id, start"
_FORGET_MESSAGE = "DELETE FROM partials WHERE turn_id = $1 AND message_id = $2"
STOPPED = Closing(Outcome.STOPPED, "stopped by the user")


def claim(dialect: Dialect, stamp: Stamp, *, limit: int) -> Op[list[Claimed]]:
    ready = yield from rows(_READY, stamp.at, limit)
    claimed = []
    for (session,) in ready:
        claimed.append((yield from claim_next(dialect, session, stamp)))
    return claimed


def next_claim() -> Op[int | None]:
    """When the next turn can be claimed; it may be waiting for something."""
    found = yield from row(_NEXT_READY)
    return found[0] if found else None


def claim_next(dialect: Dialect, session: SessionId, stamp: Stamp) -> Op[Claimed]:
    found = yield from row(_NEXT, session)
    assert found is not None, f"{session} is marked ready and has no queued turn"
    (turn, attempts, head, principal, conversation, view, title, fetching, kind, told_seq, name,
     has_token, is_paired, place_kind, *address) = found  # fmt: skip
    assert not fetching, f"{session} is marked ready and {turn} waits for files"
    leased = yield from row(_LEASE, session)
    assert leased is not None
    yield from run(_START, head, stamp.node, stamp.at, turn)
    lease = Lease(session=session, turn=turn, epoch=leased[0], attempt=attempts + 1)
    started = TurnStarted(turn=turn, attempt=lease.attempt, parent=head, node=stamp.node)
    yield from journal.append(dialect, session, [started], at=stamp.at, epoch=lease.epoch)
    before = yield from looking_back(head, kind=kind)
    events = tuple((yield from journal.of_turn(turn)))
    where = _address(address)
    person = Person(principal, conversation, is_shared=is_shared(where, place_kind))
    facts = speakers.Facts(name, where.adapter, where.place, has_token, is_paired)
    return Claimed(
        lease=lease,
        conversation=conversation,
        principal=principal,
        address=where,
        is_shared=person.is_shared,
        parent=head,
        view=view,
        has_title=bool(title),
        prefix=before.prefix,
        memories=tuple((yield from recall(person))),
        events=events,
        telling=telling_own(events, before.telling, told_seq=told_seq),
        speaker=speakers.speaker(facts, events[0].event),
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
    yield from mark_told(recorded)
    if piece is not None:
        yield from dialect.flush([piece])
    for event in events:
        if isinstance(event, AssistantSaid):
            yield from run(_FORGET_MESSAGE, lease.turn, event.message)
    return recorded


def take_steers(dialect: Dialect, lease: Lease, *, at: int) -> Op[list[Recorded]]:
    """Messages that came for this turn take their place in it, between two steps."""
    yield from journal.fence(lease.session, lease.epoch)
    waiting = waiting_steers((yield from journal.of_turn(lease.turn)))
    if not waiting:
        return []
    taken = [
        SteerTaken(
            turn=lease.turn,
            message=steer.message,
            text=steer.text,
            attachments=steer.attachments,
            sender=steer.sender,
        )
        for steer in waiting
    ]
    return (yield from journal.append(dialect, lease.session, taken, at=at))


def settle(dialect: Dialect, lease: Lease, settlement: Settlement, stamp: Stamp) -> Op[Settled]:
    last_seq = yield from journal.fence(lease.session, lease.epoch)
    shown = yield from _take_shown(lease.turn)
    so_far = yield from journal.of_turn(lease.turn)
    events: list[AnyEvent] = [*settlement.acknowledgements, *_said(lease, settlement, shown)]
    if not settlement.calls:
        events += open_call_endings(lease.turn, [recorded.event for recorded in so_far])
    events.append(
        TurnSettled(
            turn=lease.turn,
            outcome=settlement.outcome,
            reason=settlement.reason,
            detail=settlement.detail,
            agent=settlement.agent,
            usage=settlement.usage,
            cost=settlement.cost,
            prefix_break=settlement.prefix_break,
        )
    )
    events += steps_aside([*(recorded.event for recorded in so_far), *events])
    events += free_steers(so_far, stamp)
    closing = Closing(
        settlement.outcome,
        settlement.reason,
        settlement.detail,
        settlement.context_tokens,
        settlement.prefix,
    )
    recorded = yield from close_turn(lease.session, lease.turn, events, closing, stamp, last_seq)
    yield from mark_told(recorded)
    yield from spending.spend(
        lease.turn, settlement.agent, settlement.usage, settlement.cost, stamp
    )
    if settlement.is_reserved:
        yield from spending.release(lease.turn)
    yield from queue_freed(recorded, stamp, places=arrivals(so_far))
    is_ready = yield from make_ready(lease.session, stamp)
    if settlement.parts or settlement.files:
        yield from replies.put_reply(
            lease.session, lease.turn, settlement.parts, settlement.files, stamp
        )
    brought = yield from errands.ended(dialect, lease.turn, [*so_far, *recorded], stamp)
    # A session may have waited for an errand that brings nothing.
    has_more = is_ready or is_errand(so_far)
    return Settled(recorded=[*recorded, *brought], has_more=has_more)


def _take_shown(turn: TurnId) -> Op[dict[MessageId, str]]:
    """Text that was shown and is in no message yet, by message; its rows are gone."""
    pieces = yield from rows(_PARTIALS, turn)
    shown: dict[MessageId, str] = {}
    for message, text in pieces:
        shown[message] = shown.get(message, "") + text
    if pieces:
        yield from run(FORGET_PARTIALS, turn)
    return shown


def _said(lease: Lease, settlement: Settlement, shown: dict[MessageId, str]) -> list[AnyEvent]:
    """The final message, and whatever else was shown: no settlement makes shown text vanish."""
    texts = dict(shown)
    if settlement.message is not None:
        flushed = texts.pop(settlement.message, "")
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


def stop(
    dialect: Dialect, turn: TurnId, stamp: Stamp, *, by: PrincipalId | None
) -> Op[list[Recorded]]:
    found = yield from locked(turn)
    if found is None or not (yield from history.is_own(found.session, by)):
        raise NotFound(f"there is no turn {turn}")
    if found.state == State.SETTLED:
        raise Conflict(f"turn {turn} has already finished", code="already_finished")
    return (yield from end_turn(dialect, turn, found, STOPPED, stamp))


def turn_away(dialect: Dialect, turn: TurnId, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """End a turn whose person may not speak any more: it is stopped if it is at work, else refused.
    Nothing happens to one that has ended meanwhile."""
    found = yield from locked(turn)
    if found is None or found.state == State.SETTLED:
        return []
    is_at_work = found.state in (State.RUNNING, State.WAITING)
    closing = Closing(Outcome.STOPPED if is_at_work else Outcome.REFUSED, reason)
    return (yield from end_turn(dialect, turn, found, closing, stamp))


def amend(
    dialect: Dialect, turn: TurnId, text: str, stamp: Stamp, *, by: PrincipalId | None
) -> Op[list[Recorded]]:
    """Rewrite a message that still waits."""
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
    message = yield from row("SELECT message_id FROM turns WHERE id = $1", turn)
    assert message is not None
    amended = TurnAmended(turn=turn, message=message[0], text=text)
    return (yield from journal.append(dialect, found.session, [amended], at=stamp.at))
