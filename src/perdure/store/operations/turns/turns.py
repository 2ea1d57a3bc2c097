"""Claims turns, writes under their lease, settles them and stops them.

Every write of a runner carries the epoch of its lease. A stop, a newer message or the reaper moves
the epoch in its own transaction, so a late write of the old runner is refused as a whole.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    ContentLeftOut,
    NoticePosted,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnSettled,
    TurnStarted,
    Usage,
)
from perdure.domain.journal.session_events import WindowExceeded
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.people.sharing import EQUAL, FairShares, fairly
from perdure.domain.prompt.prefix import KeptText, RequestOrigin
from perdure.domain.prompt.whereabouts import Whereabouts
from perdure.domain.turn.errands import is_errand
from perdure.domain.turn.spent import Spent, spent_earlier
from perdure.domain.turn.turn import AT_WORK, State
from perdure.domain.waits import AT_ONCE, TOLERANCE_MS
from perdure.ports.turns.turns import Claimed, Settled, Settlement, TextPiece, TurnLease
from perdure.store.drivers.dialect import Dialect, Written
from perdure.store.operations import journal, texts
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.delivery import replies
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import speakers, spending
from perdure.store.operations.reading import history
from perdure.store.operations.sessions import room
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import errands, turn_rows
from perdure.store.operations.turns.claiming import Begun, claimed
from perdure.store.operations.turns.endings import (
    Closing,
    arrivals,
    close_turn,
    end_turn,
    forget_partials,
    free_steers,
    locked,
    open_call_endings,
    queue_freed,
    steps_aside,
    waiting_steers,
)
from perdure.store.operations.turns.interruption_notes import mark_told
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, listed, many, one, run

# A condition: the session's wait is over, or it was written before the clock was set back.
_IS_READY = """
    ready_at IS NOT NULL AND (wait_until IS NULL OR wait_until <= $1 OR ready_at > $2)"""
# Finds sessions that can be claimed; `ready_sql` adds the rest.
_READY = f"SELECT id, ready_by FROM sessions WHERE {_IS_READY}"
_IN_LINE = " ORDER BY ready_rank, ready_seq, id LIMIT "
# Locks sessions to claim them; `take_sql` adds the rest.
_TAKE = "SELECT id, wait_until FROM sessions WHERE ready_at IS NOT NULL AND id IN "
# Finds when the earliest wait ends.
_NEXT_READY = "SELECT MIN(wait_until) FROM sessions WHERE ready_at IS NOT NULL"
# Starts a session's wait again from now, with its old length.
_WAIT_ANEW = """
    UPDATE sessions SET wait_until = wait_until - ready_at + $1, ready_at = $1 WHERE id = $2"""
# Reads the first turn in a session's line, with everything its runner needs to begin.
_NEXT = f"""
    SELECT t.id, t.attempts, s.head_turn, t.principal_id, s.conversation_id, s.view, s.title,
           t.fetching, t.kind, t.told_seq, {speakers.FACTS}, c.is_listed, c.kind, c.label,
           {ADDRESS}
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) {speakers.WHO}
    WHERE t.session_id = $1 AND t.outcome IS NULL AND t.state = '{State.QUEUED}'
    ORDER BY t.queued_seq LIMIT 1"""
# Takes a session for the process that claims its next turn. The new epoch makes all older leases
# stale.
_LEASE = """
    UPDATE sessions SET epoch = epoch + 1, ready_at = NULL, hold_until = NULL
    WHERE id = $1 RETURNING epoch"""
# Reads the text that was shown of a turn and is in no message yet, piece by piece.
_PARTIALS = "SELECT message_id, text FROM partials WHERE turn_id = $1 ORDER BY message_id, start"
# Stores what the request was made from that the turn's newest message answers.
_ANSWERS = "UPDATE turns SET prefix = $1 WHERE id = $2"
# Deletes the shown text of a message that the journal holds now.
_FORGET_MESSAGE = "DELETE FROM partials WHERE turn_id = $1 AND message_id = $2"
# Finds the message that a turn answers.
_MESSAGE = "SELECT message_id FROM turns WHERE id = $1"
# How many sessions are looked at beyond the free slots. The order by rank puts different people
# first, so that `fairly` can choose among that many people.
WINDOW: Final = 64
STOPPED = Closing(Outcome.STOPPED, "stopped by the user")


class _Ready(NamedTuple):
    session: SessionId
    by: PrincipalId


class _Taken(NamedTuple):
    session: SessionId
    wait_until: int | None


class _NextReady(NamedTuple):
    wait_until: int | None


class _Next(NamedTuple):
    """Holds the first turn in a session's line, as `_NEXT` reads it."""

    turn: TurnId
    attempts: int
    head: TurnId | None
    principal: PrincipalId
    conversation: ConversationId
    view: str
    title: str
    fetching: int
    kind: str
    told_seq: int
    name: str
    has_token: int
    is_paired: int
    is_listed: int
    place_kind: str
    label: str
    adapter: str
    account: str
    place: str
    thread: str
    person: str


class _Shown(NamedTuple):
    message: MessageId
    text: str


def claim(stamp: Stamp, *, limit: int, shares: FairShares = EQUAL) -> Op[list[Claimed]]:
    """Claim at most `limit` turns that can begin, fairly among the people who wait. All of them are
    one transaction: if the process dies after it, the turns are found as running under this node,
    and the reaper takes them when the node's lease has ended."""
    ready = yield from _ready(shares, at=stamp.at, limit=limit + WINDOW)
    chosen = fairly(ready, by=lambda each: each.by, shares=shares, limit=limit)
    taken = []
    for each in (yield from _take([each.session for each in chosen])):
        # `_IS_READY` also finds sessions whose wait was written before the clock was set back.
        if each.wait_until is not None and each.wait_until > stamp.at:
            yield from run(_WAIT_ANEW, stamp.at, each.session)
        else:
            taken.append((yield from claim_next(each.session, stamp)))
    return taken


def _ready(shares: FairShares, *, at: int, limit: int) -> Op[list[_Ready]]:
    """Find sessions that can be claimed, in order, except those of people who use all their
    slots."""
    full = shares.full
    sql = ready_sql(len(full))
    return (yield from many(_Ready, sql, at, at + TOLERANCE_MS, *full, limit))


def ready_sql(full: int) -> str:
    """Return the query, given how many people use all their slots."""
    without = f" AND ready_by NOT IN {listed(3, full)}" if full else ""
    return f"{_READY}{without}{_IN_LINE}${3 + full}"


def _take(sessions: Sequence[SessionId]) -> Op[list[_Taken]]:
    """Lock these sessions, and return those that no other node has claimed or is claiming."""
    if not sessions:
        return []
    taken = yield from many(_Taken, take_sql(len(sessions)), *sessions)
    found = {each.session: each for each in taken}
    return [found[session] for session in sessions if session in found]


def take_sql(count: int) -> str:
    """Return the query that locks `count` sessions."""
    return f"{_TAKE}{listed(1, count)} FOR UPDATE SKIP LOCKED"


def next_claim(*, at: int, shares: FairShares = EQUAL) -> Op[int | None]:
    """Return when the next turn can be claimed (`AT_ONCE` if one is ready), or None if none
    waits."""
    if (yield from _ready(shares, at=at, limit=1)):
        return AT_ONCE
    found = yield from one(_NextReady, _NEXT_READY)
    return found.wait_until if found else None


def claim_next(session: SessionId, stamp: Stamp) -> Op[Claimed]:
    """Begin the next attempt of the first turn in this session's line."""
    found = yield from one(_Next, _NEXT, session)
    assert found is not None, f"{session} is marked ready and has no queued turn"
    turn, head = found.turn, found.head
    assert not found.fetching, f"{session} is marked ready and {turn} waits for files"
    epoch = yield from one(int, _LEASE, session)
    assert epoch is not None
    lease = TurnLease(session=session, turn=turn, epoch=epoch, attempt=found.attempts + 1)
    started = TurnStarted(turn=turn, attempt=lease.attempt, parent=head, node=stamp.node)
    yield from turn_rows.start(started, at=stamp.at)
    yield from journal.append(session, [started], at=stamp.at, epoch=lease.epoch)
    events = tuple((yield from journal.of_turn(turn)))
    where = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    facts = speakers.SpeakerFacts(
        found.name, where.adapter, where.place, found.has_token, found.is_paired
    )
    begun = Begun(
        lease=lease,
        conversation=found.conversation,
        principal=found.principal,
        address=where,
        place_kind=found.place_kind,
        whereabouts=Whereabouts(kind=found.place_kind, label=found.label, person=found.name),
        parent=head,
        kind=TurnKind(found.kind),
        view=found.view,
        title=found.title,
        is_listed=bool(found.is_listed),
        events=events,
        told_seq=found.told_seq,
        speaker=speakers.speaker(facts, events[0].event),
    )
    return (yield from claimed(begun))


def append(
    dialect: Dialect,
    lease: TurnLease,
    events: Sequence[AnyEvent],
    *,
    piece: TextPiece | None,
    origin: RequestOrigin,
    at: int,
) -> Op[list[Recorded]]:
    """Append the runner's own events, if its lease still holds. The text of a message that became
    final is deleted from `partials` in the same transaction, so it is never missing and never in
    both."""
    recorded = yield from journal.append(lease.session, events, at=at, epoch=lease.epoch)
    yield from mark_told(recorded)
    yield from texts.keep(origin.texts)
    if origin.prefix:
        yield from run(_ANSWERS, origin.prefix, lease.turn)
    if piece is not None:
        yield from flush(dialect, [piece], piece.origin.texts)
    for event in events:
        if isinstance(event, AssistantSaid):
            yield from run(_FORGET_MESSAGE, lease.turn, event.message)
        elif isinstance(event, WindowExceeded):
            yield from room.learn(event, at=at)
    return recorded


def flush(
    dialect: Dialect, pieces: Sequence[TextPiece], new: Sequence[KeptText]
) -> Op[set[Written]]:
    """Write pieces of growing text, and those texts of their requests that may be new. Both are one
    transaction: after a crash, shown text always has the request it answers."""
    yield from texts.keep(new)
    return (yield from dialect.flush(pieces))


def take_steers(lease: TurnLease, *, at: int) -> Op[list[Recorded]]:
    """Move messages that were sent to the running turn into it, between two steps. Returns the
    appended events. The fence keeps a second transaction from taking the same messages."""
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
            passed_on=steer.passed_on,
        )
        for steer in waiting
    ]
    return (yield from journal.append(lease.session, taken, at=at))


def tell(lease: TurnLease, text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Post a notice in a running turn's conversation, if the lease still holds."""
    yield from journal.fence(lease.session, lease.epoch)
    return (yield from notice(lease.session, lease.turn, text, stamp))


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
        final = replies.FinalWords(settlement.parts, settlement.files, settlement.choices)
        yield from replies.put_reply(lease.session, lease.turn, final, stamp)
    brought = yield from errands.ended(lease.turn, [*so_far, *recorded], stamp)
    # A session may have been held back by this errand even if it brings no event.
    has_more = is_ready or is_errand(so_far)
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
    # the message that asked for it. With new calls in the settlement itself nothing is closed.
    never_ended = [] if settlement.calls else open_call_endings(turn, known)
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
