"""What goes to the terminal. Stored text is other people's: it prints, it does not steer."""

from datetime import UTC, datetime
from typing import Final

import msgspec

_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def print_json(document: object) -> None:
    print(msgspec.json.encode(document).decode())


def clean(text: str) -> str:
    """Without control characters: a message must not move the cursor or rename the window."""
    return text.translate(_CONTROL)


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
