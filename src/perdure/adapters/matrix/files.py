"""Uploads and downloads files, encrypted or not."""

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from perdure.adapters.matrix.events import SealedFile
from perdure.adapters.matrix.wire import CONNECT_S, REQUEST_S, Wire, segment
from perdure.domain.errors import NotFound, Permanent, Transient
from perdure.ports.records.media import FOR_SENDER

# An encrypted file is decrypted in memory as a whole, because its digest covers all of it.
SEALED_BYTES_MAX: Final = 100_000_000
UPLOAD_BYTES_MAX: Final = 50_000_000
# The slowest upload that is still waited for.
_BYTES_PER_S: Final = 20_000


class _Stored(msgspec.Struct, frozen=True):
    content_uri: str


class _MediaLimits(msgspec.Struct, frozen=True):
    upload_size: int | None = msgspec.field(default=None, name="m.upload.size")


async def upload_bytes_max(wire: Wire) -> int:
    """Return the largest file that may be uploaded, by the server's own limit where it names
    one."""
    try:
        limits = await wire.call("GET", "/_matrix/client/v1/media/config", answer=_MediaLimits)
    except (NotFound, Permanent):
        return UPLOAD_BYTES_MAX  # an older server, which refuses a file that is too large
    return min(limits.upload_size or UPLOAD_BYTES_MAX, SEALED_BYTES_MAX)


async def store(wire: Wire, data: bytes, *, mime: str, name: str) -> str:
    """Upload bytes and return their address. Nobody sees them before a message names the address,
    so a repetition does no harm."""
    total_s = REQUEST_S + len(data) / _BYTES_PER_S
    limits = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S)
    async with wire.request(
        "POST",
        "/_matrix/media/v3/upload",
        data,
        {"Content-Type": mime or "application/octet-stream"},
        {"filename": name} if name else None,
        limits=limits,
    ) as response:
        answer = await response.read()
    try:
        return msgspec.json.decode(answer, type=_Stored).content_uri
    except msgspec.DecodeError as error:
        raise Transient(f"The homeserver does not tell where the file is ({error}).") from error


async def fetch(wire: Wire, reference: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file. `reference` is its address, or, for an encrypted file, its address
    and key as JSON."""
    if not reference.startswith("{"):
        async for piece in _pieces(wire, reference):
            yield piece
        return
    from perdure.adapters.matrix.encryption import open_file  # noqa: PLC0415 - an extra

    sealed = msgspec.json.decode(reference, type=SealedFile)
    yield open_file(await _collected(wire, sealed.url), sealed)


async def _collected(wire: Wire, url: str) -> bytes:
    pieces = bytearray()
    async for piece in _pieces(wire, url):
        pieces += piece
        if len(pieces) > SEALED_BYTES_MAX:
            raise Permanent(
                f"The file has more than {SEALED_BYTES_MAX:,} bytes; send a smaller one.",
                code=FOR_SENDER,
            )
    return bytes(pieces)


async def _pieces(wire: Wire, url: str) -> AsyncIterator[bytes]:
    try:
        async for piece in wire.stream(_media_path(url)):
            yield piece
    except NotFound as error:
        raise Permanent(f"The file is gone ({error.message}); ask for it again.") from error


def _media_path(url: str) -> str:
    """Return the download path of an `mxc` address. Raises `Permanent` if it is none."""
    parts = urlsplit(url)
    media = parts.path.removeprefix("/")
    if parts.scheme != "mxc" or not parts.netloc or not media or "/" in media:
        raise Permanent(f"{url!r} is no file of a homeserver; ask for it to be sent again.")
    return f"/_matrix/client/v1/media/download/{segment(parts.netloc)}/{segment(media)}"
