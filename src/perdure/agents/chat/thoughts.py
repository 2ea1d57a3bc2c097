"""Thoughts that a model writes into its text, between `<think>` and `</think>`.

Servers with a reasoning parser send thoughts in a field of their own. Others (a bare llama.cpp or
vLLM, Ollama for many models, most proxies) leave them in the text. They are taken out here, so that
nothing behind the wire ever sees them. The rules:

- A thought is where reasoning models put it: at the start of an answer, after white space at most,
  and again directly behind another thought. `<thinking>` counts too, in any case of letters.
  Everywhere else, in a sentence or in a block of code, a tag is text.
- White space between a thought and the answer belongs to neither.
- A thought that is never closed ends with the answer: all of it was thought, and nothing was said.
  The turn is then a silent one, and people are told that it was.
- What is not a thought is never dropped. A tag that has nothing behind it, in an answer that the
  model finished, is the answer: somebody asked for the tag's name.
- A closing tag at the very start closes a thought that the server's own template has opened and
  the model left empty. Behind other words it is text: those words have been shown already.

The scanner takes each character once, however the text is cut.
"""

import re
from typing import Final

_OPENING: Final = ("<think>", "<thinking>")
_CLOSING: Final = ("</think>", "</thinking>")
_TAGS: Final = _OPENING + _CLOSING
_TAG_MAX: Final = max(map(len, _TAGS))
_ENDS: Final = {
    opening: re.compile(re.escape(closing), re.IGNORECASE | re.ASCII)
    for opening, closing in zip(_OPENING, _CLOSING, strict=True)
}


class ThoughtScanner:
    """Takes an answer's text in pieces and gives back what is not thought."""

    __slots__ = ("_alone", "_blank", "_end", "_has_tag", "_held", "_is_text", "_tail")

    def __init__(self) -> None:
        self._is_text = False
        self._has_tag = False
        self._blank: list[str] = []  # white space before the first word
        self._held = ""  # what may become a tag
        self._alone = ""  # a first tag, while nothing but white space has followed it
        self._end: re.Pattern[str] | None = None  # what closes the thought that we are in
        self._tail = ""  # the end of that thought so far, which may begin its closing tag

    @property
    def is_inside(self) -> bool:
        return self._end is not None

    def feed(self, text: str) -> str:
        """Return the text of this piece that certainly is no thought."""
        while text and not self._is_text:
            text = self._begin(text) if self._end is None else self._think(text, self._end)
        return text

    def rest(self, *, is_finished: bool) -> str:
        """Return what was held back, at the end of the answer. `is_finished`: the model has ended
        it by itself."""
        blank = "" if self._has_tag else "".join(self._blank)
        rest = blank + self._held
        if self._alone and is_finished and not self._held:
            rest = self._alone
        self._blank, self._held, self._alone = [], "", ""
        return rest

    def _begin(self, text: str) -> str:
        """Look for a tag at the start of the answer. Returns what is to be looked at next."""
        if not self._held:
            word = text.lstrip()
            self._blank.append(text[: len(text) - len(word)])
            text = word
        # What is held is shorter than any whole tag, so this looks at a few characters only.
        taken = text[: _TAG_MAX - len(self._held)]
        held, after = self._held + taken, text[len(taken) :]
        lower = held.lower()
        tag = next((tag for tag in _TAGS if lower.startswith(tag)), "")
        if tag:
            self._take_tag(tag, held[: len(tag)])
            return held[len(tag) :] + after
        if any(tag.startswith(lower) for tag in _TAGS):
            self._held = held
            return after
        blank = "" if self._has_tag else "".join(self._blank)
        self._is_text = True
        self._blank, self._held, self._alone = [], "", ""
        return blank + held + after

    def _take_tag(self, tag: str, written: str) -> None:
        self._alone = "" if self._has_tag else written
        self._has_tag = True
        self._blank, self._held = [], ""
        self._end = _ENDS.get(tag)

    def _think(self, text: str, end: re.Pattern[str]) -> str:
        """Pass over a thought. Returns what stands behind it."""
        text = self._tail + text
        found = end.search(text)
        if self._alone and (found or text.strip()):
            self._alone = ""
        if found is None:
            self._tail = text[1 - _TAG_MAX :]
            return ""
        self._end, self._tail = None, ""
        return text[found.end() :]
