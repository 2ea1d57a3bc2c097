"""A request's body as pieces: the long ones are sent as they are, the short ones together.

History can be a megabyte, and each copy of it costs more than the rest of a turn.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec

# Longer pieces are cut, so that writing one does not hold up the loop.
_PIECE_BYTES_MAX: Final = 256 * 1024
_PIECE_BYTES_MIN: Final = 16 * 1024
_json: Final = msgspec.json.Encoder().encode


def separated(items: Sequence[bytes]) -> Iterator[bytes]:
    """The items with commas between, without the empty ones."""
    is_first = True
    for item in filter(None, items):
        if not is_first:
            yield b","
        is_first = False
        yield item


def members(options: msgspec.Struct) -> bytes:
    """What is set in it, as members of the object that a request is, each behind a comma."""
    inside = _json(options)[1:-1]
    return b"," + inside if inside else b""


def raw(text: str) -> msgspec.Raw | msgspec.UnsetType:
    """JSON text as it is, and nothing where there is none."""
    return msgspec.Raw(text.encode()) if text else msgspec.UNSET


async def written(pieces: Sequence[bytes]) -> AsyncIterator[bytes | memoryview]:
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
