"""Kills a real gateway while its jobs run, and then compares each occurrence with its run, its turn
and its result."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from tests.fault.strikes import Strikes

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
NAMES = ("ants", "bees", "cats")
OVER = {"settled", "skipped", "missed"}
REST_S = 30.0
A_SECOND = 1000


def job(name: str) -> dict[str, object]:
    """Return a job that runs each second and makes up for everything that it has missed."""
    return {
        "conversation": name,
        "prompt": f"count the {name}",
        "every_s": 1,
        "name": name,
        "overlap": "queue",
        "missed": "all",
    }


async def runs_of(client: Client, job: str) -> list[dict[str, Any]]:
    """Return all runs of a job, oldest first, once all of them are over and told."""
    async with asyncio.timeout(REST_S):
        while True:
            _, listed = await client.call("GET", f"/api/jobs/{job}/runs?limit=1000")
            runs: list[dict[str, Any]] = listed["runs"]
            if all(run["state"] in OVER and run["delivery"] != "pending" for run in runs):
                return runs[::-1]
            await client.gateway.pause(0.05)


async def keep_promises(factory: Factory, *, kills: int, seed: int) -> None:
    gateway = await factory()
    dice = random.Random(seed)
    strikes = Strikes(gateway, dice)
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        ordered = [await client.call("POST", "/api/jobs", body=job(name)) for name in NAMES]
        for _ in range(kills):
            await gateway.pause(dice.uniform(0.2, 1.8))
            await dice.choice((strikes.kill, strikes.kill_while_starting))()
        await gateway.pause(1.5)
        for _, each in ordered:
            await client.call("PATCH", f"/api/jobs/{each['id']}", body={"state": "paused"})
        for name, (_, each) in zip(NAMES, ordered, strict=True):
            check(name, await runs_of(client, each["id"]), await client.transcript(name))
        await strikes.stop()


def check(name: str, runs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """Check that no second has two runs or none, no two runs share a turn, and each run that
    succeeded was told once."""
    instants = [run["due_at"] for run in runs]
    assert {later - earlier for earlier, later in pairwise(instants)} == {A_SECOND}, name
    turns = Counter(run["turn"] for run in runs if run["turn"])
    assert set(turns.values()) == {1}, name
    done = [run for run in runs if run["outcome"] == "done"]
    told = [each for each in messages if each["text"].startswith(f'You said: "count the {name}"')]
    assert len(told) == len(done) >= 2, (name, runs)
    assert {run["delivery"] for run in done} == {"here"}, name
    assert {run["state"] for run in runs} <= OVER


@pytest.mark.timeout(120)
async def test_kills_lose_no_run_and_repeat_none(gateway_factory: Factory, seed: int) -> None:
    await keep_promises(gateway_factory, kills=3, seed=seed)


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_thirty_kills_lose_no_run_and_repeat_none(
    gateway_factory: Factory, seed: int
) -> None:
    await keep_promises(gateway_factory, kills=30, seed=seed)
