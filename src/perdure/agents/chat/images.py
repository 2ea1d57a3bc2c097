"""Files as the wires take them: pictures as base64, everything else by name."""

from base64 import b64encode
from typing import Final

from perdure.domain.prompt import MediaBlock

# What both makers' models can see; other kinds are refused with the whole request.
_SEEN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def picture(block: MediaBlock) -> tuple[str, str] | None:
    """The kind and the base64 text of a picture that the model can see."""
    mime = block.attachment.mime.partition(";")[0].strip().lower()
    if not block.data or mime not in _SEEN:
        return None
    return mime, b64encode(block.data).decode()


def label(block: MediaBlock) -> str:
    """The file in words. Its address stays out: a platform's may carry the bot's token."""
    attachment = block.attachment
    kind = f" ({attachment.mime})" if attachment.mime else ""
    return f"[attached file: {attachment.name or 'without a name'}{kind}]"
