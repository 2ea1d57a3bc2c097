"""Writes down what a server has answered, for the model and for the people."""

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.domain.text import harmless_line, without_disguise
from perdure.ports.turns.tools import ToolFile
from perdure.tools.mcp.link import (
    FilePiece,
    ListedResource,
    Piece,
    PointerPiece,
    ServerAnswer,
    WordsPiece,
)
from perdure.tools.tool import ToolOutput

FILES_MAX: Final = 20
_NAME_MAX: Final = 100
_LINE_MAX: Final = 300
# Above this, a text that comes beside structured content is taken to say the same: to compare
# them would make everybody wait.
_COMPARED_MAX: Final = 1_000_000
_ENDINGS: Final = {
    "application/json": "json", "application/pdf": "pdf", "audio/mpeg": "mp3", "audio/ogg": "ogg",
    "audio/wav": "wav", "image/gif": "gif", "image/jpeg": "jpg", "image/png": "png",
    "image/svg+xml": "svg", "image/webp": "webp", "text/csv": "csv", "text/html": "html",
    "text/markdown": "md", "text/plain": "txt", "video/mp4": "mp4",
}  # fmt: skip


def output_of(answer: ServerAnswer) -> ToolOutput:
    """Return an answer as the output of a tool: its words, its files, and what it points to."""
    found = [each for each in answer.pieces if isinstance(each, FilePiece)]
    files = _files(found[:FILES_MAX])
    parts = [text for piece in answer.pieces if (text := _words(piece))]
    if answer.structured and not _is_said(answer.structured, answer.pieces):
        parts.append(answer.structured)
    if len(found) > FILES_MAX:
        parts.append(f"({len(found) - FILES_MAX} more files of the answer were left out.)")
    if not parts:
        parts = [_nothing(has_failed=answer.has_failed, files=files)]
    return ToolOutput(text="\n\n".join(parts), files=files, has_failed=answer.has_failed)


def resource_line(resource: ListedResource) -> str:
    """Describe a resource in one line."""
    name = harmless_line(resource.name[:_LINE_MAX])
    mime = harmless_line(resource.mime[:_NAME_MAX])
    told = harmless_line(resource.description[:_LINE_MAX])
    uri = "".join(char for char in resource.uri[: 2 * _LINE_MAX] if char.isprintable())
    kind = ", a template of addresses" if resource.is_template else ""
    about = ", ".join(each for each in (name, mime) if each)
    return f"{uri}{f' ({about}{kind})' if about or kind else ''}{f': {told}' if told else ''}"


def _words(piece: Piece) -> str:
    """Return what a piece says to the model, or an empty string."""
    match piece:
        case WordsPiece(text=text, uri=uri):
            head = f"Content of {_shown_uri(uri)}:\n" if uri else ""
            return f"{head}{text}" if text else ""
        case PointerPiece(resource=resource):
            return f"Resource {resource_line(resource)}"
        case FilePiece():
            return ""


def _shown_uri(uri: str) -> str:
    return without_disguise(harmless_line(uri[:_LINE_MAX]))


def _nothing(*, has_failed: bool, files: Sequence[ToolFile]) -> str:
    """Return what is said where an answer has no words."""
    if has_failed:
        return "The tool has failed, and does not say why."
    if files:
        names = ", ".join(each.name for each in files)
        return f"The tool has returned {len(files)} file{'s' * (len(files) > 1)}: {names}."
    return "The tool has ended, and says nothing."


def _files(pieces: Sequence[FilePiece]) -> tuple[ToolFile, ...]:
    """Return files with names that differ."""
    return tuple(
        ToolFile(name=name, mime=piece.mime, data=piece.data)
        for name, piece in zip(_names(pieces), pieces, strict=True)
    )


def _names(pieces: Sequence[FilePiece]) -> Iterator[str]:
    taken: set[str] = set()
    for number, piece in enumerate(pieces, start=1):
        name = _name(piece, number)
        if name in taken:
            name = f"{number}-{name}"
        taken.add(name)
        yield name


def _name(piece: FilePiece, number: int) -> str:
    """Return a name for a file: its own, or the last part of its address, or what it is."""
    own = piece.name or _last_part(piece.uri)
    plain = harmless_line(own[-_NAME_MAX:].replace("\\", "/").rpartition("/")[2]).lstrip(".")
    if plain:
        return plain
    kind = piece.mime.partition("/")[0]
    what = {"image": "picture", "audio": "sound", "video": "video"}.get(kind, "file")
    ending = _ENDINGS.get(piece.mime.partition(";")[0].strip().lower(), "bin")
    return f"{what}-{number}.{ending}"


def _last_part(uri: str) -> str:
    try:
        return urlsplit(uri[:_LINE_MAX]).path.rpartition("/")[2]
    except ValueError:
        return ""


def _is_said(structured: str, pieces: Sequence[Piece]) -> bool:
    """Tell whether one of the texts of an answer is the structured content, as servers write it for
    clients that know no such content."""
    texts = [each.text for each in pieces if isinstance(each, WordsPiece)]
    if structured in texts:
        return True
    if len(structured) + sum(map(len, texts)) > _COMPARED_MAX:
        return any(texts)
    meant = _value(structured)
    return any(text.lstrip()[:1] in ("{", "[") and _value(text) == meant for text in texts)


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
