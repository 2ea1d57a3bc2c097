"""Reads JSON bodies, writes JSON answers, and turns errors into the bodies that the API
documents."""

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import structlog
from aiohttp import web

from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    NotFound,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.domain.people.quotas import RATE, USED_UP, OverQuota
from perdure.web.http import bodies
from perdure.web.http.outlet import LongResponse

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger("web")


class BodyTooSlow(web.RequestPayloadError):
    """Tells the reader of a body that the rest of it is no longer awaited."""


_STATUS_BY_CODE: Final = {
    "queue_full": 429,
    RATE: 429,
    USED_UP: 429,
    "too_many_codes": 429,
    "no_agent": 404,
    "unauthorized": 401,
    "forbidden": 403,
    "wrong_host": 421,
    "body_too_large": 413,
    "disk_full": 507,
    "unsupported_encoding": 415,
}
# The caller is gone and never reads this status; it is the one that proxies and logs know for that.
CLIENT_CLOSED_REQUEST: Final = 499
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# Forbid browsers to guess an answer's type, and proxies to keep it.
GUARDS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_encoder = msgspec.json.Encoder()


def json_response(
    body: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a response that holds a value as JSON."""
    return LongResponse(
        body=_encoder.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def problem(
    status: int,
    code: str,
    message: str,
    *,
    retryable: bool = False,
    kind: str = "",
    retry_after_s: int = 0,
) -> web.Response:
    """Return an error response. OpenAI's clients look for `type` and `param` besides our own
    fields."""
    error = {"code": code, "message": message, "retryable": retryable}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if retryable and status in (429, 503):
        headers["Retry-After"] = str(max(retry_after_s, 1))
    body = {"error": {**error, "type": kind or code, "param": None}}
    response = json_response(body, status=status, headers=headers)
    return response if retryable else not_again(response)


def not_again(response: web.Response) -> web.Response:
    """Mark a response as not to be retried. OpenAI's clients otherwise repeat a call by themselves,
    without an idempotency key, and the repeat would be one more message."""
    response.headers["X-Should-Retry"] = "false"
    return response


def status_of(error: PerdureError) -> int:
    """Return the HTTP status for an error."""
    if error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    match error:
        case NotFound():
            return 404
        case Rejected():
            return 400
        case Conflict():
            return 409
        case Transient() | Ambiguous():
            return 503
        case _:
            return 500


def is_retryable(error: PerdureError) -> bool:
    """Tell whether the caller may repeat the request."""
    is_passing = error.code in ("queue_full", RATE)
    return error.retryable or isinstance(error, Ambiguous) or is_passing


def answer_for(error: PerdureError) -> web.Response:
    """Return the response for an error."""
    wait_s = error.retry_after_s if isinstance(error, Transient | OverQuota) else None
    return problem(
        status_of(error),
        error.code,
        error.message,
        retryable=is_retryable(error),
        kind=error.kind if isinstance(error, OverQuota) else "",
        retry_after_s=math.ceil(wait_s or 0),
    )


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every failure into the documented error body. A response that has already begun is cut
    off instead, because its status is sent."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refusal(request, error)
    except BodyTooSlow:
        return _too_slow(request)
    except web.RequestPayloadError:
        return _unreadable(request)
    except ConnectionError as error:
        return _hung_up(request, error)
    except PerdureError as error:
        _note(request, error)
        if request.writer.output_size:
            raise
        response = answer_for(error)
        # The message may have been accepted, and without a key a repeat cannot be recognized.
        is_risky = isinstance(error, Ambiguous) and not request.headers.get(IDEMPOTENCY_KEY)
        return not_again(response) if is_risky else response
    except Exception as error:  # noqa: BLE001 - the last chance: else the library sends its own page
        return _unforeseen(request, error)


def _hung_up(request: web.Request, error: ConnectionError) -> web.Response:
    """Return a response for a caller who has disconnected. Nobody reads it, but without one the
    library logs a traceback."""
    if request.transport is not None and not request.transport.is_closing():
        return _unforeseen(request, error)  # the caller is still here: another connection broke
    log.debug("the caller hung up", method=request.method, path=request.path)
    return web.Response(status=CLIENT_CLOSED_REQUEST)


def _unforeseen(request: web.Request, error: Exception) -> web.Response:
    if request.writer.output_size:
        raise error
    log.error("request failed", method=request.method, path=request.path, exc_info=error)
    message = "something is wrong in the gateway; its log tells what"
    return problem(500, "internal", message)


def _note(request: web.Request, error: PerdureError) -> None:
    """Log a failure that is ours. A store in trouble fails every request and is logged once where
    that is noticed, so it is only a debug line here."""
    if isinstance(error, Rejected | Conflict):
        return
    say = log.debug if isinstance(error, Transient | Ambiguous) else log.warning
    say("request failed", path=request.path, code=error.code, error=error.message)


def _refusal(request: web.Request, error: web.HTTPException) -> web.Response:
    """Return our own error body for a refusal by the HTTP library."""
    match error:
        case web.HTTPRequestEntityTooLarge():
            message = f"the body is over the limit set by [limits] body_bytes: {error.text}"
            return problem(413, "body_too_large", message)
        case web.HTTPNotFound():
            return problem(404, "not_found", f"there is nothing at {request.path}")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            response = problem(405, "method_not_allowed", f"use {allowed} here")
            response.headers["Allow"] = allowed
            return response
        case _:
            raise error


def _unreadable(request: web.Request) -> web.Response:
    """Return the error for a body that cannot be read, and close the connection: where the next
    request would begin is unknown."""
    request.content.feed_eof()
    response = problem(
        400, "malformed_body", "the body cannot be read; is it packed as Content-Encoding says?"
    )
    response.force_close()
    return response


def _too_slow(request: web.Request) -> web.Response:
    """Return the error for a body that came too slowly, and close the connection."""
    request.content.feed_eof()
    response = problem(408, "body_too_slow", "the body came too slowly; send it again")
    response.force_close()
    return response


async def body_of(request: web.Request, shape: type[T]) -> T:
    """Return the request's JSON body as a value. Raises `Rejected` that names what does not fit."""
    raw = await bodies.json_of(request)
    bodies.insist_on_small(raw)
    try:
        value = msgspec.json.decode(raw, type=shape)
    except RecursionError as error:
        raise bodies.too_deep() from error
    except msgspec.ValidationError as error:
        raise Rejected(f"the body does not fit: {error}", code="invalid_body") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(f"the body is not JSON: {error}", code="malformed_json") from error
    bodies.insist_on_shallow(value)
    return value


def number(request: web.Request, name: str, *, default: int, low: int, high: int) -> int:
    """Return a number of the query. Raises `Rejected` if it is not one within the bounds."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise Rejected(f"{name} must be a number from {low} to {high}", code="invalid_query")
    return value
