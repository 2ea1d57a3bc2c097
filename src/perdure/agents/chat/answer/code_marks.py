"""Tells code from prose in an answer's Markdown while the answer arrives.

Code is a block between fences (a line that begins with three or more backticks or tildes), or a
code span: from a run of backticks to the next run of the same length. A span also ends at a blank
line or a fence, because it is not possible to wait for the end of the answer to find out that a run
of backticks had no partner.
"""

from enum import Enum
from typing import Final

_FENCE_MIN: Final = 3


class _Place(Enum):
    """Says where in the Markdown the text ends that was read so far."""

    TEXT = "outside code"
    SPAN = "in a code span"
    FENCE_BEGINS = "on the line of an opening fence"
    FENCED = "in a fenced block"
    FENCE_ENDS = "on the line of a closing fence"


class CodeMarks:
    """Knows whether the text that was read so far ends inside code."""

    __slots__ = ("_char", "_is_first", "_length", "_opening", "_place")

    def __init__(self) -> None:
        self._place = _Place.TEXT
        # The character and the length of the run that opened the code.
        self._opening = ("", 0)
        # The run of marks that is being read.
        self._char, self._length, self._is_first = "", 0, False

    @property
    def is_open(self) -> bool:
        """Tell whether the text so far ends inside code."""
        return self._place is not _Place.TEXT

    def take_run(self, run: str, *, is_first: bool) -> None:
        """Take a run of marks, or more of the current run. `is_first` says that a fence may be
        here."""
        if self._char != run[0]:
            self.take_words()
            self._char, self._is_first = run[0], is_first
        self._length += len(run)

    def take_words(self) -> None:
        """Take anything except marks and white space."""
        self.end_run()
        if self._place is _Place.FENCE_ENDS:
            # A closing fence has to be alone on its line, so this was none.
            self._place = _Place.FENCED

    def take_newline(self, *, is_blank: bool) -> None:
        """Take the end of a line. `is_blank` says that there was a blank line."""
        self.end_run()
        if self._place is _Place.FENCE_BEGINS:
            self._place = _Place.FENCED
        elif self._place is _Place.FENCE_ENDS or (self._place is _Place.SPAN and is_blank):
            self._place = _Place.TEXT

    def end_run(self) -> None:
        """Decide what the last run of marks means, now that its length is known."""
        run, is_fence = (self._char, self._length), self._is_first and self._length >= _FENCE_MIN
        self._char, self._length = "", 0
        if self._place is _Place.FENCED:
            if is_fence and run[0] == self._opening[0] and run[1] >= self._opening[1]:
                self._place = _Place.FENCE_ENDS
            return
        if self._place is _Place.FENCE_BEGINS and run[0] == self._opening[0] == "`":
            # Another backtick on the same line makes it a span: "```this```".
            self._place = _Place.SPAN
        if self._place is _Place.SPAN and run == self._opening:
            self._place = _Place.TEXT
        elif is_fence:
            self._place, self._opening = _Place.FENCE_BEGINS, run
        elif self._place is _Place.TEXT and run[0] == "`":
            self._place, self._opening = _Place.SPAN, run
