"""Opens connections as tunnels through one proxy, with python-socks."""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import python_socks
from aiohttp.abc import AbstractResolver, ResolveResult
from python_socks.async_.asyncio import Proxy as SocksClient

from perdure.app.network.proxies import Proxy, reason_of

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest

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


class Tunnels(aiohttp.TCPConnector):
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
            raise OSError(error.errno, reason_of(error.__cause__ or error)) from error
        except python_socks.ProxyError as error:
            raise OSError(0, f"it refused {host}:{port}: {reason_of(error)}") from error


class _LeftToTheProxy(AbstractResolver):
    """Returns every name as it is, because the proxy resolves it."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=host, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
