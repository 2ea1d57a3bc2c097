"""Keeps the links to one server: one that all people share, or one for each person.

A link is made when somebody needs it, and only one at a time while the server is in trouble. Making
it is a task of its own: whoever waits for it may give up, and the next one finds it made. A link
that nobody has used for long is closed by a timer; nothing here polls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from perdure.domain.errors import PerdureError, Permanent, Transient
from perdure.domain.ids import PrincipalId
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.system.time_limits import time_limit
from perdure.tools.mcp.link import LinkTerms, ServerLink
from perdure.tools.mcp.server_log import ServerLog
from perdure.tools.mcp.servers.listing import ServerListing, ServerOffer, asked
from perdure.tools.mcp.servers.reaching import ReachServer, without_secrets
from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings
from perdure.tools.mcp.servers.trouble import ServerTrouble

SHARED: Final = PrincipalId("")
log = structlog.get_logger("tool servers")


class KeptLink:
    """Holds the link of one person, or that of all. `waiting` are the calls that wait for a person,
    with when they are given up. `listing` is the link's own list, if it has changed since it was
    made."""

    def __init__(self, person: PrincipalId, trouble: ServerTrouble) -> None:
        self.person = person
        self.trouble = trouble
        self.link: ServerLink | None = None
        self.making: asyncio.Future[PerdureError | None] | None = None
        self.users = 0
        self.waiting: dict[str, float] = {}
        self.begun_s = self.used_s = 0.0
        self.is_proven = False
        self.has_changed = False
        self.listing: ServerListing | None = None

    @property
    def is_live(self) -> bool:
        return self.link is not None and not self.link.ended

    def is_busy(self, now_s: float) -> bool:
        """Tell whether the link must stay: somebody uses it, or a call waits for a person."""
        waits = any(until_s > now_s for until_s in self.waiting.values())
        return bool(self.users) or waits or self.making is not None


class KeptLinks:
    """Owns the links to one server. `opened` is given what the server has listed
    on each new link."""

    def __init__(
        self,
        settings: ServerSettings,
        reach: ReachServer,
        opened: Callable[[ServerLink, ServerOffer], None],
        *,
        clock: Clock,
        entropy: Entropy,
        timings: ServerTimings,
    ) -> None:
        self._settings = settings
        self._reach = reach
        self._opened = opened
        self._clock = clock
        self._entropy = entropy
        self._timings = timings
        self._by_person: dict[PrincipalId, KeptLink] = {}
        self._gates = asyncio.Semaphore(timings.connects_max)
        self._tasks: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self.trouble = self._no_trouble()
        self.log = ServerLog()

    @property
    def live(self) -> list[KeptLink]:
        """Return the links that can be used."""
        return [kept for kept in self._by_person.values() if kept.is_live]

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is left of a server that was retired."""
        return self._is_over and not self._by_person and not self._tasks

    @property
    def is_making(self) -> bool:
        return any(kept.making for kept in self._by_person.values())

    def of(self, person: PrincipalId) -> KeptLink | None:
        """Return what is kept for a person, if there is anything."""
        return self._by_person.get(self._key(person))

    async def ready(self, person: PrincipalId) -> KeptLink:
        """Return what is kept for a person with a link that lives, and make the link if need be.
        Raises `Transient` if there is none now."""
        key = self._key(person)
        kept = self._by_person.get(key) or self._new_link(key)
        if kept.link is not None and kept.link.ended:
            self._lost(kept, kept.link)
        if kept.link is None:
            if kept.making is None:
                self._check_trouble(kept)
                # The link is everybody's who waits for it, so it is made by nobody's task.
                kept.making = asyncio.ensure_future(self._make(kept))  # noqa: TID251 - `close` ends it
            await self._made(kept.making)
            if kept.link is None:
                raise Transient(self._down("it was ended before it could be used"))
        return kept

    async def made(self) -> bool:
        """Wait for a link that is being made for anybody. Returns False if there is none. Raises
        `Transient` if it cannot be made."""
        making = next((kept.making for kept in self._by_person.values() if kept.making), None)
        if making is not None:
            await self._made(making)
        return making is not None

    async def _made(self, making: "asyncio.Future[PerdureError | None]") -> None:
        await asyncio.wait({making})
        problem = None if making.cancelled() else making.result()
        if making.cancelled() or problem is not None:
            raise Transient(self._down(problem.message if problem else "it was ended"))

    @contextmanager
    def lent(self, kept: KeptLink) -> Iterator[ServerLink]:
        """Yield a link that is ready. It is not closed meanwhile."""
        assert kept.link is not None
        kept.users += 1
        try:
            yield kept.link
        finally:
            kept.users -= 1
            kept.used_s = self._clock.monotonic_s()
            self._look_later()

    def prove(self, kept: KeptLink) -> None:
        """Note that the server has answered on this link."""
        kept.is_proven = True
        kept.trouble.end()

    def wait_for_person(self, kept: KeptLink, call: str) -> None:
        """Keep the link of a call that waits for a person."""
        kept.waiting[call] = self._clock.monotonic_s() + self._timings.waits_s

    def retire(self) -> None:
        """Make no more links, and close each once nobody uses it. Calls that wait for a person are
        given up: the server that they wait at is not configured any more."""
        self._is_over = True
        for kept in self._by_person.values():
            kept.waiting.clear()
        self._look()

    async def close(self) -> None:
        """End everything, in bounded time."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        makings = [kept.making for kept in self._by_person.values() if kept.making]
        for making in makings:
            making.cancel()
        if makings:
            await asyncio.wait(makings, timeout=self._timings.close_s)
        for kept in tuple(self._by_person.values()):
            self._drop(kept)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._timings.close_s)

    def _key(self, person: PrincipalId) -> PrincipalId:
        return SHARED if self._settings.is_shared else person

    def _no_trouble(self) -> ServerTrouble:
        rest_s, most_s = self._timings.rest_s, self._timings.rest_max_s
        return ServerTrouble(self._entropy, rest_s=rest_s, rest_max_s=most_s)

    def _new_link(self, key: PrincipalId) -> KeptLink:
        """Make room for one more link by closing the idle one that was not used for the longest
        time. Raises `Transient` if all are busy."""
        now_s = self._clock.monotonic_s()
        if self._is_over:
            raise Transient(
                f"the tool server {self._settings.name} was changed or removed in the "
                "configuration; what it offers now is there with the next message"
            )
        if len(self._by_person) >= self._timings.links_max:
            idle = [each for each in self._by_person.values() if not each.is_busy(now_s)]
            if not idle:
                raise Transient(f"too many people use the tool server {self._settings.name} now")
            self._drop(min(idle, key=lambda each: each.used_s))
        kept = self._by_person[key] = KeptLink(key, self._no_trouble())
        return kept

    def _check_trouble(self, kept: KeptLink) -> None:
        """Raise `Transient` while the server is left alone after failures. When that is over, one
        link tries it for all."""
        now_s = self._clock.monotonic_s()
        trouble = self.trouble if self.trouble.failures else kept.trouble
        is_tried = bool(self.trouble.failures) and self.is_making
        if self._is_over or is_tried or trouble.left_s(now_s):
            raise Transient(self._down(trouble.words(now_s) or "it is being ended"))

    def _down(self, why: str) -> str:
        return f"the tool server {self._settings.name} cannot be used now: {why}"

    async def _make(self, kept: KeptLink) -> PerdureError | None:
        """Make a link. Returns why there is none."""
        problem: PerdureError | None = None
        try:
            async with self._gates:
                await self._open(kept)
        except PerdureError as error:
            problem = error
        except Exception as error:
            log.exception("a tool server could not be reached", server=self._settings.name)
            problem = Permanent(f"it could not be reached ({type(error).__name__})")
        finally:
            kept.making = None
        now_s = self._clock.monotonic_s()
        if problem is None:
            self.trouble.end()
        else:
            self._failed(self.trouble, problem.message, now_s)
        kept.used_s = now_s
        self._look_later()
        return problem

    async def _open(self, kept: KeptLink) -> None:
        """Connect to the server and ask what it offers. Only then it counts as reached."""
        terms = LinkTerms(
            connect_s=self._timings.connect_s,
            answer_s=self._timings.answer_s,
            waits_s=self._timings.waits_s,
            on_change=lambda: setattr(kept, "has_changed", True),
            log=self.log,
            is_of_one=not self._settings.is_shared,
            can_sample=self._settings.may_sample,
        )
        link = await self._reach(self._settings, person=kept.person, terms=terms)
        try:
            offer = await asked(link)
        except BaseException:
            self._close_soon(link)
            raise
        kept.link, kept.listing = link, None
        kept.begun_s = self._clock.monotonic_s()
        kept.is_proven = kept.has_changed = False
        self._opened(link, offer)

    def _lost(self, kept: KeptLink, link: ServerLink) -> None:
        """Note that a link has ended by itself. One that ended soon, before it was of any use,
        counts as a failure: a server that dies with each call must not be started without end."""
        now_s = self._clock.monotonic_s()
        log.info("the link to a tool server ended", server=self._settings.name, why=link.ended)
        if not kept.is_proven and now_s - kept.begun_s < self._timings.steady_s:
            self._failed(kept.trouble, f"it {link.ended}", now_s)
        kept.link = kept.listing = None
        kept.waiting.clear()
        self._close_soon(link)

    def _failed(self, trouble: ServerTrouble, why: str, now_s: float) -> None:
        # Everybody may read why a server does not work.
        why = without_secrets(why, self._settings)
        trouble.fail(why, now_s=now_s)
        if trouble.failures == 1:
            log.warning("a tool server is in trouble", server=self._settings.name, why=why)

    def _drop(self, kept: KeptLink) -> None:
        """Forget a link, and close it."""
        self._by_person.pop(kept.person, None)
        if kept.link is not None:
            self._close_soon(kept.link)
            kept.link = None

    def _close_soon(self, link: ServerLink) -> None:
        self._begin(link.close())

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Run work beside everything else."""
        task = asyncio.ensure_future(work)  # noqa: TID251 - `close` waits for it
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a link was not closed well", server=self._settings.name, why=repr(error))

    def _look_later(self) -> None:
        """Look at the idle links when the first of them is due."""
        if self._is_over:
            self._look()
        elif self._timer is None and self._by_person and self._rest_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._rest_s, self._look)

    @property
    def _rest_s(self) -> float:
        """Return how long a link may be idle; 0 is for ever."""
        if self._settings.is_shared:
            return self._timings.ping_s if self._settings.url else 0
        return self._timings.idle_s

    def _look(self) -> None:
        """Close the links that were idle for long, or test the link that all people share."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        idle = [kept for kept in self._by_person.values() if not kept.is_busy(now_s)]
        for kept in idle:
            if self._is_over:
                self._drop(kept)
            elif now_s - kept.used_s >= self._rest_s:
                self._rest(kept)
        if not self._is_over:
            self._look_later()

    def _rest(self, kept: KeptLink) -> None:
        if not self._settings.is_shared:
            self._drop(kept)
        elif kept.is_live:
            self._begin(self._tested(kept))

    async def _tested(self, kept: KeptLink) -> None:
        """Ask an idle server whether it still answers, and let go of a link that is dead."""
        with self.lent(kept) as link:
            try:
                async with time_limit(self._timings.answer_s):
                    await link.ping()
            except (PerdureError, TimeoutError) as error:
                log.info("an idle link is dead", server=self._settings.name, why=str(error))
                if kept.link is link:
                    kept.link = kept.listing = None
                    self._close_soon(link)
