"""Decides over which proxy a server is reached, from the configuration and the usual variables.

All connections ask the same `Proxies`, so no library decides for itself. Nothing here connects or
resolves names. User and password of a proxy are secrets: texts name it by `shown` only.
"""

import ipaddress
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from perdure.domain.secret import Secret

# The kinds of proxies, each with its usual port.
PORTS: Final[Mapping[str, int]] = {
    "http": 80,
    "https": 443,
    "socks": 1080,
    "socks4": 1080,
    "socks4a": 1080,
    "socks5": 1080,
    "socks5h": 1080,
}
RULE: Final = 'an address such as "http://proxy.example:3128" or "socks5://127.0.0.1:1080"'
LOCALHOST: Final = "localhost"
_NAME: Final = re.compile(r"[^\W_](?:[\w.-]*\w)?\.?")
_CHARACTERS: Final = re.compile(r"[^\s\x00-\x1f\x7f\\]+")
_BETWEEN: Final = re.compile(r"[\s,]+")
_SHORT_NETWORK: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,2})/(\d{1,2})")
_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class UnusableProxy(ValueError):
    """Says why an address names no proxy, without quoting it: it may hold a password."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one proxy. Without `user` it wants no login."""

    scheme: str
    host: str
    port: int
    user: Secret | None = None
    password: Secret = Secret("")

    @property
    def shown(self) -> str:
        """Return the address without the login."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")


class _Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one entry of NO_PROXY. Port 0 is every port."""

    name: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int = 0

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        if self.port not in (0, port):
            return False
        if self.network is not None:
            return address is not None and address in self.network
        if self.name == "*":
            return True
        return host == self.name or (address is None and host.endswith(f".{self.name}"))


class Exemptions(msgspec.Struct, frozen=True):
    """Holds the servers that are reached directly. An entry is `*`, a name (which covers the names
    below it, with or without a dot in front), an address, or a network, each with or without a
    port. Names are not resolved, so a network covers only servers that are given as addresses."""

    entries: tuple[_Exemption, ...] = ()
    # What could not be read. It covers nothing.
    unread: tuple[str, ...] = ()

    def cover(self, host: str, port: int) -> bool:
        name = _plain(host)
        address = _address(name)
        return any(each.covers(name, address, port) for each in self.entries)


class Proxies(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the proxy for each scheme of the servers, and which servers need none."""

    http: Proxy | None = None
    https: Proxy | None = None
    exemptions: Exemptions = Exemptions()

    @property
    def named(self) -> tuple[Proxy, ...]:
        """Return the proxies in use, each once."""
        return tuple(dict.fromkeys(each for each in (self.https, self.http) if each is not None))

    def between(self, scheme: str, host: str, port: int | None) -> Proxy | None:
        """Return the proxy for a server, or None if it is reached directly.

        An address of this machine would name another machine at a proxy that runs there, so only a
        proxy on this machine is asked for it.
        """
        proxy = self.https if scheme in ("https", "wss") else self.http
        if proxy is None or self.exemptions.cover(host, port or _DEFAULT_PORTS.get(scheme, 0)):
            return None
        return None if is_this_machine(host) and not is_this_machine(proxy.host) else proxy


NO_PROXIES: Final = Proxies()


def is_this_machine(host: str) -> bool:
    """Tell whether a host can only be this machine itself."""
    name = _plain(host)
    address = _address(name)
    if address is None:
        return name == LOCALHOST or name.endswith(f".{LOCALHOST}")
    return address.is_loopback or address.is_unspecified


def proxy_of(text: str) -> Proxy:
    """Return the proxy that an address names. Raises `UnusableProxy`. As usual, the scheme may be
    left out before a host with a port: that is an HTTP proxy."""
    text = text.strip()
    if _CHARACTERS.fullmatch(text) is None:
        raise UnusableProxy("it is empty, or contains a space or a sign that no address contains")
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() not in PORTS:
        raise UnusableProxy(f"it must begin with one of {', '.join(f'{x}://' for x in PORTS)}")
    try:
        parts = urlsplit(text if separator else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise UnusableProxy(_advice("its host or port is none")) from error
    if port == 0 or (port is None and not separator):
        raise UnusableProxy("it needs the proxy's port, a number from 1 to 65535, after a colon")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UnusableProxy(_advice("it must end after the port"))
    host = _plain(parts.hostname or "")
    if _address(host) is None and (_NAME.fullmatch(host) is None or _is_numeric(host)):
        raise UnusableProxy("it has no host that a proxy can have")
    return _with_login(parts, host, port or PORTS[parts.scheme])


def _with_login(parts: SplitResult, host: str, port: int) -> Proxy:
    scheme = "socks5" if parts.scheme == "socks" else parts.scheme
    login, _, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if not user and not password:
        return Proxy(scheme=scheme, host=host, port=port)
    if max(len(unquote(each).encode()) for each in (user, password)) > 255:
        raise UnusableProxy("its user and its password may have 255 bytes each")
    if scheme in ("http", "https") and ":" in unquote(user):
        raise UnusableProxy("the user of an HTTP proxy cannot contain a colon")
    return Proxy(
        scheme=scheme,
        host=host,
        port=port,
        user=Secret(unquote(user)),
        password=Secret(unquote(password)),
    )


def _advice(what: str) -> str:
    return f"{what}; in a user or a password write @ : / ? # % as %40 %3A %2F %3F %23 %25"


def _is_numeric(host: str) -> bool:
    return host.replace(".", "").isdigit()


def exemptions_of(text: str) -> Exemptions:
    """Return what NO_PROXY exempts. Entries are separated by commas or spaces."""
    entries, unread = [], []
    for word in filter(None, _BETWEEN.split(text)):
        entry = _exemption(word)
        if entry is None:
            unread.append(word)
        else:
            entries.append(entry)
    return Exemptions(tuple(entries), tuple(unread))


def _exemption(word: str) -> _Exemption | None:
    """Return one entry, or None if it cannot be read."""
    host, port = _split(word.lower().rpartition("://")[2].rstrip("/"))
    if host == "*":
        return _Exemption(name="*", port=port)
    short = _SHORT_NETWORK.fullmatch(host)
    if short is not None:
        # Some systems write 169.254/16 for 169.254.0.0/16.
        missing = 3 - short[1].count(".")
        host = f"{short[1]}{'.0' * missing}/{short[2]}"
    try:
        return _Exemption(network=ipaddress.ip_network(host, strict=False), port=port)
    except ValueError:
        name = _plain(host.removeprefix("*").removeprefix("."))
        return _Exemption(name=name, port=port) if _NAME.fullmatch(name) else None


def _split(word: str) -> tuple[str, int]:
    """Divide an entry into its host and its port. An IPv6 address with a port has brackets."""
    host, colon, port = word.rpartition(":")
    if word.startswith("[") and word.endswith("]"):
        return word[1:-1], 0
    if host.startswith("[") and host.endswith("]"):
        host, colon = host[1:-1], ":"
    elif ":" in host:
        return word, 0
    if colon and port.isascii() and port.isdigit():
        return host, int(port)
    return word, 0


def _plain(host: str) -> str:
    """Return a host in the one form in which hosts are compared."""
    name = host.strip("[]").partition("%")[0].rstrip(".").lower()
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def reason_of(error: BaseException) -> str:
    """Return the words of an error, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
