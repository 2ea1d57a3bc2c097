"""Reads request bodies within bounds.

A body that is small on the wire may become large: it can be compressed, nested, or full of escapes.
Each step here takes linear time, stops at a bound, and yields to the event loop between slices, so
no request waits for the body of another.
"""

import asyncio
import re
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec
from aiohttp import hdrs, web

from perdure.domain.errors import Rejected

# Schemas of tools nest deepest, and none of them reaches a third of this.
NESTING_MAX: Final = 100
SLICE_BYTES: Final = 256 * 1024
# Lists and objects that a body may hold. A body of three bytes each would take thirty times its
# size once it is decoded, and hold up the event loop for a second.
CONTAINERS_MAX: Final = 250_000
# All bytes but those that open a list or an object, or begin or end a string.
_ORDINARY: Final = bytes(set(range(256)) - set(b'[{"'))
_STRING: Final = re.compile(rb'"[^"]*"')
# What zlib calls each coding. Zero: a deflated body may come with or without zlib's header.
_WINDOWS: Final = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": 0}
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# One escaped surrogate without its other half. The lookaround patterns have a fixed length, which
# Python requires and which keeps the search linear.
_LONE: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!" + _LOW + rb")"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!" + _HIGH + _LOW + rb"))"
)
_PAIR: Final = re.compile(_HIGH + _LOW)
_ESCAPE_BYTES: Final = 6


async def bytes_of(request: web.Request) -> bytes:
    """Return the request's body, decompressed, and never decompress more than a body may have.
    Raises `Rejected` for an unknown or broken encoding."""
    raw = await request.read()
    coding = request.headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
    if coding in ("", "identity"):
        return raw
    if coding not in _WINDOWS:
        raise Rejected(
            f"bodies packed as {coding[:40]!r} are not taken; send gzip, deflate, or as it is",
            code="unsupported_encoding",
        )
    return await _unpacked(raw, coding, bytes_max=request.client_max_size)


async def _unpacked(raw: bytes, coding: str, *, bytes_max: int) -> bytes:
    window = _WINDOWS[coding] or (zlib.MAX_WBITS if raw[:1] == b"\x78" else -zlib.MAX_WBITS)
    unpacking, data, left = zlib.decompressobj(window), bytearray(), raw
    try:
        while left and not unpacking.eof:
            data += unpacking.decompress(left, SLICE_BYTES)
            if len(data) > bytes_max:
                raise web.HTTPRequestEntityTooLarge(bytes_max, len(data))
            left = unpacking.unconsumed_tail
            await asyncio.sleep(0)  # noqa: TID251 - no wait, only a step aside
    except zlib.error as error:
        raise _not_packed() from error
    if not unpacking.eof:
        raise _not_packed()
    return bytes(data)


def _not_packed() -> Rejected:
    return Rejected(
        "the body cannot be read; is it packed as Content-Encoding says?", code="malformed_body"
    )


async def json_of(request: web.Request) -> bytes:
    """Return the request's body as JSON that a decoder accepts; see `whole_characters`."""
    pieces = []
    for piece in _whole(await bytes_of(request)):
        pieces.append(piece)
        if len(piece) >= SLICE_BYTES:
            await asyncio.sleep(0)  # noqa: TID251 - no wait, only a step aside
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def whole_characters(raw: bytes) -> bytes:
    """Replace each escaped lone surrogate of a JSON text by U+FFFD. Clients cut texts in the middle
    of an emoji, and no decoder accepts what is left."""
    return b"".join(_whole(raw))


def _whole(raw: bytes) -> Iterator[bytes]:
    if b"\\ud" not in raw and b"\\uD" not in raw:
        yield raw
        return
    # Spell escaped backslashes differently, so that from here on each backslash begins an escape.
    raw = raw.replace(b"\\\\", b"\\u005c")
    start = 0
    while start < len(raw):
        end = _cut(raw, start + SLICE_BYTES)
        yield _LONE.sub(rb"\\ufffd", raw[start:end])
        start = end


def _cut(raw: bytes, place: int) -> int:
    """Return the next position that splits neither an escape nor a surrogate pair."""
    found = raw.find(b"\\", place)
    if found < 0:
        return len(raw)
    return found - _ESCAPE_BYTES if _PAIR.match(raw, found - _ESCAPE_BYTES) else found


def insist_on_small(raw: bytes) -> None:
    """Raise `Rejected` if a body holds so many lists and objects that decoding it would hold up
    everybody. The body need not be valid JSON."""
    if raw.count(b"[") + raw.count(b"{") <= CONTAINERS_MAX:
        return
    # A text may hold as many brackets, and it is no trouble. So what stands in strings is not
    # counted: first the escaped quotes go, then everything between two quotes.
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _ORDINARY)
    count = len(_STRING.sub(b"", bare))
    if count > CONTAINERS_MAX:
        raise Rejected(
            f"the body holds {count:,} lists and objects; {CONTAINERS_MAX:,} are taken",
            code="invalid_body",
        )


def insist_on_shallow(value: object) -> None:
    """Raise `Rejected` if a value is nested so deeply that encoding it later could fail."""
    level = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner for each in level for inner in _inside(each) if not isinstance(inner, str | int)
        ]
        if not level:
            return
    raise too_deep()


def too_deep() -> Rejected:
    """Return the error for a body that is nested too deeply."""
    return Rejected(
        f"the body is nested too deeply; {NESTING_MAX} levels are taken", code="invalid_body"
    )


def _inside(value: object) -> Iterator[object]:
    match value:
        case dict():
            return iter(value.values())
        case list() | tuple():
            return iter(value)
        case msgspec.Struct():
            return iter([getattr(value, name) for name in value.__struct_fields__])
        case _:
            return iter(())
