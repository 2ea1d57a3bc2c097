"""Tells from the bytes of a picture whether models take it as it is.

Only the head of a picture is looked at, so that a picture that fits costs nothing. Whatever is too
large, in another format, turned by its camera or moving is made to fit in a process of its own
(`app/reading/picture_fitting.py`). A picture whose head cannot be understood is left as it is.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from perdure.domain.reading.kinds import HEAD_BYTES, bare_type, kind_of

# What is larger is made smaller. Providers refuse sides of more than 8,000 points, and of more than
# 2,000 if there are many pictures; beyond that they make pictures smaller themselves. With so many
# bytes, twenty pictures fit into one request.
SIDE_MAX: Final = 2_000
BYTES_MAX: Final = 1_000_000
# Pictures of other formats, which are made into one that models take.
FOREIGN: Final = frozenset(
    {
        "image/heic", "image/heif", "image/avif", "image/tiff", "image/bmp", "image/jp2",
        "image/x-icon",
    }
)  # fmt: skip
_UPRIGHT: Final = 1
# The blocks of a GIF: an extension, and a frame.
_FRAME: Final = 0x2C
_GIF_BLOCKS: Final = (0x21, _FRAME)


class PictureHead(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the head of a picture says. `is_plain`: it neither moves nor is it turned, and has
    the colours of a screen."""

    width: int
    height: int
    is_plain: bool = True


def is_picture(mime: str) -> bool:
    """Tell whether such a file can be made to fit, if it does not fit already."""
    return mime in _HEADS or mime in FOREIGN


def fits(data: bytes, mime: str) -> bool:
    """Tell whether models take this picture as it is."""
    if mime in FOREIGN or len(data) > BYTES_MAX:
        return False
    head = head_of(data, mime)
    return head is None or (head.is_plain and max(head.width, head.height) <= SIDE_MAX)


def needs_fitting(data: bytes, declared: str) -> bool:
    """Tell whether a file is a picture that models do not take as it is, or another kind of picture
    than its sender says."""
    kind = kind_of(data[:HEAD_BYTES], declared=declared)
    return is_picture(kind) and (kind != bare_type(declared) or not fits(data, kind))


def head_of(data: bytes, mime: str) -> PictureHead | None:
    """Return what the head of a picture says, or None if it says nothing that is understood."""
    read = _HEADS.get(mime)
    try:
        head = read(data) if read else None
    except IndexError:
        return None
    return head if head and head.width and head.height else None


def _number(data: bytes, at: int, size: int = 2) -> int:
    """Return a number with the highest byte first. Raises `IndexError` beyond the end."""
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "big")


def _number_from_low(data: bytes, at: int, size: int = 2) -> int:
    """Return a number with the lowest byte first. Raises `IndexError` beyond the end."""
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "little")


def _png(data: bytes) -> PictureHead:
    # A moving PNG says so before its first picture, and so does one that is turned.
    before = data[: data.find(b"IDAT")]
    is_plain = b"acTL" not in before and b"eXIf" not in before
    return PictureHead(width=_number(data, 16, 4), height=_number(data, 20, 4), is_plain=is_plain)


def _gif(data: bytes) -> PictureHead:
    """Count the frames, up to the second one."""
    at, frames = 13 + _table_bytes(_number(data, 10, 1)), 0
    while frames < 2 and (kind := _number(data, at, 1)) in _GIF_BLOCKS:
        if kind == _FRAME:
            frames += 1
            at += 10 + _table_bytes(_number(data, at + 9, 1)) + 1
        else:
            at += 2
        while size := _number(data, at, 1):
            at += size + 1
        at += 1
    width, height = _number_from_low(data, 6), _number_from_low(data, 8)
    return PictureHead(width=width, height=height, is_plain=frames < 2)


def _table_bytes(flags: int) -> int:
    """Return the size of a colour table of a GIF, by the flags before it."""
    return 3 * 2 ** (flags % 8 + 1) if flags & 0x80 else 0


def _webp(data: bytes) -> PictureHead | None:
    form = data[12:16]
    if form == b"VP8X":
        flags = data[20]
        is_plain = not flags & 0b0000_1010  # it moves, or it has EXIF data
        width, height = _number_from_low(data, 24, 3) + 1, _number_from_low(data, 27, 3) + 1
        return PictureHead(width=width, height=height, is_plain=is_plain)
    if form == b"VP8L":
        bits = _number_from_low(data, 21, 4)
        return PictureHead(width=(bits & 0x3FFF) + 1, height=(bits >> 14 & 0x3FFF) + 1)
    if form == b"VP8 ":
        width, height = _number_from_low(data, 26), _number_from_low(data, 28)
        return PictureHead(width=width & 0x3FFF, height=height & 0x3FFF)
    return None


def _jpeg(data: bytes) -> PictureHead | None:
    """Walk through the segments up to the one that states the size."""
    at, is_upright = 2, True
    while _number(data, at, 1) == 0xFF:
        kind = _number(data, at + 1, 1)
        if kind == 0xFF:  # bytes may be filled up
            at += 1
            continue
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            colours = _number(data, at + 9, 1)
            return PictureHead(
                height=_number(data, at + 5),
                width=_number(data, at + 7),
                is_plain=is_upright and colours in (1, 3),
            )
        size = _number(data, at + 2)
        if kind == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
            is_upright = _turn_in(data[at + 10 : at + 2 + size]) == _UPRIGHT
        at += 2 + size
    return None


def _turn_in(exif: bytes) -> int:
    """Return how EXIF data says that a picture must be turned; 1 if it need not be."""
    number = _number_from_low if exif[:2] == b"II" else _number
    try:
        at = number(exif, 4, 4)
        for entry in range(number(exif, at)):
            if number(exif, at + 2 + 12 * entry) == 0x0112:
                return number(exif, at + 10 + 12 * entry) or _UPRIGHT
    except IndexError:
        pass
    return _UPRIGHT


_HEADS: Final[Mapping[str, Callable[[bytes], PictureHead | None]]] = {
    "image/png": _png,
    "image/gif": _gif,
    "image/webp": _webp,
    "image/jpeg": _jpeg,
}
