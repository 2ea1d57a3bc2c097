"""Checks the fetch pump: it retries what may work later, and gives up soon what never will."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.network.public_web import RoutedWeb
from perdure.app.network.web_fetching import WebFetcher
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.content.stickers import Sticker
from perdure.domain.errors import Permanent, Transient
from perdure.domain.ids import SessionId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    MediaFetched,
    MediaLost,
    NoticePosted,
    Recorded,
    StickerDescribed,
)
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import MediaBlock, ModelRequest
from perdure.domain.turn.stream import AgentEvent, AgentFile, AgentText, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.inbound.fetching import ATTEMPTS_MAX, UNREACHABLE_S
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.platform.adapter import ACCOUNT_WAIT
from perdure.ports.records.media import FOR_SENDER, UNREACHABLE
from perdure.store.store import Store
from perdure.testkit.processes.file_server import FileServer
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import admitted, only
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

FILE = Attachment(reference="r1", name="report.txt")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


class MoodyPlatform(ScriptedPlatform):
    """Raises each of its `moods` once before it gives a file."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: list[Exception] = []
        self.held = {"r1": b"hello", "r2": PNG}
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        self.fetched.append(reference)
        if self.moods:
            raise self.moods.pop(0)
        yield self.held[reference][:2]
        await self.hangs.wait()
        yield self.held[reference][2:]


def gives_files(request: ModelRequest) -> Sequence[AgentEvent]:
    return [
        AgentText("Here "),
        AgentFile(name="plan.txt", mime="text/plain", data=b"the plan"),
        AgentText("and "),
        AgentText("more."),
        AgentFile(name="large.bin", mime="", data=bytes(2_000)),
        Stopped(reason=StopReason.STOP),
    ]


def address_of_nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}/report.pdf"


class Place:
    """Runs one process with a platform."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(is_eager=True)
        self.platform = MoodyPlatform()
        self.agent = ScriptedAgent()
        self.backend = Backend(name="main", kind="s", agent=self.agent, tools=CountingTools([]))
        self.roster = Roster({"main": self.backend})
        self.store = Store(
            sqlite_on(folder / "perdure.db"),
            clock=self.clock,
            entropy=SeededEntropy(),
            media=folder / "media",
        )
        self.parts: NodeParts
        self._updates = 0

    async def begin(self, supervisor: Supervisor) -> None:
        await self.store.open()
        self.parts = compose_node(
            NodeDependencies(
                store=self.store,
                roster=self.roster,
                clock=self.clock,
                entropy=SeededEntropy(7),
                limits=Limits(media_bytes=1_000, drain_timeout_s=0),
                adapters={"scripted": self.platform},
                sources={"scripted": self.platform},
                web=WebFetcher(RoutedWeb(with_private=True)),
            ),
            supervisor.start,
            feed=Feed(),
        )
        await self.store.nodes.join(name="test")

    async def say(self, text: str, *attachments: Attachment) -> Accepted:
        person = await admitted(self.store, "ada")
        self._updates += 1
        update = Update(
            address=Address(adapter="scripted", account="bot", place="room"),
            external_id=f"u{self._updates}",
            kind=UpdateKind.MESSAGE,
            principal=person,
            text=text,
            attachments=attachments,
        )
        return await self.parts.door.accept(update)

    async def rest(self) -> None:
        """Step the pumps until nothing is left. Time passes only where a fetch waits for it."""
        for _ in range(30):
            fetched = await self.parts.fetching.step()
            claimed = await self.parts.turns.step()
            await self.parts.turns.finished()
            sent = await self.parts.outbox.step()
            due_ms = await self.store.fetches.next_due_ms()
            if due_ms is not None and not fetched:
                self.clock.advance(max(due_ms - self.clock.now_ms(), 0) / 1000)
            elif not (fetched or claimed or sent):
                return
        raise AssertionError("it never came to rest")

    async def events(self, session: SessionId) -> tuple[Recorded, ...]:
        record = await self.store.diagnostics.record(session)
        assert violations(record) == []
        return record.events


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    async with Supervisor() as supervisor:
        await place.begin(supervisor)
        try:
            yield place
        finally:
            await place.parts.gateway.drain()
    await place.store.close()


async def test_a_passing_failure_is_waited_out(place: Place) -> None:
    place.platform.moods = [
        Transient("busy"),
        Transient("busy", retry_after_s=30),
        RuntimeError("a bug of an adapter"),
    ]
    began_ms = place.clock.now_ms()

    accepted = await place.say("read this", FILE)
    await place.rest()

    events = await place.events(accepted.session)
    (fetched,) = only(MediaFetched, events)
    assert (fetched.text, fetched.mime) == ("hello", "text/plain")
    assert len(place.platform.fetched) == 4
    assert place.clock.now_ms() - began_ms >= 31_000
    (asked,) = place.agent.requests
    assert [b.attachment.text for b in asked.messages[-1].blocks if isinstance(b, MediaBlock)] == [
        "hello"
    ]


async def test_patience_ends(place: Place) -> None:
    place.platform.moods = [Transient("10.0.0.7 is down") for _ in range(20)]

    accepted = await place.say("read this", FILE)
    later = await place.say("and this")
    await place.rest()

    events = await place.events(accepted.session)
    assert len(place.platform.fetched) == ATTEMPTS_MAX
    (lost,) = only(MediaLost, events)
    assert "did not give it out" in lost.reason
    assert "10.0.0.7" not in str(events)
    slow, notice = only(NoticePosted, events)
    assert "still being fetched" in slow.text
    assert notice.text in [shown.text for shown in place.platform.visible]
    for accepted_turn in (accepted.turn, later.turn):
        assert accepted_turn is not None
        turn = await place.store.archive.turn(accepted_turn, principal=None)
        assert turn.outcome == Outcome.DONE


async def test_an_address_at_which_nobody_answers_is_given_up_soon(place: Place) -> None:
    began_ms = place.clock.now_ms()

    accepted = await place.say("read this", Attachment(url=address_of_nobody()))
    await place.rest()

    assert 1_000 <= place.clock.now_ms() - began_ms <= UNREACHABLE_S * 1000
    (lost,) = only(MediaLost, await place.events(accepted.session))
    assert "cannot be reached" in lost.reason
    assert accepted.turn is not None
    turn = await place.store.archive.turn(accepted.turn, principal=None)
    assert turn.outcome == Outcome.DONE


async def test_what_had_to_wait_for_others_is_not_tried_only_once(place: Place) -> None:
    accepted = await place.say("read this", Attachment(url=address_of_nobody()))
    place.clock.advance(60)

    assert await place.parts.fetching.step()
    assert only(MediaLost, await place.events(accepted.session)) == []
    await place.rest()
    assert len(only(MediaLost, await place.events(accepted.session))) == 1


async def test_others_are_waited_for_as_long_as_ever(place: Place) -> None:
    place.platform.moods = [Transient("down", code=UNREACHABLE) for _ in range(20)]
    async with FileServer() as server:
        server.statuses["/a.txt"] = 503
        await place.say("", FILE, Attachment(url=f"{server.url}/a.txt"))
        await place.rest()

        assert len(place.platform.fetched) == len(server.asked) == ATTEMPTS_MAX


async def test_what_a_platform_says_to_the_sender_is_told(place: Place) -> None:
    place.platform.moods = [Permanent("bots get at most 20 MB", code=FOR_SENDER)]
    accepted = await place.say("", FILE)
    await place.rest()

    (lost,) = only(MediaLost, await place.events(accepted.session))
    assert lost.reason == "bots get at most 20 MB"


async def test_what_never_works_is_not_tried_again(place: Place) -> None:
    place.platform.moods = [Permanent("http://10.0.0.7/files/r1 is gone")]
    accepted = await place.say("", FILE)
    await place.rest()

    assert place.platform.fetched == ["r1"]
    (lost,) = only(MediaLost, await place.events(accepted.session))
    assert lost.reason == "the platform did not give it out; send it again"


async def test_a_chat_is_not_told_where_files_are_stored(place: Place) -> None:
    place.store.media._folder.write_text("a file where the folder should be")
    accepted = await place.say("", FILE)
    await place.rest()

    events = await place.events(accepted.session)
    (lost,) = only(MediaLost, events)
    assert lost.reason.startswith("this gateway cannot store files now; tell its operator")
    assert str(place.store.media._folder) not in str(events)


async def test_what_is_too_large_is_not_kept(place: Place) -> None:
    place.platform.held["r1"] = bytes(5_000)
    told = await place.say("", Attachment(reference="r1", size=5_000))
    await place.rest()
    assert place.platform.fetched == [], "the platform has said how large it is"
    lied = await place.say("", Attachment(reference="r1", size=5))
    await place.rest()

    lost = only(MediaLost, await place.events(told.session))
    assert told.session == lied.session
    assert ["larger than 1,000 bytes" in each.reason for each in lost] == [True, True]


async def test_a_platform_that_is_not_connected_is_not_asked(place: Place) -> None:
    accepted = await place.say("", FILE)
    sources = place.parts.fetching._sources
    surface = place.parts.outbox._surfaces.named("scripted")
    surface.is_open = False
    assert not sources.is_open("scripted")

    assert not await place.parts.fetching.step()
    place.clock.advance(61)
    await place.rest()

    (lost,) = only(MediaLost, await place.events(accepted.session))
    assert "in time" in lost.reason


@pytest.mark.parametrize("code", ["rate_limited", ACCOUNT_WAIT])
async def test_a_wait_that_files_meet_is_kept(place: Place, code: str) -> None:
    # Other files of the account wait as well, and if the wait is for the whole account, so does
    # every message. A wait for files alone delays no message.
    place.platform.moods = [Transient("slow down", retry_after_s=20, code=code)]
    await place.say("", FILE)
    await place.parts.fetching.step()
    surface = place.parts.outbox._surfaces.named("scripted")
    assert surface.pacer.held_s("room") == (20 if code == ACCOUNT_WAIT else 0)
    known = await place.store.pacing.lately(adapter="scripted", within_s=60)
    assert [hold.left_s for hold in known.holds] == [20], "the next process keeps it too"

    accepted = await place.say("", Attachment(reference="r2", name="a.png"))
    await place.parts.fetching.step()
    assert place.platform.fetched == ["r1"], "it is not over"

    place.clock.advance(20)
    await place.rest()
    assert sorted(place.platform.fetched) == ["r1", "r1", "r2"]
    assert only(MediaLost, await place.events(accepted.session)) == []


async def test_a_file_is_not_asked_for_during_a_wait_of_the_account(place: Place) -> None:
    surface = place.parts.outbox._surfaces.named("scripted")
    wait = Transient("slow down", retry_after_s=20, code=ACCOUNT_WAIT)
    await surface.heed(wait, "elsewhere")
    accepted = await place.say("", FILE)
    await place.parts.fetching.step()
    assert place.platform.fetched == []

    place.clock.advance(20)
    await place.rest()
    assert place.platform.fetched == ["r1"]
    assert only(MediaLost, await place.events(accepted.session)) == []


async def test_a_picture_is_seen_by_those_who_see(place: Place) -> None:
    await place.say("look", Attachment(reference="r2", name="a.png", mime="image/jpeg"))
    await place.rest()

    (request,) = place.agent.requests
    (block,) = [b for b in request.messages[-1].blocks if isinstance(b, MediaBlock)]
    assert (block.data, block.attachment.mime) == (PNG, "image/png")


STICKER = Attachment(
    reference="r2", mime="image/png", sticker=Sticker(id="s1", emoji="🙂", set_name="Cats")
)


async def test_an_agent_that_does_not_see_is_told_a_stickers_emoji_and_set(place: Place) -> None:
    place.backend = msgspec.structs.replace(place.backend, has_vision=False)
    await place.roster.replace({"main": place.backend})
    accepted = await place.say("", STICKER)
    await place.rest()

    (request,) = place.agent.requests
    (block,) = [b for b in request.messages[-1].blocks if isinstance(b, MediaBlock)]
    assert in_words(block.attachment) == "[sticker; emoji 🙂, set Cats]"
    assert place.platform.fetched == [], "nobody would look at the picture"
    assert only(NoticePosted, await place.events(accepted.session)) == []


async def test_a_sticker_is_not_waited_for_where_its_platform_is_away(place: Place) -> None:
    accepted = await place.say("", STICKER)
    place.parts.outbox._surfaces.named("scripted").is_open = False
    assert not await place.parts.fetching.step()
    place.clock.advance(61)
    assert await place.parts.fetching.step()

    assert await place.parts.turns.step()
    (untold,) = only(StickerDescribed, await place.events(accepted.session))
    assert untold.words == ""


async def test_what_is_no_picture_is_not_described(place: Place) -> None:
    await place.say("", msgspec.structs.replace(STICKER, reference="r1"))
    await place.rest()
    assert [request.purpose for request in place.agent.requests] == [""]


async def test_a_drain_lets_go_of_what_is_under_way(place: Place) -> None:
    place.platform.hangs.clear()
    async with Supervisor() as supervisor:
        await place.say("", FILE)
        pump = place.parts.fetching
        pump._start = supervisor.start
        supervisor.start(pump.run(), name="pump")
        async with asyncio.timeout(5):
            while not place.platform.fetched:
                await asyncio.sleep(0.001)
        await pump.finish()

    assert await place.store.fetches.next_due_ms() is not None, "it is free for the next owner"
    media = place.store.media
    assert sum([await media.sweep(shard) for shard in range(256)]) == 0


async def test_files_that_an_agent_gives_stand_where_they_came(place: Place) -> None:
    place.agent._rule = gives_files
    place.platform.can = type(place.platform.can)(takes_key=True, upload_bytes_max=10_000)

    accepted = await place.say("plan something")
    await place.rest()

    said = only(AssistantSaid, await place.events(accepted.session))
    assert [(each.text, [a.name for a in each.attachments]) for each in said] == [
        ("Here ", ["plan.txt"]),
        ("and more.\n\n(The file large.bin was not kept: it is over 1,000 bytes.)", []),
    ]
    (sent,) = place.platform.files
    assert (sent.name, sent.mime, sent.data) == ("plan.txt", "text/plain", b"the plan")
    place.agent._rule = lambda request: [AgentText("yes"), Stopped(reason=StopReason.STOP)]
    await place.say("do you remember?")
    await place.rest()
    history = b"".join(place.agent.requests[-1].history).decode() + repr(
        place.agent.requests[-1].messages
    )
    assert "[sent the file plan.txt (text/plain)]" in history


async def test_a_file_where_none_can_be_sent_is_named(place: Place) -> None:
    place.agent._rule = lambda request: [
        AgentFile(name="plan.txt", mime="text/plain", data=b"the plan"),
        Stopped(reason=StopReason.STOP),
    ]
    await place.say("plan something")
    await place.rest()

    assert place.platform.files == []
    assert "plan.txt" in place.platform.visible[-1].text
    assert not any("answered nothing" in shown.text for shown in place.platform.visible)


async def test_a_file_that_cannot_be_stored_holds_no_answer_up(place: Place) -> None:
    place.agent._rule = gives_files
    place.store.media._folder.write_text("a file where the folder should be")
    accepted = await place.say("plan something")
    await place.rest()

    (said,) = only(AssistantSaid, await place.events(accepted.session))
    assert "(The file plan.txt was not kept: this gateway cannot store files now.)" in said.text


async def test_an_errand_brings_its_files_back(place: Place) -> None:
    place.agent._rule = gives_files
    place.platform.can = type(place.platform.can)(takes_key=True, upload_bytes_max=10_000)

    await place.say("/background plan something")
    await place.rest()

    assert [file.name for file in place.platform.files] == ["plan.txt"]
    assert any("In the background: plan" in shown.text for shown in place.platform.visible)
