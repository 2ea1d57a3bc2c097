"""A model server that is down, slow, rude or broken, met over real sockets.

Every test runs on both wires and asks the same of them: one `Stopped`, the right reason, words
that say what to do, and no second request once an answer has begun.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from perdure.agents.chat.agent import ChatAgent
from perdure.agents.chat.manifest import ChatSettings
from perdure.domain.events import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt import Message, Request, Role, TextBlock
from perdure.domain.stream import AgentEvent, Call, Spent, Stopped, Text
from perdure.testkit.model_script import (
    Dialect,
    ModelRequest,
    Reply,
    Script,
    call_tools,
    cut_after,
    cut_without_finish,
    error_in_stream,
    garbage,
    hang,
    in_turn,
    redirect,
    say,
    status,
)
from perdure.testkit.model_server import ModelServer
from perdure.testkit.model_wire import anthropic_body, anthropic_stream, openai_body, openai_stream

KEY = "sk-canary-0123456789"
ANSWER = "one two three four"


class RecordingClock:
    """Sleeping takes no time and is written down."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Stage:
    """A chat agent of one dialect, pointed at a server."""

    def __init__(self, api: Dialect) -> None:
        self.api = api
        self.clock = RecordingClock()
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

    async def ask(self, url: str, request: Request | None = None) -> list[AgentEvent]:
        async with self.agent(url) as agent:
            return await events_of(agent, request)

    async def fail(self, url: str) -> Stopped:
        stopped = stop_of(await self.ask(url))
        assert KEY not in stopped.detail
        return stopped


def request_of(text: str = "hello", prefix: bytes = b"") -> Request:
    message = Message(role=Role.USER, blocks=(TextBlock(text),))
    return Request(instructions="", prefix=prefix, messages=(message,))


async def events_of(agent: ChatAgent, request: Request | None = None) -> list[AgentEvent]:
    async with asyncio.timeout(10), aclosing(agent.run(request or request_of())) as stream:
        return [event async for event in stream]


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def stop_of(events: list[AgentEvent]) -> Stopped:
    stops = [event for event in events if isinstance(event, Stopped)]
    assert len(stops) == 1
    assert events[-1] is stops[0]
    return stops[0]


@pytest.fixture(params=list(Dialect))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def always(reply: Reply) -> Script:
    return lambda _request: reply


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """A server that answers every request with these bytes and hangs up."""

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
    assert len(stage.clock.slept) == 3


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


async def test_a_server_that_hangs_up_without_a_word_is_asked_again(stage: Stage) -> None:
    async with raw_server(b"") as url:
        stopped = await stage.fail(url)

    assert stopped.reason is StopReason.PROVIDER_UNREACHABLE
    assert len(stage.clock.slept) == 3


@pytest.mark.parametrize("at", ["before_headers", "after_headers", 0])
async def test_a_first_token_that_does_not_come(stage: Stage, at: Any) -> None:
    stage.settings = {"first_token_timeout_s": 0.2}
    async with ModelServer(always(hang(at))) as server:
        stopped = await stage.fail(server.url)

        async with asyncio.timeout(5):
            await server.wait_until_idle()
        assert len(server.requests) == 1
    assert stopped.reason is StopReason.PROVIDER_TIMEOUT
    assert "first_token_timeout_s of agent helper" in stopped.detail


async def test_silence_in_the_middle(stage: Stage) -> None:
    stage.settings = {"silence_timeout_s": 0.2}
    async with ModelServer(always(hang(2, say(ANSWER)))) as server:
        events = await stage.ask(server.url)

        async with asyncio.timeout(5):
            await server.wait_until_idle()
        assert len(server.requests) == 1
    assert text_of(events) == "one two "
    assert stop_of(events).reason is StopReason.PROVIDER_TIMEOUT
    assert "silence_timeout_s" in stop_of(events).detail


def body_of(api: Dialect, reply: Any) -> bytes:
    options = {"stream_options": {"include_usage": True}}
    request = ModelRequest(1, api, "scripted", [], stream=True, body=options, body_bytes=8)
    stream = openai_stream if api is Dialect.OPENAI else anthropic_stream
    opening, chunks, closing = stream(reply, request)
    return opening + b"".join(chunks) + closing


@pytest.mark.parametrize("reply", [say(ANSWER), call_tools([("c", "look", '{"at":1}')])])
async def test_a_cut_at_any_byte_ends_once_and_is_no_success(stage: Stage, reply: Any) -> None:
    size = len(body_of(stage.api, reply))
    cuts = range(0, size + 8, 7)
    marker = {Dialect.OPENAI: b'"finish_reason":"', Dialect.ANTHROPIC: b'"stop_reason":"'}
    whole = body_of(stage.api, reply)
    finish = whole.index(b"\n\n", whole.index(marker[stage.api])) + 2
    # Sizes of usage numbers differ a little between this request and the real one.
    margin = 4

    def script(request: ModelRequest) -> Reply:
        return cut_after(cuts[request.number - 1], reply)

    async with ModelServer(script) as server, stage.agent(server.url) as agent:
        for cut in cuts:
            events = await events_of(agent)
            stopped = stop_of(events)
            assert reply.text.startswith(text_of(events))
            if cut < finish - margin:
                assert stopped.reason is StopReason.PROVIDER_CUT
                assert not any(isinstance(event, Call) for event in events)
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
async def test_a_passing_failure_is_waited_out(stage: Stage, code: int) -> None:
    script = in_turn(status(code, retry_after=7), status(code), say(ANSWER))
    async with ModelServer(script) as server:
        events = await stage.ask(server.url)

        assert len(server.requests) == 3
        assert len({call.raw for call in server.requests}) == 1
    assert text_of(events) == ANSWER
    assert stop_of(events) == Stopped(reason=StopReason.STOP)
    assert stage.clock.slept[0] == 7
    assert 1 <= stage.clock.slept[1] < 2


async def test_a_wait_may_be_a_date(stage: Stage) -> None:
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 20))
    async with ModelServer(in_turn(status(429, retry_after=when), say(ANSWER))) as server:
        events = await stage.ask(server.url)

    assert stop_of(events).reason is StopReason.STOP
    assert 15 < stage.clock.slept[0] <= 20


async def test_a_wait_that_is_too_long_is_left_to_the_person(stage: Stage) -> None:
    async with ModelServer(always(status(429, retry_after=3600))) as server:
        stopped = await stage.fail(server.url)

        assert len(server.requests) == 1
    assert stage.clock.slept == []
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert "3600 s" in stopped.detail


async def test_retries_end(stage: Stage) -> None:
    stage.settings = {"retries": 2}
    page = b"<html><head><title>503 Busy</title></head>" + b"<p>x</p>" * 9000
    async with ModelServer(always(status(503, body=page))) as server:
        stopped = await stage.fail(server.url)

        assert len(server.requests) == 3
    assert stopped.reason is StopReason.PROVIDER_ERROR
    assert "503 Busy" in stopped.detail
    assert len(stopped.detail) < 400


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
async def test_a_key_that_no_header_can_hold(stage: Stage, key: str) -> None:
    stage.settings = {"api_key": key}
    async with ModelServer() as server:
        stopped = await stage.fail(server.url)

    assert stopped.reason is StopReason.PROVIDER_REJECTED
    assert "0123456789" not in stopped.detail
    assert "api_key" in stopped.detail


async def test_an_answer_that_came_at_once_is_taken(stage: Stage) -> None:
    whole: Callable[[Any, ModelRequest], bytes]
    whole = openai_body if stage.api is Dialect.OPENAI else anthropic_body
    reply = call_tools([("c", "look", '{"at":1}')], text=ANSWER)
    async with ModelServer(lambda request: garbage(whole(reply, request))) as server:
        events = await stage.ask(server.url)

    assert text_of(events) == ANSWER
    assert Call(id="c", name="look", arguments='{"at":1}') in events
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

    (spent,) = [event.usage for event in events if isinstance(event, Spent)]
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
        stream = agent.run(request_of())
        assert isinstance(await anext(stream), Text)
        async with asyncio.timeout(5):
            await agent.close()
            rest = [event async for event in stream]
            await server.wait_until_idle()

    assert stop_of(rest).reason is StopReason.PROVIDER_CUT
