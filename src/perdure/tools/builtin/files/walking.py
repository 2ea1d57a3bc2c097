"""Walks over the files below a folder, in a fixed order, up to the bounds of one search."""

from collections.abc import Generator
from contextlib import ExitStack

from perdure.domain.errors import PerdureError
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.decoding import ReadingDeadline, ReadingStopped
from perdure.tools.builtin.files.opening import FolderEntry, folder_entries, opened_child
from perdure.tools.builtin.files.roots import RootedPath, is_sayable


class SearchBudget:
    """Counts what one search uses. Raises `ReadingStopped` when one of its bounds is reached, and
    `why` then says which."""

    def __init__(self, bounds: FilesBounds, deadline: ReadingDeadline) -> None:
        self.bounds = bounds
        self.deadline = deadline
        self.why = ""
        self.has_left_out = False  # something below was not looked at
        self._entries = 0
        self._files = 0
        self._bytes = 0

    def meet_entry(self) -> None:
        """Count an entry of a folder."""
        self._entries += 1
        if self._entries > 10 * self.bounds.searched_files:
            self._stop(f"{self._entries - 1:,} entries were seen")
        if self.deadline.is_over:
            self._stop(f"{self.bounds.seconds:g} seconds are over")

    def open_file(self) -> None:
        """Count a file that is opened."""
        self._files += 1
        if self._files > self.bounds.searched_files:
            self._stop(f"{self._files - 1:,} files were searched")

    def spend(self, size: int) -> None:
        """Count bytes that were read."""
        self._bytes += size
        if self._bytes > self.bounds.searched_bytes:
            self._stop(f"{self.bounds.searched_bytes:,} bytes were read")

    def _stop(self, why: str) -> None:
        self.why = why
        raise ReadingStopped


def walked_files(
    folder: int, path: RootedPath, budget: SearchBudget
) -> Generator[tuple[int, RootedPath], None, None]:
    """Yield each file below an open folder with the descriptor of the folder that holds it, which
    is open only until the next one. Links, what is no file, and what a rule denies are left
    out."""
    entries, is_more = folder_entries(folder, limit=budget.bounds.folder_entries)
    budget.has_left_out |= is_more
    for entry in sorted(entries, key=_last_hidden):
        budget.meet_entry()
        here = path.child(entry.name)
        if not is_sayable(entry.name) or budget.bounds.is_hidden(here):
            budget.has_left_out = True
        elif entry.kind == "file":
            yield folder, here
        elif entry.kind == "folder":
            yield from _walked_child(folder, here, budget)


def _walked_child(
    folder: int, path: RootedPath, budget: SearchBudget
) -> Generator[tuple[int, RootedPath], None, None]:
    """Yield the files below a folder that stands in an open one. One that cannot be opened, or
    stands too deep, is left out."""
    if len(path.parts) > budget.bounds.searched_depth:
        budget.has_left_out = True
        return
    with ExitStack() as opened:
        try:
            child = opened.enter_context(opened_child(folder, path))
        except PerdureError:
            budget.has_left_out = True
            return
        yield from walked_files(child, path, budget)


def _last_hidden(entry: FolderEntry) -> tuple[bool, bool, str]:
    """Return the key that puts files before folders, and what programs hide for themselves at the
    end: it is often large, and seldom what is sought."""
    return entry.name.startswith("."), entry.kind == "folder", entry.name
