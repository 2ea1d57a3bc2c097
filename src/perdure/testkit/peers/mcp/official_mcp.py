"""Runs a server of MCP that is made with the official package, over HTTP."""

import sys
from pathlib import Path

from perdure.testkit.peers.peer import Peer, Server, Site, free_port


class OfficialMcpServer(Server):
    """Runs the server at `url`. Its program is in the tests' folder `peers` below `root`."""

    def __init__(self, site: Site, *, root: Path, words: tuple[str, ...] = ()) -> None:
        port = free_port()
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        program = root / "tests" / "peers" / "official_mcp.py"
        command = [sys.executable, str(program), "--port", str(port), *words]
        peer = Peer("official-mcp", command, site=site, ready=f"{self.origin}/ready")
        super().__init__(peer, site=site)
