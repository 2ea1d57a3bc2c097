"""What kind of file some bytes are.

The bytes themselves decide: a name may be wrong and a platform guesses by the name. Only where they
do not tell (all text looks alike) do the name and the platform have a say.
"""

import re
from collections.abc import Mapping
from typing import Final

HEAD_BYTES: Final = 4096
UNKNOWN: Final = "application/octet-stream"
PLAIN: Final = "text/plain"
PDF: Final = "application/pdf"
ZIP: Final = "application/zip"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
DOCX: Final = f"{_OFFICE}.wordprocessingml.document"
XLSX: Final = f"{_OFFICE}.spreadsheetml.sheet"
PPTX: Final = f"{_OFFICE}.presentationml.presentation"
ODT: Final = "application/vnd.oasis.opendocument.text"
ODS: Final = "application/vnd.oasis.opendocument.spreadsheet"
ODP: Final = "application/vnd.oasis.opendocument.presentation"
PACKED: Final = frozenset({DOCX, XLSX, PPTX, ODT, ODS, ODP})

_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
)
_BRANDS: Final[Mapping[bytes, str]] = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"avif": "image/avif",
    b"qt  ": "video/quicktime",
}
_RIFF: Final[Mapping[bytes, str]] = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_BY_NAME: Final[Mapping[str, str]] = {
    "docx": DOCX,
    "xlsx": XLSX,
    "pptx": PPTX,
    "odt": ODT,
    "ods": ODS,
    "odp": ODP,
    "html": "text/html",
    "htm": "text/html",
    "xhtml": "text/html",
    "csv": "text/csv",
    "md": "text/markdown",
    "json": "application/json",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
_WRITTEN: Final = frozenset(
    {
        "application/json", "application/xml", "application/yaml", "application/toml",
        "application/javascript", "application/sql", "application/x-sh", "image/svg+xml",
    }
)  # fmt: skip
_PROPER: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*\Z")
_HTML: Final = re.compile(rb"\s*(<!doctype html|<html[\s>])", re.IGNORECASE)


def kind_of(head: bytes, *, name: str = "", declared: str = "") -> str:
    """The media type of a file that begins with these bytes."""
    said = bare(declared)
    found = _by_bytes(head)
    if found == ZIP:
        named = _by_name(name)
        return next((each for each in (said, named) if each in PACKED), ZIP)
    if found in ("video/webm", "audio/ogg", "video/mp4"):
        # One container holds sound or pictures; whoever recorded it knows.
        other = {"video/webm": "audio/webm", "audio/ogg": "video/ogg", "video/mp4": "audio/mp4"}
        return said if said == other[found] else found
    if found:
        return found
    if is_text(head):
        return _kind_of_text(head, name, said)
    # A picture that does not begin like one would be refused with the whole request.
    is_doubtful = not _PROPER.match(said) or said.startswith(("image/", "text/"))
    return UNKNOWN if is_doubtful or said in _WRITTEN or said == PDF else said


def bare(mime: str) -> str:
    """Without parameters, in small letters."""
    return mime.partition(";")[0].strip().lower()


def is_written(mime: str) -> bool:
    """Do its bytes spell text?"""
    return mime.startswith("text/") or mime in _WRITTEN or mime.endswith(("+json", "+xml"))


def is_text(head: bytes) -> bool:
    """UTF-8, possibly cut within a letter, without control codes that text does not have."""
    if not head or any(byte < 32 and byte not in b"\t\n\r\f\x1b\b" for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) >= HEAD_BYTES and error.start >= len(head) - 3
    return True


def _by_bytes(head: bytes) -> str:
    for beginning, mime in _BEGINNINGS:
        if head.startswith(beginning):
            return mime
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    is_frame = len(head) > 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    is_layer_3 = is_frame and head[1] & 0x06 == 0x02 and head[2] & 0xF0 != 0xF0
    return "audio/mpeg" if is_layer_3 else ""


def _by_name(name: str) -> str:
    return _BY_NAME.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def _kind_of_text(head: bytes, name: str, said: str) -> str:
    if _HTML.match(head):
        return "text/html"
    if is_written(said) and said != PLAIN and _PROPER.match(said):
        return said
    named = _by_name(name)
    return named if is_written(named) else PLAIN
