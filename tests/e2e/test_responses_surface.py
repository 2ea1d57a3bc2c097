"""Checks `/v1/responses` of a real gateway with the `openai` SDK and a scripted model.

The SDK accepts much without a check, so these tests validate whole responses and events against the
SDK's own types.
"""

import asyncio
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


class Gate:
    """Holds a gateway, the model behind it, and what the model says next."""

    def __init__(self, port: int = 0) -> None:
        self.rule: script.Script = script.echo
        self.model = ModelServer(self.reply, port=port)

    def reply(self, asked: script.ScriptedRequest) -> script.Reply:
        return self.rule(asked)

    def open(self, gateway: GatewayProcess, token: str = "") -> None:
        self.gateway = gateway
        self.token = token or gateway.token
        self.sdk = openai.AsyncOpenAI(
            base_url=gateway.url + "/v1", api_key=self.token, max_retries=0
        )

    async def ask(self, given: Any, **more: Any) -> Any:
        named = more.pop("conversation", None)
        key = more.pop("key", None)
        headers = {"X-Perdure-Conversation": named, "Idempotency-Key": key}
        return await self.sdk.responses.create(
            model="main",
            input=given,
            extra_headers={name: value for name, value in headers.items() if value},
            **more,
        )

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any, Any]:
        """Make a call without the SDK. Returns the status, the headers and the body."""
        headers = {"Authorization": f"Bearer {more.pop('token', self.token)}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.gateway.url + path, **more) as response,
        ):
            return response.status, response.headers, await response.json(content_type=None)

    @property
    def told(self) -> list[dict[str, Any]]:
        """Return the messages of the model's last request, without the system message."""
        body = self.model.requests[-1].body
        assert body is not None
        return [message for message in body["messages"] if message["role"] != "system"]

    @property
    def system(self) -> str:
        body = self.model.requests[-1].body
        assert body is not None
        return "\n".join(m["content"] for m in body["messages"] if m["role"] == "system")


def toml(model: ModelServer, api: str = "openai") -> str:
    url = model.openai_url if api == "openai" else model.url
    return (
        f'[agents.main]\nkind = "chat"\napi = "{api}"\nbase_url = "{url}"\nmodel = "scripted"\n'
        'instructions = "Be brief."\ntools = ["memory"]\ncontext = false\n'
        "[sessions]\ntitles = false\n"
    )


@pytest.fixture
async def own_gate(gateway_factory: Factory, request: pytest.FixtureRequest) -> AsyncIterator[Gate]:
    gate = Gate()
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    api = given.get("gate", "openai")
    async with gate.model as model:
        gate.open(await gateway_factory(toml=toml(model, api)))
        yield gate
        await gate.sdk.close()
        assert not model.violations


@pytest.fixture(scope="module")
def shared(share_gateway: Callable[[str], GatewayProcess]) -> tuple[GatewayProcess, int]:
    """Start a gateway that tests share. Returns it, and the port at which each test puts a
    model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return share_gateway(toml(ModelServer(port=port))), port


@pytest.fixture
async def shared_gate(
    shared: tuple[GatewayProcess, int], request: pytest.FixtureRequest
) -> AsyncIterator[Gate]:
    gateway, port = shared
    gate = Gate(port)
    async with aiohttp.ClientSession() as session, gate.model as model:
        guest = Client(gateway, session)
        await guest.become(f"guest {zlib.crc32(request.node.nodeid.encode())}")
        gate.open(gateway, guest.token)
        yield gate
        await gate.sdk.close()
        assert not model.violations
        assert gateway.is_running, "this test has ended the gateway of others"


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Gate:
    """Return the test's own gateway or, if the test is marked `shared`, one that several tests
    use."""
    name = "shared_gate" if request.node.get_closest_marker("shared") else "own_gate"
    found: Gate = request.getfixturevalue(name)
    return found


async def events_of(stream: Any) -> list[dict[str, Any]]:
    """Return all events, each valid by the SDK's types, and numbered without a gap."""
    events = [event.model_dump(mode="json", warnings="error") async for event in stream]
    for number, event in enumerate(events):
        EVENT.validate_python(event)
        assert event["sequence_number"] == number
    return events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Return the types of the events. The pieces of one text count once."""
    named = [event["type"] for event in events]
    return [kind for n, kind in enumerate(named) if not n or kind != named[n - 1]]


@pytest.mark.shared
async def test_the_sdk_is_answered_whole(gate: Gate) -> None:
    response = await gate.ask("hello", metadata={"topic": "greeting"}, store=False, top_p=0.5)
    Response.model_validate(response.model_dump(mode="json", warnings="error"))
    assert response.output_text == "echo: hello"
    assert (response.status, response.model, response.object) == ("completed", "main", "response")
    assert response.metadata == {"topic": "greeting"}
    assert response.usage.output_tokens > 0
    assert response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens
    )


@pytest.mark.shared
async def test_a_stream_has_the_official_events_in_order(gate: Gate) -> None:
    gate.rule = lambda asked: script.say("one two three four", delay_ms=40)
    events = await events_of(await gate.ask("count", stream=True))

    assert kinds(events) == TEXT_EVENTS
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == "one two three four"
    last = events[-1]["response"]
    assert last["status"] == "completed"
    assert last["output"] == [events[-2]["item"]]
    assert last["output"][0]["content"][0]["text"] == "one two three four"
    assert {e["response"]["id"] for e in events if "response" in e} == {last["id"]}
    assert {e["item_id"] for e in events if "item_id" in e} == {last["output"][0]["id"]}


@pytest.mark.shared
async def test_the_sdks_own_stream_gathers_it(gate: Gate) -> None:
    async with gate.sdk.responses.stream(model="main", input="hello") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "echo: hello"


@pytest.mark.shared
async def test_items_become_what_the_model_is_told(gate: Gate) -> None:
    await gate.ask(
        [
            {"role": "developer", "content": "Speak like a pirate."},
            {"type": "message", "role": "user", "content": "one"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sky"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "sea"}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "three"},
                    {"type": "input_image", "detail": "auto", "image_url": PIXEL},
                ],
            },
        ],
        instructions="Never swear.",
    )
    assert [m["role"] for m in gate.told] == ["user", "assistant", "tool", "tool", "user"]
    assert [m["content"] for m in gate.told[:4]] == ["one", "two", "sky", "sea"]
    assert [call["id"] for call in gate.told[1]["tool_calls"]] == ["c1", "c2"]
    assert gate.told[4]["content"][0] == {"type": "text", "text": "three"}
    assert gate.told[4]["content"][1]["image_url"]["url"] == PIXEL
    assert "pirate" in gate.system
    assert "Never swear." in gate.system


BAD: list[tuple[Any, str]] = [
    ([], "invalid_messages"),
    ("  ", "empty_message"),
    (7, "invalid_body"),
    ([{"role": "user", "content": 7}], "invalid_body"),
    ([{"role": "king", "content": "bow"}], "invalid_messages"),
    ([{"role": "assistant", "content": "I was last"}], "invalid_messages"),
    ([{"type": "item_reference", "id": "msg_1"}], "unsupported"),
    ([{"type": "function_call", "name": "look", "arguments": "{}"}], "invalid_body"),
    ([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}], "unsupported"),
    ([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}], "unsupported"),
]


@pytest.mark.shared
@pytest.mark.parametrize(("given", "code"), BAD, ids=[json.dumps(b[0])[:40] for b in BAD])
async def test_what_cannot_be_taken_is_said(gate: Gate, given: Any, code: str) -> None:
    status, _, body = await gate.call("POST", "/v1/responses", json={"input": given})
    assert (status, body["error"]["code"]) == (400, code)
    assert gate.model.requests == []


@pytest.mark.parametrize("gate", ["openai", "anthropic"], indirect=True)
async def test_a_response_is_continued_by_its_id_alone(gate: Gate) -> None:
    brought = [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": [{"type": "input_text", "text": "first"}]},
    ]
    first = await gate.ask(brought, instructions="Whisper.")
    second = await gate.ask("second", previous_response_id=first.id)
    await gate.gateway.restart()
    third = await gate.ask("third", previous_response_id=second.id)

    assert third.output_text == "echo: third"
    assert third.previous_response_id == second.id
    assert [script.text_of(m) for m in gate.told] == [
        "I am Ada.", "Noted.", "first", "echo: first", "second", "echo: second", "third",
    ]  # fmt: skip
    assert b"Whisper." not in gate.model.requests[-1].raw, "instructions are for one call"
    _, _, listed = await gate.call("GET", "/api/conversations")
    assert listed["conversations"] == []


@pytest.mark.shared
async def test_a_response_may_be_continued_in_two_ways(gate: Gate) -> None:
    first = await gate.ask("first")
    await gate.ask("left", previous_response_id=first.id)
    await gate.ask("right", previous_response_id=first.id)
    assert [m["content"] for m in gate.told] == ["first", "echo: first", "right"]


@pytest.mark.shared
async def test_pictures_are_still_there_when_a_response_is_continued(gate: Gate) -> None:
    image = {"type": "input_image", "detail": "auto", "image_url": PIXEL}
    first = await gate.ask([{"role": "user", "content": [image]}])
    await gate.ask("what was it?", previous_response_id=first.id)
    assert gate.told[0]["content"][0]["image_url"]["url"] == PIXEL


@pytest.mark.shared
async def test_a_response_that_still_grows_is_waited_for(gate: Gate) -> None:
    gate.rule = lambda asked: script.hang(2, script.say("one two three"))
    stream = await gate.ask("slow", stream=True)
    created = await anext(aiter(stream))
    gate.rule = script.echo
    following = asyncio.ensure_future(
        gate.ask("and then?", previous_response_id=created.response.id)
    )
    status, _, seen = await gate.call("GET", f"/v1/responses/{created.response.id}")
    gate.model.release()

    assert (await following).output_text == "echo: and then?"
    assert [m["content"] for m in gate.told] == ["slow", "one two three", "and then?"]
    assert (status, seen["status"]) == (200, "in_progress")
    assert "one two three".startswith(Response.model_validate(seen).output_text)
    await stream.close()


@pytest.mark.shared
async def test_in_a_conversation_history_is_the_gateways(gate: Gate) -> None:
    first = await gate.ask("first", conversation="garden")
    second = await gate.ask("second", previous_response_id=first.id)
    await gate.ask("third", metadata={"conversation": "garden"}, previous_response_id=second.id)

    said = ["first", "echo: first", "second", "echo: second", "third"]
    assert [m["content"] for m in gate.told] == said
    _, _, body = await gate.call("GET", "/api/conversations/garden/transcript")
    assert [entry["text"] for entry in body["messages"]] == [*said, "echo: third"]
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await gate.ask("fourth", conversation="cellar", previous_response_id=second.id)


@pytest.mark.parametrize("gate", ["openai", "anthropic"], indirect=True)
async def test_functions_of_the_caller_are_called_and_answered(gate: Gate) -> None:
    calls = [("c1", "look", '{"at": "sky"}'), ("c2", "look", '{"at": "sea"}')]
    gate.rule = lambda asked: script.call_tools(calls, text="Let me look.")
    first = await gate.ask("look around", tools=[LOOK])
    assert [item.type for item in first.output] == ["message", "function_call", "function_call"]
    assert [item.arguments for item in first.output[1:]] == [c[2] for c in calls]
    assert (first.status, first.tools[0].name) == ("completed", "look")

    gate.rule = lambda asked: script.say("all blue")
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "blue"}
        for item in first.output[1:]
    ]
    by_id = await gate.ask(outputs, previous_response_id=first.id, tools=[LOOK])
    told_by_id = gate.told
    whole = [{"role": "user", "content": "look around"}, *first.output, *outputs]
    by_items = await gate.ask(whole, tools=[LOOK])

    assert by_id.output_text == by_items.output_text == "all blue"
    assert told_by_id == gate.told, "two ways to say the same"
    assert script.text_of(gate.told[1]) == "Let me look."


@pytest.mark.shared
async def test_calls_are_streamed_with_the_official_events(gate: Gate) -> None:
    calls = [("c1", "look", '{"at": "sky"}'), ("c2", "look", "{}")]
    gate.rule = lambda asked: script.call_tools(calls)
    events = await events_of(await gate.ask("look", tools=[LOOK], stream=True))
    one_call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert kinds(events) == [*TEXT_EVENTS[:2], *one_call, *one_call, "response.completed"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == [0, 1]
    assert [event["item"] for event in done] == events[-1]["response"]["output"]
    assert done[0]["item"]["arguments"] == '{"at": "sky"}'


@pytest.mark.shared
async def test_tools_that_a_provider_would_run_are_refused(gate: Gate) -> None:
    with pytest.raises(openai.BadRequestError, match="web_search"):
        await gate.ask("news?", tools=[{"type": "web_search"}])


@pytest.mark.shared
async def test_the_model_is_asked_as_the_caller_asks(gate: Gate) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    answer = await gate.ask(
        "hello",
        text={"format": form, "verbosity": "low"},
        temperature=0.3,
        top_p=0.9,
        max_output_tokens=16,
        reasoning={"effort": "low"},
        tools=[LOOK],
        tool_choice={"type": "function", "name": "look"},
        parallel_tool_calls=False,
    )
    assert answer.output_text == "echo: hello"
    asked = gate.model.requests[-1].body or {}
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (0.3, 0.9, 16)
    assert asked["response_format"]["json_schema"] == {k: form[k] for k in form if k != "type"}
    assert (asked["reasoning_effort"], asked["parallel_tool_calls"]) == ("low", False)
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "look"}}

    await gate.ask("plainly", text={"format": {"type": "text"}})
    asked = gate.model.requests[-1].body or {}
    assert asked["response_format"] == {"type": "text"}
    with pytest.raises(openai.BadRequestError, match="web_search"):
        await gate.ask("hello", tool_choice={"type": "web_search"})


@pytest.mark.shared
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_a_failing_agent_has_its_status(gate: Gate, is_streamed: bool) -> None:
    gate.rule = lambda asked: script.status(401)
    with pytest.raises(openai.APIStatusError) as caught:
        await gate.ask("try", stream=is_streamed)
    assert caught.value.status_code == 502
    error = caught.value.response.json()["error"]
    assert (error["code"], error["type"]) == ("provider_failed", "provider_rejected")
    turn = caught.value.response.headers["X-Perdure-Turn"]
    assert turn in error["message"]

    kept = await gate.sdk.responses.retrieve(f"resp_{turn.removeprefix('trn_')}")
    Response.model_validate(kept.model_dump(mode="json", warnings="error"))
    assert (kept.status, kept.output) == ("failed", [])
    assert kept.error is not None
    assert turn in kept.error.message


@pytest.mark.shared
async def test_a_stream_that_fails_says_so_and_is_no_success(gate: Gate) -> None:
    gate.rule = lambda asked: script.error_in_stream(2, script.say("half an answer"))
    stream = await gate.ask("try", stream=True)
    seen: list[Any] = []

    async def listen() -> None:
        async for event in stream:
            seen.append(event)  # noqa: PERF401 - what came before the error is wanted

    with pytest.raises(openai.APIError) as caught:
        await listen()
    named = kinds([event.model_dump(mode="json") for event in seen])
    assert named == [*TEXT_EVENTS[:-1], "response.failed"]
    last = seen[-1].response
    assert (last.status, last.output_text) == ("failed", "half an ")
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["code"] == "provider_failed"
    assert (await gate.sdk.responses.retrieve(last.id)).output_text == "half an "


@pytest.mark.shared
async def test_an_answer_that_was_cut_short_is_incomplete(gate: Gate) -> None:
    gate.rule = lambda asked: script.say("as far as", finish="length")
    whole = await gate.ask("go on")
    events = await events_of(await gate.ask("go on", stream=True))
    assert (whole.status, whole.output_text) == ("incomplete", "as far as")
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert events[-1]["type"] == "response.incomplete"


async def stopped(gate: Gate, *, once: Callable[[list[Any]], bool]) -> tuple[int, Any, Any]:
    """Ask in a conversation and stop the answer once its transcript is as wanted."""
    given = {"input": "slow", "metadata": {"conversation": "garden"}}
    asking = asyncio.ensure_future(gate.call("POST", "/v1/responses", json=given))
    entries: list[Any] = []
    async with asyncio.timeout(10):
        while not once(entries):
            await asyncio.sleep(0.02)
            _, _, body = await gate.call("GET", "/api/conversations/garden/transcript")
            entries = body.get("messages", [])
    await gate.call("POST", f"/api/turns/{entries[-1]['turn']}/stop")
    return await asking


@pytest.mark.shared
async def test_a_stopped_response_gives_what_there_is(gate: Gate) -> None:
    gate.rule = lambda asked: script.hang(2, script.say("one two three"))
    status, headers, body = await stopped(
        gate, once=lambda entries: bool(entries) and entries[-1]["text"] == "one two "
    )
    assert (status, headers["X-Perdure-Outcome"]) == (200, "stopped")
    assert (body["status"], Response.model_validate(body).output_text) == ("incomplete", "one two ")
    assert body["id"] == f"resp_{headers['X-Perdure-Turn'].removeprefix('trn_')}"


@pytest.mark.shared
async def test_calls_that_are_the_agents_own_are_not_the_callers(gate: Gate) -> None:
    remember = script.call_tools([("c1", "memory", '{"action": "list"}')])
    gate.rule = script.in_turn(remember, script.hang())
    status, _, body = await stopped(
        gate, once=lambda entries: bool(entries) and entries[-1]["role"] == "tool"
    )
    assert (status, body["status"]) == (200, "incomplete")
    assert [item["type"] for item in body["output"]] == ["message"]


async def test_a_repeat_finds_its_response_after_a_kill(gate: Gate) -> None:
    gate.rule = lambda asked: script.hang(2, script.say("one two three"))
    first = await gate.ask("hello", key="k1", stream=True)
    async for event in first:
        if event.type == "response.output_text.delta":
            break
    seen = event.delta
    await gate.gateway.kill()
    gate.rule = lambda asked: script.say("and the rest")
    await gate.gateway.start()

    again = await gate.ask("hello", key="k1")
    assert again.output_text.startswith(seen)
    assert again.output_text.endswith("\n\nand the rest")
    asked = len(gate.model.requests)
    events = await events_of(await gate.ask("hello", key="k1", stream=True))
    assert events[-1]["response"] == again.model_dump(mode="json")
    assert len(gate.model.requests) == asked == 2
    with pytest.raises(openai.ConflictError):
        await gate.ask("something else", key="k1")


async def test_a_repeated_continuation_is_one_response(gate: Gate) -> None:
    first = await gate.ask("first", key="k1")
    second = await gate.ask("second", key="k2", previous_response_id=first.id)
    await gate.gateway.restart()
    again = await gate.ask("second", key="k2", previous_response_id=first.id)
    assert again == second
    assert len(gate.model.requests) == 2


async def test_a_response_is_shown_to_its_owner(gate: Gate) -> None:
    response = await gate.ask("hello", tools=[LOOK], instructions="Whisper.")
    assert await gate.sdk.responses.retrieve(response.id) == response

    _, _, made = await gate.call("POST", "/api/tokens", json={"name": "phone"})
    named = await gate.ask("hello", conversation="garden")
    # Another person's conversation of the same name must not be mistaken for the first.
    hers = {"input": "hello", "metadata": {"conversation": "garden"}}
    await gate.call("POST", "/v1/responses", token=made["token"], json=hers)
    for each in (response.id, named.id):
        foreign = await gate.call("GET", f"/v1/responses/{each}", token=made["token"])
        assert (foreign[0], foreign[2]["error"]["code"]) == (404, "not_found")
        more = {"input": "and?", "previous_response_id": each}
        foreign = await gate.call("POST", "/v1/responses", token=made["token"], json=more)
        assert foreign[0] == 404
    for unknown in ("resp_nobody", "resp_" + "0" * 26, "resp_" + "0" * 26 + "_" + "0" * 26):
        with pytest.raises(openai.NotFoundError, match="response"):
            await gate.sdk.responses.retrieve(unknown)
        with pytest.raises(openai.NotFoundError, match="response"):
            await gate.ask("and?", previous_response_id=unknown)


@pytest.mark.shared
async def test_commands_are_taken_in_a_conversation_and_are_text_elsewhere(gate: Gate) -> None:
    first = await gate.ask("first", conversation="garden")
    await gate.ask("second", previous_response_id=first.id)
    undone = await gate.ask("/undo", previous_response_id=first.id)
    again = await gate.ask("/retry", previous_response_id=undone.id)
    events = await events_of(await gate.ask("/undo x", conversation="garden", stream=True))
    alone = await gate.ask("/undo")

    assert undone.output_text == "Undone:\n\nsecond"
    assert again.output_text == "echo: first"
    assert kinds(events) == TEXT_EVENTS
    assert events[-1]["response"]["output"][0]["content"][0]["text"].startswith("/undo [N]")
    assert alone.output_text == "echo: /undo"
