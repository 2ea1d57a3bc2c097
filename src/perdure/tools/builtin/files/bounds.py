"""Defines how much one call of `files` may read, write and show."""

from typing import Final

import msgspec

from perdure.domain.tools.diffs import DiffBounds
from perdure.domain.tools.globs import is_match
from perdure.tools.builtin.files.roots import RootedPath


class FilesBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits what one call does. `exact_bytes` are read at once for a program that writes them
    back. `text_bytes` and `text_lines` limit a file that is written or edited, and the new text.
    `folder_entries` are those of one folder, `searched_*` the sums of one search, and `seconds` the
    time that reading or searching may take. `hidden` are globs of the paths that no search looks
    at, because a rule denies them."""

    page_bytes: int = 64 * 1024
    exact_bytes: int = 2_000_000
    line_chars: int = 16_000
    text_bytes: int = 5_000_000
    text_lines: int = 250_000
    diff: DiffBounds = DiffBounds()
    listed: int = 200
    folder_entries: int = 20_000
    hits: int = 50
    hit_chars: int = 300
    searched_files: int = 10_000
    searched_bytes: int = 256_000_000
    searched_depth: int = 32
    seconds: float = 10.0
    hidden: tuple[str, ...] = ()

    def is_hidden(self, path: RootedPath) -> bool:
        """Tell whether a search must not look at this path."""
        spellings = (path.absolute, path.below)
        return any(is_match(glob, each) for glob in self.hidden for each in spellings)


DEFAULT_BOUNDS: Final = FilesBounds()
