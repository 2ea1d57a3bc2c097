"""Names the command of the MCP server that is good or bad as a test likes, and runs it over HTTP.

What it can do wrong is in `tests/peers/hostile_mcp.py`, or with `--help`. A test may give several
kinds of mischief at once.
"""

import sys
from pathlib import Path

import msgspec

from perdure.testkit.peers.peer import Peer, Server, Site, free_port


class RecordedCall(msgspec.Struct, frozen=True):
    """Holds one call that really ran, in the process `pid`."""

    tool: str
    arguments: object
    pid: int


class Mischief:
    """Makes the server's words: the kinds of mischief, how much of it, and the file that gets a
    line for every call that really ran."""

    def __init__(self, *kinds: str, amount: int = 0, calls: Path | None = None) -> None:
        self._calls = calls
        self.words = [word for kind in kinds for word in ("--mischief", kind)]
        if amount:
            self.words += ["--amount", str(amount)]
        if calls is not None:
            self.words += ["--calls", str(calls)]

    def ran(self) -> list[RecordedCall]:
        """Return the calls that really ran, over all lives of the server."""
        if self._calls is None or not self._calls.exists():
            return []
        lines = self._calls.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=RecordedCall) for line in lines]


class HostileMcp:
    """Makes the server. Its files are in the tests' folder `peers` below `root`."""

    def __init__(self, root: Path, site: Site) -> None:
        self._root = root
        self._site = site

    def command(self, mischief: Mischief | None = None) -> list[str]:
        """Return the command of the server on standard input and output."""
        # Without the site's packages it starts in half the time, and it needs none.
        program = self._root / "tests" / "peers" / "hostile_mcp.py"
        return [sys.executable, "-S", str(program), *(mischief or Mischief()).words]

    def over_http(self, mischief: Mischief | None = None, *, token: str = "") -> "HostileMcpServer":
        """Return the server over HTTP, which is not started yet."""
        words = [*(mischief or Mischief()).words, *(["--token", token] if token else [])]
        return HostileMcpServer(self._site, root=self._root, words=words)


class HostileMcpServer(Server):
    """Runs the server at `url`, which stays the same through all its lives."""

    def __init__(self, site: Site, *, root: Path, words: list[str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/mcp"
        command = [
            sys.executable,
            "-m",
            "tests.peers.hostile_mcp_http",
            "--port",
            str(port),
            *words,
        ]
        ready = f"http://127.0.0.1:{port}/ready"
        environ = {"PYTHONPATH": str(root)}
        super().__init__(
            Peer("hostile-mcp", command, site=site, ready=ready, environ=environ), site=site
        )
