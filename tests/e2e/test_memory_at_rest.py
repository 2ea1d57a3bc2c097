"""Checks that a gateway at rest keeps no memory from its busy hours."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = [pytest.mark.timeout(90), pytest.mark.executed]
CALLS = 800
AT_ONCE = 16
QUESTION = "What grows here? " * 1_800
ALLOWED_MB = 20


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
async def test_calls_that_nobody_comes_back_to_leave_no_memory_taken(
    gateway_factory: Callable[..., Awaitable[GatewayProcess]],
) -> None:
    # Each call has 30 KB, so keeping all of them would take 24 MB.
    async with (
        ModelServer(lambda request: script.say("Beans.")) as model,
        aiohttp.ClientSession() as session,
    ):
        toml = f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "m"\n'
        gateway = await gateway_factory(toml=toml)
        client = Client(gateway, session)
        begin_mb = resident_mb(gateway.pid)
        numbers = iter(range(CALLS))

        async def call() -> None:
            for _ in numbers:
                body = {"model": "main", "messages": [{"role": "user", "content": QUESTION}]}
                status, answer = await client.call("POST", "/v1/chat/completions", body=body)
                assert status == 200, answer
                model.requests.clear()

        await asyncio.gather(*(call() for _ in range(AT_ONCE)))

        async with asyncio.timeout(40):
            while resident_mb(gateway.pid) > begin_mb + ALLOWED_MB:
                await gateway.pause(0.2)
