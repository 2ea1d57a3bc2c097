"""Counts what this process does, for the metrics."""

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import AttemptInterrupted, Recorded, TurnQueued, TurnSettled

# The upper ends of the ranges in which times are counted, in seconds.
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class StepTimes:
    """Counts how long one step of an agent took, by ranges. The last range has no end."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class Tally:
    """Counts events when this process has made them durable; the engine's feed reports them.
    Errands are not turns of a person, so only their tokens are counted."""

    def __init__(self) -> None:
        self.accepted = 0
        self.settled: Counter[tuple[str, str]] = Counter()
        self.interrupted: Counter[str] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        # By agent, step and transport.
        self.times: dict[tuple[str, str, str], StepTimes] = defaultdict(StepTimes)
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
            case TurnSettled(turn=turn, outcome=outcome, agent=agent, usage=usage) as settled:
                self.settled[outcome, agent] += turn not in self._errands
                self._errands.discard(turn)
                self.tokens[agent, "input"] += usage.input_tokens
                self.tokens[agent, "output"] += usage.output_tokens
                self.tokens[agent, "cached"] += usage.cache_read_tokens
                for step, ms in settled.timings.steps:
                    self.times[agent, step, settled.timings.transport].add(ms / 1000)
            case AttemptInterrupted(reason=reason):
                self.interrupted[reason] += 1
            case _:
                pass
