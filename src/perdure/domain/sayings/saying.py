"""Lets the gateway speak the language of the person it speaks to.

The gateway's own texts stand in English where they are said: `worded("Removed: {it}.", it=name)`.
The result is a text like any other, and remembers what it was made from. Where it leaves the
gateway, `in_language` puts it into the language of its reader: it looks up the English form in the
table of that language and fills in the same values, which may be sayings themselves. A text that is
no saying, such as an answer of an agent or the name of a file, stays as it is.

What is put into a journal or an outbox must be plain text, so each place that writes one calls
`in_language`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Final, Self


class ReaderLanguage(StrEnum):
    """Lists the languages that the gateway speaks."""

    ENGLISH = "en"
    GERMAN = "de"


class Saying(str):
    """Holds a text of the gateway in English, with what it was made from."""

    __slots__ = ("template", "values")
    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, values: Mapping[str, object]) -> Self:
        """Fill in the values."""
        made = super().__new__(cls, template.format(**values))
        made.template, made.values = template, values
        return made


def worded(template: str, **values: object) -> str:
    """Return a text of the gateway: an English form, with values in the places that it names."""
    return Saying(template, values)


def in_one_line(*texts: str) -> str:
    """Return these texts as one line, without those that are empty."""
    return _joined(" ", texts)


def in_lines(*lines: str) -> str:
    """Return these texts as lines, without those that are empty."""
    return _joined("\n", lines)


def as_sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends like a sentence already."""
    kept = text if isinstance(text, Saying) else text.rstrip()
    return kept if kept.endswith(_ENDS) else worded("{text}.", text=kept)


def _joined(separator: str, texts: Sequence[str]) -> str:
    pieces = {f"at{number}": text for number, text in enumerate(filter(None, texts))}
    return Saying(separator.join(f"{{{name}}}" for name in pieces), pieces)


def tag_of(tag: str) -> str:
    """Return the language that a tag such as `de-AT` names, or an empty string if it is none that
    is spoken here."""
    spoken = tag[:_TAG_MAX].replace("_", "-").partition("-")[0].strip().lower()
    return spoken if spoken in _SPOKEN else ""


def language_of(tag: str) -> ReaderLanguage:
    """Return the language that a tag names, or English if it is not spoken here."""
    return ReaderLanguage(tag_of(tag) or ReaderLanguage.ENGLISH)


def in_language(text: str, language: ReaderLanguage) -> str:
    """Return a text as plain text, in this language if it is a saying."""
    if not isinstance(text, Saying):
        return text
    form = _table(language).get(text.template, text.template)
    values = {
        name: in_language(value, language) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return form.format(**values)


@cache
def _table(language: ReaderLanguage) -> Mapping[str, str]:
    """Return the forms of a language by their English forms."""
    match language:
        case ReaderLanguage.ENGLISH:
            return {}
        case ReaderLanguage.GERMAN:
            from perdure.domain.sayings.german import FORMS  # noqa: PLC0415 - few need it

            return FORMS


_SPOKEN: Final = frozenset(ReaderLanguage)
_TAG_MAX: Final = 35
_ENDS: Final = (".", "?", "!", "…", "。", "？", "！")  # noqa: RUF001 - a server may write any
