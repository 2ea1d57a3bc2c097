"""Searches the text of files below a folder for plain words, up to several bounds.

A file is read in pieces, so a large one takes time but no memory. A line is found once, however
often it holds the words.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

import msgspec

from perdure.domain.errors import PerdureError
from perdure.domain.tools.globs import is_match
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.decoding import (
    CHUNK,
    ReadingDeadline,
    ReadingStopped,
    decoded_texts,
    encoding_for,
    head_of,
)
from perdure.tools.builtin.files.opening import is_folder, opened_child, opened_file, opened_folder
from perdure.tools.builtin.files.roots import RootedPath
from perdure.tools.builtin.files.walking import SearchBudget, walked_files


class FileQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a search looks for: lines that hold `words`, capital or small letters alike, in
    files whose names match the glob `names`. Without words, the files themselves are sought. The
    first `offset` hits are left out, and then `count` are shown."""

    words: str = ""
    names: str = ""
    offset: int = 0
    count: int = 0

    def has_name(self, path: RootedPath, top: RootedPath) -> bool:
        """Tell whether a file's name matches. A glob with `/` is about the path below the root, or
        below the folder that is searched."""
        if not self.names or "/" not in self.names:
            return not self.names or is_match(self.names, path.name)
        # `**/` also stands for no folder at all, as people expect.
        globs = {self.names, self.names.replace("/**/", "/"), self.names.removeprefix("**/")}
        inner = "/".join(path.parts[len(top.parts) :])
        return any(is_match(glob, text) for glob in globs for text in (path.below, inner))


def search_files(
    path: RootedPath, sought: FileQuery, *, bounds: FilesBounds, deadline: ReadingDeadline
) -> str:
    """Return the lines, or the files, that are found in a file or below a folder."""
    search = _Search(sought, SearchBudget(bounds, deadline), path)
    with _searched(path, search.budget) as files:
        search.look_into_all(files)
    return search.told()


@contextmanager
def _searched(path: RootedPath, budget: SearchBudget) -> Iterator[Iterator[tuple[int, RootedPath]]]:
    """Open what is searched: all files below a folder, or one file."""
    if not path.parts:
        with opened_folder(path) as top, closing(walked_files(top, path, budget)) as files:
            yield files
        return
    with opened_folder(path.upward()) as above:
        if is_folder(above, path):
            with (
                opened_child(above, path) as folder,
                closing(walked_files(folder, path, budget)) as files,
            ):
                yield files
            return
        with opened_file(above, path):
            yield iter([(above, path)])


class _Search:
    """Collects what is found."""

    def __init__(self, sought: FileQuery, budget: SearchBudget, top: RootedPath) -> None:
        self.budget = budget
        self._sought = sought
        self._words = sought.words.casefold() if sought.words.strip() else ""
        self._top = top
        self._found: list[str] = []
        self._seen = 0  # how many hits there were, with those before the page
        self._bytes = 0
        self._binaries = 0
        self._unreadable = 0
        self._is_stopped = False
        self._has_more = False

    def look_into_all(self, files: Iterable[tuple[int, RootedPath]]) -> None:
        """Search files until the page is full, or a bound is reached."""
        try:
            for folder, path in files:
                self._look_into(folder, path)
        except ReadingStopped:
            self._is_stopped = True

    def _look_into(self, folder: int, path: RootedPath) -> None:
        if not self._sought.has_name(path, self._top):
            return
        if not self._words:
            self._add(path.shown)
            return
        self.budget.open_file()
        try:
            with opened_file(folder, path) as file:
                self._read(file, path)
        except PerdureError:
            self._unreadable += 1

    def _read(self, file: int, path: RootedPath) -> None:
        head = head_of(file)
        encoding = encoding_for(head)
        if not encoding:
            self._binaries += 1
            return
        lines = _FoundLines(self._words)
        texts = decoded_texts(file, head, encoding, self.budget.deadline, count=self.budget.spend)
        for text in texts:
            self._add_lines(path, lines.take(text))
        self._add_lines(path, lines.end())

    def _add_lines(self, path: RootedPath, lines: Iterator[tuple[int, str]]) -> None:
        for number, line in lines:
            around = _around(line, self._words, self.budget.bounds.hit_chars)
            self._add(f"{path.shown}:{number}: {around}")

    def _add(self, hit: str) -> None:
        """Add a hit. The one after the page is only counted: it shows that there are more."""
        self._seen += 1
        if self._seen <= self._sought.offset:
            return
        self._bytes += len(hit.encode("utf-8", "replace")) + 1
        is_full = len(self._found) == self._sought.count
        if is_full or (self._found and self._bytes > self.budget.bounds.page_bytes):
            self._has_more = True
            raise ReadingStopped
        self._found.append(hit)

    def told(self) -> str:
        """Return what was found, and what was left out."""
        return "\n".join([*(self._found or [self._nothing()]), *self._notes()])

    def _nothing(self) -> str:
        what = "line" if self._words else "file"
        if self._seen:
            return f"[only {self._seen:,} hits, so none after {self._sought.offset:,}]"
        return f"[no {what} found; try fewer words, other names, or another folder]"

    def _notes(self) -> Iterator[str]:
        if self._has_more:
            last = self._sought.offset + len(self._found)
            yield f"[there are more hits; search with offset {last} for them]"
        elif self._is_stopped:
            why = self.budget.why or f"{self.budget.bounds.seconds:g} seconds are over"
            yield f"[the search stopped early: {why}; search a folder below, or give names]"
        if self._binaries:
            yield f"[files that were not searched because they are binary: {self._binaries:,}]"
        if self._unreadable:
            yield f"[files that could not be opened: {self._unreadable:,}]"
        if self.budget.has_left_out:
            yield "[folders that are too deep, too large or not readable were left out]"


class _FoundLines:
    """Finds the lines that hold some words in a text that comes in pieces."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._tail = ""  # the present line, or the end of it if it is very long
        self._number = 1
        self._is_found = False  # the present line is found already

    def take(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the found lines that end in this piece, with their numbers."""
        text = self._tail + text
        end = text.rfind("\n") + 1
        whole, self._tail = text[:end], text[end:]
        yield from self._whole_lines(whole)
        if len(self._tail) > CHUNK:
            yield from self._look(self._tail)
            # The words may have begun in what is dropped.
            self._tail = self._tail[-len(self._words) :]

    def end(self) -> Iterator[tuple[int, str]]:
        """Yield the last line, if it is found."""
        yield from self._look(self._tail)

    def _whole_lines(self, text: str) -> Iterator[tuple[int, str]]:
        if not text:
            return
        is_worth_it = self._is_found or self._words in text.casefold()
        for line in text.split("\n")[:-1] if is_worth_it else ():
            yield from self._look(line)
            self._number += 1
            self._is_found = False
        if not is_worth_it:
            self._number += text.count("\n")

    def _look(self, line: str) -> Iterator[tuple[int, str]]:
        if not self._is_found and self._words in line.casefold():
            self._is_found = True
            yield self._number, line


def _around(line: str, words: str, chars: int) -> str:
    """Return a line, or the part of a long one around the words."""
    line = line.removesuffix("\r")
    if len(line) <= chars:
        return line
    start = max(line.casefold().find(words) - chars // 3, 0)
    end = start + chars
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
