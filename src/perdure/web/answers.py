"""JSON in, JSON out, and errors as the API promises them."""

import re
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

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger("web")

_STATUS_BY_CODE: Final = {
    "queue_full": 429,
    "too_many_codes": 429,
    "no_agent": 404,
    "unauthorized": 401,
    "forbidden": 403,
    "body_too_large": 413,
    "disk_full": 507,
}
# Every list takes its `next` back under this name, whatever else it calls it.
CURSOR: Final = "cursor"
# Each escape as a whole; half a character, alone, is the group.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_encoder = msgspec.json.Encoder()


def json_response(
    body: object, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=_encoder.encode(body),
        status=status,
        content_type="application/json",
        headers=headers,
    )


def problem(
    status: int, code: str, message: str, *, retryable: bool = False, kind: str = ""
) -> web.Response:
    """An error body. `type` and `param` are what OpenAI's clients look for besides."""
    error = {"code": code, "message": message, "retryable": retryable}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if retryable and status in (429, 503):
        headers["Retry-After"] = "1"
    body = {"error": {**error, "type": kind or code, "param": None}}
    response = json_response(body, status=status, headers=headers)
    return response if retryable else not_again(response)


def not_again(response: web.Response) -> web.Response:
    """OpenAI's clients repeat a call by themselves, without a key, unless they are told this."""
    response.headers["X-Should-Retry"] = "false"
    return response


def status_of(error: PerdureError) -> int:
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
    return error.retryable or isinstance(error, Ambiguous) or error.code == "queue_full"


def answer_for(error: PerdureError) -> web.Response:
    return problem(status_of(error), error.code, error.message, retryable=is_retryable(error))


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure leaves as the documented body; a response that has begun is simply ended."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refusal(request, error)
    except web.RequestPayloadError:
        return _unreadable(request)
    except ConnectionResetError:
        raise  # the client has gone; nobody is left to tell
    except PerdureError as error:
        if not isinstance(error, Rejected | Conflict):
            log.warning("request failed", path=request.path, code=error.code, error=error.message)
        if request.writer.output_size:
            raise
        response = answer_for(error)
        # It may have happened, and nothing would tell a repeat from one more message.
        is_risky = isinstance(error, Ambiguous) and not request.headers.get(IDEMPOTENCY_KEY)
        return not_again(response) if is_risky else response
    except Exception:
        # The last place to catch it: the library would answer with a page of its own.
        if request.writer.output_size:
            raise
        log.exception("request failed", method=request.method, path=request.path)
        message = "something is wrong in the gateway; its log tells what"
        return problem(500, "internal", message)


def _refusal(request: web.Request, error: web.HTTPException) -> web.Response:
    """What the library refuses by itself, in our words."""
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
    """Nothing can be read behind such a body, so the connection ends with it."""
    request.content.feed_eof()
    response = problem(
        400, "malformed_body", "the body cannot be read; is it packed as Content-Encoding says?"
    )
    response.force_close()
    return response


async def body_of(request: web.Request, shape: type[T]) -> T:
    """The request's JSON body as a value; what does not fit is named."""
    raw = whole_characters(await request.read())
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise Rejected(f"the body does not fit: {error}", code="invalid_body") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(f"the body is not JSON: {error}", code="malformed_json") from error


def whole_characters(raw: bytes) -> bytes:
    """JSON in which each escaped half of a character without its other half is U+FFFD: clients cut
    texts in the middle of an emoji, and no decoder takes what is left."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], raw)


def number(request: web.Request, name: str, *, default: int, low: int, high: int) -> int:
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


def place_name(request: web.Request, own: str) -> str:
    """The parameter that says where a page begins: the list's own, or the one all lists have."""
    return CURSOR if CURSOR in request.query else own
