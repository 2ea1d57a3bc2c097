"""Runs the proxies of Debian: tinyproxy for HTTP, and Dante for SOCKS 4 and 5."""

import re
from pathlib import Path
from typing import Final

from perdure.testkit.peers.peer import Peer, Server, Site, free_port

_TINY: Final = """
Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients 100
LogLevel Connect
LogFile "{log}"
{login}
"""
_DANTE: Final = """
logoutput: {log}
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass {{
    from: 0.0.0.0/0 to: 0.0.0.0/0
}}
socks pass {{
    from: 0.0.0.0/0 to: 0.0.0.0/0
    command: connect
    log: connect
}}
"""
_TINY_REQUEST: Final = re.compile(r"Request \(file descriptor \d+\): \w+ (?:http://)?([^/\s]+)")
# Dante names both ends of both connections, that to the server last:
# `… tcp/connect [: 127.0.0.1.49152 127.0.0.1.1080 -> 127.0.0.1.49153 127.0.0.1.80`.
_DANTE_REQUEST: Final = "tcp/connect [:"


class WebProxy(Server):
    """Represents a running proxy. `url` is its address for configurations."""

    def __init__(self, peer: Peer, *, site: Site, url: str, log: Path) -> None:
        super().__init__(peer, site=site)
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self._log = log

    @property
    def log(self) -> str:
        """Return all that the proxy has written down."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def asked(self) -> set[str]:
        """Return the servers that the proxy was asked for, each as `host:port`."""
        log = self.log
        tunnels = [line.split()[-1] for line in log.splitlines() if _DANTE_REQUEST in line]
        return {":".join(each.rsplit(".", 1)) for each in tunnels} | set(_TINY_REQUEST.findall(log))


def tinyproxy(program: Path, site: Site, *, login: str = "") -> WebProxy:
    """Return an HTTP proxy that is not started yet. With a `login` of the form `user password` it
    serves only who knows it."""
    port, log, settings = free_port(), site.path("requests.log"), site.path("tiny.conf")
    auth = f"BasicAuth {login}" if login else ""
    settings.write_text(_TINY.format(port=port, log=log, login=auth))
    command = [str(program), "-d", "-c", str(settings)]
    peer = Peer("tinyproxy", command, site=site, ready=f"tcp:127.0.0.1:{port}")
    return WebProxy(peer, site=site, url=f"http://127.0.0.1:{port}", log=log)


def dante(program: Path, site: Site, *, scheme: str = "socks5") -> WebProxy:
    """Return a SOCKS proxy that is not started yet."""
    port, log, settings = free_port(), site.path("requests.log"), site.path("dante.conf")
    settings.write_text(_DANTE.format(port=port, log=log))
    command = [str(program), "-f", str(settings), "-p", str(site.path("dante.pid"))]
    peer = Peer("dante", command, site=site, ready=f"tcp:127.0.0.1:{port}")
    return WebProxy(peer, site=site, url=f"{scheme}://127.0.0.1:{port}", log=log)
