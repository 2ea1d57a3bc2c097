"""The bus on which the parts of a node wake each other.

Whoever has made work publishes its topic; whoever does that work waits for it. Neither knows the
other, so each can be made without the other. A wake-up carries no facts: these are in the store,
and whoever is woken looks there.

No wake-up is lost. A waiter calls `begin` before it looks at the store: what is published while it
looks is seen by its next wait, which then returns at once.
"""

import asyncio
from collections.abc import Callable

from perdure.ports.turns.wakes import Topic, WakeKey

_Hear = Callable[[WakeKey], None]


class Waiter:
    """Waits for topics of the bus."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def begin(self) -> None:
        """Forget earlier wake-ups. Whoever wakes us from now on has something that the look which
        follows may miss."""
        self._woken.clear()

    def wake(self, _: WakeKey = None) -> None:
        self._woken.set()

    @property
    def is_woken(self) -> bool:
        return self._woken.is_set()

    async def wait(self) -> bool:
        """Wait for a wake-up. It stays until the next `begin`."""
        return await self._woken.wait()


class Bus:
    """Keeps who hears of which topic, of all keys (None) or of one."""

    def __init__(self) -> None:
        self._hearing: dict[tuple[Topic, WakeKey], list[_Hear]] = {}

    def publish(self, topic: Topic, key: WakeKey = None) -> None:
        """Wake whoever waits for this topic. What is published with a key is heard by those who
        wait for that key, and by those who wait for all."""
        for hear in tuple(self._hearing.get((topic, None), ())):
            hear(key)
        if key is not None:
            for hear in tuple(self._hearing.get((topic, key), ())):
                hear(key)

    def waiter(self, *topics: Topic) -> Waiter:
        """Return a waiter for all keys of these topics, for as long as the bus lives."""
        waiter = Waiter()
        for topic in topics:
            self.listen(topic, waiter.wake)
        return waiter

    def listen(self, topic: Topic, hear: _Hear, *, key: WakeKey = None) -> None:
        """Have `hear` called with the key of every wake-up. It must not wait and must not fail; it
        is for those who have to act on a key at once, while their owner may be busy."""
        self._hearing.setdefault((topic, key), []).append(hear)

    def leave(self, topic: Topic, hear: _Hear, *, key: WakeKey = None) -> None:
        """End what `listen` began. It may have ended already."""
        hearing = self._hearing.get((topic, key), [])
        if hear in hearing:
            hearing.remove(hear)
        if not hearing:
            self._hearing.pop((topic, key), None)
