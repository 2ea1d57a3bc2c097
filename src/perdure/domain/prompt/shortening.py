"""Shortens a conversation to what a summarizing model can read.

First long texts lose their middles, and tool results are cut twice as short as other texts. If that
is not enough, the oldest messages are dropped. What is left is still a valid history.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.prompt.prompt import (
    MediaBlock,
    PromptBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    tokens_of_messages,
)

_LONGEST: Final = 32_000
_SHORTEST: Final = 200


def shortened(messages: Sequence[PromptMessage], *, tokens_max: int) -> list[PromptMessage]:
    """Return the messages with as much of them as fits into `tokens_max`."""
    fitting, limit = list(messages), _LONGEST
    while tokens_of_messages(fitting) > tokens_max and limit >= _SHORTEST:
        fitting = [_cut(message, limit) for message in messages]
        limit //= 2
    while tokens_of_messages(fitting) > tokens_max and len(fitting) > 1:
        fitting = _without_oldest(fitting)
    return fitting


def _cut(message: PromptMessage, limit: int) -> PromptMessage:
    return msgspec.structs.replace(
        message, blocks=tuple(_cut_block(b, limit) for b in message.blocks)
    )


def _cut_block(block: PromptBlock, limit: int) -> PromptBlock:
    match block:
        case ResultBlock(text=text):
            return msgspec.structs.replace(block, text=_ends(text, limit // 2))
        case TextBlock(text=text):
            return TextBlock(_ends(text, limit))
        case MediaBlock(attachment=attachment):
            told = msgspec.structs.replace(attachment, text=_ends(attachment.text, limit))
            return msgspec.structs.replace(block, data=None, attachment=told)
        case _:
            return block


def _ends(text: str, limit: int) -> str:
    """Return the beginning and the end of a long text, with a note about what is left out between
    them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"


def _without_oldest(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """Drop about a tenth of the messages, and then more until the first is a person's."""
    rest = list(messages[max(len(messages) // 10, 1) :])
    while len(rest) > 1 and not _is_begin(rest[0]):
        rest.pop(0)
    return rest


def _is_begin(message: PromptMessage) -> bool:
    """Tell whether a history may begin with this message: a user's message without tool results."""
    return message.role is Role.USER and not any(isinstance(b, ResultBlock) for b in message.blocks)
