"""What the chat agent is called and what can be set."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

KIND: Final = "chat"

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One model behind one server. `name` is what people call this agent; errors mention it."""

    name: str = "main"
    api: Literal["openai", "anthropic"] = "openai"
    base_url: str
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    max_tokens: int | None = None
    temperature: float | None = None
    connect_timeout_s: float = 10.0
    first_token_timeout_s: float = 120.0
    silence_timeout_s: float = 60.0

    def __repr__(self) -> str:
        """Without the key and the headers: a traceback or a log line must not tell them."""
        return f"ChatSettings({self.name!r}, {self.api!r}, {self.model!r})"
