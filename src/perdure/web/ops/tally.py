"""Counts what this process does, for the metrics."""

from collections import Counter

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import AttemptInterrupted, Recorded, TurnQueued, TurnSettled


class Tally:
    """Counts events when this process has made them durable; the engine's feed reports them.
    Errands are not turns of a person, so only their tokens are counted."""

    def __init__(self) -> None:
        self.accepted = 0
        self.settled: Counter[tuple[str, str]] = Counter()
        self.interrupted: Counter[str] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.standstills = 0
        self._errands: set[TurnId] = set()

    def stood_still(self) -> None:
        """Count that the event loop was blocked for a second."""
        self.standstills += 1

    def observe(self, recorded: Recorded) -> None:
        """Count one event."""
        match recorded.event:
            case TurnQueued(turn=turn, kind=kind) if kind.is_errand:
                self._errands.add(turn)
            case TurnQueued():
                self.accepted += 1
            case TurnSettled(turn=turn, outcome=outcome, agent=agent, usage=usage):
                self.settled[outcome, agent] += turn not in self._errands
                self._errands.discard(turn)
                self.tokens[agent, "input"] += usage.input_tokens
                self.tokens[agent, "output"] += usage.output_tokens
                self.tokens[agent, "cached"] += usage.cache_read_tokens
            case AttemptInterrupted(reason=reason):
                self.interrupted[reason] += 1
            case _:
                pass
