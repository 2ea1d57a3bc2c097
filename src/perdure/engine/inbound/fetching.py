"""Fetches the files of waiting turns, and reads what they say.

A message is accepted with references to its files only, so that its platform is not kept waiting;
instead its turn waits, and later messages wait behind it. A file's bytes are durable before its row
says so. If the process dies in between, the next owner fetches the file again, which shows nobody
anything twice. A file that cannot be fetched is given up after a while, and the people and the
model are told. `engine/inbound/file_waits.py` limits how long a turn waits, whatever the platform
or the reader does.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec
import structlog

from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    PerdureError,
    Permanent,
    Rejected,
    Transient,
)
from perdure.domain.ids import MediaId
from perdure.domain.journal.attachments import PICTURES, name_of
from perdure.domain.journal.events import Recorded
from perdure.domain.people.sharing import FairShares
from perdure.domain.reading.kinds import HEAD_BYTES, is_readable, kind_of
from perdure.domain.reading.pictures import is_picture
from perdure.engine.delivery.typing import Typing
from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.file_waits import LOOK_S, FileWaits
from perdure.engine.watching.feed import Feed
from perdure.ports.records.media import (
    FOR_SENDER,
    NOT_WRITABLE,
    UNREACHABLE,
    Fetch,
    FetchedFile,
    Fetcher,
    Fetches,
    FileSource,
    FittedPicture,
    MediaLibrary,
    ReadsFiles,
)
from perdure.ports.records.stickers import Stickers
from perdure.ports.system.clock import Clock
from perdure.ports.system.slots import Slots
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.wakes import Topic

# Fetching a file takes a connection and a little memory. While a file is read, it may be in memory
# as a whole, beside the program that reads it, so only few are read at once. One person gets at
# most a quarter of each, because a fetch may hang.
TAKE_MAX: Final = 32
TAKE_MOST: Final = 8
READ_MAX: Final = 8
READ_MOST: Final = 2
ATTEMPTS_MAX: Final = 5
# A file at a web address where nobody answers is given up after this time: its sender waits for a
# reply.
UNREACHABLE_S: Final = 10
FETCH_S: Final = 120
# The pauses between two tries. All tries fit into the minute for which a turn waits, unless the
# platform names longer waits.
BACKOFF_S: Final = (1, 5, 15, 20)
# The adapter's name in a fetch that needs no platform.
HERE: Final = ""
# The platform's own reason is written to the log only.
_NOT_GIVEN: Final = "the platform did not give it out; send it again"
_NOT_STORED: Final = "this gateway cannot store files now; tell its operator, then send it again"
# If a sticker's picture does not come within this time, the turn is told of it without words.
STICKER_S: Final = 15
STICKER_BYTES_MAX: Final = 4_000_000
log = structlog.get_logger("media")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Holds where files come from, and what reads them. `is_open` tells whether a platform can be
    reached now."""

    platforms: Mapping[str, Fetcher]
    is_open: Callable[[str], bool]
    web: Fetcher
    reader: ReadsFiles


class FetchPump:
    """Takes the files that are due, fetches and reads them, and records the result. `sees` tells
    whether an agent understands pictures. `is_shared`: other nodes work on the same store."""

    def __init__(  # noqa: PLR0913 - whom it asks and whom it tells
        self,
        fetches: Fetches,
        sources: Sources,
        *,
        stickers: Stickers,
        sees: Callable[[str], bool],
        library: MediaLibrary,
        feed: Feed,
        clock: Clock,
        start: Start,
        waits: FileWaits,
        typing: Typing,
        bytes_max: int,
        bus: Bus,
        lease: NodeLease,
        is_shared: bool = False,
        poll_s: float = 30,
    ) -> None:
        self._fetches = fetches
        self._sources = sources
        self._stickers = stickers
        self._sees = sees
        self._library = library
        self._feed = feed
        self._clock = clock
        self._start = start
        self._waits = waits
        self._typing = typing
        self._bytes_max = bytes_max
        self._bus = bus
        self._lease = lease
        self._is_shared = is_shared
        self._poll_s = poll_s
        self._lookout = PumpWaiter(bus.waiter(Topic.FETCHES), clock=clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # The files under way, as they were taken.
        self._under_way: dict[str, Fetch] = {}
        self._readers = Slots(READ_MAX, most=READ_MOST)
        # The files that were fetched and are being read.
        self._here: dict[str, FetchedFile] = {}
        self._has_recovered = False
        self._is_draining = False

    def stop(self) -> None:
        """Take no more files. Those under way go on."""
        self._is_draining = True
        self._lookout.wake()

    async def finish(self) -> None:
        """Cancel what is under way and give it back. The next owner begins it again."""
        self.stop()
        await self._typing.finish()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await self._fetches.release()

    async def run(self) -> None:
        while not self._is_draining:
            self._lookout.begin()
            lease = self._lease.take()
            try:
                taken = await self._take_due()
                await self._look_after()
                if not taken:
                    await self._wait_until_due()
            except (Transient, Ambiguous) as error:
                log.debug("files cannot be looked for", error=error.message)
                await self._clock.sleep(1)
                continue
            self._begin(taken, lease)

    def _begin(self, taken: Sequence[Fetch], lease: Lease) -> None:
        if self._is_draining:
            return  # the drain began while they were taken: the next owner takes them again
        for fetch in taken:
            task = self._start(self._bring_safely(fetch, lease), name=f"fetch {fetch.id}")
            self._tasks[fetch.id] = task
            self._under_way[fetch.id] = fetch
            task.add_done_callback(partial(self._ended, fetch.id))

    def _ended(self, fetch: str, task: asyncio.Task[None]) -> None:
        # A cancelled file may have been taken again before its first task ended.
        if self._tasks.get(fetch) is task:
            del self._tasks[fetch], self._under_way[fetch]
        self._lookout.wake()

    async def _look_after(self) -> None:
        """Check how long turns have waited for files, unless that was done a moment ago."""
        if not self._waits.is_due:
            self._waits.look_within(LOOK_S)
            return
        waiting = await self._waits.look(
            here=self._here, tasks=self._tasks, tell=self._tell, let_go=self._let_go
        )
        self._waits.look_within(self._typing.show(waiting))

    def _let_go(self, fetch: str) -> None:
        """Cancel the fetching of a file that no turn waits for any more."""
        task = self._tasks.get(fetch)
        if task is not None:
            task.cancel()

    async def _wait_until_due(self) -> None:
        """Wait until a file is due or something wakes the pump. If there is no room, only the end
        of a task matters, which wakes the pump."""
        due_ms = await self._fetches.next_due_ms()
        has_room = len(self._tasks) < TAKE_MAX
        at_most_s = min(self._poll_s, self._waits.due_in_s())
        await self._lookout.wait(due_ms if has_room else None, at_most_s=at_most_s)

    async def step(self) -> bool:
        """Fetch what is due, one file after another; if nothing is, check how long turns have
        waited. Returns False if there was nothing to do."""
        lease = self._lease.take()
        taken = await self._take_due()
        for fetch in taken:
            await self._bring_safely(fetch, lease)
        if taken:
            return True
        told: list[Recorded] = []
        await self._waits.look(
            here=self._here, tasks=self._tasks, tell=told.extend, let_go=self._let_go
        )
        self._tell(told)
        return bool(told)

    async def _take_due(self) -> list[Fetch]:
        if self._is_shared or not self._has_recovered:
            self._tell(await self._fetches.recover(attempts_max=ATTEMPTS_MAX))
            self._has_recovered = True
        room = TAKE_MAX - len(self._tasks)
        if room <= 0 or self._is_draining:
            return []
        names = [name for name in self._sources.platforms if self._sources.is_open(name)]
        self._lookout.look()
        try:
            people = Counter(fetch.principal for fetch in self._under_way.values())
            shares = FairShares(in_use=people, most=TAKE_MOST)
            return await self._fetches.take(adapters=[HERE, *names], limit=room, shares=shares)
        except Ambiguous:
            # This node may hold files that it does not know. None of them was begun, so they are
            # given back.
            keep = tuple(self._under_way.values())
            await persist(partial(self._fetches.release, keep=keep), clock=self._clock)
            return []

    async def _bring_safely(self, fetch: Fetch, lease: Lease) -> None:
        await attempt(self._bring(fetch, lease), partial(self._unforeseen, fetch))

    async def _unforeseen(self, fetch: Fetch, error: Exception) -> None:
        """Treat an unexpected exception of an adapter or a reader like a failed try."""
        await self._failed(fetch, Transient(f"internal error: {type(error).__name__}"))

    async def _bring(self, fetch: Fetch, lease: Lease) -> None:
        if not lease.may_act:
            # The lease ran out before anything was fetched. Another node may have the file by now;
            # if not, it is taken again.
            give_back = partial(self._fetches.again, fetch, error="", due_in_s=0)
            await persist(give_back, clock=self._clock)
            return
        if fetch.sticker_id:
            await self._meet(fetch)
            return
        try:
            found = await self._found(fetch)
        except (Permanent, Rejected) as error:
            await self._give_up(fetch, error)
        except (Transient, Ambiguous, Conflict) as error:
            await self._failed(fetch, error)
        else:
            await self._record(partial(self._fetches.done, fetch, found))

    async def _meet(self, fetch: Fetch) -> None:
        """Tell the turn what a sticker shows. A sticker that nobody has described is described by
        the agent that answers the turn, if that agent understands pictures."""
        try:
            met = await persist(partial(self._stickers.meet, fetch), clock=self._clock)
        except Conflict as conflict:
            log.info("no turn waits for this sticker any more", error=conflict.message)
            return
        self._tell(met.recorded)
        if not met.is_new:
            return
        picture = await self._picture(fetch) if self._sees(met.agent) else None
        if picture is None:
            await self._record(partial(self._stickers.pass_by, fetch))
        else:
            await self._record(partial(self._stickers.describe, fetch, picture, agent=met.agent))

    async def _picture(self, fetch: Fetch) -> FetchedFile | None:
        """Return the picture of a sticker, or None if it cannot be fetched. It is tried only once:
        the person waits for an answer."""
        try:
            async with time_limit(STICKER_S):
                _, found = await self._fetched(fetch, bytes_max=STICKER_BYTES_MAX)
        except (PerdureError, TimeoutError) as error:
            log.info("a sticker cannot be looked at", fetch=fetch.id, error=str(error))
            return None
        return found if found.mime in PICTURES else None

    async def _found(self, fetch: Fetch) -> FetchedFile:
        """Fetch a file if it is not in the library yet, and read it if its kind is readable."""
        attachment = fetch.attachment
        if attachment.media is not None:
            digest, found = await self._uploaded(attachment.media)
        else:
            digest, found = await self._fetched(fetch, bytes_max=self._bytes_max)
        if is_picture(found.mime):
            fitted = await self._library.fitted(digest)
            if fitted is not None:
                return msgspec.structs.replace(found, fitted=fitted)
        elif not is_readable(found.mime):
            return found
        self._here[fetch.id] = found
        try:
            async with self._readers.slot(fetch.principal):
                source = FileSource(
                    data=await self._library.read_kept(digest),
                    mime=found.mime,
                    name=found.name,
                    is_voice=attachment.is_voice,
                )
                reading = await self._sources.reader.read(source)
        finally:
            del self._here[fetch.id]
        return await self._with_fitted(msgspec.structs.replace(found, reading=reading))

    async def _with_fitted(self, found: FetchedFile) -> FetchedFile:
        """Store what models are shown instead of a picture. Its bytes are durable before a row
        names them; if the process dies in between, they are found like any without a row."""
        picture = found.reading.picture
        if not picture:
            return found
        kept = await self._library.keep(_whole(picture), bytes_max=len(picture))
        fitted = FittedPicture(digest=kept.digest, size=kept.size)
        reading = msgspec.structs.replace(found.reading, picture=b"")
        return msgspec.structs.replace(found, reading=reading, fitted=fitted)

    async def _uploaded(self, media: MediaId) -> tuple[str, FetchedFile]:
        """Return the digest and the description of a file that is in the library already."""
        known = await self._library.get(media, principal=None)
        head = (await self._library.read_kept(known.digest))[:HEAD_BYTES]
        mime = kind_of(head, name=known.name, declared=known.mime)
        return known.digest, FetchedFile(mime=mime, name=known.name, size=known.size)

    async def _fetched(self, fetch: Fetch, *, bytes_max: int) -> tuple[str, FetchedFile]:
        """Fetch a file into the library. Returns its digest and its description."""
        attachment = fetch.attachment
        if attachment.size > bytes_max:
            raise Permanent(f"it is larger than {bytes_max:,} bytes; send a smaller one")
        try:
            async with time_limit(FETCH_S), aclosing(self._pieces(fetch)) as pieces:
                kept = await self._library.keep(pieces, bytes_max=bytes_max)
        except Transient as error:
            if error.code != NOT_WRITABLE:
                raise
            # The error names a folder, which is for the operator and not for the chat.
            log.warning("files cannot be stored", error=error.message)
            raise Transient(_NOT_STORED, code=NOT_WRITABLE) from error
        except TimeoutError as error:
            raise Transient(f"fetching it took longer than {FETCH_S} s; send it again") from error
        name = name_of(attachment)
        mime = kind_of(kept.head, name=name, declared=attachment.mime)
        return kept.digest, FetchedFile(mime=mime, name=name, size=kept.size, digest=kept.digest)

    async def _pieces(self, fetch: Fetch) -> AsyncGenerator[bytes, None]:
        attachment, sources = fetch.attachment, self._sources
        source = sources.platforms.get(fetch.adapter) if fetch.adapter else sources.web
        if source is None:
            raise Permanent(f"{fetch.adapter} is not connected here; send it again elsewhere")
        try:
            async for piece in source.fetch(attachment.reference or attachment.url or ""):
                yield piece
        except PerdureError as error:
            if not fetch.adapter or error.code == FOR_SENDER:
                raise  # these words are written for people
            log.warning("a platform gave no file", adapter=fetch.adapter, error=error.message)
            if isinstance(error, Permanent | Rejected):
                raise Permanent(_NOT_GIVEN) from error
            wait_s = error.retry_after_s if isinstance(error, Transient) else None
            raise Transient(_NOT_GIVEN, retry_after_s=wait_s) from error

    async def _failed(self, fetch: Fetch, error: PerdureError) -> None:
        """Try a file again later, or give it up if that would be too late for its turn."""
        due_in_s: float = BACKOFF_S[min(fetch.attempts, len(BACKOFF_S)) - 1]
        if isinstance(error, Transient) and error.retry_after_s:
            due_in_s = max(due_in_s, error.retry_after_s)
        # The turn would not wait for that try any more.
        is_too_late = due_in_s >= self._waits.left_s(fetch)
        if fetch.attempts >= ATTEMPTS_MAX or is_too_late or self._is_dead(fetch, error, due_in_s):
            await self._give_up(fetch, error)
            return
        again = partial(self._fetches.again, fetch, error=error.message, due_in_s=due_in_s)
        await persist(again, clock=self._clock)

    def _is_dead(self, fetch: Fetch, error: PerdureError, due_in_s: float) -> bool:
        """Tell whether a web address was tried more than once, and nobody answers there."""
        waited_s = self._waits.waited_s(fetch)
        is_unreachable = fetch.adapter == HERE and error.code == UNREACHABLE
        return is_unreachable and fetch.attempts > 1 and waited_s + due_in_s > UNREACHABLE_S

    async def _give_up(self, fetch: Fetch, error: PerdureError) -> None:
        log.warning("a file is given up", fetch=fetch.id, turn=fetch.turn, error=error.message)
        await self._record(partial(self._fetches.lost, fetch, error.message))

    async def _record(self, write: Callable[[], Awaitable[list[Recorded]]]) -> None:
        try:
            recorded = await persist(write, clock=self._clock)
        except Conflict as conflict:
            # Its turn was ended meanwhile, or this process stood still and another has fetched it.
            log.info("no turn waits for this file any more", error=conflict.message)
            return
        self._tell(recorded)
        self._ready()

    def _tell(self, recorded: Sequence[Recorded]) -> None:
        if recorded:
            self._feed.publish_recorded(recorded)
            self._ready()

    def _ready(self) -> None:
        """Wake the pumps: a turn that waited for files may begin, and there may be a notice."""
        self._bus.publish(Topic.TURNS)
        self._bus.publish(Topic.OUTBOX)


async def _whole(data: bytes) -> AsyncGenerator[bytes, None]:
    """Yield all bytes as one piece."""
    yield data


class NothingFetched:
    """Refuses every file, for a gateway that fetches nothing from the web."""

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        raise Permanent("files are not fetched from the web here; upload it instead")
        yield b""  # type: ignore[unreachable]
