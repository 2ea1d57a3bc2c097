"""Shows operators what a model was asked: every block with its kind, and notes marked as notes."""

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import TurnId
from perdure.domain.journal.attachments import shown_attachments
from perdure.domain.prompt.prompt import (
    CallBlock,
    MediaBlock,
    Note,
    PromptBlock,
    ResultBlock,
    TextBlock,
    ThoughtBlock,
    weave,
)
from perdure.domain.turn.rebuilding import StoredRequest, history_in, own_in, spoken_in
from perdure.ports.records.history import Explanation
from perdure.web import wire


def turn_asked(found: Explanation) -> TurnId:
    """Return the turn whose request is wanted. Raises `NotFound` if there is none."""
    if found.turn is None:
        raise NotFound("this became no turn, so no model was asked")
    return found.turn.id


def request_out(asked: StoredRequest, encoded: bytes | None = None) -> wire.RequestOut:
    """Return a request as the API shows it. `encoded` holds its messages as its agent's wire
    encodes them."""
    final, newest = weave(None, [*history_in(asked), *own_in(asked)])
    messages = [*final, newest] if newest else final
    spoken = spoken_in(asked)
    return wire.RequestOut(
        agent=asked.basis.agent,
        instructions=spoken.instructions,
        memory=spoken.memory,
        tools=spoken.tools,
        context=asked.queued.context,
        options=asked.queued.asking,
        missing=list(spoken.missing),
        messages=[
            wire.AskedMessageOut(role=each.role, blocks=[_block(block) for block in each.blocks])
            for each in messages
        ],
        encoded=msgspec.Raw(b"null" if encoded is None else encoded),
    )


def _block(block: PromptBlock) -> wire.BlockOut:
    match block:
        case TextBlock(text=text):
            return wire.BlockOut(kind="text", text=text)
        case Note(text=text):
            return wire.BlockOut(kind="note", text=text, stored=False)
        case ThoughtBlock(kind=kind):
            # Whoever wants to read the thought itself finds it in the journal.
            return wire.BlockOut(kind="thought", name=kind)
        case CallBlock(id=call, name=name, arguments=arguments):
            return wire.BlockOut(kind="call", call=call, name=name, arguments=arguments)
        case ResultBlock(call=call, text=text, is_error=is_error):
            return wire.BlockOut(kind="result", call=call, text=text, is_error=is_error)
        case MediaBlock(attachment=attachment):
            (file,) = shown_attachments([attachment])
            told = msgspec.structs.replace(file, text=attachment.text)
            return wire.BlockOut(kind="file", file=told)
