"""Checks the proxy of the storms: each fault does what it says, and calls that come too early are
noticed."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from perdure.testkit.processes.faulty_proxy import Fault, FaultyProxy, PlatformRequest
from perdure.testkit.simulator.system import VirtualClock


class PlainRules:
    """Takes the path as the place. A path that begins with a dash is a request that only
    listens."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        place = path.removeprefix("/")
        is_act = not place.startswith("-")
        return PlatformRequest(
            verb=method, is_act=is_act, place=place, text=body.decode(), wait_for=place
        )

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": str(wait_s)})


class Planned:
    """Plans each fault in advance."""

    def __init__(self, *faults: Fault | None) -> None:
        self._faults = deque(faults)

    def fault(self, asked: PlatformRequest) -> Fault | None:
        return self._faults.popleft() if self._faults else None

    def wait_s(self) -> int:
        return 1

    def status(self) -> int:
        return 502

    def late_s(self) -> float:
        return 0.0


class Board:
    """Serves requests and keeps their bodies."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.news = asyncio.Event()

    async def keep(self, request: web.Request) -> web.Response:
        self.kept.append(await request.text())
        self.news.set()
        return web.json_response({"at": request.path_qs})


@asynccontextmanager
async def standing(
    *faults: Fault | None, clock: VirtualClock | None = None
) -> AsyncIterator[tuple[Board, FaultyProxy]]:
    clock = clock or VirtualClock()
    board, app = Board(), web.Application()
    app.router.add_post("/{path:.*}", board.keep)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with FaultyProxy(url, PlainRules(), Planned(*faults), clock=clock) as proxy:
            yield board, proxy
    finally:
        await runner.cleanup()


async def post(proxy: FaultyProxy, path: str, body: str = "words") -> int:
    """Make a call on a connection of its own. Returns its status, or 0 if the connection was
    closed."""
    try:
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{proxy.url}/{path}", data=body) as answer,
        ):
            await answer.read()
            return answer.status
    except aiohttp.ClientError:
        return 0


async def test_what_meets_no_fault_passes_unchanged() -> None:
    async with standing() as (board, proxy), aiohttp.ClientSession() as http:
        async with http.post(f"{proxy.url}/a%2Fb?c=d%20e", data="words") as answer:
            assert await answer.json() == {"at": "/a%2Fb?c=d%20e"}
        assert board.kept == ["words"]


@pytest.mark.parametrize(
    ("fault", "status", "is_done"),
    [
        (Fault.LIMITED, 429, False),
        (Fault.REFUSED, 502, False),
        (Fault.BROKEN, 502, True),
        (Fault.CUT, 0, False),
        (Fault.LOST, 0, True),
    ],
)
async def test_each_fault_is_what_its_name_says(fault: Fault, status: int, is_done: bool) -> None:
    async with standing(fault) as (board, proxy):
        assert await post(proxy, "a") == status
        assert board.kept == ["words"] * is_done
        assert proxy.faults == {fault: 1}


async def test_a_call_that_hangs_is_performed_when_its_caller_is_gone() -> None:
    async with standing(Fault.HUNG) as (board, proxy):
        caller = asyncio.create_task(post(proxy, "a"))
        await proxy.hung.wait()
        assert board.kept == []
        caller.cancel()
        async with asyncio.timeout(10):
            await board.news.wait()


async def test_a_call_during_a_wait_is_refused_and_noted() -> None:
    clock = VirtualClock()
    async with standing(Fault.LIMITED, clock=clock) as (board, proxy):
        assert await post(proxy, "a") == 429
        assert await post(proxy, "a") == 429  # the repeated call may have been under way already
        assert await post(proxy, "b") == 200
        clock.advance(0.6)
        proxy.life += 1
        assert await post(proxy, "a") == 429
        (impatient,) = proxy.impatient
        assert impatient.is_over_a_restart
        clock.advance(0.5)
        assert await post(proxy, "a") == 200
        assert len(proxy.impatient) == 1
        assert len(board.kept) == 2


async def test_what_only_listens_waits_by_itself() -> None:
    async with standing(Fault.LIMITED) as (_, proxy):
        assert await post(proxy, "-listening") == 429
        assert await post(proxy, "a") == 200
        assert await post(proxy, "-listening") == 429
