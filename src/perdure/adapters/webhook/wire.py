"""Posts messages to callbacks, and translates foreign errors into those of the domain.

The URL comes only from the configuration and redirects are not followed, so the sender of a request
cannot choose where our messages go. Receivers drop repeated messages by `webhook-id`, so an attempt
of unknown fate may be repeated: it is `Transient`, never `Ambiguous`.
"""

import io
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import aiohttp

from perdure.domain.errors import PerdureError, Permanent, Transient
from perdure.domain.waits import retry_after_s
from perdure.ports.system.clock import Clock
from perdure.ports.system.outgoing import DIRECT, Outgoing, proxy_trouble
from perdure.ports.system.time_limits import time_limit

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
# Statuses, besides 5xx, after which the same request may work later.
_LATER: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_ADVICE: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "let it check our signatures with the route's callback_secret",
    HTTPStatus.FORBIDDEN: "let it check our signatures with the route's callback_secret",
    HTTPStatus.NOT_FOUND: "nothing is there: correct the route's callback",
    HTTPStatus.GONE: "it wants no more messages: remove or change the route's callback",
}


class Wire:
    """Posts to callbacks with one HTTP session."""

    def __init__(
        self,
        clock: Clock,
        outgoing: Outgoing = DIRECT,
        *,
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> None:
        self._clock = clock
        self._outgoing = outgoing
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def post(self, route: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Post a message. Returns once the receiver has confirmed it with a 2xx status."""
        sending = self._opened_session().post(
            url,
            # As a file, aiohttp sends it in pieces: a long reply may not fit into one write to the
            # socket.
            data=io.BytesIO(body),
            headers={**headers, "Content-Type": "application/json", "User-Agent": "perdure"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._timeout.connect),
        )
        try:
            # Only the status matters, so the body of the response is not waited for.
            async with time_limit(self._timeout.total), sending as response:
                refusal = _refused(route, response, now_ms=self._clock.now_ms())
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(route, error) from error
        if refusal is not None:
            raise refusal

    def _opened_session(self) -> aiohttp.ClientSession:
        """Return the HTTP session. It is created at the first use, inside the running event
        loop."""
        if self._session is None:
            self._session = self._outgoing.session()
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _translated(route: str, error: Exception) -> PerdureError:
    """Translate an error of aiohttp. The error texts leave out the URL, which may hold a
    password."""
    match error:
        case aiohttp.InvalidURL():
            return Permanent(f"the callback of route {route} is no usable address; correct it")
        case aiohttp.ClientSSLError():
            return Transient(
                f"the callback of route {route} shows a certificate that is not trusted; renew it"
            )
        case aiohttp.ClientProxyConnectionError():
            return Transient(
                f"the callback of route {route} cannot be reached: {proxy_trouble(error)}"
            )
        case aiohttp.ClientConnectorError():
            return Transient(f"the callback of route {route} cannot be reached; is it running?")
        case TimeoutError():
            return Transient(f"the callback of route {route} did not answer in time")
        case _:
            return Transient(
                f"the callback of route {route} broke the connection ({type(error).__name__})"
            )


def _refused(route: str, response: aiohttp.ClientResponse, *, now_ms: int) -> PerdureError | None:
    """Return the error for a response that is no success, or None for a success."""
    status = response.status
    if 200 <= status < 300:
        return None
    said = f"the callback of route {route} answered {status}"
    if status in _LATER or status >= 500:
        after_s = retry_after_s(response.headers, now_ms=now_ms)
        return Transient(f"{said}; it is tried again", retry_after_s=after_s)
    if 300 <= status < 400:
        return Permanent(f"{said}; redirects are not followed: set callback to where it leads")
    return Permanent(f"{said}; {_ADVICE.get(status, 'see its log for why')}")
