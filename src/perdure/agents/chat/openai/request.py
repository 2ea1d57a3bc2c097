"""Encodes messages and requests for the OpenAI chat-completions wire.

A request is joined from pieces, and the encoded history is put in unopened: it can be a megabyte,
and providers' caches need requests that begin with the same bytes.

The content of a message that holds only text is one string, because many compatible servers accept
no list of parts. The form of a message follows only from its blocks, so a message that no longer
changes has the same bytes in every request.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from perdure.agents.chat.images import label, picture
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.openai.context import BETWEEN_TEXTS, inside
from perdure.agents.chat.pieces import members, raw, separated
from perdure.agents.chat.reasoning.collected import EXTRA
from perdure.agents.chat.reasoning.efforts import effort_for, is_reasoning
from perdure.agents.chat.tool_text import arguments_object, tool_name
from perdure.domain.errors import Rejected
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    ModelRequest,
    Note,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    ThoughtBlock,
)
from perdure.domain.urls import below

# Newer models of OpenAI itself refuse `max_tokens`, the name that every compatible server knows.
_MAKER: Final = "api.openai.com"

_json: Final = msgspec.json.Encoder().encode


class _TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str


class _ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


_Part = _TextPart | _ImagePart


class _UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    content: str | list[_Part]


class _SystemMessage(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    content: str


class _ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: _Function
    extra_content: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _AssistantMessage(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"
):
    content: str | None
    reasoning_content: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reasoning: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reasoning_details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[_ToolCall] | msgspec.UnsetType = msgspec.UNSET


class _Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the options of a request. Options that are not set are left out."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str = ""
    response_format: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    tool_choice: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parallel_tool_calls: bool | None = None


def url(base_url: str) -> str:
    """Return the URL to which requests are posted."""
    return below(base_url, "chat/completions")


def headers(settings: ChatSettings) -> Mapping[str, str]:
    """Return the headers that carry the key."""
    return {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}


def encode(message: PromptMessage) -> bytes:
    """Encode one message, as one or more JSON objects joined by commas."""
    if message.role is Role.ASSISTANT:
        return _json(_assistant(message))
    return b",".join(map(_json, _user(message)))


def _user(message: PromptMessage) -> Iterator[_ToolMessage | _UserMessage]:
    """Yield the wire messages of a user message: each tool result is a message of its own."""
    parts: list[_Part] = []
    for block in message.blocks:
        match block:
            case ResultBlock(call=call, text=text):
                yield _ToolMessage(tool_call_id=call, content=text)
            case TextBlock(text) | Note(text):
                parts.append(_TextPart(text))
            case MediaBlock():
                parts.append(_media(block))
            case CallBlock() | ThoughtBlock():
                raise Rejected("a user message cannot hold a tool call; report this as a bug")
    if parts:
        yield _UserMessage(content=_content(parts))


def _content(parts: list[_Part]) -> str | list[_Part]:
    """Return the parts as one string if all of them are text, else as they are."""
    texts = [part.text for part in parts if isinstance(part, _TextPart)]
    return BETWEEN_TEXTS.join(texts) if len(texts) == len(parts) else parts


def _media(block: MediaBlock) -> _Part:
    """Return an image as a data URL, and any other file as a line of text."""
    seen = picture(block)
    if seen is None:
        return _TextPart(label(block))
    mime, data = seen
    return _ImagePart(_ImageUrl(f"data:{mime};base64,{data}"))


def _assistant(message: PromptMessage) -> _AssistantMessage:
    texts = [block.text for block in message.blocks if isinstance(block, TextBlock | Note)]
    calls: list[_ToolCall] = []
    # Each field has the name under which the server sent it.
    thoughts: dict[str, msgspec.Raw | msgspec.UnsetType] = {}
    for block in message.blocks:
        if isinstance(block, ThoughtBlock):
            thoughts[block.kind] = raw(block.body)
        elif isinstance(block, CallBlock):
            function = _Function(tool_name(block.name), arguments_object(block.arguments))
            # Unlike thoughts, this belongs to the call before which it stands.
            extra = thoughts.pop(EXTRA, msgspec.UNSET)
            calls.append(_ToolCall(id=block.id, function=function, extra_content=extra))
    return _AssistantMessage(
        content=BETWEEN_TEXTS.join(texts) if texts else None,
        tool_calls=calls or msgspec.UNSET,
        **thoughts,
    )


def body(request: ModelRequest, settings: ChatSettings) -> list[bytes]:
    """Return the request in pieces. The stretches of history in it are not copied."""
    messages = [_json(_SystemMessage(request.instructions))] if request.instructions else []
    earlier = inside(request.context)
    messages += [earlier, *request.history, *map(encode, request.messages)]
    return [
        b'{"model":',
        _json(settings.model),
        b',"stream":true,"stream_options":{"include_usage":true}',
        _options(request, settings),
        b',"tools":' + request.tools.encode() if request.tools else b"",
        b',"messages":[',
        *separated(messages),
        b"]}",
    ]


def _options(request: ModelRequest, settings: ChatSettings) -> bytes:
    asked = request.options
    limit = asked.within(settings.max_tokens)
    is_maker = urlsplit(settings.base_url).hostname == _MAKER
    effort = effort_for(asked, settings)
    temperature = settings.temperature if asked.temperature is None else asked.temperature
    # The maker's own models refuse to be sampled otherwise than by default while they reason.
    is_fixed = is_maker and is_reasoning(effort)
    choice, in_parallel = "", None
    # Servers refuse a tool choice in a request without tools.
    if request.tools:
        choice, in_parallel = asked.tool_choice, asked.parallel_tool_calls
    return members(
        _Options(
            max_tokens=None if is_maker else limit,
            max_completion_tokens=limit if is_maker else None,
            temperature=None if is_fixed else temperature,
            top_p=None if is_fixed else asked.top_p,
            stop=asked.stop,
            seed=asked.seed,
            frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty,
            reasoning_effort=effort,
            response_format=raw(asked.response_format),
            tool_choice=raw(choice),
            parallel_tool_calls=in_parallel,
        )
    )
