"""From a scripted reply to the exact steps of one HTTP response.

A plan says what goes out and in which order: the status, the headers, then steps of bytes, each
of which may first wait for a while or hold until the server is released. Faults only rewrite
plans, so the server that carries them out has no notion of dialects or of what is broken.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from perdure.testkit.model_script import (
    Answer,
    CutAfter,
    Dialect,
    ErrorInStream,
    Garbage,
    Hang,
    ModelRequest,
    Redirect,
    Reply,
    Slow,
    Status,
)
from perdure.testkit.model_wire import (
    anthropic_body,
    anthropic_error,
    anthropic_stream,
    anthropic_stream_error,
    openai_body,
    openai_error,
    openai_stream,
    openai_stream_error,
)


class Step(msgspec.Struct, frozen=True):
    data: bytes
    pause_ms: float = 0
    hold: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`length` is the declared size of the body; None means a stream of unknown length."""

    status: int = 200
    headers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    length: int | None = None
    think_ms: float = 0
    holds_headers: bool = False
    is_cut: bool = False


def plan(reply: Reply, request: ModelRequest) -> Plan:
    match reply:
        case Answer():
            return _answer(reply, request)
        case Status():
            return _status(reply, request)
        case Garbage():
            kind = "text/event-stream" if request.stream else "application/json"
            return _whole(reply.body, content_type=kind)
        case Redirect():
            return _whole(b"", status=reply.code, extra=(("Location", reply.location),))
        case ErrorInStream():
            return _error_in_stream(reply, request)
        case CutAfter() | Hang() | Slow():
            return _faulty(reply, plan(reply.inner, request), request)
        case _:
            assert_never(reply)


def refusal(dialect: Dialect, code: int, message: str, *, kind: str | None = None) -> Plan:
    """An error in the provider's shape."""
    shape = openai_error if dialect is Dialect.OPENAI else anthropic_error
    return _whole(shape(code, message, kind=kind), status=code)


def bursts(steps: Iterable[Step]) -> Iterator[Step]:
    """Join the steps that nothing separates, so that an undelayed answer is a single write."""
    run: list[bytes] = []
    first: Step | None = None
    for step in steps:
        if first is None or step.hold or step.pause_ms:
            if first is not None:
                yield msgspec.structs.replace(first, data=b"".join(run))
            first, run = step, []
        run.append(step.data)
    if first is not None:
        yield msgspec.structs.replace(first, data=b"".join(run))


def _whole(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = "application/json",
    extra: tuple[tuple[str, str], ...] = (),
) -> Plan:
    headers = (("Content-Type", content_type), *extra)
    return Plan(status=status, headers=headers, steps=(Step(body),), length=len(body))


def _streamed(steps: Iterable[Step]) -> Plan:
    headers = (("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"))
    return Plan(headers=headers, steps=tuple(steps))


def _answer(answer: Answer, request: ModelRequest) -> Plan:
    is_openai = request.dialect is Dialect.OPENAI
    if not request.stream:
        body = openai_body if is_openai else anthropic_body
        return _whole(body(answer, request))
    opening, chunks, closing = (openai_stream if is_openai else anthropic_stream)(answer, request)
    content = (Step(chunk, pause_ms=answer.delay_ms) for chunk in chunks)
    return _streamed((Step(opening), *content, Step(closing)))


def _status(reply: Status, request: ModelRequest) -> Plan:
    extra = () if reply.retry_after is None else (("Retry-After", reply.retry_after),)
    if reply.body is not None:
        return _whole(reply.body, status=reply.code, extra=extra)
    shaped = refusal(request.dialect, reply.code, reply.message)
    return msgspec.structs.replace(shaped, headers=(*shaped.headers, *extra))


def _error_in_stream(reply: ErrorInStream, request: ModelRequest) -> Plan:
    is_openai = request.dialect is Dialect.OPENAI
    if not request.stream:
        code = 500 if is_openai else 529
        return refusal(request.dialect, code, reply.message, kind=reply.kind)
    shape = openai_stream_error if is_openai else anthropic_stream_error
    opening, *content, _ = _answer(reply.inner, request).steps
    error = Step(shape(reply.message, kind=reply.kind))
    return _streamed((opening, *content[: reply.after_chunks], error))


def _faulty(reply: CutAfter | Hang | Slow, inner: Plan, request: ModelRequest) -> Plan:
    match reply:
        case CutAfter():
            return _cut(inner, reply.body_bytes)
        case Hang():
            return _hang(inner, reply, request)
        case Slow():
            return msgspec.structs.replace(inner, think_ms=inner.think_ms + reply.think_ms)
        case _:
            assert_never(reply)


def _cut(whole: Plan, body_bytes: int) -> Plan:
    left, kept = body_bytes, list[Step]()
    for step in whole.steps:
        kept.append(msgspec.structs.replace(step, data=step.data[:left]))
        left -= len(step.data)
        if left <= 0:
            break
    return msgspec.structs.replace(whole, steps=tuple(kept), is_cut=True)


def _hang(inner: Plan, reply: Hang, request: ModelRequest) -> Plan:
    if reply.at == "before_headers":
        return msgspec.structs.replace(inner, holds_headers=True)
    # The first step of a stream is its opening; whatever the count, the end is held back.
    at = 0 if reply.at == "after_headers" else reply.at + int(request.stream)
    index = min(at, len(inner.steps) - 1)
    steps = list(inner.steps)
    steps[index] = msgspec.structs.replace(steps[index], hold=True)
    return msgspec.structs.replace(inner, steps=tuple(steps))
