"""Returns the text of every kind of document that can be read without a library or a service from
outside."""

from perdure.domain.reading.kinds import PACKED
from perdure.domain.reading.office import in_archive
from perdure.domain.reading.pages import in_html
from perdure.domain.reading.texts import decoded_text


def text_of(data: bytes, mime: str, encoding: str = "", *, address: str = "") -> str:
    """Return the text of a document. PDF is not handled here, because it takes a library. `address`
    is that of a page. Raises `UnreadableFile`."""
    if mime in PACKED:
        return in_archive(data, mime)
    if mime == "text/html":
        return in_html(data, encoding, address=address)
    return decoded_text(data, encoding)
