"""Translates messages that a caller sent in OpenAI's shape for the Anthropic wire.

This wire requires that users and assistants alternate, that a user begins, that system text is
outside of the messages, and that tool results come first in the user message after the calls. A
caller's list keeps none of these rules.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from perdure.agents.chat.anthropic.blocks import (
    AnthropicImage,
    AnthropicText,
    AnthropicToolResult,
    AnyBlock,
    Base64Source,
    UrlSource,
    tool_use,
)
from perdure.agents.chat.tool_text import plain_id
from perdure.domain.errors import Rejected
from perdure.domain.prompt.prompt import Role

_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
# The user message that is put first if a caller's list begins with the assistant.
_BEGINNING: Final = "[the conversation began earlier]"


class _ImageUrl(msgspec.Struct):
    url: str = ""


class _Part(msgspec.Struct):
    type: str = "text"
    text: str = ""
    refusal: str = ""
    image_url: _ImageUrl | str | None = None


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _ToolCall(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Earlier(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str = ""


_earlier: Final = msgspec.json.Decoder(list[_Earlier])


@dataclass(slots=True)
class AlternatingMessages:
    """Collects system text, and messages that alternate between user and assistant."""

    system: list[str] = field(default_factory=list)
    messages: list[tuple[Role, list[AnyBlock]]] = field(default_factory=list)

    def add(self, role: Role, blocks: list[AnyBlock]) -> None:
        """Append blocks, to the last message if it has the same role, else as a new message."""
        if not blocks:
            return
        if not self.messages and role is Role.ASSISTANT:
            self.messages.append((Role.USER, [AnthropicText(text=_BEGINNING)]))
        if self.messages and self.messages[-1][0] is role:
            self.messages[-1][1].extend(blocks)
            # The sort is stable: tool results move to the front, and all else keeps its order.
            self.messages[-1][1].sort(key=lambda block: not isinstance(block, AnthropicToolResult))
        else:
            self.messages.append((role, blocks))


def turns(context: str) -> AlternatingMessages:
    """Read a caller's earlier messages. Raises `Rejected` if they are no messages."""
    result = AlternatingMessages()
    if not context.strip():
        return result
    try:
        earlier = _earlier.decode(context)
    except msgspec.DecodeError as error:
        raise Rejected(f"the earlier messages cannot be read: {error}; fix them") from error
    for message in earlier:
        match message.role:
            case "system" | "developer":
                result.system += [b.text for b in _blocks(message) if isinstance(b, AnthropicText)]
            case "assistant":
                result.add(Role.ASSISTANT, [*_blocks(message), *_calls(message)])
            case "tool" | "function":
                result.add(Role.USER, [_result(message)])
            case _:
                result.add(Role.USER, _blocks(message))
    return result


def _blocks(message: _Earlier) -> list[AnyBlock]:
    """Return the blocks of a message, without empty texts."""
    content = message.content
    if isinstance(content, str):
        return [AnthropicText(text=content)] if content.strip() else []
    blocks = (_block(part) for part in content or ())
    return [block for block in blocks if block is not None]


def _block(part: _Part) -> AnyBlock | None:
    """Translate one part, or return None if it is empty. An unknown part is only named in words."""
    if part.type == "image_url" and part.image_url is not None:
        url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
        data = _DATA_URL.fullmatch(url)
        return AnthropicImage(source=Base64Source(data[1], data[2]) if data else UrlSource(url))
    text = part.text or part.refusal
    if text.strip():
        return AnthropicText(text=text)
    return (
        None if part.type in ("text", "refusal") else AnthropicText(text=f"[attached: {part.type}]")
    )


def _calls(message: _Earlier) -> list[AnyBlock]:
    return [
        tool_use(call_id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
    ]


def _result(message: _Earlier) -> AnthropicToolResult:
    """Translate a tool message into a tool result."""
    texts = [block.text for block in _blocks(message) if isinstance(block, AnthropicText)]
    return AnthropicToolResult(
        tool_use_id=plain_id(message.tool_call_id), content="\n\n".join(texts)
    )
