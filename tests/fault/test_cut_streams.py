"""Cuts the model's stream at random bytes under a whole gateway.

However far the stream got, the turn fails visibly and keeps everything that was shown, and the
conversation goes on.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.models.model_script import (
    Reply,
    ScriptedAnswer,
    ScriptedDialect,
    ScriptedRequest,
    call_tools,
    cut_after,
    say,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.model_wire import anthropic_stream, openai_stream
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
AT_ONCE = 10
WORDS = ("plain", "größe", "数据", "🙂", "a\nline", '"quoted"', "\\", "e\u0301")


def answer_of(seed: int) -> ScriptedAnswer:
    dice = random.Random(seed)
    text = " ".join(dice.choices(WORDS, k=dice.randrange(1, 40)))
    delay_ms = dice.choice((0, 0, 1, 4))
    if dice.random() < 0.3:
        calls = [("c1", "look", '{"at": "größe"}'), ("c2", "look", "{}")]
        return call_tools(calls, text=text, fragments=3, delay_ms=delay_ms)
    return say(text, delay_ms=delay_ms)


def cut_at_random(request: ScriptedRequest) -> Reply:
    """Answer `cut SEED` with a stream that never reaches its finish marker."""
    word, _, seed = request.last_user_text.rpartition("\n")[2].partition(" ")
    if word != "cut":
        return say("all is well")
    answer = answer_of(int(seed))
    wire = openai_stream if request.dialect is ScriptedDialect.OPENAI else anthropic_stream
    opening, chunks, _ = wire(answer, request)
    before_finish = len(opening) + sum(map(len, chunks))
    return cut_after(random.Random(int(seed)).randrange(before_finish), answer)


def configuration(server: ModelServer) -> str:
    # Without patience, a stream that is cut before its first word is not asked for again.
    agent = (
        '[agents.{}]\nkind = "chat"\napi = "{}"\nbase_url = "{}"\nmodel = "scripted"\n'
        "patience_s = 0\n"
    )
    return agent.format("openai", "openai", server.openai_url) + agent.format(
        "anthropic", "anthropic", server.url
    )


async def shown_until_over(client: Client, name: str, ready: asyncio.Event) -> dict[str, str]:
    """Return what a watcher is shown of each message before the next outcome."""
    shown: dict[str, str] = {}
    async with client.events(name) as events:
        async for _, kind, data in events:
            ready.set()
            if kind == "outcome":
                return shown
            if kind == "delta":
                seen = shown.get(data["message"], "")
                assert data["offset"] == len(seen), "a gap, or a repetition"
                shown[data["message"]] = seen + data["text"]
    raise AssertionError("the stream of events ended before the turn")


async def cut_one(client: Client, seed: int) -> bool:
    """Let one answer be cut. Returns whether any of it had been shown."""
    name, agent = f"room-{seed}", ("openai", "anthropic")[seed % 2]
    await client.settled((await client.say(name, "hello", agent=agent))["turn"])
    ready = asyncio.Event()
    watching = asyncio.create_task(shown_until_over(client, name, ready))
    await ready.wait()
    cut = await client.settled((await client.say(name, f"cut {seed}", agent=agent))["turn"])
    shown = await watching

    assert (cut["outcome"], cut["reason"]) == ("failed", "provider_cut"), seed
    transcript = await client.transcript(name)
    entries = [entry for entry in transcript if entry["turn"] == cut["id"]]
    assert_kept(entries, shown, seed)
    after = await client.settled((await client.say(name, "and now", agent=agent))["turn"])
    assert after["outcome"] == "done", (seed, after)
    assert (await client.transcript(name))[: len(transcript)] == transcript
    return bool(shown)


def assert_kept(entries: list[dict[str, Any]], shown: dict[str, str], seed: int) -> None:
    stored = {entry["id"]: entry["text"] for entry in entries if entry["role"] == "assistant"}
    for message, text in shown.items():
        assert stored[message].startswith(text), seed
    assert entries[-1]["outcome"] == "failed"
    assert answer_of(seed).text.startswith("".join(stored.values())), seed
    assert not any(entry.get("tool_calls") for entry in entries), "a call that was cut is no call"


async def cut_many(factory: Factory, *, seeds: range) -> None:
    async with ModelServer(cut_at_random) as server, aiohttp.ClientSession() as session:
        client = Client(await factory(toml=configuration(server)), session)
        room = asyncio.Semaphore(AT_ONCE)

        async def one(seed: int) -> bool:
            async with room:
                return await cut_one(client, seed)

        has_shown = await asyncio.gather(*(one(seed) for seed in seeds))
        assert server.violations == []
    assert sum(has_shown) > len(seeds) / 3, "hardly anything was shown: this proves nothing"


async def test_a_stream_cut_anywhere_keeps_what_was_shown(
    gateway_factory: Factory, seed: int
) -> None:
    await cut_many(gateway_factory, seeds=range(seed, seed + 100))


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_a_thousand_cut_streams_keep_what_was_shown(
    gateway_factory: Factory, seed: int
) -> None:
    await cut_many(gateway_factory, seeds=range(seed, seed + 1000))
