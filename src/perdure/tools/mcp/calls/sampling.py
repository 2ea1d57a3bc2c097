"""Passes what a tool server asks a model on to the model of the turn's agent.

The server's own words are all that the model is told. What the server only wishes (which model, how
warm, what else to tell it) is left out, as the protocol allows.
"""

from typing import Any, Final, Literal

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.prompt.prompt import PromptMessage, Role, TextBlock
from perdure.domain.text import storable
from perdure.ports.turns.tools import ToolCaller, WordsAsked, WordsGiven
from perdure.tools.mcp.link import Sampler

# How much a server may ask at once.
CHARS_MAX: Final = 200_000
_MESSAGES_MAX: Final = 200
_STOPS_MAX: Final = 4
_STOP_CHARS_MAX: Final = 100


class _Piece(msgspec.Struct, frozen=True):
    type: str
    text: str = ""


class _Said(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: _Piece | list[_Piece]

    @property
    def pieces(self) -> list[_Piece]:
        return self.content if isinstance(self.content, list) else [self.content]


class _Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Holds what is read of a request. Everything else in it is a wish."""

    messages: list[_Said]
    max_tokens: int
    system_prompt: str | None = None
    stop_sequences: list[str] | None = None
    tools: list[msgspec.Raw] | None = None


def sampler_for(caller: ToolCaller) -> Sampler:
    """Return what answers the server of a call."""

    async def answer(request: dict[str, Any], /) -> dict[str, Any]:
        asked = words_asked(request)
        caller.report("the server asks the model")
        return _result(await caller.ask_model(asked))

    return answer


def words_asked(request: dict[str, Any]) -> WordsAsked:
    """Return what a server asks. Raises `Rejected` with words for the server."""
    try:
        asked = msgspec.convert(request, _Request)
    except msgspec.ValidationError as error:
        raise Rejected(f"this is no request to a model: {error}") from error
    if asked.tools:
        raise Rejected("the model is asked for words only, without tools")
    pieces = [piece for said in asked.messages for piece in said.pieces]
    if any(piece.type != "text" for piece in pieces):
        raise Rejected("the model is asked with text only: no pictures, no sound, no tool results")
    size = len(asked.system_prompt or "") + sum(len(piece.text) for piece in pieces)
    if size > CHARS_MAX or max(len(asked.messages), len(pieces)) > _MESSAGES_MAX:
        raise Rejected(
            f"the model is asked with at most {CHARS_MAX:,} characters in {_MESSAGES_MAX} messages"
        )
    if asked.max_tokens < 1 or not asked.messages or asked.messages[-1].role != "user":
        raise Rejected("the last message must be the user's, and maxTokens at least 1")
    stops = asked.stop_sequences or []
    if len(stops) > _STOPS_MAX or any(not 0 < len(each) <= _STOP_CHARS_MAX for each in stops):
        raise Rejected(f"at most {_STOPS_MAX} short stopSequences can be kept")
    return WordsAsked(
        messages=tuple(_message(said) for said in asked.messages),
        tokens_max=asked.max_tokens,
        instructions=storable(asked.system_prompt or ""),
        stop=tuple(map(storable, stops)),
    )


def _message(said: _Said) -> PromptMessage:
    blocks = tuple(TextBlock(storable(piece.text)) for piece in said.pieces)
    return PromptMessage(role=Role(said.role), blocks=blocks)


def _result(given: WordsGiven) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": {"type": "text", "text": given.text},
        "model": given.model,
        "stopReason": "maxTokens" if given.is_cut else "endTurn",
    }
