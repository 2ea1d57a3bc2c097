"""Checks that turns wait for their files within a bound, that people hear of it, and that no file
keeps a chat silent."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.errors import Ambiguous
from perdure.domain.ids import SessionId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import (
    Attachment,
    MediaFetched,
    MediaLost,
    NoticePosted,
    Recorded,
)
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.people.sharing import FairShares
from perdure.domain.prompt.prompt import MediaBlock
from perdure.domain.reading.texts import FileReading
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.inbound.fetching import READ_MOST, TAKE_MAX, TAKE_MOST
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.records.media import Fetch, FileSource
from perdure.ports.turns.wakes import Topic
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import admitted, only
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock
from perdure.testkit.simulator.world import until

FILE = Attachment(reference="r1", name="report.txt")
STILL = (
    "The file report.txt is still being fetched. If it is not here within 60 seconds of your "
    "message, the answer begins without it."
)
LATE = "The file report.txt did not arrive in time, so the answer begins without it. Send it again."


class HangingPlatform(ScriptedPlatform):
    """Gives two bytes of a file, and the rest when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.can = msgspec.structs.replace(self.can, typing_s=5.0)
        self.goes_on = asyncio.Event()
        self.under_way = 0

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        self.fetched.append(reference)
        self.under_way += 1
        try:
            yield b"he"
            await self.goes_on.wait()
            yield b"llo"
        finally:
            self.under_way -= 1


class HangingReader:
    def __init__(self) -> None:
        self.asked = 0

    async def read(self, source: FileSource) -> FileReading:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError("nobody ends this")


class Place:
    """Holds what survives a restart, and the process that lives now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.platform = HangingPlatform()
        self.agent = ScriptedAgent()
        self.reader: HangingReader | None = None
        self.store: Store
        self.parts: NodeParts
        self._updates = 0

    @asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Run the fetch pump as a gateway does; the test steps the other pumps."""
        self.store = Store(
            sqlite_on(self.folder / "perdure.db"),
            clock=self.clock,
            entropy=SeededEntropy(self._updates),
            media=self.folder / "media",
        )
        await self.store.open()
        backend = Backend(name="main", kind="s", agent=self.agent, tools=CountingTools([]))
        dependencies = NodeDependencies(
            store=self.store,
            roster=Roster({"main": backend}),
            clock=self.clock,
            entropy=SeededEntropy(7 + self._updates),
            limits=Limits(drain_timeout_s=0),
            adapters={"scripted": self.platform},
            sources={"scripted": self.platform},
        )
        if self.reader is not None:
            dependencies = msgspec.structs.replace(dependencies, reader=self.reader)
        async with Supervisor() as supervisor:
            self.parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await self.store.nodes.join(name="test")
            pump = supervisor.start(self.parts.fetching.run(), name="fetch pump")
            try:
                yield
            finally:
                self.parts.fetching.stop()
                await asyncio.wait({pump})
                await self.parts.gateway.drain()
        await self.store.close()

    async def say(
        self, text: str, *attachments: Attachment, place: str = "room", who: str = "ada"
    ) -> Accepted:
        self._updates += 1
        update = Update(
            address=Address(adapter="scripted", account="bot", place=place),
            external_id=f"u{self._updates}",
            kind=UpdateKind.MESSAGE,
            principal=await admitted(self.store, who),
            text=text,
            attachments=attachments,
        )
        return await self.parts.door.accept(update)

    async def pass_by(self, seconds: int) -> None:
        """Let time pass second by second, with one look of the pump at each."""
        for _ in range(seconds):
            self.clock.advance(1)
            await self.look()

    async def look(self) -> None:
        """Wake the pump, and wait until it has looked and waits again."""
        waiter = self.parts.fetching._lookout._waiter
        looked = self.parts.fetching._waits
        for _ in range(2):
            looked._looked_s = float("-inf")
            self.parts.wakes.publish(Topic.FETCHES)
            await until(lambda: looked._looked_s > float("-inf") and not waiter.is_woken)

    async def notices(self, session: SessionId) -> list[str]:
        return [each.text for each in only(NoticePosted, await self.events(session))]

    async def events(self, session: SessionId) -> tuple[Recorded, ...]:
        record = await self.store.diagnostics.record(session)
        assert violations(record) == []
        return record.events

    async def answer(self) -> int:
        """Answer everything that can be answered. Returns the number of turns."""
        before = len(self.agent.requests)
        for _ in range(50):
            claimed = await self.parts.turns.step()
            await self.parts.turns.finished()
            if not claimed:
                break
        return len(self.agent.requests) - before

    def told(self) -> list[str]:
        """Return what the model was told about files in its newest request."""
        blocks = self.agent.requests[-1].messages[-1].blocks
        return [in_words(b.attachment) for b in blocks if isinstance(b, MediaBlock)]


async def test_a_download_that_hangs_keeps_no_chat_silent(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        first = await place.say("read this", FILE)
        second = await place.say("and answer")
        await until(lambda: place.platform.under_way == 1)

        await place.pass_by(4)
        assert await place.notices(first.session) == []
        assert len(place.platform.typed) == 1, "a sign is shown after a second"
        await place.pass_by(50)
        assert await place.notices(first.session) == [STILL]
        assert len(place.platform.typed) > 10
        assert await place.answer() == 0
        await place.pass_by(6)

        assert await place.notices(first.session) == [STILL, LATE]
        assert await place.answer() == 2
        for accepted in (first, second):
            assert accepted.turn is not None
            turn = await place.store.archive.turn(accepted.turn, principal=None)
            assert turn.outcome == Outcome.DONE
        assert place.agent.requests[0].messages[-1].blocks[-1].attachment.problem == (  # type: ignore[union-attr]
            "it did not arrive in time; send it again"
        )
        assert STILL not in repr(place.agent.requests)
        await until(lambda: place.platform.under_way == 0)
        shown = len(place.platform.typed)
        await place.pass_by(20)
        assert len(place.platform.typed) == shown


async def test_a_lost_answer_to_taking_fetches_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the file that the pump does not know of is given back, and not the one under way.
    place = Place(tmp_path)
    async with place.process():
        await place.say("read this", FILE)
        await until(lambda: place.platform.under_way == 1)
        take = place.store.fetches.take
        lost: list[Fetch] = []

        async def loses_its_first_answer(
            *, adapters: Sequence[str], limit: int, shares: FairShares
        ) -> list[Fetch]:
            taken = await take(adapters=adapters, limit=limit, shares=shares)
            if taken and not lost:
                lost.extend(taken)
                raise Ambiguous("the disk failed during a commit")
            return taken

        monkeypatch.setattr(place.store.fetches, "take", loses_its_first_answer)
        other = Attachment(reference="r2", name="plan.txt")
        await place.say("and this", other, place="other", who="bob")
        await until(lambda: place.platform.under_way == 2)
        place.platform.goes_on.set()
        await until(lambda: place.platform.under_way == 0)

        assert [fetch.attachment.reference for fetch in lost] == ["r2"]
        assert place.platform.fetched == ["r1", "r2"]


async def test_files_that_hang_in_every_slot_hold_up_nobody_for_longer(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        for number in range(TAKE_MAX):
            await place.say("", FILE, FILE, place=f"room {number}", who=f"person {number}")
        behind = await place.say("", FILE, place="another room")
        await until(lambda: place.platform.under_way == TAKE_MAX)
        await place.pass_by(61)

        assert await place.notices(behind.session) == [STILL, LATE]
        assert await place.answer() == TAKE_MAX + 1
        assert await place.store.fetches.waiting() == []


async def test_one_person_whose_files_hang_holds_up_nobody_else(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        for number in range(10):
            await place.say("", *[FILE] * 4, place=f"room {number}")
        await until(lambda: place.platform.under_way == TAKE_MOST)
        await place.say("", FILE, FILE, place="another room", who="bob")

        await until(lambda: place.platform.under_way == TAKE_MOST + 2)


class ReaderOfBombs(HangingReader):
    """Does not come to the end of a file whose name begins with "bomb"."""

    async def read(self, source: FileSource) -> FileReading:
        if source.name.startswith("bomb"):
            return await super().read(source)
        return FileReading(text="read")


async def test_one_person_whose_files_take_long_to_read_holds_up_nobody_else(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.reader = ReaderOfBombs()
    place.platform.goes_on.set()
    async with place.process():
        bombs = [Attachment(reference=f"b{n}", name=f"bomb{n}.txt") for n in range(TAKE_MOST)]
        await place.say("", *bombs, place="room")
        await until(lambda: place.reader is not None and place.reader.asked == READ_MOST)
        accepted = await place.say("", FILE, place="another room", who="bob")

        async with asyncio.timeout(5):
            while not only(MediaFetched, await place.events(accepted.session)):
                await asyncio.sleep(0.002)
        assert place.reader.asked == READ_MOST


async def test_waits_do_not_add_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        for number in range(3):
            await place.say(f"file {number}", FILE)
            await place.pass_by(10)
        await place.pass_by(31)
        assert await place.answer() == 1
        await place.pass_by(20)
        assert await place.answer() == 2


async def test_a_wrong_clock_changes_no_wait(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.platform.under_way == 1)
        await place.pass_by(2)
        place.clock.jump(7_200)
        await place.pass_by(48)
        assert await place.notices(accepted.session) == [STILL]
        place.clock.jump(-14_400)
        await place.pass_by(11)

        assert await place.notices(accepted.session) == [STILL, LATE]


async def test_time_in_which_the_process_stood_still_is_not_counted(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.platform.under_way == 1)
        await place.pass_by(50)
        place.clock.stand_still(600)
        await place.look()
        assert await place.notices(accepted.session) == [STILL]
        await place.pass_by(9)
        place.platform.goes_on.set()
        await until(lambda: not place.parts.fetching._tasks)
        assert await place.answer() == 1
        assert await place.notices(accepted.session) == [STILL]


async def test_a_restart_begins_no_wait_anew(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.platform.under_way == 1)
        await place.pass_by(40)
    async with place.process():
        await until(lambda: place.platform.under_way == 1)
        await place.pass_by(15)
        assert await place.answer() == 0
        await place.pass_by(6)

        assert await place.notices(accepted.session) == [STILL, LATE]
        assert await place.answer() == 1


async def test_a_file_is_tried_once_more_after_a_long_night(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.platform.under_way == 1)
    place.clock.advance(36_000)
    async with place.process():
        await until(lambda: place.platform.under_way == 1)
        await place.pass_by(3)
        place.platform.goes_on.set()
        await until(lambda: place.platform.under_way == 0)
        await until(lambda: not place.parts.fetching._tasks)

        assert len(only(MediaFetched, await place.events(accepted.session))) == 1
        assert await place.notices(accepted.session) == []


async def test_a_platform_that_is_not_connected_keeps_no_chat_silent(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        place.parts.outbox._surfaces.named("scripted").is_open = False
        accepted = await place.say("", FILE)
        await place.pass_by(61)

        assert await place.notices(accepted.session) == [STILL, LATE]
        assert place.platform.fetched == []
        assert place.platform.typed == []


async def test_a_reader_that_hangs_keeps_the_file_and_no_chat_silent(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.reader = HangingReader()
    place.platform.goes_on.set()
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.reader is not None and place.reader.asked == 1)
        await place.pass_by(61)

        events = await place.events(accepted.session)
        assert only(MediaLost, events) == []
        (fetched,) = only(MediaFetched, events)
        assert await place.store.media.read(fetched.media) == b"hello"
        still, late = await place.notices(accepted.session)
        assert "is still being read" in still
        assert "could not be read in time" in late
        assert await place.answer() == 1
        assert place.told() == [
            "[attached file: report.txt (text/plain): it could not be read in time; send it again]"
        ]
        assert place.parts.fetching._tasks == {}


async def test_a_stopped_turn_frees_the_slot_of_its_file(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.process():
        accepted = await place.say("", FILE)
        await until(lambda: place.platform.under_way == 1)
        assert accepted.turn is not None
        await place.parts.door.stop(accepted.turn, by=None)
        await place.pass_by(2)

        await until(lambda: place.platform.under_way == 0)
