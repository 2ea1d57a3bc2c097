"""Serves the same as the floor, as lean as its parts can be made: shows how much is left to gain.

Nobody would run this program. It stops everything at each commit, shows text before it is stored,
and copies bytes without reading them. The history of a conversation is in memory, in blocks that
are never copied again once they are full.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import apsw
import uvloop
from aiohttp import web

from bench.floor import END, HEAD, SCHEMA, Message, completion, encode, text_of
from bench.model import listen

BLOCK_BYTES = 64 * 1024


class Bare:
    """Answers turns in the leanest way, with the history in memory."""

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
        asked = completion.decode(await request.read()).messages[-1]
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
        self._add(conversation, Message("assistant", text_of(b"".join(chunks))))
        await response.write_eof()
        return response

    def _add(self, conversation: str, message: Message) -> list[bytes]:
        """Commit one message. Returns the whole history as blocks; joined, they are the inside of a
        JSON list."""
        encoded = encode(message)
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
    """Return the body and headers of a request: short ones as bytes, long ones block by block."""
    headers = {"Content-Type": "application/json"}
    if len(history) == 1:
        return history[0] + END, headers
    headers["Content-Length"] = str(sum(map(len, history)) + len(END))
    return _blocks([*history, END]), headers


async def _blocks(blocks: list[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


def main() -> None:
    path, model_url = sys.argv[1:]
    bare = Bare(Path(path), model_url)
    app = web.Application()
    app.cleanup_ctx.append(bare.open_session)
    app.router.add_post("/v1/chat/completions", bare.complete)
    uvloop.run(listen(app))


if __name__ == "__main__":
    main()
