"""Defines the port that reserves room in the budgets, before money is spent."""

from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.budgets import Amount, BudgetRefusal, DailyBudgets
from perdure.ports.turns.turns import TurnLease


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the most that a turn will have spent after its next model call."""

    lease: TurnLease
    principal: PrincipalId
    conversation: ConversationId
    agent: str
    amount: Amount


class BudgetBook(Protocol):
    """Reserves what running turns may spend.

    Guarantees: a reservation counts with what was spent today and what other turns have reserved,
    however many ask at the same time and on however many nodes. A turn has one reservation at most;
    a turn that is settled or interrupted has none.
    Requires: a lease that is not stale; an amount that includes what the turn has used so far.
    Raises: `Fenced` when the lease is stale; `Transient` when nothing was written; `Ambiguous` when
    that is unknown: the same reservation may be made again.
    After a crash: the reaper that ends the attempt also ends the reservation.
    """

    async def reserve(self, wanted: Reservation, *, limits: DailyBudgets) -> BudgetRefusal | None:
        """Reserve the amount if it fits into every limit, in place of the turn's last reservation.
        Returns None; or, if it does not fit, which limit is in the way, and changes nothing."""
