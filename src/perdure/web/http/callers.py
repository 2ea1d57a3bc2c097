"""Finds out where a request comes from, and which host name it was sent to.

Behind a proxy on this machine every stranger has this machine's address. So a request counts as
local only if no header says that it was forwarded, and `X-Forwarded-For` is believed only from a
trusted proxy.

A foreign web page can make a local browser call us by pointing its own host name at this machine
(DNS rebinding). The `Host` header reveals that, so only our own names are answered. A numeric
address in `Host` is safe, because nobody can point it elsewhere.
"""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from aiohttp import web

from perdure.domain.errors import Rejected

_IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
ANY: Final = "*"
_FORWARDED: Final = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Real-IP",
    "CF-Connecting-IP",
    "True-Client-IP",
    "Via",
)
_LOCAL: Final = "localhost"


class Callers:
    """Knows the trusted proxies in front of us, and the host names that are ours."""

    def __init__(self, *, proxies: Iterable[str] = (), hosts: Collection[str] = ()) -> None:
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in proxies]
        self._hosts = frozenset(each.lower().rstrip(".") for each in hosts)

    def address(self, request: web.Request) -> str:
        """Return the caller's address: the nearest one in the chain that is not a trusted proxy."""
        found = address_of(request.remote)
        if found is None or not self._is_proxy(found):
            return request.remote or ""
        passed = ",".join(request.headers.getall("X-Forwarded-For", ())).split(",")
        for each in reversed(passed):
            before = address_of(each.strip())
            if before is None:
                break
            found = before
            if not self._is_proxy(found):
                break
        return str(found)

    def is_local(self, request: web.Request) -> bool:
        """Tell whether the request comes from a process on this machine and was not forwarded."""
        if any(name in request.headers for name in _FORWARDED) or not self.is_meant(request):
            return False
        if _is_on_socket(request):
            return True
        found = address_of(request.remote)
        return found is not None and found.is_loopback and not self._is_proxy(found)

    def is_meant(self, request: web.Request) -> bool:
        """Tell whether the request was sent to a host name or an address that may be ours."""
        name = _name_in(request.headers.get("Host", ""))
        if not name or address_of(name) is not None or ANY in self._hosts:
            return True
        return name == _LOCAL or name.endswith(f".{_LOCAL}") or name in self._hosts

    def require_meant(self, request: web.Request) -> None:
        """Raise `Rejected` if the request was sent to a host name that is not ours."""
        if not self.is_meant(request):
            raise Rejected(
                "this gateway is not known by the name in the header Host; if it is yours, add it "
                "to `hosts` of [server], or set `base_url` there",
                code="wrong_host",
            )

    def _is_proxy(self, address: _IpAddress) -> bool:
        return any(address in network for network in self._proxies)


def address_of(text: str | None) -> _IpAddress | None:
    """Parse an address from a header or a socket name. Returns None if it is not one."""
    try:
        found = ipaddress.ip_address((text or "").strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _name_in(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].strip().lower().rstrip(".")


def _is_on_socket(request: web.Request) -> bool:
    """Tell whether the request came by the Unix socket in the home folder, which only its owner can
    reach."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return isinstance(name, str | bytes) and bool(name)
