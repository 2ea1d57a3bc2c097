"""The Anthropic messages wire, outward: messages and requests as bytes.

Three places carry a cache marker: the last tool, the last system block and the last message. None
of them is in the encoded history, whose bytes therefore stay the same from request to request.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from perdure.agents.chat.anthropic_blocks import (
    AnyBlock,
    CacheControl,
    Text,
    marked,
    wire_block,
)
from perdure.agents.chat.anthropic_context import Turns, turns
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.pieces import separated
from perdure.agents.chat.tool_text import tool_name
from perdure.domain.errors import Rejected
from perdure.domain.prompt import Message, Note, Request, Role

VERSION: Final = "2023-06-01"
# The wire requires a number; this many tokens every model since 2024 accepts.
MAX_TOKENS: Final = 8192
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


_tools_decoder: Final = msgspec.json.Decoder(list[_OpenAiTool])


def url(base_url: str) -> str:
    base = base_url.rstrip("/")
    return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"


def headers(settings: ChatSettings) -> Mapping[str, str]:
    key = {"x-api-key": settings.api_key} if settings.api_key else {}
    return {"anthropic-version": VERSION, **key}


def encode(message: Message) -> bytes:
    return _json(_WireMessage(message.role, [wire_block(block) for block in message.blocks]))


def body(request: Request, settings: ChatSettings) -> list[bytes]:
    earlier = turns(request.context)
    if earlier.messages and request.history:
        raise Rejected("a conversation's history and a caller's cannot be mixed; send one")
    limit = settings.max_tokens if settings.max_tokens is not None else MAX_TOKENS
    messages = [*request.history, *_messages(request, earlier)]
    return [
        b'{"model":',
        _json(settings.model),
        b',"stream":true,"max_tokens":%d' % limit,
        b"" if settings.temperature is None else _temperature(settings.temperature),
        _tools(request.tools) if request.tools else b"",
        _system([request.instructions, *earlier.system]),
        b',"messages":[',
        *separated(messages),
        b"]}",
    ]


def _temperature(temperature: float) -> bytes:
    # This wire ends at 1 where the other goes on to 2.
    return b',"temperature":' + _json(min(temperature, 1.0))


def _system(texts: list[str]) -> bytes:
    blocks: list[AnyBlock] = [Text(text=text) for text in texts if text.strip()]
    if not blocks:
        return b""
    return b',"system":' + _json([*blocks[:-1], marked(blocks[-1])])


def _tools(tools: str) -> bytes:
    """The tools in this wire's shape. An agent's own are the same text at every call; a caller's
    can be of any size, and large ones are not kept."""
    return _translated_once(tools) if len(tools) <= _KEPT_MAX else _translated(tools)


@lru_cache(maxsize=64)
def _translated_once(tools: str) -> bytes:
    return _translated(tools)


def _translated(tools: str) -> bytes:
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


def _messages(request: Request, earlier: Turns) -> Iterator[bytes]:
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


def _encode_last(message: Message) -> bytes:
    """Mark the last block that the next request will hold too; a note is in this one only."""
    blocks = [wire_block(block) for block in message.blocks]
    lasting = [i for i, block in enumerate(message.blocks) if not isinstance(block, Note)]
    place = lasting[-1] if lasting else len(blocks) - 1
    blocks[place] = marked(blocks[place])
    return _json(_WireMessage(message.role, blocks))
