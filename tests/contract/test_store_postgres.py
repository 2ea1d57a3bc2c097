"""Checks what several nodes on one PostgreSQL can do to each other between two statements.

Each test holds one transaction open at the worst moment, waits until another node's operation waits
for it, and commits.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg
import msgspec
import pytest

from perdure.domain.errors import Conflict, Transient
from perdure.domain.journal.events import Attachment, AttemptInterrupted
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.operations.nodes import LEASE_MS
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    flush,
    message,
    only,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

T = TypeVar("T")


@pytest.fixture
async def nodes(postgres_database: str, tmp_path: Path) -> AsyncIterator[list[Store]]:
    clock, entropy = VirtualClock(), SeededEntropy()
    nodes = [
        Store(PostgresDriver(postgres_database), clock=clock, entropy=entropy, media=tmp_path)
        for _ in range(2)
    ]
    for node in nodes:
        await node.open()
        await node.nodes.join(name="n")
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.close()


@pytest.fixture
async def rival(postgres_database: str) -> AsyncIterator[asyncpg.Connection]:
    """Provide a connection whose transaction the test holds open."""
    connection = await asyncpg.connect(postgres_database)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def carol(nodes: list[Store]) -> Person:
    principal = await nodes[0].principals.ensure("carol", role="member")
    return Person(nodes[0], principal.id)


@asynccontextmanager
async def holding(
    rival: asyncpg.Connection, work: Awaitable[T], sql: str, *values: object
) -> AsyncIterator["asyncio.Future[T]"]:
    """Run `sql` in an open transaction, start `work` and wait until it is blocked. Commit at the
    end."""
    transaction = rival.transaction()
    await transaction.start()
    await rival.execute(sql, *values)
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(10):
        while not task.done() and not await _is_waited_for(rival):
            pass  # each look is a round trip, and lets the other task run
    assert not task.done(), "it should have waited"
    await transaction.commit()
    yield task


async def _is_waited_for(rival: asyncpg.Connection) -> bool:
    return bool(
        await rival.fetchval(
            """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database()
                 AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"""
        )
    )


async def test_a_message_that_meets_a_suspension_opens_a_fresh_session(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    first = await carol.says("first")
    await settle(nodes[0], await claim_one(nodes[0]))
    update = message(carol.id, "second", external_id="second")
    accept = nodes[1].inbox.accept(update, queue_max=9)

    sql = "UPDATE sessions SET state = 'suspended' WHERE id = $1"
    async with holding(rival, accept, sql, first.session) as accepting:
        second = await accepting

    assert second.session != first.session
    assert (await claim_one(nodes[0])).lease.turn == second.turn


async def test_a_stop_that_waited_for_a_settlement_finds_it_finished(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    accepted = await carol.says()
    claimed = await claim_one(nodes[0])
    await flush(nodes[0], claimed.lease, "half")
    stop = nodes[1].inbox.stop(turn_of(accepted), by=None)

    async with holding(
        rival, stop, "SELECT id FROM sessions WHERE id = $1 FOR NO KEY UPDATE", accepted.session
    ) as stopping:
        settled = await asyncio.gather(
            settle(nodes[0], claimed, "half and half"), stopping, return_exceptions=True
        )

    assert sum(isinstance(result, list) for result in settled) == 1
    assert sum(isinstance(result, Conflict) for result in settled) == 1
    await assert_sound(nodes[0], accepted.session)


async def test_a_refusal_that_is_no_longer_awaited_is_nobodys_news(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    # The write goes on after its caller is cancelled. The loop must not log its failure as an
    # exception that was never retrieved.
    accepted = await carol.says()
    claimed = await claim_one(nodes[0])
    async with rival.transaction(), asyncio.timeout(10):
        await rival.execute("UPDATE sessions SET epoch = epoch + 1 WHERE id = $1", accepted.session)
        settling = asyncio.create_task(settle(nodes[0], claimed))
        while not await _is_waited_for(rival):
            pass
        settling.cancel()
        await asyncio.wait({settling})
    await nodes[0].close()

    assert settling.cancelled()
    gc.collect()


async def test_a_server_that_only_reads_is_waited_for(
    nodes: list[Store], rival: asyncpg.Connection
) -> None:
    # A stand-by server refuses writes in the same way until it has taken over.
    alter = f'ALTER DATABASE "{await rival.fetchval("SELECT current_database()")}"'
    await rival.execute(f"{alter} SET default_transaction_read_only = on")
    try:
        await rival.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for _ in range(3):  # the first may meet a connection that was cut
            with pytest.raises(Transient):
                await nodes[0].nodes.beat()
    finally:
        await rival.execute(f"{alter} RESET default_transaction_read_only")


async def test_a_lease_that_ran_out_is_not_revived(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    accepted = await carol.says()
    claimed = await claim_one(nodes[0])
    await rival.execute("UPDATE nodes SET lease_until = 0 WHERE id = $1", nodes[0].node)

    assert not await nodes[0].nodes.beat()
    assert await nodes[1].nodes.beat()

    ended = await nodes[1].nodes.reap(attempts_max=3, limit=10)
    assert [e.turn for e in only(AttemptInterrupted, ended)] == [accepted.turn]
    assert await flush(nodes[0], claimed.lease, "from the grave") == [claimed.lease]
    await assert_sound(nodes[1], accepted.session)


async def test_a_node_that_was_alone_goes_on_after_a_pause_longer_than_its_lease(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    # A machine that sleeps has not crashed: its turns still belong to it.
    await nodes[1].nodes.leave()
    accepted = await carol.says()
    claimed = await claim_one(nodes[0])
    past = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - 60000"
    await rival.execute(f"UPDATE nodes SET lease_until = {past} - 1 WHERE id = $1", nodes[1].node)
    await rival.execute(f"UPDATE nodes SET lease_until = {past} WHERE id = $1", nodes[0].node)

    assert await nodes[0].nodes.beat()

    assert await nodes[0].nodes.reap(attempts_max=3, limit=10) == []
    assert await flush(nodes[0], claimed.lease, "still here") == []
    await assert_sound(nodes[0], accepted.session)


async def test_a_node_never_takes_its_own_work_for_a_dead_ones(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    # After a pause its lease has run out, but its turns, its sending and its fetching are still
    # under way.
    running = await carol.says()
    await claim_one(nodes[0])
    eve = Person(nodes[0], carol.id, adapter="chat", place="room")
    await eve.is_answered("hi", "hello", parts=("hello",))
    (part,) = await nodes[0].outbox.take(adapter="chat", limit=1)
    file = Attachment(reference="r1", name="a.txt")
    sent = message(carol.id, "read this", external_id="f1", place="room", adapter="chat")
    with_file = msgspec.structs.replace(sent, attachments=(file,))
    await nodes[0].inbox.accept(with_file, queue_max=9)
    (fetch,) = await nodes[0].fetches.take(adapters=["chat"], limit=1)
    await rival.execute("UPDATE nodes SET lease_until = 0 WHERE id = $1", nodes[0].node)

    assert await nodes[0].nodes.reap(attempts_max=3, limit=10) == []
    ended = await nodes[1].nodes.reap(attempts_max=3, limit=10)
    assert [each.turn for each in only(AttemptInterrupted, ended)] == [running.turn]
    assert await nodes[0].outbox.stranded(adapter="chat") == []
    assert [each.id for each in await nodes[1].outbox.stranded(adapter="chat")] == [part.id]
    await nodes[0].fetches.recover(attempts_max=5)
    assert await nodes[0].fetches.take(adapters=["chat"], limit=1) == []
    await nodes[1].fetches.recover(attempts_max=5)
    (again,) = await nodes[1].fetches.take(adapters=["chat"], limit=1)
    assert (again.id, again.attempts) == (fetch.id, 2)


async def test_a_lease_is_not_revived_where_another_node_came_and_went(
    nodes: list[Store], rival: asyncpg.Connection
) -> None:
    await rival.execute("UPDATE nodes SET lease_until = 1 WHERE id = $1", nodes[0].node)
    await rival.execute("UPDATE nodes SET lease_until = 2 WHERE id = $1", nodes[1].node)
    await nodes[1].nodes.leave()

    assert not await nodes[0].nodes.beat()


async def test_a_lease_lasts_fifteen_seconds_of_the_servers_clock(
    nodes: list[Store], rival: asyncpg.Connection
) -> None:
    await nodes[0].nodes.beat()

    left_ms = await rival.fetchval(
        """SELECT lease_until - CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)
           FROM nodes WHERE id = $1""",
        nodes[0].node,
    )

    assert 5_000 < left_ms <= 15_000


async def test_both_nodes_accept_and_answer_one_conversation(
    nodes: list[Store], carol: Person
) -> None:
    accepted = await asyncio.gather(
        *(
            nodes[n % 2].inbox.accept(message(carol.id, external_id=f"{n}"), queue_max=99)
            for n in range(12)
        )
    )
    answered = 0
    async with asyncio.timeout(20):
        while answered < 12:
            for node in nodes:
                for claimed in await node.turns.claim(limit=5):
                    await settle(node, claimed)
                    answered += 1

    await assert_sound(nodes[0], *{each.session for each in accepted})


async def test_a_lease_ends_though_the_servers_clock_was_set_back(
    nodes: list[Store], carol: Person, rival: asyncpg.Connection
) -> None:
    # Such a lease would end hours later than one that begins now, although its owner may be gone.
    await carol.says()
    await claim_one(nodes[0])
    await rival.execute("UPDATE nodes SET lease_until = lease_until + 7200000")

    await nodes[1].nodes.reap(attempts_max=3, limit=9)

    left_ms = await rival.fetch(
        "SELECT lease_until - EXTRACT(EPOCH FROM clock_timestamp()) * 1000 FROM nodes"
    )
    assert [left for (left,) in left_ms if left > LEASE_MS] == []
    assert await nodes[0].nodes.beat(), "whoever lives goes on"
