"""Keeps encoded histories, so that the next turn of a conversation need not read them again.

Only speed depends on this cache. It is bounded in bytes: the window that was unused for longest is
dropped first. A window that was unused for `IDLE_S` is dropped too, so that an idle gateway holds
nothing of its busy hours.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.domain.ids import TurnId
from perdure.domain.prompt.prompt import Window
from perdure.engine.foundation.timed_waits import happens_within
from perdure.ports.system.clock import Clock
from perdure.ports.turns.agent import Agent

CACHE_BYTES: Final = 64 * 1024 * 1024
IDLE_S: Final = 60.0
# The least time between two looks: windows that become idle soon after each other go together.
TOGETHER_S: Final = 15.0

WindowKey = tuple[Agent, TurnId]


class _Kept(NamedTuple):
    view: str
    window: Window
    used_s: float


def _nobody() -> None:
    """Do nothing."""


class Windows:
    """Keeps windows by the turn at which each ends, and by the agent that has encoded it: another
    agent of the same name may use another wire. A window is valid only for the view that it was
    made for. `dropped` is called after idle windows were dropped."""

    def __init__(self, *, clock: Clock, dropped: Callable[[], None] = _nobody) -> None:
        self._clock = clock
        self._dropped = dropped
        # In the order of their last use.
        self._kept: OrderedDict[WindowKey, _Kept] = OrderedDict()
        self._bytes = 0
        self._stirred = asyncio.Event()
        self._over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: WindowKey, view: str) -> Window | None:
        """Return the window, or None if there is none for this view."""
        known = self._kept.get(key)
        if known is None or known.view != view:
            return None
        self._kept[key] = known._replace(used_s=self._clock.monotonic_s())
        self._kept.move_to_end(key)
        return known.window

    def keep(self, key: WindowKey, view: str, window: Window) -> None:
        """Keep a window instead of an older one, and drop others until all fit."""
        self.forget(key)
        self._kept[key] = _Kept(view, window, self._clock.monotonic_s())
        self._bytes += window.size
        self._stirred.set()
        while self._bytes > CACHE_BYTES:
            self._drop_oldest()

    def forget(self, key: WindowKey) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._bytes -= dropped.window.size

    def forget_agent(self, agent: Agent) -> None:
        """Drop the windows that this agent has encoded, because it is not asked any more."""
        for key in [key for key in self._kept if key[0] is agent]:
            self.forget(key)

    def stop(self) -> None:
        self._over.set()
        self._stirred.set()

    async def run(self) -> None:
        """Drop idle windows until `stop`. While no window is kept, this does not wake up."""
        while not self._over.is_set():
            self._stirred.clear()
            if not self._kept:
                await self._stirred.wait()
                continue
            await happens_within(self._over, within_s=max(self._idle_in_s(), TOGETHER_S))
            self.drop_idle()

    def drop_idle(self) -> None:
        """Drop the windows that were unused for `IDLE_S`."""
        before = len(self._kept)
        while self._kept and self._idle_in_s() <= 0:
            self._drop_oldest()
        if len(self._kept) < before:
            self._dropped()

    def _idle_in_s(self) -> float:
        oldest = next(iter(self._kept.values()))
        return oldest.used_s + IDLE_S - self._clock.monotonic_s()

    def _drop_oldest(self) -> None:
        _, dropped = self._kept.popitem(last=False)
        self._bytes -= dropped.window.size
