"""Checks the chat agent over real sockets with a model server that is down, slow, rude or broken.

Every test runs on both wires and asks the same of them: one `Stopped`, the right reason, words that
say what to do, and no second request once an answer has begun.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from perdure.agents.chat.agent import ChatAgent
from perdure.agents.chat.manifest import ChatSettings
from perdure.app.wiring.system import SystemClock
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage, Role, TextBlock
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentSpent, AgentText, Stopped
from perdure.engine.models.places import AgentPlaces
from perdure.engine.models.reaching import Reaching
from perdure.engine.models.roster import Backend
from perdure.testkit.models.model_script import (
    Reply,
    Script,
    ScriptedDialect,
    ScriptedRequest,
    call_tools,
    cut_after,
    cut_without_finish,
    error_in_stream,
    garbage,
    hang,
    redirect,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.model_wire import (
    anthropic_body,
    anthropic_stream,
    openai_body,
    openai_stream,
)
from perdure.testkit.simulator.agent import CountingTools, LooseWork
from perdure.testkit.simulator.system import VirtualClock

KEY = "sk-canary-0123456789"
ANSWER = "one two three four"


class Stage:
    """Points a chat agent of one dialect at a server."""

    def __init__(self, api: ScriptedDialect) -> None:
        self.api = api
        self.clock = SystemClock()
        self.session: aiohttp.ClientSession | None = None
        self.settings: dict[str, Any] = {}

    @asynccontextmanager
    async def agent(self, url: str) -> AsyncIterator[ChatAgent]:
        given = {"name": "helper", "model": "scripted", "api_key": KEY, **self.settings}
        settings = ChatSettings(api=self.api.value, base_url=f"{url}/v1", **given)
        agent = ChatAgent(settings, session=self.session, clock=self.clock)
        try:
            yield agent
        finally:
            await agent.close()

    async def ask(self, url: str, request: ModelRequest | None = None) -> list[AgentEvent]:
        async with self.agent(url) as agent:
            return await events_of(agent, request)

    async def fail(self, url: str) -> Stopped:
        stopped = stop_of(await self.ask(url))
        assert KEY not in stopped.detail
        return stopped


def request_of(text: str = "hello", prefix: bytes = b"") -> ModelRequest:
    message = PromptMessage(role=Role.USER, blocks=(TextBlock(text),))
    return ModelRequest(instructions="", prefix=prefix, messages=(message,))


async def events_of(agent: ChatAgent, request: ModelRequest | None = None) -> list[AgentEvent]:
    stream = agent.run(request or request_of(), LooseWork())
    async with asyncio.timeout(10), aclosing(stream):
        return [event async for event in stream]


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, AgentText))


def stop_of(events: list[AgentEvent]) -> Stopped:
    stops = [event for event in events if isinstance(event, Stopped)]
    assert len(stops) == 1
    assert events[-1] is stops[0]
    return stops[0]


@pytest.fixture(params=list(ScriptedDialect))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def always(reply: Reply) -> Script:
    return lambda _request: reply


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """Run a server that answers every request with these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_server_that_is_down_is_named(stage: Stage) -> None:
    async with ModelServer() as server:
        url = server.url

    stopped = await stage.fail(url)

    assert stopped.reason is StopReason.PROVIDER_UNREACHABLE
    assert url in stopped.detail
    assert "is the server running?" in stopped.detail
    assert stopped.may_retry


async def test_a_host_without_an_address_is_named(stage: Stage) -> None:
    stopped = await stage.fail("http://nowhere.invalid")

    assert stopped.reason is StopReason.PROVIDER_UNREACHABLE
    assert "nowhere.invalid" in stopped.detail


@pytest.mark.parametrize("body", [b"<html>\x00\xff not a model", b"hello\n", b"{}", b"data: {\n\n"])
async def test_garbage_is_called_garbage(stage: Stage, body: bytes) -> None:
    async with ModelServer(always(garbage(body))) as server:
        stopped = await stage.fail(server.url)

        assert len(server.requests) == 1
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert "not a model's answer" in stopped.detail


async def test_what_is_not_even_http_is_garbage(stage: Stage) -> None:
    async with raw_server(b"SSH-2.0-OpenSSH_9.9\r\n\r\n") as url:
        stopped = await stage.fail(url)

    assert stopped.reason is StopReason.PROVIDER_ERROR


async def test_a_server_that_hangs_up_without_a_word_may_be_asked_again(stage: Stage) -> None:
    async with raw_server(b"") as url:
        stopped = await stage.fail(url)

    assert stopped.reason is StopReason.PROVIDER_UNREACHABLE
    assert stopped.may_retry


@pytest.mark.parametrize("at", ["before_headers", "after_headers", 0])
async def test_a_first_token_that_does_not_come_ends_the_call(stage: Stage, at: Any) -> None:
    stage.settings = {"first_token_timeout_s": 0.2}
    async with ModelServer(always(hang(at))) as server:
        stopped = await stage.fail(server.url)

        async with asyncio.timeout(5):
            await server.wait_until_idle()
        assert len(server.requests) == 1
    assert stopped.reason is StopReason.PROVIDER_TIMEOUT
    assert "first_token_timeout_s of agent helper" in stopped.detail


async def test_silence_in_the_middle_ends_the_call(stage: Stage) -> None:
    stage.settings = {"silence_timeout_s": 0.2}
    async with ModelServer(always(hang(2, say(ANSWER)))) as server:
        events = await stage.ask(server.url)

        async with asyncio.timeout(5):
            await server.wait_until_idle()
        assert len(server.requests) == 1
    assert text_of(events) == "one two "
    assert stop_of(events).reason is StopReason.PROVIDER_TIMEOUT
    assert "silence_timeout_s" in stop_of(events).detail


def body_of(api: ScriptedDialect, reply: Any) -> bytes:
    options = {"stream_options": {"include_usage": True}}
    request = ScriptedRequest(1, api, "scripted", [], stream=True, body=options, body_bytes=8)
    stream = openai_stream if api is ScriptedDialect.OPENAI else anthropic_stream
    opening, chunks, closing = stream(reply, request)
    return opening + b"".join(chunks) + closing


@pytest.mark.parametrize("reply", [say(ANSWER), call_tools([("c", "look", '{"at":1}')])])
async def test_a_cut_at_any_byte_ends_once_and_is_no_success(stage: Stage, reply: Any) -> None:
    size = len(body_of(stage.api, reply))
    cuts = range(0, size + 8, 7)
    marker = {
        ScriptedDialect.OPENAI: b'"finish_reason":"',
        ScriptedDialect.ANTHROPIC: b'"stop_reason":"',
    }
    whole = body_of(stage.api, reply)
    finish = whole.index(b"\n\n", whole.index(marker[stage.api])) + 2
    # Sizes of usage numbers differ a little between this request and the real one.
    margin = 4

    def script(request: ScriptedRequest) -> Reply:
        return cut_after(cuts[request.number - 1], reply)

    async with ModelServer(script) as server, stage.agent(server.url) as agent:
        for cut in cuts:
            events = await events_of(agent)
            stopped = stop_of(events)
            assert reply.text.startswith(text_of(events))
            if cut < finish - margin:
                assert stopped.reason is StopReason.PROVIDER_CUT
                assert not any(isinstance(event, AgentCall) for event in events)
            if cut > finish + margin:
                assert stopped.reason.is_finish
                assert text_of(events) == reply.text
        assert len(server.requests) == len(cuts)


async def test_a_stream_without_a_finish_marker_is_cut(stage: Stage) -> None:
    async with ModelServer(always(cut_without_finish(say(ANSWER)))) as server:
        events = await stage.ask(server.url)

    assert text_of(events) == ANSWER
    assert stop_of(events).reason is StopReason.PROVIDER_CUT
    assert "what came is kept" in stop_of(events).detail
    assert not stop_of(events).may_retry


async def test_a_stream_that_ends_without_a_word_keeps_nothing(stage: Stage) -> None:
    async with ModelServer(always(cut_without_finish(say("")))) as server:
        events = await stage.ask(server.url)

    assert text_of(events) == ""
    assert stop_of(events).reason is StopReason.PROVIDER_CUT
    assert "before the first word" in stop_of(events).detail


async def test_an_error_in_the_stream_is_quoted_and_not_retried(stage: Stage) -> None:
    async with ModelServer(always(error_in_stream(2, message=f"no memory for {KEY}"))) as server:
        events = await stage.ask(server.url)

        assert len(server.requests) == 1
    assert text_of(events) == "this answer "
    assert stop_of(events).reason is StopReason.PROVIDER_ERROR
    assert "no memory for ***" in stop_of(events).detail


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503, 529])
async def test_a_passing_failure_may_be_tried_again(stage: Stage, code: int) -> None:
    async with ModelServer(always(status(code, retry_after=7))) as server:
        events = await stage.ask(server.url)

        assert len(server.requests) == 1
    stopped = stop_of(events)
    assert events == [stopped]
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert (stopped.may_retry, stopped.status, stopped.retry_after_s) == (True, code, 7)


async def test_a_wait_may_be_a_date(stage: Stage) -> None:
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 20))
    async with ModelServer(always(status(429, retry_after=when))) as server:
        stopped = await stage.fail(server.url)

    assert 15 < (stopped.retry_after_s or 0) <= 20


async def test_retries_end(stage: Stage) -> None:
    page = b"<html><head><title>503 Busy</title></head>" + b"<p>x</p>" * 9000

    async def tell(_: Stopped) -> None:
        return

    async with ModelServer(always(status(503, body=page))) as server:
        async with stage.agent(server.url) as agent:
            backend = Backend(name="helper", kind="chat", agent=agent, tools=CountingTools([]))
            places = AgentPlaces(lambda _: None)
            reaching = Reaching(VirtualClock(is_eager=True), places)
            quest = reaching.quest([backend], tell, places.visitor(PrincipalId("prn_1")))
            while await quest.next() is not None:
                quest.ended(backend, stop_of(await events_of(agent)))

        assert 10 < len(server.requests) < 30
        assert len({call.raw for call in server.requests}) == 1
    stopped = quest.missed["helper"]
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert "503 Busy" in stopped.detail
    assert len(stopped.detail) < 400


def first_event(api: ScriptedDialect, error: dict[str, object]) -> bytes:
    """Return a stream that opens as always and then has an error in the place of an answer."""
    opening = body_of(api, say(ANSWER)).split(b"\n\n")[0] + b"\n\n"
    if api is ScriptedDialect.OPENAI:
        return opening + b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
    told = msgspec.json.encode({"type": "error", "error": error})
    return opening + b"event: error\ndata: " + told + b"\n\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "busy", "code": 503}, 503),
        ({"message": "busy", "code": "503"}, 503),
        ({"message": "busy", "type": "overloaded_error"}, 529),
        ({"type": "overloaded_error"}, 529),
        ({"message": "busy", "type": "rate_limit_error"}, 429),
        ({"message": "busy", "type": "requests", "code": "rate_limit_exceeded"}, 429),
        ({"message": "busy", "code": 429, "status": "RESOURCE_EXHAUSTED"}, 429),
        ({"message": "busy", "type": "InternalServerError"}, 500),
        ({"message": "busy", "type": "server_error", "code": None}, 500),
        ({"message": "busy"}, 0),
    ],
)
async def test_an_error_before_the_first_word_counts_as_its_status(
    stage: Stage, error: dict[str, object], code: int
) -> None:
    async with ModelServer(always(garbage(first_event(stage.api, error)))) as server:
        events = await stage.ask(server.url)

    stopped = stop_of(events)
    assert events == [stopped]
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert (stopped.may_retry, stopped.status) == (True, code)
    if code:
        async with ModelServer(always(status(code, message=_message(error)))) as server:
            as_status = await stage.fail(server.url)
        assert _unnamed(stopped.detail) == _unnamed(as_status.detail)


def _message(error: dict[str, object]) -> str:
    return str(error.get("message", error.get("type")))


def _unnamed(detail: str) -> str:
    return re.sub(r":\d+/v1", "", detail)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"message": "odd", "type": "invalid_request_error"}, StopReason.PROVIDER_REJECTED),
        ({"message": "odd", "code": 400}, StopReason.PROVIDER_REJECTED),
        ({"message": "no", "type": "authentication_error"}, StopReason.PROVIDER_REJECTED),
        ({"message": "empty", "code": "insufficient_quota"}, StopReason.PROVIDER_REJECTED),
        ({"message": "m", "code": "context_length_exceeded"}, StopReason.CONTEXT_EXCEEDED),
        ({"message": "prompt is too long"}, StopReason.CONTEXT_EXCEEDED),
    ],
)
async def test_a_refusal_before_the_first_word_is_not_tried_again(
    stage: Stage, error: dict[str, object], reason: StopReason
) -> None:
    async with ModelServer(always(garbage(first_event(stage.api, error)))) as server:
        stopped = await stage.fail(server.url)

    assert stopped.reason is reason
    assert not stopped.may_retry


async def test_a_wait_that_is_asked_for_in_the_stream_is_kept(stage: Stage) -> None:
    error: dict[str, object] = {"message": "busy", "code": 429, "retry_after": 12}
    async with ModelServer(always(garbage(first_event(stage.api, error)))) as server:
        stopped = await stage.fail(server.url)

    assert stopped.retry_after_s == 12


async def test_an_answer_that_is_cut_before_its_first_word_may_be_tried_again(
    stage: Stage,
) -> None:
    async with ModelServer(always(cut_without_finish(say("")))) as server:
        events = await stage.ask(server.url)

    assert events == [stop_of(events)]
    assert stop_of(events).reason is StopReason.PROVIDER_CUT
    assert stop_of(events).may_retry


@pytest.mark.parametrize("ends", ["cut", "error"])
async def test_a_model_that_has_begun_to_think_is_not_asked_again(stage: Stage, ends: str) -> None:
    if stage.api is ScriptedDialect.OPENAI:
        thought = b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
        error = b'data: {"error":{"message":"busy","code":503}}\n\n'
    else:
        block = b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}'
        thought = b"data: " + block + b"\n\n"
        error = b'data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'
    body = thought + (error if ends == "error" else b"")
    async with ModelServer(always(garbage(body))) as server:
        events = await stage.ask(server.url)

    assert not stop_of(events).may_retry
    assert any(isinstance(event, AgentSpent) for event in events)


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        (400, "temperature is odd", "temperature is odd"),
        (401, f"wrong key {KEY}", "check api_key of agent helper"),
        (403, f"not for {KEY}", "check api_key of agent helper"),
        (404, "no such model", "'scripted'"),
        (413, "big", "new conversation"),
        (400, "maximum context length is 8192 tokens", "new conversation"),
        (422, "nope", "nope"),
    ],
)
async def test_a_refusal_says_what_to_do(stage: Stage, code: int, message: str, words: str) -> None:
    async with ModelServer(always(status(code, message=message))) as server:
        stopped = await stage.fail(server.url)

        assert len(server.requests) == 1
    is_long = words == "new conversation"
    refused = StopReason.CONTEXT_EXCEEDED if is_long else StopReason.PROVIDER_REJECTED
    assert stopped.reason is refused
    assert words in stopped.detail


async def test_no_credit_is_not_waited_out(stage: Stage) -> None:
    body = b'{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}'
    async with ModelServer(always(status(429, body=body))) as server:
        stopped = await stage.fail(server.url)

        assert len(server.requests) == 1
    assert stopped.reason is StopReason.PROVIDER_REJECTED


async def test_a_redirect_is_not_followed(stage: Stage) -> None:
    async with ModelServer() as other:
        target = f"{other.url}/v1/messages?token=secret"
        async with ModelServer(always(redirect(target))) as server:
            stopped = await stage.fail(server.url)

        assert other.requests == []
        assert other.url in stopped.detail
    assert stopped.reason is StopReason.PROVIDER_REJECTED
    assert "token=secret" not in stopped.detail


@pytest.mark.parametrize("key", ["line\nbreak-0123456789", "zero\0byte-0123456789"])
async def test_a_key_that_no_header_can_hold_is_refused(stage: Stage, key: str) -> None:
    stage.settings = {"api_key": key}
    async with ModelServer() as server:
        stopped = await stage.fail(server.url)

    assert stopped.reason is StopReason.PROVIDER_REJECTED
    assert "0123456789" not in stopped.detail
    assert "api_key" in stopped.detail


async def test_an_answer_that_came_at_once_is_taken(stage: Stage) -> None:
    whole: Callable[[Any, ScriptedRequest], bytes]
    whole = openai_body if stage.api is ScriptedDialect.OPENAI else anthropic_body
    reply = call_tools([("c", "look", '{"at":1}')], text=ANSWER)
    async with ModelServer(lambda request: garbage(whole(reply, request))) as server:
        events = await stage.ask(server.url)

    assert text_of(events) == ANSWER
    assert AgentCall(id="c", name="look", arguments='{"at":1}') in events
    assert stop_of(events).reason is StopReason.TOOL_CALLS


async def test_the_key_and_the_headers_are_sent(stage: Stage) -> None:
    stage.settings = {"headers": {"X-Team": "blue"}}
    async with ModelServer() as server:
        await stage.ask(server.url)

    sent = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert KEY in (sent.get("x-api-key"), sent.get("authorization", "").removeprefix("Bearer "))
    assert sent["x-team"] == "blue"


async def test_a_user_in_the_address_is_sent_and_not_told(stage: Stage) -> None:
    stage.settings = {"api_key": None}
    async with ModelServer(always(status(400, message="no"))) as server:
        stopped = await stage.fail(server.url.replace("//", "//bob:canary-password@"))

        sent = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert sent["authorization"].startswith("Basic ")
    assert "canary-password" not in stopped.detail


async def test_a_key_in_the_address_is_sent_and_not_told(stage: Stage) -> None:
    # The key must not be told even if the server repeats the path it was asked for.
    canaries = ("canary-user", "canary-word", "canary-folder", "canary-query")
    echo = status(404, message="nothing at /canary-folder/v1?key=canary-query for canary-user")
    async with ModelServer(always(echo)) as server:
        told = [await stage.fail(_with_secrets(server.url))]
    told.append(await stage.fail(_with_secrets(server.url)))

    for stopped in told:
        assert server.url in stopped.detail
        assert not [canary for canary in canaries if canary in stopped.detail]


def _with_secrets(url: str) -> str:
    """Return the address of a server with a user, a password and a key in its path."""
    return f"{url.replace('//', '//canary-user:canary-word@')}/canary-folder"


async def test_turns_in_a_row_share_a_connection(stage: Stage) -> None:
    made = 0

    async def count(*_: object) -> None:
        nonlocal made
        made += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with ModelServer() as server, aiohttp.ClientSession(trace_configs=[trace]) as session:
        stage.session = session
        for _ in range(5):
            assert stop_of(await stage.ask(server.url)).reason is StopReason.STOP

        assert not session.closed
    assert made == 1


async def test_a_history_of_megabytes_is_sent_whole(stage: Stage) -> None:
    block = msgspec.json.encode("x" * 1_000_000).decode()
    prefix = ",".join(
        f'{{"role":"{role}","content":{block}}}' for role in ("user", "assistant") * 2
    ).encode()
    async with ModelServer() as server:
        events = await stage.ask(server.url, request_of(prefix=prefix))

        assert prefix in server.requests[0].raw
        assert server.violations == []
    assert text_of(events) == "echo: hello"


async def test_usage_is_told_even_of_a_cut_answer(stage: Stage) -> None:
    async with ModelServer(always(cut_without_finish(say(ANSWER)))) as server:
        events = await stage.ask(server.url)

    (spent,) = [event.usage for event in events if isinstance(event, AgentSpent)]
    assert isinstance(spent, Usage)
    assert spent.model_calls == 1


async def test_a_closed_agent_says_so(stage: Stage) -> None:
    async with ModelServer() as server, stage.agent(server.url) as agent:
        await agent.close()
        events = await events_of(agent)

        assert server.requests == []
    assert stop_of(events).reason is StopReason.AGENT_ERROR


async def test_closing_the_agent_ends_its_calls(stage: Stage) -> None:
    async with (
        ModelServer(always(hang(1, say(ANSWER)))) as server,
        stage.agent(server.url) as agent,
    ):
        stream = agent.run(request_of(), LooseWork())
        assert isinstance(await anext(stream), AgentText)
        async with asyncio.timeout(5):
            await agent.close()
            rest = [event async for event in stream]
            await server.wait_until_idle()

    assert stop_of(rest).reason is StopReason.PROVIDER_CUT
