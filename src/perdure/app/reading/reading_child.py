"""Reads one document in a process of its own, and prints its text as JSON; or makes a picture fit.

Files come from strangers, and the libraries that read them are large. A document that takes all
memory or never ends takes only this process with it. The document is on standard input. Its media
type is the first argument, and the address of a page the second one.
"""

import contextlib
import io
import os
import resource
import sys
from typing import Final

import msgspec

from perdure.domain.reading.documents import text_of
from perdure.domain.reading.kinds import PACKED, PDF
from perdure.domain.reading.pictures import is_picture
from perdure.domain.reading.texts import Collector, FileReading, UnreadableFile

MEMORY_BYTES: Final = 1_000_000_000
CPU_S: Final = 60
# A lower priority than the gateway's own, however much there is to read.
NICENESS: Final = 5
PAGES_MAX: Final = 2_000
NO_TEXT: Final = "it holds no text that can be read, only pictures perhaps"


def in_pdf(data: bytes) -> str:
    """Return the text of a PDF's pages. Raises `UnreadableFile`."""
    from pypdf import PdfReader  # noqa: PLC0415 - takes a while
    from pypdf.errors import PyPdfError  # noqa: PLC0415 - takes a while

    found = Collector()
    try:
        document = PdfReader(io.BytesIO(data))
        if document.is_encrypted and not document.decrypt(""):
            raise UnreadableFile("it is locked with a password; send it without")
        for page in document.pages[:PAGES_MAX]:
            found.add(page.extract_text() + "\n\n")
            if found.is_full:
                break
    except PyPdfError as error:
        raise UnreadableFile("the document is damaged") from error
    return found.text()


def in_text(data: bytes, mime: str, address: str) -> str:
    """Return the text of a text file or a page. Its encoding is guessed if nothing shows it."""
    from perdure.app.reading.text_guessing import guessed_encoding  # noqa: PLC0415 - takes a while

    return text_of(data, mime, guessed_encoding(data), address=address)


def fitted_picture(data: bytes) -> bytes:
    """Return a picture as models take it. Raises `UnreadableFile`."""
    from perdure.app.reading.picture_fitting import fitted  # noqa: PLC0415 - takes a while

    return fitted(data)


def reading_of(data: bytes, mime: str, address: str = "") -> FileReading:
    """Return the text of a document, or a picture that fits, or in words why there is none."""
    try:
        if is_picture(mime):
            return FileReading(picture=fitted_picture(data))
        if mime == PDF:
            text = in_pdf(data)
        else:
            text = text_of(data, mime) if mime in PACKED else in_text(data, mime, address)
    except UnreadableFile as error:
        return FileReading(problem=str(error))
    return FileReading(text=text, problem="" if text.strip() else NO_TEXT)


def main() -> None:
    """Limit this process, then read the document. A system that refuses the limits is no reason to
    stop."""
    with contextlib.suppress(ValueError, OSError):
        os.nice(NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    reading = reading_of(sys.stdin.buffer.read(), *sys.argv[1:])
    sys.stdout.buffer.write(msgspec.json.encode(reading))


if __name__ == "__main__":
    main()
