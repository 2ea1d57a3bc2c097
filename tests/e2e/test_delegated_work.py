"""Checks at a real gateway that an agent gives work to others, also to programs in a pool, and
sends to other conversations: while it is killed, and as people see it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from tests.e2e.approving import answer, asked

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(120)
DEMO = """
[agents.main]
kind = "demo"
tools = ["delegate", "send", "schedule"]
delegates = ["clerk"]
[agents.main.approve]
delegate = "never"
[agents.clerk]
kind = "demo"
description = "answers letters"
tools = ["schedule"]
[sessions]
titles = false
"""


def delegate(agent: str, task: str) -> str:
    return f"demo tool delegate {json.dumps({'agent': agent, 'task': task})}"


async def results(client: Client, name: str) -> list[str]:
    """Return the results of the calls in a conversation."""
    entries = await client.transcript(name, "?limit=1000")
    return [str(each["text"]) for each in entries if each["role"] == "tool"]


async def errands(client: Client) -> list[dict[str, Any]]:
    """Return the sessions of delegated work."""
    status, body = await client.call("GET", "/api/sessions?limit=1000&errands=true")
    assert status == 200, body
    return [each for each in body["sessions"] if each["kind"] == "delegated"]


async def until(client: Client, is_so: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await is_so():
            await client.gateway.pause(POLL_S)


async def is_sound(client: Client) -> bool:
    status, found = await client.call("GET", "/api/verify")
    return (status, found["violations"]) == (200, [])


async def test_the_answer_of_another_agent_is_the_result_of_the_call(
    gateway_factory: Factory,
) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=DEMO), session)
        accepted = await client.say("a", delegate("clerk", "dear clerk"))
        settled = await client.settled(accepted["turn"])

        assert settled["outcome"] == "done", settled
        (result,) = await results(client, "a")
        assert "dear clerk" in result
        (errand,) = await errands(client)
        assert errand["parent"] == accepted["session"]
        _, explained = await client.call("GET", f"/api/explain/{accepted['turn']}")
        kinds = [each["kind"] for each in explained["events"]]
        assert kinds.index("work_delegated") < kinds.index("work_returned")
        assert await is_sound(client)


async def test_work_that_is_killed_with_the_gateway_is_done_once(
    gateway_factory: Factory,
) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=DEMO), session)
        accepted = await client.say("a", delegate("clerk", "demo words=60 delay_ms=50"))

        async def is_waiting() -> bool:
            _, turn = await client.call("GET", f"/api/turns/{accepted['turn']}")
            return bool(turn["state"] == "waiting")

        for _ in range(2):
            await until(client, is_waiting)
            await client.gateway.kill()
            await client.gateway.restart()
        settled = await client.settled(accepted["turn"])

        assert settled["outcome"] == "done", settled
        assert len(await results(client, "a")) == 1
        assert len(await errands(client)) == 1
        assert await is_sound(client)


async def test_a_stop_ends_the_work_too(gateway_factory: Factory) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=DEMO), session)
        accepted = await client.say("a", delegate("clerk", "demo words=2000 delay_ms=50"))
        await until(client, lambda: errands(client))
        await client.say("a", "/stop")
        (errand,) = await errands(client)

        async def has_ended() -> bool:
            path = f"/api/sessions/{errand['id']}/journal?limit=1000"
            _, body = await client.call("GET", path)
            settled = [e for e in body["events"] if e["kind"] == "turn_settled"]
            return [e["body"]["outcome"] for e in settled] == ["stopped"]

        await until(client, has_ended)
        assert (await client.settled(accepted["turn"]))["outcome"] == "stopped"
        assert await is_sound(client)


async def test_work_orders_no_jobs_and_goes_to_nobody_unknown(gateway_factory: Factory) -> None:
    order = {"action": "add", "when": "every hour", "text": "ring"}
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=DEMO), session)
        for task in (
            delegate("clerk", f"demo tool schedule {json.dumps(order)}"),
            delegate("clark", "anything"),
        ):
            accepted = await client.say("a", task)
            await client.settled(accepted["turn"])
        _, jobs = await client.call("GET", "/api/jobs")

        assert jobs["jobs"] == []
        told = await results(client, "a")
        assert "did you mean clerk" in told[-1]


async def test_what_is_sent_elsewhere_is_asked_about_and_said_there(
    gateway_factory: Factory,
) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=DEMO), session)
        await client.settled((await client.say("b", "hello"))["turn"])
        wish = json.dumps({"to": "b", "text": "news from a"})
        question = await asked(client, "a", f"demo tool send {wish}")
        await answer(client, question["id"], "allow")
        await client.settled(question["turn"])

        async def texts() -> list[str]:
            return [str(e["text"]) for e in await client.transcript("b")]

        async def is_said() -> bool:
            return "news from a" in await texts()

        await until(client, is_said)
        assert (await texts()).count("news from a") == 1
        assert await results(client, "a") == ["Sent to b: it is said there in its order, once."]
        assert await is_sound(client)


async def test_several_pieces_are_worked_on_at_the_same_time(gateway_factory: Factory) -> None:
    # Each is answered only when both have been asked for.
    asked_for: set[str] = set()

    def reply(request: script.ScriptedRequest) -> script.Reply:
        said = json.dumps(request.body["messages"])
        if request.model == "worker":
            asked_for.add("one" if "part one" in said else "two")
            answer = script.say("half of it")
            return answer if len(asked_for) > 1 else script.Slow(3_000, answer)
        if '"role": "tool"' in said:
            return script.say("both are done")
        parts = ("part one", "part two")
        calls = [
            (f"c{n}", "delegate", json.dumps({"agent": "worker", "task": part}))
            for n, part in enumerate(parts)
        ]
        return script.call_tools(calls)

    model = ModelServer(reply)
    async with model, aiohttp.ClientSession() as session:
        toml = "".join(
            f"""
[agents.{name}]
kind = "chat"
base_url = "{model.openai_url}"
model = "{name}"
concurrent = 2
{more}
"""
            for name, more in (
                ("main", 'tools = ["delegate"]\ndelegates = ["worker"]'),
                ("worker", 'instructions = "Work hard.\\nDo not rest."'),
            )
        )
        toml += "[sessions]\ntitles = false\n"
        client = Client(await gateway_factory(toml=toml), session)
        accepted = await client.say("a", "do it")
        settled = await client.settled(accepted["turn"])

        assert settled["outcome"] == "done", settled
        assert await results(client, "a") == ["half of it", "half of it"]
        bodies = [cast("dict[str, Any]", request.body) for request in model.requests]
        schemas = json.dumps([each.get("tools") for each in bodies])
        assert "worker: Work hard." in schemas
        assert "rest" not in schemas
        working = [each for each in bodies if each["model"] == "worker"]
        assert len(working) == 2
        assert not [each for each in working if "do it" in json.dumps(each["messages"])]
        assert model.violations == []
        assert await is_sound(client)


@pytest.fixture
async def pooled(
    gateway_factory: Factory, new_peer: NewPeer, tmp_path: Path
) -> Callable[[], Awaitable[GatewayProcess]]:
    command = new_peer.hostile_acp().command(Mischief(calls=tmp_path / "calls"))
    toml = f"""
[agents.program]
kind = "acp"
command = {json.dumps(command)}
tools = ["delegate"]
delegates = ["clerk"]
sandbox = "off"
share = true
pool = {{ prewarm = false }}
[agents.main]
kind = "demo"
tools = ["delegate"]
delegates = ["program"]
[agents.clerk]
kind = "demo"
[sessions]
titles = false
"""

    async def start() -> GatewayProcess:
        return await gateway_factory(toml=toml)

    return start


async def test_a_program_in_a_pool_does_work(
    pooled: Callable[[], Awaitable[GatewayProcess]],
) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(await pooled(), session)
        await client.say("a", "/agent main")
        accepted = await client.say("a", delegate("program", "[[SAY all done]]"))
        settled = await client.settled(accepted["turn"])

        assert settled["outcome"] == "done", settled
        assert await results(client, "a") == ["all done"]
        assert await is_sound(client)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_program_in_a_pool_gives_work_away(
    pooled: Callable[[], Awaitable[GatewayProcess]], *, is_killed: bool
) -> None:
    # Its prompt waits meanwhile. If it dies with the gateway, a new one is told the result.
    async with aiohttp.ClientSession() as session:
        client = Client(await pooled(), session)
        task = json.dumps({"agent": "clerk", "task": "demo words=30 delay_ms=50"})
        accepted = await client.say("a", f"[[TOOL delegate {task}]]")
        await until(client, lambda: errands(client))
        if is_killed:
            await client.gateway.kill()
            await client.gateway.restart()
        settled = await client.settled(accepted["turn"])

        # The new one reads the order again in the record, and makes nothing of it.
        assert is_killed or settled["outcome"] == "done", settled
        (told,) = await results(client, "a")
        assert told.split()
        assert len(await errands(client)) == 1
        assert await is_sound(client)
