"""Reads which file an event brings. Pure."""

from hashlib import sha256
from typing import Final

import msgspec

from perdure.adapters.matrix.events import STICKER, FileFacts, MatrixEvent, MessageContent, decoded
from perdure.domain.content.stickers import Sticker
from perdure.domain.inbound.arrivals import FileReference
from perdure.domain.journal.attachments import PICTURES

_FILES: Final = frozenset({"m.image", "m.file", "m.audio", "m.video"})


def has_file(event: MatrixEvent, content: MessageContent) -> bool:
    """Tell whether an event brings a file, without reading the file's details."""
    is_of_files = content.msgtype in _FILES or event.type == STICKER
    return is_of_files and bool(content.url or content.file)


def files_of(event: MatrixEvent, content: MessageContent) -> tuple[FileReference, ...]:
    """Return the file of an event, or an empty tuple."""
    if not has_file(event, content):
        return ()
    reference = content.url or ""
    if content.file is not None:
        reference = msgspec.json.encode(content.file).decode()
    facts = decoded(content.info, FileFacts) or FileFacts()
    if event.type == STICKER:
        return (_sticker(content, reference, facts),)
    return (
        FileReference(
            reference=reference,
            mime=facts.mimetype,
            name=content.filename or content.body,
            size=max(facts.size, 0),
            is_voice=bool(bytes(content.voice)),
        ),
    )


def _sticker(content: MessageContent, reference: str, facts: FileFacts) -> FileReference:
    """Return the file of a sticker. Its id is the address of its bytes, which never change. For an
    encrypted one the id covers the key as well, so somebody who knows only the address learns
    nothing about its content."""
    is_sealed = content.file is not None
    picture, mime = reference, facts.mimetype
    if mime and mime not in PICTURES:
        # An animated sticker may have a type that no model can see, so its thumbnail is used.
        picture, mime = facts.thumbnail_url, ""
    return FileReference(
        reference=picture,
        mime=mime,
        name=f"sticker {content.body}".rstrip(),
        size=max(facts.size, 0) if picture == reference else 0,
        sticker=Sticker(
            id=sha256(reference.encode()).hexdigest() if is_sealed else reference,
            name=content.body,
        ),
    )
