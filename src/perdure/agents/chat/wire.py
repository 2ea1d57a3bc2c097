"""Sends requests to a model server, and describes every failure before the answer begins.

All turns of an agent share one connection pool. It has no limit, since each running turn holds one
connection. Redirects are not followed, because the next host would receive the key.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import aiohttp

from perdure.agents.chat import failures
from perdure.agents.chat.complaints import complaint
from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.exchange import Exchange
from perdure.agents.chat.failures import ModelFailure, ModelServerInfo
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.pieces import written
from perdure.domain.errors import NO_FILES
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import ROOM, AnswerRoom
from perdure.domain.urls import secrets_in_url, shown_url, without_login
from perdure.ports.system import descriptors
from perdure.ports.system.clock import Clock
from perdure.ports.system.outgoing import DIRECT, Outgoing, proxy_trouble
from perdure.ports.system.time_limits import running_time, time_limit, time_limit_until

# Larger bodies are sent in pieces, to save a copy of the whole.
_WHOLE_BYTES_MAX: Final = 64 * 1024
# Bounds on reading the body of a refusal, which is only quoted.
_COMPLAINT_BYTES_MAX: Final = 64 * 1024
_COMPLAINT_TIMEOUT_S: Final = 5.0


class ModelWire:
    """Posts requests to one model server."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        session: aiohttp.ClientSession | None,
        clock: Clock,
        outgoing: Outgoing = DIRECT,
    ) -> None:
        self._settings = settings
        self._outgoing = outgoing
        self._dialect = DIALECTS[settings.api]
        self._session = session
        self._owns_session = session is None
        self._is_closed = False
        self._clock = clock
        self._url, user, password = without_login(self._dialect.url(settings.base_url))
        self._headers = self._all_headers(user, password)
        keys = (settings.api_key or "", *settings.headers.values())
        self.server = ModelServerInfo(
            agent=settings.name,
            model=settings.model,
            url=shown_url(settings.base_url),
            secrets=keys,
            url_secrets=secrets_in_url(settings.base_url),
        )
        self._timeout = aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout_s)

    def _all_headers(self, user: str, password: str) -> Mapping[str, str]:
        """Return the headers of every request. Configured headers win over the dialect's own."""
        login = {"Authorization": _basic(user, password)} if user else {}
        return {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            # A compressed stream would be buffered and arrive in lumps.
            "Accept-Encoding": "identity",
            "User-Agent": "perdure",
            **login,
            **self._dialect.headers(self._settings),
            **self._settings.headers,
        }

    async def post(
        self, body: Sequence[bytes], *, room: AnswerRoom = ROOM
    ) -> Exchange | ModelFailure:
        """Send a request. Returns an exchange once the server begins a successful response.

        `room` says how much the model may answer. Failures are returned, never raised.
        """
        if self._is_closed:
            return _closed(self.server)
        deadline = running_time().now_s() + self._settings.first_token_timeout_s
        try:
            async with time_limit_until(deadline):
                response = await self._ask(body)
                if 200 <= response.status < 300:
                    return Exchange(
                        response,
                        self._settings,
                        self.server,
                        room=room,
                        deadline=deadline,
                        retry_after_s=self._retry_after_s(response),
                    )
                return await self._refused(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._translated(error)
        except RuntimeError:
            # aiohttp raises this if the session was closed in the meantime.
            return _closed(self.server)

    async def _ask(self, body: Sequence[bytes]) -> aiohttp.ClientResponse:
        size = sum(map(len, body))
        return await self._opened_session().post(
            self._url,
            data=b"".join(body) if size <= _WHOLE_BYTES_MAX else written(body),
            headers={**self._headers, "Content-Length": str(size)},
            allow_redirects=False,
            timeout=self._timeout,
        )

    def _opened_session(self) -> aiohttp.ClientSession:
        """Return the HTTP session. It is created at the first use, inside the running event
        loop."""
        if self._session is None:
            self._session = self._outgoing.session(limit=0)
        return self._session

    async def _refused(self, response: aiohttp.ClientResponse) -> ModelFailure:
        """Read the body of a refusal, and return the failure that describes it."""
        body = bytearray()
        content = response.content
        try:
            with suppress(aiohttp.ClientError, OSError):
                async with time_limit(_COMPLAINT_TIMEOUT_S):
                    while len(body) < _COMPLAINT_BYTES_MAX and (piece := await content.readany()):
                        body += piece
        finally:
            response.close()
        return failures.refused(
            self.server,
            response.status,
            complaint(bytes(body)),
            location=response.headers.get("Location", ""),
            retry_after_s=self._retry_after_s(response),
        )

    def _retry_after_s(self, response: aiohttp.ClientResponse) -> float | None:
        return failures.retry_after_s(response.headers, now_ms=self._clock.now_ms())

    def _translated(self, error: Exception) -> ModelFailure:
        """Return the failure for an error that aiohttp raised before a response came."""
        if isinstance(error, OSError) and error.errno in NO_FILES:
            return failures.no_descriptor(self.server)
        match error:
            case aiohttp.ClientConnectorError() | aiohttp.ClientSSLError():
                return self._not_connected(error)
            case aiohttp.ConnectionTimeoutError():
                return failures.no_connection_in_time(self.server, self._settings.connect_timeout_s)
            case TimeoutError():
                return failures.no_token_in_time(self.server, self._settings.first_token_timeout_s)
            case aiohttp.ClientResponseError():
                return failures.garbage(self.server)
            case ValueError():
                return failures.unusable(self.server)
            case _:
                return failures.gone(self.server)

    def _not_connected(self, error: Exception) -> ModelFailure:
        """Return the failure for a connection that could not be opened."""
        match error:
            case aiohttp.ClientConnectorDNSError():
                # Without a free file descriptor, resolving a name fails too, but the host is not to
                # blame.
                is_ours = not descriptors.are_left()
                return (failures.no_descriptor if is_ours else failures.unknown_host)(self.server)
            case aiohttp.ClientSSLError():
                return failures.untrusted(self.server, error)
            case aiohttp.ClientProxyConnectionError():
                return _no_way(self.server, error)
            case _:
                return failures.unreachable(self.server, error)

    async def close(self) -> None:
        """Close the session if it is our own. Later calls of `post` return a failure."""
        self._is_closed = True
        if self._session is not None and self._owns_session:
            await self._session.close()


def _basic(user: str, password: str) -> str:
    """Return the header value for HTTP basic authentication."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _no_way(server: ModelServerInfo, error: aiohttp.ClientProxyConnectionError) -> ModelFailure:
    """Return the failure for a proxy that did not lead to the server."""
    words = f"no connection to {server.url}: {proxy_trouble(error)}"
    return server.failure(StopReason.PROVIDER_UNREACHABLE, words, may_retry=True)


def _closed(server: ModelServerInfo) -> ModelFailure:
    return server.failure(
        StopReason.AGENT_ERROR, f"agent {server.agent} has been closed; is Perdure shutting down?"
    )
