"""Checks `/v1` for programs that bring tools beside the agent's own, and for turns that wait for a
person."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import msgspec
import openai
import pytest

from perdure.domain.tools.callers import NO_RESULT
from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MEMORY = {
    "type": "function",
    "function": {"name": "memory", "description": "mine", "parameters": {"type": "object"}},
}
REMEMBERS = ("c1", "memory", '{"action": "list"}')
LOOKS = ("c2", "look", '{"at": "sky"}')


def toml(model: ModelServer, api: str) -> str:
    url = model.url if api == "anthropic" else model.openai_url
    return f"""
[agents.main]
kind = "chat"
api = "{api}"
base_url = "{url}"
model = "scripted"
context = false
tools = ["memory"]

[agents.strict]
kind = "chat"
api = "{api}"
base_url = "{url}"
model = "scripted"
context = false
tools = ["memory"]
approve = {{ memory = "always" }}

[agents.careful]
kind = "demo"
tools = ["memory"]
approve = {{ memory = "always" }}

[server]
call_wait_s = 1
"""


class Rig:
    """Holds a gateway, the model behind it, and what the model says next."""

    def __init__(self) -> None:
        self.rule: script.Script = script.echo
        self.model = ModelServer(self.reply)

    def reply(self, asked: script.ScriptedRequest) -> script.Reply:
        return self.rule(asked)

    def open(self, gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.client = Client(gateway, http)
        self.sdk = openai.AsyncOpenAI(
            base_url=gateway.url + "/v1", api_key=gateway.token, max_retries=0
        )

    async def ask(self, messages: Any, conversation: str | None = "room", **more: Any) -> Any:
        """Make a call. A text is a message of the user."""
        said: Any = messages
        if isinstance(messages, str):
            said = [{"role": "user", "content": messages}]
        headers = {"X-Perdure-Conversation": conversation} if conversation else {}
        return await self.sdk.chat.completions.create(
            model=more.pop("model", "main"),
            messages=said,
            extra_headers={**headers, **more.pop("headers", {})},
            **more,
        )

    async def asks_to_look(self, conversation: str | None = "room") -> Any:
        """Make a call whose answer asks for the caller's tool. Returns that call."""
        self.rule = lambda asked: script.call_tools([LOOKS])
        answer = await self.ask("look", conversation, tools=[LOOK])
        (call,) = answer.choices[0].message.tool_calls
        self.rule = script.echo
        return call

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Return the bodies of all requests to the model."""
        return [cast("dict[str, Any]", request.body) for request in self.model.requests]

    def told(self, number: int = -1) -> list[Any]:
        """Return the messages of a request, each as its role and its content, or for results what
        they answer."""
        messages = self.bodies[number]["messages"]
        return [
            (m["role"], m["content"])
            if m["role"] != "assistant"
            else ("assistant", [c["function"]["name"] for c in m.get("tool_calls", ())])
            for m in messages
            if m["role"] != "system"
        ]

    @asynccontextmanager
    async def stream(self, text: str, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a streamed call to the careful agent, without the SDK."""
        said = [{"role": "user", "content": text}]
        sent = {
            "Authorization": f"Bearer {self.gateway.token}",
            "X-Perdure-Conversation": "careful",
            **headers,
        }
        async with (
            aiohttp.ClientSession(headers=sent) as http,
            http.post(
                f"{self.gateway.url}/v1/chat/completions",
                json={"model": "careful", "stream": True, "messages": said},
            ) as response,
        ):
            yield response

    async def is_sound(self) -> bool:
        status, found = await self.client.call("GET", "/api/verify")
        return (status, found["violations"]) == (200, []) and not self.model.violations


def result(call: Any, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": text}


@pytest.fixture(params=["openai"])
async def rig(gateway_factory: Factory, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    rig = Rig()
    async with rig.model, aiohttp.ClientSession() as http:
        rig.open(await gateway_factory(toml=toml(rig.model, request.param)), http)
        try:
            yield rig
        finally:
            await rig.sdk.close()


async def test_the_agents_calls_run_here_and_the_callers_come_back(rig: Rig) -> None:
    rig.rule = lambda asked: script.call_tools([REMEMBERS, LOOKS], text="Let me see.")
    answer = await rig.ask("look", tools=[LOOK])
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("look", '{"at": "sky"}')
    assert [t["function"]["name"] for t in rig.bodies[0]["tools"]] == ["memory", "result", "look"]
    assert len(rig.bodies) == 1, "the caller's call ends the turn"

    rig.rule = lambda asked: script.say("It is blue.")
    answer = await rig.ask([result(call, "blue")], tools=[LOOK])
    assert answer.choices[0].message.content == "It is blue."
    asked, calls, remembered, looked = rig.told()
    assert (asked, calls) == (("user", "look"), ("assistant", ["memory", "look"]))
    assert "data from outside" in remembered[1]
    assert looked == ("tool", "blue"), "the caller's own text is not framed"
    assert rig.bodies[0]["tools"] == rig.bodies[1]["tools"]
    assert await rig.is_sound()


async def test_in_a_stream_only_the_callers_calls_are_shown(rig: Rig) -> None:
    rig.rule = script.in_turn(script.call_tools([REMEMBERS]), script.call_tools([LOOKS]))
    stream = await rig.ask("look", tools=[LOOK], stream=True)
    chunks = [chunk async for chunk in stream]
    calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
    assert [call.function.name for call in calls] == ["look"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert len(rig.bodies) == 2


async def test_without_a_conversation_the_agents_calls_run_here_too(rig: Rig) -> None:
    rig.rule = script.in_turn(
        script.call_tools([REMEMBERS]), script.call_tools([LOOKS]), script.say("It is blue.")
    )
    first = await rig.ask("look", None, tools=[LOOK])
    (call,) = first.choices[0].message.tool_calls
    whole = [
        {"role": "user", "content": "look"},
        first.choices[0].message.model_dump(exclude_none=True),
        result(call, "blue"),
    ]
    second = await rig.ask(whole, None, tools=[LOOK])
    assert second.choices[0].message.content == "It is blue."
    assert rig.told() == [("user", "look"), ("assistant", ["look"]), ("tool", "blue")]
    assert await rig.is_sound()


async def test_a_tool_of_the_caller_takes_the_place_of_the_agents(rig: Rig) -> None:
    rig.rule = lambda asked: script.call_tools([REMEMBERS])
    answer = await rig.ask("what do you know?", tools=[MEMORY])
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "memory"
    assert rig.bodies[0]["tools"][-1] == MEMORY
    names = [tool["function"]["name"] for tool in rig.bodies[0]["tools"]]
    assert names == ["result", "memory"]


async def test_the_history_of_a_client_may_come_with_its_results(rig: Rig) -> None:
    call = await rig.asks_to_look()
    history = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        result(call, "blue"),
        {"role": "user", "content": "and what is that called?"},
    ]
    answer = await rig.ask(history, tools=[LOOK])
    assert answer.choices[0].message.content == "echo: and what is that called?"
    words = ("user", "and what is that called?")
    assert rig.told() == [("user", "look"), ("assistant", ["look"]), ("tool", "blue"), words]
    transcript = await rig.client.transcript("room")
    assert [(m["role"], m["text"]) for m in transcript][2:4] == [
        ("user", "and what is that called?"),
        ("tool", "blue"),
    ]


@pytest.mark.parametrize("rig", ["openai", "anthropic"], indirect=True)
async def test_a_call_without_its_result_is_told_so(rig: Rig) -> None:
    call = await rig.asks_to_look()
    await rig.ask("never mind")
    shown = msgspec.json.encode(rig.bodies[-1]["messages"]).decode()
    assert NO_RESULT in shown

    answer = await rig.ask([result(call, "blue")], tools=[LOOK])
    shown = msgspec.json.encode(rig.bodies[-1]["messages"]).decode()
    assert "came late" in shown
    assert "blue" in answer.choices[0].message.content
    assert await rig.is_sound()


@pytest.mark.parametrize("rig", ["openai", "anthropic"], indirect=True)
async def test_undo_retry_and_branch_leave_the_request_valid(rig: Rig) -> None:
    call = await rig.asks_to_look()
    rig.rule = lambda asked: script.say("It is blue.")
    await rig.ask([result(call, "blue")], tools=[LOOK])
    first = rig.bodies[-1]["messages"]
    await rig.client.say("room", "/retry")
    await _until(lambda: len(rig.bodies) == 3)
    assert rig.bodies[-1]["messages"] == first
    await rig.client.say("room", "/undo")
    answer = await rig.ask([result(call, "grey")], tools=[LOOK])
    assert answer.choices[0].message.content == "It is blue."
    for command in ("/undo", "/branch", "/compact"):
        await rig.client.say("room", command)
    await rig.ask("and now?")
    assert await rig.is_sound()


async def test_results_that_belong_to_no_call_are_refused(rig: Rig) -> None:
    with pytest.raises(openai.BadRequestError, match="preceding message with 'tool_calls'"):
        await rig.ask([{"role": "tool", "tool_call_id": "call_x", "content": "blue"}])
    call = await rig.asks_to_look()
    with pytest.raises(openai.BadRequestError, match="twice"):
        await rig.ask([result(call, "blue"), result(call, "grey")])
    rig.rule = lambda asked: script.say("It is blue.")
    await rig.ask([result(call, "blue")])
    with pytest.raises(openai.BadRequestError, match="answered before"):
        await rig.ask([result(call, "blue")])
    answer = await rig.ask([result(call, "blue"), {"role": "user", "content": "sure?"}])
    assert answer.choices[0].message.content == "It is blue."
    assert rig.told()[-1] == ("user", "sure?"), "what the gateway knows is not told again"


async def test_results_are_repeated_while_their_turn_runs(rig: Rig) -> None:
    call = await rig.asks_to_look()
    rig.rule = lambda asked: script.hang(1, script.say("It is blue."))
    streams = [await rig.ask([result(call, "blue")], stream=True) for _ in range(2)]
    begun = [await anext(_words(stream)) for stream in streams]
    rig.model.release()
    rest = ["".join([each async for each in _words(stream)]) for stream in streams]
    assert [first + more for first, more in zip(begun, rest, strict=True)] == ["It is blue."] * 2
    assert len(rig.bodies) == 2


async def _words(stream: Any) -> AsyncIterator[str]:
    """Yield the texts of a stream."""
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def test_results_survive_a_kill(rig: Rig) -> None:
    call = await rig.asks_to_look()
    rig.rule = lambda asked: script.hang(0, script.say("nothing"))
    asking = asyncio.create_task(rig.ask([result(call, "blue")], headers={"Idempotency-Key": "k"}))
    await _until(lambda: len(rig.bodies) == 2)
    await rig.gateway.kill()
    with pytest.raises(openai.APIConnectionError):
        await asking
    rig.rule = lambda asked: script.say("It is blue.")
    await rig.gateway.start()
    answer = await rig.ask([result(call, "blue")], headers={"Idempotency-Key": "k"})
    assert answer.choices[0].message.content == "It is blue."
    assert ("tool", "blue") in rig.told()
    assert await rig.is_sound()


@pytest.mark.parametrize("is_merged", [True, False])
async def test_the_request_is_made_again_byte_for_byte(rig: Rig, is_merged: bool) -> None:
    tools = [LOOK] if is_merged else [LOOK, MEMORY]
    call = await rig.asks_to_look()
    answer = await rig.ask([result(call, "blue")], tools=tools)
    turn = f"trn_{answer.id.removeprefix('chatcmpl-trn_')}"
    status, found = await rig.client.call("GET", f"/api/explain/{turn}?request=true")
    assert status == 200
    body = rig.bodies[-1]
    asked = found["request"]
    assert msgspec.json.decode(asked["tools"]) == body["tools"]
    encoded = b",".join(msgspec.json.encode(each) for each in asked["encoded"])
    assert b'"messages":[' + encoded + b"]" in rig.model.requests[-1].raw


async def test_over_the_responses_api_it_is_the_same(rig: Rig) -> None:
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    rig.rule = script.in_turn(script.call_tools([REMEMBERS, LOOKS]), script.say("It is blue."))
    headers = {"X-Perdure-Conversation": "room"}
    responses = rig.sdk.responses
    first: Any = await responses.create(
        model="main", input="look", tools=cast("Any", [look]), extra_headers=headers
    )
    (item,) = [each for each in first.output if each.type == "function_call"]
    output = {"type": "function_call_output", "call_id": item.call_id, "output": "blue"}
    second: Any = await responses.create(
        model="main",
        input=cast("Any", [output]),
        previous_response_id=first.id,
        tools=cast("Any", [look]),
    )
    assert second.output_text == "It is blue."
    assert rig.told()[-1] == ("tool", "blue")
    with pytest.raises(openai.BadRequestError, match="answered before"):
        await responses.create(
            model="main", input=cast("Any", [output]), previous_response_id=second.id
        )
    assert await rig.is_sound()


async def test_a_call_whose_turn_waits_for_a_person_is_open_or_comes_again(rig: Rig) -> None:
    text = 'demo tool memory {"action": "list"}'
    key = {"Idempotency-Key": "k"}
    async with rig.stream(text, **key) as response:
        first = await response.content.readline()
        question = await _asked(rig)
        with pytest.raises(openai.APIStatusError) as refused:
            await rig.ask(text, "careful", model="careful", headers=key)
        again = asyncio.create_task(rig.ask(text, "careful", model="careful", headers=key))
        await _answered(rig, question, "allow")
        rest = await response.text()
    error = refused.value
    body = cast("dict[str, Any]", error.body)
    assert (error.status_code, body["code"], body["retryable"]) == (503, "waiting", True)
    assert int(error.response.headers["Retry-After"]) >= 1
    assert "X-Should-Retry" not in error.response.headers
    assert (first[:5], rest.splitlines()[-2]) == (b"data:", "data: [DONE]")
    assert any(line.startswith(":") for line in rest.splitlines())
    said = (await again).choices[0].message.content
    assert said.startswith("The tool memory answered")
    assert len(await rig.client.transcript("careful")) == len(
        ["the message", "its call", "the result", "the answer"]
    )


@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_the_callers_calls_come_back_after_a_person_has_answered(
    rig: Rig, answer: str
) -> None:
    rig.rule = lambda asked: script.call_tools([REMEMBERS, LOOKS])
    asking = asyncio.create_task(rig.ask("look", model="strict", tools=[LOOK], stream=True))
    await _answered(rig, await _asked(rig), answer)
    chunks = [chunk async for chunk in await asking]
    (call,) = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
    assert call.function.name == "look"
    rig.rule = lambda asked: script.say("It is blue.")
    again = await rig.ask([result(call, "blue")], model="strict", tools=[LOOK])
    assert again.choices[0].message.content == "It is blue."
    assert [role for role, _ in rig.told()] == ["user", "assistant", "tool", "tool"]
    assert await rig.is_sound()


@pytest.mark.parametrize("arguments", ['{"action": "save", "text": "cut"}', '{"action": "sa'])
async def test_a_call_that_the_limit_of_the_answer_has_cut_does_not_run(
    rig: Rig, arguments: str
) -> None:
    saves = script.call_tools([("c1", "memory", arguments)], text="I note it.")
    rig.rule = lambda asked: msgspec.structs.replace(saves, finish="length")
    answer = await rig.ask("note this")

    assert (answer.choices[0].finish_reason, answer.choices[0].message.tool_calls) == (
        "length",
        None,
    )
    entries = await rig.client.transcript("room")
    assert [each["role"] for each in entries] == ["user", "assistant"]
    rig.rule = script.echo
    await rig.ask("and now?")
    assert await rig.is_sound()


async def test_nobody_is_asked_in_a_call_without_a_conversation(rig: Rig) -> None:
    rig.rule = script.in_turn(script.call_tools([REMEMBERS]), script.say("I may not."))
    answer = await rig.ask("what do you know?", None, model="strict", tools=[LOOK])
    assert answer.choices[0].message.content == "I may not."
    assert "nobody can be asked here" in rig.told()[-1][1]


async def test_a_repeat_without_a_key_attaches_to_the_turn_that_waits(rig: Rig) -> None:
    text = 'demo tool memory {"action": "list"}'
    with pytest.raises(openai.APIStatusError) as refused:
        await rig.ask(text, "careful", model="careful")
    assert refused.value.status_code == 503
    assert refused.value.response.headers["X-Should-Retry"] == "false"
    question = await _asked(rig)
    async with rig.stream(text) as response:
        await response.content.readline()
        await _answered(rig, question, "deny")
        assert "data: [DONE]" in await response.text()
    transcript = await rig.client.transcript("careful")
    assert [m["role"] for m in transcript].count("user") == 1


async def _answered(rig: Rig, question: str, answer: str) -> None:
    status, _ = await rig.client.call("POST", f"/api/approvals/{question}", body={"answer": answer})
    assert status == 200


async def _asked(rig: Rig) -> str:
    """Wait until a person is asked, and return the question."""
    while True:
        _, found = await rig.client.call("GET", "/api/approvals")
        if found["approvals"]:
            return str(found["approvals"][0]["id"])
        await asyncio.sleep(0.05)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)
