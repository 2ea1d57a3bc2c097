"""The fetch pump: brings the files of waiting turns here, and finds out what they say.

A message is accepted with references only, so that its platform is not kept waiting; its turn waits
instead, and what was said after it waits behind it. A file's bytes are durable before its row says
so. If we die in between, the next owner fetches it again: that shows nobody anything twice. A file
that cannot be had is given up after a while, and named, to the people and to the model. How long a
turn waits for it is bounded (`engine/inbound/file_waits.py`), whatever the platform or the reader
does.
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
from perdure.domain.ids import MediaId, PrincipalId
from perdure.domain.journal.attachments import PICTURES, name_of
from perdure.domain.journal.events import Recorded
from perdure.domain.people.sharing import FairShares
from perdure.domain.reading.documents import is_readable
from perdure.domain.reading.kinds import HEAD_BYTES, kind_of
from perdure.engine.delivery.typing import Typing
from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.slots import Slots
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
    MediaLibrary,
    ReadsFiles,
)
from perdure.ports.records.stickers import Stickers
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.wakes import Topic

# A file that is fetched takes a connection and a little memory. While it is read it may be in
# memory as a whole, beside the program that reads it, so only few are at once. One person has at
# most a quarter of either: what they fetch may hang.
TAKE_MAX: Final = 32
TAKE_MOST: Final = 8
READ_MAX: Final = 8
READ_MOST: Final = 2
ATTEMPTS_MAX: Final = 5
# With an address of the web at which nobody answers; the one who wrote it down waits for a reply.
UNREACHABLE_S: Final = 10
FETCH_S: Final = 120
# All tries are made within the minute for which a turn waits, unless it is told to wait longer.
BACKOFF_S: Final = (1, 5, 15, 20)
HERE: Final = ""
# Why a platform did not give a file is for the log.
_NOT_GIVEN: Final = "the platform did not give it out; send it again"
_NOT_STORED: Final = "this gateway cannot store files now; tell its operator, then send it again"
# A sticker is told without words where its picture does not come in this time.
STICKER_S: Final = 15
STICKER_BYTES_MAX: Final = 4_000_000
log = structlog.get_logger("media")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where files come from and who reads them. `is_open` tells whether a platform can be reached
    now."""

    platforms: Mapping[str, Fetcher]
    is_open: Callable[[str], bool]
    web: Fetcher
    reader: ReadsFiles


class FetchPump:
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
        # Whose they are.
        self._people: dict[str, PrincipalId] = {}
        self._readers = Slots(READ_MAX, most=READ_MOST)
        # What was brought here and is being read.
        self._here: dict[str, FetchedFile] = {}
        self._has_recovered = False
        self._is_draining = False

    def stop(self) -> None:
        """No more is taken; what is under way may go on."""
        self._is_draining = True
        self._lookout.wake()

    async def finish(self) -> None:
        """Let go of what is under way: the next owner begins it again."""
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
            return  # the drain came while we were asking: the next owner takes them again
        for fetch in taken:
            task = self._start(self._bring_safely(fetch, lease), name=f"fetch {fetch.id}")
            self._tasks[fetch.id] = task
            self._people[fetch.id] = fetch.principal
            task.add_done_callback(partial(self._ended, fetch.id))

    def _ended(self, fetch: str, task: asyncio.Task[None]) -> None:
        # A file that was let go may have been taken again before its first task was over.
        if self._tasks.get(fetch) is task:
            del self._tasks[fetch], self._people[fetch]
        self._lookout.wake()

    async def _look_after(self) -> None:
        """Look at how long files have been waited for, unless that was done a moment ago."""
        if not self._waits.is_due:
            self._waits.look_within(LOOK_S)
            return
        waiting = await self._waits.look(
            here=self._here, tasks=self._tasks, tell=self._tell, let_go=self._let_go
        )
        self._waits.look_within(self._typing.show(waiting))

    def _let_go(self, fetch: str) -> None:
        """Stop bringing a file that nobody waits for any more."""
        task = self._tasks.get(fetch)
        if task is not None:
            task.cancel()

    async def _wait_until_due(self) -> None:
        """What was due and not taken waits for its platform to be reached again; where there is no
        room, whoever makes some wakes us."""
        due_ms = await self._fetches.next_due_ms()
        has_room = len(self._tasks) < TAKE_MAX
        at_most_s = min(self._poll_s, self._waits.due_in_s())
        await self._lookout.wait(due_ms if has_room else None, at_most_s=at_most_s)

    async def step(self) -> bool:
        """Bring what is due, one file after another; if nothing is, look after what is waited for.
        False when there was nothing to do."""
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
            shares = FairShares(in_use=Counter(self._people.values()), most=TAKE_MOST)
            return await self._fetches.take(adapters=[HERE, *names], limit=room, shares=shares)
        except Ambiguous:
            # We may hold files that we do not know of, none of them begun: give them back.
            await persist(self._fetches.release, clock=self._clock)
            return []

    async def _bring_safely(self, fetch: Fetch, lease: Lease) -> None:
        await attempt(self._bring(fetch, lease), partial(self._unforeseen, fetch))

    async def _unforeseen(self, fetch: Fetch, error: Exception) -> None:
        """An adapter or a reader broke in a way that nobody foresaw."""
        await self._failed(fetch, Transient(f"internal error: {type(error).__name__}"))

    async def _bring(self, fetch: Fetch, lease: Lease) -> None:
        if not lease.may_act:
            # Whoever has it now goes on with it; if that is still us, it is taken anew.
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
        """Tell the turn what is known of a sticker. A new one is described by the agent that will
        be told of it, if that sees."""
        try:
            met = await persist(partial(self._stickers.meet, fetch), clock=self._clock)
        except Conflict as conflict:
            log.info("a sticker came for nobody", error=conflict.message)
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
        """The picture of a sticker; None where there is none to be had. Nobody tries again: the
        person waits for an answer, not for this."""
        try:
            async with time_limit(STICKER_S):
                _, found = await self._fetched(fetch, bytes_max=STICKER_BYTES_MAX)
        except (PerdureError, TimeoutError) as error:
            log.info("a sticker cannot be looked at", fetch=fetch.id, error=str(error))
            return None
        return found if found.mime in PICTURES else None

    async def _found(self, fetch: Fetch) -> FetchedFile:
        attachment = fetch.attachment
        if attachment.media is not None:
            digest, found = await self._uploaded(attachment.media)
        else:
            digest, found = await self._fetched(fetch, bytes_max=self._bytes_max)
        if not is_readable(found.mime):
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
        return msgspec.structs.replace(found, reading=reading)

    async def _uploaded(self, media: MediaId) -> tuple[str, FetchedFile]:
        """What is here already, and was not read."""
        known = await self._library.get(media, principal=None)
        head = (await self._library.read_kept(known.digest))[:HEAD_BYTES]
        mime = kind_of(head, name=known.name, declared=known.mime)
        return known.digest, FetchedFile(mime=mime, name=known.name, size=known.size)

    async def _fetched(self, fetch: Fetch, *, bytes_max: int) -> tuple[str, FetchedFile]:
        attachment = fetch.attachment
        if attachment.size > bytes_max:
            raise Permanent(f"it is larger than {bytes_max:,} bytes; send a smaller one")
        try:
            async with time_limit(FETCH_S), aclosing(self._pieces(fetch)) as pieces:
                kept = await self._library.keep(pieces, bytes_max=bytes_max)
        except Transient as error:
            if error.code != NOT_WRITABLE:
                raise
            # The folder's name is for the operator, not for the chat.
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
        """Later again, or never: a person waits."""
        due_in_s: float = BACKOFF_S[min(fetch.attempts, len(BACKOFF_S)) - 1]
        if isinstance(error, Transient) and error.retry_after_s:
            due_in_s = max(due_in_s, error.retry_after_s)
        # Nobody would wait for that try any more.
        is_too_late = due_in_s >= self._waits.left_s(fetch)
        if fetch.attempts >= ATTEMPTS_MAX or is_too_late or self._is_dead(fetch, error, due_in_s):
            await self._give_up(fetch, error)
            return
        again = partial(self._fetches.again, fetch, error=error.message, due_in_s=due_in_s)
        await persist(again, clock=self._clock)

    def _is_dead(self, fetch: Fetch, error: PerdureError, due_in_s: float) -> bool:
        """Tell whether nobody answers at an address of the web, which was asked more than once."""
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
            # Its turn was ended meanwhile, or we were away and another has brought it.
            log.info("a file came for nobody", error=conflict.message)
            return
        self._tell(recorded)
        self._ready()

    def _tell(self, recorded: Sequence[Recorded]) -> None:
        if recorded:
            self._feed.publish_recorded(recorded)
            self._ready()

    def _ready(self) -> None:
        """A turn that waited for files may begin, and people may be told something."""
        self._bus.publish(Topic.TURNS)
        self._bus.publish(Topic.OUTBOX)


class NothingFetched:
    """A gateway that gets nothing from the web."""

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        raise Permanent("files are not fetched from the web here; upload it instead")
        yield b""  # type: ignore[unreachable]
