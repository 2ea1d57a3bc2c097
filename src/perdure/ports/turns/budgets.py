"""Room in the budgets, taken before money is spent."""

from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.budgets import Amount, BudgetRefusal, DailyBudgets
from perdure.ports.turns.turns import TurnLease


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a turn will have spent once its next model call is over, at most."""

    lease: TurnLease
    principal: PrincipalId
    conversation: ConversationId
    agent: str
    amount: Amount


class BudgetBook(Protocol):
    """What turns under way may still spend.

    Guarantees: `reserve` holds the amount if it fits into every limit, together with what was spent
    today and what other turns hold, however many ask at once and on however many nodes; else it
    holds nothing new and says which limit is in the way. A turn holds one reservation: the next one
    takes its place. A turn that is settled or interrupted holds none.
    Requires: a good lease; an amount that includes what the turn has used so far.
    Raises: `Fenced` when the lease is stale; `Transient` when nothing was written; `Ambiguous` when
    that is unknown: the same reservation may be made again.
    After a crash: the reaper that ends the attempt gives the room back.
    """

    async def reserve(
        self, wanted: Reservation, *, limits: DailyBudgets
    ) -> BudgetRefusal | None: ...
