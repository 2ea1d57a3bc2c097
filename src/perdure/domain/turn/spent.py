"""Says what the finished model calls of a turn have used, attempt by attempt."""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.domain.journal.events import (
    AnyEvent,
    AttemptInterrupted,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import AnswerAwaited, WorkDelegated


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what finished model calls have used, and which agent made them. `cost` is in millionths
    of the currency that prices are given in."""

    agent: str = ""
    usage: Usage = Usage()
    cost: int = 0


NOTHING_SPENT: Final = Spent()


def spent_earlier(events: Iterable[AnyEvent]) -> Spent:
    """Return what a turn was charged for attempts that have ended before it. An attempt that a
    crash has ended is not among them: nobody knows what it used."""
    usage, cost = Usage(), 0
    for event in events:
        if isinstance(event, AttemptInterrupted | AnswerAwaited | WorkDelegated):
            usage += event.usage
            cost += event.cost
    return Spent(usage=usage, cost=cost)
