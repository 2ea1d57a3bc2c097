"""Checks with a real gateway that secrets of the configuration appear nowhere else."""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.command import TRUSTS_NOBODY
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
CANARIES = ("canary-user", "canary-word", "canary-folder")


def toml(url: str) -> str:
    secret = f"{url.replace('//', '//canary-user:canary-word@')}/canary-folder/v1"
    return f'[agents.main]\nkind = "chat"\nbase_url = "{secret}"\nmodel = "m"\npatience_s = 0\n'


async def printed(gateway: GatewayProcess, *arguments: str) -> str:
    """Return what a verb of the command line prints, whatever its code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure", *arguments,
        env={**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(gateway.home)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return said.decode()


@pytest.mark.parametrize("is_up", [True, False])
async def test_a_secret_in_an_address_appears_nowhere(gateway_factory: Any, is_up: bool) -> None:
    refusal = script.status(404, message="nothing at /canary-folder/v1 for canary-user")
    async with AsyncExitStack() as up, aiohttp.ClientSession() as http:
        server = await up.enter_async_context(ModelServer(lambda _: refusal))
        gateway = await gateway_factory(toml=toml(server.url))
        if not is_up:
            await up.aclose()
        client = Client(gateway, http)
        said = await client.say("main", "hello")
        turn = await client.settled(said["turn"])
        request = {"model": "main", "messages": [{"role": "user", "content": "hi"}]}
        told = [
            turn,
            await client.transcript("main", "?notices=true"),
            await client.call("POST", "/v1/chat/completions", body=request),
            await client.call("POST", "/v1/responses", body={"model": "main", "input": "hi"}),
            *[
                await client.call("GET", path)
                for path in (
                    "/api/status", "/healthz", f"/api/explain/{said['turn']}",
                    f"/api/sessions/{said['session']}/journal",
                )
            ],
            await printed(gateway, "status"),
            await printed(gateway, "explain", said["turn"]),
            await printed(gateway, "logs"),
        ]  # fmt: skip
        broken = toml(server.url).replace("/v1", "/v1?key=canary-folder")
        (gateway.home / "perdure.toml").write_text(broken)
        await gateway.terminate()
        told += [await printed(gateway, "serve"), gateway.output]

    assert turn["outcome"] == "failed"
    assert server.url in turn["detail"]
    everything = json.dumps(told)
    assert "base_url must be" in everything
    assert not [canary for canary in CANARIES if canary in everything]
