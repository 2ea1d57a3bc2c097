"""Answers errands of the demo agent: it repeats the conversation in fewer words."""

from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.domain.content.stickers import NOTHING
from perdure.domain.kinds import TurnKind
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage, Role, TextBlock

# Words of a title, and characters of each line of a summary.
_TITLE_WORDS: Final = 6
_SHOWN: Final = 60


class _Block(msgspec.Struct):
    text: str = ""


class _Encoded(msgspec.Struct):
    role: str
    blocks: list[_Block]


def errand_answer(request: ModelRequest) -> str:
    """Return a title, a summary, or another short answer, by the errand's purpose."""
    said = [text for text in _said(request) if text.strip()]
    match request.purpose:
        case TurnKind.TITLE:
            return " ".join(said[0].split()[:_TITLE_WORDS]) if said else "Nothing said"
        case TurnKind.SUMMARY:
            lines = [f"- {' '.join(text.split())[:_SHOWN]}" for text in said[-20:]]
            return f"The person said {len(said)} things, the last of them:\n" + "\n".join(lines)
        case TurnKind.STICKER:
            return NOTHING
        case _:
            return "done"


def _said(request: ModelRequest) -> Iterator[str]:
    """Yield the person's messages, oldest first."""
    for stretch in request.history:
        for encoded in msgspec.json.decode(b"[%s]" % stretch, type=list[_Encoded]):
            if encoded.role == Role.USER:
                yield from (block.text for block in encoded.blocks)
    for message in request.messages:
        yield from _words(message)


def _words(message: PromptMessage) -> Iterator[str]:
    if message.role is Role.USER:
        yield from (block.text for block in message.blocks if isinstance(block, TextBlock))
