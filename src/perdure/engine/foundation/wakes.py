"""Provides the bus on which the parts of a node wake each other.

A part that has created work publishes the topic; the part that does such work waits for the topic.
Neither knows the other, so each can be built without the other. A wake-up carries no facts: the
facts are in the store, and the woken part reads them there.

No wake-up is lost within the process. A waiter calls `begin` before it looks at the store: if
something is published while it looks, its next wait returns at once.
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
        """Forget earlier wake-ups. Call this before looking at the store: a wake-up after this call
        may announce rows that the look misses, so it must end the next `wait`."""
        self._woken.clear()

    def wake(self, _: WakeKey = None) -> None:
        self._woken.set()

    @property
    def is_woken(self) -> bool:
        return self._woken.is_set()

    async def wait(self) -> bool:
        """Wait for a wake-up. It stays set until the next `begin`."""
        return await self._woken.wait()


class Bus:
    """Keeps the listeners of each topic, for all keys (None) or for one key."""

    def __init__(self) -> None:
        self._hearing: dict[tuple[Topic, WakeKey], list[_Hear]] = {}

    def publish(self, topic: Topic, key: WakeKey = None) -> None:
        """Wake the listeners of this topic. A wake-up with a key reaches the listeners of that key
        and the listeners of all keys."""
        for hear in tuple(self._hearing.get((topic, None), ())):
            hear(key)
        if key is not None:
            for hear in tuple(self._hearing.get((topic, key), ())):
                hear(key)

    def waiter(self, *topics: Topic) -> Waiter:
        """Return a waiter for all keys of these topics. It stays registered for good."""
        waiter = Waiter()
        for topic in topics:
            self.listen(topic, waiter.wake)
        return waiter

    def listen(self, topic: Topic, hear: _Hear, *, key: WakeKey = None) -> None:
        """Call `hear` with the key of every wake-up of this topic. `hear` must not block and must
        not raise. It is for listeners that must act at once, even while their owner is busy."""
        self._hearing.setdefault((topic, key), []).append(hear)

    def stop_listening(self, topic: Topic, hear: _Hear, *, key: WakeKey = None) -> None:
        """Stop calling `hear`. Does nothing if it is not registered."""
        hearing = self._hearing.get((topic, key), [])
        if hear in hearing:
            hearing.remove(hear)
        if not hearing:
            self._hearing.pop((topic, key), None)
