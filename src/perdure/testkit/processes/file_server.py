"""Provides a web server with files on a loopback socket, and a transcriber that speaks OpenAI's
audio wire.

It is a real server, so that the code which fetches from it meets real redirects and resets.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import msgspec
from aiohttp import web


class Transcribed(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one request to the transcriber."""

    model: str
    language: str
    name: str
    data: bytes
    authorization: str


SPEECH: Final = "/v1/audio/speech"


class FileServer:
    """Serves `files` by their paths. A path in `statuses` is answered with that status and nothing
    else, and a path in `redirects` with a redirect. A path in `hanging` gets its headers and two
    bytes, and then nothing more. `asked` lists all paths that were requested. `hears` is the text
    that the transcriber returns, and `spoken` lists what was to be read aloud."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files: dict[str, bytes] = dict(files or {})
        self.statuses: dict[str, int] = {}
        self.redirects: dict[str, str] = {}
        self.hanging: set[str] = set()
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.hears = ""
        self.transcribed: list[Transcribed] = []
        self.spoken: list[dict[str, str]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post(SPEECH, self._speak)
        app.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append(path)
        if path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[path]})
        if path in self.statuses:
            return web.Response(status=self.statuses[path])
        if path not in self.files:
            return web.Response(status=404)
        if path in self.hanging:
            return await self._hang(request)
        return web.Response(body=self.files[path], headers=self.headers)

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=self.headers)
        await response.prepare(request)
        await response.write(self.files[request.path][:2])
        await asyncio.Event().wait()
        raise AssertionError("nobody ends this")

    async def _transcribe(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        self.transcribed.append(
            Transcribed(
                model=str(form["model"]),
                language=str(form.get("language", "")),
                name=file.filename,
                data=file.file.read(),
                authorization=request.headers.get("Authorization", ""),
            )
        )
        status = self.statuses.get("/v1/audio/transcriptions", 200)
        return web.json_response({"text": self.hears}, status=status)

    async def _speak(self, request: web.Request) -> web.Response:
        self.spoken.append(await request.json())
        return web.Response(body=a_second_of_ogg(), status=self.statuses.get(SPEECH, 200))


def a_second_of_ogg() -> bytes:
    """Return two pages of an Ogg file whose last one says that a second of Opus was played."""
    head = b"OggS\x00\x02" + bytes(20) + b"\x01\x13OpusHead\x01\x01" + bytes(9)
    return head + b"OggS\x00\x04" + (48_000).to_bytes(8, "little") + bytes(12)
