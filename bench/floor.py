"""The floor: the least a gateway can do that loses nothing. Accept, commit, forward, commit.

One file, one table, no thread, no queue, no lease, no log, nobody else in the way. It keeps the
encoded history of each conversation in memory, in blocks that are never copied again once full;
what it cannot do (stop, resume, search, watch, deliver, explain, two at once in one conversation)
is what the rest is paid for.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import apsw
import msgspec
import uvloop
from aiohttp import web

from bench.model import listen

HEAD = b'{"model":"scripted","stream":true,"stream_options":{"include_usage":true},"messages":['
END = b"]}"
BLOCK_BYTES = 64 * 1024
SCHEMA = "CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation TEXT, body BLOB) STRICT"


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


_encode = msgspec.json.Encoder().encode
_completion = msgspec.json.Decoder(Completion)
_chunk = msgspec.json.Decoder(Chunk)


class Floor:
    def __init__(self, path: Path, model_url: str) -> None:
        self._model_url = f"{model_url}/v1/chat/completions"
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute(SCHEMA)
        self._histories: dict[str, list[bytes]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open_session(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            yield

    async def complete(self, request: web.Request) -> web.StreamResponse:
        conversation = request.headers["X-Perdure-Conversation"]
        asked = _completion.decode(await request.read()).messages[-1]
        history = self._add(conversation, asked)
        assert self._session is not None
        body, headers = _body(history)
        async with self._session.post(self._model_url, data=body, headers=headers) as answer:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            chunks: list[bytes] = []
            async for chunk in answer.content.iter_any():
                chunks.append(chunk)
                await response.write(chunk)
        self._add(conversation, Message("assistant", _text(b"".join(chunks))))
        await response.write_eof()
        return response

    def _add(self, conversation: str, message: Message) -> list[bytes]:
        """Commit one message; the whole history as blocks that join to a list's inside."""
        encoded = _encode(message)
        self._connection.execute(
            "INSERT INTO messages (conversation, body) VALUES (?, ?)", (conversation, encoded)
        )
        blocks = self._histories.setdefault(conversation, [])
        if not blocks:
            blocks.append(HEAD + encoded)
        elif len(blocks[-1]) < BLOCK_BYTES:
            blocks[-1] = b"%s,%s" % (blocks[-1], encoded)
        else:
            blocks.append(b"," + encoded)
        return blocks


def _body(history: list[bytes]) -> tuple[bytes | AsyncIterator[bytes], dict[str, str]]:
    """A short request at once, a long one block by block."""
    headers = {"Content-Type": "application/json"}
    if len(history) == 1:
        return history[0] + END, headers
    headers["Content-Length"] = str(sum(map(len, history)) + len(END))
    return _blocks([*history, END]), headers


async def _blocks(blocks: list[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


def _text(stream: bytes) -> str:
    events = (line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {"))
    choices = (choice for event in events for choice in _chunk.decode(event).choices)
    return "".join(choice.delta.content for choice in choices)


def main() -> None:
    path, model_url = sys.argv[1:]
    floor = Floor(Path(path), model_url)
    app = web.Application()
    app.cleanup_ctx.append(floor.open_session)
    app.router.add_post("/v1/chat/completions", floor.complete)
    uvloop.run(listen(app))


if __name__ == "__main__":
    main()
