"""Keeps every platform connected, and knows the health of each.

A lost connection is made again after pauses that grow; the log gets one line when it is lost and
one when it is back. Health is proved by traffic: a platform that is connected and has sent nothing
for long counts as blind, whatever its library reports.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from perdure.domain.address import Address, AddressForm
from perdure.domain.errors import Ambiguous, Conflict, Permanent, Rejected, Transient
from perdure.engine.delivery.surfaces import Surface, Surfaces
from perdure.engine.delivery.typing import Typing
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.inbound.inlet import AccountInlet
from perdure.ports.gateway import Health, PlatformView
from perdure.ports.people.places import Reachable
from perdure.ports.platform.adapter import HookRequest, HookResponse, Platform
from perdure.ports.records.condition import StoreCondition
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.wakes import Topic, Wakes

PAUSES_S: Final = (1, 2, 5, 10, 30, 60)
# A platform that refuses this gateway will most likely refuse it again.
REFUSED_PAUSE_S: Final = 300
# A connected platform that has sent nothing for longer than this counts as blind.
SILENCE_S: Final = 180
CONNECT_S: Final = 60
# The name under which a wait for connecting is kept, in place of a place's name. So the wait holds
# up connections only, and no messages.
CONNECTION: Final = "(connection)"
log = structlog.get_logger("platform")


class PlatformReceiver:
    """Receives from one platform: connects it, and connects it again until the drain."""

    def __init__(
        self,
        platform: Platform,
        surface: Surface,
        *,
        condition: StoreCondition,
        clock: Clock,
        wakes: Wakes,
    ) -> None:
        self.platform = platform
        self.name = platform.name
        self.inlet: AccountInlet | None = None
        self._condition = condition
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
        """Note that something came from the platform. Only that proves that a connection works, so
        only that resets the pauses."""
        self._heard_at = self._clock.monotonic_s()
        self._failures = 0

    def view(self) -> PlatformView:
        """Return the platform's health."""
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
        """Connect and receive, again and again, until `stop`."""
        self.inlet = inlet
        while not self._is_stopping:
            await attempt(self._receive(inlet), self._unforeseen)
            self._failures += 1
            if not self._is_stopping:
                await self._clock.sleep(self._pause_s)

    def stop(self) -> None:
        """Make no further connection. The caller also cancels the task, but that is not enough:
        before Python 3.13 a task group that is failing swallows a cancellation, so a receiver that
        loses its connection at that moment would connect again while the caller waits for its
        end."""
        self._is_stopping = True

    async def _receive(self, inlet: AccountInlet) -> None:
        """Connect once, and receive until the connection is lost."""
        try:
            await self._connect(inlet)
            # Parts and files have waited for this connection.
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
        """Treat an unexpected exception of the adapter like a lost connection."""
        self._lost(f"internal error: {type(error).__name__}")

    async def _connect(self, inlet: AccountInlet) -> None:
        # The platform may have told this process or an earlier one to wait before connecting.
        await self._clock.sleep(self._surface.pacer.held_s(CONNECTION))
        try:
            async with time_limit(CONNECT_S):
                inlet.account = await self.platform.connect()
        except TimeoutError as error:
            raise Transient(f"the platform did not answer within {CONNECT_S} s") from error
        self._heard_at = self._clock.monotonic_s()
        self._is_connected = self._surface.is_open = True
        self._error = ""
        self._wakes.publish(Topic.CONNECTED, self.name)
        if self._was_lost:
            log.info("connected again", adapter=self.name, account=inlet.account)
        self._was_lost = False

    def _lost(self, why: str) -> None:
        if self._is_connected and self._condition.trouble:
            # The store did not take what came, which says nothing about the platform. It offers
            # that again to the next connection, and the store's trouble is told elsewhere.
            self._is_connected = self._surface.is_open = False
            self._pause_s = PAUSES_S[0]
            return
        is_news = not self._was_lost
        self._is_connected = self._surface.is_open = False
        self._was_lost = True
        self._error = why
        self._pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        if is_news:
            self._wakes.publish(Topic.DISCONNECTED, self.name)
            log.warning("connection lost, trying again", adapter=self.name, error=why)

    async def answer(self, request: HookRequest) -> HookResponse:
        """Answer a request to the platform's web hook; with 503 while it is not connected, so that
        the platform offers it again."""
        if self.inlet is None or not self._is_connected:
            body = b'{"error":{"code":"unavailable","message":"not connected","retryable":true}}'
            return HookResponse(status=503, body=body)
        return await self.platform.answer(request, self.inlet)


class Receivers:
    """Runs the receivers of all platforms."""

    def __init__(
        self,
        receivers: Mapping[str, PlatformReceiver],
        surfaces: Surfaces,
        *,
        clock: Clock,
        start: Start,
    ) -> None:
        self._receivers = receivers
        self._typing = Typing(surfaces, clock=clock, start=start)
        self._start = start
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, inlet: Callable[[PlatformReceiver], AccountInlet]) -> None:
        for name, receiver in self._receivers.items():
            work = receiver.run(inlet(receiver))
            self._tasks.append(self._start(work, name=f"receive {name}"))

    def show_typing(self, address: Address) -> None:
        """Show that a message was taken, before its turn begins."""
        self._typing.show((address,))

    async def stop(self) -> None:
        """Stop receiving. Platforms offer what was not acknowledged again after the restart."""
        for receiver in self._receivers.values():
            receiver.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._typing.finish()

    async def close(self) -> None:
        for receiver in self._receivers.values():
            await receiver.platform.close()

    def reach(self, forms: Mapping[str, AddressForm], others: Iterable[str] = ()) -> Reachable:
        """Return the platforms that can be reached, and `others` from which nothing is received.
        One that is not connected has no account yet."""
        accounts = dict.fromkeys(others, "") | {view.name: view.account for view in self.views()}
        return Reachable(accounts=accounts, forms=forms)

    def views(self) -> list[PlatformView]:
        return [receiver.view() for receiver in self._receivers.values()]

    async def take_again(self, adapter: str, payload: str) -> None:
        """Take a letter that was put aside. Raises `Rejected` if its platform is not configured."""
        receiver = self._receivers.get(adapter)
        if receiver is None or receiver.inlet is None:
            raise Rejected(f"{adapter} is not configured any more", code="not_configured")
        await receiver.inlet.take_again(payload)

    def hooks(self) -> dict[str, Callable[[HookRequest], Awaitable[HookResponse]]]:
        """Return the functions that answer web hooks, by the platform's name."""
        return {name: receiver.answer for name, receiver in self._receivers.items()}
