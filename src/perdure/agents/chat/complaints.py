"""Reads what a provider says went wrong, in whatever shape it says it.

Most providers send {"error": {"message": …}}. Others send a plain string, {"detail": …}, a list
with such an object in it, plain text, or the HTML page of a proxy. An error inside a stream has no
HTTP status, so the status is derived from the provider's own word for the case.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

# Characters of a provider's message that are quoted.
_TEXT_MAX: Final = 300
# Characters and words of everything that was said that are searched for a known case.
_WHOLE_MAX: Final = 4_000
_WORDS_MAX: Final = 400
# HTML elements whose content is not text for people.
_HIDDEN: Final = (b"script", b"style", b"head")
# Bytes of an HTML page that are searched.
_BODY_MAX: Final = 64 * 1024


# The HTTP status of a provider's word for a case, in lower case, letters only, and without a final
# "error"; `_plain` brings words into this form.
_STATUS_BY_WORD: Final[Mapping[str, int]] = {
    "badrequest": 400,
    "invalidargument": 400,
    "invalidrequest": 400,
    "contextlengthexceeded": 400,
    "authentication": 401,
    "invalidapikey": 401,
    "unauthenticated": 401,
    "billing": 402,
    "permission": 403,
    "permissiondenied": 403,
    "modelnotfound": 404,
    "notfound": 404,
    "requesttoolarge": 413,
    "insufficientquota": 429,
    "ratelimit": 429,
    "ratelimited": 429,
    "ratelimitexceeded": 429,
    "resourceexhausted": 429,
    "throttling": 429,
    "toomanyrequests": 429,
    "api": 500,
    "internal": 500,
    "internalserver": 500,
    "server": 500,
    "badgateway": 502,
    "serviceunavailable": 503,
    "unavailable": 503,
    "deadlineexceeded": 504,
    "gatewaytimeout": 504,
    "timeout": 504,
    "overloaded": 529,
}
_CODE_KEYS: Final = ("code", "type", "status", "status_code")
_NUMBER: Final = re.compile(r"[45]\d\d")
_BEGINS: Final = re.compile(r"\s*([45]\d\d)\b")
_WAIT_MAX_S: Final = 1e9


class Complaint(msgspec.Struct, frozen=True):
    """Holds a provider's error message.

    `text` is one short line. `code` is the provider's own word for the case, if any. `status` is
    the HTTP status that the case has, or 0 if it is not known. `retry_after_s` is the wait that the
    body asks for. `whole` is everything that was said, of limited length: proxies put the words
    that tell the case deep inside.
    """

    text: str = ""
    code: str = ""
    status: int = 0
    retry_after_s: float | None = None
    whole: str = ""


def complaint(body: bytes) -> Complaint:
    """Return what the body of an error says."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        words = _page(body[:_BODY_MAX])
        return Complaint(_short(words), whole=words[:_WHOLE_MAX])
    # A separator, so that no phrase is found that begins in one text and ends in another.
    whole = "; ".join(islice(_words_in(value, depth=6), _WORDS_MAX))
    return msgspec.structs.replace(_found(value, depth=4), whole=whole[:_WHOLE_MAX])


def _words_in(value: object, *, depth: int) -> Iterator[str]:
    """Yield all texts of a JSON value, and its numbers with their names, in their order."""
    inside: Sequence[tuple[str, object]] = ()
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = [("", each) for each in value]
    for name, each in inside if depth else ():
        if isinstance(each, str):
            yield each[:_WHOLE_MAX]
        elif isinstance(each, int | float):
            yield f"{name} {each}"
        else:
            yield from _words_in(each, depth=depth - 1)


def _found(value: object, *, depth: int) -> Complaint:
    """Return the outermost message of a JSON value, or only the word for the case. `depth` bounds
    how deeply it is searched."""
    if isinstance(value, str):
        begins = _BEGINS.match(value)
        return Complaint(_short(value), status=int(begins[1]) if begins else 0)
    if isinstance(value, list) and value and depth:
        return _found(value[0], depth=depth - 1)
    if not isinstance(value, dict) or not depth:
        return Complaint()
    message = value.get("message")
    if isinstance(message, str) and message:
        return _case(value, message)
    for key in ("error", "detail", "msg"):
        if value.get(key):
            return _found(value[key], depth=depth - 1)
    return _case(value, "")


def _case(value: Mapping[str, object], message: str) -> Complaint:
    """Return the complaint that one JSON object holds."""
    words = [value.get(key) for key in _CODE_KEYS]
    code = next((word for word in words if isinstance(word, str) and word), "")
    given = value.get("retry_after")
    wait_s = float(given) if isinstance(given, int | float) else -1.0
    return Complaint(
        text=_short(message or code),
        code=code,
        status=_status(words),
        retry_after_s=wait_s if 0 <= wait_s <= _WAIT_MAX_S else None,
    )


def _status(words: Sequence[object]) -> int:
    """Return the HTTP status that the provider's words name, as a number or as a known word; 0 if
    none."""
    texts = [str(word) for word in words if isinstance(word, str | int)]
    numbers = [int(text) for text in texts if _NUMBER.fullmatch(text)]
    known = [_STATUS_BY_WORD.get(_plain(text), 0) for text in texts]
    return next((status for status in (*numbers, *known) if status), 0)


def _plain(word: str) -> str:
    """Bring `rate_limit_error`, `RateLimitError` and `RATE_LIMIT` into one form."""
    return re.sub(r"[^a-z]", "", word.lower()).removesuffix("error")


def _page(page: bytes) -> str:
    """Return the title of an HTML page, or else its words.

    The page may be hostile, so every search continues behind the one before, which keeps the time
    linear.
    """
    if b"<" not in page:
        return page.decode("utf-8", "replace")
    told = _title(page)
    return html.unescape((told if told.strip() else _words(page)).decode("utf-8", "replace"))


def _title(page: bytes) -> bytes:
    # For bytes, `lower` changes ASCII letters only, so positions stay the same.
    names = page.lower()
    tag = names.find(b"<title")
    begin = names.find(b">", tag) if tag >= 0 else -1
    end = names.find(b"</title>", begin) if begin >= 0 else -1
    return page[begin + 1 : end] if end >= 0 else b""


def _words(page: bytes) -> bytes:
    """Return the text outside of all tags."""
    names = page.lower()
    kept, at = [], 0
    endless: set[bytes] = set()
    while (tag := page.find(b"<", at)) >= 0:
        end = _behind_hidden(names, tag, endless) or page.find(b">", tag) + 1
        if not end:
            break
        kept.append(page[at:tag])
        at = end
    return b" ".join([*kept, page[at:]])


def _behind_hidden(names: bytes, tag: int, endless: set[bytes]) -> int:
    """Return where a hidden element that begins at `tag` ends, or 0 if none begins here.

    `endless` holds elements that have no end in the rest of the page, so that it is searched once.
    """
    hidden = next((each for each in _HIDDEN if names.startswith(each, tag + 1)), b"")
    behind = names[tag + 1 + len(hidden) : tag + 2 + len(hidden)]
    if not hidden or hidden in endless or behind.isalnum() or behind == b"_":
        return 0
    end = names.find(b"</%s>" % hidden, tag)
    if end < 0:
        endless.add(hidden)
        return 0
    return end + len(hidden) + len(b"</>")


def _short(text: str) -> str:
    """Return the text as one short line of printable characters."""
    words = " ".join(text.split())
    printable = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words
    )
    return printable if len(printable) <= _TEXT_MAX else f"{printable[: _TEXT_MAX - 1]}…"
