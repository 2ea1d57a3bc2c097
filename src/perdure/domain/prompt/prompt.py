"""Makes a model's request from the journal.

A request alternates user and assistant messages, and begins and ends with a user's. Tool results
are blocks at the start of the user message that follows the calls. `weave` always keeps that shape
by the same rule, so that bytes stay the same: adjacent messages of one role become one message with
several blocks. `assert_valid` checks the result and repairs nothing, because a request that a
strict provider would refuse is a bug here.

Every message except the newest is final, so its encoded bytes can be kept (`Window`). A request is
those bytes, the few messages after them, and the notes, which exist nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.content.attribution import attributed, in_own_words
from perdure.domain.content.forwards import ForwardedText
from perdure.domain.content.overheard import overheard_text
from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId, SessionId
from perdure.domain.journal.attachments import FileEnds, as_fetched, given_in_words, places_of
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    MessageJoined,
    PromptExpanded,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.model.options import NONE, Options
from perdure.domain.journal.model.thoughts import Thought, Thoughts
from perdure.domain.journal.question_events import AnswerAwaited, EffectMarked
from perdure.domain.journal.session_events import Compacted
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, QuestionKind
from perdure.domain.prompt.bounds import ROOM, AnswerRoom
from perdure.domain.prompt.compaction import brought_text
from perdure.domain.prompt.prefix import ChainSource
from perdure.domain.prompt.tokens import IMAGE_TOKENS, MESSAGE_TOKENS, tokens_of
from perdure.domain.prompt.whereabouts import NO_TIMES, Times
from perdure.domain.tools.callers import NO_RESULT, late_result_text, results_in
from perdure.domain.tools.framing import marked_text, result_text


class Role(StrEnum):
    """Says who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"


class TextBlock(msgspec.Struct, frozen=True):
    """Holds words of the message's role."""

    text: str


class MediaBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file. The engine fills in `data` if the model can see the file."""

    attachment: Attachment
    data: bytes | None = None


class CallBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a tool call of the model."""

    id: str
    name: str
    arguments: str


class ThoughtBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a piece of the model's own reasoning, in its server's form (`Thought`). Only the
    messages of the turn under way contain such blocks."""

    thinker: str
    kind: str
    body: str


class ResultBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the result of a tool call."""

    call: str
    text: str
    is_error: bool


class Note(msgspec.Struct, frozen=True):
    """Holds guidance for the model. It exists in one request, and the journal cannot hold it."""

    text: str


PromptBlock = TextBlock | MediaBlock | ThoughtBlock | CallBlock | ResultBlock | Note


class PromptMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one message of a request."""

    role: Role
    blocks: tuple[PromptBlock, ...]


STRETCH_BYTES: Final = 64 * 1024
# The memory that a kept window takes besides its words.
WINDOW_BYTES: Final = 1024
# The user's message before a text that was sent here from elsewhere: a request must begin with a
# user's message, and the model must know that it has not said the text itself.
FROM_ELSEWHERE: Final = "[The following was sent here from elsewhere.]"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the history up to some turn: final messages as bytes, and the newest one, which may
    still grow.

    The bytes are kept in stretches. Those in `sealed` are long and are never copied again;
    `encoded` holds what came after them. So a turn costs the same however long the conversation is.
    `source` says how the turns were told. Of their `pictures`, so many `old_pictures` are left out.
    `at` is the time of their last message, or 0 if times are not told. `open_calls` are the calls
    that the last turn has left to its caller: the next message must begin with their results.
    """

    sealed: tuple[bytes, ...] = ()
    encoded: bytes = b""
    count: int = 0
    newest: PromptMessage | None = None
    tokens: int = 0
    source: ChainSource = ChainSource()
    pictures: int = 0
    old_pictures: int = 0
    at: int = 0
    open_calls: tuple[ToolCall, ...] = ()

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the window takes."""
        newest = sum(map(_size_of, self.newest.blocks)) if self.newest else 0
        return WINDOW_BYTES + sum(map(len, self.sealed)) + len(self.encoded) + newest


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that an agent needs for one model call, in no provider's words.

    `sealed` and then `prefix` are the agent's own encoding of all messages before `messages`. In
    each of them the messages are joined with commas, and the agent joins them with commas too.
    `context` and `tools` are JSON text that came with a call without a conversation; `options` may
    come with any call. `purpose` names the errand that the request is made for, if any. `room` says
    how long the answer may be.
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
        """Return the encoded stretches, oldest first. No message is divided between two of them."""
        return (*self.sealed, self.prefix) if self.prefix else self.sealed


Encode = Callable[[PromptMessage], bytes]
# Notes by the key of the event that each of them follows.
Notes = Mapping[tuple[SessionId, int], Note]
NO_NOTES: Final[Notes] = {}


def messages_of(
    turn: Iterable[Recorded],
    *,
    notes: Notes = NO_NOTES,
    with_thoughts: bool = False,
    times: Times = NO_TIMES,
    before: Sequence[ToolCall] = (),
) -> list[PromptMessage]:
    """Return one turn's events, in the order of `seq`, as messages. The user's message comes first,
    and begins with the results of the calls that the turn `before` has left to its caller. Each
    note follows the event that it is given for. If that event is between a call and its result, the
    note follows the last result of those calls, because providers want results first.
    `with_thoughts`: the turn is under way, so the model gets its reasoning back."""
    messages: list[PromptMessage] = []
    events = list(turn)
    _add(messages, Role.USER, _brought_blocks(before, results_in(events)))
    unanswered: set[CallId] = set()
    names: dict[CallId, str] = {}
    held_words: list[TextBlock] = []
    held: list[Note] = []
    amended = {r.event.message: r.event for r in events if isinstance(r.event, TurnAmended)}
    places = places_of(events)
    is_shared = any(isinstance(r.event, TurnQueued) and r.event.sender for r in events)
    for recorded in events:
        match recorded.event:
            case TurnQueued() | MessageJoined() | SteerTaken() as spoken:
                blocks = _user_blocks(spoken, amended, places, is_shared=is_shared)
                _add(messages, Role.USER, _timed(blocks, times.get(recorded.key, "")))
            case AssistantSaid() as said:
                thoughts = said.thoughts if with_thoughts else None
                _add(messages, Role.ASSISTANT, _assistant_blocks(said, thoughts))
                unanswered.update(each.id for each in said.calls)
                names.update({each.id: each.name for each in said.calls})
            case Compacted() | PromptExpanded() as brought:
                _add(messages, Role.USER, [TextBlock(brought_text(brought))])
            case ToolFinished() as finished if not finished.is_callers:
                _add(messages, Role.USER, [_result_block(finished, names.get(finished.call, ""))])
                unanswered.discard(finished.call)
            case AnswerAwaited(kind=QuestionKind.QUESTION, is_midway=False, call=call) if call:
                names.pop(call, None)  # what a person answers is not data from outside
            case EffectMarked() as marked:
                held_words.append(TextBlock(marked_text(marked)))
            case _:
                pass
        if recorded.key in notes:
            held.append(notes[recorded.key])
        if (held_words or held) and not unanswered:
            _add(messages, Role.USER, [*held_words, *held])
            held_words, held = [], []
    return messages


def _brought_blocks(
    before: Sequence[ToolCall], results: Sequence[ToolFinished]
) -> list[PromptBlock]:
    """Return a result for each of these calls, and then in words those results that came too late
    to stand behind their calls."""
    found = {result.call: result for result in results}
    blocks: list[PromptBlock] = []
    for call in before:
        result = found.pop(call.id, None)
        missing = ResultBlock(call=call.id, text=NO_RESULT, is_error=True)
        blocks.append(missing if result is None else _result_block(result))
    return [*blocks, *(TextBlock(late_result_text(each)) for each in found.values())]


def _result_block(finished: ToolFinished, tool: str = "") -> ResultBlock:
    is_error = finished.ending is not CallEnding.RETURNED
    return ResultBlock(call=finished.call, text=result_text(finished, tool), is_error=is_error)


def _assistant_blocks(said: AssistantSaid, thoughts: Thoughts | None) -> list[PromptBlock]:
    """Return a message of the model as blocks, each thought at its place in the text or among the
    calls."""
    blocks: list[PromptBlock] = []
    thinker, pieces = (thoughts.thinker, thoughts.pieces) if thoughts else ("", ())
    told = 0
    for piece in (each for each in pieces if not each.call_at):
        blocks += _texts(said.text[told : piece.text_at])
        blocks.append(_thought(thinker, piece))
        told = max(told, min(piece.text_at, len(said.text)))
    blocks += _texts(said.text[told:])
    blocks += [TextBlock(given_in_words(attachment)) for attachment in said.attachments]
    for number, call in enumerate(said.calls):
        blocks += [_thought(thinker, each) for each in pieces if 0 < number == each.call_at]
        blocks.append(CallBlock(id=call.id, name=call.name, arguments=call.arguments))
    return blocks


def _texts(text: str) -> list[PromptBlock]:
    """Return the block of a text, or nothing for a blank one."""
    return [TextBlock(text)] if text.strip() else []


def _thought(thinker: str, piece: Thought) -> ThoughtBlock:
    return ThoughtBlock(thinker=thinker, kind=piece.kind, body=piece.body)


def _timed(blocks: list[PromptBlock], time: str) -> list[PromptBlock]:
    """Return a user's words with the line that tells when they came, if there is one."""
    return [TextBlock(time), *blocks] if time and blocks else blocks


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
        # A line of ours before each message names the sender: that is a fact, the words are not.
        text = attributed(spoken.sender, words)
    before = overheard_text(spoken.overheard) if isinstance(spoken, TurnQueued) else ""
    blocks = [*_texts(before), *_texts(text)]
    return blocks + [MediaBlock(attachment=each) for each in as_fetched(spoken, places)]


def _add(messages: list[PromptMessage], role: Role, blocks: Sequence[PromptBlock]) -> None:
    """Add blocks as a message, or to the last message if it has the same role."""
    if not blocks:
        return
    if messages and messages[-1].role is role:
        messages[-1] = PromptMessage(role=role, blocks=(*messages[-1].blocks, *blocks))
    else:
        messages.append(PromptMessage(role=role, blocks=tuple(blocks)))


def extend(window: Window, messages: Iterable[PromptMessage], *, encode: Encode) -> Window:
    """Return the window after some more messages. Each message that became final is encoded,
    once."""
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
        pictures=window.pictures,
        old_pictures=window.old_pictures,
        at=window.at,
        open_calls=window.open_calls,
    )


def _size_of(block: PromptBlock) -> int:
    match block:
        case TextBlock(text=text) | ResultBlock(text=text) | Note(text=text):
            return len(text)
        case CallBlock(arguments=arguments):
            return len(arguments)
        case ThoughtBlock(body=body):
            return len(body)
        case MediaBlock(data=data, attachment=attachment):
            return len(data or b"") + len(attachment.text)


def weave(
    newest: PromptMessage | None, messages: Iterable[PromptMessage]
) -> tuple[list[PromptMessage], PromptMessage | None]:
    """Join messages to the newest one. Returns the messages that are final now, and the new newest
    one."""
    woven = [newest] if newest else []
    for message in messages:
        _add(woven, message.role, message.blocks)
    return (woven[:-1], woven[-1]) if woven else ([], None)


def has_thoughts(messages: Iterable[PromptMessage]) -> bool:
    """Tell whether the model gets reasoning of its own back."""
    return any(isinstance(block, ThoughtBlock) for each in messages for block in each.blocks)


def tokens_of_messages(messages: Iterable[PromptMessage]) -> int:
    return sum(MESSAGE_TOKENS + sum(map(_tokens, message.blocks)) for message in messages)


def _tokens(block: PromptBlock) -> int:
    match block:
        case TextBlock(text=text) | ResultBlock(text=text) | Note(text=text):
            return tokens_of(text)
        case CallBlock(name=name, arguments=arguments):
            return tokens_of(name) + tokens_of(arguments)
        case ThoughtBlock(body=body):
            return tokens_of(body)
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
    """Return the request for one model call of a turn. `messages` are the turn's own, with its
    notes."""
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
    """Check these messages against every rule of the strict providers. Raises `Corrupt` if one is
    broken. `begins`: they are the first of the request."""
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
    """Check one message, and return the calls that the next message must answer.

    `open_calls` is None for the first message if the calls before it are in the encoded part.
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
