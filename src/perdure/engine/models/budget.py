"""Reserves room in the day's budgets before a model is asked.

If no budget is set, nothing is reserved, and the store is not asked.
"""

from functools import partial

from perdure.domain.journal.model.usage import Usage
from perdure.domain.people.budgets import Amount, DailyBudgets, estimate, refusal_text
from perdure.domain.people.prices import Tariff, cost
from perdure.engine.foundation.persist import persist
from perdure.engine.models.roster import Backend
from perdure.ports.system.clock import Clock
from perdure.ports.turns.budgets import BudgetBook, Reservation
from perdure.ports.turns.turns import Claimed


class Spending:
    """Counts what one attempt has used so far. Each model call is priced by its agent's tariff;
    `agent` has made the last one."""

    def __init__(self) -> None:
        self.agent = ""
        self.usage = Usage()
        self.cost = 0

    def add(self, usage: Usage, backend: Backend) -> None:
        """Charge a model call of this backend's agent."""
        self.agent = backend.name
        self.usage += usage
        self.cost += cost(backend.tariff.prices, usage) if backend.tariff.prices else 0


class Budgets:
    """Reserves room within the budgets of this gateway. `book` holds the reservations."""

    def __init__(self, book: BudgetBook, *, clock: Clock, limits: DailyBudgets) -> None:
        self._book = book
        self._clock = clock
        self._limits = limits
        self.is_limited = limits.is_set

    async def reserve(
        self,
        claimed: Claimed,
        agent: str,
        input_tokens: int,
        *,
        tariff: Tariff,
        so_far: Spending,
    ) -> str:
        """Reserve room for one more model call with about this many input tokens. Returns the
        refusal text, or an empty string."""
        if not self.is_limited:
            return ""
        wanted = Reservation(
            lease=claimed.lease,
            principal=claimed.principal,
            conversation=claimed.conversation,
            agent=agent,
            amount=_total(so_far, estimate(input_tokens, tariff=tariff, limits=self._limits)),
        )
        # A reservation replaces the turn's earlier one, so it is repeated if its answer is lost.
        refused = await persist(
            partial(self._book.reserve, wanted, limits=self._limits), clock=self._clock
        )
        if refused is None:
            return ""
        return refusal_text(refused, at_ms=self._clock.now_ms(), agent=agent)


def _total(so_far: Spending, next_call: Amount) -> Amount:
    used = so_far.usage.input_tokens + so_far.usage.output_tokens
    money = None if next_call.money is None else next_call.money + so_far.cost
    return Amount(tokens=next_call.tokens + used, money=money)
