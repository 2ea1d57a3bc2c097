"""Files as the wires take them: pictures as base64, everything else in words."""

from base64 import b64encode

from perdure.domain.journal.attachments import PICTURES, in_words
from perdure.domain.prompt.prompt import MediaBlock


def picture(block: MediaBlock) -> tuple[str, str] | None:
    """The kind and the base64 text of a picture that the model can see."""
    mime = block.attachment.mime.partition(";")[0].strip().lower()
    if not block.data or mime not in PICTURES:
        return None
    return mime, b64encode(block.data).decode()


def label(block: MediaBlock) -> str:
    return in_words(block.attachment)
