"""Writes the bytes that a provider would send for a `ScriptedAnswer`, in both model wires.

A streamed answer is an opening, one piece per chunk of content, and a closing. Each piece holds
whole server-sent events, so faults can be placed between chunks without parsing. All that differs
between requests has a fixed width (ids) or follows from the request's size (usage). So two requests
of equal length get bodies of equal length, and a test can cut a body at each of its bytes in turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Final, NamedTuple

import msgspec

from perdure.testkit.models.model_script import (
    ScriptedAnswer,
    ScriptedRequest,
    ScriptedThought,
    ScriptedToolCall,
    ScriptedUsage,
    by_words,
    in_fragments,
)

# A pinned instant, because replies must be the same bytes on every run.
CREATED: Final = 1_700_000_000
PROMPT_BYTES_PER_TOKEN: Final = 4
_DETAILS: Final = "reasoning_details"

_OPENAI_ERRORS: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_ANTHROPIC_ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_STOP_REASONS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_json = msgspec.json.Encoder().encode


class Streamed(NamedTuple):
    """Holds the pieces of a streamed answer."""

    opening: bytes
    chunks: tuple[bytes, ...]
    closing: bytes


def usage_of(answer: ScriptedAnswer, request: ScriptedRequest) -> ScriptedUsage:
    """Return the usage that the script asks for, or an estimate that grows with the request."""
    if answer.usage is not None:
        return answer.usage
    completion = len(answer.chunks) + sum(1 + len(call.arguments) // 4 for call in answer.calls)
    return ScriptedUsage(prompt=request.body_bytes // PROMPT_BYTES_PER_TOKEN, completion=completion)


def openai_body(answer: ScriptedAnswer, request: ScriptedRequest) -> bytes:
    """Return an answer of the OpenAI wire as one body."""
    message: dict[str, object] = {
        "role": "assistant",
        "content": answer.text if answer.chunks or not answer.calls else None,
        "refusal": None,
    }
    if answer.thoughts:
        pieces = [piece for thought in answer.thoughts for piece in _details(thought, 0)]
        is_list = answer.thought_field == _DETAILS
        whole = "".join(thought.text for thought in answer.thoughts)
        message[answer.thought_field] = pieces if is_list else whole
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return _json(
        {
            "id": f"chatcmpl-{request.number:08d}",
            "object": "chat.completion",
            "created": CREATED,
            "model": request.model,
            "choices": [choice],
            "usage": _openai_usage(usage_of(answer, request)),
        }
    )


def openai_stream(answer: ScriptedAnswer, request: ScriptedRequest) -> Streamed:
    """Return an answer of the OpenAI wire as a stream."""
    head = _openai_head(request)
    tail = b',"usage":null}\n\n' if request.include_usage else b"}\n\n"
    opening = _openai_choice({"role": "assistant", "content": ""})
    words = (_openai_text(answer.chunks), _openai_calls(answer))
    choices = chain(_openai_thoughts(answer), *words)
    closing = b""
    if answer.finish is not None:
        closing = head + _openai_choice({}, finish=answer.finish) + tail
        if request.include_usage:
            usage = _json(_openai_usage(usage_of(answer, request)))
            closing += head + b'[],"usage":' + usage + b"}\n\n"
        closing += b"data: [DONE]\n\n"
    return Streamed(
        opening=head + opening + tail,
        chunks=tuple(head + choice + tail for choice in choices),
        closing=closing,
    )


def openai_error(code: int, message: str, *, kind: str | None = None) -> bytes:
    """Return an error in OpenAI's form."""
    known_kind, error_code = _OPENAI_ERRORS.get(code, ("server_error", None))
    error = {"message": message, "type": kind or known_kind, "param": None, "code": error_code}
    return _json({"error": error})


def openai_stream_error(message: str, *, kind: str | None = None) -> bytes:
    """Return an error in OpenAI's form as an event of a stream."""
    return b"data: " + openai_error(500, message, kind=kind) + b"\n\n"


def openai_models(names: Sequence[str]) -> bytes:
    """Return OpenAI's list of models."""
    cards = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "testkit"} for name in names
    ]
    return _json({"object": "list", "data": cards})


def _openai_head(request: ScriptedRequest) -> bytes:
    """Return the beginning of each event of a stream, up to its choices."""
    ident = f'data: {{"id":"chatcmpl-{request.number:08d}","object":"chat.completion.chunk",'
    return ident.encode() + b'"created":%d,"model":%s,"choices":' % (CREATED, _json(request.model))


def _openai_choice(delta: Mapping[str, object], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _json([choice])


# Cached, because a bench asks for the same answer many thousand times.
@lru_cache(maxsize=64)
def _openai_text(chunks: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(_openai_choice({"content": chunk}) for chunk in chunks)


def _openai_thoughts(answer: ScriptedAnswer) -> Iterable[bytes]:
    """Return the pieces of the thoughts, word by word."""
    for index, thought in enumerate(answer.thoughts):
        if answer.thought_field == _DETAILS:
            pieces: Iterable[object] = ([each] for each in _details(thought, index))
        else:
            pieces = by_words(thought.text)
        yield from (_openai_choice({answer.thought_field: piece}) for piece in pieces)


def _details(thought: ScriptedThought, index: int) -> list[dict[str, object]]:
    """Return a thought as objects, in pieces: its words and, with the last of them, its
    signature."""
    if thought.is_redacted:
        return [{"type": "reasoning.encrypted", "data": thought.text, "index": index}]
    words = by_words(thought.text)
    pieces: list[dict[str, object]] = [
        {"type": "reasoning.text", "text": word, "format": None, "index": index} for word in words
    ]
    pieces[-1]["signature"] = thought.signature
    return pieces


def _openai_calls(answer: ScriptedAnswer) -> Iterable[bytes]:
    """Return the pieces of the tool calls. The first piece of a call names it; later ones carry
    only its index."""
    per_call = [
        _openai_call(call, index, answer.fragments) for index, call in enumerate(answer.calls)
    ]
    if not answer.interleaved:
        return chain.from_iterable(per_call)
    return (choice for row in zip_longest(*per_call) for choice in row if choice is not None)


def _openai_call(call: ScriptedToolCall, index: int, fragments: int) -> list[bytes]:
    named: dict[str, object] = {
        "index": index,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }
    rest = [
        {"index": index, "function": {"arguments": fragment}}
        for fragment in in_fragments(call.arguments, count=fragments)
    ]
    return [_openai_choice({"tool_calls": [piece]}) for piece in (named, *rest)]


def _openai_usage(usage: ScriptedUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }


def anthropic_body(answer: ScriptedAnswer, request: ScriptedRequest) -> bytes:
    """Return an answer of the Anthropic wire as one body."""
    content: list[dict[str, object]] = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": msgspec.Raw((call.arguments or "{}").encode()),
        }
        for call in answer.calls
    ]
    if answer.text:
        content.insert(0, {"type": "text", "text": answer.text})
    content[:0] = map(thought_block, answer.thoughts)
    message = _anthropic_message(request, usage_of(answer, request))
    return _json(message | {"content": content, "stop_reason": _stop_reason(answer)})


def anthropic_stream(answer: ScriptedAnswer, request: ScriptedRequest) -> Streamed:
    """Return an answer of the Anthropic wire as a stream."""
    usage = usage_of(answer, request)
    start = _anthropic_message(request, ScriptedUsage(prompt=usage.prompt, completion=1))
    blocks = [_anthropic_thought(each, index) for index, each in enumerate(answer.thoughts)]
    if answer.chunks:
        blocks.append(_anthropic_text(answer.chunks, len(blocks)))
    for index, call in enumerate(answer.calls, start=len(blocks)):
        blocks.append(_anthropic_call(call, index, answer.fragments))
    closing = b""
    if answer.finish is not None:
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        count = {"output_tokens": usage.completion}
        closing = _event("message_delta", delta=delta, usage=count) + _event("message_stop")
    return Streamed(
        opening=_event("message_start", message=start) + _event("ping"),
        chunks=tuple(chain.from_iterable(blocks)),
        closing=closing,
    )


def anthropic_error(code: int, message: str, *, kind: str | None = None) -> bytes:
    """Return an error in Anthropic's form."""
    error = {"type": kind or _ANTHROPIC_ERRORS.get(code, "api_error"), "message": message}
    return _json({"type": "error", "error": error})


def anthropic_stream_error(message: str, *, kind: str | None = None) -> bytes:
    """Return an error in Anthropic's form as an event of a stream."""
    return b"event: error\ndata: " + anthropic_error(529, message, kind=kind) + b"\n\n"


def anthropic_models(names: Sequence[str]) -> bytes:
    """Return Anthropic's list of models."""
    cards = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z"}
        for name in names
    ]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {}
    return _json({"data": cards, "has_more": False, **ends})


def _event(name: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _json({"type": name} | fields))


def _anthropic_message(request: ScriptedRequest, usage: ScriptedUsage) -> dict[str, object]:
    return {
        "id": f"msg_{request.number:08d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": usage.prompt, "output_tokens": usage.completion},
    }


def _stop_reason(answer: ScriptedAnswer) -> str | None:
    return None if answer.finish is None else _STOP_REASONS.get(answer.finish, answer.finish)


@lru_cache(maxsize=64)
def _anthropic_text(chunks: tuple[str, ...], index: int) -> tuple[bytes, ...]:
    deltas = [{"type": "text_delta", "text": chunk} for chunk in chunks]
    return _anthropic_block(index, {"type": "text", "text": ""}, deltas)


def thought_block(thought: ScriptedThought) -> dict[str, object]:
    """Return a thought as a block of the Anthropic wire."""
    if thought.is_redacted:
        return {"type": "redacted_thinking", "data": thought.text}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def _anthropic_thought(thought: ScriptedThought, index: int) -> tuple[bytes, ...]:
    if thought.is_redacted:
        start = _event("content_block_start", index=index, content_block=thought_block(thought))
        return (start + _event("content_block_stop", index=index),)
    deltas = [{"type": "thinking_delta", "thinking": word} for word in by_words(thought.text)]
    signed = {"type": "signature_delta", "signature": thought.signature}
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return _anthropic_block(index, block, [*deltas, signed])


def _anthropic_call(call: ScriptedToolCall, index: int, fragments: int) -> tuple[bytes, ...]:
    # The provider begins every call with an empty piece, so clients must cope with one here too.
    pieces = ("", *in_fragments(call.arguments, count=fragments))
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    return _anthropic_block(index, block, deltas)


def _anthropic_block(
    index: int, block: Mapping[str, object], deltas: Iterable[Mapping[str, object]]
) -> tuple[bytes, ...]:
    """Return one piece per delta. The first also starts the block, and the last also stops it."""
    pieces = [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
    pieces[0] = _event("content_block_start", index=index, content_block=block) + pieces[0]
    pieces[-1] += _event("content_block_stop", index=index)
    return tuple(pieces)
