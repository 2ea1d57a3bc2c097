"""Replaces what text must not hold, and shortens or cleans texts.

PostgreSQL cannot store U+0000, and UTF-8 cannot encode lone surrogates. Platforms and models send
both now and then. They are replaced once, at the edge, so that all other code can trust its text.
"""

from collections.abc import Iterable
from typing import Final

REPLACEMENT: Final = "\ufffd"
_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Embeddings, overrides and isolates can make the text after them appear in another order.
BIDIRECTIONAL: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
# These take no room: marks of direction, which scripts from right to left need, and others. Or they
# break a line where no line break is seen. Joiners are not among them: whole scripts and many emoji
# need them.
INVISIBLE: Final = (
    *(0x061C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF),
    *range(0x2060, 0x2066),
    *range(0xE0000, 0xE0080),
)
_SHOWN: Final = _CONTROL | {code: f"<U+{code:04X}>" for code in BIDIRECTIONAL}
_EXACT: Final = {code: f"<U+{code:04X}>" for code in (*_CONTROL, *BIDIRECTIONAL, *INVISIBLE)}
_ENDS: Final = (".", "?", "!", "…", "。", "？", "！")  # noqa: RUF001 - a model's server may write any


def storable(text: str) -> str:
    """Return the text with each character that no store can hold replaced by U+FFFD."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT) if "\x00" in text else text
    return (
        text.encode("utf-16-le", "surrogatepass")
        .decode("utf-16-le", "replace")
        .replace("\x00", REPLACEMENT)
    )


def most_like(word: str, known: Iterable[str]) -> str | None:
    """Return which of the known words was probably meant, or None if none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415 - few words are mistyped

    return next(iter(get_close_matches(word, known, n=1)), None)


def excerpt(text: str, words: str, *, length: int) -> str:
    """Return the part of a text around the first place where one of the words occurs. A short text
    is returned whole."""
    if len(text) <= length:
        return text
    lowered = text.lower()
    places = [lowered.find(word) for word in words.lower().split()]
    place = min((each for each in places if each >= 0), default=0)
    start = max(place - length // 3, 0)
    end = start + length
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def sentence(text: str) -> str:
    """Return a text with a full stop at its end, unless it ends with a mark of its own."""
    kept = text.rstrip()
    return kept if kept.endswith(_ENDS) else f"{kept}."


def harmless_line(text: str) -> str:
    """Return a name that anyone can choose as one harmless line: without line breaks, and without
    the brackets that our own lines use."""
    kept = "".join(c if c.isprintable() else " " for c in storable(text) if c not in "[]()")
    return " ".join(kept.split())


def without_disguise(text: str) -> str:
    """Return a text without control characters, and with characters that change the order of
    letters shown by their number, so that it means what it looks like."""
    return text.translate(_SHOWN)


def exact(text: str) -> str:
    """Return a text with every character shown by its number that nobody would see, so that nothing
    of it is left out: for what a person is to approve."""
    return text.translate(_EXACT)
