"""Checks that a failure beside a delivery delays no other, loses nothing and repeats nothing.

The tests run whole engines on both databases, with platforms that hang, break or forget, and stores
whose answers are lost.
"""

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import asyncpg
import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.config.loading import Config
from perdure.app.life.node import running_node
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, DeliveryStep, Display, Pace, PartState, Streaming
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.ids import PartId, PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import AssistantSaid, NoticePosted
from perdure.domain.journal.records import PartView
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import NodeRequest, StopReason
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.announcing import Drain
from perdure.domain.turn.endings import STOPPED_MARK
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.engine.delivery import outbox, surfaces
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.outbox import Part
from perdure.ports.platform.adapter import Effect, Post, Preview, Receipt, Sought
from perdure.ports.turns.agent import Work
from perdure.ports.turns.wakes import Topic
from perdure.store.drivers.driver import Driver
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.operations.delivery.notices import notice
from perdure.store.store import Store
from perdure.testkit.contract.pacing import RememberedPacing
from perdure.testkit.contract.receiver import ScriptedReceiver
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import Person, admitted
from perdure.testkit.simulator.system import SeededEntropy

NAME = "scripted"
DEADLINE_S = 10.0
PLAIN = Capabilities()
KEYED = Capabilities(takes_key=True)
GROWING = Capabilities(
    takes_key=True,
    can_edit=True,
    can_delete=True,
    streaming=Streaming.EDIT,
    pace=Pace(preview_s=0.02),
)
# Shows the first words, and no later ones while a test lasts.
SLUGGISH = msgspec.structs.replace(GROWING, pace=Pace(preview_s=60))
MOVING = (PartState.PENDING, PartState.ATTEMPTING)


class Talker(ScriptedAgent):
    """Says `text` in pieces, and goes on after each while `go_on` is set."""

    def __init__(self, text: str = "hello", *, piece: int = 40, pause_s: float = 0) -> None:
        super().__init__()
        self._text = text
        self._piece = piece
        self._pause_s = pause_s
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.said = 0

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        for start in range(0, len(self._text), self._piece):
            yield AgentText(self._text[start : start + self._piece])
            self.said = start + self._piece
            await asyncio.sleep(self._pause_s)
            await self.go_on.wait()
        yield Stopped(reason=StopReason.STOP)


ROOM = Address(adapter=NAME, account="bot", place="room")


def written(text: str, person: PrincipalId, name: str, address: Address = ROOM) -> Update:
    return Update(
        address=address,
        external_id=name,
        kind=UpdateKind.MESSAGE,
        principal=person,
        text=text,
        place_kind="private",
    )


class Node:
    """Runs one process that a person talks to."""

    def __init__(self, store: Store, parts: NodeParts, person: PrincipalId) -> None:
        self.store = store
        self.parts = parts
        self._person = person
        self._said = 0

    async def hears(self, text: str, *, place: str = "room", adapter: str = NAME) -> Accepted:
        self._said += 1
        name = f"{self.store.node}/{self._said}"
        address = Address(adapter=adapter, account="bot", place=place)
        return await self.parts.door.accept(written(text, self._person, name, address))

    async def parts_of(self, accepted: Accepted) -> list[PartView]:
        return list((await self.store.diagnostics.record(accepted.session)).parts)

    async def delivered(self, accepted: Accepted, *, seconds: float = DEADLINE_S) -> list[PartView]:
        async def is_over() -> bool:
            record = await self.store.diagnostics.record(accepted.session)
            is_settled = all(turn.outcome for turn in record.turns)
            return is_settled and all(part.state not in MOVING for part in record.parts)

        await until(is_over, "everything to be delivered", seconds=seconds)
        return await self.parts_of(accepted)

    async def kept(self, accepted: Accepted) -> str:
        """Return the words of this turn that the journal holds."""
        record = await self.store.diagnostics.record(accepted.session)
        said = [
            each.event.text
            for each in record.events
            if isinstance(each.event, AssistantSaid) and each.turn == accepted.turn
        ]
        return "".join(said).strip()


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float = DEADLINE_S
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {seconds} s for {what}")


async def until_so(is_so: Callable[[], bool], what: str, *, seconds: float = DEADLINE_S) -> None:
    async def look() -> bool:
        return is_so()

    await until(look, what, seconds=seconds)


def on_disk(folder: Path) -> SqliteDriver:
    return sqlite_on(folder / "perdure.db")


@asynccontextmanager
async def opened(driver: Driver, folder: Path) -> AsyncIterator[Store]:
    entropy = SeededEntropy(time.monotonic_ns())
    store = Store(driver, clock=SystemClock(), entropy=entropy, media=folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def dependencies(
    store: Store, agent: ScriptedAgent, *platforms: ScriptedPlatform, is_shared: bool = False
) -> NodeDependencies:
    backend = Backend(name="main", kind="s", agent=agent, tools=CountingTools([]))
    return NodeDependencies(
        store=store,
        roster=Roster({"main": backend}),
        clock=SystemClock(),
        entropy=SeededEntropy(time.monotonic_ns()),
        limits=Limits(drain_timeout_s=5),
        adapters={platform.name: platform for platform in platforms},
        is_shared=is_shared,
    )


@asynccontextmanager
async def a_node(
    driver: Driver, folder: Path, agent: ScriptedAgent, *platforms: ScriptedPlatform
) -> AsyncIterator[Node]:
    is_shared = isinstance(driver, PostgresDriver)
    async with opened(driver, folder) as store, Supervisor() as supervisor:
        made = dependencies(store, agent, *platforms, is_shared=is_shared)
        parts = compose_node(made, supervisor.start, feed=Feed())
        await parts.gateway.begin(name="sim")
        person = await admitted(store, "person")
        try:
            yield Node(store, parts, person)
        finally:
            if isinstance(agent, Talker):
                agent.go_on.set()
            await parts.gateway.drain()


async def strand(store: Store, name: str) -> PartId:
    """Let a process take a part and then end without another write."""
    await store.nodes.join(name=name)
    person = await admitted(store, "person")
    eve = Person(store, person, adapter=NAME, place="stranded")
    await eve.is_answered("hi", "left behind", parts=("left behind",))
    (part,) = await store.outbox.take(adapter=NAME, limit=1)
    return part.id


async def state_of(store: Store, part: PartId) -> str:
    return (await store.parked.part(part)).state


async def test_a_read_that_fails_does_not_end_the_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(capabilities=KEYED)
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        await node.delivered(await node.hears("one"))
        read = node.store.outbox.next_due_ms
        failures = [Transient("PostgreSQL cannot be reached")]

        async def fails_at_first() -> int | None:
            if failures:
                raise failures.pop()
            return await read()

        monkeypatch.setattr(node.store.outbox, "next_due_ms", fails_at_first)
        node.parts.wakes.publish(Topic.OUTBOX)
        await until_so(lambda: not failures, "the failure")

        await node.delivered(await node.hears("two"))
    assert [shown.text for shown in platform.visible] == ["hello", "hello"]


class CannotFind(ScriptedPlatform):
    """Raises an unforeseen error when it is asked what it shows."""

    async def find(self, sought: Sought) -> Receipt | None:
        raise KeyError("messages")


async def test_a_search_that_breaks_at_recovery_does_not_end_the_sending(tmp_path: Path) -> None:
    async with opened(on_disk(tmp_path), tmp_path) as store:
        stranded = await strand(store, "dead")
    platform = CannotFind(capabilities=Capabilities(can_find=True))
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        await node.delivered(await node.hears("go"))

        assert await state_of(node.store, stranded) == "unknown", "and somebody can see that"
    assert [shown.text for shown in platform.visible] == ["hello"]


class SearchFails(ScriptedPlatform):
    """Shows what it is given and loses the answer; a later search for it fails."""

    def __init__(self, failure: PerdureError) -> None:
        super().__init__(capabilities=Capabilities(can_find=True))
        self._failure = failure

    async def find(self, sought: Sought) -> Receipt | None:
        raise self._failure


@pytest.mark.parametrize("kind", [Ambiguous, Permanent, Rejected])
async def test_what_could_not_be_looked_for_is_not_sent_again(
    tmp_path: Path, kind: type[PerdureError]
) -> None:
    # This holds for a part that a dead process left, and for one whose answer was lost just now.
    async with opened(on_disk(tmp_path), tmp_path) as store:
        stranded = await strand(store, "dead")
    platform = SearchFails(kind("the search is down"))
    platform.failures = [Ambiguous("no answer")]
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        (part,) = await node.delivered(await node.hears("go"))
        node.parts.wakes.publish(Topic.OUTBOX)
        await node.delivered(await node.hears("and again", place="elsewhere"))

        for unknown in (part.id, stranded):
            view = await node.store.parked.part(PartId(unknown))
            assert (view.state, view.error) == (
                "unknown",
                "nobody could tell whether it arrived: the search is down",
            )
    shown = [(each.place, each.text) for each in platform.shown]
    assert shown == [("room", "hello"), ("elsewhere", "hello")], "the stranded part was not sent"


async def test_what_a_node_left_is_recovered_when_its_lease_runs_out_later(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other node died just before, so its lease is still valid at the first look.
    monkeypatch.setattr(outbox, "RECOVER_S", 0.05)
    make = partial(PostgresDriver, postgres_database, connections=4)
    async with opened(make(), tmp_path) as store:
        stranded = await strand(store, "dead")
    platform = ScriptedPlatform(capabilities=KEYED)
    async with a_node(make(), tmp_path, Talker(), platform) as node:
        await node.delivered(await node.hears("go"))
        assert await state_of(node.store, stranded) == "attempting", "its owner may live"

        connection = await asyncpg.connect(postgres_database)
        await connection.execute("UPDATE nodes SET lease_until = 0 WHERE name = 'dead'")
        await connection.close()

        async def is_sent() -> bool:
            return await state_of(node.store, stranded) == "sent"

        await until(is_sent, "the part to be recovered")
    assert [shown.text for shown in platform.visible] == ["hello", "left behind"]


class OneSlowPlace(ScriptedPlatform):
    """Holds the first call to one place, cannot search and knows no key."""

    def __init__(self) -> None:
        super().__init__(capabilities=PLAIN)
        self.calls = 0
        self.go_on = asyncio.Event()

    async def perform(self, effect: Effect) -> Receipt:
        if effect.address.place == "slow":
            self.calls += 1
            if self.calls == 1:
                await self.go_on.wait()
        return await super().perform(effect)


async def test_a_lost_answer_to_taking_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pump gives back the parts that it does not know of, but not those that it is sending.
    platform = OneSlowPlace()
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        slow = await node.hears("one", place="slow")
        await until_so(lambda: bool(platform.calls), "the call")
        take = node.store.outbox.take
        lost: list[Part] = []

        async def loses_its_first_answer(*, adapter: str, limit: int) -> list[Part]:
            taken = await take(adapter=adapter, limit=limit)
            if taken and not lost:
                lost.extend(taken)
                raise Ambiguous("the disk failed during a commit")
            return taken

        monkeypatch.setattr(node.store.outbox, "take", loses_its_first_answer)
        await node.delivered(await node.hears("two", place="other"))
        assert [part.address.place for part in lost] == ["other"]
        platform.go_on.set()
        await node.delivered(slow)
    assert sorted(shown.place for shown in platform.visible) == ["other", "slow"]
    assert platform.calls == 1


class NoPreview(ScriptedPlatform):
    """Raises an unforeseen error when a bubble is to be shown."""

    async def preview(self, preview: Preview) -> str:
        raise KeyError("ts")


async def test_a_preview_that_breaks_does_not_hold_up_the_final_words(tmp_path: Path) -> None:
    platform = NoPreview(capabilities=GROWING)
    agent = Talker("word " * 40, pause_s=0.02)
    async with a_node(on_disk(tmp_path), tmp_path, agent, platform) as node:
        parts = await node.delivered(await node.hears("go"))

    assert [(part.step, part.state) for part in parts] == [("bubble", "unknown"), ("post", "sent")]
    assert [shown.text.strip() for shown in platform.visible] == [("word " * 40).strip()]


class SlowToSend(ScriptedReceiver):
    """Takes a while for each call, and needs its connection until the call ends."""

    def __init__(self) -> None:
        super().__init__(capabilities=PLAIN)
        self.happened: list[str] = []

    async def perform(self, effect: Effect) -> Receipt:
        self.happened.append("call")
        await asyncio.sleep(0.4)
        if "close" in self.happened:
            raise Ambiguous("the session is closed")
        self.happened.append("answer")
        return await super().perform(effect)

    async def close(self) -> None:
        self.happened.append("close")


async def test_platforms_are_closed_after_the_last_call_has_ended(tmp_path: Path) -> None:
    platform = SlowToSend()
    async with opened(on_disk(tmp_path), tmp_path) as store:
        made = dependencies(store, Talker())
        made = msgspec.structs.replace(made, platforms={NAME: platform})
        person = await admitted(store, "person")
        async with running_node(made, Config()) as running:
            accepted = await running.services.door.accept(written("go", person, "m1"))
            await until_so(lambda: bool(platform.happened), "the call")
        record = await store.diagnostics.record(accepted.session)

    assert platform.happened == ["call", "answer", "close"]
    assert [part.state for part in record.parts] == ["sent"]


async def test_what_is_said_about_a_running_turn_is_shown_at_once(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=GROWING)
    agent = Talker("word " * 60)
    agent.go_on.clear()
    async with a_node(on_disk(tmp_path), tmp_path, agent, platform) as node:
        accepted = await node.hears("go")
        await until_so(lambda: bool(platform.shown), "the bubble")
        told = await node.store.nodes.announce(Policy(), Drain(asked=NodeRequest.RESTART))
        notice = told[0].event
        assert isinstance(notice, NoticePosted)
        node.parts.wakes.publish(Topic.OUTBOX)
        status = await node.hears("/status")

        def has_both() -> bool:
            texts = [shown.text for shown in platform.visible]
            return notice.text in texts and status.reply in texts

        await until_so(has_both, "the notice and the reply", seconds=5)
        assert node.parts.turns.running == 1
        agent.go_on.set()
        await node.delivered(accepted, seconds=5)
    assert platform.visible[0].text.strip() == ("word " * 60).strip()


class Strict(ScriptedPlatform):
    """Refuses what is too long, and remembers every post."""

    def __init__(self) -> None:
        super().__init__(capabilities=Capabilities(takes_key=True, text_max=120, choices_max=3))
        self.posts: list[Post] = []

    async def perform(self, effect: Effect) -> Receipt:
        assert isinstance(effect, Post)
        if self.size(effect.text) > self.can.text_max:
            raise Permanent("400: message is too long")
        self.posts.append(effect)
        return await super().perform(effect)


MANY_WORDS = " ".join(f"word{number}" for number in range(80))


async def test_a_long_notice_comes_in_pieces_and_its_buttons_with_the_last(tmp_path: Path) -> None:
    platform = Strict()
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        accepted = await node.hears("go")
        await node.delivered(accepted)
        store = node.store
        put = partial(
            notice,
            accepted.session,
            None,
            MANY_WORDS,
            store._mint.stamp(store.node),
            choices=("yes", "no"),
        )
        await store._driver.write(put)
        node.parts.wakes.publish(Topic.OUTBOX)
        parts = await node.delivered(accepted)

    _, *pieces = platform.posts
    assert len(pieces) > 3
    assert " ".join(piece.text for piece in pieces).split() == MANY_WORDS.split()
    assert [piece.choices for piece in pieces] == [*[()] * (len(pieces) - 1), ("yes", "no")]
    assert {part.state for part in parts} == {"sent"}
    assert platform.repeated() == []


async def test_a_long_reply_to_a_command_comes_in_pieces(tmp_path: Path) -> None:
    platform = Strict()
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), platform) as node:
        await node.delivered(await node.hears(MANY_WORDS))
        undone = await node.hears("/undo")
        parts = await node.delivered(undone)

    assert len(undone.reply) > 2 * platform.can.text_max
    _, *pieces = platform.posts
    assert " ".join(piece.text for piece in pieces).split() == undone.reply.split()
    assert "failed" not in {part.state for part in parts}


NUMBERED = "".join(f"w{number} " for number in range(300))


async def cut_short(node: Node, agent: Talker, platform: ScriptedPlatform) -> Accepted:
    """Begin a turn that has said much more than its bubble shows, and hold it."""
    accepted = await node.hears("go")
    await until_so(lambda: bool(platform.shown) and agent.said >= 800, "some words")
    agent.go_on.clear()
    return accepted


async def shows_all(node: Node, accepted: Accepted, platform: ScriptedPlatform) -> None:
    async def is_whole() -> bool:
        kept = await node.kept(accepted)
        return bool(kept) and platform.shown[0].text.split() == [*kept.split(), STOPPED_MARK]

    await until(is_whole, "the bubble to show all that is kept")
    kept = await node.kept(accepted)
    assert NUMBERED.startswith(kept)
    assert len(kept) > 300


async def test_a_new_session_leaves_all_that_is_kept_of_a_growing_answer(tmp_path: Path) -> None:
    platform = ScriptedPlatform(capabilities=SLUGGISH)
    agent = Talker(NUMBERED, pause_s=0.02)
    async with a_node(on_disk(tmp_path), tmp_path, agent, platform) as node:
        accepted = await cut_short(node, agent, platform)
        await node.hears("/new")
        await shows_all(node, accepted, platform)
    assert len([shown for shown in platform.visible if "w0 " in shown.text]) == 1


async def test_a_stop_by_another_node_leaves_all_that_is_kept(
    tmp_path: Path, postgres_database: str
) -> None:
    platform = ScriptedPlatform(capabilities=SLUGGISH)
    agent = Talker(NUMBERED, pause_s=0.02)
    make = partial(PostgresDriver, postgres_database, connections=4)
    async with (
        a_node(make(), tmp_path, agent, platform) as node,
        a_node(make(), tmp_path, Talker(), platform) as other,
    ):
        accepted = await cut_short(node, agent, platform)
        await other.hears("/stop")
        agent.go_on.set()
        await shows_all(node, accepted, platform)
        steps = [part.step for part in await node.parts_of(accepted) if part.turn == accepted.turn]
    assert steps == [DeliveryStep.BUBBLE, DeliveryStep.EDIT]


class Hangs(ScriptedPlatform):
    def __init__(self) -> None:
        super().__init__(name="hung", capabilities=PLAIN)
        self.calls = 0
        self.go_on = asyncio.Event()

    async def perform(self, effect: Effect) -> Receipt:
        self.calls += 1
        await self.go_on.wait()
        return await super().perform(effect)


async def test_a_platform_that_hangs_takes_no_room_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TAKE_MAX", 4)
    hung, fine = Hangs(), ScriptedPlatform(name="fine", capabilities=PLAIN)
    async with a_node(on_disk(tmp_path), tmp_path, Talker(), hung, fine) as node:
        stuck = [await node.hears("go", place=f"r{n}", adapter="hung") for n in range(6)]
        try:
            await until_so(lambda: hung.calls == 4, "no more room for the one that hangs")
            await node.delivered(await node.hears("go", adapter="fine"), seconds=5)
            assert (hung.calls, hung.visible) == (4, [])
        finally:
            hung.go_on.set()  # the drain waits for calls that have begun
        for each in stuck:
            await node.delivered(each)
    assert len(hung.visible) == 6


class TakesTime(ScriptedPlatform):
    async def perform(self, effect: Effect) -> Receipt:
        await asyncio.sleep(0.1)
        return await super().perform(effect)


async def test_the_last_sending_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A supervisor kills what takes too long. What cannot be sent in time waits for the next start.
    monkeypatch.setattr(outbox, "LAST_TAKE", 2)
    platform = TakesTime(capabilities=PLAIN)
    async with opened(on_disk(tmp_path), tmp_path) as store, Supervisor() as supervisor:
        parts = compose_node(dependencies(store, Talker(), platform), supervisor.start, feed=Feed())
        await store.nodes.join(name="sim")
        person = await admitted(store, "person")
        for number in range(60):
            eve = Person(store, person, adapter=NAME, place=f"r{number}")
            await eve.is_answered("hi", "hello", parts=("hello",))

        began = time.monotonic()
        await parts.outbox.finish(0.3)
        took_s = time.monotonic() - began

        left = await store.outbox.take(adapter=NAME, limit=100)
    assert took_s < 1.5
    assert platform.visible
    assert len(platform.visible) + len(left) == 60, "each was sent, or waits"
    assert platform.repeated() == []


async def longest_pause(stop: asyncio.Event) -> float:
    """Return the longest time for which nothing else could run in this loop."""
    longest, before = 0.0, time.perf_counter()
    while not stop.is_set():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


async def planning_s(text: str) -> float:
    """Return how long it takes to decide what of a text may be shown, and where to divide it."""
    platform = ScriptedPlatform(capabilities=GROWING)
    clock = SystemClock()
    surface = surfaces.Surface(platform, Display(), RememberedPacing(clock), clock=clock)
    await surface.plan_bubbles(text[:5_000], ROOM, is_healed=True)  # imports its parser
    began = time.perf_counter()
    await surface.plan_bubbles(text, ROOM, is_healed=True)
    return time.perf_counter() - began


@pytest.fixture
def _tidy_memory() -> Iterator[None]:
    """Freeze what the test process holds, as a gateway does at its start: else the collector would
    look through it during the measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_tidy_memory")
async def test_a_long_answer_that_grows_does_not_hold_the_loop(tmp_path: Path) -> None:
    text = "".join(f"{'  ' * (number % 6)}- item {number}\n" for number in range(6_500))
    assert len(text) > 100_000
    platform = ScriptedPlatform(capabilities=GROWING)
    agent = Talker(text, piece=len(text) // 4, pause_s=0.05)
    needed_s = await planning_s(text)
    over = asyncio.Event()
    async with a_node(on_disk(tmp_path), tmp_path, agent, platform) as node:
        pauses = asyncio.create_task(longest_pause(over))
        accepted = await node.hears("go")

        def has_come() -> bool:
            return bool(platform.shown) and "item 6499" in platform.shown[-1].text

        await until_so(has_come, "the last words", seconds=40)  # reading the record takes long too
        over.set()
        longest_s = await pauses
        await node.delivered(accepted, seconds=40)
    assert longest_s < max(0.1, needed_s / 2), f"one planning took {needed_s:.2f} s"
