"""Finds the bot's names in a text. Pure.

Anybody can write these texts, of any length and shape. So they are read from both ends without
going back, and the time taken is linear in the length of the text. Names are compared without
regard to case, in the order given.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter


def is_spoken_of(text: str, names: Sequence[str]) -> bool:
    """Tell whether one of the names occurs anywhere in a text, as a word of its own."""
    folded = text.casefold()
    return any(_is_word_in(folded, name.casefold()) for name in names)


def is_called(text: str, names: Sequence[str]) -> bool:
    """Tell whether a text begins with a name and a colon or comma, as when speaking to somebody."""
    start = _skip_space(text, 0)
    return any(_sign(text, end) for end in _ends(text, start, names))


def unaddressed(text: str, names: Sequence[str], *, is_pilled: bool) -> str:
    """Remove the name at the beginning and at the end of a text. It is removed only after an `@` or
    before a colon or comma, unless the client says that it `is_pilled`: then the bare name is
    enough."""
    behind = _behind_opening(text, names, is_pilled=is_pilled)
    return _without_closing(text[behind:], names, is_pilled=is_pilled)


def _behind_opening(text: str, names: Sequence[str], *, is_pilled: bool) -> int:
    """Return the position of the first word after the name, or 0 if the text does not begin with a
    name."""
    start = _skip_space(text, 0)
    is_marked = text.startswith("@", start)
    starts = (start + 1, start) if is_marked else (start,)
    ends = [end for at in starts for end in _ends(text, at, names)]
    if not is_pilled and (signs := [sign for end in ends if (sign := _sign(text, end))]):
        return _skip_space(text, signs[0])
    if is_pilled or is_marked:
        marked = ends if is_pilled else _ends(text, start + 1, names)
        for end in marked:
            if not _is_word(text[end : end + 1]):
                return _skip_space(text, (_sign(text, end) if is_pilled else 0) or end)
    return 0


def _without_closing(text: str, names: Sequence[str], *, is_pilled: bool) -> str:
    """Remove a name at the end of a text. A full stop, or the like, that follows the name stays."""
    least = len(text.rstrip().rstrip(".!?").rstrip())
    found = [
        (begin, end)
        for name in names
        # A name may itself end with a full stop or the like, so several ends are tried.
        for end in range(least, min(least + len(name), len(text)) + 1)
        if (begin := _closing_at(text, end, name, is_pilled=is_pilled)) >= 0
    ]
    if not found:
        return text
    begin, end = min(found, key=itemgetter(0))
    return text[:begin].rstrip().removesuffix(",").rstrip() + text[end:].strip()


def _closing_at(text: str, end: int, name: str, *, is_pilled: bool) -> int:
    """Return where a name that ends at `end` begins, including its `@`. Returns -1 if there is
    none."""
    begin = end - len(name)
    if begin < 0 or text[begin:end].casefold() != name.casefold():
        return -1
    if begin and text[begin - 1] == "@":
        if not is_pilled or not _is_word(text[begin - 2 : begin - 1]):
            return begin - 1
        return begin
    return begin if is_pilled and not _is_word(text[max(begin - 1, 0) : begin]) else -1


def _ends(text: str, start: int, names: Sequence[str]) -> Iterator[int]:
    """Yield the end of each name that begins at `start`."""
    for name in names:
        if text[start : start + len(name)].casefold() == name.casefold():
            yield start + len(name)


def _sign(text: str, at: int) -> int:
    """Return the position after a colon or comma at `at`, perhaps after space. Returns 0 if there
    is none."""
    at = _skip_space(text, at)
    return at + 1 if text[at : at + 1] in (":", ",") else 0


def _skip_space(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def _is_word_in(text: str, name: str) -> bool:
    """Tell whether a name occurs in a text without letters, digits or `_` directly around it."""
    at = text.find(name)
    while at >= 0:
        behind = at + len(name)
        if not _is_word(text[max(at - 1, 0) : at]) and not _is_word(text[behind : behind + 1]):
            return True
        at = text.find(name, at + 1)
    return False


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
