"""Fetches attachments from the web, and only from public addresses.

Anybody who may write here can name a URL, and the gateway runs inside somebody's network. So every
address that a name resolves to is checked when the connection is made, and again for each redirect.
Thus no DNS answer can lead to a machine that the sender could not reach without us. Behind a proxy
names are judged before it is asked (`_allowed`).
"""

import socket
from collections.abc import AsyncGenerator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from perdure.app.network.outgoing import RoutedOutgoing
from perdure.domain.errors import (
    NO_FILES,
    OUT_OF_FILES,
    OUT_OF_FILES_CODE,
    PerdureError,
    Permanent,
    Transient,
)
from perdure.ports.records.media import UNREACHABLE
from perdure.ports.system.time_limits import time_limit

REDIRECTS_MAX: Final = 3
CHUNK_BYTES: Final = 64 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_LATER: Final = frozenset({408, 425, 429})
# IPv6 addresses that contain an IPv4 address.
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
# The limit on resolving and connecting together. Two tries of this length fit into the time that is
# spent on an unreachable address.
CONNECT_S: Final = 4
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=30)
_UNCONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
# The ends of names that exist only inside of networks.
_INSIDE: Final = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".intranet")
# Cloud metadata under a public name.
_METADATA: Final = frozenset({"metadata.goog"})
# How long our own DNS is asked about a name that the proxy resolves in any case.
_LOOK_S: Final = 1.0
_PRIVATE: Final = "its address is in a private network; upload the file instead"


class _Private(OSError):
    """Says that a name resolves to a private address."""


class WebFetcher:
    """Implements the `Fetcher` port for http and https. `with_private` also allows private
    addresses."""

    def __init__(
        self, *, with_private: bool = False, outgoing: RoutedOutgoing | None = None
    ) -> None:
        self._with_private = with_private
        self._outgoing = outgoing or RoutedOutgoing()

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the file at a URL. Raises `Permanent` for an address that is not
        allowed, and `Transient` if its server cannot be reached or breaks off."""
        resolver = None if self._with_private else _PublicResolver()
        async with self._outgoing.bare_session(
            resolver=resolver, timeout=_TIMEOUT, auto_decompress=False
        ) as http:
            try:
                async for piece in self._follow(http, reference):
                    yield piece
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _translated(error) from error

    async def _follow(
        self, http: aiohttp.ClientSession, reference: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the file's bytes, after at most `REDIRECTS_MAX` redirects. Each target is
        checked."""
        url = await self._allowed(reference)
        for _ in range(REDIRECTS_MAX + 1):
            async with http.get(
                url, allow_redirects=False, headers={"Accept-Encoding": "identity"}
            ) as response:
                if response.status not in _REDIRECTS:
                    _check(response)
                    async for piece in response.content.iter_chunked(CHUNK_BYTES):
                        yield piece
                    return
                target = url.join(URL(response.headers.get("Location", "")))
            url = await self._allowed(str(target))
        raise Permanent("its address leads from one to the next without end; upload the file")

    async def _allowed(self, reference: str) -> URL:
        """Return the URL of a file that may be fetched. Raises `Permanent` for any other.

        Behind a proxy our own DNS often knows no public name, so there the proxy resolves the name.
        What is private by its name, or by what our DNS says if it does say something, is refused
        here.
        """
        url = self._checked(reference)
        if (
            not self._with_private
            and self._outgoing.proxy_for(url) is not None
            and (_is_inside(url.raw_host or "") or await _resolves_to_private(url))
        ):
            raise Permanent(_PRIVATE, code="private_address")
        return url

    def _checked(self, reference: str) -> URL:
        """Return the URL. Raises `Permanent` if it is no web address, or a private one."""
        try:
            url = URL(reference)
        except ValueError as error:
            raise Permanent("its address is not one; check it") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise Permanent("its address must begin with http:// or https://")
        # A numeric address never passes through the resolver, so it is checked here.
        if not self._with_private and _is_private(url.host):
            raise Permanent(_PRIVATE, code="private_address")
        return url


class _PublicResolver(AbstractResolver):
    """Resolves names to public addresses only."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name. Raises `_Private` if any of its addresses is private."""
        found = await self._inner.resolve(host, port, family)
        if any(_is_private(each["host"]) for each in found):
            raise _Private(host)
        return found

    async def close(self) -> None:
        await self._inner.close()


def _is_inside(host: str) -> bool:
    """Tell whether a name exists only inside of networks, such as that of a cloud's metadata."""
    name = host.rstrip(".").lower()
    if name in _METADATA or name.endswith(_INSIDE):
        return True
    # A name without a dot is one of the network's own. An IPv6 address is judged elsewhere.
    return "." not in name and ":" not in name


async def _resolves_to_private(url: URL) -> bool:
    """Tell whether our own DNS says that a name is private. Without an answer it is not."""
    try:
        async with time_limit(_LOOK_S):
            await _PublicResolver().resolve(url.raw_host or "", url.port or 0)
    except _Private:
        return True
    except OSError:
        return False
    return False


def _is_private(host: str) -> bool:
    """Tell whether a numeric address is private. A name returns False: it is checked when it is
    resolved."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return _is_unusual(host)
    if isinstance(address, IPv6Address):
        if address in _TRANSLATED or address.sixtofour or address.teredo:
            return True
        address = address.ipv4_mapped or address
    return not _is_public(address)


def _is_unusual(host: str) -> bool:
    """Tell whether a host is an address in a form that only some programs read, such as `127.1` or
    `2130706433`. A proxy may be one of them."""
    try:
        socket.inet_aton(host.rstrip("."))
    except OSError:
        return False
    return True


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def _check(response: aiohttp.ClientResponse) -> None:
    """Raise an error unless the answer is a plain file."""
    status = response.status
    if status in _LATER or status >= 500:
        raise Transient(f"its server answered with status {status}; send it again later")
    if status != 200:
        raise Permanent(f"its server answered with status {status}; check the address")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise Permanent("its server sends it packed only; upload the file instead")


def _translated(error: Exception) -> PerdureError:
    """Return the error of ours for what aiohttp raises."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _Private):
            return Permanent(_PRIVATE, code="private_address")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, OSError) and error.errno in NO_FILES:
        return Transient(OUT_OF_FILES, code=OUT_OF_FILES_CODE)
    if isinstance(error, aiohttp.InvalidURL):
        return Permanent("its address is not one; check it")
    if isinstance(error, _UNCONNECTED):
        return Transient("its server cannot be reached; check the address", code=UNREACHABLE)
    return Transient("its server did not send all of it; send it again later")
