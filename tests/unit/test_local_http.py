"""Checks HTTP on a local socket, against servers that send what no node would."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.app.operate.local_http import (
    HEAD_BYTES_MAX,
    BrokenOff,
    HttpRequest,
    NobodyListens,
    UnreadableAnswer,
    asked,
)

QUESTION = HttpRequest(target="/api/status", headers={"Authorization": "Bearer secret"})
OK = b"HTTP/1.1 200 OK\r\n"
MEASURED = OK + b"Content-Length: 11\r\n\r\nhello there"
CHUNKED = (
    OK
    + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;note=1\r\n there\r\n0\r\nMore: 1\r\n\r\n"
)
UNMEASURED = b"HTTP/1.0 200 OK\r\n\r\nhello there"


@pytest.fixture
def path() -> Iterator[Path]:
    """Return a short path: the system limits the length of a socket's path."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "s"


class Server:
    """Writes the same bytes to every client, in pieces, and leaves. Keeps the requests it got."""

    def __init__(self, pieces: Sequence[bytes], *, stays: bool = False) -> None:
        self.heard: list[bytes] = []
        self._pieces = pieces
        self._leaves = asyncio.Event()
        if not stays:
            self._leaves.set()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator["Server"]:
        async with await asyncio.start_unix_server(self._answer, path):
            yield self
            self._leaves.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in self._pieces:
            writer.write(piece)
            await writer.drain()
        await self._leaves.wait()
        writer.close()


async def body_from(path: Path, *pieces: bytes, bytes_max: int = 1000) -> bytes:
    async with Server(pieces).listening(path), asked(path, QUESTION) as answer:
        return await answer.whole(bytes_max=bytes_max)


@pytest.mark.parametrize("answer", [MEASURED, CHUNKED, UNMEASURED])
async def test_a_body_is_read_wherever_the_stream_is_cut(path: Path, answer: bytes) -> None:
    assert await body_from(path, *(answer[at : at + 1] for at in range(len(answer)))) == (
        b"hello there"
    )
    assert await body_from(path, answer) == b"hello there"


@pytest.mark.parametrize("stream", [MEASURED, CHUNKED])
async def test_an_answer_that_is_cut_short_is_never_taken_for_whole(
    path: Path, stream: bytes
) -> None:
    # The last chunk says that nothing follows, so bytes behind it are not waited for.
    end = stream.find(b"0\r\nMore") + 3 if stream is CHUNKED else len(stream)
    for length in range(end):
        with pytest.raises(BrokenOff):
            await body_from(path, stream[:length])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 OK\r\n\r\n", "no HTTP"),
        (OK + b"Content-Length: -1\r\n\r\n", "how long"),
        (OK + b"Content-Length: 0x10\r\n\r\n", "how long"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nmany\r\n", "how long"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nhello\r\n", "longer than it says"),
        (OK + b"X: " + b"x" * HEAD_BYTES_MAX * 3, "head is longer"),
    ],
)
async def test_what_is_no_answer_is_refused(path: Path, answer: bytes, words: str) -> None:
    with pytest.raises(UnreadableAnswer, match=words):
        await body_from(path, answer)


@pytest.mark.parametrize("answer", [MEASURED, CHUNKED, UNMEASURED])
async def test_no_more_is_read_than_may_come(path: Path, answer: bytes) -> None:
    assert await body_from(path, answer, bytes_max=11) == b"hello there"
    with pytest.raises(UnreadableAnswer, match="longer than 10 bytes"):
        await body_from(path, answer, bytes_max=10)


async def test_pieces_come_as_they_are_sent(path: Path) -> None:
    begun = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with (
        Server([begun], stays=True).listening(path),
        asked(path, QUESTION) as answer,
    ):
        assert await answer.piece() == b"hello"


@pytest.mark.parametrize("begun", [b"", OK, OK + b"Content-Length: 5\r\n\r\n"])
async def test_silence_has_an_end(path: Path, begun: bytes) -> None:
    async with Server([begun], stays=True).listening(path):
        with pytest.raises(TimeoutError):
            async with asked(path, QUESTION, silence_s=0.05) as answer:
                await answer.piece()


@pytest.mark.parametrize("is_there", [True, False])
async def test_where_nobody_listens_nothing_was_asked(path: Path, is_there: bool) -> None:
    if is_there:
        async with Server([]).listening(path):
            pass
    with pytest.raises(NobodyListens):
        async with asked(path, QUESTION):
            pass


async def test_a_request_says_what_it_is_and_how_long(path: Path) -> None:
    posted = HttpRequest(method="POST", target="/api/send?a=%20", body=b"{}")
    async with Server([MEASURED]).listening(path) as server:
        for request in (QUESTION, posted, HttpRequest(method="POST", target="/api/drain")):
            async with asked(path, request) as answer:
                assert answer.status == 200

    question, sent, drain = (heard.decode().split("\r\n") for heard in server.heard)
    assert question[0] == "GET /api/status HTTP/1.1"
    assert {"Host: localhost", "Connection: close", "Authorization: Bearer secret"} < set(question)
    assert sent[0] == "POST /api/send?a=%20 HTTP/1.1"
    assert {"Content-Type: application/json", "Content-Length: 2"} < set(sent)
    assert "Content-Length: 0" in drain


@pytest.mark.parametrize("odd", ["a\r\nHost: b", "a\nb", "a\0"])
def test_a_header_cannot_begin_another(odd: str) -> None:
    with pytest.raises(ValueError, match="more than one line"):
        HttpRequest(target="/", headers={"Last-Event-ID": odd}).encoded()
