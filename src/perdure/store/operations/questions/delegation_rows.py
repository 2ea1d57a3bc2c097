"""Reads and writes the rows of work that one agent has given to another."""

from typing import Final, NamedTuple

from perdure.domain.ids import CallId, PrincipalId, TurnId
from perdure.store.statement import Op, many, one, run

OPEN: Final = "open"
# Adds a delegation, for the person of the turn that waits.
_PUT = """
    INSERT INTO delegations (errand_id, turn_id, call_id, principal_id, agent, delegated_at,
                             deadline, state, is_live)
    SELECT $1, t.id, $2, t.principal_id, $3, $4, $5, 'open', 1 FROM turns t WHERE t.id = $6"""
# Reads delegations; the caller appends which.
_COLUMNS = "SELECT errand_id, turn_id, call_id, state FROM delegations "
_OF_ERRAND = _COLUMNS + "WHERE errand_id = $1"
# Reads the delegations that a turn waits for.
_OF_TURN = _COLUMNS + "WHERE turn_id = $1 AND state = 'open' ORDER BY errand_id"
# Reads delegations whose deadline has passed.
_DUE = (
    _COLUMNS
    + """
    WHERE state = 'open' AND deadline > 0 AND deadline <= $1
    ORDER BY deadline, errand_id LIMIT $2"""
)
# Finds the earliest deadline.
_NEXT = "SELECT MIN(deadline) FROM delegations WHERE state = 'open' AND deadline > 0"
# Finds errands for which nobody waits any more.
_UNWANTED = """
    SELECT errand_id FROM delegations WHERE is_live = 1 AND state <> 'open'
    ORDER BY errand_id LIMIT $1"""
# Locks a person, so that nobody counts their errands at the same time.
_LOCK_PERSON = "SELECT id FROM principals WHERE id = $1 FOR NO KEY UPDATE"
# Counts the errands of a person that agents have ordered and that are not over.
_LIVE = "SELECT COUNT(*) FROM delegations WHERE principal_id = $1 AND is_live = 1"
# Ends the wait of a turn for an errand.
_CLOSE = "UPDATE delegations SET state = $1 WHERE errand_id = $2"
# Ends the wait of a turn for all its errands.
_WITHDRAW = "UPDATE delegations SET state = 'withdrawn' WHERE turn_id = $1 AND state = 'open'"
# Notes that an errand is over, and ends the wait for it.
_END = """
    UPDATE delegations
    SET is_live = 0, state = CASE WHEN state = 'open' THEN 'returned' ELSE state END
    WHERE errand_id = $1"""


class DelegationRow(NamedTuple):
    """Holds a piece of work that a call of `turn` has given to another agent."""

    errand: TurnId
    turn: TurnId
    call: CallId
    state: str


class _Deadline(NamedTuple):
    at: int | None


def put(
    errand: TurnId, *, turn: TurnId, call: CallId, agent: str, at: int, deadline: int
) -> Op[None]:
    """Write down a piece of work for which a turn waits."""
    yield from run(_PUT, errand, call, agent, at, deadline, turn)


def of_errand(errand: TurnId) -> Op[DelegationRow | None]:
    """Return the delegation that an errand does, or None."""
    return (yield from one(DelegationRow, _OF_ERRAND, errand))


def open_of(turn: TurnId) -> Op[list[DelegationRow]]:
    """Return the delegations that a turn waits for."""
    return (yield from many(DelegationRow, _OF_TURN, turn))


def due(*, at: int, limit: int) -> Op[list[DelegationRow]]:
    """Return delegations whose deadline has passed."""
    return (yield from many(DelegationRow, _DUE, at, limit))


def next_deadline() -> Op[int | None]:
    """Return when the next deadline passes, or None."""
    found = yield from one(_Deadline, _NEXT)
    return found.at if found else None


def unwanted(*, limit: int) -> Op[list[TurnId]]:
    """Return errands that are under way and for which nobody waits any more."""
    return (yield from many(TurnId, _UNWANTED, limit))


def count_alone(principal: PrincipalId) -> Op[int]:
    """Return how many errands of a person are under way. Until the transaction ends, nobody else
    can add one."""
    yield from one(PrincipalId, _LOCK_PERSON, principal)
    return (yield from one(int, _LIVE, principal)) or 0


def close(errand: TurnId, state: str) -> Op[None]:
    """End the wait for an errand that may still be under way."""
    yield from run(_CLOSE, state, errand)


def withdraw(turn: TurnId) -> Op[None]:
    """End the wait for all errands of a turn."""
    yield from run(_WITHDRAW, turn)


def end(errand: TurnId) -> Op[None]:
    """Note that an errand is over."""
    yield from run(_END, errand)
