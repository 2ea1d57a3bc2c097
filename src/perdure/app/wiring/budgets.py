"""From configured budgets and prices to the engine's."""

import re
from functools import cache
from importlib import resources
from typing import Final

import msgspec

from perdure.app.config.loading import AgentConfig, BudgetPeriods, Config
from perdure.app.config.values import ChatAgentSection
from perdure.app.config.values import PricesSection as PricesConfig
from perdure.domain.people.budgets import Budget, DailyBudgets
from perdure.domain.people.prices import Prices, Tariff

_MILLION: Final = 1_000_000
# The end of a model's name that tells its version and not which model it is.
_VERSION: Final = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})\Z")


class _Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


def budgets_of(config: Config) -> DailyBudgets:
    budgets = config.budgets
    return DailyBudgets(
        person=_budget(budgets.person),
        conversation=_budget(budgets.conversation),
        agent=_budget(budgets.agent),
    )


def _budget(periods: BudgetPeriods) -> Budget:
    daily = periods.daily
    if daily is None:
        return Budget()
    money = None if daily.money is None else round(daily.money * _MILLION)
    return Budget(tokens=daily.tokens, money=money)


def tariff_of(agent: AgentConfig) -> Tariff:
    if not isinstance(agent, ChatAgentSection):
        return Tariff(prices=_configured(agent.prices))
    # Anthropic counts what its cache takes apart from other input, and charges a quarter more.
    premium = 1.25 if agent.api == "anthropic" else 1.0
    prices = _configured(agent.prices, write_premium=premium) or listed(agent.model)
    return Tariff(prices=prices, output_max=agent.max_tokens)


def _configured(prices: PricesConfig | None, *, write_premium: float = 1.0) -> Prices | None:
    if prices is None:
        return None
    return Prices(
        input=prices.input,
        output=prices.output,
        cache_read=prices.input if prices.cached is None else prices.cached,
        cache_write=prices.input * write_premium,
    )


def listed(model: str) -> Prices | None:
    """The public price of a well-known model; None for any other."""
    found = _list().get(model) or _list().get(_VERSION.sub("", model))
    if found is None:
        return None
    return Prices(
        input=found.input,
        output=found.output,
        cache_read=found.input if found.cache_read is None else found.cache_read,
        cache_write=found.input if found.cache_write is None else found.cache_write,
    )


@cache
def _list() -> dict[str, _Listed]:
    text = resources.files("perdure.app").joinpath("prices.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, _Listed])
