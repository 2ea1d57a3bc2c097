"""Runs people who write numbered messages, change or remove some that wait, and cut connections."""

import asyncio
import random
from collections import Counter
from itertools import count

from tests.fault.storm.model import question
from tests.fault.storm.platform import Sent, Spot, Stormy

from perdure.ports.system.clock import Clock

PAUSE_S = (6.0, 32.0)
BURST = (1, 1, 2, 2, 3, 4)


class Writers:
    """Writes in each spot at the same time. All spots share one sequence of numbers, so it grows in
    each."""

    def __init__(self, platform: Stormy, dice: random.Random, clock: Clock) -> None:
        self.sent: list[Sent] = []
        self.counts: Counter[str] = Counter()
        self._platform = platform
        self._dice = dice
        self._clock = clock
        self._numbers = count(1)

    async def write_until(self, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for spot in self._platform.spots:
                dice = random.Random(self._dice.random())
                group.create_task(self._write_in(spot, dice, over))

    async def _write_in(self, spot: Spot, dice: random.Random, over: asyncio.Event) -> None:
        await self._clock.sleep(dice.uniform(0, PAUSE_S[0]))
        while not over.is_set():
            burst = [await self._say(spot, dice) for _ in range(dice.choice(BURST))]
            await self._change(burst[-1], dice)
            await _until(over, spot.calmness * dice.uniform(*PAUSE_S))

    async def _say(self, spot: Spot, dice: random.Random) -> Sent:
        number, person = next(self._numbers), dice.choice(spot.people)
        name = await self._platform.write(spot, person, question(number))
        sent = Sent(number=number, spot=spot, person=person, name=name)
        self.sent.append(sent)
        await self._clock.sleep(dice.uniform(0, 0.5))
        return sent

    async def _change(self, last: Sent, dice: random.Random) -> None:
        """Change the newest message, which waits if others were written before it."""
        roll = dice.random()
        if roll < 0.15:
            last.is_edited = True
            last.changes.append(await self._platform.edit(last, question(last.number, 1)))
        elif roll < 0.25:
            change = await self._platform.delete(last)
            last.is_deleted = change is not None
            last.changes.append(change or "")
        elif roll < 0.40:
            self.counts[await self._platform.disturb(last) or "nothing"] += 1


async def _until(over: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return
