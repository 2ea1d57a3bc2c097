"""Opens the HTTP sessions of the whole gateway, each over the proxies that are configured.

aiohttp itself speaks to HTTP proxies: it passes on a plain request, and asks for a tunnel for
https. A websocket without TLS needs a tunnel too, and SOCKS proxies give nothing else, so those are
opened with python-socks. Which way a request takes is decided when it asks for a connection, and so
again after each redirect.

All errors of a proxy come before the server has been asked for anything. They are raised as
`ClientProxyConnectionError`, which names the proxy and says that nothing was sent.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import python_socks
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from python_socks.async_.asyncio import Proxy as SocksClient
from yarl import URL

from perdure.app.network.proxies import NO_PROXIES, Proxies, Proxy
from perdure.ports.system.time_limits import time_limit

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_AUTHORIZATION: Final = "Proxy-Authorization"
_UPGRADE: Final = "Upgrade"
# The kinds of SOCKS proxies, and of HTTP proxies that are asked for a tunnel.
_KINDS: Final = {
    "http": python_socks.ProxyType.HTTP,
    "socks4": python_socks.ProxyType.SOCKS4,
    "socks4a": python_socks.ProxyType.SOCKS4,
    "socks5": python_socks.ProxyType.SOCKS5,
    "socks5h": python_socks.ProxyType.SOCKS5,
}
# The only kind of proxy that takes addresses and no names.
_WITHOUT_NAMES: Final = "socks4"


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
            make = partial(_Tunnels, proxy, resolver=self._own_resolver)
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


class _Tunnels(aiohttp.TCPConnector):
    """Opens every connection as a tunnel through one proxy. Names are left to the proxy, unless it
    takes addresses only."""

    def __init__(
        self,
        proxy: Proxy,
        *,
        limit: int,
        ssl: ssl.SSLContext | bool,
        resolver: AbstractResolver | None,
    ) -> None:
        takes_names = proxy.scheme != _WITHOUT_NAMES
        super().__init__(
            limit=limit,
            ssl=ssl,
            resolver=_LeftToTheProxy() if takes_names else resolver,
            use_dns_cache=False,
            family=socket.AF_UNSPEC if takes_names else socket.AF_INET,
        )
        self._proxy = proxy

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: Any,
        req: "ClientRequest",
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, "ResponseHandler"]:
        """Open a tunnel where aiohttp would open a socket. The rest is aiohttp's own."""
        host, port = addr_infos[0][4][:2]
        for unused in ("timeout", "client_error"):
            kwargs.pop(unused, None)
        tunnel = await self._tunnel(host, port)
        try:
            return await self._loop.create_connection(*args, **kwargs, sock=tunnel)
        except ssl.CertificateError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, error) from error

    async def _tunnel(self, host: str, port: int) -> socket.socket:
        proxy = self._proxy
        client = SocksClient(
            proxy_type=_KINDS[proxy.scheme],
            host=proxy.host,
            port=proxy.port,
            username=None if proxy.user is None else proxy.user.reveal(),
            password=None if proxy.user is None else proxy.password.reveal(),
            rdns=proxy.scheme != _WITHOUT_NAMES,
        )
        try:
            return await client.connect(dest_host=host, dest_port=port)
        except python_socks.ProxyTimeoutError as error:
            raise TimeoutError("the proxy does not answer") from error
        except python_socks.ProxyConnectionError as error:
            raise OSError(error.errno, _reason(error.__cause__ or error)) from error
        except python_socks.ProxyError as error:
            raise OSError(0, f"it refused {host}:{port}: {_reason(error)}") from error


class _LeftToTheProxy(AbstractResolver):
    """Returns every name as it is, because the proxy resolves it."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=host, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


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
            why = _reason(error.os_error)
        case _:
            why = _reason(error)
    number = error.errno if isinstance(error, OSError) else None
    words = f"the proxy {proxy.shown} did not connect us: {why}"
    return aiohttp.ClientProxyConnectionError(req.connection_key, OSError(number or 0, words))


def _reason(error: BaseException) -> str:
    """Return the words of an error, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
