"""Decides which of the older pictures of a conversation are not sent again.

Every request tells the whole history, so each picture in it is paid for again and again. Once there
are more than an agent's `pictures`, the oldest ones become a line of words. That changes the
beginning of the request, which the provider has then to read anew. So it happens in steps: half of
the allowed number goes at once, and until that room is used up again, nothing changes.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.journal.attachments import PICTURES
from perdure.domain.journal.events import Attachment
from perdure.domain.prompt.prompt import MediaBlock, PromptBlock, PromptMessage

# How many pictures a request has at most if an agent's configuration says nothing.
PICTURES_KEPT: Final = 20
NOT_AGAIN: Final = "a picture from earlier in this conversation, which is not shown again"


def is_shown(attachment: Attachment) -> bool:
    """Tell whether a file is a picture that a model with eyes is shown."""
    is_taken = attachment.mime in PICTURES or bool(attachment.shown)
    return attachment.media is not None and is_taken and not attachment.problem


def picture_count(messages: Sequence[PromptMessage]) -> int:
    """Return how many pictures these messages have."""
    blocks = (block for message in messages for block in message.blocks)
    return sum(isinstance(block, MediaBlock) and is_shown(block.attachment) for block in blocks)


def old_pictures(*, before: int, own: int, kept: int) -> int:
    """Return how many of the oldest pictures are left out, if there were so many `before` a turn
    that has some of its `own`. A turn's own pictures are always shown."""
    step = max(kept // 2, 1)
    too_many = max(before + own - kept, 0)
    return min(-(-too_many // step) * step, before)


def without_old(messages: Sequence[PromptMessage], count: int) -> list[PromptMessage]:
    """Return the messages with a line of words in the place of their first pictures."""
    told = []
    for message in messages:
        blocks = []
        for block in message.blocks:
            is_old = count > 0 and isinstance(block, MediaBlock) and is_shown(block.attachment)
            blocks.append(_in_words(block) if is_old else block)
            count -= is_old
        told.append(msgspec.structs.replace(message, blocks=tuple(blocks)))
    return told


def _in_words(block: PromptBlock) -> PromptBlock:
    """Return a picture as one that is only named."""
    assert isinstance(block, MediaBlock)
    return MediaBlock(attachment=msgspec.structs.replace(block.attachment, problem=NOT_AGAIN))
