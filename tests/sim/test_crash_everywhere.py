"""Strike the gateway at every port call, start it again, and check what the world saw.

Survives a strike: the database, the platform, what tools did. Dies: everything else. The
scenario is run once per point: with a strike at its first port call, then at its second, and so on
until a run passes untouched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.checker import violations
from perdure.domain.delivery import Capabilities, PartState
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.events import AssistantSaid
from perdure.domain.ids import PartId, PrincipalId, SessionId
from perdure.domain.updates import Update
from perdure.domain.watching import Delta
from perdure.engine.feed import Feed, Item
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.history import Page
from perdure.store.driver import Driver
from perdure.store.postgres import PostgresDriver
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.agent import CountingTools, ScriptedAgent
from perdure.testkit.crash import Fuse, Fused, FusedAgent, FusedStore, Nemesis, SimulatedCrash
from perdure.testkit.platform import ScriptedPlatform
from perdure.testkit.system import SeededEntropy, VirtualClock

T = TypeVar("T")
POINTS_MAX = 400
KEY, FIND, NEITHER = Capabilities(takes_key=True), Capabilities(can_find=True), Capabilities()
MakeDriver = Callable[[], Driver]
Bury = Callable[[], Awaitable[None]]


class World:
    """What survives."""

    def __init__(self, media: Path, driver: MakeDriver, platform: ScriptedPlatform) -> None:
        self.driver = driver
        self.platform = platform
        self.agent = ScriptedAgent()
        self.tools_ran: list[str] = []
        self.clock = VirtualClock(is_eager=True)
        self.entropy = SeededEntropy()
        self.shown: dict[str, str] = {}
        self._media = media

    def store(self) -> Store:
        return Store(self.driver(), clock=self.clock, entropy=self.entropy, media=self._media)

    def see(self, delta: Delta) -> None:
        """A watcher reads what it is told."""
        seen = self.shown.get(delta.message, "")
        self.shown[delta.message] = seen[: delta.offset] + delta.text


class WatchedFeed(Feed):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def publish(self, session: SessionId, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Delta):
                self._world.see(item)
        super().publish(session, items)


async def live(world: World, fuse: Fuse) -> None:
    """One life: recover, take what the platform offers, work until nothing is left."""
    store = world.store()
    await store.open()
    try:
        async with Supervisor() as supervisor:
            parts = _parts(world, store, fuse, supervisor)
            person = await store.principals.ensure("person", role="member")
            await _recover(store, parts, fuse)
            await _receive(world, parts, person.id)
            await _work_until_rest(world, store, parts)
    except BaseExceptionGroup as group:
        if group.split(SimulatedCrash)[1] is not None:
            raise
    finally:
        await store.close()


def _parts(world: World, store: Store, fuse: Fuse, supervisor: Supervisor) -> Parts:
    fused: Store = FusedStore(store, fuse)  # type: ignore[assignment]
    platform = Fused(world.platform, fuse)
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
        adapters={"scripted": platform},
    )
    return put_together(around, supervisor.start, feed=WatchedFeed(world))


async def _recover(store: Store, parts: Parts, fuse: Fuse) -> None:
    await _patiently(partial(Fused(store.nodes, fuse).join, name="sim"))
    while await _patiently(parts.reaper.step):
        pass
    await _patiently(parts.outbox.recover)


async def _receive(world: World, parts: Parts, person: PrincipalId) -> None:
    """The platform's receiver: acknowledge only what is committed; anything else comes again."""
    for external_id, place, text in list(world.platform.unacknowledged):
        update = Update(
            address=Address(adapter="scripted", account="bot", place=place),
            external_id=external_id,
            kind="message",
            principal=person,
            text=text,
        )
        await _patiently(partial(parts.door.accept, update))
        await world.platform.acknowledge(external_id)


async def _work_until_rest(world: World, store: Store, parts: Parts) -> None:
    for _ in range(50):
        claimed = await _patiently(parts.turns.step)
        await parts.turns.finished()
        sent = await _patiently(parts.outbox.step)
        world.clock.advance(400)
        if not claimed and not sent and await store.outbox.next_due_ms() is None:
            return
    raise AssertionError("the gateway never came to rest")


async def _patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Again after a refusal or a lost answer, as the pumps' own loops do."""
    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


async def broken(world: World) -> list[str]:
    """Every rule that store and world together break, once everything is at rest."""
    store = world.store()
    await store.open()
    try:
        sessions = await store.archive.sessions(principal=None, page=Page(limit=1000))
        records = [await store.diagnostics.record(session.id) for session in sessions]
    finally:
        await store.close()
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    parts = [part for record in records for part in record.parts]
    said: dict[str, str] = {
        recorded.event.message: recorded.event.text
        for record in records
        for recorded in record.events
        if isinstance(recorded.event, AssistantSaid)
    }
    over = (PartState.SENT, PartState.UNKNOWN, PartState.FAILED)
    found += [f"{turn.id} is {turn.state}" for turn in turns if turn.state != "settled"]
    found += [f"{part.id} is {part.state}" for part in parts if part.state not in over]
    found += [f"{turn.id} was never answered" for turn in turns if not _answered(turn.id, parts)]
    found += [f"never acknowledged: {each}" for each in world.platform.unacknowledged]
    if len(turns) != len(world.platform.sent):
        found.append(f"{len(world.platform.sent)} messages gave {len(turns)} turns")
    found += [f"shown twice: {part}" for part in world.platform.repeated()]
    if len(world.tools_ran) != len(set(world.tools_ran)):
        found.append("a tool call ran twice")
    for message, text in world.shown.items():
        if not said.get(message, "").startswith(text):
            found.append(f"{message}: shown {text!r}, stored {said.get(message)!r}")
    return found


def _answered(turn: str, parts: Sequence[object]) -> bool:
    return any(getattr(part, "turn", None) == turn for part in parts)


def say_everything(platform: ScriptedPlatform) -> None:
    platform.say("u1", "room", "hello")
    platform.say("u2", "room", "tool look")
    platform.say("u3", "other", "how are you")


async def strike(
    media: Path, driver: MakeDriver, bury: Bury, platform: ScriptedPlatform, fuse: Fuse
) -> list[str]:
    """One struck life, one in peace, and the verdict."""
    world = World(media, driver, platform)
    say_everything(platform)
    await live(world, fuse)
    await bury()
    await live(world, Fuse())
    return await broken(world)


@pytest.fixture(autouse=True)
async def _quiet_deaths() -> None:
    """Tasks of a dead process die untidily; that is the point."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)


async def _nothing_to_bury() -> None:
    """On SQLite whoever opens the file is alone."""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", list(Nemesis))
@pytest.mark.parametrize("can", [KEY, FIND, NEITHER], ids=["key", "find", "neither"])
async def test_no_instant_breaks_a_promise(
    tmp_path: Path, nemesis: Nemesis, can: Capabilities
) -> None:
    for point in range(POINTS_MAX):
        make = partial(SqliteDriver, tmp_path / f"{point}.db", synchronous="OFF")
        fuse = Fuse(point, nemesis)
        platform = ScriptedPlatform(capabilities=can)
        found = await strike(tmp_path, make, _nothing_to_bury, platform, fuse)
        assert not found, f"{nemesis} at {point}, {fuse.passed[point : point + 1]}: {found}"
        if not fuse.has_struck:
            assert point > 60, "the scenario has lost its points"
            return
    raise AssertionError("the scenario never passed untouched")


async def _expire_leases(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE nodes SET lease_until = 0")
    await connection.close()


async def _empty(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "TRUNCATE nodes, principals, tokens, conversations, sessions, turns, journal, partials,"
        " inbox, outbox, media, searchable"
    )
    await connection.close()


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", list(Nemesis))
async def test_no_tenth_instant_breaks_a_promise_on_postgres(
    tmp_path: Path, postgres_database: str, nemesis: Nemesis
) -> None:
    url = postgres_database
    for point in count(0, 10):
        await _empty(url)
        fuse = Fuse(point, nemesis)
        make = partial(PostgresDriver, url, connections=4)
        bury = partial(_expire_leases, url)
        found = await strike(tmp_path, make, bury, ScriptedPlatform(capabilities=KEY), fuse)
        assert not found, f"{nemesis} at {point}, {fuse.passed[point : point + 1]}: {found}"
        if not fuse.has_struck:
            return


class ForgetfulPlatform(ScriptedPlatform):
    """Can be asked what arrived, and always says that nothing did."""

    async def find(self, key: PartId) -> None:
        return None


async def test_the_harness_catches_a_repeated_reply(tmp_path: Path) -> None:
    """A platform that lies about what arrived makes us repeat ourselves: the checker must see."""
    found: list[str] = []
    for point in range(POINTS_MAX):
        make = partial(SqliteDriver, tmp_path / f"{point}.db", synchronous="OFF")
        fuse = Fuse(point, Nemesis.DIE)
        found += await strike(
            tmp_path, make, _nothing_to_bury, ForgetfulPlatform(capabilities=FIND), fuse
        )
        if not fuse.has_struck:
            break
    assert any("shown twice" in each for each in found)
