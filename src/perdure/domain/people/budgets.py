"""Decides how much may be spent in a day, and says what people are told when it is spent.

Before each model call a turn reserves what the call may cost, on top of what the turn has used so
far. It is charged with the real cost when it settles. A budget has room if three amounts fit into
it together: what was spent today, what other turns have reserved, and what this turn asks for. Days
are those of UTC, written as a number like 20261231.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from perdure.domain.people.prices import Tariff, money_text
from perdure.domain.renewals import renews_at

# How much a model will write is not known before the call. This many tokens are reserved for it, or
# a part of the smallest budget, so that a small budget has room for several turns at once.
OUTPUT_ALLOWANCE: Final = 4_000
_ALLOWANCES_IN_A_BUDGET: Final = 20


class BudgetScope(StrEnum):
    """Says whose budget it is."""

    PERSON = "person"
    CONVERSATION = "conversation"
    AGENT = "agent"


class BudgetUnit(StrEnum):
    """Says what a budget counts."""

    TOKENS = "tokens"
    MONEY = "money"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what may be spent in a day, money in millionths. None means no limit; 0 allows
    nothing."""

    tokens: int | None = None
    money: int | None = None

    @property
    def is_set(self) -> bool:
        return self.tokens is not None or self.money is not None


class DailyBudgets(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the budget that each person, each conversation and each agent has."""

    person: Budget = Budget()
    conversation: Budget = Budget()
    agent: Budget = Budget()

    def set_ones(self) -> Iterator[tuple[BudgetScope, Budget]]:
        """Yield the budgets that are set, always in the same order. Two turns that lock the same
        budgets would otherwise wait for each other for ever."""
        for scope in BudgetScope:
            budget: Budget = getattr(self, scope)
            if budget.is_set:
                yield scope, budget

    @property
    def is_set(self) -> bool:
        return any(True for _ in self.set_ones())


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Holds tokens and money. `money` is None if nobody knows the price; then no budget of money
    applies."""

    tokens: int
    money: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is gone from a budget: spent today, and reserved by other turns under way."""

    spent: Amount
    reserved: Amount


class BudgetRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Says which budget has no room for a call, and why."""

    scope: BudgetScope
    unit: BudgetUnit
    limit: int
    spent: int
    reserved: int
    asked: int


def day_of(at_ms: int) -> int:
    """Return the UTC day of an instant, as a number like 20261231."""
    date = datetime.fromtimestamp(at_ms / 1000, UTC)
    return date.year * 10_000 + date.month * 100 + date.day


def estimate(input_tokens: int, *, tariff: Tariff, limits: DailyBudgets) -> Amount:
    """Return what one model call is expected to cost at most. All its input is priced as if none
    came from a cache."""
    set_ones = [budget for _, budget in limits.set_ones()]
    token_parts = [b.tokens // _ALLOWANCES_IN_A_BUDGET for b in set_ones if b.tokens is not None]
    output = min([OUTPUT_ALLOWANCE, tariff.output_max or OUTPUT_ALLOWANCE, *token_parts])
    prices = tariff.prices
    if prices is None:
        return Amount(tokens=input_tokens + output)
    money_parts = [b.money // _ALLOWANCES_IN_A_BUDGET for b in set_ones if b.money is not None]
    writing = min([round(output * prices.output), *money_parts])
    return Amount(tokens=input_tokens + output, money=round(input_tokens * prices.input) + writing)


def budget_refusal(
    scope: BudgetScope, budget: Budget, held: Held, asked: Amount
) -> BudgetRefusal | None:
    """Return why there is no room in this budget, or None if there is."""
    checks = (
        (BudgetUnit.TOKENS, budget.tokens, held.spent.tokens, held.reserved.tokens, asked.tokens),
        (BudgetUnit.MONEY, budget.money, held.spent.money, held.reserved.money, asked.money),
    )
    for unit, limit, spent, reserved, wanted in checks:
        if limit is None or wanted is None:
            continue
        gone = (spent or 0) + (reserved or 0)
        if gone + wanted > limit:
            return BudgetRefusal(
                scope=scope,
                unit=unit,
                limit=limit,
                spent=spent or 0,
                reserved=reserved or 0,
                asked=wanted,
            )
    return None


def refusal_text(refused: BudgetRefusal, *, at_ms: int, agent: str) -> str:
    """Return a text that says which budget has no room, how much of it is gone, and when it
    renews."""
    tell = _count if refused.unit is BudgetUnit.TOKENS else money_text
    held = (
        f", {tell(refused.reserved)} more reserved by turns under way" if refused.reserved else ""
    )
    unit = "tokens" if refused.unit is BudgetUnit.TOKENS else "money"
    return (
        f"{_whose(refused.scope, agent)} has no room for this: {tell(refused.spent)} of"
        f" {tell(refused.limit)} {unit} spent{held}, and the next model call may need"
        f" {tell(refused.asked)}. It renews at 00:00 UTC, in {renewal_text(at_ms)}."
    )


def _whose(scope: BudgetScope, agent: str) -> str:
    match scope:
        case BudgetScope.PERSON:
            return "Your daily budget"
        case BudgetScope.CONVERSATION:
            return "The daily budget of this conversation"
        case BudgetScope.AGENT:
            return f"The daily budget of the agent {agent}"
        case _:
            assert_never(scope)


def renewal_text(at_ms: int) -> str:
    """Return how long it takes until the next day begins, rounded up to a minute."""
    minutes = -(-(renews_at(at_ms) - at_ms) // 60_000)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def _count(number: int) -> str:
    return f"{number:,}"
