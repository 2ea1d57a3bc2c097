"""Guesses in which older encoding a text is, with `charset-normalizer`.

The library decodes a sample in each encoding that people have, and tells how much disorder it sees
and how much of the text looks like a language. On a few words that is not enough, so we add what is
known about all of these encodings: a word has letters of one script, a symbol does not stand inside
a word, and small letters are not followed by capitals. If encodings are still equally likely, the
more common one is taken. This module is imported only by the process that reads documents.
"""

import re
import unicodedata
from typing import Final

from charset_normalizer import CharsetMatch, from_bytes

from perdure.domain.reading.encodings import declared_encoding, encoding_of, usable

# The encodings that are tried. Each of them is so much less likely than the first one.
LIKELY: Final = {
    "cp1252": 0.0,
    "cp932": 0.0,
    "gb18030": 0.0,
    "big5": 0.0,
    "cp949": 0.0,
    "iso2022_jp": 0.0,
    "iso2022_kr": 0.0,
    "cp1251": 0.02,
    "euc_jp": 0.02,
    "koi8_r": 0.05,
    "cp1250": 0.08,
    "iso8859_2": 0.1,
    "cp1253": 0.1,
    "cp1254": 0.1,
    "cp1255": 0.1,
    "cp1256": 0.1,
    "koi8_u": 0.1,
    "cp866": 0.15,
    "cp437": 0.2,
    "cp850": 0.2,
    "iso8859_5": 0.2,
    "cp1257": 0.3,
    "cp874": 0.2,
    "mac_roman": 0.2,
}
_SAMPLE_BYTES: Final = 16_000
_FOREIGN: Final = re.compile(rb"[\x80-\xff\x1b]")
# Letters of Windows-1252 and Windows-1250 that only few of their languages have.
_RARE: Final = frozenset("ýþðÝÞÐţđŢĐ")
# Symbols that stand beside words without a blank.
_AT_HOME: Final = frozenset("°€£©®™²³½\xd7")
# Marks that stand within words, or between two words without a blank.
_WITHIN: Final = frozenset("\u2019\xb7\u2013\u2014\u2026\u3001\u3002\u30fb\u300c\u300d\uff0c")


def guessed_encoding(data: bytes) -> str:
    """Return the encoding of a text: the one that its bytes show, that it states itself, or the
    most likely one."""
    known = encoding_of(data) or declared_encoding(data)
    if known:
        return known
    found = from_bytes(_sample(data), cp_isolation=list(LIKELY), threshold=1.0)
    ranked = sorted(found, key=_unlikely)
    return next((each.encoding for each in ranked if usable(each.encoding, data)), "cp1252")


def _sample(data: bytes) -> bytes:
    """Return the lines that are not all ASCII, up to a limit: the others tell nothing."""
    lines = [line for line in data.splitlines() if _FOREIGN.search(line)]
    return b"\n".join(lines)[:_SAMPLE_BYTES]


def _unlikely(match: CharsetMatch) -> float:
    """Return how unlikely a guess is."""
    likely = min(
        (LIKELY[name] for name in match.could_be_from_charset if name in LIKELY), default=0.5
    )
    return match.chaos - match.coherence + likely + strangeness(str(match))


def strangeness(text: str) -> float:
    """Return which share of the characters beyond ASCII stands where it does not in a text that is
    decoded correctly."""
    strange, foreign = 0.0, 0
    for before, here, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if not (here.isascii() and before.isascii()):
            foreign += not here.isascii()
            strange += _strange(before, here, after)
    return strange / foreign if foreign else 0.0


def _strange(before: str, here: str, after: str) -> float:
    """Return how strange a character is beside these two."""
    if here in _RARE or "\uff61" <= here <= "\uff9f":  # the narrow katakana of old terminals
        return 0.6
    first, second = unicodedata.category(before), unicodedata.category(here)
    if second in ("Cc", "Co", "Cn"):
        return 1
    if second[0] == "M":  # a mark stands on a letter of its own script
        return 0 if first[0] in "LM" and _script(before) == _script(here) else 1
    if first[0] == "L" and second[0] == "L":
        is_upturned = first == "Ll" and second == "Lu"
        return 1 if is_upturned or _script(before) != _script(here) else 0
    if second[0] == "P":
        is_inside = before.isalpha() and after.isalpha()
        return 1 if is_inside and not here.isascii() and here not in _WITHIN else 0
    symbol, letter = (here, first) if second[0] in "SN" else (before, second)
    is_symbol = not symbol.isascii() and unicodedata.category(symbol)[0] in "SN"
    return 1 if is_symbol and letter[0] == "L" and symbol not in _AT_HOME else 0


def _script(letter: str) -> str:
    """Return the name of the script of a letter. Those of East Asia stand beside each other."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK") else name
