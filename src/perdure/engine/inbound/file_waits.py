"""Limits how long turns wait for their files, and tells the people of a turn that waits for long.

The limit counts from the acceptance of each message, so the waits for several files of a message,
or for several messages, do not add up. From the moment at which this process first sees a file, the
monotonic clock measures the wait, without the time in which the process stood still. Only the time
before that is taken from the wall clock, and counts for no more than the whole wait. So setting the
clock neither cuts a wait short nor makes it longer, and a restart does not begin it again. A file
that is already too old when a process first sees it gets a short time for one try.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import structlog

from perdure.domain.address import Address
from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import FileEnd, slow_text
from perdure.domain.journal.events import Recorded
from perdure.ports.records.media import AwaitedFile, Fetch, FetchedFile, Fetches, Late
from perdure.ports.system.clock import Clock

# After the first time typing is shown, and after the second the people are told in words.
SIGN_S: Final = 1.0
SLOW_S: Final = 5.0
# A file that is too old when it is first seen may still arrive within this time.
ONE_TRY_S: Final = 10.0
# The rows are not looked at more often, however often the pump is woken.
LOOK_S: Final = 1.0
# Files of one turn whose waits end within this time of each other are given up together.
TOGETHER_S: Final = 2.0
log = structlog.get_logger("media")


class _FileWait(NamedTuple):
    """Holds when a file was first seen and when its wait ends, by the monotonic clock without
    pauses."""

    seen_s: float
    late_s: float


class Look(NamedTuple):
    """Holds what one look works with. `here` are the files that were fetched and are being read;
    `tell` is called with what was journalled, `let_go` with a file that need not be fetched any
    more. `signs` collects the addresses where typing is to be shown."""

    now_s: float
    here: Mapping[str, FetchedFile]
    tell: Callable[[Sequence[Recorded]], None]
    let_go: Callable[[str], None]
    signs: list[Address]


class FileWaits:
    """Watches the files that turns wait for. `wait_s` is how long a turn waits for one."""

    def __init__(self, fetches: Fetches, *, clock: Clock, wait_s: float) -> None:
        self._fetches = fetches
        self._clock = clock
        self._wait_s = wait_s
        self._waits: dict[str, _FileWait] = {}
        self._strays: set[str] = set()
        self._looked_s = -math.inf
        self._next_s = math.inf

    def _now_s(self) -> float:
        return self._clock.monotonic_s() - self._clock.paused_s()

    def left_s(self, fetch: Fetch) -> float:
        """Return how long this file may still be waited for."""
        return self._seen(fetch).late_s - self._now_s()

    def waited_s(self, fetch: Fetch) -> float:
        """Return how long this file has been waited for."""
        return self._wait_s - self.left_s(fetch)

    def due_in_s(self) -> float:
        """Return after how long the next look has something to do."""
        return max(self._next_s - self._now_s(), 0)

    @property
    def is_due(self) -> bool:
        """Tell whether a look may find something. Files that came since the last one are seen
        within `LOOK_S`."""
        return self._now_s() >= min(self._next_s, self._looked_s + LOOK_S)

    def look_within(self, seconds: float) -> None:
        """Make the next look due within so many seconds."""
        self._next_s = min(self._next_s, self._now_s() + seconds)

    async def look(
        self,
        *,
        here: Mapping[str, FetchedFile],
        tasks: Iterable[str],
        tell: Callable[[Sequence[Recorded]], None],
        let_go: Callable[[str], None],
    ) -> list[Address]:
        """Tell the people of turns that have waited for long, and let the turns whose wait is over
        begin without their files. `tasks` are the files that are being fetched. Returns the
        addresses where typing is to be shown."""
        under_way = list(tasks)
        look = Look(self._now_s(), here, tell, let_go, [])
        self._looked_s = look.now_s
        waiting = await self._fetches.waiting()
        open_ids = {each.fetch.id for each in waiting}
        self._waits = {key: wait for key, wait in self._waits.items() if key in open_ids}
        instants = [self._look_for_strays([key for key in under_way if key not in open_ids], look)]
        by_turn = sorted(waiting, key=lambda each: each.fetch.turn)
        for turn, files in groupby(by_turn, key=lambda each: each.fetch.turn):
            instants.append(await self._look_at(turn, list(files), look))
        self._next_s = min(instants)
        return look.signs

    def _look_for_strays(self, strays: Sequence[str], look: Look) -> float:
        """Let go of files that no turn waits for any more. A task that has just recorded its file
        is over by the next look, so only a file that is found in two looks is let go. Returns when
        to look again."""
        for fetch in self._strays.intersection(strays):
            look.let_go(fetch)
        self._strays = set(strays)
        return look.now_s + LOOK_S if strays else math.inf

    async def _look_at(self, turn: TurnId, files: Sequence[AwaitedFile], look: Look) -> float:
        """Do what is due for the files of one turn. Returns when to look at them again."""
        late_s = min(self._seen(each.fetch).late_s for each in files)
        left = list(files)
        if late_s <= look.now_s:
            # The files of an album came shortly after each other, and get one notice.
            until_s = look.now_s + TOGETHER_S
            left = [each for each in files if self._seen(each.fetch).late_s > until_s]
            await self._expire([each.fetch for each in files if each not in left], look)
        if not left:
            return math.inf
        seen_s = min(self._seen(each.fetch).seen_s for each in left)
        late_s = min(self._seen(each.fetch).late_s for each in left)
        if look.now_s < seen_s + SIGN_S:
            return min(seen_s + SIGN_S, late_s)
        look.signs.append(left[0].address)
        missed = [each.fetch for each in left if not each.fetch.sticker_id]
        if not missed or any(each.is_told for each in files):
            return late_s
        if look.now_s < seen_s + SLOW_S:
            return min(seen_s + SLOW_S, late_s)
        await self._tell(turn, missed, look)
        return late_s

    async def _expire(self, late: Sequence[Fetch], look: Look) -> None:
        """Let the turn begin without these files. One transaction: if the process dies after it,
        the turn begins without the files; if its answer is lost, the next look finds nothing left
        to do."""
        files = [Late(fetch=fetch, found=look.here.get(fetch.id)) for fetch in late]
        recorded = await self._fetches.expire(files)
        look.tell(recorded)
        ended = {(r.event.message, r.event.index) for r in recorded if isinstance(r.event, FileEnd)}
        for fetch in late:
            # A file that arrived at the last moment is not cancelled: its task is still recording.
            if (fetch.message, fetch.index) in ended:
                log.warning("a file did not come in time", fetch=fetch.id, turn=fetch.turn)
                look.let_go(fetch.id)

    async def _tell(self, turn: TurnId, missed: Sequence[Fetch], look: Look) -> None:
        """Tell the people of a turn, once, that it waits for files."""
        text = slow_text(
            [fetch.attachment for fetch in missed],
            wait_s=self._wait_s,
            is_here=all(fetch.id in look.here or fetch.attachment.media for fetch in missed),
        )
        look.tell(await self._fetches.tell_slow(turn, text))

    def _seen(self, fetch: Fetch) -> _FileWait:
        """Return the instants of a file, and compute them when it is seen for the first time."""
        known = self._waits.get(fetch.id)
        if known is None:
            now_s = self._now_s()
            age_s = max((self._clock.now_ms() - fetch.created_at) / 1000, 0)
            left_s = max(self._wait_s - age_s, min(self._wait_s, ONE_TRY_S))
            known = self._waits[fetch.id] = _FileWait(now_s, now_s + left_s)
        return known
