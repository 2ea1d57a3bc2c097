"""Checks what a node does with the file descriptors it has, and when none is left."""

import asyncio
import os
import re
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from perdure.testkit.models.model_script import say, slow
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.executed,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems tell it otherwise"),
]
Factory = Callable[..., Awaitable[GatewayProcess]]
SOON_S = 60.0
CALLS = 300
SILENT = 10_000


def toml_for(model: ModelServer) -> str:
    return (
        f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "scripted"\n'
        "[sessions]\ntitles = false\n"
    )


def limits_of(gateway: GatewayProcess) -> tuple[int, int]:
    told = Path(f"/proc/{gateway.pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+) +(\d+)", told)
    assert found is not None
    return int(found[1]), int(found[2])


@contextmanager
def without_descriptors(gateway: GatewayProcess) -> Iterator[None]:
    """Keep the node from opening one more file."""
    before = limits_of(gateway)
    used = [int(each) for each in os.listdir(f"/proc/{gateway.pid}/fd")]  # noqa: PTH208
    # The limit is one above the highest number that may be given out.
    free = next(number for number in range(max(used) + 2) if number not in used)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)


async def test_the_soft_limit_is_raised_to_the_hard_one(gateway_factory: Factory) -> None:
    gateway = await gateway_factory(open_files=(256, 2048))

    assert limits_of(gateway) == (2048, 2048)


async def test_more_calls_than_descriptors_are_answered_or_told_when_to_come_again(
    gateway_factory: Factory,
) -> None:
    refusals: list[str] = []

    async def call(client: Client, number: int) -> str:
        """Ask until there is room, as a well-behaved client does."""
        while True:
            body = {"stream": True, "messages": [{"role": "user", "content": f"call {number}"}]}
            async with client.session.post(
                f"{client.gateway.url}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {client.gateway.token}"},
            ) as response:
                text = await response.text()
                if response.status == 200:
                    return text
                assert response.status == 503, text
                assert int(response.headers["Retry-After"]) >= 1
                refusals.append(text)
            await client.gateway.pause(0.5)

    async with ModelServer(lambda _: slow(100, say("a b c"))) as model:
        gateway = await gateway_factory(toml=toml_for(model), open_files=(128, 256))
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(SOON_S):
            client = Client(gateway, session)
            texts = await asyncio.gather(*(call(client, each) for each in range(CALLS)))
            _, status = await client.call("GET", "/api/status")

    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    assert refusals
    assert all("too_many_connections" in text for text in refusals)
    assert status["turns"].get("failed", 0) == 0
    assert "Too many open files" not in gateway.output


async def test_an_accepted_turn_waits_for_a_descriptor_and_does_not_fail(
    gateway_factory: Factory,
) -> None:
    async with ModelServer() as model:
        gateway = await gateway_factory(toml=toml_for(model))
        async with aiohttp.ClientSession() as session, asyncio.timeout(SOON_S):
            client = Client(gateway, session)
            # The connection that is made here is used again below.
            await client.call("GET", "/api/status")
            with without_descriptors(gateway):
                accepted = await client.say("short", "hello")
                while "was not asked: out of file descriptors" not in gateway.output:
                    await gateway.pause(0.05)
            settled = await client.settled(accepted["turn"])

    assert settled["outcome"] == "done"
    assert len(model.requests) == 1


async def test_a_store_that_cannot_open_its_file_says_why(
    gateway_factory: Factory,
) -> None:
    gateway = await gateway_factory()
    async with aiohttp.ClientSession() as session, asyncio.timeout(SOON_S):
        client = Client(gateway, session)
        await client.call("GET", "/api/status")
        with without_descriptors(gateway):
            # A check of the database opens its file anew.
            status, body = await client.call("GET", "/api/verify")
        again, _ = await client.call("GET", "/api/verify")

    assert status == 503
    assert body["error"]["code"] == "out_of_descriptors"
    assert "raise the limit of open files" in body["error"]["message"]
    assert again == 200


@contextmanager
def silent_connections(port: int) -> Iterator[None]:
    """Hold ten thousand connections that never say anything, or as many as this system allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    # Some of the files are needed for other things.
    most = SILENT if before[1] == resource.RLIM_INFINITY else min(SILENT, before[1] - 500)
    silent: list[socket.socket] = []
    try:
        for _ in range(most):
            silent.append(socket.socket())
            silent[-1].setblocking(False)
            # Those that find no room yet wait in the system's queue, as do those of any crowd.
            silent[-1].connect_ex(("127.0.0.1", port))
        yield
    finally:
        for each in silent:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_thousands_of_silent_connections_shut_nobody_out(gateway_factory: Factory) -> None:
    gateway = await gateway_factory(open_files=(1024, 1024))
    with silent_connections(gateway.port):
        async with aiohttp.ClientSession() as session:
            client = Client(gateway, session)
            said = await client.say("main", "hello")
            assert (await client.settled(said["turn"]))["outcome"] == "done"
