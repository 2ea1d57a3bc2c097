"""Serves the floor: accepts, commits, forwards to the model and commits, with the usual libraries.

It is made of Starlette on uvicorn, the standard library's SQLite, and httpx2. It has no tools,
memory, access rules, delivery, stop, resume or search: it is a lower bound and not a rival. It is
written to be fast where that costs nothing: uvloop and httptools, each message encoded once, the
request made of joined bytes, typed decoding.
"""

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

HEAD = b'{"model":"scripted","stream":true,"stream_options":{"include_usage":true},"messages":['
END = b"]}"
SCHEMA = "CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation TEXT, body BLOB) STRICT"
ADD = "INSERT INTO messages (conversation, body) VALUES (?, ?)"


class Message(msgspec.Struct):
    role: str
    content: str


class Completion(msgspec.Struct):
    messages: list[Message]


class Delta(msgspec.Struct):
    content: str = ""


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


encode = msgspec.json.Encoder().encode
completion = msgspec.json.Decoder(Completion)
_chunk = msgspec.json.Decoder(Chunk)


class Floor:
    """Answers turns: stores each message, forwards the history, stores the answer."""

    def __init__(self, path: Path, model_url: str) -> None:
        self._model_url = f"{model_url}/v1/chat/completions"
        self._database = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute(SCHEMA)
        self._histories: dict[str, list[bytes]] = {}

    @asynccontextmanager
    async def client(self, _: Starlette) -> AsyncIterator[None]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=None, limits=limits) as self._http:
            yield

    async def complete(self, request: Request) -> StreamingResponse:
        conversation = request.headers["X-Perdure-Conversation"]
        asked = completion.decode(await request.body()).messages[-1]
        history = self._add(conversation, asked)
        body = b"".join((HEAD, b",".join(history), END))
        return StreamingResponse(self._answer(conversation, body), media_type="text/event-stream")

    async def _answer(self, conversation: str, body: bytes) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        headers = {"Content-Type": "application/json"}
        async with self._http.stream(
            "POST", self._model_url, content=body, headers=headers
        ) as answer:
            async for chunk in answer.aiter_raw():
                chunks.append(chunk)
                yield chunk
        self._add(conversation, Message("assistant", text_of(b"".join(chunks))))

    def _add(self, conversation: str, message: Message) -> list[bytes]:
        encoded = encode(message)
        self._database.execute(ADD, (conversation, encoded))
        history = self._histories.setdefault(conversation, [])
        history.append(encoded)
        return history


def text_of(stream: bytes) -> str:
    events = (line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {"))
    choices = (choice for event in events for choice in _chunk.decode(event).choices)
    return "".join(choice.delta.content for choice in choices)


class Server(uvicorn.Server):
    """Prints its address once it listens."""

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        host, port = self.servers[0].sockets[0].getsockname()
        sys.stdout.write(f"http://{host}:{port}\n")
        sys.stdout.flush()


def main() -> None:
    path, model_url = sys.argv[1:]
    floor = Floor(Path(path), model_url)
    route = Route("/v1/chat/completions", floor.complete, methods=["POST"])
    app = Starlette(routes=[route], lifespan=floor.client)
    settings = uvicorn.Config(app, port=0, http="httptools", log_level="warning", access_log=False)
    uvloop.run(Server(settings).serve())


if __name__ == "__main__":
    main()
