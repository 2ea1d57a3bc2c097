"""Serves a model that costs next to nothing: it does not parse the request, and it streams an
answer that was encoded before the first request came.

`testkit.model_server` checks every request against the providers' rules, which at thousands of
messages takes longer than the turn that is measured. `GET /seen` returns what arrived, so that a
measurement can check that the history was really sent.
"""

import argparse
import asyncio
import sys

import msgspec
import uvloop
from aiohttp import web

from perdure.testkit.models.model_script import ScriptedDialect, ScriptedRequest, say
from perdure.testkit.models.model_wire import openai_stream

BODY_BYTES_MAX = 64 * 1024 * 1024
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


class Model:
    """Streams the same encoded answer to every request, and keeps what arrived."""

    def __init__(self, *, words: int, delay_ms: float, think_ms: float) -> None:
        self._delay_s = delay_ms / 1000
        self._think_s = think_ms / 1000
        self._steps = _steps(words, is_delayed=delay_ms > 0)
        self._last = b""
        self._in_flight = 0
        self._peak = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        try:
            self._last = await request.read()
            return await self._answer(request)
        finally:
            self._in_flight -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._think_s:
            await asyncio.sleep(self._think_s)
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        for step in self._steps:
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await response.write(step)
        return response

    async def seen(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(self._last)
        seen = {"bytes": len(self._last), "messages": len(body["messages"]), "peak": self._peak}
        return web.Response(body=msgspec.json.encode(seen), content_type="application/json")


def _steps(words: int, *, is_delayed: bool) -> list[bytes]:
    """Return one piece per word, or a single piece if there is no delay between words."""
    text = " ".join(f"word{number}" for number in range(1, words + 1))
    options = {"stream_options": {"include_usage": True}}
    asked = ScriptedRequest(
        number=1,
        dialect=ScriptedDialect.OPENAI,
        model="scripted",
        messages=[],
        stream=True,
        body=options,
        body_bytes=0,
    )
    streamed = openai_stream(say(text), asked)
    first, *rest = streamed.chunks
    steps = [streamed.opening + first, *rest]
    steps[-1] += streamed.closing
    return steps if is_delayed else [b"".join(steps)]


async def serve(model: Model) -> None:
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_post("/v1/chat/completions", model.complete)
    app.router.add_get("/seen", model.seen)
    await listen(app)


async def listen(app: web.Application) -> None:
    """Serve until killed. Prints the address once the port is open."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.model")
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--think-ms", type=float, default=0)
    options = parser.parse_args()
    model = Model(words=options.words, delay_ms=options.delay_ms, think_ms=options.think_ms)
    uvloop.run(serve(model))


if __name__ == "__main__":
    main()
