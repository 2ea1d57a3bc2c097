"""Unpacks what a server sends packed, piece by piece.

A few bytes can stand for gigabytes. So no more is unpacked at once than one piece, and nothing
beyond what the caller takes.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final

from perdure.domain.errors import Permanent, Transient

# What servers are told that we unpack.
ACCEPTED: Final = "gzip, deflate"
PIECE_BYTES: Final = 64 * 1024
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_PLAIN: Final = frozenset({"", "identity"})
# The arguments of zlib for the packings that servers call `deflate`: with a header, or without.
_WITH_HEADER: Final = 15 + 32
_BARE: Final = -15


async def unpacked(pieces: AsyncIterator[bytes], packing: str) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer, unpacked. `packing` is its Content-Encoding. Raises `Permanent`
    for a packing that is not known, and `Transient` if the bytes are damaged."""
    packing = packing.strip().lower()
    if packing in _PLAIN:
        async for piece in pieces:
            yield piece
        return
    if packing not in _GZIP and packing != "deflate":
        raise Permanent(f"its server sends it packed as {packing[:40]!r}, which is not read here")
    unpacker, is_begun = zlib.decompressobj(_WITH_HEADER), False
    async for piece in pieces:
        if not is_begun and packing == "deflate" and piece and piece[0] & 0x0F != 8:
            unpacker = zlib.decompressobj(_BARE)
        is_begun = is_begun or bool(piece)
        rest = piece
        while rest and not unpacker.eof:
            yield _step(unpacker, rest)
            rest = unpacker.unconsumed_tail
    if is_begun and not unpacker.eof:
        raise Transient("its server did not send all of it")


def _step(unpacker: "zlib._Decompress", packed: bytes) -> bytes:
    try:
        return unpacker.decompress(packed, PIECE_BYTES)
    except zlib.error as error:
        raise Transient("what its server sent is packed wrongly") from error
