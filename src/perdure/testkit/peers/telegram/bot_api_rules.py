"""Checks what a Bot API server accepts, by the published rules.

Telegram would silently repair the marks of a text. This server refuses them, so that a test sees
the mistake.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

TEXT_MAX: Final = 4096
CAPTION_MAX: Final = 1024
RICH_MAX: Final = 32_768
PHOTO_BYTES_MAX: Final = 10 * 1024 * 1024
UPLOAD_BYTES_MAX: Final = 50 * 1024 * 1024
DOWNLOAD_BYTES_MAX: Final = 20 * 1024 * 1024
DATA_BYTES_MAX: Final = 64
MARKS_MAX: Final = 100

_LOOKS: Final = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
_CODE: Final = frozenset({"pre", "code"})
_QUOTES: Final = frozenset({"blockquote", "expandable_blockquote"})
_KINDS: Final = _LOOKS | _CODE | _QUOTES | {"text_link"}
_IMAGES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")
# Some of the reactions that Telegram lists. All others are refused here.
REACTIONS: Final = frozenset("👍👎❤🔥🥰👏😁🤔🤯😱🎉🤩🙏👌💯🤣⚡🏆💔🤨😐👀🙈😇🤝✍🤗🫡🗿🆒😎")


def text_problem(text: object, marks: object, limit: int = TEXT_MAX) -> str:
    """Return why a text with these marks is refused, or an empty string if it is accepted."""
    if not isinstance(text, str) or not text.strip():
        return "message text is empty"
    units = text.encode("utf-16-le")
    if len(units) // 2 > limit:
        return "message is too long"
    if not isinstance(marks, list) or not all(isinstance(mark, dict) for mark in marks):
        return "entities must be a list of objects"
    if len(marks) > MARKS_MAX:
        return "too many entities"
    return next(filter(None, (_mark_problem(units, mark) for mark in marks)), "") or _nesting(marks)


def _mark_problem(units: bytes, mark: Mapping[str, Any]) -> str:
    start, length = mark.get("offset"), mark.get("length")
    if mark.get("type") not in _KINDS:
        return f"unknown entity {mark.get('type')!r}"
    if not isinstance(start, int) or not isinstance(length, int) or start < 0 or length <= 0:
        return f"entity {mark} stands nowhere"
    if 2 * (start + length) > len(units):
        return f"entity {mark} ends behind the text"
    if any(_is_low(units, at) for at in (start, start + length)):
        return f"entity {mark} cuts a character"
    is_link = mark["type"] == "text_link"
    if is_link != bool(mark.get("url")) or (mark.get("language") and mark["type"] != "pre"):
        return f"entity {mark} has fields of another kind"
    return ""


def _is_low(units: bytes, at: int) -> bool:
    """Tell whether the second half of a surrogate pair stands here, so that a cut would divide a
    character."""
    return 2 * at < len(units) and 0xDC <= units[2 * at + 1] <= 0xDF


def _nesting(marks: Sequence[Mapping[str, Any]]) -> str:
    """Return how marks may not stand in each other, or an empty string."""
    for index, first in enumerate(marks):
        for second in marks[index + 1 :]:
            problem = _pair_problem(first, second)
            if problem:
                return problem
    return ""


def _pair_problem(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return why two marks may not overlap, or an empty string if they may."""
    a, b = sorted((first, second), key=lambda mark: (mark["offset"], -mark["length"]))
    a_end, b_end = a["offset"] + a["length"], b["offset"] + b["length"]
    if b["offset"] >= a_end:
        return ""
    kinds = {a["type"], b["type"]}
    if b_end > a_end:
        return f"entities {a} and {b} cross"
    if a["type"] == b["type"] or (kinds & _CODE and not kinds & _QUOTES):
        return f"entity {b} may not stand in {a}"
    return ""


def keyboard_problem(markup: object) -> str:
    """Return why these buttons are refused, or an empty string if they are accepted."""
    if markup is None:
        return ""
    rows = markup.get("inline_keyboard") if isinstance(markup, dict) else None
    if not isinstance(rows, list):
        return "object expected as reply markup"
    for button in (button for row in rows for button in row):
        data = button.get("callback_data", "").encode()
        if not button.get("text") or not 0 < len(data) <= DATA_BYTES_MAX:
            return "BUTTON_DATA_INVALID"
    return ""


def rich_problem(rich: object) -> str:
    """Return why a rich message is refused, or an empty string if it is accepted."""
    if (
        not isinstance(rich, dict)
        or sum(key in rich for key in ("markdown", "html", "blocks")) != 1
    ):
        return "exactly one of markdown, html and blocks must be given"
    markdown = rich.get("markdown", "")
    if not isinstance(markdown, str) or not 0 < len(markdown) <= RICH_MAX:
        return "RICH_MESSAGE_TOO_LONG"
    return ""


def photo_problem(data: bytes) -> str:
    """Return why a photo is refused, or an empty string if it is accepted."""
    if len(data) > PHOTO_BYTES_MAX:
        return "file is too big"
    return "" if data.startswith(_IMAGES) else "IMAGE_PROCESS_FAILED"
