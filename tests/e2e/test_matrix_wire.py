"""Checks how the Matrix adapter treats servers that answer badly, late or never."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from perdure.adapters.matrix.wire import Wire
from perdure.domain.errors import Ambiguous, NotFound, PerdureError, Permanent, Transient

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers with whatever the test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.answer: Serve = self._empty

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        await request.read()
        return await self.answer(request)

    async def _empty(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    wire = Wire(server.url)
    wire.open()
    yield wire
    await wire.close()


def refusing(status: int, body: object, **headers: str) -> Serve:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def babble(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>welcome</html>")


async def hesitate(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def failure(wire: Wire, *, is_repeatable: bool) -> PerdureError:
    with pytest.raises(PerdureError) as failed:
        await wire.call(
            "POST", "/x", body={}, answer=dict, is_repeatable=is_repeatable, timeout_s=0.5
        )
    return failed.value


@pytest.mark.parametrize("answer", [hang_up, babble, hesitate, refusing(502, {}), refusing(500, 7)])
async def test_no_answer_may_mean_that_it_was_done(
    server: Server, wire: Wire, answer: Serve
) -> None:
    server.answer = answer
    assert type(await failure(wire, is_repeatable=False)) is Ambiguous
    assert type(await failure(wire, is_repeatable=True)) is Transient
    assert server.requests == 2  # nothing was tried again


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (refusing(429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1500}), 1.5),
        (refusing(429, {"errcode": "M_LIMIT_EXCEEDED"}, **{"Retry-After": "7"}), 7.0),
        (refusing(429, "slow down"), None),
        (refusing(503, {"error": "starting"}, **{"Retry-After": "3"}), 3.0),
    ],
)
async def test_a_wait_is_passed_on(
    server: Server, wire: Wire, answer: Serve, wait_s: float | None
) -> None:
    server.answer = answer
    error = await failure(wire, is_repeatable=False)
    assert isinstance(error, Transient)
    assert error.retry_after_s == wait_s
    assert server.requests == 1


@pytest.mark.parametrize(
    ("status", "errcode", "kind", "advice"),
    [
        (401, "M_UNKNOWN_TOKEN", Permanent, "Set a valid token"),
        (403, "M_FORBIDDEN", Permanent, "Invite the bot"),
        (403, "M_USER_DEACTIVATED", Permanent, "Set a valid token"),
        (413, "M_TOO_LARGE", Permanent, "too large"),
        (404, "M_NOT_FOUND", NotFound, "no such thing"),
        (400, "M_BAD_JSON", Permanent, "M_BAD_JSON"),
    ],
)
async def test_a_refusal_says_what_to_do(
    server: Server, wire: Wire, status: int, errcode: str, kind: type[PerdureError], advice: str
) -> None:
    server.answer = refusing(status, {"errcode": errcode, "error": "because"})
    error = await failure(wire, is_repeatable=False)
    assert type(error) is kind
    assert advice in error.message
    assert "because" in error.message


async def test_nobody_there_means_that_it_was_not_done(wire: Wire, tmp_path: Path) -> None:
    wire = Wire("http://127.0.0.1:9")
    wire.open()
    try:
        assert type(await failure(wire, is_repeatable=False)) is Transient
    finally:
        await wire.close()


async def test_a_closed_wire_is_opened_again_later(wire: Wire) -> None:
    await wire.close()
    assert type(await failure(wire, is_repeatable=False)) is Transient


async def test_a_file_that_breaks_off_is_not_taken_for_whole(server: Server, wire: Wire) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    server.answer = half
    with pytest.raises(Transient):
        [piece async for piece in wire.stream("/file")]
