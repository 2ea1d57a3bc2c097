"""What a caller asks of one model call, beyond the words: how it samples, how long it may be, which
form the answer has. It counts for that call only; what it leaves out is the agent's own setting."""

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In the words of chat completions. `response_format` and `tool_choice` are JSON text as it
    came, empty where nothing was asked; a choice among tools means the caller's own tools."""

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

    def within(self, max_tokens: int | None) -> int | None:
        """How long the answer may be, where the agent has a limit of its own."""
        limits = [limit for limit in (self.max_tokens, max_tokens) if limit is not None]
        return min(limits, default=None)


NONE = Options()
