"""A node that lost an answer, its lease or a race goes on working when that is over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous
from perdure.domain.events import AttemptInterrupted
from perdure.domain.ids import PrincipalId
from perdure.domain.records import SessionRecord
from perdure.domain.updates import Accepted, Update
from perdure.engine.desk import Limits
from perdure.engine.feed import Feed
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.adapter import Effect, Receipt
from perdure.store.postgres import PostgresDriver
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.agent import CountingTools, ScriptedAgent
from perdure.testkit.crash import Fuse, FusedStore, Nemesis
from perdure.testkit.platform import ScriptedPlatform
from perdure.testkit.stores import OwnedDatabase
from perdure.testkit.system import SeededEntropy, VirtualClock


def put_up(
    store: Store, platform: ScriptedPlatform, supervisor: Supervisor, *, is_shared: bool = False
) -> Parts:
    seat = Seat(name="main", kind="s", agent=ScriptedAgent(), tools=CountingTools([]))
    around = Surroundings(
        store=store,
        roster=Roster({"main": seat}),
        clock=VirtualClock(is_eager=True),
        entropy=SeededEntropy(),
        limits=Limits(drain_timeout_s=5),
        adapters={platform.name: platform},
        is_shared=is_shared,
    )
    return put_together(around, supervisor.start, feed=Feed())


@asynccontextmanager
async def begun(parts: Parts) -> AsyncIterator[Parts]:
    await parts.gateway.begin(name="sim")
    try:
        yield parts
    finally:
        await parts.gateway.drain()


@asynccontextmanager
async def opened(driver: SqliteDriver | PostgresDriver, media: Path) -> AsyncIterator[Store]:
    clock = VirtualClock(is_eager=True)
    store = Store(driver, clock=clock, entropy=SeededEntropy(), media=media)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def hello(person: PrincipalId, external_id: str) -> Update:
    return Update(
        address=Address(adapter="scripted", account="bot", place="room"),
        external_id=external_id,
        kind="message",
        principal=person,
        text="hello",
    )


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float = 10
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{what} never happened")


async def record_of(store: Store, accepted: Accepted) -> SessionRecord:
    return await store.diagnostics.record(accepted.session)


async def is_answered(store: Store, accepted: Accepted) -> bool:
    """Its turn is done and people have seen everything."""
    record = await record_of(store, accepted)
    outcomes = [turn.outcome for turn in record.turns if turn.id == accepted.turn]
    return outcomes == ["done"] and all(part.state == "sent" for part in record.parts)


async def test_a_message_whose_acceptance_was_not_heard_is_answered(tmp_path: Path) -> None:
    """The sender repeats it, and the repeat must wake whoever has work."""
    driver = SqliteDriver(tmp_path / "p.db", synchronous="OFF")
    async with opened(driver, tmp_path) as store, Supervisor() as supervisor:
        person = (await store.principals.ensure("person", role="member")).id
        fuse = Fuse(1, Nemesis.LOSE_REPLY)
        fused: Store = FusedStore(store, Fuse())  # type: ignore[assignment]
        fused.inbox = FusedStore(store, fuse).inbox
        async with begun(put_up(fused, ScriptedPlatform(), supervisor)) as parts:
            with pytest.raises(Ambiguous):
                await parts.door.accept(hello(person, "u1"))

            again = await parts.door.accept(hello(person, "u1"))

            assert fuse.struck.startswith("after StoredInbox.accept")
            assert again.is_duplicate
            await until(partial(is_answered, store, again), "the answer")


async def test_a_node_that_lost_its_lease_lives_again(
    tmp_path: Path, postgres: OwnedDatabase
) -> None:
    """It slept for too long, alone: it must not take its own turns for a dead one's for ever."""
    driver = PostgresDriver(postgres.url, connections=4)
    async with opened(driver, tmp_path) as store, Supervisor() as supervisor:
        person = (await store.principals.ensure("person", role="member")).id
        parts = put_up(store, ScriptedPlatform(), supervisor, is_shared=True)
        async with begun(parts):
            first = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, first), "the first answer")
            await postgres.bury_all()

            async def lives() -> bool:
                return await postgres.leases() == 1

            await until(lives, "a lease")
            second = await parts.door.accept(hello(person, "u2"))
            await until(partial(is_answered, store, second), "the second answer")

            events = (await record_of(store, second)).events
            assert not [each for each in events if isinstance(each.event, AttemptInterrupted)]


class SlowPlatform(ScriptedPlatform):
    """The first call takes so long that another node has found its message before it returns, and
    the receipts differ."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile: list[Callable[[], Awaitable[object]]] = [meanwhile]
        self._receipts = 0

    async def perform(self, effect: Effect) -> Receipt:
        await super().perform(effect)
        if self._meanwhile:
            await self._meanwhile.pop()()
        self._receipts += 1
        return Receipt(external_id=f"receipt-{self._receipts}")


async def test_a_delivery_that_another_node_finished_stops_no_other(
    tmp_path: Path, postgres: OwnedDatabase
) -> None:
    make = partial(PostgresDriver, postgres.url, connections=4)
    async with opened(make(), tmp_path) as store, Supervisor() as supervisor:

        async def take_over() -> None:
            await postgres.bury_all()
            async with opened(make(), tmp_path) as other:
                await other.nodes.join(name="other")
                await put_up(other, platform, supervisor).outbox.recover()

        platform = SlowPlatform(take_over)
        person = (await store.principals.ensure("person", role="member")).id
        async with begun(put_up(store, platform, supervisor)) as parts:
            first = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, first), "the first answer")

            second = await parts.door.accept(hello(person, "u2"))

            await until(partial(is_answered, store, second), "the second answer")
