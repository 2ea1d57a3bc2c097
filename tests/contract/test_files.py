"""Checks the `Fetcher` port for the web and the `Reader` port, against real sockets and
processes."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yarl import URL

from perdure.app.config.loading import Secret, TranscriberConfig
from perdure.app.network.public_web import RoutedWeb
from perdure.app.network.web_fetching import WebFetcher
from perdure.app.reading.file_reading import FileReader
from perdure.app.reading.speech import transcriber_of
from perdure.domain.errors import Permanent, Transient
from perdure.domain.reading.kinds import DOCX, PDF
from perdure.domain.reading.texts import FileReading
from perdure.ports.records.media import UNREACHABLE, FileSource
from perdure.testkit.processes.file_server import FileServer


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with FileServer({"/a.txt": b"hello", "/large": b"x" * 300_000}) as running:
        yield running


async def fetched(url: str, *, with_private: bool = True) -> bytes:
    pieces = [piece async for piece in WebFetcher(RoutedWeb(with_private=with_private)).fetch(url)]
    return b"".join(pieces)


async def test_a_file_comes_whole_and_in_pieces(server: FileServer) -> None:
    assert await fetched(f"{server.url}/a.txt") == b"hello"
    assert await fetched(f"{server.url}/large") == b"x" * 300_000


async def test_three_redirections_are_followed_and_no_more(server: FileServer) -> None:
    server.redirects = {"/1": "/2", "/2": f"{server.url}/3", "/3": "a.txt", "/0": "/1"}

    assert await fetched(f"{server.url}/1") == b"hello"
    with pytest.raises(Permanent, match="without end"):
        await fetched(f"{server.url}/0")
    assert server.asked.count("/a.txt") == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, Permanent), (403, Permanent), (429, Transient), (500, Transient), (204, Permanent)],
)
async def test_a_refusal_says_whether_it_is_for_good(
    server: FileServer, status: int, error: type[Exception]
) -> None:
    server.statuses["/a.txt"] = status
    with pytest.raises(error, match=str(status)):
        await fetched(f"{server.url}/a.txt")


async def test_a_server_that_is_gone_may_come_back() -> None:
    async with FileServer() as server:
        url = server.url
    with pytest.raises(Transient) as gone:
        await fetched(f"{url}/a.txt")
    assert gone.value.code == UNREACHABLE


async def test_a_port_that_swallows_everything_is_not_listened_to_for_long() -> None:
    # The one connection that nobody accepts fills the backlog, so no other can connect.
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as deaf,
        socket.create_connection(deaf.getsockname()),
    ):
        async with asyncio.timeout(10):
            with pytest.raises(Transient) as unheard:
                await fetched(f"http://127.0.0.1:{deaf.getsockname()[1]}/a.txt")
    assert unheard.value.code == UNREACHABLE


async def test_a_server_that_breaks_off_was_reached() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(half, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Transient) as broken:
            await fetched(f"http://127.0.0.1:{port}/a.txt")
    assert broken.value.code != UNREACHABLE


async def test_what_is_sent_packed_is_refused(server: FileServer) -> None:
    server.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(Permanent, match="packed"):
        await fetched(f"{server.url}/a.txt")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "[::1]", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "[::ffff:127.0.0.1]", "[fd00::1]", "[fe80::1]", "0x7f.1",
        "224.0.0.1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "100.64.0.1", "255.255.255.255",
    ],
)  # fmt: skip
async def test_nobody_is_led_into_our_network(server: FileServer, host: str) -> None:
    port = server.url.rpartition(":")[2]

    with pytest.raises(Permanent) as refused:
        await fetched(f"http://{host}:{port}/a.txt", with_private=False)

    assert refused.value.code == "private_address"
    assert server.asked == []


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0177.0.0.1", "127.0.0.1."])
async def test_no_other_way_to_write_it_helps(server: FileServer, host: str) -> None:
    with pytest.raises((Permanent, Transient)):
        await fetched(f"http://{host}:{server.url.rpartition(':')[2]}/a.txt", with_private=False)
    assert server.asked == []


class FirstStepFree(RoutedWeb):
    """Lets the first address pass, as if it were a public one."""

    is_first = True

    def _checked(self, reference: str) -> URL:
        is_first, self.is_first = self.is_first, False
        return URL(reference) if is_first else super()._checked(reference)


async def test_a_redirection_leads_nobody_into_our_network(server: FileServer) -> None:
    server.redirects["/start"] = f"{server.url}/a.txt"

    with pytest.raises(Permanent) as refused:
        _ = [piece async for piece in WebFetcher(FirstStepFree()).fetch(f"{server.url}/start")]

    assert refused.value.code == "private_address"
    assert server.asked == ["/start"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a", "nonsense", "http://"])
async def test_only_the_web_is_fetched_from(url: str) -> None:
    with pytest.raises(Permanent):
        await fetched(url)


def pdf(text: str) -> bytes:
    stream = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    font = b"<< /F1 5 0 R >>"
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font %s >> >>" % font,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(bodies, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(data)
    return data + b"xref\n0 6\n0000000000 65535 f \n" + table + end


def source(data: bytes, mime: str, *, is_voice: bool = False) -> FileSource:
    return FileSource(data=data, mime=mime, name="a", is_voice=is_voice)


async def test_documents_are_read_in_a_process_of_their_own() -> None:
    reader = FileReader()

    assert await reader.read(source(b"plain\n", "text/plain")) == FileReading(text="plain\n")
    read = await reader.read(source(pdf("Beans in May"), PDF))
    assert (read.text, read.problem) == ("Beans in May", "")
    page = await reader.read(source(b"<html><p>Leeks</p>", "text/html"))
    assert page.text == "Leeks"
    old = await reader.read(source("Grüße\n".encode("latin-1"), "text/plain"))
    assert old.text == "Grüße\n"


@pytest.mark.parametrize(
    ("data", "mime", "words"),
    [
        (b"%PDF-1.4 and nothing more", PDF, "damaged"),
        (b"PK\x03\x04", DOCX, "damaged"),
        (pdf(""), PDF, "no text"),
    ],
)
async def test_what_cannot_be_read_is_said(data: bytes, mime: str, words: str) -> None:
    read = await FileReader().read(source(data, mime))
    assert read.text == ""
    assert words in read.problem


async def test_a_document_that_takes_too_long_is_given_up() -> None:
    read = await FileReader(document_s=0.001).read(source(pdf("slow"), PDF))
    assert "longer than 0.001 s" in read.problem


OGG = b"OggS\0\x02" + bytes(22) + b"OpusHead" + bytes(10) + b"OggS\0\x04"
VOICE = OGG + (12 * 48_000).to_bytes(8, "little") + bytes(20)


async def test_without_a_transcriber_that_is_said() -> None:
    read = await FileReader().read(source(VOICE, "audio/ogg", is_voice=True))
    assert read == FileReading(problem="no transcriber is configured", seconds=12)


async def test_a_server_is_asked_what_was_said(server: FileServer) -> None:
    server.hears = " Sow the beans. "
    config = TranscriberConfig(
        url=f"{server.url}/v1", model="small", api_key=Secret("k"), language="en"
    )

    read = await FileReader(transcriber_of(config)).read(source(VOICE, "audio/ogg"))

    assert read == FileReading(text="Sow the beans.", seconds=12)
    (asked,) = server.transcribed
    assert (asked.model, asked.language, asked.name) == ("small", "en", "voice.ogg")
    assert (asked.data, asked.authorization) == (VOICE, "Bearer k")


async def test_a_server_that_fails_leaves_the_voice_not_understood(server: FileServer) -> None:
    server.statuses["/v1/audio/transcriptions"] = 500
    reader = FileReader(transcriber_of(TranscriberConfig(url=f"{server.url}/v1")))

    read = await reader.read(source(VOICE, "audio/ogg"))

    assert read.text == ""
    assert read.problem == "it could not be understood: the transcriber answered with status 500"
    silent = FileReader(transcriber_of(TranscriberConfig(url="http://127.0.0.1:9/v1")))
    assert "cannot be reached" in (await silent.read(source(VOICE, "audio/ogg"))).problem


HEARS = "import sys, pathlib; print(len(pathlib.Path(sys.argv[1]).read_bytes()), 'bytes')"
SLEEPS = "import time; time.sleep(60)"


def program(code: str, *, timeout_s: float = 20.0) -> FileReader:
    command = (sys.executable, "-c", code, "{file}")
    return FileReader(transcriber_of(TranscriberConfig(command=command, timeout_s=timeout_s)))


async def test_a_program_is_asked_what_was_said() -> None:
    read = await program(HEARS).read(source(VOICE, "audio/ogg"))
    assert (read.text, read.seconds) == (f"{len(VOICE)} bytes", 12)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (program("raise SystemExit(3)"), "failed"),
        (program("pass"), "nothing was heard"),
        (program(SLEEPS, timeout_s=0.3), "longer than 0.3 s"),
    ],
)
async def test_a_program_that_fails_leaves_the_voice_not_understood(
    reader: FileReader, words: str
) -> None:
    read = await reader.read(source(VOICE, "audio/ogg"))
    assert read.text == ""
    assert words in read.problem


async def test_a_program_that_is_not_there_is_named() -> None:
    config = TranscriberConfig(command=("no-such-program", "{file}"))
    read = await FileReader(transcriber_of(config)).read(source(VOICE, "audio/ogg"))
    assert "no-such-program cannot be started" in read.problem


async def test_a_program_gets_none_of_our_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    read = await program("import os; print(sorted(os.environ))").read(source(VOICE, "audio/ogg"))
    assert "PATH" in read.text
    assert "OPENAI_API_KEY" not in read.text


def is_alive(status: Path) -> bool:
    try:
        return "zombie" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_program_leaves_nobody_behind(tmp_path: Path) -> None:
    # A program is ended together with all processes that it has started.
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    await program(code, timeout_s=2.0).read(source(VOICE, "audio/ogg"))

    # The signal was sent to the whole process group; the system may take a moment to deliver it.
    status = Path(f"/proc/{note.read_text()}/status")
    async with asyncio.timeout(5):
        while is_alive(status):
            await asyncio.sleep(0.01)
