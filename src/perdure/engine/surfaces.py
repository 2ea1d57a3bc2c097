"""The platforms of this gateway, as delivery sees them: what each can do, and at what pace.

A server that says "unsupported" lowers what we ask of that account. It is remembered for as long as
the process lives: the next start asks once again, for servers learn.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

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
from perdure.domain.errors import Transient
from perdure.engine.pace import Pacer
from perdure.ports.adapter import ACCOUNT_WAIT, Adapter
from perdure.ports.clock import Clock

LONG_TEXT: Final = 4_000


class Plan(Protocol):
    """How a text becomes parts."""

    def __call__(
        self, text: str, capabilities: Capabilities, *, size: Callable[[str], int]
    ) -> tuple[str, ...]: ...


class Surface:
    """One account. `is_open` while the platform can be reached."""

    def __init__(self, adapter: Adapter, display: Display, *, clock: Clock) -> None:
        self.adapter = adapter
        self.display = display
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

    def heed(self, error: Transient, address: Address) -> None:
        """Nothing is sent there during a wait that the server has named."""
        if error.retry_after_s:
            held = None if error.code == ACCOUNT_WAIT else address.place
            self.pacer.hold(held, error.retry_after_s)

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

    async def _planned(self, how: Plan, text: str, address: Address) -> tuple[str, ...]:
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
        *,
        clock: Clock,
        display: Callable[[str], Display] = lambda _: Display(),
    ) -> None:
        self._surfaces = {
            name: Surface(adapter, display(name), clock=clock) for name, adapter in adapters.items()
        }

    def __iter__(self) -> Iterator[Surface]:
        return iter(self._surfaces.values())

    def __bool__(self) -> bool:
        return bool(self._surfaces)

    def of(self, address: Address) -> Surface | None:
        return self._surfaces.get(address.adapter)

    def named(self, name: str) -> Surface:
        return self._surfaces[name]
