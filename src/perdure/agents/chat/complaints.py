"""What a provider says went wrong, in its own words, whatever shape it says it in.

Most send {"error": {"message": …}}; others a bare string, {"detail": …}, a list with such an
object in it, plain text, or the HTML page of a proxy that stands before them. An error inside a
stream has no HTTP status, so it is read from the provider's own word for the case.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_TEXT_MAX: Final = 300
# What stands between these and their ends is not for people.
_HIDDEN: Final = (b"script", b"style", b"head")
_BODY_MAX: Final = 64 * 1024


# By the provider's word, without case, signs and a last "error"; see `_plain`.
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
    """`text` is one line and short; `code` is the provider's own word for the case, if any.
    `status` is the HTTP status that the case has, 0 if that cannot be told; `retry_after_s` is the
    wait that the provider asks for in its words."""

    text: str = ""
    code: str = ""
    status: int = 0
    retry_after_s: float | None = None


def complaint(body: bytes) -> Complaint:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Complaint(_short(_page(body[:_BODY_MAX])))
    return _found(value, depth=4)


def _found(value: object, *, depth: int) -> Complaint:
    """The message nearest to the outside; without one, the word for the case."""
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
    """The HTTP status among a provider's words for a case: a number, or what a word stands for."""
    texts = [str(word) for word in words if isinstance(word, str | int)]
    numbers = [int(text) for text in texts if _NUMBER.fullmatch(text)]
    known = [_STATUS_BY_WORD.get(_plain(text), 0) for text in texts]
    return next((status for status in (*numbers, *known) if status), 0)


def _plain(word: str) -> str:
    """Make one of `rate_limit_error`, `RateLimitError` and `RATE_LIMIT`."""
    return re.sub(r"[^a-z]", "", word.lower()).removesuffix("error")


def _page(page: bytes) -> str:
    """The title of an HTML page, else its words. A page is as hostile as anything that comes from
    outside, so each mark is looked for only behind the one before it."""
    if b"<" not in page:
        return page.decode("utf-8", "replace")
    told = _title(page)
    return html.unescape((told if told.strip() else _words(page)).decode("utf-8", "replace"))


def _title(page: bytes) -> bytes:
    names = page.lower()  # of bytes only ASCII has another case, so positions stay
    tag = names.find(b"<title")
    begin = names.find(b">", tag) if tag >= 0 else -1
    end = names.find(b"</title>", begin) if begin >= 0 else -1
    return page[begin + 1 : end] if end >= 0 else b""


def _words(page: bytes) -> bytes:
    """What stands outside of all tags."""
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
    """Return where a part that is not for people ends; 0 if none begins here. `endless` are those
    of which no end follows: they are looked for once."""
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
    words = " ".join(text.split())
    printable = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words
    )
    return printable if len(printable) <= _TEXT_MAX else f"{printable[: _TEXT_MAX - 1]}…"
