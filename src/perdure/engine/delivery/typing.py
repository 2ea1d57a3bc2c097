"""Shows the typing signal on platforms for turns that have not begun yet."""

import asyncio
import math
from collections.abc import Iterable

from perdure.domain.address import Address
from perdure.engine.delivery.surfaces import Surface, Surfaces
from perdure.engine.foundation.supervisor import Start
from perdure.ports.system.clock import Clock


async def _type(surface: Surface, address: Address) -> None:
    await surface.show_typing(address)


class Typing:
    """Keeps the typing signal alive at a changing set of addresses."""

    def __init__(self, surfaces: Surfaces, *, clock: Clock, start: Start) -> None:
        self._surfaces = surfaces
        self._clock = clock
        self._start = start
        self._typed_s: dict[Address, float] = {}
        self._calls: dict[Address, asyncio.Task[None]] = {}

    def show(self, addresses: Iterable[Address]) -> float:
        """Show the signal at these addresses, and stop renewing it at all others. Returns after how
        long to call again, before the first signal fades."""
        wanted = dict.fromkeys(addresses)
        self._typed_s = {key: at for key, at in self._typed_s.items() if key in wanted}
        return min((self._show_at(address) for address in wanted), default=math.inf)

    def _show_at(self, address: Address) -> float:
        surface = self._surfaces.of(address)
        if surface is None or not surface.is_open:
            return math.inf
        every_s = surface.capabilities(address).typing_s * 0.8
        if not every_s:
            return math.inf
        left_s = self._typed_s.get(address, -math.inf) + every_s - self._clock.monotonic_s()
        if left_s > 0:
            return left_s
        if address not in self._calls:
            # In a task of its own, so that a platform that hangs does not hold up the caller.
            self._typed_s[address] = self._clock.monotonic_s()
            task = self._start(_type(surface, address), name=f"typing {address.name}")
            self._calls[address] = task
            task.add_done_callback(lambda _: self._calls.pop(address, None))
        return every_s

    async def finish(self) -> None:
        """Cancel the calls that are under way."""
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
