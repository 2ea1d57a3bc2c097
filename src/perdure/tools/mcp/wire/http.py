"""Sends the package's HTTP requests over a session of the gateway, and says what became of each.

The package loses what an HTTP status meant, and an error that is raised here would end the whole
connection. So failures are noted in the request that is on its way (`GOING`), and the package gets
an answer that it passes on as a refusal.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Final

import aiohttp
import httpx2
import msgspec
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from multidict import CIMultiDict
from yarl import URL

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.urls import shown_url
from perdure.ports.system.outgoing import Outgoing, proxy_trouble
from perdure.ports.system.time_limits import time_limit
from perdure.tools.mcp.link import ANSWER_BYTES_MAX
from perdure.tools.mcp.wire.crowding import MANY_VALUES, Crowd
from perdure.tools.mcp.wire.dispatching import Message
from perdure.tools.mcp.wire.going import GOING, GoingRequest, LinkEnd, error_words

_CONNECT_S: Final = 15.0
# What is no request gets no answer, and the package sends nothing else meanwhile.
_BRIEF_S: Final = 5.0
_COMPLAINT_BYTES_MAX: Final = 64 * 1024
# So many streams of events are opened within so many seconds, and no more.
_LISTENING_MAX: Final = 10
_LISTENING_S: Final = 10.0
_SESSION: Final = "mcp-session-id"
# What aiohttp sets itself.
_HOPS: Final = frozenset({"host", "connection", "accept-encoding", "content-length"})
_UNPACKED: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_STATUS_WORDS: Final = {
    400: "it does not understand the request",
    401: "it asks for a token; check the headers that are configured for it",
    403: "it does not let us in; check the headers that are configured for it",
    404: "there is nothing at this address; check the url",
    405: "no tool server is at this address; check the url",
    429: "it has too much to do",
    503: "it is not available",
}
_TRY_LATER: Final = frozenset({425, 429})
_SERVER_FAULT: Final = 500


class _Head(msgspec.Struct):
    """Holds what tells a request from the rest."""

    id: int | str | None = None
    method: str = ""


class _Complaint(msgspec.Struct):
    """Holds what tells an error of the protocol from any other text."""

    error: dict[str, object]
    id: int | str | None = None


class AddressTransport(
    AbstractAsyncContextManager[tuple[ReadStream[Message], WriteStream[SessionMessage]]]
):
    """Connects to an address."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, outgoing: Outgoing, end: LinkEnd
    ) -> None:
        self._url = url
        self._headers = {"User-Agent": "perdure", **headers}
        self._outgoing = outgoing
        self._end = end
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[ReadStream[Message], WriteStream[SessionMessage]]:
        async with AsyncExitStack() as stack:
            timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S)
            session = self._outgoing.session(limit=0, timeout=timeout)
            await stack.enter_async_context(session)
            client = httpx2.AsyncClient(
                transport=_SessionTransport(session, self._end),
                headers=self._headers,
                timeout=None,
                trust_env=False,
            )
            await stack.enter_async_context(client)
            streams = await stack.enter_async_context(
                streamable_http_client(
                    self._url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX
                )
            )
            self._stack = stack.pop_all()
            return streams

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


class _SessionTransport(httpx2.AsyncBaseTransport):
    """Sends requests of httpx2 with aiohttp."""

    def __init__(self, session: aiohttp.ClientSession, end: LinkEnd) -> None:
        self._session = session
        self._end = end
        self._listened_at: deque[float] = deque(maxlen=_LISTENING_MAX)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises nothing: a failure is an answer too."""
        if request.method == "GET" and not await self._may_listen():
            return httpx2.Response(410, request=request)
        body = await request.aread()
        head = _head(body)
        is_asking = request.method == "POST" and bool(head.method) and head.id is not None
        # An answer to the server travels in the context of a call too, and says nothing about it.
        going = (GOING.get() if is_asking else None) or GoingRequest()
        going.failure, going.is_sent = None, True
        headers = CIMultiDict(
            (name, value) for name, value in request.headers.multi_items() if name not in _HOPS
        )
        headers["Accept-Encoding"] = "identity"
        try:
            is_brief = not is_asking and request.method != "GET"
            async with asyncio.timeout(_BRIEF_S if is_brief else None) as limit:
                going.stop_by(partial(limit.reschedule, asyncio.get_running_loop().time()))
                response = await self._session.request(
                    request.method,
                    # A login in the address has become a header.
                    URL(str(request.url), encoded=True).with_user(None),
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            going.stop_by(None)
            going.failure = _failure(error)
            return httpx2.Response(502, request=request)
        going.stop_by(response.close)
        if not is_asking and request.method != "GET":
            response.release()
            return httpx2.Response(response.status, request=request)
        if response.status >= 400:
            return await self._refused(request, response, going, is_asking=is_asking)
        going.failure = _misplaced(response) if is_asking else None
        if response.status >= 300:
            response.release()
            return httpx2.Response(response.status, headers=_headers(response), request=request)
        return httpx2.Response(
            response.status,
            headers=_headers(response),
            stream=_Body(response, going),
            request=request,
        )

    async def _may_listen(self) -> bool:
        """Tell whether a stream of events is still wanted. If streams end again and again, the next
        one is put off."""
        loop = asyncio.get_running_loop()
        if len(self._listened_at) == _LISTENING_MAX:
            await self._end.wait(self._listened_at[0] + _LISTENING_S - loop.time())
        self._listened_at.append(loop.time())
        going = GOING.get()
        return not self._end.words and (going is None or not going.is_over)

    async def _refused(
        self,
        request: httpx2.Request,
        response: aiohttp.ClientResponse,
        going: GoingRequest,
        *,
        is_asking: bool,
    ) -> httpx2.Response:
        """Read what a server complains about. What it says by the protocol, the package tells."""
        content = await _complaint_in(response)
        complaint = _complaint_of(content)
        is_about_us = complaint is None or complaint.id is None
        is_in_session = is_asking and _SESSION in request.headers
        if is_in_session and response.status in (400, 404) and is_about_us:
            # Some servers say 400 where the protocol has 404. To those who only listen, some say
            # 404 because they have nothing to tell.
            self._end.tell(f"has forgotten this connection (HTTP {response.status})")
            going.failure = Transient("the server has forgotten the connection; it is made anew")
        elif complaint is None:
            going.failure = _by_status(response)
        return httpx2.Response(
            response.status, headers=_headers(response), content=content, request=request
        )


class _Body(httpx2.AsyncByteStream):
    """Reads the body of an answer. Streams of events are bounded by the package, event by event."""

    def __init__(self, response: aiohttp.ClientResponse, going: GoingRequest) -> None:
        self._response = response
        self._going = going

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ANSWER_BYTES_MAX
        is_endless = self._response.content_type == "text/event-stream"
        crowd = Crowd(is_of_events=is_endless)
        try:
            async for piece in self._response.content.iter_any():
                left -= 0 if is_endless else len(piece)
                if left < 0:
                    words = f"the server's answer has more than {ANSWER_BYTES_MAX:,} bytes"
                    self._going.failure = Permanent(words)
                    raise httpx2.StreamError(words)
                if crowd.is_too_large_with(piece):
                    words = f"the server {MANY_VALUES}"
                    self._going.failure = Ambiguous(words) if is_endless else Permanent(words)
                    # After an `SSEError` the package takes up no stream again.
                    raise (httpx2.SSEError if is_endless else httpx2.StreamError)(words)
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            # The package knows what to do about a stream that breaks: some can be taken up again.
            if not is_endless:
                self._going.failure = _failure(error)
            raise httpx2.StreamError(error_words(error)) from error

    async def aclose(self) -> None:
        self._response.close()


def _head(body: bytes) -> _Head:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(body, type=_Head)
    return _Head()


def _headers(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, without those about how it was sent."""
    return [
        (name, value)
        for name, value in response.raw_headers
        if name.decode("latin-1").lower() not in _UNPACKED
    ]


async def _complaint_in(response: aiohttp.ClientResponse) -> bytes:
    """Return the beginning of what a server says beside an error."""
    content = b""
    try:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with time_limit(_BRIEF_S):
                while len(content) < _COMPLAINT_BYTES_MAX and (
                    piece := await response.content.readany()
                ):
                    content += piece
    finally:
        response.close()
    return content


def _complaint_of(content: bytes) -> _Complaint | None:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(content, type=_Complaint)
    return None


def _misplaced(response: aiohttp.ClientResponse) -> PerdureError | None:
    """Return what is wrong with an answer that is no answer to a request."""
    if response.status == 202:
        return Ambiguous("the server has taken the request, and says that no answer follows")
    if 300 <= response.status < 400:
        place = shown_url(response.headers.get("Location", ""))
        return Rejected(
            f"the server sends us to {place}; if that is the right one, set it as the url"
        )
    if response.content_type not in ("application/json", "text/event-stream"):
        return Permanent(
            f"what answers is no tool server: it sends {response.content_type}; check the url"
        )
    return None


def _by_status(response: aiohttp.ClientResponse) -> PerdureError:
    status = response.status
    words = f"the server answers HTTP {status}"
    if status in _STATUS_WORDS:
        words += f": {_STATUS_WORDS[status]}"
    if status in _TRY_LATER:
        return Transient(words)
    if status >= _SERVER_FAULT or status == 408:
        return Ambiguous(words)
    return Rejected(words)


def _failure(error: Exception) -> PerdureError:
    """Return what an error of aiohttp means: it did not get there, or nobody knows."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Transient(f"the server cannot be reached: {proxy_trouble(error)}")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Transient(f"the server cannot be reached: {error_words(error)}")
    if isinstance(error, ValueError):
        return Rejected(
            f"the request cannot be sent: {error_words(error)}; check the url and the headers"
        )
    return Ambiguous(f"the connection to the server broke: {error_words(error)}")
