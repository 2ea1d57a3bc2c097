"""Runs a noticeboard server for the tests of its adapter, and plays the people who pin notes
there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from perdure.domain.address import Address
from perdure.ports.platform.adapter import Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall

TOKEN = "a-bots-token"  # valid for this board only


class Board:
    """Keeps events and notes. An event is offered until a later one is asked for. Each entry of
    `refusals` answers one request with a status, and says how long to wait."""

    def __init__(self) -> None:
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self.notes: dict[str, dict[str, str]] = {}
        self.polls = 0
        self.refusals: list[tuple[int, int]] = []
        self._numbers = count(1)
        self._news = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Board"]:
        app = web.Application(middlewares=[self._refuse])
        app.add_routes(
            [
                web.get("/me", self._me),
                web.get("/events", self._offer),
                web.post("/notes", self._pin),
                web.put("/notes/{id}", self._change),
                web.delete("/notes/{id}", self._remove),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    def happen(self, **event: object) -> str:
        number = next(self._numbers)
        name = f"event-{number}"
        self.events.append({"number": number, "id": name, **event})
        self._news.set()
        return name

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.refusals:
            return await handler(request)
        status, seconds = self.refusals.pop(0)
        return web.Response(status=status, headers={"Retry-After": str(seconds)})

    async def _me(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            return web.Response(status=401)
        return web.json_response({"id": "bot-7"})

    async def _offer(self, request: web.Request) -> web.Response:
        self.polls += 1
        taken = int(request.query["after"])
        self.events = [each for each in self.events if each["number"] > taken]
        if not self.events:
            self._news.clear()
            try:
                async with asyncio.timeout(int(request.query["wait_s"])):
                    await self._news.wait()
            except TimeoutError:
                return web.json_response([])
        return web.json_response(self.events)

    async def _pin(self, request: web.Request) -> web.Response:
        note = await request.json()
        for name, pinned in self.notes.items():
            if pinned["key"] == note["key"]:
                return web.json_response({"id": name})
        if len(note["text"]) > 2000:
            return web.Response(status=413)
        name = f"note-{next(self._numbers)}"
        self.notes[name] = note
        return web.json_response({"id": name})

    async def _change(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if name not in self.notes:
            return web.Response(status=404)
        self.notes[name]["text"] = (await request.json())["text"]
        return web.json_response({"id": name})

    async def _remove(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if self.notes.pop(name, None) is None:
            return web.Response(status=404)
        return web.json_response({"id": name})


class BoardCase(AdapterCase):
    person, stranger = "ada", "bob"

    def __init__(
        self, platform: Platform, board: Board, *, impostor: Platform, clock: Clock
    ) -> None:
        super().__init__(platform, clock=clock)
        self._board = board
        self._impostor = impostor

    async def private(self, *, is_stranger: bool = False) -> Address:
        place = "board-of-bob" if is_stranger else "board-of-ada"
        return Address(adapter="noticeboard", account="bot-7", place=place)

    async def group(self) -> Address:
        return Address(adapter="noticeboard", account="bot-7", place="town-hall")

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        board = (await self.private(is_stranger=is_stranger)).place
        person = self.stranger if is_stranger else self.person
        return self._board.happen(board=board, person=person, text=text, is_private=True)

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        person = self.stranger if is_stranger else self.person
        return self._board.happen(board="town-hall", person=person, text=text, calls_us=mention)

    async def reply(self, receipt: str, text: str) -> str:
        board = (await self.private()).place
        return self._board.happen(
            board=board, person=self.person, text=text, answers=receipt, is_private=True
        )

    async def edit(self, external_id: str, text: str) -> None:
        await self._happens_to(external_id, kind="edit", text=text)

    async def delete(self, external_id: str) -> None:
        await self._happens_to(external_id, kind="delete")

    async def _happens_to(self, external_id: str, **what: str) -> None:
        board = (await self.private()).place
        self._board.happen(
            board=board, person=self.person, about=external_id, is_private=True, **what
        )

    async def shown(self, address: Address | None = None) -> list[str]:
        place = (address or await self.private()).place
        return [note["text"] for note in self._board.notes.values() if note["board"] == place]

    async def pings(self) -> list[str]:
        return [text for text in await self.shown() if "@all" in text]

    def impostor(self) -> Platform:
        return self._impostor

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        self._board.refusals.append((429, seconds))

    def refuse_rendering(self) -> None:
        self._board.refusals.append((422, 0))

    async def ready(self) -> None:
        await self.until(lambda: self._board.polls > 0, "the first question")
