"""Recovers turns whose attempt ended before the turn did, as after a crash or a restart.

First the attempt is ended (`reap`, `interrupt`, `reclaim`): the turn is then `interrupted`, and its
shown text is a message. Later `resume` applies the policy: the turn continues, makes way for a
newer message, asks its people, or waits. These are separate transactions; if the process dies
between them, the next start finds the turn as `interrupted` and goes on.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import NodeId, SessionId, TurnId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    Recorded,
    TurnRequeued,
)
from perdure.domain.kinds import UNASKED, TurnKind
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.turn.announcing import Drain, UnderWay, shutdown_text, too_old_text
from perdure.domain.turn.recovery import (
    ALONE_MS,
    CONTINUE,
    DROP,
    SUSPECT_FROM,
    Fate,
    Policy,
    Resume,
    Suspect,
    alone_until,
    died_at,
    fate,
    question_text,
    tail_key,
    trial_size,
)
from perdure.domain.turn.spent import NOTHING_SPENT, Spent
from perdure.domain.turn.turn import AT_WORK, State
from perdure.domain.waits import TOLERANCE_MS
from perdure.ports.turns.turns import Resumed, TurnLease
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal, nodes
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import homes, spending
from perdure.store.operations.questions import effects
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.endings import (
    closing_events,
    end_turn,
    forget_partials,
    keep_origin,
)
from perdure.store.operations.turns.queueing import REPLACED
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.operations.turns.suspension import Fallen, give_up, lock_conversation
from perdure.store.statement import Op, many, one, run, sql_list

# A limit for turns that are not to be given up, however often they were interrupted.
NO_LIMIT: Final = 2**62
# Turns a person waits for; all other kinds are always resumed.
_PERSONAL: Final = TurnKind.MESSAGE
# A condition: the turn runs. The first half lets the database use the index of turns at work.
_RUNS: Final = f"t.state IN {sql_list(AT_WORK)} AND t.state = '{State.RUNNING}'"
# Counts an interruption, and ends the lease of the runner.
_STRIKE = """
    UPDATE sessions SET strikes = strikes + $1, epoch = epoch + 1 WHERE id = $2 RETURNING strikes"""
# Finds running turns of other nodes that are gone, by the clock that measures leases.
_ORPHANS = f"""
    SELECT t.id, t.node_id, t.attempt_at FROM turns t WHERE {_RUNS} AND t.node_id <> $1
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = t.node_id AND n.left_at IS NULL
                      AND n.lease_until > {{now_ms}})
    ORDER BY t.attempt_at LIMIT $2"""
# Finds the suspects that run, with the instant at which each was put back in line: those that were
# put back together are on trial together. When the newest of a node was let in, the older ones had
# already lived longer than in any attempt before.
_SUSPECTS_RUNNING = f"""
    SELECT t.id, t.node_id, t.attempt_at,
           (SELECT j.at FROM journal j WHERE j.turn_id = t.id AND j.kind = 'turn_requeued'
            ORDER BY j.seq DESC LIMIT 1)
    FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE {_RUNS} AND t.attempts > 1 AND s.strikes >= {SUSPECT_FROM}"""
# Finds the turns that this node runs according to the rows.
_OWNED = f"SELECT t.id FROM turns t WHERE t.node_id = $1 AND {_RUNS}"
# Finds when a turn's node was last alive.
_LAST_BEAT = """
    SELECT n.beat_at FROM turns t JOIN nodes n ON n.id = t.node_id WHERE t.id = $1"""
# A condition: the interrupted turn continues by itself.
_GOES_ON = f"""
    t.state = '{State.INTERRUPTED}'
      AND (t.kind <> '{_PERSONAL}' OR (t.alive_at >= $1 AND $2 = 1))"""
# Finds interrupted turns that continue by themselves, except suspects.
_INTERRUPTED = f"""
    SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE {_GOES_ON} AND s.strikes < {SUSPECT_FROM}
    ORDER BY t.queued_at LIMIT $3"""
# Finds suspects that wait, those with the fewest interruptions first.
_WAITING_SUSPECTS = f"""
    SELECT t.id, s.strikes, t.longest_ms FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE {_GOES_ON} AND s.strikes >= {SUSPECT_FROM}
    ORDER BY s.strikes, t.queued_at LIMIT $3"""
# A condition: somebody has written since. A message waits behind turn `t`, or was sent to it and
# never taken.
_FOLLOWED = f"""
    (EXISTS (SELECT 1 FROM turns q WHERE q.session_id = t.session_id AND q.outcome IS NULL
             AND q.state = '{State.QUEUED}' AND q.kind NOT IN {sql_list(UNASKED)})
     OR EXISTS (SELECT 1 FROM journal said WHERE said.turn_id = t.id
                AND said.kind = 'steer_accepted'
                AND NOT EXISTS (SELECT 1 FROM journal taken WHERE taken.turn_id = t.id
                                AND taken.kind = 'steer_taken'
                                AND taken.message_id = said.message_id)))"""
# Finds interrupted turns that make way for a newer message.
_OVERTAKEN = f"""
    SELECT t.id FROM turns t
    WHERE t.state = '{State.INTERRUPTED}' AND t.kind = '{_PERSONAL}' AND (t.alive_at < $1 OR $2 = 0)
      AND {_FOLLOWED}
    ORDER BY t.queued_at LIMIT $3"""
# Finds interrupted turns whose people must be asked whether to continue.
_TO_ASK = f"""
    SELECT id FROM turns
    WHERE state = '{State.INTERRUPTED}' AND kind = '{_PERSONAL}' AND asked_at IS NULL
      AND alive_at >= $1
    ORDER BY queued_at LIMIT $2"""
# Finds interrupted turns whose people must be told that they do not continue by themselves.
_TOO_OLD = f"""
    SELECT id FROM turns
    WHERE state = '{State.INTERRUPTED}' AND kind = '{_PERSONAL}' AND asked_at IS NULL
      AND told_at IS NULL AND alive_at < $1
    ORDER BY queued_at LIMIT $2"""
# Reads what has happened since a turn was interrupted.
_SINCE = f"SELECT t.alive_at, t.asked_at, t.told_at, {_FOLLOWED} FROM turns t WHERE t.id = $1"
# Corrects attempts whose start lies in the future, because the clock was set back: they count from
# now on.
_BEGAN_NOW = f"""
    UPDATE turns SET attempt_at = $1
    WHERE state = '{State.RUNNING}' AND outcome IS NULL AND attempt_at > $2"""
# Finds suspects that run or wait to be claimed.
_SUSPECTS_AT_WORK = f"""
    SELECT t.state, t.attempt_at, t.longest_ms FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.outcome IS NULL AND t.state IN {sql_list((State.QUEUED, State.RUNNING))}
      AND t.attempts > 0 AND s.strikes >= {SUSPECT_FROM}
      AND (t.state = '{State.QUEUED}' OR t.attempt_at >= $1)"""
# Records that the people of an interrupted turn were asked.
_ASKED = "UPDATE turns SET asked_at = $1 WHERE id = $2"
# Records that the people of an interrupted turn were told.
_TOLD = "UPDATE turns SET told_at = $1 WHERE id = $2"
# Finds running turns whose people are told of a shutdown. Turns that are not personal count only in
# conversations that people may look at.
_RUNNING_HERE = f"""
    SELECT t.id, t.session_id, t.kind, s.strikes, {_FOLLOWED}
    FROM turns t JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE t.node_id = $1 AND {_RUNS} AND s.kind = ''
      AND (t.kind = '{_PERSONAL}' OR (c.is_listed = 1 AND t.kind NOT IN {sql_list(UNASKED)}))
    ORDER BY t.queued_at"""


class _Orphan(NamedTuple):
    turn: TurnId
    node: NodeId
    attempt_at: int


class _RunningSuspect(NamedTuple):
    turn: TurnId
    node: NodeId
    attempt_at: int
    requeued_at: int | None


class _WaitingSuspect(NamedTuple):
    turn: TurnId
    strikes: int
    longest_ms: int


class _SuspectAtWork(NamedTuple):
    state: str
    attempt_at: int
    longest_ms: int


class _Since(NamedTuple):
    """Holds what has happened since a turn was interrupted."""

    alive_at: int
    asked_at: int | None
    told_at: int | None
    is_followed: int


class _RunningHere(NamedTuple):
    turn: TurnId
    session: SessionId
    kind: str
    strikes: int
    is_followed: int


class Cut(NamedTuple):
    """Says why an attempt ended before its turn, what the node was asked to do (stop, restart), and
    what the attempt has spent, if that is known."""

    reason: Interruption
    asked: NodeRequest = NodeRequest.NOTHING
    spent: Spent = NOTHING_SPENT


CRASHED: Final = Cut(Interruption.CRASH)


def interrupt(lease: TurnLease, cut: Cut, stamp: Stamp, *, attempts_max: int) -> Op[list[Recorded]]:
    """End this node's own attempt, when a drain has run out of time. Raises `Fenced` if the turn
    was taken away meanwhile."""
    yield from lock_conversation(lease.turn)
    yield from journal.fence(lease.session, lease.epoch)
    return (yield from _interrupt(lease.turn, cut, stamp, attempts_max))


def reap(dialect: Dialect, stamp: Stamp, *, attempts_max: int, limit: int) -> Op[list[Recorded]]:
    """End the attempts of running turns whose node is gone. Of the suspects, only one that was on
    trial alone is given up. A turn that began before the dead node's newest suspects is not given
    up either: they were let in only after the others had proved themselves, so the cause is more
    likely among them.

    This node's own turns are left alone, even if its lease has run out just now: their runners
    still work here. The next heartbeat finds that the lease is lost and ends them, and `reclaim`
    puts back what no other node has taken."""
    yield from nodes.shorten_leases(dialect)
    orphans = yield from many(_Orphan, _ORPHANS.format(now_ms=dialect.now_ms), stamp.node, limit)
    suspects = yield from many(_RunningSuspect, _SUSPECTS_RUNNING)
    trials = {node: _on_trial(node, suspects) for node in {orphan.node for orphan in orphans}}
    # Those who were on trial together are judged together: later nobody knows that they were.
    found = {orphan.turn for orphan in orphans}
    for trial in trials.values():
        if any(each.turn in found for each in trial):
            orphans += [_Orphan(*each[:3]) for each in trial if each.turn not in found]
    recorded: list[Recorded] = []
    for orphan in orphans:
        yield from lock_conversation(orphan.turn)
        limit_now = NO_LIMIT if _is_spared(orphan, trials[orphan.node]) else attempts_max
        recorded += yield from _interrupt(orphan.turn, CRASHED, stamp, limit_now)
    return recorded


def _on_trial(node: NodeId, suspects: Sequence[_RunningSuspect]) -> list[_RunningSuspect]:
    """Return the suspects that were on trial on a node: its newest, put back in line together."""
    there = [each for each in suspects if each.node == node]
    newest = max(there, key=lambda each: each.attempt_at, default=None)
    return [each for each in there if newest and each.requeued_at == newest.requeued_at]


def _is_spared(orphan: _Orphan, trial: Sequence[_RunningSuspect]) -> bool:
    """Tell whether a turn is not given up although its node died, because suspects on trial there
    are more likely the cause, or as likely."""
    if any(each.turn == orphan.turn for each in trial):
        return len(trial) > 1
    return any(orphan.attempt_at < each.attempt_at for each in trial)


def reclaim(stamp: Stamp, *, known: Sequence[TurnId], attempts_max: int) -> Op[list[Recorded]]:
    """End attempts that this node owns by the rows but does not run (`known` are those it runs).
    Called after a claim whose answer was lost: the claim may have been committed."""
    recorded: list[Recorded] = []
    for turn in (yield from many(TurnId, _OWNED, stamp.node)):
        if turn not in known:
            yield from lock_conversation(turn)
            recorded += yield from _interrupt(turn, CRASHED, stamp, attempts_max)
    return recorded


def _interrupt(turn: TurnId, cut: Cut, stamp: Stamp, attempts_max: int) -> Op[list[Recorded]]:
    """End a turn's attempt, or give the turn up if it was interrupted too often. The conversation
    must be locked already. Text, row, lease and reservation change together, so after a crash the
    attempt has ended as a whole or is found again by the next `reap`."""
    reason = cut.reason
    found = yield from locked(turn)
    if found is None or found.state is not State.RUNNING:
        return []  # another node's reaper was faster
    session, attempt = found.session, found.attempts
    so_far = yield from journal.of_turn(turn)
    events = yield from closing_events(turn, attempt, so_far, is_interrupted=True)
    alive_at = yield from _last_alive(turn, so_far)
    tail = tail_key([*(recorded.event for recorded in so_far), *events])
    interrupted = AttemptInterrupted(
        turn=turn,
        attempt=attempt,
        reason=reason,
        tail=tail,
        alive_at=alive_at,
        asked=cut.asked,
        usage=cut.spent.usage,
        cost=cut.spent.cost,
    )
    events.append(interrupted)
    cut_short = yield from effects.note(turn, [each.event for each in so_far], events, at=stamp.at)
    strikes = yield from one(int, _STRIKE, int(reason.counts_towards_limit), session)
    assert strikes is not None
    yield from keep_origin(turn)
    yield from forget_partials(turn)
    yield from spending.spend(turn, cut.spent, stamp, turns=0)
    yield from spending.release(turn)
    # This node's own attempts end now. Of a dead node we know only when it was last seen alive.
    is_found_dead = reason is Interruption.CRASH
    ended_at = died_at(alive_at, stamp.at) if is_found_dead else stamp.at
    yield from turn_rows.interrupt(interrupted, found.state, ended_at=ended_at)
    if reason.counts_towards_limit and strikes >= attempts_max:
        fallen = Fallen(turn, found, so_far, events, strikes, reason)
        recorded = yield from give_up(fallen, stamp)
        return recorded + (yield from effects.tell_people(session, turn, cut_short, stamp))
    recorded = yield from journal.append(session, events, at=stamp.at)
    recorded += yield from effects.tell_people(session, turn, cut_short, stamp)
    # Turns of unasked kinds have waited while this turn ran; they may begin now.
    yield from make_ready(session, stamp)
    return recorded


def _last_alive(turn: TurnId, so_far: Sequence[Recorded]) -> Op[int]:
    """Return when the turn's node was last alive: its last heartbeat, or its last event if
    later."""
    beat_at = yield from one(int, _LAST_BEAT, turn)
    return max(so_far[-1].at, beat_at or 0)


def resume(policy: Policy, stamp: Stamp, *, limit: int) -> Op[Resumed]:
    """Apply the policy to interrupted turns. They are chosen by their own state, never by recent
    activity. Sessions that crashed before are suspects: they go last, alone or a few together,
    and the next ones wait until these have lived longer than in any attempt before. So a turn which
    kills the process is found."""
    oldest = stamp.at - policy.freshness_ms if policy.freshness_ms else 0
    goes_on = int(policy.resume is Resume.CONTINUE)
    found = yield from many(TurnId, _INTERRUPTED, oldest, goes_on, limit)
    suspects = yield from many(_WaitingSuspect, _WAITING_SUSPECTS, oldest, goes_on, limit)
    look_again_ms = None
    if not found and suspects:
        is_free, look_again_ms = yield from _may_next_begin(stamp)
        if is_free:
            count = trial_size([Suspect(each.strikes, each.longest_ms) for each in suspects])
            found, suspects = [each.turn for each in suspects[:count]], suspects[count:]
    found += yield from many(TurnId, _OVERTAKEN, oldest, goes_on, limit)
    if policy.resume is Resume.ASK:
        found += yield from many(TurnId, _TO_ASK, oldest, limit)
    if policy.resume is not Resume.WAIT:
        found += yield from many(TurnId, _TOO_OLD, oldest, limit)
    recorded: list[Recorded] = []
    for turn in found:
        recorded += yield from _meet(turn, policy, stamp)
    return Resumed(recorded=recorded, is_holding_back=bool(suspects), look_again_ms=look_again_ms)


def _may_next_begin(stamp: Stamp) -> Op[tuple[bool, int | None]]:
    """Tell whether the next suspects may begin. If not, also return when to look again, or None if
    that is unknown because a suspect still waits to be claimed."""
    # If the clock was set back, nobody waits longer than before, and suspects that begin now begin
    # after these, which `reap` relies on.
    yield from run(_BEGAN_NOW, stamp.at, stamp.at + TOLERANCE_MS)
    at_work = yield from many(_SuspectAtWork, _SUSPECTS_AT_WORK, stamp.at - ALONE_MS)
    if any(each.state == State.QUEUED for each in at_work):
        return False, None
    until = max((alone_until(each.attempt_at, each.longest_ms) for each in at_work), default=-1)
    return (True, None) if until < stamp.at else (False, until + 1)


def _meet(turn: TurnId, policy: Policy, stamp: Stamp) -> Op[list[Recorded]]:
    """Decide what happens to an interrupted turn, now that its session is locked. The decision is
    made again from the locked rows: they may have changed since the turn was found."""
    found = yield from locked(turn)
    if found is None or found.state != State.INTERRUPTED:
        return []
    since = yield from one(_Since, _SINCE, turn)
    assert since is not None
    age_ms = stamp.at - since.alive_at
    match fate(policy, kind=found.kind, age_ms=age_ms, is_followed=bool(since.is_followed)):
        case Fate.GOES_ON:
            return (yield from _requeue(turn, found, stamp))
        case Fate.MAKES_WAY:
            return (yield from end_turn(turn, found, REPLACED, stamp))
        case Fate.ASKS if since.asked_at is None:
            return (yield from _ask(turn, found, stamp))
        case Fate.TOO_OLD if since.asked_at is None and since.told_at is None:
            return (yield from _tell(turn, found, policy, stamp))
        case Fate.ASKS | Fate.TOO_OLD | Fate.WAITS:
            return []


def requeue(turn: TurnId, stamp: Stamp) -> Op[list[Recorded]]:
    """Put an interrupted turn back in line. Does nothing if it is not interrupted any more."""
    found = yield from locked(turn)
    if found is None or found.state != State.INTERRUPTED:
        return []
    return (yield from _requeue(turn, found, stamp))


def _requeue(turn: TurnId, found: Locked, stamp: Stamp) -> Op[list[Recorded]]:
    """Append `TurnRequeued`, and put the turn back to its place in line."""
    requeued = TurnRequeued(turn=turn, reason=Interruption(found.reason))
    recorded = yield from journal.append(found.session, [requeued], at=stamp.at)
    yield from turn_rows.requeue(requeued, found.state)
    yield from make_ready(found.session, stamp)
    return recorded


def _ask(turn: TurnId, found: Locked, stamp: Stamp) -> Op[list[Recorded]]:
    """Ask the people once whether the turn should continue. The mark and the question are one
    transaction, so nobody is asked twice."""
    yield from run(_ASKED, stamp.at, turn)
    cut = yield from _last_cut(turn)
    text = question_text(cut.reason, cut.asked)
    return (yield from notice(found.session, turn, text, stamp, choices=(CONTINUE, DROP)))


def _tell(turn: TurnId, found: Locked, policy: Policy, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell the people once that the turn does not continue by itself. The mark and the notice are
    one transaction: after a crash either both are there or neither."""
    yield from run(_TOLD, stamp.at, turn)
    cut = yield from _last_cut(turn)
    text = too_old_text(policy, cut.reason, cut.asked)
    return (yield from notice(found.session, turn, text, stamp))


def _last_cut(turn: TurnId) -> Op[Cut]:
    """Return how the turn's last attempt ended."""
    cuts = [
        Cut(recorded.event.reason, recorded.event.asked)
        for recorded in (yield from journal.of_turn(turn))
        if isinstance(recorded.event, AttemptInterrupted)
    ]
    return cuts[-1]


def announce(policy: Policy, drain: Drain, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell each conversation in which this node runs a turn what will happen to its answer. If the
    drain says so, also tell the operators' homes that the node ends, unless they know it."""
    recorded: list[Recorded] = []
    running = yield from many(_RunningHere, _RUNNING_HERE, stamp.node)
    for each in running:
        kind, is_followed = TurnKind(each.kind), bool(each.is_followed)
        under_way = UnderWay(kind=kind, strikes=each.strikes, is_followed=is_followed)
        text = shutdown_text(policy, drain, under_way)
        recorded += yield from notice(each.session, each.turn, text, stamp)
    if drain.tells_homes:
        know = {*(each.session for each in running), drain.asked_in}
        recorded += yield from homes.end(
            drain.asked, stamp, but=[session for session in know if session]
        )
    return recorded
