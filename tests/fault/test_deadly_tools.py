"""Checks a tool that kills its gateway, with real processes: the gateway is killed by the call, and
then again in each of twenty lives, while its model insists on the same call."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from perdure.testkit.models.model_script import Reply, ScriptedRequest, call_tools, hang, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.command import TRUSTS_NOBODY, run_command
from perdure.testkit.processes.http import DEADLINE_S, Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
Factory = Callable[..., Awaitable[GatewayProcess]]
LIVES = 20
TOML = """
[agents.main]
kind = "chat"
base_url = "{url}"
model = "scripted"
tools = ["shell"]
[sessions]
titles = false
[recovery]
attempts_max = {attempts}
[tools.shell]
roots = ["{work}"]
sandbox = "off"
approve = "never"
"""


class Insisting:
    """Plays a model that wants one command to run, in each life of its gateway anew, and never says
    what it thinks of the result. In the last life it gives up."""

    def __init__(self, command: str) -> None:
        self.server = ModelServer(self._reply)
        self.is_last = False
        self._arguments = json.dumps({"action": "run", "argv": ["sh", "-c", command]})
        self._asked = 0
        self._hangs = asyncio.Event()

    def begin_life(self) -> None:
        self._asked = 0
        self._hangs.clear()

    def _reply(self, request: ScriptedRequest) -> Reply:
        self._asked += 1
        if self._asked == 1:
            return call_tools([(f"call_{request.number}", "shell", self._arguments)])
        if self.is_last:
            return say("I do not know whether it has run.")
        self._hangs.set()
        return hang()

    async def has_its_result(self) -> None:
        """Wait until the call of this life has a result."""
        async with asyncio.timeout(DEADLINE_S):
            await self._hangs.wait()


async def perdure(gateway: GatewayProcess, *arguments: str) -> str:
    """Return what a command prints that succeeds."""
    around = {**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(gateway.home)}
    result = await run_command(arguments, environ=around)
    assert result.code == 0, (result.out, result.err)
    return result.out


async def kinds_in(client: Client, session: str) -> Counter[str]:
    """Return how often each kind of event is in a session's journal."""
    status, journal = await client.call("GET", f"/api/sessions/{session}/journal?limit=1000")
    assert status == 200, journal
    return Counter(each["kind"] for each in journal["events"])


async def test_a_call_that_kills_its_gateway_runs_once_in_twenty_lives(
    gateway_factory: Factory, tmp_path: Path
) -> None:
    work, victim = tmp_path / "work", tmp_path / "victim"
    work.mkdir()
    ran = work / "ran"
    model = Insisting(f"echo ran >> {ran}; kill -9 $(cat {victim})")
    async with model.server, aiohttp.ClientSession() as session:
        url = model.server.openai_url
        gateway = await gateway_factory(toml=TOML.format(url=url, work=work, attempts=2 * LIVES))
        client = Client(gateway, session)
        victim.write_text(str(gateway.pid))

        turn = (await client.say("main", "run it"))["turn"]
        assert await gateway.wait() == -signal.SIGKILL, "the call has killed it"
        for _ in range(LIVES - 1):
            model.begin_life()
            await gateway.start()
            victim.write_text(str(gateway.pid))
            await model.has_its_result()
            await gateway.kill()
        model.is_last = True
        model.begin_life()
        await gateway.start()
        ended = await client.settled(turn)

        assert ended["outcome"] == "done"
        assert ran.read_text() == "ran\n"
        kinds = await kinds_in(client, ended["session"])
        assert (kinds["attempt_interrupted"], kinds["tool_finished"]) == (LIVES, LIVES + 1)
        assert kinds["tool_started"] == 1
        assert kinds["notice_posted"] == 1, "people are told once"
        (effect,) = (await client.call("GET", "/api/effects"))[1]["effects"]
        assert (effect["turn"], effect["state"]) == (turn, "unknown")
        assert "shell" in (await client.say("main", "/effects"))["reply"]
        assert (await perdure(gateway, "verify")).strip().endswith("all sound")
    assert model.server.violations == []
