"""Implements the port that reserves room in the budgets."""

from functools import partial

from perdure.domain.people.budgets import BudgetRefusal, DailyBudgets
from perdure.ports.turns.budgets import Reservation
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.people import spending


class StoredBudgets:
    """Implements `BudgetBook`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def reserve(self, wanted: Reservation, *, limits: DailyBudgets) -> BudgetRefusal | None:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(spending.reserve, self._driver.dialect, wanted, limits, at=at)
        )
