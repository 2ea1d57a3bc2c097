"""Finds out of which kind (media type) a file is.

The bytes themselves decide: a file's name may be wrong, and platforms guess by the name. The name
and the platform are asked only where the bytes do not tell, because all text looks alike.
"""

import re
from collections.abc import Mapping
from typing import Final

from perdure.domain.reading.encodings import decoded_in, may_be_text, wide_encoding

# How much of the beginning of a file is looked at.
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
# Office documents. Their bytes look like any other ZIP archive.
PACKED: Final = frozenset({DOCX, XLSX, PPTX, ODT, ODS, ODP})

_BEGINNINGS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "image/jp2"),
    (b"\xff\x4f\xff\x51", "image/jp2"),
    (b"\0\0\x01\0", "image/x-icon"),
    (b"%PDF-", PDF),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
)
# Kinds of an `ftyp` container by its brand; every other brand is taken for video.
_BRANDS: Final[Mapping[bytes, str]] = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"heim": "image/heic",
    b"heis": "image/heic",
    b"hevc": "image/heic",
    b"hevx": "image/heic",
    b"msf1": "image/heif",
    b"mif1": "image/heif",
    b"avif": "image/avif",
    b"avis": "image/avif",
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
# Further endings of the names of text files.
_TEXTS: Final = frozenset(
    {
        "txt", "text", "log", "ini", "cfg", "conf", "srt", "vtt", "tsv", "tex", "rst", "nfo", "asc",
        "properties", "diff", "patch", "py", "js", "ts", "c", "h", "cpp", "java", "cs", "go", "rs",
        "sh", "bat", "ps1", "sql", "php", "rb", "pl", "css", "eml", "ics", "vcf",
    }
)  # fmt: skip
# Text whose media type does not begin with `text/`.
_WRITTEN: Final = frozenset(
    {
        "application/json", "application/xml", "application/yaml", "application/toml",
        "application/javascript", "application/sql", "application/x-sh", "image/svg+xml",
    }
)  # fmt: skip
# Matches a media type that is formed correctly.
_PROPER: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*\Z")
_HTML: Final = re.compile(rb"\s*(<!doctype html|<html[\s>])", re.IGNORECASE)


def kind_of(head: bytes, *, name: str = "", declared: str = "") -> str:
    """Return the media type of a file that begins with these bytes. `name` is the file's name, and
    `declared` the media type that its sender or platform states."""
    said = bare_type(declared)
    found = _by_bytes(head)
    if found == ZIP:
        named = _by_name(name)
        return next((each for each in (said, named) if each in PACKED), ZIP)
    if found in ("video/webm", "audio/ogg", "video/mp4"):
        # These containers can hold sound or video, so what was declared decides.
        other = {"video/webm": "audio/webm", "audio/ogg": "video/ogg", "video/mp4": "audio/mp4"}
        return said if said == other[found] else found
    if found:
        return found
    wide = wide_encoding(head)
    if wide:
        return _kind_of_text(decoded_in(head, wide).encode("utf-8", "replace"), name, said)
    is_said = is_written(said) or is_written(_by_name(name)) or _ending(name) in _TEXTS
    if is_text(head) or may_be_text(head, is_said=is_said):
        return _kind_of_text(head, name, said)
    # A picture or text whose bytes do not look like one is not believed: a false picture would make
    # the model's server refuse the whole request.
    is_doubtful = not _PROPER.match(said) or said.startswith(("image/", "text/"))
    return UNKNOWN if is_doubtful or said in _WRITTEN or said == PDF else said


def bare_type(mime: str) -> str:
    """Return a media type without parameters, in lower case."""
    return mime.partition(";")[0].strip().lower()


def is_written(mime: str) -> bool:
    """Tell whether the bytes of such a file are text."""
    return mime.startswith("text/") or mime in _WRITTEN or mime.endswith(("+json", "+xml"))


def is_readable(mime: str) -> bool:
    """Tell whether there is a way to find out the text of such a file. For sound that takes a
    transcriber, and for PDF a library."""
    return is_written(mime) or mime in PACKED or mime == PDF or is_sound(mime)


def is_sound(mime: str) -> bool:
    return mime.startswith("audio/")


def is_text(head: bytes) -> bool:
    """Tell whether these bytes are UTF-8 without control codes that text does not have. A head of
    full length may end inside a character."""
    if not head or any(byte < 32 and byte not in b"\t\n\r\f\x1b\b" for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) >= HEAD_BYTES and error.start >= len(head) - 3
    return True


def _by_bytes(head: bytes) -> str:
    """Return the media type that the bytes show, or an empty string."""
    for beginning, mime in _BEGINNINGS:
        if head.startswith(beginning):
            return mime
    if head.startswith(b"BM") and len(head) > 14 and head[6:10] == bytes(4):
        return "image/bmp"  # the four zeros tell it from a text that begins with these letters
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    # An MP3 file without tags begins with a frame of MPEG audio, layer 3.
    is_frame = len(head) > 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    is_layer_3 = is_frame and head[1] & 0x06 == 0x02 and head[2] & 0xF0 != 0xF0
    return "audio/mpeg" if is_layer_3 else ""


def _by_name(name: str) -> str:
    """Return the media type that the ending of a file's name stands for, or an empty string."""
    return _BY_NAME.get(_ending(name), "")


def _ending(name: str) -> str:
    """Return the ending of a file's name in lower case, or an empty string."""
    return name.rpartition(".")[2].lower() if "." in name else ""


def _kind_of_text(head: bytes, name: str, said: str) -> str:
    if _HTML.match(head):
        return "text/html"
    if is_written(said) and said != PLAIN and _PROPER.match(said):
        return said
    named = _by_name(name)
    return named if is_written(named) else PLAIN
