"""Who speaks, told to a model in a line that nobody else can write.

Where several people share a conversation, each message is told below a line of ours with its
sender's name. Files, forwards and notes are told in lines of ours as well. All of these lines begin
with a square bracket, so a line of somebody's own words that does is told with a backslash before
the bracket. What is stored stays as it was written.
"""

import unicodedata
from collections.abc import Callable
from typing import Final

from perdure.domain.content.forwards import ForwardedText

# The bracket, and what is drawn like it.
_BRACKETS: Final = "[\uff3b\ufe47"
_UNSEEN: Final = frozenset({"Cc", "Cf"})
# How the lines begin between which the text of a file is told.
_AROUND_FILES: Final = ("[attached file:", "[end of ", "[voice message", "[sticker")
_LEAD_MAX: Final = max(map(len, _AROUND_FILES))


def attributed(sender: str, words: ForwardedText) -> str:
    """Word a message for models: its sender in a line of ours, then the sender's own words."""
    return f"[{sender}]\n{in_own_words(words)}"


def in_own_words(words: ForwardedText) -> str:
    """Return a person's words without any line that could be taken for one of ours. What was passed
    on stays as it is: we have worded it, and quoted every line of it."""
    text, told, at = words.text, [], 0
    for passage in words.passed_on:
        told += [_without_leads(text[at : passage.start]), text[passage.start : passage.end]]
        at = passage.end
    return "".join([*told, _without_leads(text[at:])])


def _without_leads(text: str) -> str:
    return _escaped(text, lambda _: True)


def in_a_file(text: str) -> str:
    """Return the text of a file without any line that could be taken for its end, or for the
    beginning of another file. All other brackets are what files are made of, and stay."""
    return _escaped(text, lambda lead: _folded(lead).startswith(_AROUND_FILES))


def _escaped(text: str, is_ours: Callable[[str], bool]) -> str:
    if not any(bracket in text for bracket in _BRACKETS):
        return text
    # Every kind of line break that Unicode knows begins a line.
    return "".join(_line(line, is_ours) for line in text.splitlines(keepends=True))


def _line(line: str, is_ours: Callable[[str], bool]) -> str:
    at = next((i for i, character in enumerate(line) if not _is_unseen(character)), len(line))
    lead = line[at : at + _LEAD_MAX]
    if lead[:1] in _BRACKETS and lead and is_ours(lead):
        return f"{line[:at]}\\{line[at:]}"
    return line


def _is_unseen(character: str) -> bool:
    """Whether a line that begins so looks as if it began with what follows."""
    return character.isspace() or unicodedata.category(character) in _UNSEEN


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
