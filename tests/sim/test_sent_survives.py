"""What is sent to a place from elsewhere, and what is said in a linked one, with a death, a lost
answer or a refusal at every instant."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.checker import violations
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.updates import Update
from perdure.engine.desk import Limits
from perdure.engine.feed import Feed
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.history import Page
from perdure.ports.places import Sending
from perdure.ports.principals import Principal
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.agent import CountingTools, ScriptedAgent
from perdure.testkit.crash import (
    Fuse,
    Fused,
    FusedAgent,
    FusedStore,
    Nemesis,
    SimulatedCrash,
)
from perdure.testkit.platform import ScriptedPlatform
from perdure.testkit.system import SeededEntropy, VirtualClock

T = TypeVar("T")
POINTS_MAX = 400
pytestmark = pytest.mark.timeout(100)


class World:
    """What survives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True))
        self.agent = ScriptedAgent()
        self.clock = VirtualClock(is_eager=True)
        self.entropy = SeededEntropy()
        self.codes: dict[str, str] = {}

    def store(self) -> Store:
        driver = SqliteDriver(self.folder / "perdure.db", synchronous="OFF")
        return Store(driver, clock=self.clock, entropy=self.entropy, media=self.folder / "media")

    def texts(self, place: str) -> list[str]:
        return [shown.text.strip() for shown in self.platform.shown if shown.place == place]


class Life:
    """One process. Whoever talks to it says everything again until it is acknowledged."""

    def __init__(self, world: World, store: Store, fuse: Fuse, supervisor: Supervisor) -> None:
        self.world = world
        self._store = store
        self._fuse = fuse
        self.parts: Parts = put_together(
            Surroundings(
                store=FusedStore(store, fuse),  # type: ignore[arg-type]
                roster=Roster({"main": self._seat()}),
                clock=world.clock,
                entropy=world.entropy,
                limits=Limits(drain_timeout_s=0),
                adapters={"scripted": Fused(world.platform, fuse)},
            ),
            supervisor.start,
            feed=Feed(),
        )

    def _seat(self) -> Seat:
        agent = FusedAgent(self.world.agent, self._fuse)
        return Seat(name="main", kind="scripted", agent=agent, tools=CountingTools([]))

    async def recover(self) -> None:
        await patiently(partial(Fused(self._store.nodes, self._fuse).join, name="sim"))
        while await patiently(self.parts.reaper.step):
            pass
        await patiently(self.parts.outbox.recover)

    async def say(self, place: str, text: str) -> str:
        """Under an id that is the same in every life."""
        person = await self._store.principals.ensure(f"scripted:{place}", role="member")
        update = Update(
            address=Address(adapter="scripted", account="bot", place=place),
            external_id=f"{place}: {text}",
            kind="message",
            principal=person.id,
            text=text,
            place_kind="private",
        )
        accepted = await patiently(partial(self.parts.door.accept, update))
        return accepted.reply

    async def send(self, to: str, text: str) -> None:
        root: Principal = await self._store.principals.ensure("root", role="operator")
        accounts = {"scripted": "bot"}
        sending = Sending(to=to, text=text, external_id=text, by=root, accounts=accounts)
        await patiently(partial(self.parts.door.send, sending))

    async def rest(self) -> None:
        for _ in range(50):
            claimed = await patiently(self.parts.turns.step)
            await self.parts.turns.finished()
            sent = await patiently(self.parts.outbox.step)
            self.world.clock.advance(400)
            if not claimed and not sent and await self._is_over():
                return
        raise AssertionError("the gateway never came to rest")

    async def _is_over(self) -> bool:
        counts = await self._store.diagnostics.counts()
        return not counts.queued + counts.running + counts.interrupted + counts.outbox_pending


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


Act = Callable[[Life], Awaitable[None]]


async def live(world: World, fuse: Fuse, act: Act) -> None:
    store = world.store()
    await store.open()
    try:
        async with Supervisor() as supervisor:
            life = Life(world, store, fuse, supervisor)
            await life.recover()
            await act(life)
            await life.rest()
    except BaseExceptionGroup as group:
        if group.split(SimulatedCrash)[1] is not None:
            raise
    finally:
        await store.close()


async def send(life: Life) -> None:
    """To one who talks, and to one who never has."""
    await life.say("room", "hello")
    await life.send("scripted:room", "a note")
    await life.say("room", "what was that")
    await life.send("scripted:door", "somebody is at the door")


async def check_sent(world: World) -> None:
    room = world.texts("room")
    assert [text for text in room if text == "a note"] == ["a note"]
    assert room == ["echo: hello", "a note", "echo: what was that"]
    assert world.texts("door") == ["somebody is at the door"]


async def link(life: Life) -> None:
    """A code that was given out before the crash is good after it."""
    await life.say("phone", "hello")
    reply = await life.say("phone", "/link")
    code = reply.split()[3].rstrip(",")
    await life.say("tablet", f"/link {code}")
    await life.say("tablet", "me again")
    await life.rest()  # two conversations do not wait for each other
    await life.say("tablet", "/link off")
    await life.say("tablet", "somebody else")


async def check_linked(world: World) -> None:
    assert [text for text in world.texts("tablet") if text.startswith("echo")] == [
        "echo: me again",
        "echo: somebody else",
    ]
    assert sum("is linked to this conversation" in text for text in world.texts("phone")) == 1
    assert sum("no longer linked" in text for text in world.texts("phone")) == 1
    assert sum(text.startswith("Linked.") for text in world.texts("tablet")) == 1


SCRIPTS = {"send": (send, check_sent), "link": (link, check_linked)}


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_no_instant_loses_or_repeats_it(
    script: str, nemesis: Nemesis, tmp_path: Path
) -> None:
    act, check = SCRIPTS[script]
    every = 1 if nemesis is Nemesis.DIE else 3
    for point in range(0, POINTS_MAX, every):
        folder = tmp_path / str(point)
        folder.mkdir()
        world = World(folder)
        fuse = Fuse(point, nemesis)
        await live(world, fuse, act)
        if not fuse.has_struck:
            assert point > 20, "the points were counted"
            return
        if fuse.is_dead:
            await live(world, Fuse(), act)
        try:
            await check(world)
            assert world.platform.repeated() == []
            await assert_sound(world)
        except AssertionError as error:
            raise AssertionError(f"{nemesis} at {point}, {fuse.struck}") from error
    pytest.fail("the script has more points than are tried")


async def assert_sound(world: World) -> None:
    store = world.store()
    await store.open()
    try:
        page = Page(limit=1000, with_unlisted=True)
        sessions = await store.archive.sessions(principal=None, page=page)
        records = [await store.diagnostics.record(session.id) for session in sessions]
        assert [each for record in records for each in violations(record)] == []
    finally:
        await store.close()
