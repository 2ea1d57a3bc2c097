"""Removes the thoughts that a model writes into its text, between `<think>` and `</think>`.

Servers with a reasoning parser send thoughts in a field of their own. Others (a plain llama.cpp or
vLLM, Ollama for many models, most proxies) leave them in the text. They are removed here, so that
no code behind the wire sees them. The rules:

- A closed pair outside code is a thought. `<thinking>` counts too, in upper or lower case. The
  first closing tag of the same name ends it: thoughts often mention the opening tag, and counting
  nested tags would swallow the answer.
- Code is text, and so are the tags in it. Code is a block between fences, or a code span, which
  ends with the next run of the same number of backticks, or at a blank line or a fence. Inside a
  thought, code is not looked for.
- A thought that began a line and is never closed lasts to the end of the answer. If the answer was
  nothing but such a thought, it is silent, and people are told so. An unclosed tag in the middle of
  a line is text: it is held back with all that follows, and returned at the end.
- A tag with nothing after it, in an answer that the model finished, is text: somebody asked for
  the name of the tag.
- A closing tag before the first word closes an empty thought that the server's own template opened.
  After words it is text, because those words were shown already.
- White space between thoughts and the first word is removed. A thought on lines of its own leaves
  at most one blank line. All other white space stays as it is.

However the text is cut into pieces, each character is looked at a few times at most. The scanner
holds back an open thought, what may become a tag, and white space at the beginning of a line.
"""

import re
from typing import Final

from perdure.agents.chat.answer.code_marks import CodeMarks

_OPENING: Final = ("<think>", "<thinking>")
_CLOSING: Final = ("</think>", "</thinking>")
_TAG_MAX: Final = max(map(len, _CLOSING))
_TAG: Final = re.compile("<(/?)(think|thinking)>", re.IGNORECASE | re.ASCII)
_ENDS: Final = {
    "think": re.compile("</think>", re.IGNORECASE | re.ASCII),
    "thinking": re.compile("</thinking>", re.IGNORECASE | re.ASCII),
}
# The parts of a text: white space, a run of marks, a possible start of a tag, or other words up to
# one of these.
_PARTS: Final = re.compile(r"\s+|`+|~+|<|[^\s`~<][^\n`~<]*")
# How many spaces may stand before a fence.
_INDENT_MAX: Final = 3


class ThoughtScanner:
    """Takes an answer's text in pieces, and returns what is not a thought."""

    __slots__ = (
        *("_before", "_blank", "_code", "_end", "_has_tag", "_has_words", "_held"),
        *("_is_line_start", "_kept", "_lone"),
    )

    def __init__(self) -> None:
        self._code = CodeMarks()
        self._has_tag = self._has_words = False
        self._is_line_start = True
        # White space at the beginning of a line.
        self._blank: list[str] = []
        # White space before a thought, until it is known what follows the thought.
        self._before = ""
        # What may become a tag: an opening tag, or inside a thought its closing tag.
        self._held = ""
        # A tag that only white space has followed so far.
        self._lone = ""
        # What closes the current thought, or None outside of a thought.
        self._end: re.Pattern[str] | None = None
        # The current thought so far, if it becomes text when it is never closed.
        self._kept: list[str] | None = None

    @property
    def is_inside(self) -> bool:
        """Tell whether the text so far ends inside a thought."""
        return self._end is not None

    def feed(self, text: str) -> str:
        """Take a piece of text. Returns what certainly is not part of a thought."""
        text, self._held = self._held + text, ""
        told: list[str] = []
        at = 0
        while at < len(text):
            if self._end is None:
                at = self._read(text, at, told)
            else:
                at = self._think(text, at, self._end)
        return "".join(told)

    def rest(self, *, is_finished: bool) -> str:
        """Return the text that was held back, at the end of the answer. `is_finished` says that the
        model ended the answer itself."""
        blank = self._take_blank()
        if self._kept is not None:
            return "".join(self._kept) + self._held
        if self._lone and is_finished and (self._end or not self._held):
            return blank + self._lone
        return blank if self._end else blank + self._held

    def _read(self, text: str, at: int, told: list[str]) -> int:
        """Pass text on, up to the next thought. Returns where to continue."""
        for found in _PARTS.finditer(text, at):
            part = found[0]
            if part.isspace():
                self._pass_blank(part, told)
                continue
            if part == "<":
                self._code.end_run()
                if not self._code.is_open and (end := self._find_tag(text, found.start())):
                    return end
            is_first = self._begin_words(told)
            if part[0] in "`~":
                self._code.take_run(part, is_first=is_first)
            else:
                self._code.take_words()
            told.append(part)
        return len(text)

    def _pass_blank(self, blank: str, told: list[str]) -> None:
        """Pass on white space inside a line, and hold back that at the beginning of a line."""
        self._code.end_run()
        newlines = blank.count("\n")
        if newlines:
            self._code.take_newline(is_blank=self._is_line_start or newlines > 1)
        if not self._is_line_start:
            inner = blank.partition("\n")[0]
            told.append(inner)
            blank = blank[len(inner) :]
            self._is_line_start = newlines > 0
        if blank:
            self._blank.append(blank)

    def _begin_words(self, told: list[str]) -> bool:
        """Pass on the white space before words. Returns whether a fence may begin here."""
        if not self._is_line_start:
            return False
        blank = self._take_blank()
        told.append(blank)
        self._has_words, self._is_line_start, self._lone = True, False, ""
        indent = blank[blank.rfind("\n") + 1 :]
        return len(indent) <= _INDENT_MAX and not indent.strip(" ")

    def _take_blank(self) -> str:
        """Return the white space that was held back, without what removed thoughts left over."""
        before, behind = self._before, "".join(self._blank)
        self._before, self._blank = "", []
        if self._has_tag and not self._has_words:
            return ""
        if not before or "\n" not in behind:
            return before + behind
        newlines = min(2, max(before.count("\n"), behind.count("\n")))
        return "\n" * newlines + behind[behind.rfind("\n") + 1 :]

    def _find_tag(self, text: str, at: int) -> int:
        """Take the tag that begins here, or hold back what may become one. Returns where to
        continue, or 0 if this is text."""
        tag = _TAG.match(text, at)
        if tag is None:
            near = text[at : at + _TAG_MAX].lower()
            tags = _OPENING if self._has_words else _OPENING + _CLOSING
            if not any(tag.startswith(near) for tag in tags):
                return 0
            self._held = text[at:]
            return len(text)
        if tag[1] and self._has_words:
            return 0
        self._lone = "" if self._has_tag and not self._has_words else tag[0]
        self._has_tag = True
        self._before = self._take_blank()
        if not tag[1]:
            self._end = _ENDS[tag[2].lower()]
            self._kept = None if self._is_line_start else [tag[0]]
        return tag.end()

    def _think(self, text: str, at: int, end: re.Pattern[str]) -> int:
        """Skip text inside a thought. Returns where to continue."""
        found = end.search(text, at)
        if found is not None:
            self._end, self._kept, self._lone = None, None, ""
            return found.end()
        if self._lone and text[at:].strip():
            self._lone = ""
        # The last characters may be the beginning of the closing tag.
        border = max(at, len(text) - _TAG_MAX + 1)
        self._held = text[border:]
        if self._kept is not None:
            self._kept.append(text[at:border])
        return len(text)
