"""What goes to the terminal. Stored text is other people's: it prints, it does not steer."""

import json
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Embeddings, overrides and isolates: they let what follows be shown in another order than it has.
_BIDIRECTIONAL: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN: Final = _CONTROL | {code: f"<U+{code:04X}>" for code in _BIDIRECTIONAL}
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in (*range(127, 160), *_BIDIRECTIONAL)}


def print_json(document: object) -> None:
    """Print JSON. What would steer a terminal is escaped as JSON has it, which changes nothing for
    the machines that read it. So are letters that the output's encoding lacks."""
    text = in_json(msgspec.json.encode(document).decode())
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.json.decode(text), separators=(",", ":"))
    # At once, so that output which takes nothing is found before the verb says how it ended.
    print(text, flush=True)


def in_json(text: str) -> str:
    """The same JSON, with what would steer a terminal escaped."""
    return text.translate(_IN_JSON)


def clean(text: str) -> str:
    """Without control characters: a message must not move the cursor or rename the window. What
    would turn the order of letters around is shown by its number instead."""
    return text.translate(_SHOWN)


def one_line(text: str, *, length: int = 80) -> str:
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= length else f"{flat[: length - 1]}…"


def when(at_ms: int) -> str:
    """In this machine's time zone."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def lasting(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"
