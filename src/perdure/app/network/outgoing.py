"""Opens the HTTP sessions of the whole gateway, each over the proxies that are configured.

aiohttp itself speaks to HTTP proxies: it passes on a plain request, and asks for a tunnel for
https. A websocket without TLS needs a tunnel too, and SOCKS proxies give nothing else, so those are
opened in `tunnels.py`. Which way a request takes is decided when it asks for a connection, and so
again after each redirect.

All errors of a proxy come before the server has been asked for anything. They are raised as
`ClientProxyConnectionError`, which names the proxy and says that nothing was sent.
"""

import base64
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from perdure.app.network.proxies import NO_PROXIES, Proxies, Proxy, reason_of
from perdure.ports.system.time_limits import time_limit

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_AUTHORIZATION: Final = "Proxy-Authorization"
_UPGRADE: Final = "Upgrade"


class RoutedOutgoing:
    """Implements the `Outgoing` port. `trusted` holds the certificate authorities, or is None for
    those of the system."""

    def __init__(
        self, proxies: Proxies = NO_PROXIES, *, trusted: ssl.SSLContext | None = None
    ) -> None:
        self.proxies = proxies
        self._trusted: ssl.SSLContext | bool = trusted or True

    def proxy_for(self, url: URL) -> Proxy | None:
        """Return the proxy over which a URL is reached, or None."""
        return self.proxies.between(url.scheme, url.host or "", url.port)

    def session(
        self, *, limit: int = 100, timeout: aiohttp.ClientTimeout | None = None
    ) -> aiohttp.ClientSession:
        return self.bare_session(limit=limit, timeout=timeout)

    def bare_session(
        self,
        *,
        limit: int = 100,
        timeout: aiohttp.ClientTimeout | None = None,
        resolver: AbstractResolver | None = None,
        auto_decompress: bool = True,
    ) -> aiohttp.ClientSession:
        """Return a new session that may have a resolver of its own. The resolver is asked for every
        connection, and for all names but those that a proxy resolves and that of the proxy."""
        connector = _Routed(
            self.proxies,
            limit=limit,
            ssl=self._trusted,
            resolver=resolver,
            use_dns_cache=resolver is None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout or aiohttp.client.DEFAULT_TIMEOUT,
            auto_decompress=auto_decompress,
        )


class _Routed(aiohttp.TCPConnector):
    """Opens connections, directly or over the proxy that is right for the request."""

    def __init__(
        self,
        proxies: Proxies,
        *,
        limit: int,
        ssl: ssl.SSLContext | bool,
        resolver: AbstractResolver | None,
        use_dns_cache: bool,
    ) -> None:
        super().__init__(limit=limit, ssl=ssl, resolver=resolver, use_dns_cache=use_dns_cache)
        self._proxies = proxies
        self._bound = limit
        self._trusted = ssl
        self._own_resolver = resolver
        # What leads over proxies, by what it is for. Made when it is first needed.
        self._over_proxies: dict[Proxy | str, aiohttp.TCPConnector] = {}

    async def connect(
        self,
        req: "ClientRequest",
        traces: list["Trace"],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> "Connection":
        url = req.url
        proxy = self._proxies.between(url.scheme, url.host or "", url.port)
        if proxy is None:
            return await super().connect(req, traces, timeout)
        try:
            async with time_limit(timeout.sock_connect):
                return await self._over(proxy, req).connect(req, traces, timeout)
        except (aiohttp.ClientSSLError, aiohttp.InvalidURL, TimeoutError):
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(proxy, req, error) from error

    def _over(self, proxy: Proxy, req: "ClientRequest") -> aiohttp.TCPConnector:
        """Return the connector for a request over a proxy, and prepare the request for it."""
        url = req.url
        is_websocket = url.scheme == "ws" or (url.scheme == "http" and _UPGRADE in req.headers)
        if not proxy.is_http or (is_websocket and proxy.scheme == "http"):
            from perdure.app.network.tunnels import Tunnels  # noqa: PLC0415 - few need its library

            make = partial(Tunnels, proxy, resolver=self._own_resolver)
            return self._made(proxy, make)
        login = _login(proxy)
        req.update_proxy(URL(proxy.shown), None, CIMultiDict(login))
        if url.scheme in ("https", "wss"):
            return self._made("tunnels", aiohttp.TCPConnector)
        # Such a request is passed on whole, so the login for the proxy stands in it. Its connection
        # serves no other request: some proxies close it after the answer without saying so, and a
        # request that was just sent would be lost.
        req.headers.update(login)
        return self._made("passed on", partial(aiohttp.TCPConnector, force_close=True))

    def _made(
        self, purpose: Proxy | str, make: Callable[..., aiohttp.TCPConnector]
    ) -> aiohttp.TCPConnector:
        if purpose not in self._over_proxies:
            self._over_proxies[purpose] = make(limit=self._bound, ssl=self._trusted)
        return self._over_proxies[purpose]

    async def close(self, *, abort_ssl: bool = False) -> None:
        for each in self._over_proxies.values():
            await each.close(abort_ssl=abort_ssl)
        await super().close(abort_ssl=abort_ssl)


def _login(proxy: Proxy) -> dict[str, str]:
    """Return the header with which a proxy is told who we are."""
    if proxy.user is None:
        return {}
    login = f"{proxy.user.reveal()}:{proxy.password.reveal()}".encode()
    return {_AUTHORIZATION: f"Basic {base64.b64encode(login).decode()}"}


def _failed(
    proxy: Proxy, req: "ClientRequest", error: Exception
) -> aiohttp.ClientProxyConnectionError:
    """Return the error for a proxy that did not lead to the server. It keeps the number of the
    operating system's error, and never holds the login."""
    match error:
        case aiohttp.ClientHttpProxyError(status=HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):
            why = "it wants another user and password (407)"
        case aiohttp.ClientHttpProxyError():
            why = f"it refused {req.url.host}:{req.url.port} ({error.status} {error.message})"
        case aiohttp.ClientConnectorError():
            why = reason_of(error.os_error)
        case _:
            why = reason_of(error)
    number = error.errno if isinstance(error, OSError) else None
    words = f"the proxy {proxy.shown} did not connect us: {why}"
    return aiohttp.ClientProxyConnectionError(req.connection_key, OSError(number or 0, words))
