"""Finds an agent that answers a model call: asks others, asks again, and waits in line.

An agent makes one call and says how it ended. What follows from that is decided here, and only
while nobody has seen anything of an answer:

- A turn that has several agents asks each of them once, in their order, before it waits. The wait
  begins when none of them has answered, and lasts at most for the first agent's `patience_s`.
- An agent that has failed rests. Turns that have another agent do not ask it meanwhile; after the
  rest, one of them tries it. Turns that have no other agent wait in line, and the first in line
  tries it, soon at first and then more rarely. When the agent answers again, the line is let
  through within a few seconds, not at once.
- A call that is refused (429) waits for as long as the server named. If more than single calls are
  refused, the account has a limit (`account_limit.py`), and a line that is shared by all its
  agents. No call is made before the time that the server named. Then the line is let through
  evenly, in the order in which the turns came; new turns go to its end.
- An agent may take only so many calls at once (`places.py`). A call that the lines have let through
  waits for a place last of all, and goes back to the lines if the agent has failed meanwhile.

A call that could not be made because this process has no file descriptor left says nothing about
any agent. It is repeated until it can be made. That time does not count as waiting, and neither
does the time until there is a place.

All of this is in memory. If the process dies, the next one finds out again.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, Protocol

from perdure.domain.journal.model.reach import Missed, Reach
from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import AgentEvent, AgentSpent, Stopped
from perdure.engine.models.places import AgentPlaces, Visitor
from perdure.engine.models.roster import Backend
from perdure.engine.models.waiting.account_limit import AccountLimit
from perdure.engine.models.waiting.recent_calls import SentCall
from perdure.engine.models.waiting.resting import TOO_MANY, AgentRest
from perdure.engine.models.waiting.waiting_line import WaitingLine
from perdure.ports.system.clock import Clock
from perdure.ports.turns.agent import Agent

# After a wait of this length the person is told about it.
TELL_AFTER_S: Final = 5.0
# How late the last call of a search may still be made.
_JUST_NOW_S: Final = 0.5
# After these the call is not repeated, and turns that have another agent leave this one alone.
_IN_VAIN: Final = frozenset({StopReason.PROVIDER_TIMEOUT, StopReason.PROVIDER_UNREACHABLE})
_IN_VAIN_STATUS: Final = frozenset({401, 402, 403, 404})
# After these nothing is known about the server: it may not have been asked at all.
_NOT_ASKED: Final = frozenset({StopReason.AGENT_ERROR, StopReason.INVALID_REQUEST})
# The longest pause before a call that lacked a file descriptor. The pauses grow up to this.
_DESCRIPTOR_S: Final = 5.0

_TellStopped = Callable[[Stopped], Awaitable[None]]


class _RetryWait(Protocol):
    """Waits for something until an instant at the latest. Returns False if that comes first."""

    async def __call__(self, *, until: float) -> bool: ...


class Reaching:
    """Holds what is known about reaching the agents of this node."""

    def __init__(self, clock: Clock, places: AgentPlaces) -> None:
        self.clock = clock
        self.places = places
        self._orders = count()
        self._rests: dict[Agent, AgentRest] = {}
        self._limits: dict[str, AccountLimit] = {}

    def quest(self, backends: Sequence[Backend], tell: _TellStopped, visitor: Visitor) -> "Quest":
        """Begin the search for an agent that answers one model call. `tell` is called once, with
        why an agent did not answer, if the search takes longer than `TELL_AFTER_S`. The `visitor`
        takes the place at the agent."""
        return Quest(self, backends, tell, visitor, order=next(self._orders))

    def rest(self, backend: Backend) -> AgentRest:
        """Return what is known about the backend's agent."""
        if backend.agent not in self._rests:
            self._rests[backend.agent] = AgentRest(self.clock)
        return self._rests[backend.agent]

    def limit(self, backend: Backend) -> AccountLimit:
        """Return what is known about the account that the backend's agent uses."""
        account = backend.account or backend.name
        if account not in self._limits:
            self._limits[account] = AccountLimit(self.clock)
        return self._limits[account]

    def forget(self, agent: Agent) -> None:
        """Drop what is known about an agent, because it is not asked any more."""
        self._rests.pop(agent, None)


class Quest:
    """Searches for an agent that answers one model call.

    The caller asks `next` for a backend, makes the call, passes its events to `hears`, and reports
    it to `ended` if nobody has seen anything of an answer. It repeats this until it has an answer,
    or until `next` returns None, and then says `over`. `missed` holds the backends that did not
    answer, and why: they failed, or others have found that they do not answer now.
    """

    def __init__(
        self,
        reaching: Reaching,
        backends: Sequence[Backend],
        tell: _TellStopped,
        visitor: Visitor,
        *,
        order: int,
    ) -> None:
        assert backends
        self._reaching = reaching
        self._clock = reaching.clock
        self._backends = backends
        # A turn with one agent has no other to ask, and waits for that one.
        self._others = list(backends) if len(backends) > 1 else []
        self._tell = tell
        self._visitor = visitor
        self._order = order
        self.patience_s = backends[0].patience_s
        self._began_at = self._clock.monotonic_s()
        self._sent_at = self._began_at
        self._call = SentCall(self._began_at)
        self._tries: Counter[str] = Counter()
        self._paused_until: dict[str, float] = {}
        self._is_told = False
        self._is_heard = False
        self._is_refused = False
        self._has_asked_at_last = False
        self._unasked: Backend | None = None
        self._unasked_times = 0
        self.is_waiting = False
        self.missed: dict[str, Stopped] = {}

    @property
    def in_vain(self) -> Stopped:
        """Return why the search has made no call: what others found out about the first backend, or
        that its place in line was too far back."""
        first = self._backends[0].name
        return self.missed.get(first) or Stopped(
            reason=StopReason.PROVIDER_ERROR,
            detail=f"too many turns waited for agent {first}; send the message again",
        )

    @property
    def waited_s(self) -> float:
        """Return how long after its beginning the search has made its last call."""
        return self._sent_at - self._began_at

    async def next(self) -> Backend | None:
        """Return the backend to ask now, after waiting for it if necessary. Returns None if there
        is no backend left that can be asked in time."""
        self._visitor.leave()
        backend = await self._let_through()
        while backend is not None and not await self._has_entered(backend):
            backend = await self._let_through()
        if backend is not None:
            self._sent_at = self._clock.monotonic_s()
            self._tries[backend.name] += 1
            self._is_heard = False
            self._reaching.rest(backend).asks()
            self._call = self._reaching.limit(backend).sends()
        return backend

    def over(self) -> None:
        """End the search. The place at the agent is free for another call."""
        self._visitor.leave()

    async def _let_through(self) -> Backend | None:
        return await self._unasked_yet() or await self._other() or await self._waited_for()

    async def _has_entered(self, backend: Backend) -> bool:
        """Take a place at the backend's agent. Returns False, without a place, if that took a wait
        in which the agent has failed for others: the call must wait with them then."""
        since = self._clock.monotonic_s()
        self.is_waiting = True
        try:
            has_waited = await self._visitor.enter(backend.name)
        finally:
            self.is_waiting = False
        if not has_waited:
            return True
        # The wait for a place does not use up the turn's patience.
        self._began_at += self._clock.monotonic_s() - since
        is_away = self._reaching.rest(backend).is_away_since(since)
        if not is_away and not self._reaching.limit(backend).is_held_since(since):
            return True
        self._visitor.leave()
        self._note_known(backend)
        return False

    def hears(self, backend: Backend, event: AgentEvent) -> None:
        """Note that the backend's agent answers, at the first event that shows it."""
        if self._is_heard or isinstance(event, AgentSpent):
            return
        if not isinstance(event, Stopped) or event.reason.is_finish:
            self._is_heard = True
            self._reaching.rest(backend).reached(sent_at=self._sent_at)
            self._reaching.limit(backend).reached(self._call)

    def ended(self, backend: Backend, stopped: Stopped) -> None:
        """Note how a call has ended, if nobody has seen anything of an answer."""
        self.missed[backend.name] = stopped
        rest = self._reaching.rest(backend)
        if stopped.reason is StopReason.OUT_OF_DESCRIPTORS:
            self._unasked = backend
            self._tries[backend.name] -= 1
            return
        is_in_vain = stopped.reason in _IN_VAIN or stopped.status in _IN_VAIN_STATUS
        if self._pauses_alone(backend, stopped):
            pause_s = max(rest.pause_s(self._tries[backend.name]), stopped.retry_after_s or 0.0)
            self._paused_until[backend.name] = self._clock.monotonic_s() + pause_s
        if stopped.may_retry or is_in_vain:
            rest.failed(stopped, sent_at=self._sent_at, order=self._order)
        elif stopped.reason not in _NOT_ASKED:
            rest.reached(sent_at=self._sent_at)

    def _pauses_alone(self, backend: Backend, stopped: Stopped) -> bool:
        """Tell whether a failure that may pass makes this search wait by itself. A limit that all
        calls of the account share makes it wait in the line."""
        limit = self._reaching.limit(backend)
        if stopped.may_retry and stopped.status == TOO_MANY:
            return limit.refused(self._call, stopped)
        limit.failed(self._call)
        return stopped.may_retry

    def refused(self) -> None:
        """Note that an agent's server does not take what is asked. At most one other agent is asked
        after that, if it can be asked at once: to wait for one does not change what is asked."""
        self._others = [] if self._is_refused else self._others[:1]
        self._is_refused = True

    async def _unasked_yet(self) -> Backend | None:
        """Return the backend whose call lacked a file descriptor, after a pause in which one may
        have become free. Returns None if there is no such backend."""
        backend, self._unasked = self._unasked, None
        if backend is None:
            return None
        self._unasked_times += 1
        since = self._clock.monotonic_s()
        self.is_waiting = True
        try:
            pause_s = self._reaching.rest(backend).pause_s(self._unasked_times)
            await self._clock.sleep(min(pause_s, _DESCRIPTOR_S))
        finally:
            self.is_waiting = False
        # The pause does not use up the turn's patience.
        self._began_at += self._clock.monotonic_s() - since
        return backend

    async def _other(self) -> Backend | None:
        """Return the next of several backends that was not asked yet and can be asked at once, or
        None if there is none."""
        while self._others:
            backend = self._others.pop(0)
            if not self._reaching.rest(backend).is_resting and await self._goes_at_once(backend):
                return backend
            self._note_known(backend)
        return None

    async def _goes_at_once(self, backend: Backend) -> bool:
        now = self._clock.monotonic_s()
        for line in self._lines(backend):
            if not await line.wait(self._order, until=now):
                return False
        return True

    async def _waited_for(self) -> Backend | None:
        """Wait for the backend that can be asked first, among those that may still answer. Returns
        None if there is none, or if the time is up."""
        if self._is_refused:
            return None
        worth = [backend for backend in self._backends if self._is_worth_it(backend)]
        if not worth:
            return None
        backend = min(worth, key=self._opens_at)
        self.is_waiting = True
        try:
            may_go = await self._wait_for(backend)
        finally:
            self.is_waiting = False
        if not may_go:
            self._note_known(backend)
        return backend if may_go else None

    def _is_worth_it(self, backend: Backend) -> bool:
        """Tell whether the backend was not asked yet, or may answer when it is asked again."""
        if not self._tries[backend.name]:
            return True
        return self.patience_s > 0 and self.missed[backend.name].may_retry

    async def _wait_for(self, backend: Backend) -> bool:
        """Wait until the backend may be asked. Returns False if the time is up."""
        if not self.patience_s:
            return True
        until = self._began_at + self.patience_s
        known = self.missed.get(backend.name) or self._known(backend)
        if (
            known is not None
            and known.retry_after_s is not None
            and self._opens_at(backend) > until
        ):
            # The server has named a later time. A search that has not asked this backend asks it
            # once.
            return not self._tries[backend.name]
        rest, limit = self._reaching.rest(backend), self._reaching.limit(backend)
        pause = partial(self._pause, backend)
        for wait in (pause, partial(rest.line.wait, self._order)):
            if not await self._in_time(wait, until, backend):
                return self._may_ask_at_last(rest, until)
        return await self._in_time(partial(limit.line.wait, self._order), until, backend)

    def _may_ask_at_last(self, rest: AgentRest, until: float) -> bool:
        """Tell whether to ask once more because the time is just up and the server may be back. A
        search whose last call ended after the time was up has asked late enough already."""
        is_just_now = self._clock.monotonic_s() <= until + _JUST_NOW_S
        is_first = not self._has_asked_at_last
        self._has_asked_at_last = True
        return is_just_now and is_first and rest.may_be_asked_at_last

    async def _in_time(self, wait: _RetryWait, until: float, backend: Backend) -> bool:
        """Wait until the instant at the latest, and tell the person if the search takes long.
        Returns whether the wait ended in time."""
        tell_at = self._began_at + TELL_AFTER_S
        if not self._is_told and tell_at < until:
            if await wait(until=tell_at):
                return True
            self._note_known(backend)
            await self._tell_once()
        return await wait(until=until)

    async def _pause(self, backend: Backend, *, until: float) -> bool:
        """Sleep until the pause before the next try is over, or until the time is up. Returns
        whether the pause is over. It also is if the line of the account begins to wait: the search
        must get its place in it."""
        paused_until = self._paused_until.get(backend.name, 0.0)
        left_s = min(paused_until, until) - self._clock.monotonic_s()
        if left_s > 0 and await self._reaching.limit(backend).begins(within_s=left_s):
            paused_until = self._paused_until[backend.name] = 0.0
        return paused_until <= until

    async def _tell_once(self) -> None:
        if self.missed:
            self._is_told = True
            await self._tell(next(iter(self.missed.values())))

    def _lines(self, backend: Backend) -> tuple[WaitingLine, WaitingLine]:
        return self._reaching.rest(backend).line, self._reaching.limit(backend).line

    def _opens_at(self, backend: Backend) -> float:
        """Return the instant before which the backend cannot be asked."""
        paused_until = self._paused_until.get(backend.name, 0.0)
        return max(paused_until, *(line.opens_at for line in self._lines(backend)))

    def _known(self, backend: Backend) -> Stopped | None:
        """Return why a backend does not answer now, as others have found out, or None."""
        return self._reaching.rest(backend).last or self._reaching.limit(backend).last

    def _note_known(self, backend: Backend) -> None:
        """Record what others have found out about a backend, unless this search has its own
        answer."""
        known = self._known(backend)
        if known is not None:
            self.missed.setdefault(backend.name, known)


def reach_after(before: Reach, quest: Quest, last: Stopped | None) -> Reach:
    """Add one search to what it took to get the answers of a turn. `last` is how the last call of
    the search ended, or None if it made no call."""
    missed = [
        Missed(agent=agent, reason=stopped.reason, detail=stopped.detail)
        for agent, stopped in quest.missed.items()
    ]
    refused = last or next(reversed(quest.missed.values()), None)
    return Reach(
        missed=tuple(dict.fromkeys((*before.missed, *missed))),
        waited_s=before.waited_s + (round(quest.waited_s) if missed else 0),
        status=refused.status if refused else 0,
        retry_after_s=math.ceil(refused.retry_after_s or 0) if refused else 0,
    )
