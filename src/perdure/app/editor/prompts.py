"""Makes a message of what is sent from an editor: its text, and the files that come with it."""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import msgspec

from perdure.app.editor.shapes import BlockGiven, ResourceGiven
from perdure.domain.errors import Rejected

_TICKS: Final = re.compile("`+")
_UNKNOWN: Final = "application/octet-stream"


class FileGiven(msgspec.Struct, frozen=True):
    """Holds a file that came with a message."""

    data: bytes
    mime: str
    name: str


class MessageGiven(msgspec.Struct, frozen=True):
    text: str
    files: tuple[FileGiven, ...]


def message_of(blocks: Iterable[BlockGiven]) -> MessageGiven:
    """Return the message that a prompt holds. Pieces of text follow each other as they were typed,
    with the names of files between them; what the files hold comes below. Raises `Rejected` for a
    piece that cannot be read."""
    typed, below, files = list[str](), list[str](), list[FileGiven]()
    for block in blocks:
        match block:
            case BlockGiven(type="text"):
                typed.append(block.text)
            case BlockGiven(type="resource_link", uri=str(uri)):
                typed.append(f"[{block.name or _last(uri)}]({uri})")
            case BlockGiven(type="resource", resource=ResourceGiven(text=str(text)) as given):
                typed.append(f"[{_last(given.uri)}]({given.uri})")
                below.append(f"{given.uri}\n{_fenced(text)}")
            case BlockGiven(type="resource", resource=ResourceGiven(blob=str(blob)) as given):
                files.append(_file(blob, given.mime_type, _last(given.uri)))
            case BlockGiven(type="image" | "audio"):
                files.append(_file(block.data, block.mime_type, _last(block.uri or "")))
            case _:
                raise Rejected(f"a prompt of an editor holds a piece of type {block.type!r}")
    return MessageGiven("\n\n".join(["".join(typed), *below]), tuple(files))


def _last(uri: str) -> str:
    """Return the last part of an address, which names the file."""
    return unquote(uri.rstrip("/").rpartition("/")[2])


def _fenced(text: str) -> str:
    """Return a text as a block of code that it cannot end."""
    fence = "`" * max(3, *(len(run) + 1 for run in _TICKS.findall(text)), 0)
    return f"{fence}\n{text}\n{fence}"


def _file(encoded: str, mime: str | None, name: str) -> FileGiven:
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise Rejected(f"the file {name or mime} is not in base64: {error}") from error
    return FileGiven(data, mime or _UNKNOWN, name)
