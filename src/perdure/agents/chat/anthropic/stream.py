"""Decodes events of the Anthropic messages wire into a `ModelAnswer`.

Every event names its kind in `type`. The finish marker is the `stop_reason` of `message_delta`;
`message_stop` then says that the stream is over. The usage comes in two parts, the prompt's at the
start and the answer's with the finish, and each number is the total so far.
"""

from typing import Final

import msgspec

from perdure.agents.chat.answer.answer import Garbage, ModelAnswer, decode
from perdure.agents.chat.complaints import complaint
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason

_FINISHES: Final = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "tool_use": StopReason.TOOL_CALLS,
    "refusal": StopReason.CONTENT_FILTER,
}
_NOTHING: Final = msgspec.Raw()
_THOUGHTS: Final = ("thinking", "redacted_thinking")
# The fields of such blocks. They are given back as they came: the signature is about the rest.
_THOUGHT_FIELDS: Final = ("thinking", "signature", "data")
_EMPTY: Final = (b"", b"{}", b"null")


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str | None = None
    signature: str | None = None
    partial_json: str = ""
    stop_reason: str | None = None


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = _NOTHING
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    content: list[_Content] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: _Content | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NOTHING


class _Whole(_Message):
    """Holds a complete answer, from a server that does not stream."""

    type: str = ""
    error: msgspec.Raw = _NOTHING


_event: Final = msgspec.json.Decoder(_Event)
_whole: Final = msgspec.json.Decoder(_Whole)


def read(event: bytes, answer: ModelAnswer) -> None:
    """Take one event of a stream."""
    what = decode(_event, event)
    kind = what.type
    if kind == "content_block_delta":
        answer.has_begun = True
        if what.delta is not None:
            _take_delta(what.index, what.delta, answer)
    elif kind == "content_block_start":
        if what.content_block is not None:
            _take_content(what.index, what.content_block, answer)
    elif kind == "message_delta":
        _take_ending(what, answer)
    elif kind == "message_start":
        _add_usage(what.message.usage if what.message else None, answer)
    elif kind == "message_stop":
        answer.is_over = True
    elif kind == "error":
        answer.failed(complaint(bytes(what.error)))


def read_whole(body: bytes, answer: ModelAnswer) -> None:
    """Take a complete answer, from a server that does not stream."""
    whole = decode(_whole, body)
    if bytes(whole.error) not in _EMPTY:
        answer.failed(complaint(bytes(whole.error)))
        return
    if whole.content is None:
        raise Garbage
    for index, content in enumerate(whole.content):
        _take_content(index, content, answer)
    _add_usage(whole.usage, answer)
    if whole.stop_reason:
        answer.finished(_FINISHES.get(whole.stop_reason), said=whole.stop_reason)


def _take_delta(index: int, delta: _Delta, answer: ModelAnswer) -> None:
    """Take a piece of text, of a call's arguments, or of thoughts."""
    if delta.text:
        answer.texts.append(delta.text)
    elif delta.partial_json and answer.calls.has(index):
        answer.add_call(index=index, arguments=delta.partial_json)
    elif delta.thinking is not None:
        answer.grow_thought(index, "thinking", delta.thinking)
    elif delta.signature is not None:
        answer.grow_thought(index, "signature", delta.signature)


def _take_content(index: int, content: _Content, answer: ModelAnswer) -> None:
    """Take the beginning of a block, or a complete block."""
    if content.text:
        answer.has_begun = True
        answer.texts.append(content.text)
    if content.type in _THOUGHTS:
        answer.begin_thought(index, content.type)
        for name in _THOUGHT_FIELDS:
            if (piece := getattr(content, name)) is not None:
                answer.grow_thought(index, name, piece)
    if content.type == "tool_use":
        raw = bytes(content.input)
        # A stream begins each call with an empty object and sends the real one in pieces.
        arguments = "" if raw in _EMPTY else raw.decode("utf-8", "replace")
        answer.add_call(index=index, call_id=content.id, name=content.name, arguments=arguments)


def _take_ending(what: _Event, answer: ModelAnswer) -> None:
    """Take the usage and the finish marker."""
    _add_usage(what.usage, answer)
    said = what.delta.stop_reason if what.delta else None
    if said:
        answer.finished(_FINISHES.get(said), said=said)


def _add_usage(usage: _Usage | None, answer: ModelAnswer) -> None:
    """Merge newly reported numbers into the usage. The cached parts of the prompt count as input
    too."""
    if usage is None:
        return
    known = answer.usage
    read_tokens = _newer(usage.cache_read_input_tokens, known.cache_read_tokens)
    write_tokens = _newer(usage.cache_creation_input_tokens, known.cache_write_tokens)
    fresh = known.input_tokens - known.cache_read_tokens - known.cache_write_tokens
    answer.usage = Usage(
        input_tokens=_newer(usage.input_tokens, fresh) + read_tokens + write_tokens,
        output_tokens=_newer(usage.output_tokens, known.output_tokens),
        cache_read_tokens=read_tokens,
        cache_write_tokens=write_tokens,
        model_calls=1,
    )


def _newer(reported: int | None, known: int) -> int:
    return known if reported is None else reported
