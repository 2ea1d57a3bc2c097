"""HTTP to Slack, and every failure there in our own words.

Slack's library makes the calls and is kept from its habits: it retries nothing, and it logs no
message. Everything goes out as a form, the one shape that every method takes. A call that shows
something new is a `send`: when its answer is lost, nobody knows whether it happened. All others are
an `ask` and may be made again.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from perdure.adapters.slack.refusals import APP_TOKEN_KEY, TOKEN_KEY, Said, limited, refusal
from perdure.adapters.slack.waits import Waits
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient
from perdure.domain.secret import Secret
from perdure.ports.records.media import FOR_SENDER
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit

CONNECT_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 30.0
TRANSFER_TIMEOUT_S: Final = 300.0
SILENCE_TIMEOUT_S: Final = 60.0
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_OWN_HOSTS: Final = (".slack.com", ".slack-edge.com", ".slack-files.com", ".slack-gov.com")

# The library would write whole requests to the log.
_quiet: Final = logging.getLogger("perdure.slack_sdk")
_quiet.setLevel(logging.ERROR)

Params = Mapping[str, object]
_AnswerT = TypeVar("_AnswerT")


class Nothing(msgspec.Struct, frozen=True):
    """An answer that says no more than that it was done."""


class Wire:
    """One app at one server."""

    def __init__(self, url: str, *, token: Secret, app_token: Secret | None, clock: Clock) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self._tokens = {TOKEN_KEY: token, APP_TOKEN_KEY: app_token}
        self._clients: dict[str, AsyncWebClient] = {}
        self._session: aiohttp.ClientSession | None = None
        self._waits = Waits(clock)

    async def ask(
        self, method: str, params: Params, kind: type[_AnswerT], *, token_key: str = TOKEN_KEY
    ) -> _AnswerT:
        """A call that may be made twice without harm."""
        return await self._call(method, params, kind, token_key=token_key, is_repeatable=True)

    async def send(self, method: str, params: Params, kind: type[_AnswerT]) -> _AnswerT:
        """A call that shows something new each time it arrives."""
        return await self._call(method, params, kind, token_key=TOKEN_KEY, is_repeatable=False)

    async def _call(
        self,
        method: str,
        params: Params,
        kind: type[_AnswerT],
        *,
        token_key: str,
        is_repeatable: bool,
    ) -> _AnswerT:
        channel = params.get("channel")
        if (left_s := self._waits.left_s(method, channel)) > 0:
            raise limited(method, left_s)
        try:
            async with time_limit(CALL_TIMEOUT_S):
                response = await self._client(token_key).api_call(method, data=_form(params))
        # The library takes any answer of status 200 for an object, and trips over text.
        except (SlackClientError, aiohttp.ClientError, OSError, AttributeError) as error:
            told = translated(error, method, token_key=token_key, is_repeatable=is_repeatable)
            if isinstance(told, Transient) and told.retry_after_s:
                self._waits.keep(method, channel, told.retry_after_s)
            raise told from None
        try:
            return msgspec.convert(response.data, kind)
        except msgspec.ValidationError:
            raise _lost(f"Slack's answer to {method} cannot be read", is_repeatable) from None

    def _client(self, token_key: str) -> AsyncWebClient:
        if token_key not in self._clients:
            secret = self._tokens[token_key]
            client = AsyncWebClient(
                token=secret.reveal() if secret else None,
                base_url=self._url,
                session=self.session,
                logger=_quiet,
                retry_handlers=[],
            )
            # The session knows the machine's proxies, and who is not to be reached through one.
            client.proxy = None
            self._clients[token_key] = client
        return self._clients[token_key]

    @property
    def session(self) -> aiohttp.ClientSession:
        """Made late, because it belongs to the running loop."""
        if self._session is None or self._session.closed:
            self._clients.clear()
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=True,
            )
        return self._session

    async def put(self, url: str, data: bytes) -> None:
        """Bring the bytes of a file to where Slack wants them. Nobody sees them yet."""
        try:
            async with (
                time_limit(TRANSFER_TIMEOUT_S),
                self.session.post(url, data=data) as response,
            ):
                status, wait_s = response.status, _wait_s(response.headers)
        except (aiohttp.ClientError, OSError) as error:
            raise translated(error, "the upload of a file", is_repeatable=True) from None
        if 400 <= status < 500 and status != 429:
            raise Permanent(f"Slack does not take the bytes of the file ({status}); is it too big?")
        if status != 200:
            raise Transient(
                f"Slack did not take the bytes of the file ({status})", retry_after_s=wait_s
            )

    async def get(self, url: str) -> AsyncIterator[bytes]:
        """The bytes of a file. The token is shown to Slack alone."""
        if not self._is_own(url):
            raise Permanent(
                "the file is not kept by Slack; send it as a file, or as a link", code=FOR_SENDER
            )
        token = self._tokens[TOKEN_KEY]
        headers = {"Authorization": f"Bearer {token.reveal() if token else ''}"}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S
        )
        try:
            async with self.session.get(
                url, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                _check_file(response, url)
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise translated(error, "the file", is_repeatable=True) from None

    def _is_own(self, url: str) -> bool:
        parts, home = urlsplit(url), urlsplit(self._url)
        if parts.netloc == home.netloc:
            return parts.scheme == home.scheme
        return parts.scheme == "https" and (parts.hostname or "").endswith(_OWN_HOSTS)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _form(params: Params) -> dict[str, str]:
    return {name: _field(value) for name, value in params.items() if value not in (None, "", ())}


def _field(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _check_file(response: aiohttp.ClientResponse, url: str) -> None:
    is_page = response.content_type == "text/html" and not urlsplit(url).path.endswith(
        (".htm", ".html")
    )
    if 300 <= response.status < 400 or (response.status == 200 and is_page):
        # Slack leads whoever may not see a file to its sign-in page.
        raise Permanent(
            "Slack does not hand out the file; give the app the scope files:read under "
            "OAuth & Permissions and install it again"
        )
    if response.status == 429 or response.status >= 500:
        raise Transient(
            f"Slack does not hand out the file now ({response.status})",
            retry_after_s=_wait_s(response.headers),
        )
    if response.status != 200:
        raise Permanent(f"Slack does not hand out the file ({response.status}); send it again")


def translated(
    error: Exception, what: str, *, token_key: str = TOKEN_KEY, is_repeatable: bool
) -> PerdureError:
    """The one place where what the libraries raise becomes an error of ours."""
    match error:
        case SlackApiError():
            return _refused(error, what, token_key=token_key, is_repeatable=is_repeatable)
        case aiohttp.ClientSSLError():
            return Transient(
                f"no safe connection to Slack for {what}; check api_url in [adapters.slack] and "
                "the server's certificate"
            )
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return Transient(
                f"Slack cannot be reached for {what}; check the network, and api_url in "
                "[adapters.slack]"
            )
        case aiohttp.WSServerHandshakeError():
            return Transient(
                f"Slack does not open {what} now ({error.status})",
                retry_after_s=_wait_s(error.headers or {}),
            )
        case aiohttp.InvalidURL():
            return Permanent("api_url in [adapters.slack] is no address; correct it")
        case TimeoutError():
            return _lost(f"Slack did not answer {what} in time", is_repeatable)
        case AttributeError():
            return _lost(f"Slack's answer to {what} cannot be read", is_repeatable)
        case _:
            return _lost(f"the connection to Slack broke during {what}", is_repeatable)


def _refused(
    error: SlackApiError, what: str, *, token_key: str, is_repeatable: bool
) -> PerdureError:
    response = error.response
    # For a body that is no JSON the library hands over the bare response.
    status = getattr(response, "status_code", None) or getattr(response, "status", None) or 0
    data = getattr(response, "data", None)
    body = data if isinstance(data, dict) else {}
    if status == 200 and not body.get("error"):
        return _lost(f"Slack's answer to {what} cannot be read", is_repeatable)
    said = Said(
        error=str(body.get("error", "")),
        status=int(status),
        needed=str(body.get("needed", "")),
        retry_after_s=_wait_s(response.headers),
    )
    return refusal(what, said, token_key=token_key, is_repeatable=is_repeatable)


def _lost(words: str, is_repeatable: bool) -> PerdureError:  # noqa: FBT001
    if is_repeatable:
        return Transient(words)
    return Ambiguous(f"{words}, so it may have been shown; look into the channel")


def _wait_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After")
    return float(value) if value and value.isdecimal() else None
