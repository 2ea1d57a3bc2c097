"""Checks conversations with a model whose window is small: a real gateway assumes 128,000 tokens,
and a scripted server refuses longer requests in the words of the usual providers, on both wires."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiohttp
import pytest

from perdure.testkit.models.model_script import Reply, ScriptedRequest, hang, say, status
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.small_window import WORDINGS_OF_WINDOWS, small_window, tokens_asked
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
Factory = Callable[..., Awaitable[GatewayProcess]]
WINDOW: Final = 2000
# About 300 tokens.
LONG: Final = "of the sea, the wind and the long way home " * 28
ASKS_SUMMARY: Final = "Answer with the summary"
WIRES: Final = ("openai", "anthropic")
# Each wording on one wire, and on the other one when there is more time.
WALKS: Final = [
    pytest.param(wording, api, marks=[] if number % 2 == turn else pytest.mark.chaos)
    for number, wording in enumerate(sorted(WORDINGS_OF_WINDOWS))
    for turn, api in enumerate(WIRES)
]


def is_summary(request: ScriptedRequest) -> bool:
    return ASKS_SUMMARY in request.last_user_text


def talks(request: ScriptedRequest) -> Reply:
    """Answer a person, or an order for a summary."""
    return say("They spoke of the sea.") if is_summary(request) else say("Yes.")


class Small:
    """Plays a model with a small window. `within` answers what fits; a test may change it."""

    def __init__(self, wording: str = "openai") -> None:
        self.within: Callable[[ScriptedRequest], Reply] = talks
        self.server = ModelServer(small_window(WINDOW, self._within, wording=wording))

    def _within(self, request: ScriptedRequest) -> Reply:
        return self.within(request)

    def agent(self, name: str = "main", *, api: str = "openai", rest: str = "") -> str:
        url = self.server.openai_url if api == "openai" else self.server.url
        return (
            f'[agents.{name}]\nkind = "chat"\napi = "{api}"\nbase_url = "{url}"\n'
            f'model = "small"\npatience_s = 1\n{rest}\n'
        )


class Talk:
    """Speaks with a gateway in one conversation."""

    def __init__(self, client: Client, place: str = "main") -> None:
        self.client = client
        self.place = place

    async def say(self, text: str) -> dict[str, Any]:
        said = await self.client.say(self.place, text)
        return await self.client.settled(said["turn"])

    async def command(self, text: str) -> str:
        return str((await self.client.say(self.place, text)).get("reply", ""))

    async def events(self, kind: str) -> list[dict[str, Any]]:
        _, here = await self.client.call("GET", f"/api/conversations/{self.place}")
        _, body = await self.client.call("GET", f"/api/sessions/{here['session']}/journal")
        return [each["body"] for each in body["events"] if each["kind"] == kind]

    async def window(self, agent: str = "main") -> int:
        _, found = await self.client.call("GET", "/api/status")
        return next(int(each.get("window", 0)) for each in found["agents"] if each["name"] == agent)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.mark.parametrize("api", WIRES)
async def test_a_conversation_that_is_too_long_heals_and_the_window_is_kept(
    gateway_factory: Factory, session: aiohttp.ClientSession, api: str
) -> None:
    model = Small("anthropic" if api == "anthropic" else "llama.cpp")
    async with model.server:
        gateway = await gateway_factory(toml=model.agent(api=api))
        talk = Talk(Client(gateway, session))
        outcomes = [(await talk.say(f"{number}: {LONG}"))["outcome"] for number in range(9)]

        assert outcomes == ["done"] * 9
        (refused, *others) = await talk.events("window_exceeded")
        assert (refused["window"], refused["model"]) == (WINDOW, "small")
        assert others == []
        assert (await talk.events("room_sought"))[0]["compaction"]
        assert await talk.window() == WINDOW
        texts = [each["text"] for each in await talk.client.transcript("main", "?limit=100")]
        assert [text[0] for text in texts if LONG in text] == [str(n) for n in range(9)]
        await gateway.terminate()
        await gateway.start()
        talk.client.gateway = gateway
        assert await talk.window() == WINDOW
        before = len(model.server.requests)
        assert [(await talk.say(LONG))["outcome"] for _ in range(6)] == ["done"] * 6
        assert model.server.violations == []
        asked = model.server.requests[before:]
    # Older turns are summarised in time from now on.
    assert all(len(each.raw) / 4 < WINDOW * 1.2 for each in asked)
    assert not await _refused_again(talk)


async def _refused_again(talk: Talk) -> bool:
    return len(await talk.events("window_exceeded")) > 1


@pytest.mark.parametrize(("wording", "api"), WALKS)
async def test_commands_and_messages_at_random_have_no_dead_end(
    gateway_factory: Factory, session: aiohttp.ClientSession, wording: str, api: str, seed: int
) -> None:
    model = Small(wording)
    async with model.server:
        gateway = await gateway_factory(toml=model.agent(api=api))
        talk, dice = Talk(Client(gateway, session)), random.Random(f"{seed} {wording} {api}")
        for number in range(24):
            await step(talk, dice, number)
            # Whatever was said or commanded, the next short message is answered.
            if number % 4 == 3:
                ended = await talk.say("And now?")
                assert ended["outcome"] == "done", ended
        assert model.server.violations == []
    named = "{window}" in WORDINGS_OF_WINDOWS[wording].message
    assert await talk.window() in ((WINDOW,) if named else (0,))


async def step(talk: Talk, dice: random.Random, number: int) -> None:
    """Say or command something."""
    commands = ["/undo", "/undo 2", "/redo", "/retry", "/new", "/branch", "/resume", "/compact"]
    said = [LONG, LONG * 2, LONG * 3, "short", LONG * 12]
    if dice.random() < 0.4:
        taken = await talk.client.say(talk.place, dice.choice([*commands, "/compact off"]))
        if taken.get("turn"):
            await talk.client.settled(taken["turn"])
        return
    ended = await talk.say(f"{number}: {dice.choice(said)}")
    assert ended["outcome"] == "done" or ended["reason"] == "context_exceeded", ended


@pytest.mark.parametrize("api", WIRES)
async def test_a_message_that_does_not_fit_alone_is_named_and_the_next_is_answered(
    gateway_factory: Factory, session: aiohttp.ClientSession, api: str
) -> None:
    model = Small("openai" if api == "openai" else "anthropic")
    async with model.server:
        gateway = await gateway_factory(toml=model.agent(api=api))
        client = Client(gateway, session)
        await client.become("ada")  # no operator
        talk = Talk(client)
        ended = await talk.say(f"Sing {LONG * 12}")

        assert (ended["outcome"], ended["reason"]) == ("failed", "context_exceeded")
        assert "the message “Sing of the sea, the wind" in ended["detail"]
        assert "2,000 tokens" in ended["detail"]
        assert "maximum" not in ended["detail"]  # the server's own words are for operators
        assert (await talk.say("What did I say?"))["outcome"] == "done"
        assert (await talk.say("And now?"))["outcome"] == "done"


async def test_compact_works_in_a_conversation_that_is_too_long(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    model = Small()
    model.within = lambda request: status(500) if is_summary(request) else say("Yes.")
    async with model.server:
        gateway = await gateway_factory(toml=model.agent())
        talk = Talk(Client(gateway, session))
        ended = [await talk.say(f"{number}: {LONG}") for number in range(7)]
        assert ended[-1]["reason"] == "context_exceeded"
        assert "could not be summarised" in ended[-1]["detail"]
        model.within = talks
        assert "Compacting" in await talk.command("/compact the sea")
        async with _told(talk, "Compacted"):
            pass
        assert (await talk.say(LONG))["outcome"] == "done"
        asked = [each.raw.decode() for each in model.server.requests]
    assert any("the sea" in each and ASKS_SUMMARY in each for each in asked)


def _told(talk: Talk, words: str) -> Any:
    return _Told(talk, words)


class _Told:
    """Waits until people were told something."""

    def __init__(self, talk: Talk, words: str) -> None:
        self._talk, self._words = talk, words

    async def __aenter__(self) -> None:
        for _ in range(500):
            notices = await self._talk.events("notice_posted")
            if any(self._words in each["text"] for each in notices):
                return
            await self._talk.client.gateway.pause(0.02)
        raise AssertionError(f"nobody was told {self._words!r}")

    async def __aexit__(self, *_: object) -> None:
        return


@pytest.mark.parametrize("fails", ["401", "500", "empty", "gone"])
async def test_if_the_compact_agent_fails_the_own_agent_writes_the_summary(
    gateway_factory: Factory, session: aiohttp.ClientSession, fails: str
) -> None:
    model = Small()
    replies: dict[str, Reply] = {"401": status(401), "500": status(500), "empty": say("")}
    async with model.server, ModelServer(lambda _: replies.get(fails, hang())) as broken:
        url = "http://127.0.0.1:9/v1" if fails == "gone" else broken.openai_url
        other = f'[agents.brief]\nkind = "chat"\nbase_url = "{url}"\nmodel = "brief"\n'
        toml = model.agent(rest='compact_agent = "brief"') + other
        talk = Talk(Client(await gateway_factory(toml=toml), session))
        ended = [(await talk.say(f"{number}: {LONG}"))["outcome"] for number in range(8)]
        assert ended == ["done"] * 8
        assert (await talk.events("room_sought"))[0]["compaction"]
        other_place = Talk(talk.client, "elsewhere")
        for number in range(3):
            await other_place.say(f"{number}: {LONG}")
        assert "Compacting" in await other_place.command("/compact")
        async with _told(other_place, "Compacted"):
            pass


async def test_a_kill_while_room_is_made_loses_nothing(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    model = Small()
    async with model.server:
        gateway = await gateway_factory(toml=model.agent())
        talk = Talk(Client(gateway, session))
        for number in range(6):
            await talk.say(f"{number}: {LONG}")
        model.within = lambda request: hang() if is_summary(request) else say("Yes.")
        said = await talk.client.say("main", f"6: {LONG}")
        while not any(ASKS_SUMMARY in each.raw.decode() for each in model.server.requests):
            await gateway.pause(0.02)
        async with _told(talk, "Its older part is being summarised first"):
            pass  # people are told after a few seconds
        await gateway.kill()
        model.within = talks
        await gateway.start()
        assert (await talk.client.settled(said["turn"]))["outcome"] == "done"
        assert len(await talk.events("compacted")) == 1
        assert len(await talk.events("window_exceeded")) == 1


async def test_a_server_that_lacks_memory_is_no_small_window(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    words = "CUDA out of memory; reduce the maximum context length of 131072 tokens"
    async with ModelServer(lambda _: status(400, message=words)) as broken:
        toml = f'[agents.main]\nkind = "chat"\nbase_url = "{broken.openai_url}"\nmodel = "m"\n'
        talk = Talk(Client(await gateway_factory(toml=toml), session))
        ended = await talk.say("hello")

        assert ended["reason"] == "provider_rejected"
        assert "out of memory" in ended["detail"]
        assert await talk.window() == 0
        assert len([each for each in broken.requests if b"hello" in each.raw]) == 1


def test_the_script_measures_what_is_sent() -> None:
    body = {"messages": [{"role": "user", "content": "four" * 100}], "tools": ["abcd" * 10]}
    request = ScriptedRequest(1, "openai", "m", body["messages"], True, body, 0)  # type: ignore[arg-type]

    assert tokens_asked(request) == 111
