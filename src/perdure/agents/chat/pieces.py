"""Arranges a request's body in pieces: long ones are sent as they are, short ones together.

The history can be a megabyte, and each copy of it costs more than the rest of a turn.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec

# Longer pieces are cut, so that writing one does not block the event loop for long.
_PIECE_BYTES_MAX: Final = 256 * 1024
# Shorter pieces are joined, since copying them is cheap.
_PIECE_BYTES_MIN: Final = 16 * 1024
_json: Final = msgspec.json.Encoder().encode


def separated(items: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the items with commas between them, without the empty ones."""
    is_first = True
    for item in filter(None, items):
        if not is_first:
            yield b","
        is_first = False
        yield item


def members(options: msgspec.Struct) -> bytes:
    """Return the set options as members of a JSON object, with a comma in front."""
    inside = _json(options)[1:-1]
    return b"," + inside if inside else b""


def raw(text: str) -> msgspec.Raw | msgspec.UnsetType:
    """Return JSON text to be inserted as it is, or UNSET if there is none."""
    return msgspec.Raw(text.encode()) if text else msgspec.UNSET


async def written(pieces: Sequence[bytes]) -> AsyncIterator[bytes | memoryview]:
    """Yield the body in pieces of a good size for writing."""
    short: list[bytes] = []
    for piece in pieces:
        if len(piece) < _PIECE_BYTES_MIN:
            short.append(piece)
            continue
        if short:
            yield b"".join(short)
            short.clear()
        if len(piece) <= _PIECE_BYTES_MAX:
            yield piece
            continue
        view = memoryview(piece)
        for start in range(0, len(piece), _PIECE_BYTES_MAX):
            yield view[start : start + _PIECE_BYTES_MAX]
    yield b"".join(short)
