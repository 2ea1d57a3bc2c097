"""Fills the bytes of pictures into requests."""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId
from perdure.domain.journal.events import Attachment
from perdure.domain.prompt.old_pictures import is_shown
from perdure.domain.prompt.prompt import MediaBlock, PromptMessage
from perdure.domain.reading.kinds import HEAD_BYTES, kind_of
from perdure.ports.records.media import MediaLibrary

# A larger picture is only named. It was stored by a Perdure that made no picture smaller.
IMAGE_BYTES_MAX: Final = 8 * 1024 * 1024


async def with_pictures(
    messages: Sequence[PromptMessage], library: MediaLibrary
) -> list[PromptMessage]:
    """Fill in the bytes of pictures. Other files are told in words."""
    filled = []
    for message in messages:
        if not any(isinstance(block, MediaBlock) for block in message.blocks):
            filled.append(message)
            continue
        blocks = [
            await _filled(block, library) if isinstance(block, MediaBlock) else block
            for block in message.blocks
        ]
        filled.append(msgspec.structs.replace(message, blocks=tuple(blocks)))
    return filled


async def _filled(block: MediaBlock, library: MediaLibrary) -> MediaBlock:
    """Return the block with its picture, or as it was if that is missing or too large."""
    attachment = block.attachment
    if not is_shown(attachment):
        return block
    try:
        data = await _bytes_of(attachment, library)
    except NotFound:
        return block
    if len(data) > IMAGE_BYTES_MAX:
        return block
    if attachment.shown:
        mime = kind_of(data[:HEAD_BYTES])
        attachment = msgspec.structs.replace(attachment, mime=mime)
    return MediaBlock(attachment=attachment, data=data)


async def _bytes_of(attachment: Attachment, library: MediaLibrary) -> bytes:
    """Return the bytes that a model is shown. Raises `NotFound`."""
    if attachment.shown:
        return await library.read_kept(attachment.shown)
    assert attachment.media is not None
    return await library.read(MediaId(attachment.media))
