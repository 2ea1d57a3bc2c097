"""Declares the demo agent's name and settings."""

from typing import Final

import msgspec

KIND: Final = "demo"


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the settings. `delay_ms` is the pause between words, unless a question names its
    own."""

    delay_ms: int = 0
