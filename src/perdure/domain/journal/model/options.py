"""Holds what a caller asks of one model call besides the words: how it samples, how long the answer
may be, and which form it has. Options apply to that call only; where they say nothing, the agent's
own settings apply."""

from collections.abc import Mapping
from typing import Final

import msgspec

NO_EFFORT: Final = "none"
# How much a model is to reason: our words, with those of the chat completions API.
EFFORTS: Final[Mapping[str, str]] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "off": NO_EFFORT,
}


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds options under their names in the chat completions API. `response_format` and
    `tool_choice` are JSON text as it came, or empty if nothing was asked; `tool_choice` is about
    the caller's own tools."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str = ""
    response_format: str = ""
    tool_choice: str = ""
    parallel_tool_calls: bool | None = None

    def with_effort(self, effort: str) -> "Options":
        """Return the options with one of our words for how much the model is to reason, unless they
        say that already."""
        if self.reasoning_effort or not effort:
            return self
        return msgspec.structs.replace(self, reasoning_effort=EFFORTS.get(effort, effort))

    def within(self, max_tokens: int | None) -> int | None:
        """Return how long the answer may be: the lower of the caller's limit and the agent's, or
        None if there is neither."""
        limits = [limit for limit in (self.max_tokens, max_tokens) if limit is not None]
        return min(limits, default=None)


NONE = Options()
