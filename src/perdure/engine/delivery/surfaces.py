"""The platforms of this gateway, as delivery sees them: what each can do, and at what pace.

A server that says "unsupported" lowers what we ask of that account. It is remembered for as long as
the process lives: the next start asks once again, for servers learn.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

import structlog

from perdure.domain.address import Address
from perdure.domain.delivery import (
    Capabilities,
    Display,
    Streaming,
    lowered,
    plan,
    plan_ahead,
    plan_reply,
)
from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.engine.delivery.pace import Pacer, Rank
from perdure.ports.delivery.pacing import Pacing
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Adapter
from perdure.ports.system.clock import Clock

LONG_TEXT: Final = 4_000
# The longest window of a platform's published limits.
LATELY_S: Final = 60.0
PREVIEWS_APART_S: Final = 0.1
log = structlog.get_logger("platforms")


class _PartPlan(Protocol):
    """How a text becomes parts."""

    def __call__(
        self, text: str, capabilities: Capabilities, *, size: Callable[[str], int]
    ) -> tuple[str, ...]: ...


class Surface:
    """One account. `is_open` while the platform can be reached."""

    def __init__(self, adapter: Adapter, display: Display, pacing: Pacing, *, clock: Clock) -> None:
        self.adapter = adapter
        self.display = display
        self._pacing = pacing
        self.pacer = Pacer(clock)
        self.is_open = True
        self._unsupported: frozenset[Streaming] = frozenset()

    @property
    def name(self) -> str:
        return self.adapter.name

    def capabilities(self, address: Address) -> Capabilities:
        return lowered(self.adapter.capabilities(address), self._unsupported)

    def streaming(self, address: Address) -> Streaming:
        if not self.display.has_stream:
            return Streaming.NONE
        return self.capabilities(address).streaming

    def lower(self, streaming: Streaming) -> None:
        self._unsupported |= {streaming}

    async def heed(self, error: Transient, place: str) -> None:
        """Ask nothing there during a wait that the server has named, in this process or the next;
        and nothing of the whole account where the wait is for that."""
        wait_s = error.retry_after_s
        if not wait_s:
            return
        place = "" if error.code == ACCOUNT_WAIT else place
        self.pacer.hold(place or None, wait_s)
        try:
            await self._pacing.hold(adapter=self.name, place=place, wait_s=wait_s)
        except (Transient, Ambiguous) as failure:
            log.warning("a wait was not stored, so a restart forgets it", error=failure.message)

    async def recall(self) -> None:
        """Go on at the pace of the process before. How often it has changed its bubbles nobody
        wrote down, so it is assumed to have been as often as it could."""
        known = await self._pacing.lately(adapter=self.name, within_s=LATELY_S)
        for hold in known.holds:
            self.pacer.hold(hold.place or None, hold.left_s)
        agos_s: defaultdict[str, list[float]] = defaultdict(list)
        for call in known.calls:
            agos_s[call.address.place].append(call.ago_s)
        for bubble in known.growing:
            pace = self.capabilities(bubble.address).pace
            every_s = max(pace.preview_s, PREVIEWS_APART_S)
            window_s = min(bubble.ago_s, pace.place.per_s)
            most = min(int(window_s / every_s), pace.place.count * 3 // 4)
            agos_s[bubble.address.place] += [nth * every_s for nth in range(most)]
        self.pacer.recall(agos_s)

    async def show_typing(self, address: Address) -> bool:
        """Show that something is being done there. Returns False if the pace did not allow it.
        Nothing depends on it, so a failure is for the log."""
        if self.pacer.wait_s(address.place, self.capabilities(address).pace, Rank.SIGNAL):
            return False
        try:
            await self.adapter.typing(address)
        except Transient as error:
            log.debug("typing was not shown", error=error.message)
            await self.heed(error, address.place)
        except (Ambiguous, Permanent, Rejected) as error:
            log.debug("typing was not shown", error=error.message)
        return True

    async def plan(self, text: str, address: Address) -> tuple[str, ...]:
        """The parts of a text that is said about a turn, or without one."""
        return await self._planned(plan, text, address)

    async def plan_reply(self, text: str, address: Address) -> tuple[str, ...]:
        """The parts of a turn's whole text."""
        return await self._planned(plan_reply, text, address)

    async def plan_ahead(self, text: str, address: Address) -> tuple[str, ...]:
        """The parts of a growing answer that can go ahead of the rest."""
        return await self._planned(plan_ahead, text, address)

    async def plan_bubbles(
        self, text: str, address: Address, *, is_healed: bool
    ) -> tuple[str, ...]:
        """What is to be shown of a text that is not whole yet."""
        return await self._planned(_healed_plan if is_healed else plan, text, address)

    async def _planned(self, how: _PartPlan, text: str, address: Address) -> tuple[str, ...]:
        """A long text takes a while to parse, which is not the loop's to spend."""
        work = partial(how, text, self.capabilities(address), size=self.adapter.size)
        return await asyncio.to_thread(work) if len(text) > LONG_TEXT else work()


def _healed_plan(
    text: str, capabilities: Capabilities, *, size: Callable[[str], int]
) -> tuple[str, ...]:
    # Its parser takes a while to import, and many gateways have no platform.
    from perdure.domain.markdown.heal import heal  # noqa: PLC0415

    return plan(heal(text), capabilities, size=size)


class Surfaces:
    """By the name of their adapter. Over HTTP there is none: clients read the journal."""

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        pacing: Pacing,
        *,
        clock: Clock,
        display: Callable[[str], Display] = lambda _: Display(),
    ) -> None:
        self._surfaces = {
            name: Surface(adapter, display(name), pacing, clock=clock)
            for name, adapter in adapters.items()
        }

    def __iter__(self) -> Iterator[Surface]:
        return iter(self._surfaces.values())

    def __bool__(self) -> bool:
        return bool(self._surfaces)

    def of(self, address: Address) -> Surface | None:
        return self._surfaces.get(address.adapter)

    def named(self, name: str) -> Surface:
        return self._surfaces[name]
