"""Where a request comes from, and which name it was sent to.

Behind a proxy on the same machine every stranger has the address of that machine. So a request
counts as local only if nothing says that somebody passed it on; and who is behind a proxy is taken
from `X-Forwarded-For` only where that proxy is one to be trusted.

A page of somebody else's can make a browser on this machine call us, by letting the name of its own
site stand for this machine's address. The header `Host` gives it away: only names that are ours are
answered. An address in its place is no name that anybody could have moved.
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
    """Knows the proxies in front of us, and the names by which people reach us."""

    def __init__(self, *, proxies: Iterable[str] = (), hosts: Collection[str] = ()) -> None:
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in proxies]
        self._hosts = frozenset(each.lower().rstrip(".") for each in hosts)

    def address(self, request: web.Request) -> str:
        """Return the address of whoever asks: what the last proxy that is trusted says of it."""
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
        """Tell whether a process of this machine asks, for itself."""
        if any(name in request.headers for name in _FORWARDED) or not self.is_meant(request):
            return False
        if _is_on_socket(request):
            return True
        found = address_of(request.remote)
        return found is not None and found.is_loopback and not self._is_proxy(found)

    def is_meant(self, request: web.Request) -> bool:
        """Tell whether the request was sent to a name or an address that may be ours."""
        name = _name_in(request.headers.get("Host", ""))
        if not name or address_of(name) is not None or ANY in self._hosts:
            return True
        return name == _LOCAL or name.endswith(f".{_LOCAL}") or name in self._hosts

    def require_meant(self, request: web.Request) -> None:
        if not self.is_meant(request):
            raise Rejected(
                "this gateway is not known by the name in the header Host; if it is yours, add it "
                "to `hosts` of [server], or set `base_url` there",
                code="wrong_host",
            )

    def _is_proxy(self, address: _IpAddress) -> bool:
        return any(address in network for network in self._proxies)


def address_of(text: str | None) -> _IpAddress | None:
    """Read an address, as it stands in a header or in a socket's name."""
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
    """Tell whether it came by the socket of the home, which only its owner can reach."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return isinstance(name, str | bytes) and bool(name)
