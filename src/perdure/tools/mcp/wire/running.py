"""Lets a call of a tool run on by itself while a person is asked.

A server of the versions with a handshake asks in the middle of a call, and waits. So each call is a
task of its link. Whoever waits for it gets its end, or a question; with the answer they wait on.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError
from perdure.tools.mcp.link import InputGiven, InputNeeded, Sampler, ServerAnswer
from perdure.tools.mcp.wire.going import GOING, GoingRequest

# How many calls of a link may wait for people.
WAITING_MAX: Final = 32
Outcome = ServerAnswer | InputNeeded


class RunningCall(GoingRequest):
    """Holds one call. `report` hears how far it is, and `sampler` answers for a model."""

    changes = True

    def __init__(self, report: Callable[[str], None], sampler: Sampler | None = None) -> None:
        super().__init__()
        self.report = report
        self.sampler = sampler
        self.task: asyncio.Task[None] | None = None
        self._told: asyncio.Queue[Outcome | PerdureError] = asyncio.Queue()
        self._asking = asyncio.Lock()
        self._answer: asyncio.Future[InputGiven] | None = None
        self._asked = 0
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_asking(self) -> bool:
        """Tell whether the call waits for a person."""
        return self._asking.locked()

    def is_awaited(self, needed: InputNeeded) -> bool:
        """Tell whether the server itself waits for the answer to a question."""
        return needed.state == f"{self._asked}"

    def tell(self, outcome: Outcome | PerdureError) -> None:
        """Tell whoever waits how the call goes."""
        self._told.put_nowait(outcome)

    def take_end(self, task: asyncio.Task[None]) -> None:
        """Tell whoever waits that the call was ended. One that was cancelled by them waits no more,
        so this is for the end of the link."""
        if task.cancelled():
            self.tell(self.lost("the connection to the server was closed"))

    async def next(self) -> Outcome:
        """Wait for the end of the call, or for a question. Raises what the call has raised."""
        told = await self._told.get()
        if isinstance(told, PerdureError):
            raise told
        return told

    async def ask(self, needed: InputNeeded) -> InputGiven:
        """Ask the person, and wait for the answer. Questions are asked one after another."""
        async with self._asking:
            self._asked += 1
            state = f"{self._asked}"
            self._answer = asyncio.get_running_loop().create_future()
            self.tell(msgspec.structs.replace(needed, state=state))
            try:
                return await self._answer
            finally:
                self._answer = None

    def give(self, given: InputGiven) -> None:
        """Give the answer to the question that is open. An answer to one that the server has taken
        back is for nobody."""
        self._stop_expiry()
        if self._answer is not None and given.state == f"{self._asked}":
            self._answer.set_result(given)
            self._answer = None

    def expire_after(self, seconds: float, end: Callable[[], None]) -> None:
        """End the call if nobody goes on with it in time."""
        self._stop_expiry()
        self._expiry = asyncio.get_running_loop().call_later(seconds, end)

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def end(self) -> None:
        """Cancel the call. The server is told in the background."""
        self._stop_expiry()
        if self.task is not None:
            self.task.cancel()


class RunningCalls:
    """Holds the calls of one link. `waits_s` is how long a call waits for a person. `is_of_one`:
    they are all made for the same person."""

    def __init__(self, waits_s: float, *, is_of_one: bool = False) -> None:
        self._waits_s = waits_s
        self._is_of_one = is_of_one
        self._by_id: dict[str, RunningCall] = {}

    async def start(
        self, call: str, running: RunningCall, work: Coroutine[None, None, None]
    ) -> Outcome:
        """Start a call, and wait for its end or for a question. `work` tells it."""
        # The link ends its calls when it ends, and whoever waits for one ends it when cancelled.
        running.task = asyncio.create_task(work, name=f"call {call}")  # noqa: TID251
        running.task.add_done_callback(running.take_end)
        self._by_id[call] = running
        return await self._wait(call, running)

    async def resume(
        self,
        call: str,
        given: InputGiven,
        *,
        report: Callable[[str], None],
        sampler: Sampler | None = None,
    ) -> Outcome:
        """Give the answer to a question, and wait on."""
        running = self._by_id.get(call)
        if running is None:
            raise Ambiguous(
                "the server waited for an answer over a connection that has ended since, so nobody "
                "knows what became of the call"
            )
        running.report = report
        running.sampler = sampler
        running.give(given)
        return await self._wait(call, running)

    async def _wait(self, call: str, running: RunningCall) -> Outcome:
        try:
            told = await running.next()
        except (asyncio.CancelledError, PerdureError):
            self._end(call)
            raise
        if isinstance(told, InputNeeded) and running.is_awaited(told):
            # Nobody pays for a model's words while the turn waits.
            running.sampler = None
            running.expire_after(self._waits_s, lambda: self._end(call))
        else:
            self._by_id.pop(call, None)
        return told

    def _end(self, call: str) -> None:
        if (running := self._by_id.pop(call, None)) is not None:
            running.end()

    def end_all(self) -> None:
        """End all calls."""
        for call in tuple(self._by_id):
            self._end(call)

    def who_is_meant(self) -> RunningCall | None:
        """Return the call that a question of the server belongs to: that over whose stream it came,
        or the only one. None if nobody knows, or too many wait already."""
        going = GOING.get()
        running = [each for each in self._by_id.values() if not each.is_over]
        if sum(each.is_asking for each in running) >= WAITING_MAX:
            return None
        if isinstance(going, RunningCall):
            return going if going in running else None
        if self._is_of_one and len(running) > 1:
            # The wrong person cannot be asked here, and a call that waits for an answer, perhaps
            # one that its person has given up, asks nothing else.
            running = [each for each in running if not each.is_asking]
        return running[0] if len(running) == 1 else None
