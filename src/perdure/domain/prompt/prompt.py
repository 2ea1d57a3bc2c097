"""From journal to request.

A request alternates user and assistant messages, begins with a user's and ends with a user's. Tool
results are blocks at the start of the user message that follows the calls. `weave` keeps that shape
by one rule, used always so that bytes stay stable: adjacent messages of one role become one message
with several blocks. `assert_valid` checks the result and repairs nothing: a request that would be
refused by a strict provider is a bug here.

Every message but the newest is final, so its encoded bytes can be kept (`Window`); a request is
those bytes, the few messages after them, and the notes, which exist nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.content.attribution import attributed, in_own_words
from perdure.domain.content.forwards import ForwardedText
from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId, SessionId
from perdure.domain.journal.attachments import FileEnds, as_fetched, given_in_words, places_of
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    Compacted,
    MessageJoined,
    Recorded,
    SteerTaken,
    ToolFinished,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.options import NONE, Options
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding
from perdure.domain.prompt.bounds import ROOM, AnswerRoom
from perdure.domain.prompt.compaction import background
from perdure.domain.prompt.prefix import ChainSource
from perdure.domain.prompt.tokens import IMAGE_TOKENS, MESSAGE_TOKENS, tokens_of


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class TextBlock(msgspec.Struct, frozen=True):
    text: str


class MediaBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A file. `data` is filled in by the engine for what the model can see."""

    attachment: Attachment
    data: bytes | None = None


class CallBlock(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str


class ResultBlock(msgspec.Struct, frozen=True, kw_only=True):
    call: str
    text: str
    is_error: bool


class Note(msgspec.Struct, frozen=True):
    """Guidance for the model. It lives in a request and has no way into the journal."""

    text: str


PromptBlock = TextBlock | MediaBlock | CallBlock | ResultBlock | Note


class PromptMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    blocks: tuple[PromptBlock, ...]


STRETCH_BYTES: Final = 64 * 1024
# What a kept window takes beside its words.
WINDOW_BYTES: Final = 1024
# Before what no model has said: a request begins with a user's message, and this says whose it is.
FROM_ELSEWHERE: Final = "[The following was sent here from elsewhere.]"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """History up to some turn: final messages as bytes, and the newest, which may still grow.

    The bytes stand in stretches: those in `sealed` are long and never copied again, `encoded` is
    what came after them. A turn so costs the same however long the conversation is. `source` says
    how the turns stood that it was made from.
    """

    sealed: tuple[bytes, ...] = ()
    encoded: bytes = b""
    count: int = 0
    newest: PromptMessage | None = None
    tokens: int = 0
    source: ChainSource = ChainSource()

    @property
    def size(self) -> int:
        """About how many bytes it takes to keep it."""
        newest = sum(map(_size_of, self.newest.blocks)) if self.newest else 0
        return WINDOW_BYTES + sum(map(len, self.sealed)) + len(self.encoded) + newest


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an agent needs for one model call, in no provider's words.

    `sealed` and then `prefix` are the agent's own encoding of all messages before `messages`, each
    joined with commas, as they are to be joined with each other.
    `context` and `tools` are JSON text that a caller without a conversation brought along;
    `options` any caller may bring.
    `purpose` names the errand it is made for, if it is for one. `room` is how much may be answered.
    """

    instructions: str
    prefix: bytes
    messages: tuple[PromptMessage, ...]
    context: str = ""
    tools: str = ""
    options: Options = NONE
    sealed: tuple[bytes, ...] = ()
    purpose: str = ""
    room: AnswerRoom = ROOM

    @property
    def history(self) -> tuple[bytes, ...]:
        """The encoded stretches, oldest first. No message lies across two of them."""
        return (*self.sealed, self.prefix) if self.prefix else self.sealed


Encode = Callable[[PromptMessage], bytes]
# Notes by the event that each of them stands behind.
Notes = Mapping[tuple[SessionId, int], Note]
NO_NOTES: Final[Notes] = {}


def messages_of(turn: Iterable[Recorded], *, notes: Notes = NO_NOTES) -> list[PromptMessage]:
    """Return one turn's events, in seq order, as messages. The user's message comes first. Each
    note stands directly behind the event it is given for, or, where that stands between a call and
    its result, behind the last result of those calls."""
    messages: list[PromptMessage] = []
    events = list(turn)
    unanswered: set[CallId] = set()
    held: list[Note] = []
    amended = {r.event.message: r.event for r in events if isinstance(r.event, TurnAmended)}
    places = places_of(events)
    is_shared = any(isinstance(r.event, TurnQueued) and r.event.sender for r in events)
    for recorded in events:
        match recorded.event:
            case TurnQueued() | MessageJoined() | SteerTaken() as spoken:
                blocks = _user_blocks(spoken, amended, places, is_shared=is_shared)
                _add(messages, Role.USER, blocks)
            case AssistantSaid() as said:
                _add(messages, Role.ASSISTANT, _assistant_blocks(said))
                unanswered.update(each.id for each in said.calls)
            case Compacted(summary=summary):
                _add(messages, Role.USER, [TextBlock(background(summary))])
            case ToolFinished(call=call, ending=ending, result=result):
                block = ResultBlock(
                    call=call, text=result, is_error=ending is not CallEnding.RETURNED
                )
                _add(messages, Role.USER, [block])
                unanswered.discard(call)
            case _:
                pass
        if recorded.key in notes:
            held.append(notes[recorded.key])
        if held and not unanswered:
            _add(messages, Role.USER, held)
            held = []
    return messages


def _assistant_blocks(said: AssistantSaid) -> list[PromptBlock]:
    blocks: list[PromptBlock] = [TextBlock(said.text)] if said.text.strip() else []
    blocks += [TextBlock(given_in_words(attachment)) for attachment in said.attachments]
    calls = [CallBlock(id=c.id, name=c.name, arguments=c.arguments) for c in said.calls]
    return [*blocks, *calls]


def _user_blocks(
    spoken: TurnQueued | MessageJoined | SteerTaken,
    amended: Mapping[MessageId, TurnAmended],
    places: FileEnds,
    *,
    is_shared: bool,
) -> list[PromptBlock]:
    if isinstance(spoken, TurnQueued) and spoken.kind == TurnKind.SENT:
        return [TextBlock(FROM_ELSEWHERE)]
    said = amended.get(spoken.message, spoken)
    text, words = said.text, ForwardedText(said.text, said.passed_on)
    if isinstance(spoken, MessageJoined):
        text = in_own_words(words) if is_shared else text
    elif spoken.sender:
        # A line of ours before each message: who speaks is a fact, what they say is not.
        text = attributed(spoken.sender, words)
    blocks: list[PromptBlock] = [TextBlock(text)] if text.strip() else []
    return blocks + [MediaBlock(attachment=each) for each in as_fetched(spoken, places)]


def _add(messages: list[PromptMessage], role: Role, blocks: Sequence[PromptBlock]) -> None:
    if not blocks:
        return
    if messages and messages[-1].role is role:
        messages[-1] = PromptMessage(role=role, blocks=(*messages[-1].blocks, *blocks))
    else:
        messages.append(PromptMessage(role=role, blocks=tuple(blocks)))


def extend(window: Window, messages: Iterable[PromptMessage], *, encode: Encode) -> Window:
    """The window after some more messages: whatever became final is encoded, once."""
    final, newest = weave(window.newest, messages)
    sealed = list(window.sealed)
    stretch = [window.encoded] if window.encoded else []
    size = len(window.encoded)
    for message in final:
        stretch.append(encode(message))
        size += len(stretch[-1])
        if size >= STRETCH_BYTES:
            sealed.append(b",".join(stretch))
            stretch, size = [], 0
    return Window(
        sealed=tuple(sealed),
        encoded=b",".join(stretch),
        count=window.count + len(final),
        newest=newest,
        tokens=window.tokens + tokens_of_messages(final),
        source=window.source,
    )


def _size_of(block: PromptBlock) -> int:
    match block:
        case TextBlock(text=text) | ResultBlock(text=text) | Note(text=text):
            return len(text)
        case CallBlock(arguments=arguments):
            return len(arguments)
        case MediaBlock(data=data, attachment=attachment):
            return len(data or b"") + len(attachment.text)


def weave(
    newest: PromptMessage | None, messages: Iterable[PromptMessage]
) -> tuple[list[PromptMessage], PromptMessage | None]:
    """Join messages to the newest one; return those that are final now, and the new newest."""
    woven = [newest] if newest else []
    for message in messages:
        _add(woven, message.role, message.blocks)
    return (woven[:-1], woven[-1]) if woven else ([], None)


def tokens_of_messages(messages: Iterable[PromptMessage]) -> int:
    return sum(MESSAGE_TOKENS + sum(map(_tokens, message.blocks)) for message in messages)


def _tokens(block: PromptBlock) -> int:
    match block:
        case TextBlock(text=text) | ResultBlock(text=text) | Note(text=text):
            return tokens_of(text)
        case CallBlock(name=name, arguments=arguments):
            return tokens_of(name) + tokens_of(arguments)
        case MediaBlock(data=data, attachment=attachment):
            return IMAGE_TOKENS if data else MESSAGE_TOKENS + tokens_of(attachment.text)


def assemble(  # noqa: PLR0913 - everything a request is made of
    window: Window,
    messages: Sequence[PromptMessage],
    *,
    instructions: str = "",
    context: str = "",
    tools: str = "",
    options: Options = NONE,
    purpose: str = "",
) -> ModelRequest:
    """The request for one model call of the turn whose messages (notes among them) are given."""
    final, newest = weave(window.newest, messages)
    tail = (*final, newest) if newest else ()
    if tail or not context:  # a caller's own messages may end with its tool results
        assert_valid(tail, begins=not window.count and not context)
    return ModelRequest(
        instructions=instructions,
        sealed=window.sealed,
        prefix=window.encoded,
        messages=tail,
        context=context,
        tools=tools,
        options=options,
        purpose=purpose,
    )


def assert_valid(messages: Sequence[PromptMessage], *, begins: bool) -> None:
    """Every rule of the strict providers, as far as these messages can break it."""
    if not messages or messages[-1].role is not Role.USER:
        raise Corrupt("a request must end with a user message")
    if begins and messages[0].role is not Role.USER:
        raise Corrupt("a request must begin with a user message")
    open_calls: set[str] | None = set() if begins else None
    for before, message in zip((None, *messages), messages, strict=False):
        if before is not None and before.role is message.role:
            raise Corrupt("two messages of one role stand side by side")
        open_calls = _check_blocks(message, open_calls)


def _check_blocks(message: PromptMessage, open_calls: set[str] | None) -> set[str]:
    """Check one message; return the calls that the next message must answer.

    `open_calls` is None for the first message, whose calls stand in the encoded part.
    """
    results = [block.call for block in message.blocks if isinstance(block, ResultBlock)]
    calls = [block.id for block in message.blocks if isinstance(block, CallBlock)]
    blank = any(isinstance(b, TextBlock) and not b.text.strip() for b in message.blocks)
    if blank or not message.blocks:
        raise Corrupt("a message must not be blank")
    if open_calls is not None and (len(results) != len(open_calls) or set(results) != open_calls):
        raise Corrupt(f"tool calls {sorted(open_calls)} are answered by {results}")
    if len(calls) != len(set(calls)):
        raise Corrupt("a tool call id stands twice in one message")
    if (calls and message.role is Role.USER) or (results and message.role is Role.ASSISTANT):
        raise Corrupt("a tool block stands in a message of the wrong role")
    leading = message.blocks[: len(results)]
    if not all(isinstance(block, ResultBlock) for block in leading):
        raise Corrupt("tool results must come first in their message")
    return set(calls)
