"""Checks what a node reports when its store fails, and what its log tells of its life."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest

from perdure.testkit.processes.command import Result, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
Factory = Callable[..., Awaitable[GatewayProcess]]


class OwnPostgres(Protocol):
    """Describes the fixture `own_postgres`."""

    url: str

    def crash(self) -> None: ...

    def start(self) -> None: ...

    def frozen(self) -> contextlib.AbstractContextManager[None]: ...


DEADLINE_S = 20.0


def fill(filler: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@contextlib.asynccontextmanager
async def calling(gateway: GatewayProcess) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def perdure(gateway: GatewayProcess, *words: str) -> Result:
    return await run_command(["--home", str(gateway.home), *words], environ=gateway._environ)


async def lines(gateway: GatewayProcess) -> list[dict[str, Any]]:
    shown = await perdure(gateway, "logs", "-n", "1000", "--json")
    return [json.loads(line) for line in shown.out.splitlines()]


async def said(gateway: GatewayProcess, *events: str) -> list[dict[str, Any]]:
    # A thread writes the log, so its lines may come a moment late.
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = [line for line in await lines(gateway) if line["event"] in events]
            if found and found[-1]["event"] == events[-1]:
                return found
            await gateway.pause(0.05)


async def metrics(client: Client) -> dict[str, float]:
    async with client.session.get(f"{client.gateway.url}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    shown = [line.rpartition(" ") for line in text.splitlines() if line.startswith("perdure_")]
    return {name: float(value) for name, _, value in shown}


async def until_ready(client: Client) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await client.call("GET", "/readyz"))[0] != 200:
            await client.gateway.pause(0.05)


async def assert_in_trouble(client: Client, why: str) -> None:
    status, body = await client.call("GET", "/readyz")
    assert (status, body["error"]["code"], body["error"]["retryable"]) == (503, "not_ready", True)
    assert why in body["error"]["message"]
    status, body = await client.call("GET", "/healthz")
    assert (status, body["status"], body["store"]["is_up"]) == (200, "degraded", False)
    assert why in body["reason"]
    numbers = await metrics(client)
    assert (numbers["perdure_store_up"], numbers["perdure_ready"]) == (0, 0)
    assert any(name.startswith("perdure_build_info{version=") for name in numbers)
    shown = await perdure(client.gateway, "status")
    assert shown.code == 1
    assert "running, but its store refuses writes" in shown.out + shown.err
    assert why in shown.out + shown.err
    assert (await perdure(client.gateway, "status", "--json")).json["state"] == "degraded"


async def test_a_database_that_stops_is_told_everywhere_and_logged_once(
    gateway_factory: Factory, own_postgres: OwnPostgres
) -> None:
    gateway = await gateway_factory(toml=f'[store]\nurl = "{own_postgres.url}"\n')
    async with calling(gateway) as client:
        assert (await metrics(client))["perdure_store_up"] == 1
        running = await client.say("main", "demo words=60 delay_ms=100")

        await asyncio.to_thread(own_postgres.crash)

        await assert_in_trouble(client, "PostgreSQL cannot ")
        for _ in range(3):
            status, _ = await client.call(
                "POST", "/api/conversations/main/messages", body={"text": "refused"}
            )
            assert status == 503
        assert 'perdure_turns{state="queued"}' not in await metrics(client)
        # A verb that cannot be answered names the store too, and does not blame a start or a stop.
        shown = await perdure(gateway, "turns", "stop", running["turn"])
        assert shown.code == 1

        await asyncio.to_thread(own_postgres.start)

        await until_ready(client)
        assert (await client.settled(running["turn"]))["outcome"] == "done"
        numbers = await metrics(client)
        assert (numbers["perdure_store_up"], numbers["perdure_ready"]) == (1, 1)
        assert numbers["perdure_store_refusals_total"] > 3
        await said(gateway, "the store takes writes again")
    found = [line for line in await lines(gateway) if line["level"] in ("warning", "error")]
    assert [line["event"] for line in found] == [
        "the store refuses writes, so no message is accepted"
    ], found
    assert "Traceback" not in gateway.output


# The header by which a proxy tells that a caller is not on this machine.
ELSEWHERE = {"X-Forwarded-For": "192.0.2.7"}
# Longer than a token is trusted without asking the store.
FORGOTTEN_S = 3.0


async def asked_from_elsewhere(client: Client, path: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {client.token}", **ELSEWHERE}
    async with client.session.get(f"{client.gateway.url}{path}", headers=headers) as response:
        return response.status, await response.text()


async def assert_answered_elsewhere(client: Client) -> None:
    """Check that a known caller is told everything, and that no probe takes the process for
    dead."""
    status, health = await asked_from_elsewhere(client, "/healthz")
    assert (status, json.loads(health)["status"]) == (200, "degraded")
    status, numbers = await asked_from_elsewhere(client, "/metrics")
    assert status == 200
    assert "perdure_store_up 0.0" in numbers
    assert (await asked_from_elsewhere(client, "/readyz"))[0] == 503
    status, shown = await client.call("GET", "/api/status")
    assert (status, shown["state"]) == (200, "degraded")
    known, client.token = client.token, "never-seen-here"
    status, health = await asked_from_elsewhere(client, "/healthz")
    assert (status, json.loads(health)) == (200, {"status": "ok"})
    assert (await asked_from_elsewhere(client, "/metrics"))[0] == 503
    client.token = known


async def test_probes_from_elsewhere_are_answered_while_no_token_can_be_looked_up(
    gateway_factory: Factory, own_postgres: OwnPostgres
) -> None:
    gateway = await gateway_factory(toml=f'[store]\nurl = "{own_postgres.url}"\n')
    async with calling(gateway) as client, asyncio.timeout(60):
        assert (await asked_from_elsewhere(client, "/metrics"))[0] == 200
        await gateway.pause(FORGOTTEN_S)
        with own_postgres.frozen():
            while (await client.call("GET", "/readyz"))[0] == 200:
                await gateway.pause(0.1)
            await assert_answered_elsewhere(client)
        await until_ready(client)

        await gateway.pause(FORGOTTEN_S)
        await asyncio.to_thread(own_postgres.crash)
        await assert_answered_elsewhere(client)


async def test_a_disk_that_fills_up_is_told_everywhere_and_forgotten_with_room(
    gateway_factory: Factory, thirty_megabytes: Path
) -> None:
    # Nobody writes, so the first probe must find the fault.
    gateway = await gateway_factory(name=f"{thirty_megabytes.name}/home")
    async with calling(gateway) as client:
        await client.settled((await client.say("main", "before"))["turn"])
        await asyncio.to_thread(fill, thirty_megabytes / "filler")

        async with asyncio.timeout(DEADLINE_S):
            # The write-ahead log may have some room left in its file, also for messages.
            while (await client.call("GET", "/readyz"))[0] != 503:
                await gateway.pause(0.06)
        await assert_in_trouble(client, "the disk is full")
        status, body = await client.call(
            "POST", "/api/conversations/main/messages", body={"text": "refused"}
        )
        assert (status, body["error"]["code"]) == (507, "disk_full")
        assert 'perdure_turns{state="queued"}' in await metrics(client), "it can still be read"
        await assert_in_trouble(client, "the disk is full")
        (thirty_megabytes / "filler").unlink()

        await until_ready(client)
        assert (await client.settled((await client.say("main", "after"))["turn"]))["outcome"]
        (over,) = await said(gateway, "the store takes writes again")
        assert "the disk is full" in over["error"]
        assert (await client.call("GET", "/healthz"))[1]["status"] == "serving"
    assert "Traceback" not in gateway.output


WORDS = "a sentence of somebody's own"
SECRETS = ("hidden-password", "hidden-key", "hidden-token")
TOML = """
[agents.main]
kind = "demo"
[agents.model]
kind = "chat"
model = "small-model"
base_url = "http://somebody:hidden-password@127.0.0.1:9/v1"
api_key = "hidden-key"
"""


async def test_the_log_tells_the_life_of_a_node_and_no_words_of_people(
    gateway_factory: Factory,
) -> None:
    gateway = await gateway_factory(toml=TOML)
    async with calling(gateway) as client:
        failed = await client.settled((await client.say("main", "demo fail"))["turn"])
        await client.settled((await client.say("main", WORDS))["turn"])
        for _ in range(3):
            wrong = {"Authorization": "Bearer hidden-token"}
            async with client.session.get(f"{gateway.url}/api/status", headers=wrong) as response:
                assert response.status == 401
        cut = await client.say("cut", "demo words=40 delay_ms=50")
        async with client.events("cut") as events:
            async for _, kind, _data in events:
                if kind == "delta":
                    break
        await gateway.kill()
        await gateway.start("-v")
        await client.settled(cut["turn"])
        await said(gateway, "turn done")
    found = await lines(gateway)
    by_event = {line["event"]: line for line in found}
    start = by_event["started"]
    assert [line["event"] for line in found].count("started") == 2
    assert (start["home"], start["store"]) == (
        str(gateway.home),
        f"sqlite {gateway.home / 'perdure.db'}",
    )
    assert start["agents"] == ["main (demo)", "model (chat, small-model at http://127.0.0.1:9/v1)"]
    assert by_event["a new database was made"]["schema"] >= 8
    failure = by_event["turn failed"]
    assert (failure["turn"], failure["reason"]) == (failed["id"], failed["reason"])
    assert failure["detail"].startswith("the demo agent was asked to fail")
    assert by_event["attempt interrupted"]["reason"] == "crash"
    assert by_event["turn recovered"]["turn"] == cut["turn"]
    verbose = [line["event"] for line in found if line.get("turn") == cut["turn"]]
    assert verbose == ["attempt interrupted", "turn recovered", "turn begun", "turn done"]
    wrong_tokens = [line for line in found if line["event"] == "a wrong token was refused"]
    assert [line["path"] for line in wrong_tokens] == ["/api/status"], "said once, not three times"
    shown = (await perdure(gateway, "logs", "-n", "1000")).out
    assert f"WARNING  turn: turn failed turn={failed['id']}" in shown
    assert " agents=main (demo), model (chat, small-model at http://127.0.0.1:9/v1) " in shown
    for hidden in (WORDS, *SECRETS):
        assert hidden not in shown
    assert "Traceback" not in gateway.output
