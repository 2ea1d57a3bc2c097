"""Splits a page into tags and text.

Pages come from strangers, so this takes time in proportion to their length, whatever they hold:
each pattern begins where the last one ended, and what is never closed reaches to the end. (The
parser of the standard library reads the same rest again and again.) It reads what browsers would
show of usual pages, and is no validator.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Final

import msgspec

# The elements whose content is no markup.
RAW: Final = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed"})
_RAW_END: Final = re.compile(
    r"</(script|style|textarea|title|xmp|iframe|noembed)(?=[\s/>])", re.IGNORECASE
)
_NAME: Final = re.compile(r"/?[A-Za-z][^\s/>]*")
# Matches one attribute, or the end of the tag.
_ATTRIBUTE: Final = re.compile(
    r"""[\s/]*(?:(?P<end>>)|(?P<name>[^\s/>][^\s/>=]*)"""
    r"""(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s>]*)))?)"""
)
# How long a name, and how long a value, is looked at.
_NAME_MAX: Final = 40
VALUE_MAX: Final = 4_000
# References to characters with more digits than any character has. Python refuses to read such
# numbers.
_NO_CHARACTER: Final = re.compile(r"&#[xX]?[0-9A-Fa-f]{8,};?")
# The elements that have no end.
VOID: Final = frozenset(
    {
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source",
        "track", "wbr",
    }
)  # fmt: skip


class MarkupTag(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a tag: its name in small letters, and its attributes. The first of two attributes with
    one name counts."""

    name: str
    is_end: bool = False
    attributes: dict[str, str] = {}


def without_references(text: str) -> str:
    """Return a text with its references to characters, such as `&amp;`, replaced."""
    return unescape(_NO_CHARACTER.sub("\ufffd", text)) if "&" in text else text


def parts_of(markup: str) -> Iterator[MarkupTag | str]:
    """Yield the tags and the texts of a page, in order. References to characters are replaced.
    Comments and declarations are left out, and so is a last tag that never ends."""
    at = 0
    while at < len(markup):
        opened = markup.find("<", at)
        if opened != at:
            yield without_references(markup[at : opened if opened >= 0 else len(markup)])
        if opened < 0:
            return
        named = _NAME.match(markup, opened + 1)
        if named is None:
            at = _after_other(markup, opened)
            if at == opened + 1:
                yield "<"
            continue
        tag, at = _tag(markup, named)
        if tag is None:
            return
        yield tag
        if tag.name in RAW and not tag.is_end:
            end = _raw_end(markup, tag.name, at)
            yield without_references(markup[at:end])
            at = end


def _after_other(markup: str, opened: int) -> int:
    """Return where a `<` that begins no tag ends: after the comment or the declaration, or right
    after the sign if it is text."""
    if markup.startswith("<!--", opened):
        end = markup.find("-->", opened + 2)
        return end + 3 if end >= 0 else len(markup)
    if markup.startswith(("<!", "<?", "</"), opened):
        end = markup.find(">", opened)
        return end + 1 if end >= 0 else len(markup)
    return opened + 1


def _tag(markup: str, named: re.Match[str]) -> tuple[MarkupTag | None, int]:
    """Return the tag with this name, and where it ends; None if it never ends."""
    name = named[0]
    attributes: dict[str, str] = {}
    at = named.end()
    while found := _ATTRIBUTE.match(markup, at):
        at = found.end()
        if found["end"]:
            is_end = name.startswith("/")
            short = name.removeprefix("/")[:_NAME_MAX].lower()
            return MarkupTag(name=short, is_end=is_end, attributes=attributes), at
        _keep(attributes, found)
    return None, len(markup)


def _keep(attributes: dict[str, str], found: re.Match[str]) -> None:
    """Add an attribute, unless it is longer than any that is of use."""
    value = found["double"] or found["single"] or found["bare"] or ""
    name = found["name"]
    if len(name) <= _NAME_MAX and len(value) <= VALUE_MAX:
        attributes.setdefault(name.lower(), without_references(value))


def _raw_end(markup: str, name: str, at: int) -> int:
    """Return where the content of an element ends that is no markup."""
    ends = (found for found in _RAW_END.finditer(markup, at) if found[1].lower() == name)
    found = next(ends, None)
    return found.start() if found else len(markup)
