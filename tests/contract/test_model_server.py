"""Checks that the scripted model server speaks both wires well enough for the official client and a
plain one.

Everything here goes through a real socket. A plain HTTP client checks bytes and faults; the OpenAI
client checks that another parser reads the wire in the same way.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest

from perdure.testkit.models.model_script import (
    Reply,
    Script,
    ScriptedAnswer,
    ScriptedUsage,
    by_words,
    call_tools,
    cut_after,
    cut_without_finish,
    error_in_stream,
    garbage,
    hang,
    in_turn,
    redirect,
    say,
    slow,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.wire_rules import anthropic_violations, openai_violations

DEADLINE_S = 10
WIRES = ["openai", "anthropic"]
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
TEXT = "Grüße from a scripted model"
CALLS = [
    ("call_a", "weather", '{"city": "Zürich", "days": 3}'),
    ("call_b", "clock", '{"zone": "Europe/Zurich"}'),
]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE_S)) as session:
        yield session


def body_for(wire: str, *, stream: bool, text: object = "hi", **extra: object) -> dict[str, Any]:
    body = {"model": "m-1", "messages": [{"role": "user", "content": text}], "stream": stream}
    return body | ({"max_tokens": 100} if wire == "anthropic" else {}) | extra


def post(
    http: aiohttp.ClientSession, server: ModelServer, wire: str, *, stream: bool, **extra: object
) -> Any:
    headers = {"anthropic-version": "2023-06-01"} if wire == "anthropic" else {}
    body = body_for(wire, stream=stream, **extra)
    return http.post(server.url + PATHS[wire], json=body, headers=headers, allow_redirects=False)


async def arrived(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Read a body. Returns its bytes, and whether the transfer was cut before its end."""
    got = b""
    try:
        async for piece in response.content.iter_any():
            got += piece
    except aiohttp.ClientPayloadError:
        return got, True
    return got, False


def events_of(stream: bytes) -> list[tuple[str, Any]]:
    """Parse server-sent events into (event name, data). JSON data is decoded."""
    assert stream.endswith(b"\n\n")
    events = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields["data"]
        events.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return events


async def streamed(
    http: aiohttp.ClientSession, wire: str, reply: Reply, **extra: object
) -> list[tuple[str, Any]]:
    async with (
        ModelServer(in_turn(reply)) as server,
        post(http, server, wire, stream=True, **extra) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        return events_of(await response.read())


async def whole(
    http: aiohttp.ClientSession, wire: str, reply: Reply, **extra: object
) -> tuple[int, Any]:
    async with (
        ModelServer(in_turn(reply)) as server,
        post(http, server, wire, stream=False, **extra) as response,
    ):
        return response.status, await response.json()


def openai_client(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="sk-test", base_url=server.openai_url, max_retries=0, timeout=DEADLINE_S
    )


async def test_the_default_script_echoes_the_last_user_text_by_words(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        ModelServer() as server,
        post(http, server, "openai", stream=True, text="one two") as response,
    ):
        events = events_of(await response.read())

    deltas = [data["choices"][0]["delta"] for _, data in events[:-1]]
    assert [d["content"] for d in deltas if d.get("content")] == ["echo: ", "one ", "two"]


async def test_openai_stream_opens_with_the_role_and_ends_with_finish_usage_and_done(
    http: aiohttp.ClientSession,
) -> None:
    usage = ScriptedUsage(prompt=7, completion=3)
    options = {"include_usage": True}
    events = await streamed(http, "openai", say(TEXT, usage=usage), stream_options=options)

    chunks = [data for _, data in events[:-1]]
    *content, last = chunks
    assert content[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in content) == TEXT
    assert [c["choices"][0]["finish_reason"] for c in content] == [None] * (len(content) - 1) + [
        "stop"
    ]
    assert all(c["usage"] is None for c in content)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert events[-1] == ("", "[DONE]")
    assert {c["id"] for c in chunks} == {"chatcmpl-00000001"}


async def test_openai_stream_carries_no_usage_unless_asked(http: aiohttp.ClientSession) -> None:
    events = await streamed(http, "openai", say(TEXT))

    assert all("usage" not in data for _, data in events[:-1])
    assert all(data["choices"] for _, data in events[:-1])


async def test_openai_fragments_of_parallel_calls_carry_their_index(
    http: aiohttp.ClientSession,
) -> None:
    events = await streamed(http, "openai", call_tools(CALLS, fragments=3, interleaved=True))

    order: list[int] = []
    joined = ["", ""]
    for _, data in events[:-1]:
        for piece in data["choices"][0]["delta"].get("tool_calls", []):
            order.append(piece["index"])
            joined[piece["index"]] += piece["function"]["arguments"]
            assert ("id" in piece) == (order.count(piece["index"]) == 1)
    assert order == [0, 1, 0, 1, 0, 1, 0, 1]
    assert joined == [arguments for _, _, arguments in CALLS]
    assert events[-2][1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_anthropic_stream_has_the_events_of_a_text_in_order(
    http: aiohttp.ClientSession,
) -> None:
    usage = ScriptedUsage(prompt=7, completion=3)
    events = await streamed(http, "anthropic", say("one two", finish="length", usage=usage))

    assert [name for name, _ in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(name == data["type"] for name, data in events)
    assert events[0][1]["message"]["usage"]["input_tokens"] == 7
    assert [data["delta"]["text"] for _, data in events[3:5]] == ["one ", "two"]
    assert events[6][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[6][1]["usage"] == {"output_tokens": 3}


async def test_anthropic_stream_puts_each_call_in_its_own_block(
    http: aiohttp.ClientSession,
) -> None:
    events = await streamed(http, "anthropic", call_tools(CALLS, text="Let me look.", fragments=4))

    starts = [data for name, data in events if name == "content_block_start"]
    assert [(s["index"], s["content_block"]["type"]) for s in starts] == [
        (0, "text"),
        (1, "tool_use"),
        (2, "tool_use"),
    ]
    joined = {1: "", 2: ""}
    for name, data in events:
        if name == "content_block_delta" and data["delta"]["type"] == "input_json_delta":
            joined[data["index"]] += data["delta"]["partial_json"]
    assert list(joined.values()) == [arguments for _, _, arguments in CALLS]
    assert [data["index"] for name, data in events if name == "content_block_stop"] == [0, 1, 2]
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"


async def test_whole_answers_have_each_provider_s_shape(http: aiohttp.ClientSession) -> None:
    reply = call_tools(CALLS[:1], text="Let me look.", usage=ScriptedUsage(prompt=7, completion=3))

    code, body = await whole(http, "openai", reply)
    assert code == 200
    choice = body["choices"][0]
    assert choice["message"]["content"] == "Let me look."
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == CALLS[0][2]
    assert (choice["finish_reason"], body["usage"]["total_tokens"]) == ("tool_calls", 10)

    code, body = await whole(http, "anthropic", reply)
    assert code == 200
    assert body["content"] == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "call_a", "name": "weather", "input": json.loads(CALLS[0][2])},
    ]
    assert body["stop_reason"] == "tool_use"
    assert body["usage"] == {"input_tokens": 7, "output_tokens": 3}


async def test_the_official_client_reads_a_whole_answer_and_the_models() -> None:
    async with (
        ModelServer(in_turn(say(TEXT)), models=["m-1", "m-2"]) as server,
        openai_client(server) as client,
    ):
        answer = await client.chat.completions.create(
            model="m-1", messages=[{"role": "user", "content": "hi"}]
        )
        models = [model.id async for model in client.models.list()]

    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(by_words(TEXT))
    assert models == ["m-1", "m-2"]
    assert server.requests[0].headers["Authorization"] == "Bearer sk-test"


async def test_the_official_client_reads_a_stream_with_usage() -> None:
    async with ModelServer(in_turn(say(TEXT))) as server, openai_client(server) as client:
        stream = await client.chat.completions.create(
            model="m-1",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]

    texts = [c.choices[0].delta.content for c in chunks if c.choices]
    assert "".join(text or "" for text in texts) == TEXT
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == len(server.requests[0].raw) // 4


@pytest.mark.parametrize("interleaved", [False, True])
async def test_the_official_client_assembles_tool_calls_and_answers_them(
    interleaved: bool,
) -> None:
    reply = call_tools(CALLS, fragments=5, interleaved=interleaved)
    async with (
        ModelServer(in_turn(reply, say("3 sunny days"))) as server,
        openai_client(server) as client,
    ):
        async with client.chat.completions.stream(
            model="m-1", messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            message = (await stream.get_final_completion()).choices[0].message
        calls = message.tool_calls or []
        answer = await client.chat.completions.create(
            model="m-1",
            messages=[
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {
                                "name": call.function.name,
                                "arguments": call.function.arguments,
                            },
                        }
                        for call in calls
                    ],
                },
                {"role": "tool", "tool_call_id": calls[0].id, "content": "sun"},
                {"role": "tool", "tool_call_id": calls[1].id, "content": "noon"},
            ],
        )

    assert [(c.id, c.function.name, c.function.arguments) for c in calls] == CALLS
    assert answer.choices[0].message.content == "3 sunny days"
    assert server.violations == []


async def test_the_official_client_raises_what_it_raises_for_the_provider() -> None:
    script = in_turn(status(429, retry_after=2), status(401), error_in_stream(1))
    async with ModelServer(script) as server, openai_client(server) as client:

        async def ask() -> None:
            stream = await client.chat.completions.create(
                model="m-1", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            async for _ in stream:
                pass

        with pytest.raises(openai.RateLimitError) as limited:
            await ask()
        with pytest.raises(openai.AuthenticationError):
            await ask()
        with pytest.raises(openai.APIError, match="Overloaded"):
            await ask()

    assert limited.value.response.headers["retry-after"] == "2"
    assert limited.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_status_has_the_provider_s_error_shape_or_the_given_body(
    http: aiohttp.ClientSession, wire: str
) -> None:
    code, body = await whole(http, wire, status(529, message="too busy"))
    assert code == 529
    assert body["error"]["message"] == "too busy"
    assert body["error"]["type"] == {"openai": "server_error"}.get(wire, "overloaded_error")

    async with (
        ModelServer(in_turn(status(503, body=b"upstream"))) as server,
        post(http, server, wire, stream=True) as response,
    ):
        assert (response.status, await response.read()) == (503, b"upstream")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_reply_delivers_exactly_the_bytes_before_the_cut(
    http: aiohttp.ClientSession, wire: str, stream: bool
) -> None:
    reply: list[Reply] = [say(TEXT)]
    async with ModelServer(lambda _request: reply[0]) as server:
        async with post(http, server, wire, stream=stream) as response:
            full = await response.read()
        for offset in (0, 1, 17, len(full) // 2, len(full) - 1):
            reply[0] = cut_after(offset, say(TEXT))
            async with post(http, server, wire, stream=stream) as response:
                got, was_cut = await arrived(response)
            assert response.status == 200
            assert (len(got), was_cut) == (offset, True)


async def test_a_stream_cut_at_its_last_byte_arrives_whole_but_unended(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        ModelServer(in_turn(cut_after(10**9, say(TEXT)))) as server,
        post(http, server, "openai", stream=True) as response,
    ):
        got, was_cut = await arrived(response)

    assert was_cut
    assert events_of(got)[-1] == ("", "[DONE]")


async def test_a_reply_larger_than_the_socket_buffers_arrives_up_to_the_cut(
    http: aiohttp.ClientSession,
) -> None:
    offset = 3_000_001
    long_reply = say(chunks=["x" * 1000] * 4000)
    async with (
        ModelServer(in_turn(cut_after(offset, long_reply))) as server,
        post(http, server, "anthropic", stream=True) as response,
    ):
        got, was_cut = await arrived(response)

    assert (len(got), was_cut) == (offset, True)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_without_finish_ends_cleanly_after_all_its_text(
    http: aiohttp.ClientSession, wire: str
) -> None:
    complete = await streamed(http, wire, say(TEXT))
    unfinished = await streamed(http, wire, cut_without_finish(say(TEXT)))
    assert unfinished == complete[:-2]

    _, body = await whole(http, wire, cut_without_finish(say(TEXT)))
    assert (
        body["choices"][0]["finish_reason"] if wire == "openai" else body["stop_reason"]
    ) is None


async def test_an_error_in_the_stream_follows_the_chunks_and_ends_it(
    http: aiohttp.ClientSession,
) -> None:
    events = await streamed(http, "openai", error_in_stream(2, say("one two three")))
    assert [d["choices"][0]["delta"].get("content") for _, d in events[:-1]] == [
        "",
        "one ",
        "two ",
    ]
    assert events[-1][1]["error"]["message"] == "Overloaded"

    events = await streamed(http, "anthropic", error_in_stream(0))
    assert [name for name, _ in events] == ["message_start", "ping", "error"]
    assert events[-1][1]["error"]["type"] == "overloaded_error"


async def test_garbage_and_redirect_arrive_as_given(http: aiohttp.ClientSession) -> None:
    script = in_turn(garbage(b"\x00\xffno"), redirect("/elsewhere"))
    async with ModelServer(script) as server:
        async with post(http, server, "openai", stream=True) as response:
            assert (response.status, await response.read()) == (200, b"\x00\xffno")
        async with post(http, server, "openai", stream=True) as response:
            assert (response.status, response.headers["Location"]) == (307, "/elsewhere")


async def test_a_hang_before_the_headers_lasts_until_released(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        ModelServer(in_turn(hang("before_headers", say(TEXT)))) as server,
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as group,
    ):

        async def ask() -> bytes:
            async with post(http, server, "openai", stream=True) as response:
                return bytes(await response.read())

        asked = group.create_task(ask())
        await server.wait_for_requests(1)
        assert server.in_flight == 1
        assert not asked.done()
        server.release()
        assert events_of(await asked)[-1] == ("", "[DONE]")
        await server.wait_until_idle()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("at", ["after_headers", 0, 2])
async def test_a_hang_delivers_all_before_it_and_the_rest_after_release(
    http: aiohttp.ClientSession, wire: str, at: Any
) -> None:
    async with ModelServer(in_turn(say("one two three"), hang(at, say("one two three")))) as server:
        async with post(http, server, wire, stream=True) as response:
            full = (await response.read()).replace(b"00000001", b"00000002")
        async with post(http, server, wire, stream=True) as response:
            before = b""
            if at != "after_headers":
                mark = b"two " if at == 2 else b"assistant"
                while not (mark in before and before.endswith(b"\n\n")):
                    assert not response.content.at_eof(), before
                    before += await response.content.readany()
            assert b"three" not in before
            assert server.in_flight == 1
            server.release()
            assert before + await response.read() == full


async def test_a_client_that_hangs_up_is_no_longer_in_flight(
    http: aiohttp.ClientSession,
) -> None:
    async with ModelServer(in_turn(hang("after_headers"))) as server:
        response = await post(http, server, "openai", stream=True)
        assert server.in_flight == 1
        response.close()
        async with asyncio.timeout(DEADLINE_S):
            await server.wait_until_idle()


@pytest.mark.parametrize("point", ["after_headers", 1])
async def test_closing_the_server_drops_what_hangs(
    http: aiohttp.ClientSession, point: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with ModelServer(in_turn(hang(point))) as server:
        response = await post(http, server, "openai", stream=True)

    with pytest.raises(aiohttp.ClientError):
        await response.read()
    assert caplog.records == []


async def test_closing_the_server_drops_a_call_without_headers(
    http: aiohttp.ClientSession,
) -> None:
    async def ask(server: ModelServer) -> None:
        with pytest.raises(aiohttp.ClientError):
            await post(http, server, "openai", stream=True)

    async with (
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as group,
        ModelServer(in_turn(hang("before_headers"))) as server,
    ):
        group.create_task(ask(server))
        await server.wait_for_requests(1)


async def test_think_time_and_chunk_delays_go_through_the_clock(
    http: aiohttp.ClientSession,
) -> None:
    class RecordingClock:
        slept: list[float]

        def __init__(self) -> None:
            self.slept = []

        def now_ms(self) -> int:
            return 0

        def monotonic_s(self) -> float:
            return 0

        def paused_s(self) -> float:
            return 0

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    clock = RecordingClock()
    script = in_turn(slow(250, say("one two", delay_ms=20)))
    async with (
        ModelServer(script, clock=clock) as server,
        post(http, server, "openai", stream=True) as response,
    ):
        await response.read()

    assert clock.slept == [0.25, 0.02, 0.02]


async def test_calls_are_recorded_in_order_with_their_exact_bytes(
    http: aiohttp.ClientSession,
) -> None:
    seen = []

    def script(request: Any) -> ScriptedAnswer:
        seen.append((request.number, request.dialect, request.stream, request.last_user_text))
        return say("ok")

    raw = b'{"model": "m",  "messages":[{"role":"user","content":"sp\\u0061ced"}]}'
    async with ModelServer(script) as server:
        async with http.post(server.openai_url + "/chat/completions", data=raw) as response:
            assert response.status == 200
        async with post(http, server, "anthropic", stream=True, text="next") as response:
            await response.read()
        first, second = await server.wait_for_requests(2)

    assert (first.number, first.path, first.raw) == (1, PATHS["openai"], raw)
    assert first.body == {"model": "m", "messages": [{"role": "user", "content": "spaced"}]}
    assert (second.number, second.path) == (2, PATHS["anthropic"])
    assert seen == [(1, "openai", False, "spaced"), (2, "anthropic", True, "next")]


async def test_what_breaks_the_rules_is_recorded_and_refused_without_asking_the_script(
    http: aiohttp.ClientSession,
) -> None:
    def script(_request: object) -> Reply:
        raise AssertionError("the script must not see a request that breaks the rules")

    async with ModelServer(script) as server:
        async with post(http, server, "openai", stream=True, model="") as response:
            refused = await response.json()
            assert response.status == 400
        assert refused["error"]["type"] == "invalid_request_error"
        url = server.url + PATHS["anthropic"]
        async with http.post(url, json=body_for("anthropic", stream=True)) as response:
            refused = await response.json()
            assert response.status == 400
        assert refused["type"] == "error"
        async with http.post(url, data=b"{not json") as response:
            assert response.status == 400

    assert server.violations == [
        "request 1: model: a non-empty string is required",
        "request 2: anthropic-version: header is required",
        "request 3: body: expected a JSON object",
        "request 3: anthropic-version: header is required",
    ]
    assert server.requests[2].body is None


async def test_an_unknown_path_is_not_found(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        async with http.post(server.openai_url + "/v1/chat/completions", json={}) as response:
            assert response.status == 404
            assert "error" in await response.json()
        assert server.requests == []


def user(content: object = "hi") -> dict[str, object]:
    return {"role": "user", "content": content}


def called(*ids: str, **extra: object) -> dict[str, object]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls} | extra


def answered(call_id: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


OPENAI_ACCEPTED: dict[str, list[object]] = {
    "plain": [{"role": "system", "content": "Be brief."}, user()],
    "parts": [user([{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {}}])],
    "parallel calls answered in any order": [
        user(),
        called("a", "b"),
        answered("b"),
        answered("a"),
        user(),
    ],
    "the same id in two messages": [
        user(),
        called("a"),
        answered("a"),
        called("a"),
        answered("a"),
    ],
}
OPENAI_REFUSED: dict[str, tuple[list[object], str]] = {
    "no messages": ([], "non-empty array"),
    "unknown role": ([{"role": "robot", "content": "hi"}], "role"),
    "role of the wrong type": ([{"role": [], "content": "hi"}], "role"),
    "null content": ([user(None)], "null is only allowed"),
    "null assistant content": ([user(), {"role": "assistant", "content": None}], "null is only"),
    "empty parts": ([user([])], "non-empty array of parts"),
    "only text in a list": ([user([{"type": "text", "text": "hi"}])], "nothing but text"),
    "empty tool_calls": ([user(), called(content="x")], "leave the key out"),
    "stray tool message": ([user(), answered("a")], "answers no open call"),
    "answer after another message": (
        [user(), called("a"), user(), answered("a")],
        "not answered before",
    ),
    "answered twice": ([user(), called("a"), answered("a"), answered("a")], "answers no open"),
    "half answered": ([user(), called("a", "b"), answered("a"), user()], "this point: b"),
    "unanswered at the end": ([user(), called("a")], "this point: a"),
    "repeated id": ([user(), called("a", "a"), answered("a")], "unique in the message"),
    "arguments cut short": (
        [
            user(),
            called(
                tool_calls=[
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"x": '},
                    }
                ]
            ),
            answered("a"),
        ],
        "JSON object",
    ),
    "a key of ours": ([user() | {"id": "msg_1"}], "extra keys"),
}


@pytest.mark.parametrize("case", OPENAI_ACCEPTED)
def test_openai_rules_accept_valid_requests(case: str) -> None:
    assert openai_violations({"model": "m", "messages": OPENAI_ACCEPTED[case]}) == []


@pytest.mark.parametrize("case", OPENAI_REFUSED)
def test_openai_rules_refuse_invalid_requests(case: str) -> None:
    messages, reason = OPENAI_REFUSED[case]
    broken = openai_violations({"model": "m", "messages": messages})
    assert any(reason in rule for rule in broken), broken


def test_openai_rules_judge_options_too() -> None:
    base = {"model": "m", "messages": [user()]}
    assert openai_violations({"messages": [user()]}) == ["model: a non-empty string is required"]
    assert openai_violations(base | {"stream_options": {"include_usage": True}})
    assert openai_violations(base | {"tools": []})
    assert openai_violations(base | {"tool_choice": "auto"})
    assert openai_violations("not an object")


def assistant(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def use(call_id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def result(call_id: str) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


WORDS = {"type": "text", "text": "hi"}
ANTHROPIC_ACCEPTED: dict[str, list[object]] = {
    "plain": [user(), assistant("hello"), user([WORDS, WORDS])],
    "parallel calls": [
        user(),
        assistant([WORDS, use("a"), use("b")]),
        user([result("b"), result("a"), WORDS]),
    ],
    "a result with no content": [
        user(),
        assistant([use("a")]),
        user([{"type": "tool_result", "tool_use_id": "a"}]),
    ],
}
ANTHROPIC_REFUSED: dict[str, tuple[list[object], str]] = {
    "no messages": ([], "non-empty array"),
    "assistant first": ([assistant("hi"), user()], "expected 'user'"),
    "system among the messages": ([{"role": "system", "content": "x"}], "expected 'user'"),
    "two users": ([user(), user()], "expected 'assistant'"),
    "assistant last": ([user(), assistant("hi")], "last message"),
    "empty text": ([user("")], "whitespace"),
    "blank text block": ([user([{"type": "text", "text": " \n"}])], "whitespace"),
    "no blocks": ([user([])], "non-empty array of blocks"),
    "call without result": ([user(), assistant([use("a")]), user()], "right after: a"),
    "half the results": (
        [user(), assistant([use("a"), use("b")]), user([result("a")])],
        "right after: b",
    ),
    "result without call": ([user([result("a")])], "no tool_use"),
    "result too late": (
        [user(), assistant([use("a")]), user(), assistant("x"), user([result("a")])],
        "no tool_use",
    ),
    "two results": (
        [user(), assistant([use("a")]), user([result("a"), result("a")])],
        "more than one",
    ),
    "text before the result": (
        [user(), assistant([use("a")]), user([WORDS, result("a")])],
        "come before",
    ),
    "call id used again": (
        [
            user(),
            assistant([use("a")]),
            user([result("a")]),
            assistant([use("a")]),
            user([result("a")]),
        ],
        "unique",
    ),
    "call by the user": ([user([use("a")])], "content takes"),
    "a key of ours": ([user() | {"id": "msg_1"}], "extra keys"),
}


@pytest.mark.parametrize("case", ANTHROPIC_ACCEPTED)
def test_anthropic_rules_accept_valid_requests(case: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": ANTHROPIC_ACCEPTED[case]}
    assert anthropic_violations(body) == []


@pytest.mark.parametrize("case", ANTHROPIC_REFUSED)
def test_anthropic_rules_refuse_invalid_requests(case: str) -> None:
    messages, reason = ANTHROPIC_REFUSED[case]
    broken = anthropic_violations({"model": "m", "max_tokens": 1, "messages": messages})
    assert any(reason in rule for rule in broken), broken


def test_anthropic_rules_judge_options_too() -> None:
    base = {"model": "m", "max_tokens": 1, "messages": [user()]}
    marked = WORDS | {"cache_control": {"type": "ephemeral"}}
    assert anthropic_violations(base | {"max_tokens": None})
    assert anthropic_violations(base | {"system": [{"type": "text", "text": ""}]})
    assert anthropic_violations(base | {"tools": [{"name": "f", "input_schema": {}}]})
    assert anthropic_violations(base | {"messages": [user([marked] * 4)]}) == []
    assert anthropic_violations(base | {"messages": [user([marked] * 5)]})


async def test_the_server_runs_as_a_program_and_stops_when_asked(
    http: aiohttp.ClientSession,
) -> None:
    command = [sys.executable, "-m", "perdure.testkit.models.model_server", "--words", "3"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            ready = json.loads(await process.stdout.readline())
        url = f"http://127.0.0.1:{ready['port']}"
        body = body_for("openai", stream=False)
        async with http.post(url + PATHS["openai"], json=body) as response:
            answer = await response.json()
        assert answer["choices"][0]["message"]["content"] == "word1 word2 word3"
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_scripts_that_cannot_mean_anything_are_refused() -> None:
    script: Script = in_turn(say("a"))
    assert callable(script)
    with pytest.raises(ValueError, match="chunks join to"):
        say("one", chunks=["two"])
    with pytest.raises(ValueError, match="at least one call"):
        call_tools([])
    with pytest.raises(ValueError, match="0 or more"):
        cut_after(-1, say("x"))
