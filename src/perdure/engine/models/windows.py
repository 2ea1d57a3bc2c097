"""Encoded histories that are kept, so that the next turn of a conversation need not read them.

Nothing but speed depends on what is here. It is bounded in bytes, the longest unused goes first,
and what nobody has used for a while goes too: a gateway at rest holds nothing of its busy hours.
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
# Windows that become idle one after another are dropped together.
TOGETHER_S: Final = 15.0

WindowKey = tuple[Agent, TurnId]


class _Kept(NamedTuple):
    view: str
    window: Window
    used_s: float


def _nobody() -> None:
    """Tells no one."""


class Windows:
    """Keeps windows by the turn at which each ends, and by the agent that has encoded it: another
    one of the same name may speak another wire. A window is good for the view it was made for only.
    `dropped` is called when idle ones were let go."""

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
        """Return the window if there is one for this view."""
        known = self._kept.get(key)
        if known is None or known.view != view:
            return None
        self._kept[key] = known._replace(used_s=self._clock.monotonic_s())
        self._kept.move_to_end(key)
        return known.window

    def keep(self, key: WindowKey, view: str, window: Window) -> None:
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
        """Drop what this agent has encoded: nobody will ask it again."""
        for key in [key for key in self._kept if key[0] is agent]:
            self.forget(key)

    def stop(self) -> None:
        self._over.set()
        self._stirred.set()

    async def run(self) -> None:
        """Drop what has become idle. Where nothing is kept, nothing wakes up."""
        while not self._over.is_set():
            self._stirred.clear()
            if not self._kept:
                await self._stirred.wait()
                continue
            await happens_within(self._over, within_s=max(self._idle_in_s(), TOGETHER_S))
            self.drop_idle()

    def drop_idle(self) -> None:
        """Drop the windows that nobody has used for `IDLE_S`."""
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
