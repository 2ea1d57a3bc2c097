"""The files that an event brings. Pure."""

from hashlib import sha256
from typing import Final

import msgspec

from perdure.adapters.matrix.events import STICKER, FileFacts, MatrixEvent, MessageContent, decoded
from perdure.domain.content.stickers import Sticker
from perdure.domain.inbound.arrivals import FileReference
from perdure.domain.journal.attachments import PICTURES

_FILES: Final = frozenset({"m.image", "m.file", "m.audio", "m.video"})


def has_file(event: MatrixEvent, content: MessageContent) -> bool:
    """Say whether an event brings a file, without looking at what is told of it."""
    is_of_files = content.msgtype in _FILES or event.type == STICKER
    return is_of_files and bool(content.url or content.file)


def files_of(event: MatrixEvent, content: MessageContent) -> tuple[FileReference, ...]:
    """Return the file of an event, or nothing."""
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
    """A sticker is known by the address of its bytes, which never change there. What opens sealed
    bytes is part of the id: who has only the address is not told what they show."""
    is_sealed = content.file is not None
    picture, mime = reference, facts.mimetype
    if mime and mime not in PICTURES:
        # A sticker that moves may be of a kind that no model sees.
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
