"""What the demo agent is called and what can be set."""

from typing import Final

import msgspec

KIND: Final = "demo"


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`delay_ms` is the pause between words of an answer that does not name its own."""

    delay_ms: int = 0
