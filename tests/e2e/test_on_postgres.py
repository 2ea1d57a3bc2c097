"""Checks the real gateway on PostgreSQL: the same answers, and a crash that another life
repairs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import asyncpg
import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]


@pytest.fixture
async def client(gateway_factory: Factory, postgres_database: str) -> AsyncIterator[Client]:
    gateway = await gateway_factory(toml=f'[store]\nurl = "{postgres_database}"\n')
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def test_a_conversation_is_held_and_found_on_postgres(client: Client) -> None:
    accepted = await client.say("main", "hello database", id="a1")
    assert (await client.settled(accepted["turn"]))["outcome"] == "done"
    assert [entry["role"] for entry in await client.transcript("main")] == ["user", "assistant"]
    _, hits = await client.call("GET", "/api/search?q=database")
    assert hits["hits"][0]["conversation"] == "main"
    assert (await client.say("main", "hello database", id="a1"))["duplicate"] is True


async def test_a_stream_ends_soon_after_another_node_has_revoked_its_token(
    client: Client, gateway_factory: Factory, postgres_database: str
) -> None:
    toml = f'[store]\nurl = "{postgres_database}"\n'
    other = Client(await gateway_factory(toml=toml, name="other"), client.session)
    status, made = await other.call("POST", "/api/tokens", body={"name": "bob"})
    assert status == 201
    client.token = made["token"]
    await client.say("main", "hello")
    async with client.events("main") as events:
        await anext(events)
        assert (await other.call("DELETE", f"/api/tokens/{made['id']}"))[0] == 200

        async with asyncio.timeout(10):
            with pytest.raises(aiohttp.ClientError):
                async for _ in events:
                    pass


async def test_a_kill_is_mended_once_the_lease_has_run_out(
    client: Client, postgres_database: str
) -> None:
    accepted = await client.say("main", "demo words=40 delay_ms=50")
    async with client.events("main") as events:
        async for _, kind, _data in events:
            if kind == "delta":
                break
    await client.gateway.kill()
    connection = await asyncpg.connect(postgres_database)
    await connection.execute("UPDATE nodes SET lease_until = 0")
    await connection.close()
    await client.gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)
