"""Turns a scripted reply into the exact steps of one HTTP response.

A plan says what is sent and in which order: the status, the headers, then steps of bytes. Each step
may wait first, for some time or until the server is released. Faults only change plans. So the
server that carries out a plan needs to know neither dialects nor faults.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from perdure.testkit.models.model_script import (
    CutAfter,
    ErrorInStream,
    Hang,
    Redirect,
    Reply,
    ScriptedAnswer,
    ScriptedDialect,
    ScriptedGarbage,
    ScriptedRequest,
    Slow,
    Status,
)
from perdure.testkit.models.model_wire import (
    anthropic_body,
    anthropic_error,
    anthropic_stream,
    anthropic_stream_error,
    openai_body,
    openai_error,
    openai_stream,
    openai_stream_error,
)


class _PlanStep(msgspec.Struct, frozen=True):
    """Holds bytes to send. `hold`: first wait until the server is released."""

    data: bytes
    pause_ms: float = 0
    hold: bool = False


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the steps of a response. `length` is the declared size of the body; None means a stream
    of unknown length. `is_cut`: the connection is closed instead of ending the response."""

    status: int = 200
    headers: tuple[tuple[str, str], ...]
    steps: tuple[_PlanStep, ...]
    length: int | None = None
    think_ms: float = 0
    holds_headers: bool = False
    is_cut: bool = False


def response_plan(reply: Reply, request: ScriptedRequest) -> ModelPlan:
    """Return the plan for a scripted reply to a request."""
    match reply:
        case ScriptedAnswer():
            return _answer(reply, request)
        case Status():
            return _status(reply, request)
        case ScriptedGarbage():
            kind = "text/event-stream" if request.stream else "application/json"
            return _whole(reply.body, content_type=kind)
        case Redirect():
            return _whole(b"", status=reply.code, extra=(("Location", reply.location),))
        case ErrorInStream():
            return _error_in_stream(reply, request)
        case CutAfter() | Hang() | Slow():
            return _faulty(reply, response_plan(reply.inner, request), request)
        case _:
            assert_never(reply)


def scripted_refusal(
    dialect: ScriptedDialect, code: int, message: str, *, kind: str | None = None
) -> ModelPlan:
    """Return the plan for an error in the provider's form."""
    shape = openai_error if dialect is ScriptedDialect.OPENAI else anthropic_error
    return _whole(shape(code, message, kind=kind), status=code)


def bursts(steps: Iterable[_PlanStep]) -> Iterator[_PlanStep]:
    """Join steps that have no wait between them, so that an answer without delays is sent in one
    write."""
    run: list[bytes] = []
    first: _PlanStep | None = None
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
) -> ModelPlan:
    """Return a plan for a body that is sent at once."""
    headers = (("Content-Type", content_type), *extra)
    return ModelPlan(status=status, headers=headers, steps=(_PlanStep(body),), length=len(body))


def _streamed(steps: Iterable[_PlanStep]) -> ModelPlan:
    """Return a plan for a stream of server-sent events."""
    headers = (("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"))
    return ModelPlan(headers=headers, steps=tuple(steps))


def _answer(answer: ScriptedAnswer, request: ScriptedRequest) -> ModelPlan:
    is_openai = request.dialect is ScriptedDialect.OPENAI
    if not request.stream:
        body = openai_body if is_openai else anthropic_body
        return _whole(body(answer, request))
    opening, chunks, closing = (openai_stream if is_openai else anthropic_stream)(answer, request)
    content = (_PlanStep(chunk, pause_ms=answer.delay_ms) for chunk in chunks)
    return _streamed((_PlanStep(opening), *content, _PlanStep(closing)))


def _status(reply: Status, request: ScriptedRequest) -> ModelPlan:
    extra = () if reply.retry_after is None else (("Retry-After", reply.retry_after),)
    if reply.body is not None:
        return _whole(reply.body, status=reply.code, extra=extra)
    shaped = scripted_refusal(request.dialect, reply.code, reply.message)
    return msgspec.structs.replace(shaped, headers=(*shaped.headers, *extra))


def _error_in_stream(reply: ErrorInStream, request: ScriptedRequest) -> ModelPlan:
    is_openai = request.dialect is ScriptedDialect.OPENAI
    if not request.stream:
        code = 500 if is_openai else 529
        return scripted_refusal(request.dialect, code, reply.message, kind=reply.kind)
    shape = openai_stream_error if is_openai else anthropic_stream_error
    opening, *content, _ = _answer(reply.inner, request).steps
    error = _PlanStep(shape(reply.message, kind=reply.kind))
    return _streamed((opening, *content[: reply.after_chunks], error))


def _faulty(reply: CutAfter | Hang | Slow, inner: ModelPlan, request: ScriptedRequest) -> ModelPlan:
    match reply:
        case CutAfter():
            return _cut(inner, reply.body_bytes)
        case Hang():
            return _hang(inner, reply, request)
        case Slow():
            return msgspec.structs.replace(inner, think_ms=inner.think_ms + reply.think_ms)
        case _:
            assert_never(reply)


def _cut(whole: ModelPlan, body_bytes: int) -> ModelPlan:
    """Return a plan that ends after this many bytes of the body."""
    left, kept = body_bytes, list[_PlanStep]()
    for step in whole.steps:
        kept.append(msgspec.structs.replace(step, data=step.data[:left]))
        left -= len(step.data)
        if left <= 0:
            break
    return msgspec.structs.replace(whole, steps=tuple(kept), is_cut=True)


def _hang(inner: ModelPlan, reply: Hang, request: ScriptedRequest) -> ModelPlan:
    """Return a plan that waits at one point until the server is released."""
    if reply.at == "before_headers":
        return msgspec.structs.replace(inner, holds_headers=True)
    # The first step of a stream is its opening. If the answer has fewer chunks than that, its last
    # step is held, so the end never arrives before the release.
    at = 0 if reply.at == "after_headers" else reply.at + int(request.stream)
    index = min(at, len(inner.steps) - 1)
    steps = list(inner.steps)
    steps[index] = msgspec.structs.replace(steps[index], hold=True)
    return msgspec.structs.replace(inner, steps=tuple(steps))
