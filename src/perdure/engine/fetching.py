"""The fetch pump: brings the files of waiting turns here, and finds out what they say.

A message is accepted with references only, so that its platform is not kept waiting; its turn waits
instead, and what was said after it waits behind it. A file's bytes are durable before its row says
so. If we die in between, the next owner fetches it again: that shows nobody anything twice. A file
that cannot be had is given up after a while, and named, to the people and to the model.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec
import structlog

from perdure.domain.attachments import PICTURES, name_of
from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    PerdureError,
    Permanent,
    Rejected,
    Transient,
)
from perdure.domain.events import Recorded
from perdure.domain.ids import MediaId
from perdure.domain.reading.documents import is_readable
from perdure.domain.reading.kinds import HEAD_BYTES, kind_of
from perdure.engine.feed import Feed
from perdure.engine.lookout import Lookout
from perdure.engine.persist import persist
from perdure.engine.supervisor import Start, attempt
from perdure.ports.clock import Clock
from perdure.ports.media import (
    FOR_SENDER,
    UNREACHABLE,
    Fetch,
    Fetcher,
    Fetches,
    Found,
    MediaLibrary,
    Reader,
    Source,
)
from perdure.ports.stickers import Stickers

# A file may be in memory while it is read, so only few are at once.
TAKE_MAX: Final = 8
ATTEMPTS_MAX: Final = 5
PATIENCE_S: Final = 600
FOR_EVER_S: Final = 10**9
# With an address of the web at which nobody answers; the one who wrote it down waits for a reply.
UNREACHABLE_S: Final = 10
FETCH_S: Final = 120
BACKOFF_S: Final = (1, 5, 20, 60)
RETRY_AFTER_MAX_S: Final = 300
HERE: Final = ""
# Why a platform did not give a file is for the log.
_NOT_GIVEN: Final = "the platform did not give it out; send it again"
# A sticker is told without words where its picture does not come in this time, or its platform
# cannot be reached for so long.
STICKER_S: Final = 15
STICKER_PATIENCE_S: Final = 60
STICKER_BYTES_MAX: Final = 4_000_000
log = structlog.get_logger("media")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where files come from and who reads them. `is_open` tells whether a platform can be reached
    now."""

    platforms: Mapping[str, Fetcher]
    is_open: Callable[[str], bool]
    web: Fetcher
    reader: Reader


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
        bytes_max: int,
        changed: Callable[[], None],
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
        self._bytes_max = bytes_max
        self._changed = changed
        self._is_shared = is_shared
        self._poll_s = poll_s
        self._lookout = Lookout(clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._since_s = clock.monotonic_s()
        self._has_recovered = False
        self._is_draining = False

    def wake(self) -> None:
        self._lookout.wake()

    def stop(self) -> None:
        """No more is taken; what is under way may go on."""
        self._is_draining = True
        self.wake()

    async def finish(self) -> None:
        """Let go of what is under way: the next owner begins it again."""
        self.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await self._fetches.release()

    async def run(self) -> None:
        while not self._is_draining:
            self._lookout.begin()
            try:
                taken = await self._take_due()
                if not taken:
                    await self._wait_until_due()
            except (Transient, Ambiguous) as error:
                log.warning("files cannot be looked for", error=error.message)
                await self._clock.sleep(1)
                continue
            self._begin(taken)

    def _begin(self, taken: Sequence[Fetch]) -> None:
        if self._is_draining:
            return  # the drain came while we were asking: the next owner takes them again
        for fetch in taken:
            task = self._start(self._bring_safely(fetch), name=f"fetch {fetch.id}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake()

    async def _wait_until_due(self) -> None:
        """What was due and not taken waits for its platform to be reached again; where there is no
        room, whoever makes some wakes us."""
        due_ms = await self._fetches.next_due_ms()
        has_room = len(self._tasks) < TAKE_MAX
        await self._lookout.wait(due_ms if has_room else None, at_most_s=self._poll_s)

    async def step(self) -> bool:
        """Bring what is due, one file after another. False when nothing was."""
        taken = await self._take_due()
        for fetch in taken:
            await self._bring_safely(fetch)
        return bool(taken)

    async def _take_due(self) -> list[Fetch]:
        if self._is_shared or not self._has_recovered:
            self._tell(await self._fetches.recover(attempts_max=ATTEMPTS_MAX))
            self._has_recovered = True
        awake_s = self._clock.monotonic_s() - self._since_s
        if awake_s > STICKER_PATIENCE_S:
            # Not before: after a long night nothing is too old to be tried once.
            files_s = PATIENCE_S if awake_s > PATIENCE_S else FOR_EVER_S
            expired = await self._fetches.expire(
                older_than_s=files_s, stickers_s=STICKER_PATIENCE_S
            )
            self._tell(expired)
        room = TAKE_MAX - len(self._tasks)
        if room <= 0 or self._is_draining:
            return []
        names = [name for name in self._sources.platforms if self._sources.is_open(name)]
        self._lookout.look()
        try:
            return await self._fetches.take(adapters=[HERE, *names], limit=room)
        except Ambiguous:
            # We may hold files that we do not know of, none of them begun: give them back.
            await persist(self._fetches.release, clock=self._clock)
            return []

    async def _bring_safely(self, fetch: Fetch) -> None:
        await attempt(self._bring(fetch), partial(self._unforeseen, fetch))

    async def _unforeseen(self, fetch: Fetch, error: Exception) -> None:
        """An adapter or a reader broke in a way that nobody foresaw."""
        await self._failed(fetch, Transient(f"internal error: {type(error).__name__}"))

    async def _bring(self, fetch: Fetch) -> None:
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

    async def _picture(self, fetch: Fetch) -> Found | None:
        """The picture of a sticker; None where there is none to be had. Nobody tries again: the
        person waits for an answer, not for this."""
        try:
            async with asyncio.timeout(STICKER_S):
                _, found = await self._fetched(fetch, bytes_max=STICKER_BYTES_MAX)
        except (PerdureError, TimeoutError) as error:
            log.info("a sticker cannot be looked at", fetch=fetch.id, error=str(error))
            return None
        return found if found.mime in PICTURES else None

    async def _found(self, fetch: Fetch) -> Found:
        attachment = fetch.attachment
        if attachment.media is not None:
            digest, found = await self._uploaded(attachment.media)
        else:
            digest, found = await self._fetched(fetch, bytes_max=self._bytes_max)
        if not is_readable(found.mime):
            return found
        source = Source(
            data=await self._library.read_kept(digest),
            mime=found.mime,
            name=found.name,
            is_voice=attachment.is_voice,
        )
        return msgspec.structs.replace(found, reading=await self._sources.reader.read(source))

    async def _uploaded(self, media: MediaId) -> tuple[str, Found]:
        """What is here already, and was not read."""
        known = await self._library.get(media, principal=None)
        head = (await self._library.read_kept(known.digest))[:HEAD_BYTES]
        mime = kind_of(head, name=known.name, declared=known.mime)
        return known.digest, Found(mime=mime, name=known.name, size=known.size)

    async def _fetched(self, fetch: Fetch, *, bytes_max: int) -> tuple[str, Found]:
        attachment = fetch.attachment
        if attachment.size > bytes_max:
            raise Permanent(f"it is larger than {bytes_max:,} bytes; send a smaller one")
        try:
            async with asyncio.timeout(FETCH_S), aclosing(self._pieces(fetch)) as pieces:
                kept = await self._library.keep(pieces, bytes_max=bytes_max)
        except TimeoutError as error:
            raise Transient(f"fetching it took longer than {FETCH_S} s; send it again") from error
        name = name_of(attachment)
        mime = kind_of(kept.head, name=name, declared=attachment.mime)
        return kept.digest, Found(mime=mime, name=name, size=kept.size, digest=kept.digest)

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
        waited_s = (self._clock.now_ms() - fetch.created_at) / 1000
        due_in_s: float = BACKOFF_S[min(fetch.attempts, len(BACKOFF_S)) - 1]
        is_unreachable = fetch.adapter == HERE and error.code == UNREACHABLE
        is_over = waited_s > PATIENCE_S or (is_unreachable and waited_s + due_in_s > UNREACHABLE_S)
        # After a long night nothing is given up for its age before it was tried again.
        if fetch.attempts >= ATTEMPTS_MAX or (is_over and fetch.attempts > 1):
            await self._give_up(fetch, error)
            return
        if isinstance(error, Transient) and error.retry_after_s:
            due_in_s = min(max(due_in_s, error.retry_after_s), RETRY_AFTER_MAX_S)
        again = partial(self._fetches.again, fetch, error=error.message, due_in_s=due_in_s)
        await persist(again, clock=self._clock)

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
        self._changed()

    def _tell(self, recorded: Sequence[Recorded]) -> None:
        if recorded:
            self._feed.publish_recorded(recorded)
            self._changed()


class NothingFetched:
    """A gateway that gets nothing from the web."""

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        raise Permanent("files are not fetched from the web here; upload it instead")
        yield b""  # type: ignore[unreachable]
