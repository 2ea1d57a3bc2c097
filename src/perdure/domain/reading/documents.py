"""One door for everything that can be read without help from outside."""

from perdure.domain.reading.kinds import PACKED, PDF, is_written
from perdure.domain.reading.office import in_archive
from perdure.domain.reading.texts import in_html, written


def is_readable(mime: str) -> bool:
    """Is there any way to find out what such a file says? Of sound, somebody must be asked."""
    return is_written(mime) or mime in PACKED or mime == PDF or is_sound(mime)


def is_sound(mime: str) -> bool:
    return mime.startswith("audio/")


def text_of(data: bytes, mime: str) -> str:
    """The text of a document; PDF takes a library, and is read elsewhere. Raises `Unreadable`."""
    if mime in PACKED:
        return in_archive(data, mime)
    return in_html(data) if mime == "text/html" else written(data)
