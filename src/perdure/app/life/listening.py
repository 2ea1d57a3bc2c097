"""Binds the address that a node listens on, before any part of the node begins.

Port 0 becomes a number only when it is bound, and platforms are told our address when they connect.
So the sockets are bound first, and listen only when the HTTP server is ready. Until then
connections are refused, and clients try again.
"""

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec
from aiohttp import web

from perdure.domain.errors import Rejected

# Host and port, and for IPv6 two more numbers.
_SocketAddress: TypeAlias = tuple[str | int, ...]
_SYSTEM_MAXIMUM: Final = Path("/proc/sys/net/core/somaxconn")
# The errors for an address family that this machine does not have. A host name may also have
# addresses of the other family.
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Bound(msgspec.Struct, frozen=True):
    """Holds the sockets of one host, all with the same port."""

    host: str
    sockets: tuple[socket.socket, ...]

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Return the URL at which a browser on this machine reaches the node."""
        return f"http://{_in_url(self.host)}:{self.port}"


class LocalSite(web.BaseSite):
    """Serves an application on a Unix socket that is bound already."""

    def __init__(self, runner: web.BaseRunner, one: socket.socket) -> None:
        super().__init__(runner)
        self._socket = one

    @property
    def name(self) -> str:
        return f"http://unix:{os.fsdecode(self._socket.getsockname())}:"

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_unix_server(
            self._runner.server, sock=self._socket, backlog=self._backlog
        )


class UnusableHost(Rejected):
    """Says that the host cannot be used, with any port."""

    default_code = "config"


@contextmanager
def bound(host: str, ports: Sequence[int]) -> Iterator[Bound]:
    """Bind the first of the ports that is free. Raises `Rejected`."""
    with ExitStack() as stack:
        sockets = _first_free(host, ports)
        for each in sockets:
            stack.callback(each.close)
        yield Bound(host, sockets)


def backlog() -> int:
    """Return how many connections the system queues at most until they are accepted."""
    try:
        return int(_SYSTEM_MAXIMUM.read_text())
    except (OSError, ValueError):
        return socket.SOMAXCONN


def cannot_listen(error: OSError, host: str, port: int) -> Rejected:
    """Return the error for an address that cannot be used, with what to do."""
    if error.errno == errno.EADDRINUSE:
        return Rejected(
            f"port {port} on {host} is in use; stop what uses it, or choose another with "
            "--port (0 picks a free one)",
            code="port_in_use",
        )
    if isinstance(error, socket.gaierror) or error.errno in _ABSENT:
        return UnusableHost(
            f"{host} is no address of this machine ({error.strerror}); use 127.0.0.1, or 0.0.0.0 "
            "for all of its addresses"
        )
    return Rejected(f"cannot listen on {host}:{port}: {error.strerror}", code="cannot_listen")


def _first_free(host: str, ports: Sequence[int]) -> tuple[socket.socket, ...]:
    for port in ports:
        try:
            return _sockets(host, port)
        except OSError as error:
            if port == ports[-1]:
                raise cannot_listen(error, host, port) from error
    raise AssertionError("there is at least one port to try")


def _sockets(host: str, port: int) -> tuple[socket.socket, ...]:
    """Bind one socket for each address of the host."""
    with ExitStack() as undo:
        made: list[socket.socket] = []
        absent: OSError | None = None
        for family, address in _addresses(host, port):
            # All sockets use the port that port 0 became for the first.
            chosen = made[0].getsockname()[1] if made else port
            try:
                one = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
                _bind(one, (address[0], chosen, *address[2:]))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
            else:
                made.append(one)
        if not made:
            raise absent or OSError(errno.EADDRNOTAVAIL, "it stands for no address")
        undo.pop_all()
        return tuple(made)


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, _SocketAddress]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((each[0], cast("_SocketAddress", each[4])) for each in found))


def _bind(one: socket.socket, address: _SocketAddress) -> None:
    one.settimeout(0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)


def _in_url(host: str) -> str:
    """Return the host as a browser on this machine can open it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host
