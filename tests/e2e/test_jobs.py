"""Checks jobs at a real gateway: ordered over HTTP, by command and by an agent, they run and bring
their results."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from perdure.testkit.processes.command import Result, run_command
from perdure.testkit.processes.http import POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
TOML = '[agents.main]\nkind = "demo"\ntools = ["schedule"]\n'


async def until_said(client: Client, words: str, name: str) -> dict[str, Any]:
    """Return the answer in a conversation that begins with these words, once it is there."""
    async with asyncio.timeout(60):
        while True:
            for each in await client.transcript(name):
                if each["role"] == "assistant" and each["text"].startswith(words):
                    return dict(each)
            await client.gateway.pause(POLL_S)


async def test_what_is_ordered_runs_and_is_said(
    gateway_factory: Factory,
) -> None:
    gateway = await gateway_factory(toml=TOML)
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        job = {"conversation": "daily", "prompt": "how are you?", "every_s": 1, "name": "tick"}
        status, ordered = await client.call("POST", "/api/jobs", body=job)
        assert status == 201, ordered
        reminded = await client.say("home", "/remind me in 1 second to drink tea")
        wish = {"action": "add", "when": "in 1 second", "text": "stand up", "kind": "reminder"}
        await client.say("desk", f"demo tool schedule {json.dumps(wish)}")

        assert reminded["reply"].startswith("I will remind you")
        await until_said(client, 'You said: "how are you?"', "daily")
        await until_said(client, "drink tea", "home")
        await until_said(client, "stand up", "desk")
        wrong = {"conversation": "daily", "prompt": "x", "cron": "0 25 * * *"}
        status, refused = await client.call("POST", "/api/jobs", body=wrong)
        assert (status, refused["error"]["code"]) == (400, "invalid_schedule")
        assert "the nearest valid form is '0 23 * * *'" in refused["error"]["message"]
        path = f"/api/jobs/{ordered['id']}"
        _, paused = await client.call("PATCH", path, body={"state": "paused"})
        assert (paused["state"], paused["next_at"]) == ("paused", None)
        _, listed = await client.call("GET", f"{path}/runs")
        runs = listed["runs"]
        assert any(run["outcome"] == "done" for run in runs)
        assert len({run["due_at"] for run in runs}) == len(runs)


async def jobs(home: Path, *arguments: str) -> Result:
    """Run `perdure jobs` with these arguments."""
    result = await run_command(("--home", str(home), "jobs", *arguments), environ=dict(os.environ))
    assert "Traceback" not in result.err, result.err
    return result


async def listed(home: Path) -> list[dict[str, Any]]:
    """Return the jobs that `perdure jobs list` prints for programs."""
    found: list[dict[str, Any]] = (await jobs(home, "--json", "list")).json["jobs"]
    return found


async def test_the_command_line_orders_jobs_with_a_node_and_without_one(
    gateway_factory: Factory,
) -> None:
    gateway = await gateway_factory()
    home = gateway.home
    assert (await jobs(home, "list")).out == "there are no jobs\n"
    added = await jobs(home, "add", "desk", "look around", "--every-s", "1", "--name", "look")
    assert "look (every 1 s, " in added.out
    (job,) = await listed(home)
    short = job["id"][-6:]
    async with asyncio.timeout(30):
        while "here" not in (await jobs(home, "runs", short)).out:
            await gateway.pause(POLL_S)
    assert "is paused" in (await jobs(home, "pause", short)).out
    assert "runs as trn_" in (await jobs(home, "run", short)).out
    wrong = await jobs(home, "add", "desk", "x", "--when", "every blursday")
    assert (wrong.code, "nearest valid form is 'every thursday'" in wrong.err) == (1, True)
    assert (await jobs(home, "runs", "job_none")).code == 1
    assert (await jobs(home, "add", "desk", "x")).code == 2

    assert await gateway.terminate() == 0
    (job,) = await listed(home)
    assert (job["state"], job["next_at"]) == ("paused", None)
    assert "is active" in (await jobs(home, "resume", short)).out
    assert "runs as trn_" in (await jobs(home, "run", short)).out
    assert "queued" in (await jobs(home, "runs", short)).out, "it waits for the next start"
    assert "is removed" in (await jobs(home, "remove", short)).out
    assert await listed(home) == []
