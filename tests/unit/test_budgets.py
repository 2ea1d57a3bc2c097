"""Checks budgets, days, prices and the words of a refusal."""

import time
from datetime import UTC, datetime

import pytest

from perdure.app.config.loading import BudgetPeriods, Config
from perdure.app.config.values import (
    BudgetsConfig,
    ChatAgentSection,
    DemoAgentSection,
)
from perdure.app.config.values import (
    BudgetSection as BudgetConfig,
)
from perdure.app.config.values import (
    PricesSection as PricesConfig,
)
from perdure.app.wiring.budgets import budgets_of, listed, tariff_of
from perdure.domain.journal.model.usage import Usage
from perdure.domain.people.budgets import (
    OUTPUT_ALLOWANCE,
    Amount,
    Budget,
    BudgetRefusal,
    BudgetScope,
    BudgetUnit,
    DailyBudgets,
    Held,
    budget_refusal,
    day_of,
    estimate,
    refusal_text,
    renewal_text,
)
from perdure.domain.people.prices import Prices, Tariff, cost, money_text

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
PLAIN = Tariff()


def ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def held(spent: int = 0, reserved: int = 0, *, money: int = 0) -> Held:
    return Held(spent=Amount(tokens=spent, money=money), reserved=Amount(tokens=reserved, money=0))


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        cache_read_tokens=700_000,
        cache_write_tokens=100_000,
        output_tokens=10_000,
    )

    assert cost(PRICES, usage) == 600_000 + 210_000 + 375_000 + 150_000


def test_a_cached_share_that_a_server_counts_beside_the_input_is_no_gift() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=1000)

    assert cost(PRICES, usage) == 300


@pytest.mark.parametrize(
    ("millionths", "text"),
    [
        (0, "0.00"),
        (4, "0.000004"),
        (1_250, "0.00125"),
        (10_000, "0.01"),
        (1_234_567_890, "1,234.57"),
    ],
)
def test_money_is_told_with_as_many_digits_as_it_needs(millionths: int, text: str) -> None:
    assert money_text(millionths) == text


@pytest.mark.parametrize(
    ("at", "day"),
    [
        (ms(2026, 11, 16), 20261116),
        (ms(2026, 11, 16) - 1, 20261115),
        (ms(2027, 1, 1) - 1, 20261231),
        (ms(2028, 2, 29, 12), 20280229),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_a_day_is_that_of_utc_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch, at: int, day: int, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert day_of(at) == day
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (ms(2026, 11, 16, 18, 48), "5 h 12 min"),
        (ms(2026, 11, 16, 18, 48, 30), "5 h 12 min"),
        (ms(2026, 11, 16), "24 h 0 min"),
        (ms(2026, 11, 16, 23, 59, 59), "1 min"),
    ],
)
def test_a_refusal_tells_when_a_budget_is_there_again(at: int, text: str) -> None:
    assert renewal_text(at) == text


def test_a_call_reserves_what_it_reads_and_an_allowance_for_what_it_writes() -> None:
    large = DailyBudgets(person=Budget(tokens=2_000_000))

    assert estimate(1000, tariff=PLAIN, limits=large).tokens == 1000 + OUTPUT_ALLOWANCE
    assert estimate(1000, tariff=Tariff(output_max=50), limits=large).tokens == 1050
    assert estimate(1000, tariff=Tariff(output_max=10**6), limits=large).tokens == 5000


def test_the_allowance_is_a_part_of_the_smallest_budget() -> None:
    small = DailyBudgets(person=Budget(tokens=10**6), conversation=Budget(tokens=1000, money=2000))

    asked = estimate(10, tariff=Tariff(prices=PRICES), limits=small)

    assert asked == Amount(tokens=10 + 50, money=30 + 100)


def test_money_is_reserved_at_full_price() -> None:
    limits = DailyBudgets(agent=Budget(money=10**9))

    asked = estimate(1000, tariff=Tariff(prices=PRICES), limits=limits)

    assert asked.money == 3000 + OUTPUT_ALLOWANCE * 15


def test_a_budget_is_filled_to_its_last_token_and_no_further() -> None:
    budget = Budget(tokens=100)

    assert budget_refusal(BudgetScope.PERSON, budget, held(60, 30), Amount(tokens=10)) is None
    refused = budget_refusal(BudgetScope.PERSON, budget, held(60, 30), Amount(tokens=11))
    assert refused == BudgetRefusal(
        scope=BudgetScope.PERSON, unit=BudgetUnit.TOKENS, limit=100, spent=60, reserved=30, asked=11
    )


def test_zero_allows_nothing() -> None:
    limits = DailyBudgets(person=Budget(tokens=0))
    asked = estimate(1, tariff=PLAIN, limits=limits)

    assert limits.is_set
    assert budget_refusal(BudgetScope.PERSON, limits.person, held(), asked) is not None


def test_where_the_price_is_unknown_no_budget_of_money_applies() -> None:
    budget = Budget(money=0)

    assert budget_refusal(BudgetScope.AGENT, budget, held(money=5), Amount(tokens=9)) is None
    assert (
        budget_refusal(BudgetScope.AGENT, budget, held(money=5), Amount(tokens=9, money=1))
        is not None
    )


def test_a_refusal_says_which_budget_how_much_and_when_again() -> None:
    at = ms(2026, 11, 16, 18, 48)
    tokens = BudgetRefusal(
        scope=BudgetScope.PERSON,
        unit=BudgetUnit.TOKENS,
        limit=20_000,
        spent=15_000,
        reserved=4_100,
        asked=5_000,
    )
    money = BudgetRefusal(
        scope=BudgetScope.AGENT,
        unit=BudgetUnit.MONEY,
        limit=1_500_000,
        spent=1_490_000,
        reserved=0,
        asked=63_000,
    )

    assert refusal_text(tokens, at_ms=at, agent="main") == (
        "Your daily budget has no room for this: 15,000 of 20,000 tokens spent, 4,100 more reserved"
        " by turns under way, and the next model call may need 5,000. It renews at 00:00 UTC, in"
        " 5 h 12 min."
    )
    assert refusal_text(money, at_ms=at, agent="main") == (
        "The daily budget of the agent main has no room for this: 1.49 of 1.50 money spent, and the"
        " next model call may need 0.06. It renews at 00:00 UTC, in 5 h 12 min."
    )


def test_configured_budgets_reach_the_engine_in_millionths() -> None:
    daily = BudgetPeriods(daily=BudgetConfig(tokens=7, money=1.5))
    config = Config(budgets=BudgetsConfig(conversation=daily, agent=BudgetPeriods()))

    assert budgets_of(config) == DailyBudgets(conversation=Budget(tokens=7, money=1_500_000))
    assert not budgets_of(Config()).is_set


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-latest"])
def test_a_models_versions_cost_what_it_costs(model: str) -> None:
    assert listed(model) == listed("gpt-4o")


@pytest.mark.parametrize("model", ["gpt-4o-audio-preview", "gpt-5-pro", "llama3.2", ""])
def test_a_model_that_is_not_listed_has_no_price(model: str) -> None:
    assert listed(model) is None


def test_a_configured_price_goes_before_the_list() -> None:
    given = PricesConfig(input=2.0, output=4.0, cached=0.5)
    ours = tariff_of(ChatAgentSection(model="gpt-4o", prices=given, max_tokens=900))
    theirs = tariff_of(ChatAgentSection(model="claude-sonnet-4-5", api="anthropic", prices=given))

    assert ours == Tariff(
        prices=Prices(input=2.0, output=4.0, cache_read=0.5, cache_write=2.0), output_max=900
    )
    assert theirs.prices is not None
    assert theirs.prices.cache_write == 2.5
    assert tariff_of(ChatAgentSection(model="gpt-4o")).prices == listed("gpt-4o")
    assert tariff_of(DemoAgentSection()) == Tariff()
