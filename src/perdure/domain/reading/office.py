"""Extracts the text of office documents, which are ZIP archives of XML.

They come from strangers. So only the files that hold text are unpacked, the unpacked size is
limited, and a document type declaration makes a document unreadable: honest documents have none,
and XML bombs need one.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from xml.parsers import expat

from perdure.domain.reading.kinds import DOCX, ODP, ODS, ODT, PPTX, XLSX
from perdure.domain.reading.texts import Collector, UnreadableFile

# How many bytes of one document are unpacked in all, and how many texts its cells may share.
UNPACKED_MAX: Final = 64_000_000
STRINGS_MAX: Final = 200_000
_CHUNK: Final = 64 * 1024
_ODF: Final = (ODT, ODS, ODP)
Attributes = dict[str, str]


def in_archive(data: bytes, mime: str) -> str:
    """Return the text of an office document of this media type. Raises `UnreadableFile`."""
    found = Collector()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _read(_PackedDocument(archive), mime, found)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, KeyError, ValueError) as error:
        raise UnreadableFile("the document is damaged") from error
    except (NotImplementedError, RuntimeError) as error:  # an unknown packing, or a password
        raise UnreadableFile("it is locked, or packed in an unknown way") from error
    except expat.ExpatError as error:
        raise UnreadableFile("the document is damaged") from error
    return found.text()


def _read(archive: "_PackedDocument", mime: str, found: Collector) -> None:
    if mime in _ODF:
        _walk(archive, ["content.xml"], _Flow(found, _ODF_LINES, _ODF_CELLS))
    elif mime == DOCX:
        _walk(archive, ["word/document.xml"], _Flow(found, _WORD_LINES, {}, within="t"))
    elif mime == PPTX:
        slides = archive.numbered("ppt/slides/slide")
        _walk(archive, slides, _Flow(found, {"p": "\n", "sld": "\n"}, {}, within="t"))
    elif mime == XLSX:
        _read_sheets(archive, found)
    else:
        raise UnreadableFile(f"nobody here can read {mime}")


class _PackedDocument:
    """Unpacks files of a document, up to a limit for all of them together."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = UNPACKED_MAX

    def has(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def numbered(self, prefix: str) -> list[str]:
        """Return the files with this prefix and a number, such as `slide1.xml`, by their
        numbers."""
        names = [name for name in self._archive.namelist() if name.startswith(prefix)]
        numbered = [(digits, name) for name in names if (digits := _digits(name))]
        return [name for _, name in sorted((int(digits), name) for digits, name in numbered)]

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield an unpacked file in pieces. Raises `UnreadableFile` beyond the limit."""
        with self._archive.open(name) as file:
            while chunk := file.read(_CHUNK):
                self._left -= len(chunk)
                if self._left < 0:
                    raise UnreadableFile("it is too large once it is unpacked")
                yield chunk


def _digits(name: str) -> str:
    """Return the digits that a name has before `.xml`, or an empty string."""
    stem = name.removesuffix(".xml")
    digits = stem[len(stem.rstrip("0123456789")) :]
    return digits if stem != name else ""


class _Flow:
    """Collects the text of a document in its order. `lines` and `cells` say what is added at the
    end of which element: a new line, or a tab after a cell. With `within`, only text inside
    elements of that name counts."""

    def __init__(
        self, found: Collector, lines: dict[str, str], cells: dict[str, str], *, within: str = ""
    ) -> None:
        self.found = found
        self._ends = lines
        self._cells = cells
        self._within = within
        self._depth = 0
        self._rows = 0

    def start(self, tag: str, attributes: Attributes) -> None:
        self._depth += tag == self._within
        self._rows += tag in self._cells
        if tag in ("tab", "br", "line-break", "s"):
            self.found.add({"tab": "\t", "s": " "}.get(tag, "\n"))

    def end(self, tag: str) -> None:
        self._depth -= tag == self._within
        if tag in self._cells:
            self._rows -= 1
            self.found.add(self._cells[tag])
        elif tag in self._ends:
            # A paragraph inside a cell must not end the row.
            self.found.add(" " if self._rows else self._ends[tag])

    def text(self, text: str) -> None:
        if not self._within or self._depth:
            self.found.add(text)


_WORD_LINES: Final = {"p": "\n"}
_ODF_LINES: Final = {"p": "\n", "h": "\n", "table": "\n", "page": "\n"}
_ODF_CELLS: Final = {"table-cell": "\t", "table-row": "\n"}


class _Strings:
    """Collects the texts that the cells of a workbook share; cells refer to them by number. `found`
    stays empty: `_walk` asks it whether there is enough text."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.found = Collector()
        self._pieces: list[str] = []
        self._is_text = False

    def start(self, tag: str, attributes: Attributes) -> None:
        self._is_text = tag == "t"

    def end(self, tag: str) -> None:
        self._is_text = False
        if tag == "si":
            if len(self.known) >= STRINGS_MAX:
                raise UnreadableFile("it holds too many cells")
            self.known.append("".join(self._pieces))
            self._pieces = []

    def text(self, text: str) -> None:
        if self._is_text:
            self._pieces.append(text)


class _Sheet:
    """Collects the cells of one sheet, row by row."""

    def __init__(self, found: Collector, known: Sequence[str]) -> None:
        self.found = found
        self._known = known
        self._is_shared = False
        self._is_value = False
        self._value = ""

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "c":
            self._is_shared, self._value = attributes.get("t") == "s", ""
        self._is_value = tag in ("v", "t")

    def end(self, tag: str) -> None:
        self._is_value = False
        if tag == "c":
            self.found.add(self._shown() + "\t")
        elif tag == "row":
            self.found.add("\n")

    def text(self, text: str) -> None:
        if self._is_value:
            self._value += text

    def _shown(self) -> str:
        """Return the text of a cell. It is empty if the cell refers to a shared text that does not
        exist."""
        if not self._is_shared:
            return self._value
        is_known = self._value.isdigit() and int(self._value) < len(self._known)
        return self._known[int(self._value)] if is_known else ""


def _read_sheets(archive: _PackedDocument, found: Collector) -> None:
    strings = _Strings()
    if archive.has("xl/sharedStrings.xml"):
        _walk(archive, ["xl/sharedStrings.xml"], strings)
    for number, name in enumerate(archive.numbered("xl/worksheets/sheet"), start=1):
        found.add(f"Sheet {number}:\n")
        _walk(archive, [name], _Sheet(found, strings.known))
        found.add("\n")


def _walk(archive: _PackedDocument, names: Sequence[str], flow: _Flow | _Strings | _Sheet) -> None:
    """Let a collector read some files of a document, until it has enough text."""
    for name in names:
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse
        parser.StartElementHandler = _local_start(flow.start)
        parser.EndElementHandler = _local_end(flow.end)
        parser.CharacterDataHandler = flow.text
        for chunk in archive.chunks(name):
            if flow.found.is_full:
                return
            parser.Parse(chunk, False)  # noqa: FBT003 - expat takes it by position
        parser.Parse(b"", True)  # noqa: FBT003 - expat takes it by position


def _refuse(*_declaration: object) -> None:
    raise UnreadableFile("it declares a document type, which honest documents do not")


def _local_start(start: Callable[[str, Attributes], None]) -> Callable[[str, Attributes], None]:
    """Wrap a function so that it gets the names of elements without their namespace."""
    return lambda name, attributes: start(name.rpartition("}")[2], attributes)


def _local_end(end: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a function so that it gets the names of elements without their namespace."""
    return lambda name: end(name.rpartition("}")[2])
