"""Offers the tools of one configured server, and lets calls use its links.

What a server lists on a new link, before any call, is the list for everybody; so a person's own
process starts with their first call and not before. A list that changes later, because of what a
person has done there, is the list of that link. A turn keeps the tools that it began with.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.ids import PrincipalId
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.servers import ServerState, ToolServerView
from perdure.ports.turns.tools import ToolOffer
from perdure.tools.mcp.link import InputNeeded, ListedPrompt, ServerLink
from perdure.tools.mcp.servers.kept_links import KeptLink, KeptLinks
from perdure.tools.mcp.servers.listing import ServerListing, ServerOffer, asked
from perdure.tools.mcp.servers.reaching import ReachServer
from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings
from perdure.tools.tool import Tool

T = TypeVar("T")


class ToolServer:
    """Implements `ToolSource` and `LinkUser` for one configured server."""

    def __init__(
        self,
        settings: ServerSettings,
        reach: ReachServer,
        *,
        clock: Clock,
        entropy: Entropy,
        timings: ServerTimings,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._timings = timings
        self._links = KeptLinks(
            settings, reach, self._opened, clock=clock, entropy=entropy, timings=timings
        )
        self._listing: ServerListing | None = None
        self._listed_s = 0.0
        self._version = ""
        self._was_slow = False  # a turn has waited for the first list in vain
        self._calls = self._failures = 0

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def may_sample(self) -> bool:
        return self.settings.may_sample

    async def tools(self, principal: PrincipalId) -> Sequence[Tool]:
        listing = await self._current(principal)
        return listing.tools if listing else ()

    async def prompts(self, principal: PrincipalId) -> Sequence[ListedPrompt]:
        """Return the prompts as they are now for this person."""
        listing = await self._current(principal)
        return listing.offer.prompts if listing else ()

    def known_prompts(self) -> Sequence[ListedPrompt]:
        """Return the prompts as far as they are known, without asking anybody."""
        return self._listing.offer.prompts if self._listing else ()

    def offers(self) -> Sequence[ToolOffer]:
        if self._listing is None or self._state() is ServerState.DOWN:
            name, why = f"mcp.{self.name}", self._why()
            return (ToolOffer(name=name, description="", traits=(), trouble=why),)
        return [
            ToolOffer(name=tool.name, description=tool.description, traits=tuple(tool.kinds()))
            for tool in self._listing.tools
        ]

    async def use(
        self,
        principal: PrincipalId,
        act: Callable[[ServerLink], Awaitable[T]],
        *,
        may_repeat: bool,
        call: str = "",
    ) -> T:
        self._calls += bool(call)
        try:
            return await self._tried(principal, act, call, may_repeat=may_repeat)
        except (Transient, Ambiguous, Permanent) as error:
            self._failures += bool(call)
            if isinstance(error, Permanent) and not may_repeat:
                # What has come is no answer, but something may have happened.
                raise Ambiguous(error.message) from error
            raise

    def view(self) -> ToolServerView:
        """Describe the server to operators."""
        state = self._state()
        return ToolServerView(
            name=self.name,
            kind=self.settings.kind,
            state=state,
            is_shared=self.settings.is_shared,
            why="" if state is ServerState.READY else self._why(),
            tools=len(self._listing.tools) if self._listing else 0,
            links=len(self._links.live),
            calls=self._calls,
            failures=self._failures,
            version=self._version,
        )

    def log(self) -> str:
        """Return the end of what the server has said beside its answers."""
        return self._links.log.text

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left of a server that was retired."""
        return self._links.is_over

    def retire(self) -> None:
        """Take no new calls, and end the links as soon as nobody uses them."""
        self._links.retire()

    async def close(self) -> None:
        """End everything, in bounded time."""
        await self._links.close()

    async def _tried(
        self,
        principal: PrincipalId,
        act: Callable[[ServerLink], Awaitable[T]],
        call: str,
        *,
        may_repeat: bool,
    ) -> T:
        """Use the link of a person. If it ends meanwhile, a new one is tried once, unless the
        server may have done already what must not be done twice."""
        try:
            return await self._once(principal, act, call)
        except _LinkLost as lost:
            if isinstance(lost.error, Ambiguous) and not may_repeat:
                raise lost.error from None
        try:
            return await self._once(principal, act, call)
        except _LinkLost as lost:
            raise lost.error from None

    async def _once(
        self, principal: PrincipalId, act: Callable[[ServerLink], Awaitable[T]], call: str
    ) -> T:
        """Use the link of a person once. Raises `_LinkLost` if it has ended meanwhile."""
        kept = await self._links.ready(principal)
        with self._links.lent(kept) as link:
            kept.waiting.pop(call, None)
            try:
                result = await act(link)
            except (Transient, Ambiguous) as error:
                if link.ended:
                    raise _LinkLost(error) from error
                raise
            except Rejected:
                self._links.prove(kept)
                raise
            if isinstance(result, InputNeeded):
                self._links.wait_for_person(kept, call)
        self._links.prove(kept)
        return result

    def _opened(self, link: ServerLink, offer: ServerOffer) -> None:
        """Take over what the server has listed on a link. An equal list keeps its tools, so that
        nothing changes for a model."""
        self._version = ", ".join(filter(None, (link.server, f"MCP {link.version}")))
        self._was_slow = False
        self._listed_s = self._clock.monotonic_s()
        if self._listing is None or self._listing.offer != offer:
            self._listing = self._listing_of(offer)

    def _listing_of(self, offer: ServerOffer) -> ServerListing:
        return ServerListing(self, self.settings, offer, log=self._links.log)

    async def _current(self, principal: PrincipalId) -> ServerListing | None:
        """Return the list for a person. It is waited for only as long as a turn can wait."""
        # A failure costs the server's tools, or what has changed of them.
        with suppress(PerdureError, TimeoutError):
            await self._refresh(principal)
        kept = self._links.of(principal)
        return (kept.listing if kept else None) or self._listing

    async def _refresh(self, principal: PrincipalId) -> None:
        """Ask the server for its list, if there is a reason to."""
        kept = self._links.of(principal)
        if kept is not None and kept.is_live:
            if kept.has_changed:
                async with time_limit(self._timings.again_wait_s):
                    await self._list_again(kept)
            return
        is_lost = kept is not None and kept.link is not None
        is_old = self._clock.monotonic_s() - self._listed_s > self._timings.listed_s
        if self._listing is not None and not is_lost and not (is_old and not self._links.live):
            return
        is_new = self._listing is None and not self._links.trouble.failures
        is_patient = is_new and not self._was_slow
        wait_s = self._timings.first_wait_s if is_patient else self._timings.again_wait_s
        try:
            async with time_limit(wait_s):
                # The list of anybody's new link is the list for everybody.
                if not await self._links.made():
                    await self._links.ready(principal)
        except TimeoutError:
            self._was_slow = True
            raise

    async def _list_again(self, kept: KeptLink) -> None:
        """Ask for a list that has changed. The mark goes first: the list may change once more while
        it is on its way."""
        kept.has_changed = False
        with self._links.lent(kept) as link:
            try:
                offer = await asked(link)
            except BaseException:
                kept.has_changed = True
                raise
        if self.settings.is_shared:
            self._opened(link, offer)
        elif kept.listing is None or kept.listing.offer != offer:
            kept.listing = self._listing_of(offer)

    def _state(self) -> ServerState:
        if self._links.live:
            return ServerState.READY
        if self._links.is_making:
            return ServerState.STARTING
        if self._links.trouble.failures:
            return ServerState.DOWN
        return ServerState.NOT_STARTED if self._listing is None else ServerState.READY

    def _why(self) -> str:
        """Return why the server cannot be used now, or not yet."""
        match self._state():
            case ServerState.READY:
                return ""
            case ServerState.STARTING:
                return "it is being started"
            case ServerState.DOWN:
                return f"it is down: {self._links.trouble.words(self._clock.monotonic_s())}"
            case ServerState.NOT_STARTED:
                return "not started yet: it starts with the first message that needs it"


class _LinkLost(Exception):
    """Says that a link ended under a call."""

    def __init__(self, error: Transient | Ambiguous) -> None:
        super().__init__(error.message)
        self.error = error
