"""Sends requests to Discord's REST API, and translates foreign errors into those of the domain.

Nothing is retried here and no wait is slept out: a rate limit is raised with the wait that Discord
names, and the outbox waits. If the answer to a request is lost, Discord may have carried it out.
Such a loss is `Ambiguous` only for requests whose repetition would show, such as a new message; all
others are `Transient`.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final, TypeVar
from urllib.parse import quote

import aiohttp
import discord
import msgspec

from perdure.adapters.discord.payloads import Refusal
from perdure.domain.errors import Ambiguous, NotFound, PerdureError, Permanent, Transient
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Unrenderable
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.ports.system.time_limits import time_limit

CONNECT_TIMEOUT_S: Final = 10
CALL_TIMEOUT_S: Final = 30
FILE_TIMEOUT_S: Final = 300
CHUNK_BYTES: Final = 64 * 1024
# Characters of a file's name that are sent.
NAME_MAX: Final = 200
# The version of Discord's API.
VERSION: Final = "v10"

_SIGN_IN_ADVICE: Final = (
    "Discord refuses the token: set [adapters.discord] token to the one that the Developer Portal "
    "shows under Bot > Reset Token"
)
_INTENT_ADVICE: Final = (
    "Discord refuses to show the bot what people write: turn on Message Content Intent in the "
    "Developer Portal under Bot"
)
_SHARD_ADVICE: Final = (
    "the bot is in too many servers for one connection; take it out of some, or use several bots"
)
# Close codes of the websocket after which connecting again is useless until somebody acts.
_CLOSED_FOR_GOOD: Final[Mapping[int, str]] = {
    4004: _SIGN_IN_ADVICE,
    4010: _SHARD_ADVICE,
    4011: _SHARD_ADVICE,
    4013: _INTENT_ADVICE,
    4014: _INTENT_ADVICE,
}
# What to do about a refusal, by Discord's error code.
_ADVICE: Final[Mapping[int, str]] = {
    40005: "send a smaller file",
    50001: "let the bot see the channel",
    50007: "the person takes no direct messages from the bot; ask them to allow it",
    50013: "give the bot the permissions that docs/adapters/discord.md names",
    50083: "the thread is archived and locked; unlock it",
    40067: "this forum wants a tag on every post; turn that off in the forum's settings",
}
# Error codes for channels of a type that takes no messages, such as forums, and the code that our
# own error carries for them.
_NOT_FOR_MESSAGES: Final = frozenset({50008, 50024})
NOT_FOR_MESSAGES: Final = "not_for_messages"
# Error codes for a deleted channel or thread, or a thread that is archived and locked, and the code
# that our own error carries for them.
_NO_CHANNEL: Final = frozenset({10003, 50083})
NO_CHANNEL: Final = "no_channel"
# The error code for a channel in which the bot may send no voice messages, and the code that our
# own error carries for it.
_NO_VOICE: Final = 50173
NO_VOICE: Final = "no_voice"
# Error codes: a field of the body is invalid; the message is empty.
_INVALID_FORM: Final = 50035
_EMPTY: Final = 50006
# The fields of a message that hold rendered text.
_RENDERED: Final = frozenset({"content", "embeds"})
# The time from which Discord's ids count, the start of 2015.
_EPOCH_MS: Final = 1_420_070_400_000

# File names go into a header without any quoting, so these characters are replaced.
_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f"\\/]')

_T = TypeVar("_T")


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mime: str
    data: bytes


class RestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one request.

    `verb` names the request in error texts, because the path may hold a token. `is_repeatable` says
    that carrying it out twice shows no more than carrying it out once.
    """

    verb: str
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: object = None
    file: File | None = None
    is_repeatable: bool = True


def path(*parts: str) -> str:
    """Join quoted parts to the path of a URL."""
    return "/" + "/".join(quote(part, safe="@") for part in parts)


def made_ms(snowflake: str) -> int:
    """Return the time at which Discord made an id, in milliseconds since 1970."""
    return (int(snowflake) >> 22) + _EPOCH_MS


def safe_name(name: str) -> str:
    """Return a file name that is safe to send in a header."""
    return _UNSAFE.sub("_", name)[:NAME_MAX] or "file"


def translated(error: Exception, verb: str, *, is_repeatable: bool = True) -> PerdureError:
    """Translate an error of aiohttp or discord.py into one of the domain's errors."""
    if isinstance(error, discord.ConnectionClosed):
        advice = _CLOSED_FOR_GOOD.get(error.code)
        return Permanent(advice) if advice else Transient(f"{verb}: closed with {error.code}")
    if isinstance(error, aiohttp.InvalidURL):
        return Permanent(f"{verb}: {error} is no address; correct api_url or gateway_url")
    # `repr` is avoided because it can hold the request with its headers, and so the token.
    words = f"{verb}: {type(error).__name__} {error}".rstrip()
    is_unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    if is_unsent or is_repeatable:
        return Transient(words)
    # Time-outs and resets land here: the request may have arrived.
    return Ambiguous(words)


def refused(
    request: RestRequest, status: int, headers: Mapping[str, str], body: bytes
) -> PerdureError:
    """Translate an HTTP response that is no success into one of the domain's errors."""
    refusal = _refusal(body)
    words = f"{request.verb}: {status} {refusal.code} {refusal.message}".rstrip()
    code = ACCOUNT_WAIT if _is_for_all(refusal, headers) else "rate_limited"
    wait_s = _wait_s(refusal, headers)
    if status == 429:
        return Transient(words, code=code, retry_after_s=wait_s)
    if status == 401:
        return Permanent(_SIGN_IN_ADVICE)
    if status == 404:
        return NotFound(words, code=NO_CHANNEL if refusal.code in _NO_CHANNEL else None)
    if status >= 500:
        failure = Transient if request.is_repeatable else Ambiguous
        return failure(words, code=code if wait_s else None, retry_after_s=wait_s)
    advice = _ADVICE.get(refusal.code)
    detail = bytes(refusal.errors).decode("utf-8", "replace")[:500]
    said = "; ".join(part for part in (words, detail, advice) if part)
    if _is_about_rendering(refusal):
        return Unrenderable(said)
    return Permanent(said, code=_code_of(refusal))


def _code_of(refusal: Refusal) -> str:
    """Return the code of our own error for a refusal, or an empty string for the usual one."""
    if refusal.code in _NO_CHANNEL:
        return NO_CHANNEL
    if refusal.code in _NOT_FOR_MESSAGES:
        return NOT_FOR_MESSAGES
    return NO_VOICE if refusal.code == _NO_VOICE else ""


def _is_about_rendering(refusal: Refusal) -> bool:
    """Tell whether Discord refuses the form of the text and not its content. In a forum post the
    fields of the first message are nested under `message`."""
    if refusal.code == _EMPTY:
        return True
    if refusal.code != _INVALID_FORM:
        return False
    fields = _fields(refusal.errors)
    named = {*fields, *_fields(fields.get("message", msgspec.Raw()))}
    return not named.isdisjoint(_RENDERED) or any(each in refusal.message for each in _RENDERED)


def _fields(errors: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Decode one level of Discord's error tree."""
    try:
        return msgspec.json.decode(errors, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def _is_for_all(refusal: Refusal, headers: Mapping[str, str]) -> bool:
    """Tell whether a wait holds for the whole account. A response that is not Discord's own comes
    from a proxy before it, which counts by our network address and so for all requests."""
    is_marked = headers.get("X-RateLimit-Scope") == "global" or "X-RateLimit-Global" in headers
    return refusal.is_global or is_marked or refusal.is_foreign


def _wait_s(refusal: Refusal, headers: Mapping[str, str]) -> float | None:
    """Return the wait that Discord asks for in seconds, or None if it names none."""
    if refusal.retry_after is not None:
        return refusal.retry_after
    try:
        return float(headers.get("Retry-After", ""))
    except ValueError:
        return None


def _refusal(body: bytes) -> Refusal:
    try:
        return msgspec.json.decode(body, type=Refusal)
    except msgspec.DecodeError:
        # The response is not from Discord but from a proxy before it, which answers with a page.
        return Refusal(message=body[:200].decode("utf-8", "replace"), is_foreign=True)


class Rest:
    """Sends the bot's requests. Usable between `open` and `close`."""

    def __init__(self, *, token: Secret, api_url: str, outgoing: Outgoing = DIRECT) -> None:
        self._outgoing = outgoing
        self._base = f"{api_url.rstrip('/')}/{VERSION}"
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the HTTP session, which the websocket uses too. Raises `Transient` before
        `open`."""
        if self._session is None:
            raise Transient("Discord is not connected yet")
        return self._session

    def open(self) -> None:
        if self._session is None:
            self._session = self._outgoing.session()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, request: RestRequest, kind: type[_T]) -> _T:
        """Send a request and return its response, decoded as `kind`."""
        body = await self.call(request)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise translated(error, request.verb, is_repeatable=request.is_repeatable) from error

    async def call(self, request: RestRequest) -> bytes:
        """Send a request and return the body of its response. Raises the domain's errors."""
        seconds = CALL_TIMEOUT_S if request.file is None else FILE_TIMEOUT_S
        try:
            async with (
                time_limit(seconds),
                self.session.request(
                    request.method,
                    self._base + request.path,
                    params=request.query,
                    data=_data(request),
                    headers=self._headers(request),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise translated(error, request.verb, is_repeatable=request.is_repeatable) from error
        if response.status >= 300:
            raise refused(request, response.status, response.headers, body)
        return body

    async def download(self, url: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. The request carries no token: the URL itself gives access."""
        timeout = aiohttp.ClientTimeout(total=FILE_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self.session.get(url, timeout=timeout) as response:
                if response.status >= 500 or response.status == 429:
                    raise Transient(
                        f"Discord's file store answered {response.status}",
                        retry_after_s=_wait_s(Refusal(), response.headers),
                    )
                if response.status != 200:
                    raise Permanent(
                        f"Discord's file store answered {response.status}: the file is gone; "
                        "ask for it to be sent again"
                    )
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise translated(error, "Discord's file store") from error

    def _headers(self, request: RestRequest) -> dict[str, str]:
        headers = {
            "Authorization": f"Bot {self._token.reveal()}",
            "User-Agent": f"DiscordBot (https://discordpy.readthedocs.io, {discord.__version__})",
        }
        if request.body is not None and request.file is None:
            headers["Content-Type"] = "application/json"
        return headers


def _data(request: RestRequest) -> bytes | aiohttp.FormData | None:
    encoded = None if request.body is None else msgspec.json.encode(request.body)
    if request.file is None:
        return encoded
    # aiohttp would quote the brackets of `files[0]`, and Discord does not read such a name.
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", (encoded or b"{}").decode(), content_type="application/json")
    form.add_field(
        "files[0]",
        request.file.data,
        filename=safe_name(request.file.name),
        content_type=request.file.mime or "application/octet-stream",
    )
    return form
