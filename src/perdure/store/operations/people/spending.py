"""Records what was spent, and what running turns have reserved.

Both are summed in one statement, because a turn that settles moves its amount from one to the
other. Reservations of the day before count too: those turns settle, and are charged, today.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from perdure.domain.ids import ConversationId, PrincipalId, TurnId
from perdure.domain.journal.model.usage import Usage
from perdure.domain.people.budgets import (
    Amount,
    BudgetRefusal,
    BudgetScope,
    DailyBudgets,
    Held,
    budget_refusal,
    day_of,
)
from perdure.domain.renewals import DAY_MS
from perdure.domain.turn.spent import Spent
from perdure.ports.turns.budgets import Reservation
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

# The key and the sums of a spending row.
_COLUMNS = """
    day, principal_id, conversation_id, agent, turns, model_calls, input_tokens, output_tokens,
    cache_read_tokens, cache_write_tokens, money"""
# Adds to what was spent on the same day already.
_ADD_UP = """
    ON CONFLICT (day, principal_id, conversation_id, agent) DO UPDATE SET
        turns = spending.turns + excluded.turns,
        model_calls = spending.model_calls + excluded.model_calls,
        input_tokens = spending.input_tokens + excluded.input_tokens,
        output_tokens = spending.output_tokens + excluded.output_tokens,
        cache_read_tokens = spending.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = spending.cache_write_tokens + excluded.cache_write_tokens,
        money = spending.money + excluded.money"""
# Charges what an attempt of a turn has cost.
_SPEND = f"""
    INSERT INTO spending ({_COLUMNS})
    SELECT CAST($1 AS BIGINT), t.principal_id, s.conversation_id, CAST($2 AS TEXT),
           CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT),
           CAST($7 AS BIGINT), CAST($8 AS BIGINT), CAST($9 AS BIGINT)
    FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.id = $10
    {_ADD_UP}"""
# Charges what a turn had reserved.
_CHARGE = f"""
    INSERT INTO spending ({_COLUMNS})
    VALUES ($1, $2, $3, $4, 1, 1, $5, 0, 0, 0, $6)
    {_ADD_UP}"""
# Reserves room in the budgets for a turn, or changes its reservation.
_RESERVE = """
    INSERT INTO reservations (turn_id, day, principal_id, conversation_id, agent, tokens, money)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (turn_id) DO UPDATE SET day = excluded.day, agent = excluded.agent,
        tokens = excluded.tokens, money = excluded.money"""
# Removes a turn's reservation.
_RELEASE = "DELETE FROM reservations WHERE turn_id = $1"
# Removes a turn's reservation and returns it.
_TAKE_BACK = """
    DELETE FROM reservations WHERE turn_id = $1
    RETURNING principal_id, conversation_id, agent, tokens, money"""
# Sums what is spent today and what is reserved, without the turn that asks.
_HELD = """
    SELECT CAST(COALESCE(SUM(spent_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(spent_money), 0) AS BIGINT),
           CAST(COALESCE(SUM(reserved_tokens), 0) AS BIGINT),
           CAST(COALESCE(SUM(reserved_money), 0) AS BIGINT)
    FROM (SELECT input_tokens + output_tokens AS spent_tokens, money AS spent_money,
                 0 AS reserved_tokens, 0 AS reserved_money
          FROM spending WHERE day = $1 AND {scope} = $2
          UNION ALL
          SELECT 0, 0, tokens, money
          FROM reservations WHERE {scope} = $2 AND day >= $3 AND turn_id <> $4) AS held"""
# The same sum for the budget of each scope.
_HELD_BY: Final[Mapping[BudgetScope, str]] = {
    BudgetScope.PERSON: _HELD.format(scope="principal_id"),
    BudgetScope.CONVERSATION: _HELD.format(scope="conversation_id"),
    BudgetScope.AGENT: _HELD.format(scope="agent"),
}
_NOTHING: Final = Usage()


class _Reserved(NamedTuple):
    principal: PrincipalId
    conversation: ConversationId
    agent: str
    tokens: int
    money: int


def _held(spent_tokens: int, spent_money: int, tokens: int, money: int) -> Held:
    """Return the amounts in the columns of `_HELD`."""
    return Held(
        spent=Amount(tokens=spent_tokens, money=spent_money),
        reserved=Amount(tokens=tokens, money=money),
    )


def spend(turn: TurnId, spent: Spent, stamp: Stamp, *, turns: int) -> Op[None]:
    """Charge what an attempt of a turn has cost, and count so many turns: 1 if the turn ends with
    the attempt, 0 otherwise. Runs in the transaction that ends the attempt, so a crash neither
    loses a charge nor repeats it."""
    usage = spent.usage
    if usage == _NOTHING and not turns:
        return
    yield from run(
        _SPEND,
        day_of(stamp.at), spent.agent, turns, usage.model_calls, usage.input_tokens,
        usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens, spent.cost, turn,
    )  # fmt: skip


def reserve(
    dialect: Dialect, wanted: Reservation, limits: DailyBudgets, *, at: int
) -> Op[BudgetRefusal | None]:
    """Reserve room for one model call. Returns the refusal, or None if the room is reserved.
    Transactions that want room in the same budget run one after another. Raises `Fenced` for a
    stale lease: the reservation of an ended turn was released already, so a new one would stay for
    ever."""
    yield from journal.fence(wanted.lease.session, wanted.lease.epoch)
    today, yesterday = day_of(at), day_of(at - DAY_MS)
    for scope, _ in limits.set_ones():
        yield from run(dialect.one_at_a_time, f"budget {scope} {_owner(scope, wanted)}")
    for scope, budget in limits.set_ones():
        held = yield from one(
            _held, _HELD_BY[scope], today, _owner(scope, wanted), yesterday, wanted.lease.turn
        )
        assert held is not None, "a sum is always one row"
        refused = budget_refusal(scope, budget, held, wanted.amount)
        if refused is not None:
            return refused
    yield from run(
        _RESERVE,
        wanted.lease.turn, today, wanted.principal, wanted.conversation, wanted.agent,
        wanted.amount.tokens, wanted.amount.money or 0,
    )  # fmt: skip
    return None


def _owner(scope: BudgetScope, wanted: Reservation) -> str:
    """Return the id of the budget that a scope means for this reservation."""
    return {
        BudgetScope.PERSON: wanted.principal,
        BudgetScope.CONVERSATION: wanted.conversation,
        BudgetScope.AGENT: wanted.agent,
    }[scope]


def release(turn: TurnId) -> Op[None]:
    """Remove the reservation of a turn whose attempt has ended and was charged, as far as its cost
    is known. The next attempt reserves again."""
    yield from run(_RELEASE, turn)


def charge_reserved(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Charge a turn what it had reserved, if it was ended from outside: the real cost of its model
    call will never be known, and stopping turns just before their end must not be free."""
    reserved = yield from one(_Reserved, _TAKE_BACK, turn)
    if reserved is not None:
        yield from run(_CHARGE, day_of(stamp.at), *reserved)
