"""Checks jobs at a real gateway: ordered over HTTP, by command and by an agent, they run and bring
their results."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

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
