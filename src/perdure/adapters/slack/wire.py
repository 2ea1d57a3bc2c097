"""Sends HTTP requests to Slack, and translates foreign errors into those of the domain.

Slack's library makes the calls, but its retries and its logging of messages are switched off. Every
call is sent as a form, because all methods accept one. `send` is for calls that show something new:
if their answer is lost, they may have been carried out, which is `Ambiguous`. `ask` is for all
others, which may be repeated.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from perdure.adapters.slack.calls.refusals import APP_TOKEN_KEY, TOKEN_KEY, Said, limited, refusal
from perdure.adapters.slack.calls.waits import Waits
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient
from perdure.domain.secret import Secret
from perdure.ports.records.media import FOR_SENDER
from perdure.ports.system.clock import Clock
from perdure.ports.system.outgoing import DIRECT, Outgoing, proxy_trouble
from perdure.ports.system.time_limits import time_limit

CONNECT_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 30.0
TRANSFER_TIMEOUT_S: Final = 300.0
# The longest pause between two pieces of a file that is downloaded.
SILENCE_TIMEOUT_S: Final = 60.0
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
# Hosts that may see the bot's token, besides that of `api_url`.
_OWN_HOSTS: Final = (".slack.com", ".slack-edge.com", ".slack-files.com", ".slack-gov.com")

# At lower levels the library logs whole requests, with what people write.
_quiet: Final = logging.getLogger("perdure.slack_sdk")
_quiet.setLevel(logging.ERROR)

Params = Mapping[str, object]
_AnswerT = TypeVar("_AnswerT")


class Nothing(msgspec.Struct, frozen=True):
    """Stands for a response of which only the success matters."""


class Wire:
    """Calls Slack's methods as one app, and transfers files."""

    def __init__(
        self,
        url: str,
        *,
        token: Secret,
        app_token: Secret | None,
        clock: Clock,
        outgoing: Outgoing = DIRECT,
    ) -> None:
        self._outgoing = outgoing
        self._url = url if url.endswith("/") else f"{url}/"
        self._tokens = {TOKEN_KEY: token, APP_TOKEN_KEY: app_token}
        self._clients: dict[str, AsyncWebClient] = {}
        self._session: aiohttp.ClientSession | None = None
        self._waits = Waits(clock)

    async def ask(
        self, method: str, params: Params, kind: type[_AnswerT], *, token_key: str = TOKEN_KEY
    ) -> _AnswerT:
        """Call a method that may be called twice without harm. Returns the response as `kind`."""
        return await self._call(method, params, kind, token_key=token_key, is_repeatable=True)

    async def send(self, method: str, params: Params, kind: type[_AnswerT]) -> _AnswerT:
        """Call a method that shows something new each time. A lost answer raises `Ambiguous`."""
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
        """Call a method, unless Slack has asked to wait. Raises the domain's errors."""
        channel = params.get("channel")
        if (left_s := self._waits.left_s(method, channel)) > 0:
            raise limited(method, left_s)
        try:
            async with time_limit(CALL_TIMEOUT_S):
                response = await self._client(token_key).api_call(method, data=_form(params))
        # The library takes every response of status 200 for a JSON object, and fails with
        # AttributeError if it is something else.
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
            # The HTTP session knows the configured proxy, with its exceptions. The library would
            # read one of the machine's variables and use it for all hosts.
            client.proxy = None
            self._clients[token_key] = client
        return self._clients[token_key]

    @property
    def session(self) -> aiohttp.ClientSession:
        """Return the HTTP session. It is created at the first use, inside the running event
        loop."""
        if self._session is None or self._session.closed:
            self._clients.clear()
            self._session = self._outgoing.session(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
            )
        return self._session

    async def put(self, url: str, data: bytes) -> None:
        """Upload the bytes of a file. They are not shown to anybody yet, so this may be
        repeated."""
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
        """Yield the bytes of a file. Only Slack's own hosts are asked, since they see the token."""
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
        """Tell whether a URL is on a host that may see the token."""
        parts, home = urlsplit(url), urlsplit(self._url)
        if parts.netloc == home.netloc:
            return parts.scheme == home.scheme
        return parts.scheme == "https" and (parts.hostname or "").endswith(_OWN_HOSTS)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _form(params: Params) -> dict[str, str]:
    """Return the form fields of a call. Empty values are left out."""
    return {name: _field(value) for name, value in params.items() if value not in (None, "", ())}


def _field(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _check_file(response: aiohttp.ClientResponse, url: str) -> None:
    """Raise if the response does not hold the file."""
    is_page = response.content_type == "text/html" and not urlsplit(url).path.endswith(
        (".htm", ".html")
    )
    if 300 <= response.status < 400 or (response.status == 200 and is_page):
        # An app without access to a file is redirected to Slack's sign-in page.
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
    """Translate an error of aiohttp or Slack's library into one of the domain's errors."""
    match error:
        case SlackApiError():
            return _refused(error, what, token_key=token_key, is_repeatable=is_repeatable)
        case aiohttp.ClientSSLError():
            return Transient(
                f"no safe connection to Slack for {what}; check api_url in [adapters.slack] and "
                "the server's certificate"
            )
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            why = "check the network, and api_url in [adapters.slack]"
            if isinstance(error, aiohttp.ClientProxyConnectionError):
                why = proxy_trouble(error)
            return Transient(f"Slack cannot be reached for {what}; {why}")
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
    """Translate a refusal of Slack into one of the domain's errors."""
    response = error.response
    # If the body is no JSON, the library gives the aiohttp response, which names the status
    # otherwise.
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
    """Return the error for a call whose answer was lost or cannot be read."""
    if is_repeatable:
        return Transient(words)
    return Ambiguous(f"{words}, so it may have been shown; look into the channel")


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Return the wait that Slack asks for in seconds, or None if it names none."""
    value = headers.get("Retry-After")
    return float(value) if value and value.isdecimal() else None
