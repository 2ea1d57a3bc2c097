"""Tells a model who speaks, in lines that nobody else can write.

If several people share a conversation, the model gets each message below a line that we write, with
the sender's name. Files, forwards and notes are told in such lines of ours as well. All these lines
begin with a square bracket. So if a line of a person's own words begins with a bracket, the model
gets it with a backslash before the bracket. The stored text stays as it was written.
"""

import unicodedata
from collections.abc import Callable
from typing import Final

from perdure.domain.content.forwards import ForwardedText

# The square bracket, and characters that look like it.
_BRACKETS: Final = "[\uff3b\ufe47"
# The Unicode categories of characters that are not drawn.
_UNSEEN: Final = frozenset({"Cc", "Cf"})
# The beginnings of the lines that we write around the text of a file.
_AROUND_FILES: Final = ("[attached file:", "[end of ", "[voice message", "[sticker")
_LEAD_MAX: Final = max(map(len, _AROUND_FILES))


def attributed(sender: str, words: ForwardedText) -> str:
    """Return a message for models: a line of ours with its sender, then the sender's own words."""
    return f"[{sender}]\n{in_own_words(words)}"


def in_own_words(words: ForwardedText) -> str:
    """Return a person's words without any line that could be taken for one of ours. Forwarded
    passages stay as they are: we have worded them, and quoted each of their lines."""
    text, told, at = words.text, [], 0
    for passage in words.passed_on:
        told += [_without_leads(text[at : passage.start]), text[passage.start : passage.end]]
        at = passage.end
    return "".join([*told, _without_leads(text[at:])])


def _without_leads(text: str) -> str:
    return _escaped(text, lambda _: True)


def in_a_file(text: str) -> str:
    """Return the text of a file without any line that could be taken for the end of the file or the
    beginning of another. All other brackets stay, because files are full of them."""
    return _escaped(text, lambda lead: _folded(lead).startswith(_AROUND_FILES))


def _escaped(text: str, is_ours: Callable[[str], bool]) -> str:
    """Return a text with a backslash before the bracket of each line that `is_ours` recognizes."""
    if not any(bracket in text for bracket in _BRACKETS):
        return text
    # `splitlines` knows every line break of Unicode; a model may take any of them for one.
    return "".join(_line(line, is_ours) for line in text.splitlines(keepends=True))


def _line(line: str, is_ours: Callable[[str], bool]) -> str:
    at = next((i for i, character in enumerate(line) if not _is_unseen(character)), len(line))
    lead = line[at : at + _LEAD_MAX]
    if lead[:1] in _BRACKETS and lead and is_ours(lead):
        return f"{line[:at]}\\{line[at:]}"
    return line


def _is_unseen(character: str) -> bool:
    """Tell whether a character is not drawn, so that a line which begins with it seems to begin
    with the next one."""
    return character.isspace() or unicodedata.category(character) in _UNSEEN


def _folded(text: str) -> str:
    """Return a text in which letters that differ only in case or width are equal."""
    return unicodedata.normalize("NFKC", text).casefold()
