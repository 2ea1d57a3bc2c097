"""Locks a turn for whoever changes it from outside."""

from typing import NamedTuple

from perdure.domain.ids import NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.kinds import TurnKind
from perdure.domain.turn.turn import State
from perdure.store.statement import Op, RaceLost, one

# Finds the session that a turn is in.
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
# Locks a session.
_LOCK_SESSION = "SELECT principal_id, last_seq FROM sessions WHERE id = $1 FOR UPDATE"
# Reads a turn after its session was locked.
_TURN = "SELECT session_id, state, attempts, reason, kind, node_id FROM turns WHERE id = $1"


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
    """Holds a turn whose session is locked until the transaction ends."""

    session: SessionId
    state: State
    attempts: int
    reason: str
    kind: TurnKind
    node: NodeId | None
    principal: PrincipalId
    last_seq: int


def locked(turn: TurnId) -> Op[Locked | None]:
    """Lock a turn's session and return the turn, or None if there is no such turn. The session is
    locked before the turn is read: a single statement would wait for the lock and then return the
    turn as it was before the wait."""
    session = yield from one(SessionId, _SESSION_OF, turn)
    if session is None:
        return None
    held = yield from one(_Held, _LOCK_SESSION, session)
    found = yield from one(_Turn, _TURN, turn)
    assert held is not None
    assert found is not None
    if found.session != session:
        raise RaceLost  # it was moved to another session; run again and lock that one
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
