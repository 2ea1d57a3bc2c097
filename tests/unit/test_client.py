"""Checks how the client of a node reads answers that no node should give."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from perdure.app.operate import client
from perdure.app.operate.client import UNREACHABLE, NodeClient, node_client
from perdure.app.operate.local_socket import NAME
from perdure.domain.errors import Ambiguous, Conflict, NotFound, PerdureError, Rejected, Transient
from perdure.domain.ids import MessageId, TurnId
from perdure.domain.turn.watching import Delta

DELTA = Delta(turn=TurnId("trn_1"), message=MessageId("msg_1"), offset=0, text="grüße")
EVENT = b"id: 7\nevent: delta\ndata: %s\n\n" % msgspec.json.encode(DELTA)
STREAM = (
    b": still here\n\nevent: of another version\ndata: ?\n\n" + EVENT + EVENT.replace(b"7", b"8")
)


@pytest.fixture
def home() -> Iterator[Path]:
    """Make a home with a short path: the system limits the length of a socket's path."""
    with tempfile.TemporaryDirectory() as folder:
        hint = {"pid": os.getpid(), "port": 9, "url": "http://127.0.0.1:9"}
        (Path(folder) / "server.json").write_bytes(msgspec.json.encode(hint))
        (Path(folder) / "token").write_text("secret\n")
        yield Path(folder)


def answer(body: bytes, *, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d Words\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def refusal(code: str, *, retryable: bool = False) -> bytes:
    problem = {"code": code, "message": f"it is {code}", "retryable": retryable}
    return msgspec.json.encode({"error": problem})


@asynccontextmanager
async def node_that_says(home: Path, said: bytes) -> AsyncIterator[NodeClient]:
    """Yield a client that has found a node. The node gives this answer to every request, but not to
    a connection that only looks whether it is there."""

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65_536)
        if head:
            assert b"\r\nAuthorization: Bearer secret\r\n" in head
            writer.write(said)
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(tell, home / NAME):
        found = NodeClient(home, {})
        assert not await found.look_again()  # a node is found, although a strange one
        yield found


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (answer(refusal("a"), status=409), Conflict, "it is a"),
        (answer(refusal("a"), status=404), NotFound, "it is a"),
        (answer(refusal("a"), status=400), Rejected, "it is a"),
        (answer(refusal("a", retryable=True), status=503), Transient, "it is a"),
        (answer(b"<html>", status=502), Transient, "HTTP status 502"),
        (answer(b"{}"), Transient, "is not this version of Perdure"),
        (answer(b"{}")[:-1], Ambiguous, "broke off; look before you repeat"),
        (b"", Ambiguous, "broke off; look before you repeat"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Ambiguous, r"cannot be read \(it is no HTTP\)"),
    ],
)
async def test_an_answer_becomes_the_error_that_it_is(
    home: Path, said: bytes, kind: type[PerdureError], words: str
) -> None:
    async with node_that_says(home, said) as node:
        with pytest.raises(kind, match=words):
            await node.status()


async def test_a_node_that_has_gone_is_unreachable(home: Path) -> None:
    async with node_that_says(home, b"") as node:
        pass
    for asking in (node.status(), anext(node.watch("main", after=None))):
        with pytest.raises(Transient, match="nothing answers at") as refused:
            await asking
        assert refused.value.code == UNREACHABLE
    assert await node_client(home, {}) is None


async def test_events_are_read_wherever_the_stream_is_cut(home: Path) -> None:
    for size in (1, 2, 7, 64, len(STREAM)):
        pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        async with node_that_says(home, said + b"0\r\n\r\n") as node:
            told = [each async for each in node.watch("main", after="6")]
        assert told == [("7", DELTA), ("8", DELTA)]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (EVENT.replace(b'"offset":0', b'"offset":"?"'), "cannot be read"),
        (b"event: delta\n\n", "cannot be read"),
        (b"data: \xff\n\n", "cannot be read"),
        (b"data: " + b"x" * 2000, "a line is longer than 1,000 bytes"),
    ],
)
async def test_a_stream_that_cannot_be_read_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, stream: bytes, words: str
) -> None:
    monkeypatch.setattr(client, "LINE_BYTES_MAX", 1000)
    async with node_that_says(home, b"HTTP/1.1 200 OK\r\n\r\n" + stream) as node:
        with pytest.raises(Ambiguous, match=words):
            _ = [each async for each in node.watch("main", after=None)]


async def test_a_stream_that_breaks_off_keeps_what_was_whole(home: Path) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(STREAM), STREAM[:-1])
    async with node_that_says(home, said) as node:
        stream = node.watch("main", after=None)
        assert await anext(stream) == ("7", DELTA)
        with pytest.raises(Ambiguous, match="broke off"):
            await anext(stream)
