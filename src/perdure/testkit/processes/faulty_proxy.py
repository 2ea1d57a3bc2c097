"""Provides an HTTP proxy between a gateway and a chat platform that breaks what passes through it.

It refuses calls, names waits, closes connections before or after a call was performed, and lets
calls hang until their caller has died, to perform them then. It keeps what it has seen and done:
the calls in order of arrival, and those that came during a wait that it had named.

    async with FaultyProxy(peer.url, rules, weather, clock=clock) as proxy:
        ...  # point the gateway at proxy.url
        proxy.is_calm = True  # from now on everything passes
"""

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Protocol, Self

import aiohttp
import msgspec
from aiohttp import web

from perdure.ports.system.clock import Clock

# A call so soon after a wait was named is not counted as impatient: the caller may have sent it
# before it could read the answer.
IN_FLIGHT_S: Final = 0.5
# A call may come this much before the end of a wait: callers round their waits to milliseconds.
TICK_S: Final = 0.02
# It is shorter than the time that callers wait for an answer. A call that hangs for longer is
# performed, and is still not answered.
HANG_S: Final = 20.0
_HOP_BY_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length"})


class Fault(StrEnum):
    """Names what can happen to a call.

    LIMITED: answered 429 with a wait. REFUSED: answered 5xx and not performed. BROKEN: performed,
    then answered 5xx. CUT: closed before it was passed on. LOST: performed, then closed. HUNG:
    never answered, and performed when the caller is gone.
    """

    LIMITED = "429"
    REFUSED = "5xx, not done"
    BROKEN = "5xx, done"
    CUT = "closed before"
    LOST = "closed after"
    HUNG = "hung"


class PlatformRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a request as the platform's rules read it. `is_act` is true if it shows, changes,
    deletes, marks or types something in `place`, or searches there for a part that was sent; other
    requests only receive. `wait_for` says what a 429 to an act holds up: a place, or if empty the
    whole account. A 429 to any other request holds up only the same `verb`."""

    verb: str
    is_act: bool = False
    place: str = ""
    text: str = ""
    wait_for: str = ""


class PlatformRules(Protocol):
    """Knows how one platform writes its requests and its refusals."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        """Read what a request asks for."""
        ...

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        """Return the platform's refusal that names a wait of so many seconds."""
        ...


class ProxiedCall(msgspec.Struct, kw_only=True):
    """Records one request: when it came, in which life of the gateway, and what was done to it."""

    at: float
    life: int
    asked: PlatformRequest
    fault: Fault | None = None

    def __str__(self) -> str:
        asked = self.asked
        where, words = asked.place or "-", asked.text.split() or [""]
        text = f"{words[0]} … {words[-1]}"
        return f"{self.at:.3f} life {self.life} {asked.verb} {where} [{self.fault or ''}] {text}"


class _NamedWait(msgspec.Struct, frozen=True, kw_only=True):
    """Records a wait: when it was named, when it ends, and in which life of the gateway which verb
    was told."""

    named_at: float
    ends_at: float
    life: int
    verb: str


class Impatient(msgspec.Struct, frozen=True, kw_only=True):
    """Records a call that came during a wait."""

    call: ProxiedCall
    wait: _NamedWait

    @property
    def is_over_a_restart(self) -> bool:
        """Tell whether another life of the gateway made the call than the one that was told to
        wait."""
        return self.call.life != self.wait.life

    def __str__(self) -> str:
        after_s, of_s = self.call.at - self.wait.named_at, self.wait.ends_at - self.wait.named_at
        life = "over a restart" if self.is_over_a_restart else "in the same life"
        asked = self.call.asked
        return (
            f"{asked.verb} to {asked.place or 'the account'} came {after_s:.2f} s into a wait of "
            f"{of_s:.1f} s that {self.wait.verb} was told, {life}"
        )


class Weather(Protocol):
    """Decides what goes wrong, and how."""

    def fault(self, asked: PlatformRequest) -> Fault | None:
        """Decide what this call meets."""
        ...

    def wait_s(self) -> int:
        """Return how long a 429 tells the caller to wait."""
        ...

    def status(self) -> int:
        """Return the status that a failed call is answered with."""
        ...

    def late_s(self) -> float:
        """Return how long after its caller has gone a hanging call is performed."""
        ...


class _NamedWaits:
    """Holds the waits that were named, by what they hold up."""

    def __init__(self) -> None:
        self._waits: dict[str, _NamedWait] = {}

    def begin(self, asked: PlatformRequest, wait: _NamedWait) -> None:
        """Remember a wait that was just named."""
        self._waits[asked.wait_for if asked.is_act else f"verb {asked.verb}"] = wait

    def met(self, call: ProxiedCall) -> _NamedWait | None:
        """Return the wait that this call should have kept, or None."""
        asked = call.asked
        about = {asked.place, ""} if asked.is_act else {f"verb {asked.verb}"}
        waits = [self._waits[each] for each in about if each in self._waits]
        open_ = [wait for wait in waits if wait.ends_at - TICK_S > call.at]
        return max(open_, key=lambda wait: wait.ends_at, default=None)


class FaultyProxy:
    """Serves as the platform at `url`, and passes calls on to `target` or breaks them.

    `life` is the number of the gateway's current process; the test that kills it counts. `hung` is
    set when a call begins to hang: killing the gateway then makes that call go on.
    """

    def __init__(
        self, target: str, rules: PlatformRules, weather: Weather, *, clock: Clock
    ) -> None:
        self.url = ""
        self.is_calm = False
        self.life = 0
        self.calls: list[ProxiedCall] = []
        self.impatient: list[Impatient] = []
        self.hung = asyncio.Event()
        self._target = target.rstrip("/")
        self._rules = rules
        self._weather = weather
        self._clock = clock
        self._waits = _NamedWaits()
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession
        self._tasks: asyncio.TaskGroup

    @property
    def faults(self) -> Counter[str]:
        """Count the faults so far, by kind."""
        return Counter(str(call.fault) for call in self.calls if call.fault)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64_000_000)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, auto_decompress=False)
        )
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a call and close its connection. On a connection that was used before, clients
        repeat by themselves a call that is cut, so the test would not see the fault."""
        answer = await self._answer(request, await request.read())
        answer.force_close()
        return answer

    async def _answer(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Record a call, refuse it if a wait is not over, and otherwise let the weather decide."""
        asked = self._rules.read(request.method, request.path, body)
        call = ProxiedCall(at=self._clock.monotonic_s(), life=self.life, asked=asked)
        self.calls.append(call)
        wait = self._waits.met(call)
        if wait is not None:
            call.fault = Fault.LIMITED
            if call.at > wait.named_at + IN_FLIGHT_S:
                self.impatient.append(Impatient(call=call, wait=wait))
            return self._rules.limited(asked, math.ceil(wait.ends_at - call.at))
        call.fault = None if self.is_calm else self._weather.fault(asked)
        return await self._meet(request, body, call)

    async def _meet(
        self, request: web.Request, body: bytes, call: ProxiedCall
    ) -> web.StreamResponse:
        """Carry out the fault that was decided for a call."""
        match call.fault:
            case None if not call.asked.is_act:
                # It only receives, so it need not finish if its caller goes away.
                return await self._perform(request, body)
            case None:
                return await self._finish(self._perform(request, body))
            case Fault.LIMITED:
                return self._limit(call)
            case Fault.REFUSED:
                return self._fail()
            case Fault.BROKEN:
                await self._finish(self._perform(request, body))
                return self._fail()
            case Fault.CUT:
                return _close(request)
            case Fault.LOST:
                await self._finish(self._perform(request, body))
                return _close(request)
            case Fault.HUNG:
                return await self._hang(request, body)

    def _limit(self, call: ProxiedCall) -> web.Response:
        """Name a wait, and remember it."""
        wait_s, now = self._weather.wait_s(), self._clock.monotonic_s()
        asked = call.asked
        wait = _NamedWait(named_at=now, ends_at=now + wait_s, life=call.life, verb=asked.verb)
        self._waits.begin(asked, wait)
        return self._rules.limited(asked, wait_s)

    def _fail(self) -> web.Response:
        """Answer as a load balancer does that cannot reach its server."""
        page = "<html>no upstream</html>"
        return web.Response(status=self._weather.status(), text=page, content_type="text/html")

    async def _hang(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Keep a call without an answer. Once its caller is gone it is performed, as a slow
        platform would."""
        self.hung.set()
        try:
            await self._clock.sleep(HANG_S)
        except asyncio.CancelledError:
            self._tasks.create_task(self._perform_late(request, body))
            raise
        await self._perform(request, body)
        return await asyncio.Future()

    async def _perform_late(self, request: web.Request, body: bytes) -> None:
        await self._clock.sleep(self._weather.late_s())
        await self._perform(request, body)

    async def _finish(self, work: Coroutine[Any, Any, web.Response]) -> web.Response:
        """Perform a call to its end, even if its caller dies meanwhile."""
        return await asyncio.shield(self._tasks.create_task(work))

    async def _perform(self, request: web.Request, body: bytes) -> web.Response:
        """Pass a call on to the platform and return its answer."""
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        try:
            async with self._http.request(
                request.method,
                self._target + request.raw_path,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
        except aiohttp.ClientError:
            return web.Response(status=502, text="the platform is away")


def _close(request: web.Request) -> web.Response:
    """Drop the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
