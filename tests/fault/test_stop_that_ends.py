"""Checks that a stop ends in time, whatever is broken: the disk, the database, a platform, a model,
the loop.

Unfinished work is left as after a kill, so every test ends with a next life that finishes it.
"""

import asyncio
import base64
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

import aiohttp
import asyncpg
import pytest
from standardwebhooks import Webhook

from perdure.testkit.models.model_script import hang, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.command import run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
# A title is made by a turn of its own, which begins a moment after the answer.
NO_TITLES = "[sessions]\ntitles = false\n"
DRAIN_S = 1
# How long a stop may take beyond its drain, and after a second signal. A busy machine gets more.
OVER_S = 3.0
AGAIN_S = 1.0
BUSY_S = 1.5
DRAIN = f"[drain]\ntimeout_s = {DRAIN_S}\n"
PATIENT = "[drain]\ntimeout_s = 300\n"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ROUTE = f'''
[adapters.webhook.routes.alarms]
secrets = ["{SECRET}"]
callback = "{{}}"
'''
LONG = "demo words=100 delay_ms=20"


class OwnPostgres(Protocol):
    """Describes the fixture `own_postgres`."""

    url: str

    def crash(self) -> None: ...

    def start(self) -> None: ...

    def frozen(self) -> contextlib.AbstractContextManager[None]: ...


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def until_text(client: Client, name: str = "main") -> None:
    async with client.events(name) as events:
        async for _, kind, _data in events:
            if kind == "delta":
                return


async def until_only_sending(client: Client) -> None:
    """Wait until the turn is over and its answer is on its way."""
    while True:
        _, found = await client.call("GET", "/api/status")
        if not any(found["turns"].values()) and found["outbox"]["pending"]:
            return
        await client.gateway.pause(0.05)


async def ends(gateway: GatewayProcess, *, within_s: float) -> None:
    """Wait until the process ends with code 0, in time."""
    async with asyncio.timeout(within_s + BUSY_S):
        assert await gateway.wait() == 0, gateway.output


async def stops_in_time(client: Client) -> None:
    client.gateway.send_signal(signal.SIGTERM)
    await ends(client.gateway, within_s=DRAIN_S + OVER_S)


async def stops_at_once(client: Client) -> None:
    """Check that a second signal does not wait, although the first would wait for minutes."""
    client.gateway.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        while not await is_draining(client):
            await client.gateway.pause(0.02)
    client.gateway.send_signal(signal.SIGTERM)
    await ends(client.gateway, within_s=AGAIN_S)


async def is_draining(client: Client) -> bool:
    """Tell by the log or over HTTP whether the node drains: a full disk takes no line of the log,
    and a node whose store is down answers no question."""
    if "waiting for 1 answer; Ctrl-C again ends it now" in client.gateway.output:
        return True
    status, body = await client.call("GET", "/api/status")
    return bool(status == 200 and body["state"] == "draining")


STOPS = pytest.mark.parametrize(
    ("toml", "stop"),
    [(DRAIN, stops_in_time), (PATIENT, stops_at_once)],
    ids=["one signal", "two signals"],
)
Stop = Callable[[Client], Awaitable[None]]


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return filler


@STOPS
async def test_a_full_disk_delays_no_stop(
    gateway_factory: Factory,
    http: aiohttp.ClientSession,
    small_disk: Path,
    toml: str,
    stop: Stop,
) -> None:
    gateway = await gateway_factory(toml=toml, name="small/home")
    client = Client(gateway, http)
    accepted = await client.say("main", LONG)
    await until_text(client)
    filler = await asyncio.to_thread(fill, small_disk)

    await stop(client)

    filler.unlink()
    await gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)


async def test_a_database_server_that_is_down_delays_no_stop(
    gateway_factory: Factory, http: aiohttp.ClientSession, own_postgres: OwnPostgres
) -> None:
    gateway = await gateway_factory(toml=f'{DRAIN}[store]\nurl = "{own_postgres.url}"\n')
    client = Client(gateway, http)
    accepted = await client.say("main", LONG)
    await until_text(client)
    await asyncio.to_thread(own_postgres.crash)
    # The token cannot be looked up any more, but it was valid before.
    while (await client.call("GET", "/api/openapi.json"))[0] == 200:
        await gateway.pause(0.1)

    environ = {**os.environ, "PERDURE_HOME": str(gateway.home)}
    stopped = await run_command(["stop"], environ=environ)
    await ends(gateway, within_s=DRAIN_S + OVER_S)

    assert (stopped.code, stopped.out) == (0, "stopped\n"), stopped
    assert "1 turn did not finish and goes on at the next start" in stopped.err
    assert "left_as_after_a_kill=1 parked=0" in gateway.output
    await asyncio.to_thread(own_postgres.start)
    connection = await asyncpg.connect(own_postgres.url)
    # Otherwise the new life would wait for the old life's lease to run out.
    await connection.execute("UPDATE nodes SET lease_until = 0")
    await connection.close()
    await gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)


async def test_a_database_server_that_does_not_answer_delays_no_stop(
    gateway_factory: Factory, http: aiohttp.ClientSession, own_postgres: OwnPostgres
) -> None:
    # The token of the caller who asks for the stop cannot be looked up, but it was valid before.
    gateway = await gateway_factory(toml=f'{DRAIN}[store]\nurl = "{own_postgres.url}"\n')
    client = Client(gateway, http)
    await client.say("main", LONG)
    await until_text(client)
    environ = {**os.environ, "PERDURE_HOME": str(gateway.home)}
    with own_postgres.frozen():
        while (await client.call("GET", "/readyz"))[0] == 200:
            await gateway.pause(0.1)
        await gateway.pause(3)  # until a token is no longer trusted without asking the store

        async with asyncio.timeout(20):
            stopped = await run_command(["stop"], environ=environ)

    assert (stopped.code, stopped.out) == (0, "stopped\n"), stopped
    assert "asked_by=request" in gateway.output
    assert await gateway.wait() == 0


async def test_a_model_that_hangs_delays_no_stop(
    gateway_factory: Factory, http: aiohttp.ClientSession
) -> None:
    async with ModelServer(lambda _: hang(1, say("one two three"))) as model:
        agent = f'kind = "chat"\napi = "openai"\nbase_url = "{model.openai_url}"\nmodel = "m"\n'
        gateway = await gateway_factory(toml=f"{DRAIN}[agents.main]\n{agent}")
        client = Client(gateway, http)
        accepted = await client.say("main", "hello")
        await until_text(client)

        await stops_in_time(client)

        assert "left_as_after_a_kill=0 parked=1" in gateway.output
        await gateway.start()
        await model.wait_for_requests(2)
        model.release()
        assert (await client.settled(accepted["turn"]))["outcome"] == "done"


async def test_a_platform_that_does_not_answer_delays_no_stop(
    gateway_factory: Factory, http: aiohttp.ClientSession
) -> None:
    # The answer of a turn is on its way to a server that takes it and sends no response.
    async with Unanswering() as platform:
        gateway = await gateway_factory(toml=DRAIN + NO_TITLES + ROUTE.format(platform.url))
        client = Client(gateway, http)
        at = datetime.now(tz=UTC)
        headers = {
            "webhook-id": "m1",
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(SECRET).sign("m1", at, "hello"),
        }
        url = f"{gateway.url}/hooks/webhook/alarms"
        async with http.post(url, headers=headers, data="hello") as response:
            assert response.status == 202, await response.text()
        await platform.asked.wait()
        await until_only_sending(client)

        await stops_in_time(client)

        waiting = "waiting for 1 message that is being sent; Ctrl-C again ends it now"
        assert waiting in gateway.output
        assert "messages that are being sent" in gateway.output
        platform.asked.clear()
        await gateway.start()
        await platform.asked.wait()  # a key makes the part one that may be sent again


class Unanswering:
    """Runs a server that reads what it is sent and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            self.asked.set()
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


# Registers a signal that keeps the main thread, and with it the event loop, busy for good.
STANDSTILL = """
import signal, time
def stand_still(number, frame):
    while True:
        time.sleep(60)
signal.signal(signal.SIGUSR1, stand_still)
"""
# The same, but with the log's lock held, so that no other thread can write a line.
STANDSTILL_IN_THE_LOG = STANDSTILL.replace(
    "    while", "    import logging; logging.getLogger().handlers[0].acquire()\n    while"
)


async def until_silent(client: Client) -> None:
    """Wait until the loop stands still, which it does once it runs any Python after the signal."""
    client.gateway.send_signal(signal.SIGUSR1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            while True:
                await client.call("GET", "/healthz")


async def test_an_event_loop_that_stands_still_delays_no_stop(
    gateway_factory: Factory, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STANDSTILL)
    gateway = await gateway_factory(toml=PATIENT, environ={"PYTHONPATH": str(tmp_path)})
    client = Client(gateway, http)
    accepted = await client.say("main", LONG)
    await until_text(client)
    await until_silent(client)

    async with asyncio.timeout(AGAIN_S + BUSY_S):
        while gateway.is_running:  # like a person who presses Ctrl-C again and again
            gateway.send_signal(signal.SIGINT)
            await gateway.pause(0.1)

    assert await gateway.wait() == 0
    assert "the stop did not end in time" in gateway.output
    await gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)


@pytest.mark.parametrize("site", [STANDSTILL, STANDSTILL_IN_THE_LOG], ids=["anywhere", "logging"])
async def test_a_restart_succeeds_where_the_event_loop_stands_still(
    gateway_factory: Factory, http: aiohttp.ClientSession, tmp_path: Path, site: str
) -> None:
    # The next life begins in the same process, although the last one did not clean up.
    (tmp_path / "sitecustomize.py").write_text(site)
    gateway = await gateway_factory(toml=DRAIN, environ={"PYTHONPATH": str(tmp_path)})
    client = Client(gateway, http)
    accepted = await client.say("main", LONG)
    await until_text(client)
    assert (await client.call("POST", "/api/restart"))[0] == 202
    await until_silent(client)

    async with asyncio.timeout(60):
        while gateway.output.count("is ready.") < 2:
            await gateway.pause(0.05)
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)
    assert (await client.call("GET", "/api/status"))[1]["pid"] == gateway.pid
