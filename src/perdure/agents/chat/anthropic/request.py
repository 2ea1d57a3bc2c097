"""Encodes messages and requests for the Anthropic messages wire.

Three places carry a cache marker: the last tool, the last system block and the last message. None
of them is in the encoded history, so its bytes stay the same from request to request.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from perdure.agents.chat.anthropic.blocks import (
    AnthropicText,
    AnyBlock,
    CacheControl,
    marked,
    wire_block,
)
from perdure.agents.chat.anthropic.context import AlternatingMessages, turns
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.pieces import members, separated
from perdure.agents.chat.reasoning.efforts import (
    budget_for,
    effort_for,
    is_reasoning,
    loop_has_thoughts,
)
from perdure.agents.chat.tool_text import tool_name
from perdure.domain.errors import Rejected
from perdure.domain.journal.model.options import Options
from perdure.domain.prompt.prompt import ModelRequest, Note, PromptMessage, Role
from perdure.domain.urls import below

# The version of the API.
VERSION: Final = "2023-06-01"
# The wire requires a number. Every model since 2024 accepts this many tokens.
MAX_TOKENS: Final = 8192
# Longer tool texts are not kept in the cache of translations.
_KEPT_MAX: Final = 64 * 1024

_json: Final = msgspec.json.Encoder().encode


class _WireMessage(msgspec.Struct, frozen=True):
    role: Role
    content: list[AnyBlock]


class _Function(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class _OpenAiTool(msgspec.Struct):
    function: _Function


class _Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    input_schema: dict[str, msgspec.Raw]
    cache_control: CacheControl | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None

    @property
    def is_forced(self) -> bool:
        """Tell whether the model must call a tool. It cannot reason first then."""
        return self.type in ("any", "tool")


class _Reasoning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    budget_tokens: int = 0


_NO_REASONING: Final = _Reasoning(type="disabled")
# The lowest `top_p` that the wire allows while the model reasons.
_TOP_P_MIN: Final = 0.95


class _Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    max_tokens: int
    thinking: _Reasoning | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    tool_choice: _Choice | None = None


class _Named(msgspec.Struct):
    name: str = ""


class _Tagged(msgspec.Struct):
    """Reads the type of a response format, or the function of a tool choice."""

    type: str = ""
    function: _Named = msgspec.field(default_factory=_Named)


_tools_decoder: Final = msgspec.json.Decoder(list[_OpenAiTool])


def url(base_url: str) -> str:
    """Return the URL to which requests are posted, whether or not `base_url` ends with `/v1`."""
    has_version = urlsplit(base_url).path.rstrip("/").endswith("/v1")
    return below(base_url, "messages" if has_version else "v1/messages")


def headers(settings: ChatSettings) -> Mapping[str, str]:
    """Return the headers with the API's version and the key."""
    key = {"x-api-key": settings.api_key} if settings.api_key else {}
    return {"anthropic-version": VERSION, **key}


def encode(message: PromptMessage) -> bytes:
    """Encode one message as a JSON object."""
    return _json(_WireMessage(message.role, [wire_block(block) for block in message.blocks]))


def body(request: ModelRequest, settings: ChatSettings) -> list[bytes]:
    """Return the request in pieces. Raises `Rejected` if this wire cannot express it."""
    earlier = turns(request.context)
    if earlier.messages and request.history:
        raise Rejected("a conversation's history and a caller's cannot be mixed; send one")
    messages = [*request.history, *_messages(request, earlier)]
    return [
        b'{"model":',
        _json(settings.model),
        b',"stream":true',
        _options(request, settings),
        _tools(request.tools) if request.tools else b"",
        _system([request.instructions, *earlier.system]),
        b',"messages":[',
        *separated(messages),
        b"]}",
    ]


def _options(request: ModelRequest, settings: ChatSettings) -> bytes:
    """Return the options of a request as JSON members.

    Options that this wire does not know are left out. Only `response_format` is refused: a program
    that asked for JSON could not use anything else.
    """
    asked = request.options
    if asked.response_format and _kind(asked.response_format) != "text":
        raise Rejected(
            "this model's server knows no `response_format`; leave it out, and say in the message "
            "what form you want"
        )
    is_choosy = asked.tool_choice or asked.parallel_tool_calls is False
    choice = _choice(asked) if request.tools and is_choosy else None
    reasoning = _reasoning(request, settings, is_forced=choice is not None and choice.is_forced)
    budget = reasoning.budget_tokens if reasoning else 0
    limit = asked.within(settings.max_tokens)
    temperature = settings.temperature if asked.temperature is None else asked.temperature
    top_p = asked.top_p
    if budget and top_p is not None and top_p < _TOP_P_MIN:
        top_p = None
    return members(
        _Options(
            # The budget counts as a part of the answer.
            max_tokens=MAX_TOKENS + budget if limit is None else limit,
            thinking=reasoning,
            # This wire allows a temperature up to 1, the OpenAI wire up to 2, and no other than the
            # default while the model reasons.
            temperature=None if temperature is None or budget else min(temperature, 1.0),
            top_p=top_p,
            stop_sequences=asked.stop,
            tool_choice=choice,
        )
    )


def _reasoning(
    request: ModelRequest, settings: ChatSettings, *, is_forced: bool
) -> _Reasoning | None:
    """Return how much the model may reason, or None to leave that to the provider.

    A run of tool calls is one answer to this wire: it is refused if the model is asked to reason in
    the middle of it, and if the model's reasoning is given back without asking for more.
    """
    effort = effort_for(request.options, settings)
    if not effort:
        return None
    begun = loop_has_thoughts(request.messages)
    wanted = is_reasoning(effort) if begun is None else begun
    if not wanted or is_forced:
        return _NO_REASONING
    limit = request.options.within(settings.max_tokens)
    budget = budget_for(effort if is_reasoning(effort) else "low", within=limit)
    if not budget:
        return _NO_REASONING
    return _Reasoning(type="enabled", budget_tokens=budget)


def _kind(tagged: str) -> str:
    return msgspec.json.decode(tagged, type=_Tagged).type


def _choice(asked: Options) -> _Choice:
    """Translate OpenAI's `tool_choice` and `parallel_tool_calls` for this wire."""
    wanted = msgspec.json.decode(asked.tool_choice or '"auto"', type=str | _Tagged)
    one_by_one = True if asked.parallel_tool_calls is False else None
    if isinstance(wanted, _Tagged):
        name = tool_name(wanted.function.name)
        return _Choice(type="tool", name=name, disable_parallel_tool_use=one_by_one)
    if wanted == "none":
        return _Choice(type="none")
    kind = "any" if wanted == "required" else "auto"
    return _Choice(type=kind, disable_parallel_tool_use=one_by_one)


def _system(texts: list[str]) -> bytes:
    """Return the system blocks as a JSON member, the last one with the cache marker."""
    blocks: list[AnyBlock] = [AnthropicText(text=text) for text in texts if text.strip()]
    if not blocks:
        return b""
    return b',"system":' + _json([*blocks[:-1], marked(blocks[-1])])


def _tools(tools: str) -> bytes:
    """Return the tools in this wire's shape, as a JSON member.

    An agent's own tools are the same text at every call, so their translation is kept. A caller's
    tools can be of any size, and large ones are not kept.
    """
    return _translated_once(tools) if len(tools) <= _KEPT_MAX else _translated(tools)


@lru_cache(maxsize=64)
def _translated_once(tools: str) -> bytes:
    return _translated(tools)


def _translated(tools: str) -> bytes:
    """Translate the tools from OpenAI's shape. Raises `Rejected` if they cannot be read."""
    try:
        functions = [tool.function for tool in _tools_decoder.decode(tools)]
    except msgspec.DecodeError as error:
        raise Rejected(f"the tools cannot be read: {error}; fix them") from error
    translated = [
        _Tool(
            name=tool_name(function.name),
            description=function.description,
            input_schema={"type": msgspec.Raw(b'"object"')} | function.parameters,
        )
        for function in functions
    ]
    if not translated:
        return b""
    translated[-1] = msgspec.structs.replace(translated[-1], cache_control=CacheControl())
    return b',"tools":' + _json(translated)


def _messages(request: ModelRequest, earlier: AlternatingMessages) -> Iterator[bytes]:
    """Yield the encoded messages that follow the history, the last one with the cache marker."""
    if not earlier.messages:
        yield from map(encode, request.messages[:-1])
        yield from map(_encode_last, request.messages[-1:])
        return
    for message in request.messages:
        earlier.add(message.role, [wire_block(block) for block in message.blocks])
    for role, blocks in earlier.messages[:-1]:
        yield _json(_WireMessage(role, blocks))
    role, blocks = earlier.messages[-1]
    yield _json(_WireMessage(role, [*blocks[:-1], marked(blocks[-1])]))


def _encode_last(message: PromptMessage) -> bytes:
    """Encode the last message, with the cache marker on its last block that the next request will
    repeat. A note is not repeated: it belongs to this request only."""
    blocks = [wire_block(block) for block in message.blocks]
    lasting = [i for i, block in enumerate(message.blocks) if not isinstance(block, Note)]
    place = lasting[-1] if lasting else len(blocks) - 1
    blocks[place] = marked(blocks[place])
    return _json(_WireMessage(message.role, blocks))
