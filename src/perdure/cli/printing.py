"""Prints to the terminal. Stored text was written by other people, so it must not control the
terminal."""

import json
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from perdure.domain.text import BIDIRECTIONAL, without_disguise

_IN_JSON: Final = {code: f"\\u{code:04x}" for code in (*range(127, 160), *BIDIRECTIONAL)}


def print_json(document: object) -> None:
    """Print JSON. Characters that would control a terminal are escaped as JSON allows, which
    changes nothing for programs that read it. So are letters that the output's encoding lacks."""
    text = in_json(msgspec.json.encode(document).decode())
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.json.decode(text), separators=(",", ":"))
    # Flush at once, so that closed output is noticed before the verb says how it ended.
    print(text, flush=True)


def in_json(text: str) -> str:
    """Return the same JSON, with characters escaped that would control a terminal."""
    return text.translate(_IN_JSON)


def clean(text: str) -> str:
    """Return the text without control characters: a message must not move the cursor or rename the
    window. Characters that change the order of letters are shown by their number."""
    return without_disguise(text)


def short_line(text: str, *, length: int = 80) -> str:
    """Return the text in one line, shortened."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= length else f"{flat[: length - 1]}…"


def when(at_ms: int) -> str:
    """Return a time in this machine's time zone."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def lasting(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"
