"""Finds the line of each key in a TOML file.

The standard parser returns values without positions, and a complaint about a configuration needs
its line. This scanner reads a text that the parser has already accepted, so it checks nothing: it
follows headers, keys and values only far enough to know where each key begins. It stops at anything
it cannot follow. A key that it has not seen is reported at the nearest table around it.
"""

import re
import tomllib
from collections.abc import Callable
from typing import Final

KeyPath = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_SCALAR: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|[^,\]}#\n]+",
    re.DOTALL,
)


class Positions:
    """Holds the lines of the keys in one file."""

    def __init__(self, text: str) -> None:
        self._scan = _Scan(text)
        self._scan.run()

    def line(self, path: KeyPath) -> int:
        """Return the line of a key, else of the nearest table around it, else the first line."""
        for length in range(len(path), 0, -1):
            found = self._scan.lines.get(path[:length])
            if found is not None:
                return found
        return 1


class _Lost(Exception):
    """Says that the scanner cannot follow the text. The lines found before stay valid."""


class _Scan:
    """Scans one text, and collects the line of each key."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._counted = (0, 1)
        self._arrays: dict[KeyPath, int] = {}

    def run(self) -> None:
        table: KeyPath = ()
        try:
            while self._next():
                if self._take("["):
                    table = self._header()
                else:
                    self._pair(table)
        except (_Lost, tomllib.TOMLDecodeError):
            return

    def _header(self) -> KeyPath:
        is_array = self._take("[")
        self._next()
        line = self._line()
        path = self._resolve(self._key(), is_array=is_array)
        self._next()
        self._expect("]]" if is_array else "]")
        # A sub-table may come before its table's own header. The header's line then replaces the
        # earlier one.
        self.lines[path] = line
        self._note((), path, line)
        return path

    def _resolve(self, parts: KeyPath, *, is_array: bool) -> KeyPath:
        """Return the path that a header names. Below an array of tables it means the newest
        element."""
        path: KeyPath = ()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        path = (*path, parts[-1])
        if is_array:
            self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, self._arrays[path])
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table + self._key()
        self._note(table, path, line)
        self._next()
        self._expect("=")
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._next()
        if self._take("["):
            index = 0
            while not self._closes("]"):
                self._note(path, (*path, index), self._line())
                self._value((*path, index))
                index += 1
        elif self._take("{"):
            while not self._closes("}"):
                self._pair(path)
        else:
            self._match(_SCALAR.match)

    def _closes(self, mark: str) -> bool:
        self._next()
        if self._take(","):
            self._next()
        return self._take(mark)

    def _note(self, table: KeyPath, path: KeyPath, line: int) -> None:
        """Record the line of a key and of the tables around it, unless they are known."""
        for length in range(len(table) + 1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _key(self) -> KeyPath:
        # The standard parser handles quotes and escapes: `a."b.c"` becomes a, then b.c.
        inner: object = tomllib.loads(self._match(_KEY.match) + " = 0")
        path: KeyPath = ()
        while isinstance(inner, dict):
            [(part, inner)] = inner.items()
            path = (*path, part)
        return path

    def _next(self) -> bool:
        self._match(_BLANK.match)
        return self._at < len(self._text)

    def _take(self, mark: str) -> bool:
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise _Lost

    def _match(self, match: Callable[[str, int], re.Match[str] | None]) -> str:
        found = match(self._text, self._at)
        if found is None:
            raise _Lost
        self._at = found.end()
        return found.group()

    def _line(self) -> int:
        """Return the current line. Only the text since the last call is counted."""
        start, line = self._counted
        self._counted = (self._at, line + self._text.count("\n", start, self._at))
        return self._counted[1]
