"""Checks that a node reads the certificate authorities of the system late, but in time."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.testkit.processes.certificates import (
    can_make_certificates,
    made_certificate,
    server_context,
)

# What a gateway does: it imports, and later asks servers, some of them over TLS.
PROGRAM = """
import asyncio, importlib, os, ssl, sys
from perdure.app import light_start
light_start.import_aiohttp()
import aiohttp
from aiohttp import connector
from perdure.app.network.outgoing import RoutedOutgoing

print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()))

async def main(urls):
    async with RoutedOutgoing().session() as session:
        for url in urls:
            try:
                async with session.get(url) as response:
                    print(response.status)
            except aiohttp.ClientConnectorCertificateError:
                print("not trusted")

loop, *urls = sys.argv[1:]
known = os.environ["SSL_CERT_FILE"]
with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
    runner.run(main(urls))
assert type(connector._SSL_CONTEXT_VERIFIED) is ssl.SSLContext
assert len(ssl.create_default_context().get_ca_certs()) == 1

late = light_start.LateContext(ssl.PROTOCOL_TLS_CLIENT)
for file, kind in (("missing.pem", light_start.LateContext), (known, ssl.SSLContext)):
    os.environ["SSL_CERT_FILE"] = file
    late.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert type(late) is kind
"""
DEADLINE_S = 30

pytestmark = pytest.mark.skipif(not can_make_certificates(), reason="openssl cannot be had here")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _serving(certificate: Path) -> AsyncIterator[str]:
    context = server_context(certificate)
    async with await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_authorities_of_the_system_are_read_before_the_first_connection_over_tls(
    tmp_path: Path, loop: str
) -> None:
    pytest.importorskip(loop)
    known, unknown = (
        made_certificate(tmp_path / name, ["IP:127.0.0.1"]) for name in ("known.pem", "other.pem")
    )
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    async with _serving(known) as trusted, _serving(unknown) as doubtful:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, loop, trusted, doubtful, trusted),
            env={**os.environ, "SSL_CERT_FILE": str(known), "SSL_CERT_DIR": str(nowhere)},
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate()

    assert process.returncode == 0
    assert said.decode().splitlines() == ["0", "200", "not trusted", "200"]
