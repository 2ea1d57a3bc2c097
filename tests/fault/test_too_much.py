"""Checks model servers that send without end, over real sockets.

Each answer goes on while somebody reads it. It must be bounded while it comes, also in memory, and
what was said until then must be kept.
"""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import count

import pytest

from perdure.agents.chat.agent import ChatAgent
from perdure.agents.chat.manifest import ChatSettings
from perdure.app.wiring.system import SystemClock
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import AnswerRoom, Bounds
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage, Role, TextBlock
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.testkit.simulator.agent import LooseWork

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
PIECE = "x" * 10_000
BOUNDS = Bounds(answer_bytes=1_000_000, answer_calls=50)
# The memory for a read, its decoding and one event, in addition to the kept text.
MEMORY_BYTES = 40_000_000
Pieces = Callable[[], Iterator[bytes]]


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(**content: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": content}]})


def call(index: int, arguments: str) -> bytes:
    function = {"name": "look", "arguments": arguments}
    return delta(tool_calls=[{"index": index, "id": f"id{index}", "function": function}])


def block(index: int, **content: object) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": content})


def more(index: int, **content: object) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": content})


def openai_text() -> Iterator[bytes]:
    return (delta(content=PIECE) for _ in count())


def openai_arguments() -> Iterator[bytes]:
    yield delta(content="Let me look. ")
    yield from (call(0, PIECE) for _ in count())


def openai_crumbs() -> Iterator[bytes]:
    yield from (call(0, "ab") * 100 for _ in count())


def openai_calls() -> Iterator[bytes]:
    yield delta(content="Let me look. ")
    yield from (call(index, "{}") for index in count())


def anthropic_text() -> Iterator[bytes]:
    return (more(0, type="text_delta", text=PIECE) for _ in count())


def anthropic_arguments() -> Iterator[bytes]:
    yield block(0, type="tool_use", id="id", name="look", input={})
    yield from (more(0, type="input_json_delta", partial_json=PIECE) for _ in count())


def anthropic_calls() -> Iterator[bytes]:
    return (block(n, type="tool_use", id=f"id{n}", name="look", input={}) for n in count())


def one_event() -> Iterator[bytes]:
    yield b'data: {"choices": [{"index": 0, "delta": {"content": "'
    yield from (PIECE.encode() for _ in count())


def no_stream() -> Iterator[bytes]:
    yield b'{"choices": [{"index": 0, "message": {"content": "'
    yield from (PIECE.encode() for _ in count())


@asynccontextmanager
async def endless(pieces: Pieces) -> AsyncIterator[str]:
    """Run a server that sends these pieces for as long as somebody reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        try:
            for piece in pieces():
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ask(url: str, api: str) -> list[AgentEvent]:
    settings = ChatSettings(api=api, base_url=f"{url}/v1", model="scripted", name="helper")  # type: ignore[arg-type]
    message = PromptMessage(role=Role.USER, blocks=(TextBlock("hello"),))
    request = ModelRequest(
        instructions="", prefix=b"", messages=(message,), room=AnswerRoom(bounds=BOUNDS)
    )
    agent = ChatAgent(settings, session=None, clock=SystemClock())
    try:
        async with asyncio.timeout(30), aclosing(agent.run(request, LooseWork())) as stream:
            return [each async for each in stream]
    finally:
        await agent.close()


@pytest.mark.parametrize(
    ("api", "pieces", "setting"),
    [
        ("openai", openai_text, "answer_bytes"),
        ("openai", openai_arguments, "answer_bytes"),
        ("openai", openai_crumbs, "answer_bytes"),
        ("openai", openai_calls, "answer_calls"),
        ("openai", one_event, "answer_bytes"),
        ("openai", no_stream, "answer_bytes"),
        ("anthropic", anthropic_text, "answer_bytes"),
        ("anthropic", anthropic_arguments, "answer_bytes"),
        ("anthropic", anthropic_calls, "answer_calls"),
    ],
)
async def test_an_answer_without_end_is_ended(api: str, pieces: Pieces, setting: str) -> None:
    tracemalloc.start()
    try:
        async with endless(pieces) as url:
            events = await ask(url, api)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    assert stopped.reason is StopReason.ANSWER_EXCEEDED
    assert setting in stopped.detail
    assert not stopped.may_retry
    assert not [each for each in events if isinstance(each, AgentCall)], "half a call is none"
    assert peak < MEMORY_BYTES
    said = "".join(each.text for each in events if isinstance(each, AgentText))
    if pieces in (openai_text, anthropic_text):
        assert len(said) == BOUNDS.answer_bytes, "what was said is kept, up to the bound"
    elif pieces in (openai_arguments, openai_calls):
        assert said == "Let me look. "
