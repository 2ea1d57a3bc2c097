"""Kill the gateway at every port call, start it again, and check what the world saw.

Survives a crash: the database, the platform, what tools did. Dies: everything else.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.checker import violations
from perdure.domain.delivery import Capabilities, PartState
from perdure.domain.ids import PrincipalId
from perdure.domain.updates import Update
from perdure.domain.watching import Delta
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.history import Page
from perdure.store.driver import Driver
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

LIVES_MAX = 400


class World:
    """What survives."""

    def __init__(self, path: Path, capabilities: Capabilities) -> None:
        self.path = path
        self.platform = ScriptedPlatform(capabilities=capabilities)
        self.tools_ran: list[str] = []
        self.agent = ScriptedAgent()
        self.clock = VirtualClock()
        self.entropy = SeededEntropy(1)
        self.shown: dict[str, str] = {}
        self.principal: PrincipalId = PrincipalId("")

    def driver(self) -> Driver:
        return SqliteDriver(self.path / "perdure.db", synchronous="OFF")

    def store(self, driver: Driver) -> Store:
        return Store(driver, clock=self.clock, entropy=self.entropy, media=self.path / "media")

    def say_everything(self) -> None:
        self.platform.say("u1", "room", "hello")
        self.platform.say("u2", "room", "tool look")
        self.platform.say("u3", "other", "how are you")


async def live(world: World, fuse: Fuse) -> None:
    """One life: recover, take what the platform offers, work until nothing is left."""
    store = world.store(world.driver())
    await store.open()
    try:
        async with Supervisor() as supervisor:
            parts = _parts(world, store, fuse, supervisor)
            await _work(world, store, parts, fuse)
    except BaseExceptionGroup as group:
        if group.split(SimulatedCrash)[1] is not None:
            raise
    except SimulatedCrash:
        pass
    finally:
        await store.close()


def _parts(world: World, store: Store, fuse: Fuse, supervisor: Supervisor) -> Parts:
    fused: Store = FusedStore(store, fuse)  # type: ignore[assignment]
    seat = Seat(
        name="main",
        kind="scripted",
        agent=FusedAgent(world.agent, fuse),
        tools=CountingTools(world.tools_ran),
    )
    around = Surroundings(
        store=fused,
        roster=Roster({"main": seat}),
        clock=world.clock,
        entropy=world.entropy,
        adapters={"scripted": Fused(world.platform, fuse)},  # type: ignore[dict-item]
    )
    return put_together(around, supervisor.start)


async def _work(world: World, store: Store, parts: Parts, fuse: Fuse) -> None:
    person = await store.principals.ensure("person", role="member")
    world.principal = person.id
    parts.feed.publish = _recording(world, parts.feed.publish)  # type: ignore[method-assign]
    await _patiently(partial(parts.gateway._nodes.join, name="sim"), fuse)
    while await _patiently(parts.reaper.step, fuse):
        pass
    await _patiently(parts.outbox.recover, fuse)
    for update, place, text in list(world.platform.unacknowledged):
        await _deliver(world, parts, fuse, update, place, text)
    for _ in range(200):
        busy = await _patiently(parts.turns.step, fuse)
        await parts.turns.finished()
        busy = await _patiently(parts.outbox.step, fuse) or busy
        world.clock.advance(400)
        due = await store.outbox.next_due_ms()
        if not busy and due is None:
            return
    raise AssertionError("the gateway never came to rest")


def _recording(world: World, publish):  # type: ignore[no-untyped-def]
    def publish_and_record(session, items):  # type: ignore[no-untyped-def]
        for item in items:
            if isinstance(item, Delta):
                seen = world.shown.get(item.message, "")
                world.shown[item.message] = seen[: item.offset] + item.text
        publish(session, items)

    return publish_and_record


async def _deliver(
    world: World, parts: Parts, fuse: Fuse, update: str, place: str, text: str
) -> None:
    """The platform's receiver: acknowledge only what is committed; anything else comes again."""
    accept = Update(
        address=Address(adapter="scripted", account="bot", place=place),
        external_id=update,
        kind="message",
        principal=world.principal,
        text=text,
    )

    async def once() -> None:
        await parts.door.accept(accept)
        await world.platform.acknowledge(update)

    await _patiently(once, fuse)


async def _patiently(step, fuse: Fuse):  # type: ignore[no-untyped-def]
    """Do it again after a refusal or a lost answer, as the pumps' own loops do."""
    from perdure.domain.errors import Ambiguous, Transient

    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


async def broken(world: World) -> list[str]:
    """Every rule that the world and the store together break, once everything is at rest."""
    store = world.store(world.driver())
    await store.open()
    try:
        found: list[str] = []
        texts: dict[str, str] = {}
        turns = 0
        for session in await store.archive.sessions(principal=None, page=Page(limit=1000)):
            record = await store.diagnostics.record(session.id)
            found += violations(record)
            turns += len(record.turns)
            found += [f"{t.id} is {t.state}" for t in record.turns if t.state != "settled"]
            found += [f"{p.id} is {p.state}" for p in record.parts if not _is_over(p.state)]
            for recorded in record.events:
                message = getattr(recorded.event, "message", None)
                text = getattr(recorded.event, "text", None)
                if message and text is not None:
                    texts[message] = text
        platform = world.platform
        if platform.unacknowledged:
            found.append(f"never acknowledged: {platform.unacknowledged}")
        if turns != len(platform.sent):
            found.append(f"{len(platform.sent)} messages were sent and {turns} turns made")
        if platform.repeated():
            found.append(f"shown twice: {platform.repeated()}")
        if len(world.tools_ran) != len(set(world.tools_ran)):
            found.append("a tool call ran twice")
        for message, shown in world.shown.items():
            if not texts.get(message, "").startswith(shown):
                found.append(f"{message}: shown {shown!r}, stored {texts.get(message)!r}")
        return found
    finally:
        await store.close()


def _is_over(state: str) -> bool:
    return state in (PartState.SENT, PartState.UNKNOWN, PartState.FAILED)


async def one_death(
    folder: Path, point: int | None, nemesis: Nemesis, capabilities: Capabilities
) -> tuple[list[str], Fuse]:
    folder.mkdir()
    world = World(folder, capabilities)
    world.say_everything()
    fuse = Fuse(point, nemesis)
    await live(world, fuse)
    await live(world, Fuse())
    return await broken(world), fuse


@pytest.fixture(autouse=True)
async def quiet_deaths() -> AsyncIterator[None]:
    """Tasks of a dead process die untidily; that is the point."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    yield


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nemesis", list(Nemesis))
@pytest.mark.parametrize(
    "capabilities",
    [Capabilities(takes_key=True), Capabilities(can_find=True), Capabilities()],
    ids=["key", "find", "neither"],
)
async def test_no_instant_breaks_a_promise(
    tmp_path: Path, nemesis: Nemesis, capabilities: Capabilities
) -> None:
    for point in range(LIVES_MAX):
        found, fuse = await one_death(tmp_path / str(point), point, nemesis, capabilities)
        assert not found, f"{nemesis} at {point} ({fuse.passed[point : point + 1]}): {found}"
        if not fuse.has_struck:
            assert point > 60, "the scenario has lost its points"
            return
    raise AssertionError("the scenario never passed untouched")
