"""Decodes events of the OpenAI chat-completions wire into a `ModelAnswer`.

This runs once for each token, so only the fields that are needed are decoded, into typed structs.
The finish marker is a choice's `finish_reason`. `[DONE]` alone only says that the stream is over,
not that the model finished.
"""

from typing import Final

import msgspec

from perdure.agents.chat.answer.answer import Garbage, ModelAnswer, decode
from perdure.agents.chat.complaints import Complaint, complaint
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason

_FINISHES: Final = {
    "stop": StopReason.STOP,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
}
# Finish reasons by which servers say that they failed.
_FAILURES: Final = frozenset({"abort", "error"})
_NOTHING: Final = msgspec.Raw()


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""


class _Function(msgspec.Struct, gc=False):
    """Holds a function call. `arguments` is JSON text in a string; some servers send the object
    itself."""

    name: str | None = None
    arguments: msgspec.Raw = _NOTHING


class _CallPiece(msgspec.Struct, gc=False):
    function: _Function | None = None
    index: int | None = None
    id: str | None = None
    extra_content: msgspec.Raw = _NOTHING


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None
    tool_calls: list[_CallPiece] | None = None
    function_call: _Function | None = None
    refusal: str | None = None
    reasoning_content: msgspec.Raw = _NOTHING
    reasoning: msgspec.Raw = _NOTHING
    reasoning_details: msgspec.Raw = _NOTHING


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    index: int | None = 0


class _CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NOTHING
    object: str | None = None


_chunk: Final = msgspec.json.Decoder(_Chunk)
_decode: Final = _chunk.decode
_text: Final = msgspec.json.Decoder(str)
_any: Final = msgspec.json.Decoder(object)
_details: Final = msgspec.json.Decoder(list[dict[str, object]])


def read(event: bytes, answer: ModelAnswer) -> None:
    """Take one event of a stream."""
    if event == b"[DONE]":
        answer.is_over = True
        return
    try:
        chunk = _decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        chunk = decode(_chunk, event)
    if chunk.error is not _NOTHING or chunk.object == "error":
        _fail(chunk, event, answer)
    for choice in chunk.choices or ():
        if not choice.index:
            _take(choice, choice.delta, answer)
    if chunk.usage is not None:
        answer.usage = _usage(chunk.usage)


def read_whole(body: bytes, answer: ModelAnswer) -> None:
    """Take a complete answer, from a server that does not stream."""
    chunk = decode(_chunk, body)
    _fail(chunk, body, answer)
    if not chunk.choices and not answer.error:
        raise Garbage
    for choice in chunk.choices or ():
        if not choice.index:
            _take(choice, choice.message, answer)
    if chunk.usage is not None:
        answer.usage = _usage(chunk.usage)


def _take(choice: _Choice, delta: _Delta | None, answer: ModelAnswer) -> None:
    """Take the text, the calls and the finish of one choice."""
    if delta is not None:
        content = delta.content
        _take_thoughts(delta, answer)
        if content:
            answer.has_begun = True
            if isinstance(content, str):
                answer.texts.append(content)
            else:
                answer.texts.extend(part.text for part in content if part.type == "text")
        elif delta.refusal:
            answer.has_begun = True
            answer.texts.append(delta.refusal)
        if delta.tool_calls is not None or delta.function_call is not None:
            _take_calls(delta, answer)
    if choice.finish_reason:
        _finish(choice.finish_reason, answer)


def _take_thoughts(delta: _Delta, answer: ModelAnswer) -> None:
    """Take pieces of thoughts, each under the name that the server uses."""
    if delta.reasoning_content is not _NOTHING and _holds(delta.reasoning_content):
        answer.add_thought("reasoning_content", _argument_text(bytes(delta.reasoning_content)))
    if delta.reasoning is not _NOTHING and _holds(delta.reasoning):
        answer.add_thought("reasoning", _argument_text(bytes(delta.reasoning)))
    if delta.reasoning_details is not _NOTHING and _holds(delta.reasoning_details):
        for detail in decode(_details, bytes(delta.reasoning_details)):
            answer.add_detail(detail)


def _take_calls(delta: _Delta, answer: ModelAnswer) -> None:
    """Take the pieces of tool calls, also those in the older `function_call` form."""
    pieces = delta.tool_calls or []
    if delta.function_call is not None:
        pieces.append(_CallPiece(delta.function_call, index=0))
    for piece in pieces:
        function = piece.function or _Function()
        answer.add_call(
            index=piece.index,
            call_id=piece.id or "",
            name=function.name or "",
            arguments=_argument_text(bytes(function.arguments)),
        )
        if piece.extra_content is not _NOTHING and _holds(piece.extra_content):
            answer.add_extra(decode(_any, bytes(piece.extra_content)))


def _argument_text(raw: bytes) -> str:
    """Return the arguments as JSON text, whether they came as a string or as an object."""
    if raw in (b"", b"null"):
        return ""
    return decode(_text, raw) if raw.startswith(b'"') else raw.decode("utf-8", "replace")


def _finish(said: str, answer: ModelAnswer) -> None:
    if said in _FAILURES:
        answer.failed(Complaint(f"it stopped with {said!r}"))
        return
    answer.finished(_FINISHES.get(said), said=said)


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(details.cached_tokens or 0) if details else 0,
        model_calls=1,
    )


def _fail(chunk: _Chunk, event: bytes, answer: ModelAnswer) -> None:
    """Take the error of a chunk, if it has one."""
    if _holds(chunk.error):
        answer.failed(complaint(bytes(chunk.error)))
    elif chunk.object == "error":
        answer.failed(complaint(event))


def _holds(raw: msgspec.Raw) -> bool:
    """Tell whether a field has a value that is not empty."""
    return bytes(raw) not in (b"", b"null", b'""')
