"""Holds the platforms of this gateway for delivery: what each can do, and at what pace.

If a server answers "unsupported", that way of streaming is not used for its account any more. The
process remembers this while it lives; the next start tries again, because servers are updated.
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
    plan_ahead,
    plan_parts,
    plan_reply,
)
from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.engine.delivery.pace import Pacer, Rank
from perdure.ports.delivery.pacing import Pacing
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Adapter
from perdure.ports.system.clock import Clock

# A text that is longer than this is parsed in a thread.
LONG_TEXT: Final = 4_000
# The longest window of a platform's published limits.
LATELY_S: Final = 60.0
# The least time that is assumed between two edits of a bubble by the process before.
PREVIEWS_APART_S: Final = 0.1
log = structlog.get_logger("platforms")


class _PartPlan(Protocol):
    """Describes a function that plans the parts of a text."""

    def __call__(
        self, text: str, capabilities: Capabilities, *, size: Callable[[str], int]
    ) -> tuple[str, ...]: ...


class Surface:
    """Holds one account of a platform, with its pace. `is_open` is true while the platform can be
    reached."""

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
        """Return what the platform can do at this address, without the ways of streaming that its
        server does not know."""
        return lowered(self.adapter.capabilities(address), self._unsupported)

    def streaming(self, address: Address) -> Streaming:
        """Return how a growing answer is shown at this address."""
        if not self.display.has_stream:
            return Streaming.NONE
        return self.capabilities(address).streaming

    def lower(self, streaming: Streaming) -> None:
        """Stop using a way of streaming that the server does not know."""
        self._unsupported |= {streaming}

    async def heed(self, error: Transient | Ambiguous, place: str) -> None:
        """Keep the wait that the server has named, if it has named one: nothing is sent to the
        place, or by the whole account if the wait is for that, until it is over. It is stored, so
        that it holds after a restart too."""
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
        """Continue at the pace of the process before. The edits of its bubbles are not stored, so
        each bubble is assumed to have been edited as often as the pace allows."""
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
        """Show the typing signal at an address. Returns False if the pace did not allow it. Nothing
        depends on the signal, so a failure is only logged."""
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
        """Return the parts of a text that is not a turn's reply: a notice, or a command's
        reply."""
        return await self._planned(plan_parts, text, address)

    async def plan_reply(self, text: str, address: Address) -> tuple[str, ...]:
        """Return the parts of a turn's whole text."""
        return await self._planned(plan_reply, text, address)

    async def plan_ahead(self, text: str, address: Address) -> tuple[str, ...]:
        """Return the leading parts of a growing answer that can be sent before the rest."""
        return await self._planned(plan_ahead, text, address)

    async def plan_bubbles(
        self, text: str, address: Address, *, is_healed: bool
    ) -> tuple[str, ...]:
        """Return what each bubble shows of a text that is not whole yet. With `is_healed`, markdown
        that is still open at the end is closed."""
        return await self._planned(_healed_plan if is_healed else plan_parts, text, address)

    async def _planned(self, how: _PartPlan, text: str, address: Address) -> tuple[str, ...]:
        """Plan the parts of a text. A long text takes a while to parse, so that is done in a thread
        and does not hold up the event loop."""
        work = partial(how, text, self.capabilities(address), size=self.adapter.size)
        return await asyncio.to_thread(work) if len(text) > LONG_TEXT else work()


def _healed_plan(
    text: str, capabilities: Capabilities, *, size: Callable[[str], int]
) -> tuple[str, ...]:
    # Imported here because the parser takes a while to import, and a gateway without a platform
    # does not need it.
    from perdure.domain.markdown.heal import heal  # noqa: PLC0415

    return plan_parts(heal(text), capabilities, size=size)


class Surfaces:
    """Holds the platforms by the name of their adapter. HTTP has none: its clients read the
    journal."""

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
        """Return the platform of an address, or None for HTTP and for platforms that are not
        configured."""
        return self._surfaces.get(address.adapter)

    def named(self, name: str) -> Surface:
        return self._surfaces[name]
