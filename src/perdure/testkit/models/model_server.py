"""Provides a model provider on a loopback socket, for contract, fault, end-to-end and bench runs.

It speaks the OpenAI chat-completions wire and the Anthropic messages wire, and answers what its
script says. It refuses a request that breaks the providers' rules, as they do. It is a real server,
so that the code under test meets real sockets, real chunked bodies and real resets.

    async with ModelServer(in_turn(status(429, retry_after=1), say("hello"))) as server:
        ...  # point a client at server.openai_url, or at server.url for the Anthropic wire
        await server.wait_for_requests(2)
        assert server.violations == []

If a client hangs up, its reply is cancelled, so `in_flight` counts the clients that still wait.
Run as a program, it serves one scripted answer, or the echo, until it is asked to stop.
"""

import argparse
import asyncio
import importlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from perdure.ports.system.clock import Clock
from perdure.testkit.models.model_plan import ModelPlan, bursts, response_plan, scripted_refusal
from perdure.testkit.models.model_script import (
    Reply,
    Script,
    ScriptedDialect,
    ScriptedRequest,
    echo,
    say,
    slow,
)
from perdure.testkit.models.model_wire import anthropic_models, openai_models
from perdure.testkit.models.wire_rules import anthropic_violations, openai_violations

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
SHUTDOWN_TIMEOUT_S: Final = 1.0
_RULES: Final[Mapping[ScriptedDialect, Callable[[object], list[str]]]] = {
    ScriptedDialect.OPENAI: openai_violations,
    ScriptedDialect.ANTHROPIC: anthropic_violations,
}


class Received(msgspec.Struct, frozen=True):
    """Holds one model call as it arrived. `body` is None if the bytes were not a JSON object."""

    number: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any] | None


class ModelServer:
    """Serves a script while the `async with` block runs.

    `requests` holds the model calls in the order of arrival, but at most `requests_max` of them. A
    request for the list of models is not a model call. `violations` names each broken rule with the
    number of its request; such a request is answered with 400, and the script is not asked.
    """

    def __init__(
        self,
        script: Script = echo,
        *,
        port: int = 0,
        models: Sequence[str] = ("scripted",),
        requests_max: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.requests: list[Received] = []
        self.violations: list[str] = []
        self.port = port
        self._script = script
        self._models = tuple(models)
        self._requests_max = requests_max
        self._sleep = _loop_sleep if clock is None else clock.sleep
        self._count = 0
        self._open: dict[int, web.Request] = {}
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """Return the address for clients of the OpenAI wire."""
        return f"{self.url}/v1"

    @property
    def in_flight(self) -> int:
        """Return how many model calls have arrived whole and are neither answered nor abandoned."""
        return len(self._open)

    async def wait_for_requests(self, count: int) -> list[Received]:
        """Return the recorded calls once `count` have arrived. The caller sets the deadline."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._count >= count)
        return list(self.requests)

    async def wait_until_idle(self) -> None:
        """Return once no call is in flight. The caller sets the deadline."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._open)

    def release(self) -> None:
        """Let every reply continue that hangs now, or that answers a call which has already
        arrived."""
        self._released.set()
        self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_post("/v1/chat/completions", self._serve_openai)
        app.router.add_post("/v1/messages", self._serve_anthropic)
        app.router.add_route("*", "/{path:.*}", self._refuse_path)
        app.on_shutdown.append(self._abort_open)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=4096).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _abort_open(self, _app: web.Application) -> None:
        """Drop the connections of all calls under way. Otherwise closing would wait for hanging
        replies."""
        for request in tuple(self._open.values()):
            if request.transport is not None:
                request.transport.abort()

    async def _list_models(self, request: web.Request) -> web.Response:
        is_anthropic = "anthropic-version" in request.headers
        listed = (anthropic_models if is_anthropic else openai_models)(self._models)
        return web.Response(body=listed, content_type="application/json")

    async def _refuse_path(self, request: web.Request) -> web.StreamResponse:
        text = f"Invalid URL ({request.method} {request.path}): this server has two model wires"
        return await self._carry_out(
            scripted_refusal(ScriptedDialect.OPENAI, 404, text), request, self._released
        )

    async def _serve_openai(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, ScriptedDialect.OPENAI)

    async def _serve_anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, ScriptedDialect.ANTHROPIC)

    async def _serve(self, request: web.Request, dialect: ScriptedDialect) -> web.StreamResponse:
        received = self._record(request, await request.read())
        # Taken before anybody hears of the call: a `release` after that must reach this reply.
        released = self._released
        self._open[received.number] = request
        try:
            await self._tell()
            return await self._carry_out(self._decide(received, dialect), request, released)
        finally:
            del self._open[received.number]
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _record(self, request: web.Request, raw: bytes) -> Received:
        """Number a model call, and keep it unless enough calls are kept."""
        self._count += 1
        received = Received(
            number=self._count,
            path=request.path,
            headers=request.headers,
            raw=raw,
            body=_decoded(raw),
        )
        if self._requests_max is None or len(self.requests) < self._requests_max:
            self.requests.append(received)
        return received

    def _decide(self, received: Received, dialect: ScriptedDialect) -> ModelPlan:
        """Return the plan for a call: a refusal if it breaks a rule, else what the script says."""
        broken = _RULES[dialect](received.body)
        if dialect is ScriptedDialect.ANTHROPIC and "anthropic-version" not in received.headers:
            broken.append("anthropic-version: header is required")
        if broken or received.body is None:
            self.violations.extend(f"request {received.number}: {rule}" for rule in broken)
            return scripted_refusal(dialect, 400, "; ".join(broken))
        request = ScriptedRequest(
            number=received.number,
            dialect=dialect,
            model=received.body["model"],
            messages=received.body["messages"],
            stream=received.body.get("stream") is True,
            body=received.body,
            body_bytes=len(received.raw),
        )
        return response_plan(self._script(request), request)

    async def _carry_out(
        self, answer: ModelPlan, request: web.Request, released: asyncio.Event
    ) -> web.StreamResponse:
        """Send a response as its plan says."""
        if answer.think_ms:
            await self._sleep(answer.think_ms / 1000)
        if answer.holds_headers:
            await released.wait()
        response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        response.content_length = answer.length
        await response.prepare(request)
        for step in bursts(answer.steps):
            if step.hold:
                await released.wait()
            if step.pause_ms:
                await self._sleep(step.pause_ms / 1000)
            await response.write(step.data)
        if not answer.is_cut:
            await response.write_eof()
        elif request.transport is not None:
            # Closing, unlike aborting, first sends what is buffered. So the client gets every byte
            # up to the cut, and nothing after it, not even the end of the transfer.
            request.transport.close()
        return response


def _decoded(raw: bytes) -> dict[str, Any] | None:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return body if isinstance(body, dict) else None


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


async def _loop_sleep(seconds: float) -> None:
    """Wait on the loop's own timer."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    # The timer may fire in the same round of the loop in which the wait is cancelled, so `_wake`
    # checks whether the future is done already.
    timer = loop.call_later(seconds, _wake, woken)
    try:
        await woken
    finally:
        timer.cancel()


def _script_for(words: int, delay_ms: float, think_ms: float) -> Script:
    """Return a script: the echo, or one answer of that many words, which is built once for all
    calls."""
    fixed = say(" ".join(f"word{number}" for number in range(1, words + 1)), delay_ms=delay_ms)

    def script(request: ScriptedRequest) -> Reply:
        answer = fixed if words else msgspec.structs.replace(echo(request), delay_ms=delay_ms)
        return slow(think_ms, answer)

    return script


async def _run(script: Script, port: int) -> None:
    """Serve until a signal asks to stop. The first line of output is the port and the address, as
    JSON."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with ModelServer(script, port=port, requests_max=0) as server:
        ready = msgspec.json.encode({"port": server.port, "url": server.url})
        sys.stdout.write(ready.decode() + "\n")
        sys.stdout.flush()
        await stopped.wait()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's factory if uvloop is installed, because it is faster."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop]
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return factory


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m perdure.testkit.models.model_server",
        description="Serve a scripted model on loopback; prints its port as JSON when ready.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--words", type=int, default=0, help="answer length; 0 echoes")
    parser.add_argument("--delay-ms", type=float, default=0, help="pause before each word")
    parser.add_argument("--think-ms", type=float, default=0, help="pause before each answer")
    options = parser.parse_args()
    script = _script_for(options.words, options.delay_ms, options.think_ms)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(script, options.port))


if __name__ == "__main__":
    main()
