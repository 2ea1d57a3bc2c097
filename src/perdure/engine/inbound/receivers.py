"""Keeps every platform connected, and knows how each is doing.

A connection that is lost is made again with growing pauses: one line in the log when it is lost,
one when it is back. Health is proved by traffic: a platform that is connected and has said nothing
for long is blind, whatever its library believes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Conflict, Permanent, Rejected, Transient
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.inbound.inlet import AccountInlet
from perdure.ports.gateway import Health, PlatformView
from perdure.ports.platform.adapter import HookRequest, HookResponse, Platform
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.wakes import Topic, Wakes

PAUSES_S: Final = (1, 2, 5, 10, 30, 60)
# A platform that refuses us will most likely refuse us again.
REFUSED_PAUSE_S: Final = 300
SILENCE_S: Final = 180
CONNECT_S: Final = 60
# What stands for a place in the waits that a platform names for connecting: words are not held up.
CONNECTION: Final = "(connection)"
log = structlog.get_logger("platform")


class PlatformReceiver:
    """One platform, from its first connection to the drain."""

    def __init__(self, platform: Platform, surface: Surface, *, clock: Clock, wakes: Wakes) -> None:
        self.platform = platform
        self.name = platform.name
        self.inlet: AccountInlet | None = None
        self._surface = surface
        self._surface.is_open = False
        self._clock = clock
        self._wakes = wakes
        self._heard_at = clock.monotonic_s()
        self._error = ""
        self._is_connected = False
        self._was_lost = False
        self._failures = 0
        self._pause_s = 0.0
        self._is_stopping = False

    def heard(self) -> None:
        """Something came: only that proves that a connection is worth anything."""
        self._heard_at = self._clock.monotonic_s()
        self._failures = 0

    def view(self) -> PlatformView:
        silent_s = int(self._clock.monotonic_s() - self._heard_at)
        if not self._is_connected:
            health = Health.BLIND if self._was_lost or self._error else Health.DEGRADED
        else:
            health = Health.BLIND if silent_s > SILENCE_S else Health.SERVING
        account = self.inlet.account if self.inlet else ""
        return PlatformView(
            name=self.name, account=account, health=health, error=self._error, silent_s=silent_s
        )

    async def run(self, inlet: AccountInlet) -> None:
        self.inlet = inlet
        while not self._is_stopping:
            await attempt(self._receive(inlet), self._unforeseen)
            self._failures += 1
            if not self._is_stopping:
                await self._clock.sleep(self._pause_s)

    def stop(self) -> None:
        """End after the connection that is open. Its task is cancelled too, which is not enough:
        before Python 3.13 a task group that is failing swallows a cancellation, and a receiver that
        lost its connection at that moment would connect again, while the stop waits for its end."""
        self._is_stopping = True

    async def _receive(self, inlet: AccountInlet) -> None:
        """One connection, from its making to its loss."""
        try:
            await self._connect(inlet)
            # What could not reach its platform, or be had from it, has waited for this.
            self._wakes.publish(Topic.OUTBOX)
            self._wakes.publish(Topic.FETCHES)
            await self.platform.receive(inlet)
            self._lost("the connection was closed")
        except (Transient, Ambiguous, Conflict) as error:
            self._lost(error.message)
            if isinstance(error, Transient):
                await self._surface.heed(error, CONNECTION)
                self._pause_s = max(self._pause_s, error.retry_after_s or 0)
        except (Permanent, Rejected) as error:
            self._lost(error.message)
            self._pause_s = REFUSED_PAUSE_S

    async def _unforeseen(self, error: Exception) -> None:
        """An adapter broke in a way nobody foresaw: it begins again, as after a lost connection."""
        self._lost(f"internal error: {type(error).__name__}")

    async def _connect(self, inlet: AccountInlet) -> None:
        # An earlier process may have been told to wait.
        await self._clock.sleep(self._surface.pacer.held_s(CONNECTION))
        try:
            async with time_limit(CONNECT_S):
                inlet.account = await self.platform.connect()
        except TimeoutError as error:
            raise Transient(f"no answer within {CONNECT_S} s") from error
        self._heard_at = self._clock.monotonic_s()
        self._is_connected = self._surface.is_open = True
        self._error = ""
        if self._was_lost:
            log.info("connected again", adapter=self.name, account=inlet.account)
        self._was_lost = False

    def _lost(self, why: str) -> None:
        is_news = not self._was_lost
        self._is_connected = self._surface.is_open = False
        self._was_lost = True
        self._error = why
        self._pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        if is_news:
            log.warning("connection lost, trying again", adapter=self.name, error=why)

    async def answer(self, request: HookRequest) -> HookResponse:
        if self.inlet is None or not self._is_connected:
            body = b'{"error":{"code":"unavailable","message":"not connected","retryable":true}}'
            return HookResponse(status=503, body=body)
        return await self.platform.answer(request, self.inlet)


class Receivers:
    def __init__(self, receivers: Mapping[str, PlatformReceiver], *, start: Start) -> None:
        self._receivers = receivers
        self._start = start
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, inlet: Callable[[PlatformReceiver], AccountInlet]) -> None:
        for name, receiver in self._receivers.items():
            work = receiver.run(inlet(receiver))
            self._tasks.append(self._start(work, name=f"receive {name}"))

    async def stop(self) -> None:
        """Nothing more is taken; what was not acknowledged is offered again after the restart."""
        for receiver in self._receivers.values():
            receiver.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        for receiver in self._receivers.values():
            await receiver.platform.close()

    def views(self) -> list[PlatformView]:
        return [receiver.view() for receiver in self._receivers.values()]

    async def take_again(self, adapter: str, payload: str) -> None:
        """A letter that was put aside."""
        receiver = self._receivers.get(adapter)
        if receiver is None or receiver.inlet is None:
            raise Rejected(f"{adapter} is not configured any more", code="not_configured")
        await receiver.inlet.take_again(payload)

    def hooks(self) -> dict[str, Callable[[HookRequest], Awaitable[HookResponse]]]:
        return {name: receiver.answer for name, receiver in self._receivers.items()}
