"""One platform on a test's bench: the adapter under test, its people, and a look at what they see.

The author of an adapter writes a case for it, and the suite in `adapter_suite` asks of that case
what the ports promise. A case speaks in the words of the ports alone: external ids, addresses and
receipts are those that the adapter itself gives. What a platform has not, or what the server that
stands for it cannot show, a case says by raising `NotHere`, and the test that needs it is skipped
by that name.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, Never, TypeVar
from unittest import SkipTest

import msgspec

from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading, HookRequest, Platform
from perdure.ports.system.clock import Clock

WAIT_S: Final = 10.0
LOOK_S: Final = 0.01
_DESCRIPTORS: Final = Path("/dev/fd")
# Characters that only break up what would mean something.
_UNSEEN: Final = dict.fromkeys(map(ord, "\u200b\u2060"))
T = TypeVar("T")


class PlatformCall(StrEnum):
    """What is asked of a platform, as far as it may refuse it. GROW is a preview in a bubble that
    stands already."""

    POST = "post"
    EDIT = "edit"
    DELETE = "delete"
    UPLOAD = "upload"
    REACT = "react"
    PREVIEW = "preview"
    GROW = "grow"
    TYPING = "typing"
    FIND = "find"
    CONNECT = "connect"


class NotHere(SkipTest):
    """The platform has no such thing, or its test server cannot show it. Say which, and why."""


async def opened(arrival: Arrival, reading: ArrivalReading | None) -> list[Arrival]:
    """Read what an inlet was handed, as for somebody who may speak. Returns the whole arrival, or
    nothing where nobody has said anything."""
    whole = arrival if reading is None else await reading.whole()
    return [] if whole is None else [whole]


class Unguarded:
    """The half of the `Inlet` port for processes that follow on no death: everything may be
    read."""

    @asynccontextmanager
    async def handling(self, external_id: str, payload: bytes) -> AsyncIterator[bool]:
        yield True


class _RecordingInlet(Unguarded):
    """The `Inlet` port: keeps what it is given, each id once, as the gateway does.

    `offered` is everything, repeats included, as it was before it was read. The `failures` are
    raised first, one at each offer; while there is an `outage`, it is raised at every offer.
    `spoilt` is what no arrival could be made of, as it came. What one of the `strangers` sends is
    neither read nor taken.
    """

    def __init__(self) -> None:
        self.taken: list[Arrival] = []
        self.offered: list[Arrival] = []
        self.spoilt: dict[str, str] = {}
        self.failures: list[PerdureError] = []
        self.outage: PerdureError | None = None
        self.strangers: frozenset[str] = frozenset()
        self.signs_of_life = 0
        self._changed = asyncio.Condition()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        async with self._changed:
            self.offered.append(arrival)
            self._changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            if self.outage is not None:
                raise self.outage
            if arrival.sender.id in self.strangers:
                return
            if all(_identity(each) != _identity(arrival) for each in self.taken):
                self.taken += await opened(arrival, reading)

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.spoilt[external_id] = payload

    def alive(self) -> None:
        self.signs_of_life += 1

    async def wait(self, accept: Callable[[Arrival], bool], what: str) -> Arrival:
        """The first arrival that is accepted, which may have come already."""

        def found() -> Arrival | None:
            return next(filter(accept, self.taken), None)

        try:
            async with asyncio.timeout(WAIT_S), self._changed:
                await self._changed.wait_for(lambda: found() is not None)
        except TimeoutError:
            raise AssertionError(
                f"{what} did not arrive in {WAIT_S:g} s; this is all that did: {self.taken}"
            ) from None
        arrival = found()
        assert arrival is not None
        return arrival

    async def named(self, external_id: str, *, kind: str = "message") -> Arrival:
        return await self.wait(
            lambda arrival: (arrival.external_id, arrival.kind) == (external_id, kind),
            f"the {kind} {external_id}",
        )

    def times_offered(self, external_id: str) -> int:
        return sum(arrival.external_id == external_id for arrival in self.offered)


def _identity(arrival: Arrival) -> tuple[str, str]:
    return arrival.external_id, arrival.kind


class AdapterCase:
    """What the suite knows of a platform. Every verb that is not overridden is `NotHere`.

    `person` is the stable id of someone who writes, `stranger` that of another; `torture` may hold
    a text that is harder to render than the suite's own. Where the test server, unlike the
    platform, offers nothing twice, `redelivers` is false.
    """

    person: str = ""
    stranger: str = ""
    torture: str = ""
    redelivers: bool = True

    def __init__(self, platform: Platform, *, clock: Clock) -> None:
        self.platform = platform
        self.clock = clock
        self.heard = _RecordingInlet()
        self.account = ""
        self.lost = 0
        self._is_hearing = False
        self.was_open = Opened(0, 0)

    async def private(self, *, is_stranger: bool = False) -> Address:
        """Where `person` and the bot talk alone, or `stranger` and the bot."""
        self._has_no("private chats")

    async def group(self) -> Address:
        """Where others read along; with a thread, if answers there always stand in one."""
        self._has_no("groups")

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        """`person` writes to the bot in private, or `stranger` in a private place of their own:
        the external id that the message arrives with."""
        self._has_no("private messages")

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        """Someone writes in the group, to the bot by its name or to nobody in particular."""
        self._has_no("group messages")

    async def forward(self, text: str) -> str:
        """`person` passes on to the bot, in private, what `stranger` has written elsewhere."""
        self._has_no("forwards")

    async def forward_to_group(self, text: str) -> str:
        """`person` passes on to the group what `stranger` has written elsewhere to the bot, by its
        name."""
        self._has_no("forwards")

    async def answered_at(self, external_id: str) -> Address:
        """Where a message of the group is to be answered, if not just there."""
        return await self.group()

    async def edit(self, external_id: str, text: str) -> None:
        """`person` changes a private message of theirs."""
        self._has_no("edits by people")

    async def delete(self, external_id: str) -> None:
        """`person` deletes a private message of theirs."""
        self._has_no("deletions by people")

    async def send_file(self, name: str, data: bytes) -> str:
        """`person` sends a file in private."""
        self._has_no("files of people")

    async def send_sticker(self, data: bytes) -> str:
        """`person` sends a sticker in private, always the same one, whose picture is a PNG."""
        self._has_no("stickers")

    async def click(self, receipt: str, choice: str) -> None:
        """`person` presses a button under the bot's message in private."""
        self._has_no("buttons")

    async def garble(self) -> None:
        """Something comes from the platform that no arrival can be made of."""
        self._has_no("way to send what cannot be read")

    async def shown(self, address: Address | None = None) -> list[str]:
        """What the bot shows there now, oldest first: in private, unless told otherwise."""
        self._has_no("way to see what is shown")

    async def files(self) -> list[bytes]:
        """The files that the bot has sent in private."""
        self._has_no("way to see files")

    async def marks(self, external_id: str) -> list[str]:
        """The bot's marks on a private message."""
        self._has_no("way to see marks")

    async def pings(self) -> list[str]:
        """Whom the bot's private messages would have notified by name or as a group, in the
        platform's own words."""
        self._has_no("way to see who is notified")

    def lookups(self) -> list[str]:
        """The calls by which the adapter has asked the platform for more than what came, such as
        the names of people; none where it has no such calls."""
        return []

    def keeps_keys(self) -> None:
        """Raise `NotHere` where the platform can be asked for a key and its test server cannot."""

    def forged(self) -> HookRequest:
        """A request to the hook that the platform did not sign."""
        self._has_no("hooks")

    def hooked(self, text: str) -> HookRequest:
        """A request to the hook by which the platform brings a private message of `person`."""
        self._has_no("messages that come to a hook")

    def impostor(self) -> Platform:
        """The same platform with credentials that are wrong."""
        self._has_no("credentials")

    def anew(self) -> Platform:
        """The same platform as the next process makes it: from the same settings and folder."""
        self._has_no("second process")

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        """The platform answers the next request that is made for `call` with a wait of so many
        seconds."""
        self._has_no("waits that a test could ask for")

    def fail_next(self, call: PlatformCall) -> None:
        """The platform is out of order when the next request is made for `call`."""
        self._has_no("failures that a test could ask for")

    async def lose_thread(self) -> Address:
        """A thread of the group is deleted: its address."""
        self._has_no("threads that can be gone")

    def refuse_rendering(self) -> None:
        """The platform refuses how the next post, preview or edit is written, and takes it as plain
        text."""
        self._has_no("renderings that are refused")

    def legible(self, shown: str) -> str:
        """The letters that people see of a text that is shown as it was written, without what
        nobody sees."""
        return shown.translate(_UNSEEN)

    async def migrate(self, *, keeps_messages: bool) -> Address:
        """The group becomes another one, to which what stood in it comes along or not: where that
        is. `group` still names the old one, as the gateway does."""
        self._has_no("groups that move")

    async def quiet_week(self) -> None:
        """So much time passes without a word that the platform counts what happens anew."""
        self._has_no("counting that begins anew")

    async def ready(self) -> None:
        """Return once what people do reaches the adapter."""
        await self.until(lambda: self.heard.signs_of_life > 0, "the first sign of life")

    def _has_no(self, what: str) -> Never:
        raise NotHere(f"{self.platform.name}: no {what}")

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        async def look() -> bool:
            return is_so()

        await self.until_seen(look, bool, what)

    async def until_seen(
        self, look: Callable[[], Awaitable[T]], accept: Callable[[T], bool], what: str
    ) -> T:
        """Look again and again; fail with what was last seen."""
        seen = await look()
        try:
            async with asyncio.timeout(WAIT_S):
                while not accept(seen):
                    await self.clock.sleep(LOOK_S)
                    seen = await look()
        except TimeoutError:
            raise AssertionError(
                f"waited {WAIT_S:g} s for {what}; this was seen last: {seen}"
            ) from None
        return seen

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """For the author's fixture: connect before the test, close after it."""
        self.was_open = Opened.now()
        self.account = await self.platform.connect()
        try:
            yield
        finally:
            await self.platform.close()

    async def restart(self, successor: Platform) -> None:
        """The process ends, and another one takes its place."""
        await self.platform.close()
        self.platform = successor
        self.heard.signs_of_life = 0
        assert await self.platform.connect() == self.account

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[_RecordingInlet]:
        """What people do is heard until the block ends; as in the gateway, a connection that is
        lost is made again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._is_hearing = True
                receiving = tasks.create_task(self._receive())
                await self.ready()
                yield self.heard
                self._is_hearing = False
                receiving.cancel()
        except BaseExceptionGroup as group:
            # The test's own failure, or the adapter's: one is enough to know.
            raise group.exceptions[0] from None

    async def _receive(self) -> None:
        while True:
            try:
                await self.platform.receive(self.heard)
            except (Transient, Ambiguous):
                self.lost += 1
                if not self._is_hearing:
                    return  # as in the gateway: the loss has swallowed the cancellation
                await self.clock.sleep(LOOK_S)
                await self.platform.connect()


class Opened(msgspec.Struct, frozen=True):
    """What this process holds open: sockets, and tasks of the running loop."""

    sockets: int
    tasks: int

    @classmethod
    def now(cls) -> "Opened":
        sockets = sum(_is_socket(int(entry.name)) for entry in _DESCRIPTORS.iterdir())
        tasks = [task for task in asyncio.all_tasks() if not _is_serving(task)]
        return cls(sockets, len(tasks))

    def has_all_of(self, other: "Opened") -> bool:
        return other.sockets <= self.sockets and other.tasks <= self.tasks


def _is_serving(task: "asyncio.Task[object]") -> bool:
    """Whether this is aiohttp's for one client of a server in this process: it may not have seen
    yet that the client is gone."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("RequestHandler.")


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:  # the listing's own, gone by now
        return False
