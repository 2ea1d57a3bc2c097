"""Checks `/v1` of a real gateway with the `openai` SDK and a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import aiohttp
import openai
import pytest

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]


def toml(model: ModelServer, more: str = "") -> str:
    return f"""
[agents.main]
kind = "chat"
base_url = "{model.openai_url}"
model = "scripted"
first_token_timeout_s = 1.0
silence_timeout_s = 1.0
context = false
instructions = "Be brief."
{more}
"""


class Setting:
    def __init__(self, gateway: GatewayProcess, model: ModelServer) -> None:
        self.gateway = gateway
        self.model = model
        self.sdk = openai.AsyncOpenAI(
            base_url=gateway.url + "/v1", api_key=gateway.token, max_retries=0
        )

    async def ask(self, text: str, conversation: str | None = "main", **more: Any) -> Any:
        headers = {"X-Perdure-Conversation": conversation} if conversation else {}
        return await self.sdk.chat.completions.create(
            model="main",
            messages=[{"role": "user", "content": text}],
            extra_headers={**headers, **more.pop("headers", {})},
            **more,
        )

    @property
    def asked(self) -> dict[str, Any]:
        """Return the body of the model's last request."""
        body = self.model.requests[-1].body
        assert body is not None
        return body


class Replies:
    """Decides what the model says next, by the rule that a test sets."""

    def __init__(self) -> None:
        self.rule: script.Script = script.echo

    def __call__(self, request: script.ScriptedRequest) -> script.Reply:
        return self.rule(request)


@pytest.fixture
def replies() -> Replies:
    return Replies()


@pytest.fixture
async def setting(gateway_factory: Factory, replies: Replies) -> AsyncIterator[Setting]:
    async with ModelServer(replies) as model:
        gateway = await gateway_factory(toml=toml(model))
        setting = Setting(gateway, model)
        try:
            yield setting
        finally:
            await setting.sdk.close()


async def test_the_sdk_is_answered_whole_and_streamed(setting: Setting) -> None:
    answer = await setting.ask("hello")
    assert answer.choices[0].message.content == "echo: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens > 0

    stream = await setting.ask("again", stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "echo: again"
    assert chunks[-1].usage.completion_tokens > 0
    assert [m.id for m in (await setting.sdk.models.list()).data] == ["main"]
    assert not setting.model.violations


async def test_in_a_conversation_history_is_the_gateways(setting: Setting) -> None:
    await setting.ask("first")
    await setting.ask("second")
    messages = setting.asked["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert [m["content"] for m in messages[1:]] == ["first", "echo: first", "second"]


async def test_without_a_conversation_the_call_brings_its_own(setting: Setting) -> None:
    answer = await setting.sdk.chat.completions.create(
        model="main",
        messages=[
            {"role": "system", "content": "Speak like a pirate."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ],
    )
    assert answer.choices[0].message.content == "echo: three"
    sent = setting.asked["messages"]
    assert "pirate" in sent[0]["content"]
    assert [m["content"] for m in sent[1:]] == ["one", "two", "three"]
    assert not setting.model.violations


async def test_request_bytes_before_the_last_turn_are_stable(setting: Setting) -> None:
    for n in range(4):
        await setting.ask(f"message {n}")
    bodies = [request.raw for request in setting.model.requests]
    for before, later in pairwise(bodies):
        history = before[before.index(b'"messages"') :].rstrip(b"]}")
        assert history in later


async def test_tools_of_the_caller_pass_through(setting: Setting, replies: Replies) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    replies.rule = lambda request: script.call_tools([("c1", "look", '{"at": "sky"}')])
    answer = await setting.ask("look", conversation=None, tools=tools)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, answer.choices[0].finish_reason) == ("look", "tool_calls")
    assert setting.asked["tools"][0]["function"]["name"] == "look"

    replies.rule = lambda request: script.say("it is blue")
    answer = await setting.sdk.chat.completions.create(
        model="main",
        messages=[
            {"role": "user", "content": "look"},
            answer.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "blue"},
        ],
        tools=tools,  # type: ignore[arg-type]
    )
    assert answer.choices[0].message.content == "it is blue"


@pytest.mark.parametrize("conversation", ["main", None], ids=["named", "of its own"])
async def test_the_model_is_asked_as_the_caller_asks(
    setting: Setting, conversation: str | None
) -> None:
    asked = {
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["o"],
        "seed": 7,
        "response_format": {"type": "json_object"},
    }
    answer = await setting.ask("hello", conversation, n=1, user="ada", **asked)
    assert answer.choices[0].message.content == "echo: hello"
    assert {name: setting.asked[name] for name in asked} == asked
    assert {"n", "user"} & {*setting.asked} == set()

    await setting.ask("and again", conversation)
    assert {*asked} & {*setting.asked} == set(), "for that call only"


async def test_a_choice_among_the_callers_tools_is_kept(setting: Setting) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    choice = {"type": "function", "function": {"name": "look"}}
    await setting.ask("look", conversation=None, tools=tools, tool_choice=choice)
    assert setting.asked["tool_choice"] == choice


WRONG: list[dict[str, Any]] = [
    {"n": 2},
    {"temperature": "hot"},
    {"max_tokens": 0},
    {"response_format": "json"},
]


@pytest.mark.parametrize("more", WRONG, ids=lambda more: next(iter(more)))
async def test_what_cannot_be_asked_is_refused(setting: Setting, more: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        await setting.ask("hello", extra_body=more)
    assert setting.model.requests == []


async def test_an_idempotency_key_repeats_the_answer(setting: Setting) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await setting.ask("hello", headers=key)
    again = await setting.ask("hello", headers=key)
    assert again.id == first.id
    assert again.choices[0].message.content == first.choices[0].message.content
    assert len(setting.model.requests) == 1
    with pytest.raises(openai.ConflictError):
        await setting.ask("something else", headers=key)


async def test_a_repeat_with_a_picture_is_the_same_message(setting: Setting) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    said = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": pixel}},
    ]
    key = {"Idempotency-Key": "k3"}
    message: Any = {"role": "user", "content": said}
    calls = [
        await setting.sdk.chat.completions.create(
            model="main", messages=[message], extra_headers=key
        )
        for _ in range(2)
    ]
    assert calls[0].id == calls[1].id
    assert len(setting.model.requests) == 1


@pytest.mark.parametrize("surface", ["completions", "responses"])
async def test_too_many_pictures_in_one_message_are_refused_at_once(
    setting: Setting, surface: str
) -> None:
    url = "http://127.0.0.1:9/a.png"
    parts: Any = [{"type": "image_url", "image_url": {"url": url}}] * 20_000
    items: Any = [{"type": "input_image", "image_url": url, "detail": "auto"}] * 20_000

    async def call() -> None:
        if surface == "completions":
            said: Any = {"role": "user", "content": parts}
            await setting.sdk.chat.completions.create(model="main", messages=[said])
        else:
            asked: Any = [{"role": "user", "content": items}]
            await setting.sdk.responses.create(model="main", input=asked)

    with pytest.raises(openai.BadRequestError, match="at most 20 pictures") as refused:
        await call()
    assert refused.value.code == "too_many"
    assert setting.model.requests == []


async def test_a_repeat_attaches_to_the_turn_that_runs(setting: Setting, replies: Replies) -> None:
    replies.rule = lambda request: script.say("a b c d e f g h", delay_ms=40)
    key = {"Idempotency-Key": "k2"}
    first = asyncio.ensure_future(setting.ask("slow", headers=key))
    await setting.model.wait_for_requests(1)
    stream = await setting.ask("slow", headers=key, stream=True)
    text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
    assert text == "a b c d e f g h"
    assert (await first).choices[0].message.content == text
    assert len(setting.model.requests) == 1


async def test_a_closed_socket_changes_no_outcome(setting: Setting, replies: Replies) -> None:
    replies.rule = lambda request: script.say("one two three four five six", delay_ms=30)
    stream = await setting.ask("slow", stream=True)
    async for _ in stream:
        break
    await stream.close()
    headers = {"Authorization": f"Bearer {setting.gateway.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, asyncio.timeout(10):
        while True:
            url = setting.gateway.url + "/api/conversations/main/transcript"
            async with session.get(url) as response:
                entries = (await response.json())["messages"]
            if entries and entries[-1].get("outcome"):
                break
            await asyncio.sleep(0.02)
    assert (entries[-1]["outcome"], entries[-1]["text"]) == ("done", "one two three four five six")


TROUBLE: list[tuple[str, script.Reply, str]] = [
    ("refused", script.status(401), "provider_rejected"),
    ("garbage", script.garbage(b"<html>no</html>"), "provider_error"),
    ("cut", script.cut_without_finish(script.say("half an")), "provider_cut"),
    ("hang", script.hang("before_headers"), "provider_timeout"),
    ("hang later", script.hang(2), "provider_timeout"),
    ("error inside", script.error_in_stream(2), "provider_error"),
]


@pytest.mark.parametrize(("name", "reply", "reason"), TROUBLE, ids=[t[0] for t in TROUBLE])
async def test_trouble_with_the_model_is_said_and_passes(
    setting: Setting, replies: Replies, name: str, reply: script.Reply, reason: str
) -> None:
    replies.rule = lambda request: reply
    with pytest.raises(openai.APIStatusError) as caught:
        await setting.ask("try")
    assert caught.value.status_code == 502
    assert caught.value.response.json()["error"]["type"] == reason
    assert caught.value.response.json()["error"]["message"]

    replies.rule = script.echo
    answer = await setting.ask("still there?")
    assert answer.choices[0].message.content.endswith("still there?")
    assert not setting.model.violations


async def roles(gateway: GatewayProcess, name: str) -> list[str]:
    async with aiohttp.ClientSession() as session:
        return [entry["role"] for entry in await Client(gateway, session).transcript(name)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_repeats_by_itself_says_nothing_twice(
    gateway_factory: Factory, stream: bool
) -> None:
    gateway = await gateway_factory(toml="[budgets.agent.daily]\ntokens = 2000\n")
    url = gateway.url + "/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=gateway.token) as sdk:
        for name, text, status in (("a", "demo fail", 502), ("b", "x" * 20_000, 429)):
            messages: Any = [{"role": "user", "content": text}]
            headers = {"X-Perdure-Conversation": name}
            with pytest.raises(openai.APIStatusError) as caught:
                await sdk.chat.completions.create(
                    model="main", messages=messages, extra_headers=headers, stream=stream
                )
            assert caught.value.status_code == status
            assert await roles(gateway, name) == ["user", "assistant"]


@pytest.mark.parametrize(
    "reply",
    [
        script.status(429, retry_after=0),
        script.status(503),
        script.error_in_stream(0, kind="overloaded_error"),
        script.cut_after(0, script.say("nothing of this")),
    ],
    ids=["429", "503", "error inside", "cut"],
)
async def test_too_many_requests_are_tried_again(
    setting: Setting, replies: Replies, reply: script.Reply
) -> None:
    replies.rule = script.in_turn(reply, script.say("at last"))
    assert (await setting.ask("hi")).choices[0].message.content == "at last"
    assert len(setting.model.requests) == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_limit_of_the_model_that_lasts_is_the_callers_to_wait_out(
    setting: Setting, replies: Replies, stream: bool
) -> None:
    replies.rule = lambda _: script.status(429, retry_after=3600)
    for conversation in (None, "limited"):
        with pytest.raises(openai.RateLimitError) as caught:
            await setting.ask("hi", conversation, stream=stream)
        assert caught.value.response.headers["Retry-After"] == "3600"
        assert caught.value.response.json()["error"]["code"] == "rate_limit_exceeded"

    replies.rule = script.echo
    answer = await setting.ask("still there?")
    assert answer.choices[0].message.content.endswith("still there?")


async def test_a_fallback_answers_when_the_first_agent_is_down(gateway_factory: Factory) -> None:
    async with ModelServer() as model:
        gateway = await gateway_factory(
            toml='[agents.main]\nkind = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
            'model = "gone"\nfallbacks = ["backup"]\n'
            + toml(model).replace("agents.main", "agents.backup")
        )
        setting = Setting(gateway, model)
        answer = await setting.ask("hi")
        assert answer.choices[0].message.content == "echo: hi"
        await setting.sdk.close()


async def test_chores_of_a_front_end_become_no_turns(setting: Setting) -> None:
    task = (
        "### Task:\nGenerate a concise title.\n### Output:\n"
        'JSON format: { "title": "your title here" }\n<chat_history>\nUSER: Fix my bicycle\n'
    )
    answer = await setting.ask(task, conversation=None)
    assert answer.choices[0].message.content == '{"title":"Fix my bicycle"}'
    assert setting.model.requests == []

    mine = "### Task:\nName this garden."
    assert (await setting.ask(mine)).choices[0].message.content == f"echo: {mine}"


async def test_a_model_on_the_anthropic_wire_answers_on_the_same_surface(
    gateway_factory: Factory,
) -> None:
    async with ModelServer() as model:
        config = toml(model, 'api = "anthropic"').replace(model.openai_url, model.url)
        setting = Setting(await gateway_factory(toml=config), model)
        assert (await setting.ask("one")).choices[0].message.content == "echo: one"
        assert (await setting.ask("two")).choices[0].message.content == "echo: two"
        assert not model.violations
        await setting.sdk.close()


async def test_a_changed_configuration_is_taken_and_a_broken_one_is_not(
    setting: Setting,
) -> None:
    path = setting.gateway.home / "perdure.toml"
    path.write_text("[agents.main\n")
    async with asyncio.timeout(20):
        while "configuration not applied" not in setting.gateway.output:
            await asyncio.sleep(0.05)
    assert (await setting.ask("still?")).choices[0].message.content == "echo: still?"

    path.write_text(toml(setting.model) + '[agents.second]\nkind = "demo"\n')
    async with asyncio.timeout(20):
        while [m.id for m in (await setting.sdk.models.list()).data] != ["main", "second"]:
            await asyncio.sleep(0.05)
    assert (await setting.ask("and now?")).choices[0].message.content == "echo: and now?"


async def test_commands_are_taken_in_a_conversation_and_are_text_elsewhere(
    setting: Setting,
) -> None:
    await setting.ask("first")
    await setting.ask("second")
    undone = await setting.ask("/undo")
    stream = await setting.ask("/undo x", stream=True)
    told = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
    again = await setting.ask("/retry")
    alone = await setting.ask("/undo", conversation=None)

    assert undone.choices[0].message.content == "Undone:\n\nsecond"
    assert told.startswith("/undo [N]")
    assert again.choices[0].message.content == "echo: first"
    assert alone.choices[0].message.content == "echo: /undo"
