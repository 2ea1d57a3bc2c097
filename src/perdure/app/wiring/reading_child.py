"""Reads one document in a process of its own, and prints what it says as JSON.

Documents come from strangers, and the ways to read them are large: one that takes for ever or all
memory takes this process along and nothing else. The document is standard input, its media type
the only argument.
"""

import contextlib
import io
import os
import resource
import sys
from typing import Final

import msgspec

from perdure.domain.reading.documents import text_of
from perdure.domain.reading.kinds import PDF
from perdure.domain.reading.texts import Collector, FileReading, UnreadableFile

MEMORY_BYTES: Final = 1_000_000_000
CPU_S: Final = 60
# The gateway itself comes first, however much there is to read.
NICENESS: Final = 5
PAGES_MAX: Final = 2_000
NO_TEXT: Final = "it holds no text that can be read, only pictures perhaps"


def in_pdf(data: bytes) -> str:
    """The text of each page. Raises `UnreadableFile`."""
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - an extra
        from pypdf.errors import PyPdfError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnreadableFile(
            "PDF files cannot be read here; the operator installs that with "
            "pip install 'perdure[documents]'"
        ) from error
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


def reading_of(data: bytes, mime: str) -> FileReading:
    try:
        text = in_pdf(data) if mime == PDF else text_of(data, mime)
    except UnreadableFile as error:
        return FileReading(problem=str(error))
    return FileReading(text=text, problem="" if text.strip() else NO_TEXT)


def main() -> None:
    with contextlib.suppress(ValueError, OSError):
        os.nice(NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    reading = reading_of(sys.stdin.buffer.read(), sys.argv[1])
    sys.stdout.buffer.write(msgspec.json.encode(reading))


if __name__ == "__main__":
    main()
