"""What a provider says went wrong, in its own words, whatever shape it says it in.

Most send {"error": {"message": …}}; others a bare string, {"detail": …}, a list with such an
object in it, plain text, or the HTML page of a proxy that stands before them.
"""

import html
import re
from typing import Final

import msgspec

_TEXT_MAX: Final = 300
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_HIDDEN: Final = re.compile(r"<(script|style|head)\b.*?</\1>", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_BODY_MAX: Final = 64 * 1024


class Complaint(msgspec.Struct, frozen=True):
    """`text` is one line and short; `code` is the provider's own word for the case, if any."""

    text: str = ""
    code: str = ""


def complaint(body: bytes) -> Complaint:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Complaint(_short(_page(body[:_BODY_MAX].decode("utf-8", "replace"))))
    return _found(value, depth=4)


def _found(value: object, *, depth: int) -> Complaint:
    """The message nearest to the outside."""
    if isinstance(value, str):
        return Complaint(_short(value))
    if isinstance(value, list) and value and depth:
        return _found(value[0], depth=depth - 1)
    if not isinstance(value, dict) or not depth:
        return Complaint()
    message = value.get("message")
    if isinstance(message, str) and message:
        code = value.get("code") or value.get("type")
        return Complaint(_short(message), code if isinstance(code, str) else "")
    for key in ("error", "detail", "msg"):
        if value.get(key):
            return _found(value[key], depth=depth - 1)
    return Complaint()


def _page(text: str) -> str:
    """The title of an HTML page, else its words."""
    title = _TITLE.search(text)
    if title and title[1].strip():
        return html.unescape(title[1])
    if "<" not in text:
        return text
    return html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", text)))


def _short(text: str) -> str:
    words = " ".join(text.split())
    printable = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words
    )
    return printable if len(printable) <= _TEXT_MAX else f"{printable[: _TEXT_MAX - 1]}…"
