"""What becomes of turns whose attempt ended before they did."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.announcing import Drain, UnderWay, shutdown_text, too_old_text
from perdure.domain.errands import UNASKED
from perdure.domain.events import (
    AttemptInterrupted,
    Recorded,
    TurnRequeued,
)
from perdure.domain.ids import NodeId, TurnId
from perdure.domain.outcomes import Asked, Interruption
from perdure.domain.recovery import (
    ALONE_MS,
    CONTINUE,
    DROP,
    Fate,
    Policy,
    Resume,
    alone_until,
    died_at,
    fate,
    question_text,
    tail_key,
)
from perdure.domain.turn import State
from perdure.ports.turns import Lease, Resumed
from perdure.store.dialect import Dialect
from perdure.store.operations import journal, spending
from perdure.store.operations.endings import (
    FORGET_PARTIALS,
    Locked,
    closing_events,
    end_turn,
    locked,
)
from perdure.store.operations.line import make_ready
from perdure.store.operations.notices import notice
from perdure.store.operations.queueing import REPLACED
from perdure.store.operations.setting import Stamp
from perdure.store.operations.suspension import Fallen, give_up, lock_conversation
from perdure.store.statement import Op, row, rows, run

NO_LIMIT: Final = 2**62
_STRIKE = """
    UPDATE sessions SET strikes = strikes + $1, epoch = epoch + 1 WHERE id = $2 RETURNING strikes"""
_INTERRUPT = """
    UPDATE turns SET state = 'interrupted', reason = $1, alive_at = $2, node_id = NULL,
                     asked_at = NULL, told_at = NULL,
                     longest_ms = CASE WHEN $3 - attempt_at > longest_ms THEN $3 - attempt_at
                                       ELSE longest_ms END
    WHERE id = $4"""
_REQUEUE = "UPDATE turns SET state = 'queued' WHERE id = $1"
_ORPHANS = """
    SELECT t.id, t.node_id, t.attempt_at FROM turns t WHERE t.state IN ('running', 'waiting')
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = t.node_id AND n.left_at IS NULL
                      AND n.lease_until > {now_ms})
    ORDER BY t.attempt_at LIMIT $1"""
# Of the suspects that a node has resumed, the one that began last: when it was let in, the others
# had lived longer than ever before.
_LAST_SUSPECTS = """
    SELECT t.node_id, MAX(t.attempt_at) FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.state IN ('running', 'waiting') AND t.attempts > 1 AND s.strikes >= 2
    GROUP BY t.node_id"""
_OWNED = "SELECT id FROM turns WHERE node_id = $1 AND state IN ('running', 'waiting')"
_LAST_BEAT = """
    SELECT n.beat_at FROM turns t JOIN nodes n ON n.id = t.node_id WHERE t.id = $1"""
_INTERRUPTED = """
    SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.state = 'interrupted' AND (t.kind <> 'message' OR (t.alive_at >= $1 AND $2 = 1))
      AND s.strikes {suspects} 2
    ORDER BY t.queued_at LIMIT $3"""
# What somebody has said since: it waits behind the turn `t`, or was said to it and never taken.
_FOLLOWED = f"""
    (EXISTS (SELECT 1 FROM turns q WHERE q.session_id = t.session_id AND q.outcome IS NULL
             AND q.state = 'queued' AND q.kind NOT IN {UNASKED})
     OR EXISTS (SELECT 1 FROM journal said WHERE said.turn_id = t.id
                AND said.kind = 'steer_accepted'
                AND NOT EXISTS (SELECT 1 FROM journal taken WHERE taken.turn_id = t.id
                                AND taken.kind = 'steer_taken'
                                AND taken.message_id = said.message_id)))"""
_OVERTAKEN = f"""
    SELECT t.id FROM turns t
    WHERE t.state = 'interrupted' AND t.kind = 'message' AND (t.alive_at < $1 OR $2 = 0)
      AND {_FOLLOWED}
    ORDER BY t.queued_at LIMIT $3"""
_TO_ASK = """
    SELECT id FROM turns
    WHERE state = 'interrupted' AND kind = 'message' AND asked_at IS NULL AND alive_at >= $1
    ORDER BY queued_at LIMIT $2"""
_TOO_OLD = """
    SELECT id FROM turns
    WHERE state = 'interrupted' AND kind = 'message' AND asked_at IS NULL AND told_at IS NULL
      AND alive_at < $1
    ORDER BY queued_at LIMIT $2"""
_SINCE = f"SELECT t.alive_at, t.asked_at, t.told_at, {_FOLLOWED} FROM turns t WHERE t.id = $1"
_SUSPECTS_AT_WORK = """
    SELECT t.state, t.attempt_at, t.longest_ms FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.outcome IS NULL AND t.state <> 'interrupted' AND t.attempts > 0 AND s.strikes >= 2
      AND (t.state = 'queued' OR t.attempt_at >= $1)"""
_ASKED = "UPDATE turns SET asked_at = $1 WHERE id = $2"
_TOLD = "UPDATE turns SET told_at = $1 WHERE id = $2"
# Of calls only those in a conversation that people may look at.
_RUNNING_HERE = f"""
    SELECT t.id, t.session_id, t.kind, s.strikes, {_FOLLOWED}
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE t.node_id = $1 AND t.state IN ('running', 'waiting') AND s.kind = ''
      AND (t.kind = 'message' OR (c.is_listed = 1 AND t.kind NOT IN {UNASKED}))
    ORDER BY t.queued_at"""


class Cut(NamedTuple):
    """Why an attempt ends before its turn does, and what its node was asked for."""

    reason: Interruption
    asked: Asked = Asked.NOTHING


CRASHED: Final = Cut(Interruption.CRASH)


def interrupt(
    dialect: Dialect, lease: Lease, cut: Cut, stamp: Stamp, *, attempts_max: int
) -> Op[list[Recorded]]:
    """End our own attempt, at a drain that ran out of time."""
    yield from lock_conversation(lease.turn)
    yield from journal.fence(lease.session, lease.epoch)
    return (yield from _interrupt(dialect, lease.turn, cut, stamp, attempts_max))


def reap(dialect: Dialect, stamp: Stamp, *, attempts_max: int, limit: int) -> Op[list[Recorded]]:
    """End the attempts of turns whose owner is gone. A suspect that had proved itself, and so made
    room for the next one, is not given up for what that one may have done."""
    orphans = yield from rows(_ORPHANS.format(now_ms=dialect.now_ms), limit)
    last_began: dict[NodeId, int] = dict((yield from rows(_LAST_SUSPECTS)))
    recorded: list[Recorded] = []
    for turn, node, attempt_at in orphans:
        yield from lock_conversation(turn)
        has_proved_itself = attempt_at < last_began.get(node, 0)
        limit_now = NO_LIMIT if has_proved_itself else attempts_max
        recorded += yield from _interrupt(dialect, turn, CRASHED, stamp, limit_now)
    return recorded


def reclaim(
    dialect: Dialect, stamp: Stamp, *, known: Sequence[TurnId], attempts_max: int
) -> Op[list[Recorded]]:
    """After a claim of unknown fate: give back turns that are ours by the rows and nobody runs."""
    recorded: list[Recorded] = []
    for (turn,) in (yield from rows(_OWNED, stamp.node)):
        if turn not in known:
            yield from lock_conversation(turn)
            recorded += yield from _interrupt(dialect, turn, CRASHED, stamp, attempts_max)
    return recorded


def _interrupt(
    dialect: Dialect, turn: TurnId, cut: Cut, stamp: Stamp, attempts_max: int
) -> Op[list[Recorded]]:
    """The turn's conversation is locked already."""
    reason = cut.reason
    found = yield from locked(turn)
    if found is None or found.state not in (State.RUNNING, State.WAITING):
        return []  # another node's reaper was faster
    session, attempt = found.session, found.attempts
    so_far = yield from journal.of_turn(turn)
    events = yield from closing_events(turn, attempt, so_far, is_interrupted=True)
    alive_at = yield from _last_alive(turn, so_far)
    tail = tail_key([*(recorded.event for recorded in so_far), *events])
    events.append(
        AttemptInterrupted(
            turn=turn,
            attempt=attempt,
            reason=reason,
            tail=tail,
            alive_at=alive_at,
            asked=cut.asked,
        )
    )
    struck = yield from row(_STRIKE, int(reason.counts_towards_limit), session)
    assert struck is not None
    yield from run(FORGET_PARTIALS, turn)
    yield from spending.release(turn)
    # Our own attempts end now. Of others we only know when they were last seen alive.
    is_found_dead = reason is Interruption.CRASH
    ended_at = died_at(alive_at, stamp.at) if is_found_dead else stamp.at
    yield from run(_INTERRUPT, reason, alive_at, ended_at, turn)
    if reason.counts_towards_limit and struck[0] >= attempts_max:
        fallen = Fallen(turn, found, so_far, events, struck[0], reason)
        return (yield from give_up(dialect, fallen, stamp))
    return (yield from journal.append(dialect, session, events, at=stamp.at))


def _last_alive(turn: TurnId, so_far: Sequence[Recorded]) -> Op[int]:
    beat = yield from row(_LAST_BEAT, turn)
    return max(so_far[-1].at, beat[0] if beat else 0)


def resume(dialect: Dialect, policy: Policy, stamp: Stamp, *, limit: int) -> Op[Resumed]:
    """Apply the policy to interrupted turns. Selection is by the turns' own state, never by recent
    activity. Sessions that crashed before are suspects: they go last, and each of them alone until
    it has lived longer than ever before, so that a culprit is found alone."""
    oldest = stamp.at - policy.freshness_ms if policy.freshness_ms else 0
    goes_on = int(policy.resume is Resume.CONTINUE)
    found = yield from rows(_INTERRUPTED.format(suspects="<"), oldest, goes_on, limit)
    suspects = yield from rows(_INTERRUPTED.format(suspects=">="), oldest, goes_on, 2)
    look_again_ms = None
    if not found and suspects:
        is_free, look_again_ms = yield from _may_next_begin(stamp)
        if is_free:
            found, suspects = suspects[:1], suspects[1:]
    found += yield from rows(_OVERTAKEN, oldest, goes_on, limit)
    if policy.resume is Resume.ASK:
        found += yield from rows(_TO_ASK, oldest, limit)
    if policy.resume is not Resume.WAIT:
        found += yield from rows(_TOO_OLD, oldest, limit)
    recorded: list[Recorded] = []
    for (turn,) in found:
        recorded += yield from _meet(dialect, turn, policy, stamp)
    return Resumed(recorded=recorded, is_holding_back=bool(suspects), look_again_ms=look_again_ms)


def _may_next_begin(stamp: Stamp) -> Op[tuple[bool, int | None]]:
    """Whether no suspect must be alone any more; if one must, from when on none does, as far as
    that is known: of one that waits to be claimed it is not."""
    at_work = yield from rows(_SUSPECTS_AT_WORK, stamp.at - ALONE_MS)
    if any(state == State.QUEUED for state, _, _ in at_work):
        return False, None
    until = max((alone_until(began, longest) for _, began, longest in at_work), default=-1)
    return (True, None) if until < stamp.at else (False, until + 1)


def _meet(dialect: Dialect, turn: TurnId, policy: Policy, stamp: Stamp) -> Op[list[Recorded]]:
    """Whatever it was found as: what becomes of a turn is decided when its session is ours."""
    found = yield from locked(turn)
    if found is None or found.state != State.INTERRUPTED:
        return []
    since = yield from row(_SINCE, turn)
    assert since is not None
    alive_at, asked_at, told_at, is_followed = since
    age_ms = stamp.at - alive_at
    match fate(policy, kind=found.kind, age_ms=age_ms, is_followed=bool(is_followed)):
        case Fate.GOES_ON:
            return (yield from _requeue(dialect, turn, found, stamp))
        case Fate.MAKES_WAY:
            return (yield from end_turn(dialect, turn, found, REPLACED, stamp))
        case Fate.ASKS if asked_at is None:
            return (yield from _ask(dialect, turn, found, stamp))
        case Fate.TOO_OLD if asked_at is None and told_at is None:
            return (yield from _tell(dialect, turn, found, policy, stamp))
        case Fate.ASKS | Fate.TOO_OLD | Fate.WAITS:
            return []


def requeue(dialect: Dialect, turn: TurnId, stamp: Stamp) -> Op[list[Recorded]]:
    found = yield from locked(turn)
    if found is None or found.state != State.INTERRUPTED:
        return []
    return (yield from _requeue(dialect, turn, found, stamp))


def _requeue(dialect: Dialect, turn: TurnId, found: Locked, stamp: Stamp) -> Op[list[Recorded]]:
    requeued = TurnRequeued(turn=turn, reason=Interruption(found.reason))
    recorded = yield from journal.append(dialect, found.session, [requeued], at=stamp.at)
    yield from run(_REQUEUE, turn)
    yield from make_ready(found.session, stamp)
    return recorded


def _ask(dialect: Dialect, turn: TurnId, found: Locked, stamp: Stamp) -> Op[list[Recorded]]:
    """One short question, once."""
    yield from run(_ASKED, stamp.at, turn)
    cut = yield from _last_cut(turn)
    text = question_text(cut.reason, cut.asked)
    return (yield from notice(dialect, found.session, turn, text, stamp, choices=(CONTINUE, DROP)))


def _tell(
    dialect: Dialect, turn: TurnId, found: Locked, policy: Policy, stamp: Stamp
) -> Op[list[Recorded]]:
    """Say once that the turn does not go on by itself. The mark is set in the transaction that
    says it, so a process that dies here either has done both or neither."""
    yield from run(_TOLD, stamp.at, turn)
    cut = yield from _last_cut(turn)
    text = too_old_text(policy, cut.reason, cut.asked)
    return (yield from notice(dialect, found.session, turn, text, stamp))


def _last_cut(turn: TurnId) -> Op[Cut]:
    cuts = [
        Cut(recorded.event.reason, recorded.event.asked)
        for recorded in (yield from journal.of_turn(turn))
        if isinstance(recorded.event, AttemptInterrupted)
    ]
    return cuts[-1]


def announce(dialect: Dialect, policy: Policy, drain: Drain, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell each conversation that this node is working for what becomes of its answer."""
    recorded: list[Recorded] = []
    for turn, session, kind, strikes, is_followed in (yield from rows(_RUNNING_HERE, stamp.node)):
        under_way = UnderWay(kind=kind, strikes=strikes, is_followed=bool(is_followed))
        text = shutdown_text(policy, drain, under_way)
        recorded += yield from notice(dialect, session, turn, text, stamp)
    return recorded
