"""Makes HTTP requests to a Bot API server, and translates every failure into our errors.

The server answers `{"ok": true, "result": …}`, or says why not. Nothing is repeated here. No error
text quotes a URL, because the URL contains the token.
"""

import io
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from perdure.adapters.telegram.refusals import BotApiAnswer, refusal
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Transient
from perdure.domain.secret import Secret
from perdure.ports.system.outgoing import DIRECT, Outgoing, proxy_trouble
from perdure.ports.system.time_limits import time_limit

CONNECT_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 30.0
UPLOAD_TIMEOUT_S: Final = 300.0
SILENCE_TIMEOUT_S: Final = 60.0
# Bounds the memory that one answer can take.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(BotApiAnswer)

Params = Mapping[str, object]


class UploadField(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one file of a multipart form."""

    field: str
    name: str
    mime: str
    data: bytes


class Api:
    """Makes the calls of one bot to one server. `patience_s` is the time limit of a call that names
    none."""

    def __init__(
        self,
        url: str,
        token: Secret,
        *,
        patience_s: float = CALL_TIMEOUT_S,
        outgoing: Outgoing = DIRECT,
    ) -> None:
        self._outgoing = outgoing
        self._patience_s = patience_s
        self._url = url.rstrip("/")
        self._token = token
        self._host = urlsplit(url).hostname or url
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self, method: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> msgspec.Raw:
        """Make a call that may be repeated without harm. Raises `Transient` if no answer comes."""
        body = _encoder.encode(params or {})
        within_s = timeout_s or self._patience_s
        return await self._call(method, body, timeout_s=within_s, is_repeatable=True)

    async def send(
        self, method: str, params: Params, *, attachment: UploadField | None = None
    ) -> msgspec.Raw:
        """Make a call that shows something new each time it arrives. Raises `Ambiguous` if no
        answer comes."""
        if attachment is None:
            body: bytes | aiohttp.FormData = _encoder.encode(params)
            return await self._call(method, body, timeout_s=self._patience_s, is_repeatable=False)
        body = _form(params, attachment)
        return await self._call(method, body, timeout_s=UPLOAD_TIMEOUT_S, is_repeatable=False)

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. Raises `Transient` if the connection breaks."""
        address = self._address(f"/file/bot{{}}/{quote(path)}")
        timeout = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S
        )
        try:
            async with self._opened().get(
                address, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise refusal("the file", response.status, BotApiAnswer(), is_repeatable=True)
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise self._translated(error, "the file", is_repeatable=True) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(
        self,
        method: str,
        body: bytes | aiohttp.FormData,
        *,
        timeout_s: float,
        is_repeatable: bool,
    ) -> msgspec.Raw:
        """Make one call and return its result. Raises what `refusal` or `_translated` decides."""
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else {}
        try:
            async with (
                time_limit(timeout_s),
                self._opened().post(
                    self._address(f"/bot{{}}/{method}"),
                    data=body,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S),
                    allow_redirects=False,
                ) as response,
            ):
                status, said = response.status, await _read(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._translated(error, method, is_repeatable=is_repeatable) from None
        answer = _decoded(said)
        if answer.ok:
            return answer.result
        raise refusal(method, answer.error_code or status, answer, is_repeatable=is_repeatable)

    def _translated(self, error: Exception, what: str, *, is_repeatable: bool) -> PerdureError:
        """Return our error for what aiohttp raises. This is the one place where that is decided."""
        match error:
            case aiohttp.ClientConnectorDNSError():
                return Transient(
                    f"{what}: the name {self._host!r} cannot be resolved; check the network, and "
                    "api_url of [adapters.telegram]"
                )
            case aiohttp.ClientSSLError():
                return Transient(
                    f"{what}: no safe connection to {self._host}; check its certificate, and "
                    "api_url of [adapters.telegram]"
                )
            case aiohttp.ClientProxyConnectionError():
                return Transient(f"{what}: {proxy_trouble(error)}")
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
                return Transient(f"{what}: {self._host} cannot be reached; check the network")
            case aiohttp.InvalidURL():
                return Permanent(
                    f"{what}: no request can be made; check token and api_url of "
                    "[adapters.telegram] for stray characters"
                )
            case _ if is_repeatable:
                return Transient(f"{what}: {self._host} did not answer; it is tried again later")
            case _:
                # The request may have arrived: all we know is that no answer came back.
                return Ambiguous(
                    f"{what}: {self._host} did not answer; look into the chat whether it arrived"
                )

    def _address(self, path: str) -> URL:
        token = quote(self._token.reveal(), safe=":")
        return URL(self._url + path.format(token), encoded=True)

    def _opened(self) -> aiohttp.ClientSession:
        """Return the HTTP session. It is made late, because it belongs to the running event
        loop."""
        if self._session is None:
            self._session = self._outgoing.session(limit=0)
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read a body of at most `ANSWER_BYTES_MAX` bytes."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError("too long")
    return bytes(body)


def _decoded(said: bytes) -> BotApiAnswer:
    """Decode an answer. For anything else, such as a proxy's page, return an empty one: then only
    the HTTP status counts."""
    try:
        return _decoder.decode(said)
    except msgspec.MsgspecError:
        return BotApiAnswer()


def _form(params: Params, attachment: UploadField) -> aiohttp.FormData:
    # Telegram shows a file's name as it is sent, so it must not be percent-encoded.
    form = aiohttp.FormData(quote_fields=False)
    for name, value in params.items():
        form.add_field(name, value if isinstance(value, str) else _encoder.encode(value).decode())
    form.add_field(
        attachment.field,
        io.BytesIO(attachment.data),
        filename=attachment.name,
        content_type=attachment.mime,
    )
    return form
