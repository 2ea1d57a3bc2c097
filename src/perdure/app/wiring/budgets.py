"""Turns configured budgets, prices and limits into the engine's."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

import perdure.app
from perdure.app.config.loading import AgentConfig, BudgetPeriods, Config
from perdure.app.config.values import (
    ChatAgentSection,
)
from perdure.app.config.values import (
    PricesSection as PricesConfig,
)
from perdure.domain.people.budgets import Budget, DailyBudgets
from perdure.domain.people.notices import NoticeTerms
from perdure.domain.people.prices import Prices, Tariff
from perdure.domain.people.quotas import Quota
from perdure.domain.prompt.bounds import Bounds
from perdure.domain.turn.recovery import Policy, Resume
from perdure.engine.turns.runner_services import DelegatingLimits, Limits

_MILLION: Final = 1_000_000
# The end of a model's name that names its version, such as a date.
_VERSION: Final = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})\Z")


class _Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds one entry of `prices.toml`, in money per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


def budgets_of(config: Config) -> DailyBudgets:
    """Return the daily budgets of persons, conversations and agents."""
    budgets = config.budgets
    return DailyBudgets(
        person=_budget(budgets.person),
        conversation=_budget(budgets.conversation),
        agent=_budget(budgets.agent),
    )


def _budget(periods: BudgetPeriods) -> Budget:
    """Return one budget, with money in millionths of its unit."""
    daily = periods.daily
    if daily is None:
        return Budget()
    money = None if daily.money is None else round(daily.money * _MILLION)
    return Budget(tokens=daily.tokens, money=money)


def tariff_of(agent: AgentConfig) -> Tariff:
    """Return what an agent costs: its configured prices, else the list price of its model."""
    if not isinstance(agent, ChatAgentSection):
        return Tariff(prices=_configured(agent.prices))
    # Anthropic counts tokens written to its cache apart from other input, and charges a quarter
    # more for them.
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
    """Return the public price of a well-known model, or None for any other."""
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
    """Return the list of prices that comes with the package."""
    text = Path(perdure.app.__file__).with_name("prices.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, _Listed])


def quota_of(config: Config) -> Quota:
    """Return how much each member may use."""
    member = config.quotas.member
    return Quota(
        bytes=member.bytes,
        files=member.files,
        turns=member.turns,
        requests_per_minute=member.requests_per_minute,
    )


def limits_of(config: Config, *, turns_max: int) -> Limits:
    """Return the limits of the engine. `turns_max` is how many turns the file descriptors of this
    process allow at once."""
    return Limits(
        concurrent=min(config.turns.concurrent, turns_max),
        turn_timeout_s=config.turns.timeout_s,
        steps_max=config.turns.steps_max,
        bounds=Bounds(
            answer_bytes=config.limits.answer_bytes,
            answer_calls=config.limits.answer_calls,
            turn_bytes=config.limits.turn_bytes,
            turn_calls=config.limits.turn_calls,
        ),
        recovery=Policy(
            resume=Resume(config.recovery.resume),
            freshness_ms=int(config.recovery.freshness_s * 1000),
            attempts_max=config.recovery.attempts_max,
        ),
        quota=quota_of(config),
        queue_max=config.limits.queued_per_conversation,
        drain_timeout_s=config.drain.timeout_s,
        delivery_expire_s=int(config.delivery.expire_s),
        has_titles=config.sessions.titles,
        idle_reset_ms=int(config.sessions.idle_reset_s * 1000),
        media_bytes=config.limits.media_bytes,
        fetch_wait_s=config.limits.fetch_wait_s,
        answer_wait_ms=int(config.tools.answer_wait_s * 1000),
        notices=NoticeTerms(
            stopping=config.notices.stopping,
            back=config.notices.back,
            still_at_work_s=config.notices.still_at_work_s,
        ),
        delegating=DelegatingLimits(
            depth=config.tools.delegate.depth,
            at_once=config.tools.delegate.at_once,
            per_person=config.tools.delegate.per_person,
            wait_ms=int(config.tools.delegate.wait_s * 1000),
        ),
    )
