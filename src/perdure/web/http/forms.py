"""Parses forms as browsers and curl send them: `multipart/form-data` (RFC 7578).

The whole body is in memory already, so the delimiters are searched in it. That takes time linear in
the body's size, whatever is between them.
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
    """Holds one part of a form. `filename` is None if the part is not a file, and `mime` is empty
    if the part does not declare one."""

    filename: str | None
    mime: str
    data: bytes


def boundary_of(content_type: str) -> str:
    """Return the boundary that a Content-Type names, or an empty string."""
    _, _, rest = content_type.partition(";")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "boundary":
            return value.strip().strip('"')
    return ""


def parts_of(body: bytes, boundary: str) -> list[_FormPart]:
    """Split a form into its parts. Raises `Rejected` if it has no end or too many parts."""
    if not 0 < len(boundary) <= _BOUNDARY_MAX:
        raise unfit("its Content-Type names no boundary")
    parts: list[_FormPart] = []
    for piece in _pieces(body, b"--" + boundary.encode("utf-8", "replace")):
        if len(parts) == PARTS_MAX:
            raise unfit(f"it has more than {PARTS_MAX} parts")
        parts.append(_part(piece))
    return parts


def _pieces(body: bytes, delimiter: bytes) -> Iterator[bytes]:
    """Yield the bytes between the delimiters. Each delimiter begins a line."""
    place = 0 if body.startswith(delimiter) else _after(body, b"\r\n" + delimiter, 0)
    place += len(delimiter) if place == 0 else 0
    while body[place : place + 2] != b"--":
        start = _after(body, b"\r\n", place)
        if body[place : start - 2].strip(b" \t"):
            raise unfit("its boundary stands inside a part")
        # Search from the line break of the delimiter's own line: in an empty part it also begins
        # the next delimiter.
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
    """Return the error for a form that cannot be read."""
    return Rejected(f"the form cannot be read: {why}", code="malformed_body")
