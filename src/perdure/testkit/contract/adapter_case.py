"""Defines `AdapterCase`: a platform under test, with its people and with what they see.

The author of an adapter writes a case for it, and the suite in `adapter_suite` checks with that
case what the ports promise. A case uses only the words of the ports: its external ids, addresses
and receipts are those that the adapter itself gives. A case raises `NotHere` for what the platform
does not have, and for what its test server cannot show; the test that needs it is then skipped with
that reason.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading, HookRequest, Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.contract.group_case import GroupCase

WAIT_S: Final = 10.0
LOOK_S: Final = 0.01
_DESCRIPTORS: Final = Path("/dev/fd")
# Invisible characters that adapters put into a word so that the platform does not interpret it.
_UNSEEN: Final = dict.fromkeys(map(ord, "\u200b\u2060"))
T = TypeVar("T")


class PlatformCall(StrEnum):
    """Lists what a platform can be asked for and may refuse. GROW is a preview in a bubble that is
    already shown."""

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


async def opened(arrival: Arrival, reading: ArrivalReading | None) -> list[Arrival]:
    """Read what an inlet was handed, as for a sender who may speak. Returns a list with the whole
    arrival, or an empty list where nobody has said anything."""
    whole = arrival if reading is None else await reading.whole()
    return [] if whole is None else [whole]


class Unguarded:
    """Implements the part of the `Inlet` port that refuses to read what earlier processes died
    over. Here no process died before, so everything may be read."""

    @asynccontextmanager
    async def handling(self, external_id: str, payload: bytes) -> AsyncIterator[bool]:
        """Allow the update to be read."""
        yield True


class _RecordingInlet(Unguarded):
    """Implements the `Inlet` port: keeps each arrival once, by its id and kind, as the gateway
    does.

    `offered` holds every offer, also repeated ones, as it was before it was read. Each of the
    `failures` is raised once, at the next offer; an `outage` is raised at every offer while it is
    set. `spoilt` holds what no arrival could be made of, as it came. What one of the `strangers`
    sends is neither read nor taken.
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
        """Record an offer, and keep the arrival if it is new and its sender may speak."""
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
        """Keep what could not be read, under its external id."""
        if self.failures:
            raise self.failures.pop(0)
        self.spoilt[external_id] = payload

    def alive(self) -> None:
        """Count a sign of life of the connection."""
        self.signs_of_life += 1

    async def wait(self, accept: Callable[[Arrival], bool], what: str) -> Arrival:
        """Return the first arrival that is accepted. It may have come already. Fails after
        `WAIT_S`."""

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
        """Wait for the arrival with this external id and kind."""
        return await self.wait(
            lambda arrival: (arrival.external_id, arrival.kind) == (external_id, kind),
            f"the {kind} {external_id}",
        )

    def times_offered(self, external_id: str) -> int:
        """Count the offers of an arrival, repeated ones included."""
        return sum(arrival.external_id == external_id for arrival in self.offered)


def _identity(arrival: Arrival) -> tuple[str, str]:
    """Return what makes an arrival the same as another one."""
    return arrival.external_id, arrival.kind


class AdapterCase(GroupCase):
    """Describes a platform to the suite: its people, its places, and what can be made to fail.
    Every method that a case does not override raises `NotHere`.

    `person` is the stable id of someone who writes, and `stranger` that of someone else. `torture`
    may hold a text that is harder to render than the suite's own. `redelivers` is false where the
    test server, unlike the platform, offers nothing twice.
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
        """Return where `person` and the bot talk alone, or `stranger` and the bot."""
        self.has_no("private chats")

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        """Let `person` write to the bot in private, or `stranger` in a private place of their own.
        Returns the external id that the message arrives with."""
        self.has_no("private messages")

    async def forward(self, text: str) -> str:
        """Let `person` forward to the bot, in private, what `stranger` has written elsewhere.
        Returns the external id."""
        self.has_no("forwards")

    async def edit(self, external_id: str, text: str) -> None:
        """Let `person` change one of their private messages."""
        self.has_no("edits by people")

    async def delete(self, external_id: str) -> None:
        """Let `person` delete one of their private messages."""
        self.has_no("deletions by people")

    async def send_file(self, name: str, data: bytes) -> str:
        """Let `person` send a file in private. Returns the external id."""
        self.has_no("files of people")

    async def send_sticker(self, data: bytes) -> str:
        """Let `person` send a sticker in private: always the same one, whose picture is a PNG.
        Returns the external id."""
        self.has_no("stickers")

    async def reply(self, receipt: str, text: str) -> str:
        """Let `person` answer a message of the bot in private, in the way that the platform has for
        it. Returns the external id."""
        self.has_no("replies to a message")

    async def click(self, receipt: str, choice: str) -> None:
        """Let `person` press a button under the bot's message in private, by its word."""
        self.has_no("buttons")

    async def press(self, receipt: str, number: int) -> None:
        """Let `person` press a button under the bot's message in private, by its number from 0."""
        self.has_no("buttons")

    async def forge(self, receipt: str, data: str) -> None:
        """Let `person` press a button that the bot's message in private does not have. `data`
        stands where the adapter puts what names the question and the choice."""
        self.has_no("presses that can be forged")

    async def buttons(self, receipt: str) -> list[str]:
        """Return the labels of the buttons under the bot's message in private now."""
        self.has_no("way to see buttons")

    async def garble(self) -> None:
        """Let the platform send something that no arrival can be made of."""
        self.has_no("way to send what cannot be read")

    async def shown(self, address: Address | None = None) -> list[str]:
        """Return the texts that the bot shows at an address now, oldest first. Without an address,
        those of the private place."""
        self.has_no("way to see what is shown")

    async def files(self) -> list[bytes]:
        """Return the files that the bot has sent in private."""
        self.has_no("way to see files")

    async def marks(self, external_id: str) -> list[str]:
        """Return the bot's marks on a private message."""
        self.has_no("way to see marks")

    async def pings(self) -> list[str]:
        """Return whom the bot's private messages would have notified, by name or as a group, in the
        platform's own words."""
        self.has_no("way to see who is notified")

    def lookups(self) -> list[str]:
        """Return the calls by which the adapter has asked the platform for more than what came,
        such as the names of people. The list is empty where an adapter has no such calls."""
        return []

    def keeps_keys(self) -> None:
        """Raise `NotHere` if the platform can find a part by its key and its test server cannot."""

    def forged(self) -> HookRequest:
        """Return a request to the hook that the platform did not sign."""
        self.has_no("hooks")

    def hooked(self, text: str) -> HookRequest:
        """Return a request to the hook by which the platform brings a private message of
        `person`."""
        self.has_no("messages that come to a hook")

    def impostor(self) -> Platform:
        """Return the same platform with wrong credentials."""
        self.has_no("credentials")

    def anew(self) -> Platform:
        """Return the same platform as the next process makes it: from the same settings and
        folder."""
        self.has_no("second process")

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        """Make the platform answer the next request for `call` with a wait of so many seconds."""
        self.has_no("waits that a test could ask for")

    def fail_next(self, call: PlatformCall) -> None:
        """Make the platform fail at the next request for `call`."""
        self.has_no("failures that a test could ask for")

    async def lose_thread(self) -> Address:
        """Delete a thread of the group, and return its address."""
        self.has_no("threads that can be gone")

    def refuse_rendering(self) -> None:
        """Make the platform refuse the formatting of the next post, preview or edit, and take the
        same text as plain text."""
        self.has_no("renderings that are refused")

    def legible(self, shown: str) -> str:
        """Return the letters that people see of a text that is shown without formatting."""
        return shown.translate(_UNSEEN)

    async def quiet_week(self) -> None:
        """Let so much time pass without an update that the platform restarts its numbering of
        updates."""
        self.has_no("counting that begins anew")

    async def ready(self) -> None:
        """Return once what people do reaches the adapter."""
        await self.until(lambda: self.heard.signs_of_life > 0, "the first sign of life")

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail after `WAIT_S`."""

        async def look() -> bool:
            return is_so()

        await self.until_seen(look, bool, what)

    async def until_seen(
        self, look: Callable[[], Awaitable[T]], accept: Callable[[T], bool], what: str
    ) -> T:
        """Look again and again until what is seen is accepted, and return it. Fails after `WAIT_S`
        with what was seen last."""
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
        """Connect before the test and close after it. The author's fixture uses this."""
        self.was_open = Opened.now()
        self.account = await self.platform.connect()
        try:
            yield
        finally:
            await self.platform.close()

    async def restart(self, successor: Platform) -> None:
        """Close the platform and connect its successor, as when a process ends and another one
        takes its place."""
        await self.platform.close()
        self.platform = successor
        self.heard.signs_of_life = 0
        assert await self.platform.connect() == self.account

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[_RecordingInlet]:
        """Receive what people do until the block ends. A lost connection is made again, as in the
        gateway."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._is_hearing = True
                receiving = tasks.create_task(self._receive())
                await self.ready()
                yield self.heard
                self._is_hearing = False
                receiving.cancel()
        except BaseExceptionGroup as group:
            # The group may hold the test's failure and the adapter's. The first one is easier to
            # read without the group around it.
            raise group.exceptions[0] from None

    async def _receive(self) -> None:
        while True:
            try:
                await self.platform.receive(self.heard)
            except (Transient, Ambiguous):
                self.lost += 1
                if not self._is_hearing:
                    # The block has ended. The adapter has turned the cancellation into a lost
                    # connection, so without this check the task would connect again.
                    return
                await self.clock.sleep(LOOK_S)
                await self.platform.connect()


class Opened(msgspec.Struct, frozen=True):
    """Counts what this process holds open: sockets, and tasks of the running loop."""

    sockets: int
    tasks: int

    @classmethod
    def now(cls) -> "Opened":
        """Count what is open now."""
        sockets = sum(_is_socket(int(entry.name)) for entry in _DESCRIPTORS.iterdir())
        tasks = [task for task in asyncio.all_tasks() if not _is_serving(task)]
        return cls(sockets, len(tasks))

    def has_all_of(self, other: "Opened") -> bool:
        """Tell whether `other` holds no more open than this one."""
        return other.sockets <= self.sockets and other.tasks <= self.tasks


def _is_serving(task: "asyncio.Task[object]") -> bool:
    """Tell whether a task is aiohttp's handler for one client of a server in this process. It does
    not count: the server may not have noticed yet that the client is gone."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("RequestHandler.")


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:  # the listing's own descriptor, which is closed by now
        return False
