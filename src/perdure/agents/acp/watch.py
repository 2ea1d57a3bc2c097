"""Measures where the time of one prompt goes."""

from typing import Final

from perdure.agents.acp.pool.seam import SessionTimes
from perdure.domain.journal.model.timings import Timings
from perdure.domain.turn.stream import AgentActed, AgentBegan, AgentCall, AgentEvent, AgentText
from perdure.ports.system.clock import Clock

POOL: Final = "pool"
COLD: Final = "cold"


class StopWatch:
    """Measures one prompt from its sending. Time in which the agent waits for us does not count as
    its own."""

    def __init__(self, clock: Clock, opening: SessionTimes | None) -> None:
        """Set up the watch. `opening` is what it took to open the session, if it was opened for
        this prompt."""
        self._clock = clock
        self._opening = opening or SessionTimes()
        self._sent_s = self._parked_at = 0.0
        self._parked_s = 0.0
        self._first_token_s: float | None = None
        self._first_tool_s: float | None = None
        self._end_s: float | None = None
        self.has_heard = False

    def sent(self) -> None:
        """Note that the prompt is sent. A prompt that follows in the same answer does not count."""
        self._sent_s = self._sent_s or self._clock.monotonic_s()

    def hears(self, event: AgentEvent) -> None:
        """Note an event of the answer."""
        self.has_heard = True
        if isinstance(event, AgentText) and self._first_token_s is None:
            self._first_token_s = self._now_s()
        is_tool = isinstance(event, AgentBegan | AgentActed | AgentCall)
        if is_tool and self._first_tool_s is None:
            self._first_tool_s = self._now_s()

    def parks(self) -> None:
        """Note that the agent waits from now on."""
        self._parked_at = self._clock.monotonic_s()

    def went_on(self) -> None:
        """Note that the agent has its answers."""
        self._parked_s += self._clock.monotonic_s() - self._parked_at

    def ends(self) -> None:
        """Note that the prompt is over."""
        self._end_s = self._now_s()

    def _now_s(self) -> float:
        """Return how long the agent has worked."""
        return self._clock.monotonic_s() - self._sent_s - self._parked_s

    @property
    def timings(self) -> Timings:
        """Return where the time went so far."""
        until_s = self._now_s() if self._end_s is None else self._end_s
        begun_s = self._first_token_s
        return Timings(
            transport=COLD if self._opening.is_cold else POOL,
            spawn=self._opening.spawn,
            session=self._opening.session,
            bridge=self._opening.bridge,
            first_tool=_ms(self._first_tool_s),
            first_token=_ms(begun_s),
            generation=0 if begun_s is None else _ms(until_s - begun_s),
        )


def _ms(seconds: float | None) -> int:
    return 0 if seconds is None else max(1, round(seconds * 1000))
