"""Declares the content blocks of the Anthropic messages wire, and translates ours into them."""

from typing import Final, Literal

import msgspec

from perdure.agents.chat.images import label, picture
from perdure.agents.chat.tool_text import arguments_object, plain_id, tool_name
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    Note,
    PromptBlock,
    ResultBlock,
    TextBlock,
    ThoughtBlock,
)


class CacheControl(msgspec.Struct, frozen=True):
    """Asks the provider to keep the request up to this block in its cache."""

    type: Literal["ephemeral"] = "ephemeral"


class WireBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Holds what all blocks have in common."""

    cache_control: CacheControl | None = None


class AnthropicText(WireBlock, frozen=True, kw_only=True, tag="text"):
    text: str


class Base64Source(msgspec.Struct, frozen=True, tag_field="type", tag="base64"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, frozen=True, tag_field="type", tag="url"):
    url: str


class AnthropicImage(WireBlock, frozen=True, kw_only=True, tag="image"):
    source: Base64Source | UrlSource


class ToolUse(WireBlock, frozen=True, kw_only=True, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class AnthropicToolResult(WireBlock, frozen=True, kw_only=True, tag="tool_result"):
    tool_use_id: str
    content: str = ""
    is_error: bool = False


# A block of reasoning is the JSON text that the server sent.
AnyBlock = AnthropicText | AnthropicImage | ToolUse | AnthropicToolResult | msgspec.Raw

_MARK: Final = CacheControl()


def marked(block: AnyBlock) -> AnyBlock:
    """Return the block with a cache marker. Reasoning is returned as it came."""
    if isinstance(block, msgspec.Raw):
        return block
    return msgspec.structs.replace(block, cache_control=_MARK)


def tool_use(*, call_id: str, name: str, arguments: str) -> ToolUse:
    """Return a tool call in the form that the wire accepts."""
    return ToolUse(
        id=plain_id(call_id),
        name=tool_name(name),
        input=msgspec.Raw(arguments_object(arguments).encode()),
    )


def wire_block(block: PromptBlock) -> AnyBlock:
    """Translate one block of a message."""
    match block:
        case TextBlock(text) | Note(text):
            return AnthropicText(text=text)
        case MediaBlock():
            seen = picture(block)
            return (
                AnthropicImage(source=Base64Source(*seen))
                if seen
                else AnthropicText(text=label(block))
            )
        case ThoughtBlock(body=body):
            return msgspec.Raw(body.encode())
        case CallBlock(id=call_id, name=name, arguments=arguments):
            return tool_use(call_id=call_id, name=name, arguments=arguments)
        case ResultBlock(call=call, text=text, is_error=is_error):
            return AnthropicToolResult(tool_use_id=plain_id(call), content=text, is_error=is_error)
