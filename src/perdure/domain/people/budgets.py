"""Budgets: how much may be spent in a day, and what is said when it is spent.

A turn reserves before each model call what the call may cost, on top of what the turn has used so
far, and is charged what it did cost when it settles. A budget has room as long as what was spent
today, what other turns have reserved and what this one asks for fit into it together. Days are
those of UTC, written as the number 20261231.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from perdure.domain.people.prices import Tariff, money_text

DAY_MS: Final = 86_400_000
# How much a model may write is not known before; so many tokens are reserved for it, or a part of
# the smallest budget, so that a small one has room for several turns at once.
OUTPUT_ALLOWANCE: Final = 4_000
_ALLOWANCES_IN_A_BUDGET: Final = 20


class BudgetScope(StrEnum):
    PERSON = "person"
    CONVERSATION = "conversation"
    AGENT = "agent"


class BudgetUnit(StrEnum):
    TOKENS = "tokens"
    MONEY = "money"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What may be spent in a day, money in millionths. None is no limit, 0 allows nothing."""

    tokens: int | None = None
    money: int | None = None

    @property
    def is_set(self) -> bool:
        return self.tokens is not None or self.money is not None


class DailyBudgets(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of every person, every conversation and every agent."""

    person: Budget = Budget()
    conversation: Budget = Budget()
    agent: Budget = Budget()

    def set_ones(self) -> Iterator[tuple[BudgetScope, Budget]]:
        """Always in the same order, so that two who need the same ones never wait in a ring."""
        for scope in BudgetScope:
            budget: Budget = getattr(self, scope)
            if budget.is_set:
                yield scope, budget

    @property
    def is_set(self) -> bool:
        return any(True for _ in self.set_ones())


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """`money` is None where nobody knows the price: then no budget of money applies."""

    tokens: int
    money: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone from a budget: spent today, and reserved by other turns under way."""

    spent: Amount
    reserved: Amount


class BudgetRefusal(msgspec.Struct, frozen=True, kw_only=True):
    scope: BudgetScope
    unit: BudgetUnit
    limit: int
    spent: int
    reserved: int
    asked: int


def day_of(at_ms: int) -> int:
    """The UTC day of an instant, as 20261231."""
    date = datetime.fromtimestamp(at_ms / 1000, UTC)
    return date.year * 10_000 + date.month * 100 + date.day


def estimate(input_tokens: int, *, tariff: Tariff, limits: DailyBudgets) -> Amount:
    """What one model call is expected to cost at most. Tokens from a cache are not counted on."""
    set_ones = [budget for _, budget in limits.set_ones()]
    token_parts = [b.tokens // _ALLOWANCES_IN_A_BUDGET for b in set_ones if b.tokens is not None]
    output = min([OUTPUT_ALLOWANCE, tariff.output_max or OUTPUT_ALLOWANCE, *token_parts])
    prices = tariff.prices
    if prices is None:
        return Amount(tokens=input_tokens + output)
    money_parts = [b.money // _ALLOWANCES_IN_A_BUDGET for b in set_ones if b.money is not None]
    writing = min([round(output * prices.output), *money_parts])
    return Amount(tokens=input_tokens + output, money=round(input_tokens * prices.input) + writing)


def refusal(scope: BudgetScope, budget: Budget, held: Held, asked: Amount) -> BudgetRefusal | None:
    """Why there is no room in this budget; None if there is."""
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
    """Which budget, how much of it is gone, and when it is there again."""
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
    """How long until the next day begins, rounded up to a minute."""
    minutes = -(-(DAY_MS - at_ms % DAY_MS) // 60_000)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def _count(number: int) -> str:
    return f"{number:,}"
