"""Declares the chat agent's name and settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

KIND: Final = "chat"

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the settings of one model behind one server. `name` is the agent's name in error texts.

    `first_token_timeout_s` counts from the request to the first token, `silence_timeout_s` from one
    piece of the answer to the next.
    """

    name: str = "main"
    api: Literal["openai", "anthropic"] = "openai"
    base_url: str
    model: str
    api_key: str | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: Literal["", "low", "medium", "high", "off"] = ""
    connect_timeout_s: float = 10.0
    first_token_timeout_s: float = 120.0
    silence_timeout_s: float = 60.0

    @property
    def thinker(self) -> str:
        """Return a name for this model at this server on this wire. Reasoning is given back only to
        the model that it came from."""
        return f"{self.api} {urlsplit(self.base_url).netloc.rpartition('@')[2]} {self.model}"

    def __repr__(self) -> str:
        """Return a text without the key and the headers, which must not appear in tracebacks or
        logs."""
        return f"ChatSettings({self.name!r}, {self.api!r}, {self.model!r})"
