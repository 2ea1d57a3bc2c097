"""Reads the web, and posts to it, without ever reaching a private network.

Anybody who may write here can name a URL, a page can name others, and the gateway runs inside
somebody's network. So every address that a name resolves to is checked when the connection is made,
and exactly these addresses are connected to. A redirect is never followed here: whoever follows it
asks again, and is checked again. Thus no DNS answer can lead to a machine that the sender could not
reach without us. Behind a proxy names are judged before it is asked (`_allowed`).
"""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
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
from perdure.ports.system.web import BROKEN_OFF, PRIVATE_ADDRESS, REDIRECT_STATUSES, WebReply

CHUNK_BYTES: Final = 64 * 1024
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
_PRIVATE: Final = "its address is in a private network"
_NO_ADDRESS: Final = "its address is not one; check it"


class _Private(OSError):
    """Says that a name resolves to a private address."""


class RoutedWeb:
    """Implements the `PublicWeb` port for http and https. `with_private` also allows private
    addresses."""

    def __init__(
        self, *, with_private: bool = False, outgoing: RoutedOutgoing | None = None
    ) -> None:
        self._with_private = with_private
        self._outgoing = outgoing or RoutedOutgoing()

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[WebReply]:
        return self._asked("GET", url, headers)

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[WebReply]:
        return self._asked("POST", url, headers, body)

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[WebReply]:
        target = await self._allowed(url)
        resolver = None if self._with_private else _PublicResolver()
        async with self._outgoing.bare_session(
            resolver=resolver, timeout=_TIMEOUT, auto_decompress=False
        ) as http:
            with _translating():
                response = await http.request(
                    method, target, allow_redirects=False, headers=headers, data=body
                )
            async with response:
                yield WebReply(
                    status=response.status,
                    headers=response.headers,
                    pieces=_pieces(response),
                    location=_location(target, response),
                )

    async def _allowed(self, reference: str) -> URL:
        """Return a URL that may be read. Raises `Permanent` for any other.

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
            raise Permanent(_PRIVATE, code=PRIVATE_ADDRESS)
        return url

    def _checked(self, reference: str) -> URL:
        """Return the URL. Raises `Permanent` if it is no web address, or a private one."""
        try:
            url = URL(reference)
            host = url.host
        except ValueError as error:
            raise Permanent(_NO_ADDRESS) from error
        if url.scheme not in ("http", "https") or not host:
            raise Permanent("its address must begin with http:// or https://")
        # A numeric address never passes through the resolver, so it is checked here.
        if not self._with_private and _is_private(host):
            raise Permanent(_PRIVATE, code=PRIVATE_ADDRESS)
        return url


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of an answer as they come."""
    with _translating():
        async for piece in response.content.iter_chunked(CHUNK_BYTES):
            yield piece


def _location(asked: URL, response: aiohttp.ClientResponse) -> str:
    """Return where an answer leads, or an empty string."""
    said = response.headers.get("Location", "")
    if response.status not in REDIRECT_STATUSES or not said:
        return ""
    try:
        return str(asked.join(URL(said)))
    except ValueError:
        return said  # whoever follows it is told that it is no address


@contextmanager
def _translating() -> Iterator[None]:
    """Raise our own errors for what aiohttp raises in the block."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError, UnicodeError) as error:
        raise _translated(error) from error


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


def _translated(error: Exception) -> PerdureError:
    """Return the error of ours for what aiohttp raises."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _Private):
            return Permanent(_PRIVATE, code=PRIVATE_ADDRESS)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, OSError) and error.errno in NO_FILES:
        return Transient(OUT_OF_FILES, code=OUT_OF_FILES_CODE)
    if isinstance(error, aiohttp.InvalidURL | UnicodeError):
        return Permanent(_NO_ADDRESS)
    if isinstance(error, _UNCONNECTED):
        return Transient("its server cannot be reached; check the address", code=UNREACHABLE)
    return Transient("its server did not send all of it", code=BROKEN_OFF)
