"""Reads the changes of files out of what people are shown, so that an editor can show them in its
own way."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_FENCE: Final = re.compile(r"(`{3,})diff")
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")
_NOWHERE: Final = "/dev/null"
_NO_BREAK: Final = "\\"
# Ends a line of which only the beginning is shown.
_CUT: Final = " more characters cut]"


class FileEdit(msgspec.Struct, frozen=True):
    """Holds what becomes of a stretch of a file. A file that is new has no old text."""

    path: str
    old: str | None
    new: str


def edits_in(text: str) -> tuple[FileEdit, ...]:
    """Return the changes that a text shows as blocks of unified diffs. What is not shown whole is
    left out: an editor would show it as if that were all."""
    return tuple(edit for block in _blocks(text) for edit in _edits(block))


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each block of code that is marked as a diff."""
    fence, held = "", list[str]()
    for line in text.split("\n"):
        if not fence:
            begun = _FENCE.fullmatch(line)
            fence, held = begun[1] if begun else "", []
        elif line == fence:
            yield held
            fence = ""
        else:
            held.append(line)


def _edits(lines: Sequence[str]) -> Iterator[FileEdit]:
    old_name = name = ""
    at = 0
    while at < len(lines):
        heading = _HUNK.fullmatch(lines[at])
        if heading and name:
            counts = (int(heading[1] or 1), int(heading[2] or 1))
            edit, at = _hunk(lines, at + 1, counts, name, is_new=old_name == _NOWHERE)
            if edit is not None:
                yield edit
            continue
        if lines[at].startswith("--- ") and lines[at + 1 : at + 2] and _is_new_name(lines[at + 1]):
            old_name, name = lines[at][4:], lines[at + 1][4:]
            name = old_name if name == _NOWHERE else name
            at += 1
        at += 1


def _is_new_name(line: str) -> bool:
    return line.startswith("+++ ")


def _hunk(
    lines: Sequence[str], at: int, counts: tuple[int, int], name: str, *, is_new: bool
) -> tuple[FileEdit | None, int]:
    """Return the change of one hunk, or None if it is cut short, and where the next one begins."""
    left_old, left_new = counts
    old, new = list[str](), list[str]()
    is_whole = True
    while (left_old > 0 or left_new > 0) and at < len(lines):
        mark, text = lines[at][:1], lines[at][1:]
        if mark not in {" ", "-", "+"}:
            return None, at
        is_whole = is_whole and not text.endswith(_CUT)
        has_break = lines[at + 1 : at + 2] == [] or not lines[at + 1].startswith(_NO_BREAK)
        for wanted, side in (("-", old), ("+", new)):
            if mark in {" ", wanted}:
                side.append(text + "\n" * has_break)
        left_old -= mark in {" ", "-"}
        left_new -= mark in {" ", "+"}
        at += 1 if has_break else 2
    if left_old or left_new or not is_whole:
        return None, at
    return FileEdit(name, None if is_new else "".join(old), "".join(new)), at
