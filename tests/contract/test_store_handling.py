"""Checks the `Handling` port, and whether a node knows that the process before it died."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from perdure.domain.address import Address
from perdure.store.drivers.driver import Driver
from perdure.store.store import Store
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
BOT = Address(adapter="chat", account="bot", place="")


async def test_what_was_begun_and_not_ended_is_counted(store: Store, restart: OpenStore) -> None:
    assert await store.handling.begin(BOT, "m1") == 1
    assert await store.handling.begin(BOT, "m2") == 1

    reborn = await restart()

    assert await reborn.handling.begin(BOT, "m1") == 2
    await reborn.handling.end(BOT, "m1")
    assert await reborn.handling.begin(BOT, "m1") == 1
    assert await reborn.handling.begin(BOT, "m2") == 2


async def test_each_account_counts_for_itself(store: Store) -> None:
    other = Address(adapter="chat", account="another", place="")
    await store.handling.begin(BOT, "m1")

    assert await store.handling.begin(other, "m1") == 1


class Database(Protocol):
    """Describes the tests' home of one of the two databases."""

    def driver(self) -> Driver: ...


async def test_a_node_knows_whether_the_one_before_it_died(
    home: Database, clock: VirtualClock, tmp_path: Path
) -> None:
    entropy, found = SeededEntropy(), []
    for is_planned in (False, True, True):
        store = Store(home.driver(), clock=clock, entropy=entropy, media=tmp_path)
        await store.open()
        found.append(await store.nodes.join(name="here"))
        if is_planned:
            await store.nodes.leave(restart_session=None)
        await store.close()

    assert found == [False, True, False]
