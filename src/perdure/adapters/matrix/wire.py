"""Makes HTTP requests to the homeserver, and translates refusals and broken connections into our
errors.

Nothing is repeated here: one request, one answer. A 429 is raised together with the wait that it
names. Only the caller knows whether an unanswered request may be repeated, and says so with
`is_repeatable`.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from perdure.domain.errors import Ambiguous, NotFound, PerdureError, Permanent, Transient
from perdure.ports.platform.adapter import ACCOUNT_WAIT
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.ports.system.time_limits import time_limit

CONNECT_S: Final = 10.0
REQUEST_S: Final = 30.0
# A download has no total time limit, only this limit on a pause between bytes.
SILENCE_S: Final = 60.0
CHUNK_BYTES: Final = 64 * 1024
CLIENT: Final = "/_matrix/client/v3"

SIGNED_OUT: Final = "signed_out"
TOO_LARGE: Final = "too_large"
FORBIDDEN: Final = "forbidden"
UNKNOWN_RELATION: Final = "unknown_relation"
# Error texts that say that the event to edit, to react to or to answer does not exist.
_NO_RELATION: Final = (
    "Can't send relation to unknown event",
    "Relations must be in the same room",
    "Cannot start threads from an event with a relation",
)
_NOT_SIGNED_IN: Final = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"})

_AnswerT = TypeVar("_AnswerT")


class Refusal(msgspec.Struct, frozen=True):
    """Holds the body of a refusal."""

    errcode: str = ""
    error: str = ""
    retry_after_ms: float | None = None


class Wire:
    """Holds the connections of one account. `token` is set once the account has signed in."""

    def __init__(self, homeserver: str, outgoing: Outgoing = DIRECT) -> None:
        self._outgoing = outgoing
        self._base = homeserver.rstrip("/")
        self._http: aiohttp.ClientSession | None = None
        self.token = ""

    def open(self) -> None:
        if self._http is None or self._http.closed:
            self._http = self._outgoing.session()

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def call(  # noqa: PLR0913 - a request has that many sides
        self,
        method: str,
        path: str,
        *,
        answer: type[_AnswerT],
        body: object = None,
        query: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
        timeout_s: float = REQUEST_S,
    ) -> _AnswerT:
        """Send and receive JSON. `is_repeatable`: doing it twice is no worse than once, so a lost
        answer raises `Transient`; otherwise it raises `Ambiguous`."""
        data = None if body is None else msgspec.json.encode(body)
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        headers = {} if data is None else {"Content-Type": "application/json"}
        async with self.request(
            method, path, data, headers, query, is_repeatable=is_repeatable, limits=limits
        ) as response:
            received = await response.read()
        try:
            return msgspec.json.decode(received, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            words = f"it sent what nobody can read ({error})"
            raise _no_answer(words, is_repeatable=is_repeatable) from error

    @contextlib.asynccontextmanager
    async def request(  # noqa: PLR0913
        self,
        method: str,
        path: str,
        data: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        *,
        is_repeatable: bool = True,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a successful response, with its body still to be read. Raises our errors for
        refusals and broken connections."""
        if self._http is None or self._http.closed:
            raise Transient("The connection to the homeserver is closed; it is tried again later.")
        limits = limits or aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=CONNECT_S)
        try:
            async with (
                time_limit(limits.total),
                self._http.request(
                    method,
                    self._base + path,
                    data=data,
                    params=query,
                    headers={**(headers or {}), **self._authorization()},
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=limits.sock_connect, sock_read=limits.sock_read
                    ),
                ) as response,
            ):
                if response.status >= 400:
                    body = await response.read()
                    raise refused(
                        response.status, body, response.headers, is_repeatable=is_repeatable
                    )
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise translated(error, is_repeatable=is_repeatable) from error

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, piece by piece."""
        limits = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=SILENCE_S)
        async with self.request("GET", path, limits=limits) as response:
            async for piece in response.content.iter_chunked(CHUNK_BYTES):
                yield piece

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def translated(error: aiohttp.ClientError | OSError, *, is_repeatable: bool) -> PerdureError:
    """Return the error of ours for a broken connection. Time-outs are `OSError`s."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    match error:
        case aiohttp.InvalidURL():
            return Permanent(
                f"{error} is no address of a homeserver; correct homeserver in [adapters.matrix]."
            )
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return Transient(f"The homeserver cannot be reached ({words}).")
        case _:
            return _no_answer(words, is_repeatable=is_repeatable)


def refused(
    status: int, body: bytes, headers: Mapping[str, str], *, is_repeatable: bool
) -> PerdureError:
    """Return the error of ours for a refusal. A proxy in front of the server may answer without
    JSON."""
    try:
        refusal = msgspec.json.decode(body, type=Refusal, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = Refusal()
    words = refusal.error or f"HTTP {status}"
    if status == 429 or refusal.errcode == "M_LIMIT_EXCEEDED":
        return Transient(
            "The homeserver wants fewer requests.",
            code=ACCOUNT_WAIT,  # the server counts all requests of an account, in whatever room
            retry_after_s=_wait_s(refusal, headers),
        )
    if status == 503:
        return Transient(
            f"The homeserver is busy ({words}).", retry_after_s=_wait_s(refusal, headers)
        )
    if status >= 500:
        return _no_answer(words, is_repeatable=is_repeatable)
    return _never(status, refusal.errcode, words)


def _never(status: int, errcode: str, words: str) -> PerdureError:
    """Return the error for a refusal that a repetition would not change."""
    if errcode in _NOT_SIGNED_IN or status == 401:
        return Permanent(
            f"The homeserver does not know this access token ({words}). Set a valid token, or user "
            "and password, in [adapters.matrix].",
            code=SIGNED_OUT,
        )
    if any(each in words for each in _NO_RELATION):
        return NotFound(f"What it speaks of is not in the room ({words}).", code=UNKNOWN_RELATION)
    if errcode == "M_TOO_LARGE" or status == 413:
        return Permanent(f"It is too large for the homeserver ({words}).", code=TOO_LARGE)
    if errcode == "M_FORBIDDEN" or status == 403:
        return Permanent(
            f"The homeserver forbids it ({words}). Invite the bot to the room, or let it write "
            "there.",
            code=FORBIDDEN,
        )
    if status == 404:
        return NotFound(f"The homeserver has no such thing ({words}).")
    return Permanent(f"The homeserver refuses it ({errcode or status}: {words}).", code=errcode)


def _no_answer(words: str, *, is_repeatable: bool) -> PerdureError:
    """Return the error for a lost answer: `Ambiguous` unless the request may be repeated."""
    if is_repeatable:
        return Transient(f"The homeserver gave no answer ({words}).")
    return Ambiguous(f"The homeserver gave no answer, and may have done it ({words}).")


def _wait_s(refusal: Refusal, headers: Mapping[str, str]) -> float | None:
    """Return the wait that the server names, in seconds, or None."""
    if refusal.retry_after_ms is not None:
        return refusal.retry_after_ms / 1000
    after = headers.get("Retry-After", "")
    return float(after) if after.isascii() and after.isdigit() else None


def segment(text: str) -> str:
    """Quote one segment of a path: ids contain `/`, `#`, `$`, `!` and `:`."""
    return quote(text, safe="")


def room_path(room: str, rest: str) -> str:
    """Return the path of an endpoint below a room."""
    return f"{CLIENT}/rooms/{segment(room)}/{rest}"
