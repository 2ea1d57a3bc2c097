"""Finds out in which encoding the bytes of a text file are, as far as the bytes tell it for sure.

A byte order mark tells it, and so do zero bytes in the pattern of UTF-16, or bytes that are UTF-8
throughout. What remains is some older encoding of eight bits or of East Asia. Those can only be
guessed, which takes a library (`app/reading/text_guessing.py`).
"""

import codecs
import re
import unicodedata
from typing import Final

UTF_8: Final = "utf-8-sig"
# How much of a text is looked at.
LOOKED_AT: Final = 400_004
# The longest marks come first: that of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Matches the sequences by which ISO 2022 changes between sets of characters. Its bytes are ASCII.
_ISO_2022: Final = re.compile(rb"\x1b(?:\$[@AB]|\$[()][A-D]|\([BIJ])")
# Control codes that stand in text.
_LAYOUT: Final = frozenset("\t\n\r\f\x1b\b")
_LAYOUT_BYTES: Final = frozenset(b"\t\n\r\f\x1b\b")
# Every text of some length has a blank, a digit or a full stop: one in so many characters.
_PLAIN_SHARE: Final = 20
_CJK_STOPS: Final = "\u3001\u3002"
# The categories of characters that no text has: unassigned, for private use, or half a character.
_NO_TEXT: Final = frozenset({"Cn", "Co", "Cs", "Cc"})
# A text with so many good characters for each broken one is damaged UTF-8, not something else.
_GOOD_FOR_BAD: Final = 4
# So many bytes without a control code are text: in other files they are frequent.
_SURE_BYTES: Final = 128
_HEAD_BYTES: Final = 4096
# Matches what a page or an XML document says of its own encoding.
_DECLARED: Final = re.compile(
    rb"""<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([\w.:-]{2,40})["']"""
    rb"""|<meta[^>]{0,200}?\bcharset\s*=\s*["']?([\w.:-]{2,40})""",
    re.IGNORECASE,
)


def encoding_of(data: bytes) -> str:
    """Return the encoding that the bytes of a text show, or an empty string if it takes a guess."""
    data = data[:LOOKED_AT]
    marked = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "")
    if marked:
        return marked
    if b"\0" in data[:_HEAD_BYTES]:
        return wide_encoding(data[:_HEAD_BYTES]) or UTF_8
    return "" if _ISO_2022.search(data) or not _is_utf_8(data) else UTF_8


def declared_encoding(data: bytes) -> str:
    """Return the encoding that a page or an XML document states, or an empty string if it states
    none in which it can be read."""
    found = _DECLARED.search(data[:_HEAD_BYTES])
    name = (found[1] or found[2]).decode() if found else ""
    return usable(name, data)


def usable(name: str, data: bytes) -> str:
    """Return the name of an encoding if all of a text can be read in it, or an empty string. What
    is called Latin-1 is read as Windows-1252, as browsers do."""
    try:
        found = codecs.lookup(name)
        if found.name in ("iso8859-1", "ascii"):
            found = codecs.lookup("cp1252")
        found.incrementaldecoder().decode(data[:LOOKED_AT], final=len(data) < LOOKED_AT)
    except (LookupError, ValueError, TypeError):
        return ""
    return found.name


def decoded_in(data: bytes, encoding: str) -> str:
    """Return the text of these bytes. Bytes that the encoding does not have become U+FFFD."""
    return data.decode(encoding, "replace")


def may_be_text(head: bytes, *, is_said: bool) -> bool:
    """Tell whether these bytes may be text in some older encoding, in which every byte above 127
    stands for something. `is_said`: the file's name or its sender says that it is text."""
    if not head or any(byte < 32 and byte not in _LAYOUT_BYTES for byte in head):
        return False
    is_mostly_plain = 2 * sum(byte < 127 for byte in head) >= len(head)
    return is_said or is_mostly_plain or len(head) >= _SURE_BYTES


def wide_encoding(head: bytes) -> str:
    """Return `utf-16` or `utf-32`, with the order of the bytes if no mark tells it, if these bytes
    look like such a text; or an empty string."""
    marked = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "")
    if marked and marked != UTF_8:
        return marked if _begun_text(head, marked) else ""
    if b"\0" not in head:
        return ""
    shares = {name: _plain_share(head, name) for name in ("utf-16-le", "utf-16-be")}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] * _PLAIN_SHARE >= 1 else ""


def _plain_share(data: bytes, encoding: str) -> float:
    """Return the share of ASCII characters and CJK stops in a text, or 0 if it is none in this
    encoding."""
    text = _begun_text(data, encoding)
    return sum(c.isascii() or c in _CJK_STOPS for c in text) / len(text) if text else 0


def _begun_text(data: bytes, encoding: str) -> str:
    """Return the beginning of a text, or an empty string if it is none in this encoding."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return ""
    has_others = any(c not in _LAYOUT and unicodedata.category(c) in _NO_TEXT for c in text)
    return "" if has_others else text


def _is_utf_8(data: bytes) -> bool:
    """Tell whether a text is UTF-8: whole, cut within a character, or with a few broken bytes."""
    is_whole = len(data) < LOOKED_AT
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=is_whole)
    bad = text.count("\ufffd")
    if not bad:
        return True
    good = sum(not c.isascii() for c in text) - bad
    return good >= _GOOD_FOR_BAD * bad
