"""Strikes a gateway under traffic: deaths, also while it starts, stops and pauses."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from perdure.testkit.processes.process import GatewayProcess

Strike = Callable[[], Awaitable[None]]


class Strikes:
    """Strikes one gateway. After each strike the gateway runs."""

    between_s = (1.0, 9.0)

    def __init__(self, gateway: GatewayProcess, dice: random.Random) -> None:
        self.struck: Counter[str] = Counter()
        self.ready_s: list[float] = []
        self.stopped_s: list[float] = []
        self._gateway = gateway
        self._dice = dice

    async def strike(self, strikes: Sequence[Strike], seconds: float) -> None:
        """Strike again and again with one of these, until the time is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while True:
            await self.pause(min(self._dice.uniform(*self.between_s), ends_at - loop.time()))
            if loop.time() >= ends_at:
                return
            await self._dice.choice(strikes)()

    async def pause(self, seconds: float) -> None:
        """Wait for the next strike."""
        await self._gateway.pause(seconds)

    async def kill(self) -> None:
        self.struck["SIGKILL"] += 1
        await self._gateway.kill()
        await self.start()

    async def kill_while_starting(self) -> None:
        self.struck["SIGKILL while starting"] += 1
        await self._gateway.kill()
        starting = asyncio.create_task(self._gateway.start())
        await self._gateway.pause(self._dice.uniform(0.05, 1.0))
        await self._gateway.kill()
        await asyncio.gather(starting, return_exceptions=True)
        await self._gateway.kill()  # the start may have been faster than the kill
        await self.start()

    async def stop(self) -> None:
        self.struck["SIGTERM"] += 1
        loop = asyncio.get_running_loop()
        begun = loop.time()
        code = await self._gateway.terminate()
        assert code == 0, f"a stop ended with {code}"
        self.stopped_s.append(loop.time() - begun)
        await self.start()

    async def freeze(self) -> None:
        self.struck["SIGSTOP"] += 1
        self._gateway.send_signal(signal.SIGSTOP)
        try:
            await self._gateway.pause(self._dice.uniform(0.2, 4.0))
        finally:
            self._gateway.send_signal(signal.SIGCONT)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self._gateway.start()
        self.ready_s.append(loop.time() - begun)
