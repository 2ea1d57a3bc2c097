"""Sends a turn's reply to a program, in the format of either API.

A reply grows, it ends, and each outcome has its HTTP status; that is the same for all APIs. A
`ReplyForm` only writes the format. The turn continues even if the client disconnects.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from math import ceil
from typing import Final, Protocol

import msgspec
from aiohttp import web

from perdure.domain.errors import PerdureError, Transient
from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.text import sentence
from perdure.domain.turn.endings import Audience, visible_reason, where_to_look
from perdure.ports.gateway import Ended, Grown
from perdure.ports.system.time_limits import running_time, time_limit
from perdure.web.api.events import KEEP_ALIVE, SSE_HEADERS
from perdure.web.http.answers import is_retryable, json_response, not_again, problem, status_of
from perdure.web.http.outlet import SLICE_BYTES, Outlet

_NOT_THE_CALLERS: Final = 502
_TOO_MANY: Final = 429
_FAILURES: Final = {
    Outcome.FAILED: (_NOT_THE_CALLERS, "provider_failed", False),
    Outcome.REFUSED: (403, "refused", False),
    Outcome.INTERRUPTED: (503, "interrupted", True),
    Outcome.SUSPENDED: (503, "suspended", True),
}
# Failures that the caller's own request has caused, by their reason, with OpenAI's codes.
_OWN_FAULT: Final[Mapping[str, tuple[int, str]]] = {
    StopReason.CONTEXT_EXCEEDED: (400, "context_length_exceeded"),
    StopReason.CONTENT_REFUSED: (400, "content_refused"),
    StopReason.INVALID_REQUEST: (400, "invalid_request"),
}
# When a call should be repeated that was given up meanwhile.
RETRY_AFTER_S: Final = 5.0
AWAITED: Final = (
    "the turn waits until a person has answered a question in this conversation; repeat the call "
    "with the same Idempotency-Key to get the answer, or stream it"
)
encoder: Final = msgspec.json.Encoder()


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an ending that is an error to the caller. `kind` is what OpenAI's clients know as
    `type`."""

    status: int
    code: str
    message: str
    retryable: bool
    kind: str
    retry_after_s: int = 0

    def body(self) -> dict[str, object]:
        """Return the error object."""
        error = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return {**error, "type": self.kind, "param": None}


def failure_of(ended: Ended, audience: Audience, turn: TurnId | None) -> CallFailure | None:
    """Return the error that this ending is to the caller, or None. An error that the caller did not
    cause names its turn, so that it can be looked up."""
    if ended.outcome not in _FAILURES:
        return None
    status, code, retryable = _FAILURES[ended.outcome]
    if ended.reason in _OWN_FAULT:
        status, code = _OWN_FAULT[ended.reason]
    if ended.reason == StopReason.BUDGET:
        status = 429
    if _is_limited(ended):
        status, code, retryable = _TOO_MANY, "rate_limit_exceeded", True
    message = (
        visible_reason(ended.outcome, ended.reason, ended.detail, audience)
        or f"the turn ended as {ended.outcome} ({ended.reason})"
    )
    if turn and (status == _NOT_THE_CALLERS or _is_limited(ended)):
        message = f"{sentence(message)} {where_to_look(ended.reason, turn, audience)}".rstrip()
    return CallFailure(
        status=status,
        code=code,
        message=message,
        retryable=retryable,
        kind=ended.reason or code,
        retry_after_s=ended.reach.retry_after_s,
    )


def _is_limited(ended: Ended) -> bool:
    """Tell whether the model's server has refused the request for now, so that the caller can wait
    and retry. A permanent refusal, as without credit, is not a matter for the caller."""
    is_passing = ended.outcome is Outcome.FAILED and ended.reason == StopReason.PROVIDER_ERROR
    return is_passing and ended.reach.status == _TOO_MANY


def failure_from(error: PerdureError) -> CallFailure:
    """Return an error of the gateway as a failure of the call."""
    return CallFailure(
        status=status_of(error),
        code=error.code,
        message=error.message,
        retryable=is_retryable(error),
        kind=error.code,
        retry_after_s=ceil((error.retry_after_s if isinstance(error, Transient) else 0) or 0),
    )


def headers_of(accepted: Accepted) -> dict[str, str]:
    """Return the headers that name a reply's session and turn."""
    turn = {"X-Perdure-Turn": accepted.turn} if accepted.turn else {}
    return {"X-Perdure-Session": accepted.session, **turn}


def outcome_header(ended: Ended) -> dict[str, str]:
    """Return the header that names an outcome other than done."""
    return {} if ended.outcome is Outcome.DONE else {"X-Perdure-Outcome": ended.outcome}


def calls_of(ended: Ended) -> tuple[ToolCall, ...]:
    """Return the tool calls that the caller has to perform. If the turn did not finish, its last
    calls are the agent's own and are not returned."""
    return ended.calls if ended.outcome is Outcome.DONE else ()


class ReplyForm(Protocol):
    """Writes one reply in an API's format: whole, or begun, grown, and then ended or failed. A form
    may remember what it has written, so each reply needs its own."""

    def whole(self, text: str, ended: Ended) -> object:
        """Return the body of a complete reply."""

    def begin(self) -> bytes:
        """Return the bytes that open a stream."""

    def grow(self, text: str) -> bytes:
        """Return the bytes for more text."""

    def end(self, ended: Ended) -> bytes:
        """Return the bytes that end a stream well."""

    def fail(self, ended: Ended, failure: CallFailure) -> bytes:
        """Return the bytes that end a stream with an error."""


async def heard(growing: AsyncIterator[Grown], *, wait_s: float | None = None) -> tuple[str, Ended]:
    """Wait for the end of a reply. Returns its whole text and how it ended. Raises `Transient` if
    the turn waits for a person for longer than `wait_s` in all; the time in which it works does not
    count."""
    texts: list[str] = []
    clock, waited_s, is_waiting = running_time(), 0.0, False
    while True:
        began_s = clock.now_s()
        left_s = wait_s - waited_s if is_waiting and wait_s is not None else None
        try:
            async with time_limit(left_s):
                grown = await anext(growing)
        except TimeoutError:
            raise Transient(AWAITED, code="waiting", retry_after_s=RETRY_AFTER_S) from None
        waited_s += clock.now_s() - began_s if is_waiting else 0.0
        is_waiting = grown.is_waiting
        texts.append(grown.text)
        if grown.ended is not None:
            return "".join(texts), grown.ended


def _unseen_end(failure: CallFailure) -> Ended:
    """Return an ending for this connection only. The turn may still finish, but this connection
    will not see it."""
    return Ended(
        outcome=Outcome.INTERRUPTED, reason=failure.kind, detail=failure.message, usage=Usage()
    )


class CallReply:
    """Replies to an accepted call. If the call has no key (`has_key`), a repeat would be one more
    message, so clients are told not to retry."""

    def __init__(
        self,
        form: ReplyForm,
        headers: dict[str, str],
        *,
        has_key: bool,
        audience: Audience,
        turn: TurnId | None = None,
        wait_s: float | None = None,
    ) -> None:
        """Set up the reply. `wait_s` is how long a reply that is not streamed waits for people."""
        self._form = form
        self._wait_s = wait_s
        self._audience = audience
        self._turn = turn
        self._headers = headers
        self._has_key = has_key

    async def whole(self, growing: AsyncIterator[Grown]) -> web.Response:
        """Wait for the end, and return the reply in one piece."""
        try:
            text, ended = await heard(growing, wait_s=self._wait_s)
        except PerdureError as error:
            return self._failed(failure_from(error))
        failure = failure_of(ended, self._audience, self._turn)
        if failure is not None:
            return self._failed(failure)
        headers = {**self._headers, **outcome_header(ended)}
        return json_response(self._form.whole(text, ended), headers=headers)

    def _failed(self, failure: CallFailure) -> web.Response:
        response = problem(
            failure.status,
            failure.code,
            failure.message,
            retryable=failure.retryable,
            kind=failure.kind,
            retry_after_s=failure.retry_after_s,
        )
        response.headers.update(self._headers)
        return response if self._has_key else not_again(response)

    async def stream(
        self, request: web.Request, growing: AsyncIterator[Grown]
    ) -> web.StreamResponse:
        """Send the reply as it grows. The headers wait for the first text or the end, so that an
        early failure still gets its HTTP status."""
        response: web.StreamResponse | None = None
        try:
            async for grown in growing:
                chunk = b""
                if response is None:
                    failure = (
                        failure_of(grown.ended, self._audience, self._turn) if grown.ended else None
                    )
                    if failure is not None and not grown.text:
                        return self._failed(failure)
                    response = await self._begin(request, grown)
                    chunk = self._form.begin()
                chunk += self._chunk(grown)
                with suppress(ConnectionResetError):  # the turn continues without its client
                    await _write(request, response, chunk, is_last=grown.ended is not None)
        except PerdureError as error:
            failure = failure_from(error)
            if response is None:
                return self._failed(failure)
            with suppress(ConnectionResetError):
                await response.write_eof(self._form.fail(_unseen_end(failure), failure))
        assert response is not None
        return response

    def _chunk(self, grown: Grown) -> bytes:
        text = self._form.grow(grown.text) if grown.text else b""
        if grown.ended is None:
            return text or KEEP_ALIVE
        failure = failure_of(grown.ended, self._audience, self._turn)
        if failure is not None:
            return text + self._form.fail(grown.ended, failure)
        return text + self._form.end(grown.ended)

    async def _begin(self, request: web.Request, grown: Grown) -> web.StreamResponse:
        # The headers of a running answer cannot name its outcome. If the turn has ended already, as
        # for every repeat of an old call, they can.
        is_kept = (
            grown.ended is not None and failure_of(grown.ended, self._audience, self._turn) is None
        )
        more = outcome_header(grown.ended) if grown.ended and is_kept else {}
        response = _Stream(headers={**SSE_HEADERS, **self._headers, **more})
        await response.prepare(request)
        return response


async def _write(
    request: web.Request, response: web.StreamResponse, chunk: bytes, *, is_last: bool
) -> None:
    """Send a chunk, and end the response with the last one. Each write becomes a packet, so text
    and end are sent together."""
    if is_last and len(chunk) <= SLICE_BYTES:
        await response.write_eof(chunk)
        return
    await Outlet(request).write(chunk)
    if is_last:
        await response.write_eof()


class _Stream(web.StreamResponse):
    """Sends its headers together with its first chunk; separately they would cost one more
    packet."""

    _send_headers_immediately = False
