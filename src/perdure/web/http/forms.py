"""Forms as browsers and curl send them: `multipart/form-data` (RFC 7578), taken apart.

The whole body is there already, so the delimiters are looked for in it: that takes as long as the
body is, whatever stands between them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from aiohttp import content_disposition_filename, parse_content_disposition

from perdure.domain.errors import Rejected

PARTS_MAX: Final = 100
HEAD_BYTES_MAX: Final = 8_192
FORM: Final = "multipart/form-data"
_BOUNDARY_MAX: Final = 70


class _FormPart(NamedTuple):
    """`filename` is None where the part is no file, `mime` empty where it does not say."""

    filename: str | None
    mime: str
    data: bytes


def boundary_of(content_type: str) -> str:
    """The boundary that a Content-Type names; empty where it names none."""
    _, _, rest = content_type.partition(";")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "boundary":
            return value.strip().strip('"')
    return ""


def parts_of(body: bytes, boundary: str) -> list[_FormPart]:
    """Take a form apart. Raises `Rejected` where it has no end, or too many parts."""
    if not 0 < len(boundary) <= _BOUNDARY_MAX:
        raise unfit("its Content-Type names no boundary")
    parts: list[_FormPart] = []
    for piece in _pieces(body, b"--" + boundary.encode("utf-8", "replace")):
        if len(parts) == PARTS_MAX:
            raise unfit(f"it has more than {PARTS_MAX} parts")
        parts.append(_part(piece))
    return parts


def _pieces(body: bytes, delimiter: bytes) -> Iterator[bytes]:
    """What stands between the delimiters, each of which begins a line."""
    place = 0 if body.startswith(delimiter) else _after(body, b"\r\n" + delimiter, 0)
    place += len(delimiter) if place == 0 else 0
    while body[place : place + 2] != b"--":
        start = _after(body, b"\r\n", place)
        if body[place : start - 2].strip(b" \t"):
            raise unfit("its boundary stands inside a part")
        # A part without headers and data ends with the line that began it.
        place = _after(body, b"\r\n" + delimiter, start - 2)
        yield body[start : place - len(delimiter) - 2]


def _after(body: bytes, wanted: bytes, start: int) -> int:
    found = body.find(wanted, start)
    if found < 0:
        raise unfit("it has no end, or another boundary than its Content-Type says")
    return found + len(wanted)


def _part(piece: bytes) -> _FormPart:
    end = piece.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if piece.startswith(b"\r\n"):
        return _FormPart(None, "", piece[2:])
    if end < 0:
        raise unfit("one of its parts has no end of its headers, or too many of them")
    headers: dict[str, str] = {}
    for line in piece[:end].decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    _, parameters = parse_content_disposition(headers.get("content-disposition"))
    mime = headers.get("content-type", "").partition(";")[0].strip()
    if mime.lower().startswith("multipart/"):
        raise unfit("it has a form within")
    return _FormPart(content_disposition_filename(parameters), mime, piece[end + 4 :])


def unfit(why: str) -> Rejected:
    return Rejected(f"the form cannot be read: {why}", code="malformed_body")
