"""Prepares files for the wires: images as base64, all other files as a line of text."""

from base64 import b64encode

from perdure.domain.journal.attachments import PICTURES, in_words
from perdure.domain.prompt.prompt import MediaBlock


def picture(block: MediaBlock) -> tuple[str, str] | None:
    """Return the MIME type and base64 data of an image that the model can see, or None."""
    mime = block.attachment.mime.partition(";")[0].strip().lower()
    if not block.data or mime not in PICTURES:
        return None
    return mime, b64encode(block.data).decode()


def label(block: MediaBlock) -> str:
    """Return the text that stands for a file that the model cannot see."""
    return in_words(block.attachment)
