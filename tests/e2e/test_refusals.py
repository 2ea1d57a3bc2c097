"""Checks that what a model's server refuses does not block a conversation: a real gateway asks
servers that take no lists, no pictures or no forbidden words, on both wires."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.domain.journal.left_out import MESSAGE_LEFT_OUT, PICTURE_LEFT_OUT
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedAnswer,
    ScriptedRequest,
    call_tools,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.refusing import (
    FORBIDDEN,
    PICTURE,
    by_policy,
    strings_only,
    without_pictures,
)
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]
CLOCK: Final = SystemClock()
ADA: Final = 42
WIRES: Final = ("openai", "anthropic")


def agent(server: ModelServer, wire: str = "openai", name: str = "main") -> str:
    url = server.openai_url if wire == "openai" else server.url
    return f"""
[agents.{name}]
kind = "chat"
api = "{wire}"
base_url = "{url}"
model = "scripted"
api_key = "none"
patience_s = 0
"""


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@asynccontextmanager
async def talking(
    factory: Factory, session: aiohttp.ClientSession, server: ModelServer, wire: str = "openai"
) -> AsyncIterator[Client]:
    toml = agent(server, wire) + "[sessions]\ntitles = false\n"
    gateway = await factory(toml=toml)
    yield Client(gateway, session)
    assert server.violations == []


async def ask(client: Client, text: str, **more: Any) -> dict[str, Any]:
    """Send a message, and return its turn when it is over."""
    return await client.settled((await client.say("main", text, **more))["turn"])


async def upload(client: Client) -> str:
    headers = {"Content-Type": "image/png", "X-Filename": "cat.png"}
    code, body = await client.call("POST", "/api/media", raw=PICTURE, **headers)
    assert code == 201, body
    return str(body["id"])


def asked(server: ModelServer) -> str:
    """Return the messages of the newest request, as JSON."""
    body = server.requests[-1].body
    assert body is not None
    return json.dumps(body["messages"])


def fine(_: ScriptedRequest) -> ScriptedAnswer:
    return say("Fine.")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_message_refused_by_policy_is_left_out_until_it_is_asked_again(
    gateway_factory: Factory, session: aiohttp.ClientSession, wire: str
) -> None:
    rule: list[str] = [FORBIDDEN]

    def script(request: ScriptedRequest) -> Reply:
        return (by_policy(fine) if rule else fine)(request)

    async with (
        ModelServer(script) as server,
        talking(gateway_factory, session, server, wire) as client,
    ):
        await ask(client, "hello")
        failed = await ask(client, f"a {FORBIDDEN} thing")
        assert (failed["outcome"], failed["reason"]) == ("failed", "content_refused")
        assert "flagged as potentially violating our usage policy" in failed["detail"]
        assert "/retry" in failed["detail"]
        assert "127.0.0.1" not in failed["detail"]

        assert (await ask(client, "and now?"))["outcome"] == "done"
        assert FORBIDDEN not in asked(server)
        assert MESSAGE_LEFT_OUT in asked(server)
        assert "hello" in asked(server)
        shown = await client.transcript("main")
        assert [each["text"] for each in shown if each.get("left_out")] == [f"a {FORBIDDEN} thing"]
        assert shown[2]["left_out"] == "message"

        await client.say("main", "/undo")
        rule.clear()
        again = await client.say("main", "/retry")
        assert (await client.settled(again["turn"]))["outcome"] == "done"
        assert FORBIDDEN in asked(server)
        assert not any(each.get("left_out") for each in await client.transcript("main"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", [strings_only, without_pictures])
async def test_a_refused_picture_is_left_out_and_its_words_stay(
    gateway_factory: Factory, session: aiohttp.ClientSession, wire: str, kind: Any
) -> None:
    async with (
        ModelServer(kind(fine)) as server,
        talking(gateway_factory, session, server, wire) as client,
    ):
        failed = await ask(client, "look", attachments=[{"media": await upload(client)}])
        assert (failed["outcome"], failed["reason"]) == ("failed", "content_refused")
        assert "the picture will be left out" in failed["detail"]

        assert (await ask(client, "and now?"))["outcome"] == "done"
        assert "look" in asked(server)
        assert f"cat.png (image/png): {PICTURE_LEFT_OUT}" in asked(server)
        assert (await client.transcript("main"))[0]["left_out"] == "pictures"


async def test_pictures_that_another_agent_took_are_left_out_for_one_that_does_not(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    async with ModelServer(fine) as seeing, ModelServer(without_pictures(fine)) as blind:
        toml = agent(seeing) + agent(blind, name="blind") + "[sessions]\ntitles = false\n"
        client = Client(await gateway_factory(toml=toml), session)
        seen = await ask(client, "look", attachments=[{"media": await upload(client)}])
        assert seen["outcome"] == "done"
        assert "image_url" in asked(seeing)
        await client.say("main", "/agent blind")
        assert (await ask(client, "what was it?"))["reason"] == "content_refused"

        assert (await ask(client, "go on"))["outcome"] == "done"
        assert "image_url" not in asked(blind)
        assert "what was it?" in asked(blind)
        shown = await client.transcript("main", "?limit=2&before=" + await _last(client))
        assert all("left_out" not in each for each in shown)
        first = (await client.transcript("main"))[0]
        assert (first["text"], first["left_out"]) == ("look", "pictures")


async def _last(client: Client) -> str:
    return str((await client.transcript("main"))[-1]["id"])


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_other_failures_leave_nothing_out(
    gateway_factory: Factory, session: aiohttp.ClientSession, code: int
) -> None:
    def script(_: ScriptedRequest) -> Reply:
        return status(code, message="flagged by the image policy")

    async with (
        ModelServer(script) as server,
        talking(gateway_factory, session, server) as client,
    ):
        media = await upload(client)
        for _ in range(3):
            failed = await ask(client, "look", attachments=[{"media": media}])
            assert failed["reason"] != "content_refused"
        assert "left out" not in asked(server)
        assert asked(server).count('"type": "image_url"') >= 3
        assert not any(each.get("left_out") for each in await client.transcript("main"))


async def test_a_refused_result_of_a_tool_is_left_out_too(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    def script(request: ScriptedRequest) -> Reply:
        if "look" in request.last_user_text and request.messages[-1]["role"] != "tool":
            arguments = json.dumps({"action": "save", "text": f"likes {FORBIDDEN} fruit"})
            return call_tools([("call_1", "memory", arguments)])
        return say("Fine.")

    async with ModelServer(by_policy(script)) as server:
        toml = agent(server) + 'tools = ["memory"]\n[sessions]\ntitles = false\n'
        client = Client(await gateway_factory(toml=toml), session)
        failed = await ask(client, "look")
        assert failed["outcome"] == "failed"
        assert failed["reason"] == "content_refused"


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_the_server_withholds_is_no_answer(
    gateway_factory: Factory, session: aiohttp.ClientSession, wire: str
) -> None:
    def script(request: ScriptedRequest) -> Reply:
        is_bad = FORBIDDEN in json.dumps(request.messages)
        return ScriptedAnswer(finish="content_filter") if is_bad else say("Fine.")

    async with (
        ModelServer(script) as server,
        talking(gateway_factory, session, server, wire) as client,
    ):
        failed = await ask(client, f"a {FORBIDDEN} thing")
        assert (failed["outcome"], failed["reason"]) == ("failed", "content_refused")
        assert len(server.requests) == 1

        assert (await ask(client, "and now?"))["outcome"] == "done"


async def test_one_other_agent_is_asked_and_no_more(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    strict = by_policy(fine)
    async with ModelServer(strict) as one, ModelServer(strict) as two, ModelServer(fine) as three:
        toml = agent(one) + 'fallbacks = ["two", "three"]\n'
        toml += agent(two, name="two") + agent(three, name="three")
        client = Client(await gateway_factory(toml=toml), session)
        failed = await ask(client, f"a {FORBIDDEN} thing")

        assert failed["reason"] == "content_refused"
        assert [len(each.requests) for each in (one, two, three)] == [1, 1, 0]


async def test_a_refusal_counts_more_than_an_agent_that_is_away(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    async with ModelServer(fine) as gone:
        pass
    async with ModelServer(by_policy(fine)) as one:
        toml = agent(one) + 'fallbacks = ["two"]\n' + agent(gone, name="two")
        client = Client(await gateway_factory(toml=toml.replace("patience_s = 0", "")), session)

        assert (await ask(client, f"a {FORBIDDEN} thing"))["reason"] == "content_refused"
        assert (await ask(client, "and now?"))["outcome"] == "done"


async def test_a_summary_leaves_out_what_its_writer_refuses(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    async with ModelServer(by_policy(fine)) as strict, ModelServer(fine) as liberal:
        toml = agent(liberal) + agent(strict, name="strict") + "[sessions]\ntitles = false\n"
        client = Client(await gateway_factory(toml=toml), session)
        for text in ("hello", f"a {FORBIDDEN} thing", "one", "two", "three"):
            assert (await ask(client, text * 40))["outcome"] == "done"
        await client.say("main", "/agent strict")
        errand = await client.say("main", "/compact")
        assert (await client.settled(errand["turn"]))["outcome"] == "done"
        # The strict agent has never seen the conversation, and can go on with it at once.
        assert (await ask(client, "and now?"))["outcome"] == "done"
        assert "hello" not in asked(strict)
        assert "three" in asked(strict)
        assert strict.violations == []


@pytest.mark.parametrize("wire", WIRES)
async def test_a_program_is_told_that_its_own_request_was_refused(
    gateway_factory: Factory, session: aiohttp.ClientSession, wire: str
) -> None:
    async with (
        ModelServer(by_policy(fine)) as server,
        talking(gateway_factory, session, server, wire) as client,
    ):
        messages = [{"role": "user", "content": f"a {FORBIDDEN} thing"}]
        body = {"model": "main", "messages": messages}
        code, answer = await client.call("POST", "/v1/chat/completions", body=body)

        assert (code, answer["error"]["code"]) == (400, "content_refused")
        assert "flagged as potentially violating" in answer["error"]["message"]
        assert "/retry" not in answer["error"]["message"]


async def test_on_a_platform_an_edit_brings_a_refused_message_back(
    gateway_factory: Factory,
) -> None:
    async with ModelServer(by_policy(fine)) as server, BotApi(CLOCK) as api:
        bot = f'token = "{api.token}"\napi_url = "{api.url}"\nallow = ["{ADA}"]\n'
        toml = agent(server) + "[sessions]\ntitles = false\n[adapters.telegram]\n" + bot
        await gateway_factory(toml=toml)
        number = api.write(ADA, f"a {FORBIDDEN} thing")
        told = (await api.wait_shown(ADA, lambda shown: _says(shown, "flagged as")))[-1].text
        assert "an edit brings it back" in told
        assert told.count("/retry") == 1
        api.write(ADA, "and now?")
        await api.wait_shown(ADA, lambda shown: _says(shown, "Fine."))
        assert FORBIDDEN not in asked(server)

        api.edit(ADA, number, "a kind thing")
        await api.wait_shown(ADA, lambda shown: _says(shown, "Changed in the history"))
        api.write(ADA, "and then?")
        await server.wait_for_requests(3)
        assert "a kind thing" in asked(server)
        assert MESSAGE_LEFT_OUT not in asked(server)


def _says(shown: list[ShownMessage], words: str) -> bool:
    return any(words in message.text for message in shown)


async def test_the_prefix_breaks_once_and_is_named(
    gateway_factory: Factory, session: aiohttp.ClientSession
) -> None:
    async with (
        ModelServer(by_policy(fine)) as server,
        talking(gateway_factory, session, server) as client,
    ):
        await ask(client, "hello")
        turns = [
            await ask(client, text) for text in (f"a {FORBIDDEN} thing", "one", "two", "three")
        ]
        breaks = [await _prefix_break(client, turn["id"]) for turn in turns]
        assert breaks == ["", "view", "", ""]
        two, three = (each.body for each in server.requests[-2:])
        assert two is not None
        assert three is not None
        # Each request begins with all messages of the one before.
        assert three["messages"][: len(two["messages"])] == two["messages"]
        code, found = await client.call("GET", f"/api/explain/{turns[-1]['id']}?request=true")
        assert code == 200
        assert MESSAGE_LEFT_OUT in json.dumps(found)
        assert FORBIDDEN not in json.dumps(found["request"])


async def _prefix_break(client: Client, turn: str) -> str:
    _, found = await client.call("GET", f"/api/explain/{turn}")
    settled = [each["body"] for each in found["events"] if each["kind"] == "turn_settled"]
    return str(settled[-1]["prefix_break"])
