"""Defines the port through which connections to other servers are opened."""

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    # Manifests of platforms import this module, and most verbs of the command line need no HTTP.
    import aiohttp


class Outgoing(Protocol):
    """Opens HTTP sessions to other servers. Whoever talks to a server asks this port for its
    session, and so obeys the proxies and the certificate authorities that are configured.

    Guarantees: requests and websockets of the session go over the right proxy, also after a
    redirect. No cookies are kept, and nothing is read from `.netrc`.
    Requires: a running event loop. The caller closes the session.
    Raises: nothing. Requests of the session raise aiohttp's own errors; a proxy that does not do
    its work is an `aiohttp.ClientProxyConnectionError`, and then nothing has reached the server.
    After a crash: nothing is kept.
    """

    def session(
        self, *, limit: int = 100, timeout: "aiohttp.ClientTimeout | None" = None
    ) -> "aiohttp.ClientSession":
        """Return a new session. At most `limit` connections are open at once; 0 is no limit."""


def proxy_trouble(error: "aiohttp.ClientProxyConnectionError") -> str:
    """Return what is wrong with a proxy, and what to look at."""
    why = error.os_error.strerror or "the proxy did not connect us"
    return f"{why}; check [network] proxy, or HTTPS_PROXY"


class DirectOutgoing:
    """Implements the `Outgoing` port without any proxy."""

    def session(
        self, *, limit: int = 100, timeout: "aiohttp.ClientTimeout | None" = None
    ) -> "aiohttp.ClientSession":
        """Return a new session that connects directly."""
        import aiohttp  # noqa: PLC0415 - see above

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout or aiohttp.client.DEFAULT_TIMEOUT,
        )


DIRECT: Final = DirectOutgoing()
