"""Claims turns from the line, and builds what a runner needs to begin a turn: both for a claimed
one and for one that begins in the transaction that accepts its message."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.address import Address, is_shared
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import Recorded, TurnStarted
from perdure.domain.kinds import TurnKind
from perdure.domain.people.access import Speaker
from perdure.domain.people.sharing import EQUAL, FairShares, fairly
from perdure.domain.prompt.whereabouts import Whereabouts
from perdure.domain.turn.recovery import telling_own
from perdure.domain.turn.turn import State
from perdure.domain.waits import AT_ONCE, TOLERANCE_MS
from perdure.ports.turns.turns import Claimed, TurnLease
from perdure.store.operations import journal
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.people import speakers
from perdure.store.operations.people.memories import MemoryOwner, recall
from perdure.store.operations.questions import effects
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.interruption_notes import looking_back
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
    SELECT t.id, t.attempts, t.reason, s.head_turn, t.principal_id, s.conversation_id, s.view,
           s.title, t.fetching, t.kind, t.told_seq,
           (SELECT COUNT(*) FROM effects e WHERE e.session_id = s.id
            AND e.marked_at IS NOT NULL AND e.told_turn_id IS NULL),
           {speakers.FACTS}, c.is_listed, c.kind, c.label, {ADDRESS}
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id) {speakers.WHO}
    WHERE t.session_id = $1 AND t.outcome IS NULL AND t.state = '{State.QUEUED}'
    ORDER BY t.queued_seq LIMIT 1"""
# Takes a session for the process that claims its next turn. The new epoch makes all older leases
# stale.
_LEASE = """
    UPDATE sessions SET epoch = epoch + 1, ready_at = NULL, hold_until = NULL
    WHERE id = $1 RETURNING epoch"""
# How many sessions are looked at beyond the free slots. The order by rank puts different people
# first, so that `fairly` can choose among that many people.
WINDOW: Final = 64


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
    reason: str
    head: TurnId | None
    principal: PrincipalId
    conversation: ConversationId
    view: str
    title: str
    fetching: int
    kind: str
    told_seq: int
    marks: int
    name: str
    has_token: int
    is_paired: int
    former_place: str | None
    is_listed: int
    place_kind: str
    label: str
    adapter: str
    account: str
    place: str
    thread: str
    person: str


class Begun(NamedTuple):
    """Holds a turn that has just begun. `events` are the turn's own; `told_seq` is the seq of the
    newest interruption of it that the model was told of."""

    lease: TurnLease
    conversation: ConversationId
    principal: PrincipalId
    address: Address
    place_kind: str
    whereabouts: Whereabouts
    parent: TurnId | None
    kind: TurnKind
    view: str
    title: str
    is_listed: bool
    events: tuple[Recorded, ...]
    told_seq: int = 0
    speaker: Speaker | None = None


def claimed(begun: Begun) -> Op[Claimed]:
    """Return a begun turn together with the notes that the model needs and the memories about its
    person."""
    before = yield from looking_back(begun.parent, kind=begun.kind)
    shared = is_shared(begun.address, begun.place_kind)
    person = MemoryOwner(begun.principal, begun.conversation, is_shared=shared)
    return Claimed(
        lease=begun.lease,
        conversation=begun.conversation,
        principal=begun.principal,
        address=begun.address,
        is_shared=shared,
        parent=begun.parent,
        events=begun.events,
        telling=telling_own(begun.events, before.telling, told_seq=begun.told_seq),
        view=begun.view,
        prefix=before.prefix,
        memories=tuple((yield from recall(person))),
        has_title=bool(begun.title),
        is_listed=begun.is_listed,
        whereabouts=begun.whereabouts,
        speaker=begun.speaker,
    )


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
    lease = TurnLease(session=session, turn=turn, epoch=epoch, attempt=_attempt(found))
    started = TurnStarted(turn=turn, attempt=lease.attempt, parent=head, node=stamp.node)
    yield from turn_rows.start(started, at=stamp.at)
    marked = (yield from effects.tell(session, turn)) if found.marks else []
    yield from journal.append(session, [started, *marked], at=stamp.at, epoch=lease.epoch)
    events = tuple((yield from journal.of_turn(turn)))
    where = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    facts = speakers.SpeakerFacts(
        found.name,
        where.adapter,
        where.place,
        found.has_token,
        found.is_paired,
        found.former_place,
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


def _attempt(found: _Next) -> int:
    """Return the number of the attempt that begins. A turn whose questions were answered goes on
    with the attempt that asked them: nothing has interrupted it."""
    goes_on = found.attempts > 0 and not found.reason
    return found.attempts if goes_on else found.attempts + 1
