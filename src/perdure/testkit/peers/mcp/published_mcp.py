"""Names the commands of MCP servers that people use: three in Python and three for Node."""

from pathlib import Path

from perdure.testkit.peers.peer import Peer, Server, Site, free_port


class PublishedMcp:
    """Makes the commands. `environments` holds a folder for each Python server, and `modules` the
    packages that `node` runs."""

    def __init__(self, environments: Path, modules: Path, node: Path) -> None:
        self._environments = environments
        self._modules = modules / "@modelcontextprotocol"
        self._node = node

    @property
    def programs(self) -> list[Path]:
        """Return the files that must be there."""
        python = [self._python(name) for name in ("time", "git", "fetch")]
        return [*python, *map(self._script, ("everything", "filesystem", "memory"))]

    def time(self) -> list[str]:
        """Return the command of the server that knows what time it is where."""
        return [str(self._python("time")), "--local-timezone", "Europe/Zurich"]

    def git(self, repository: Path) -> list[str]:
        """Return the command of the server that reads and writes one repository."""
        return [str(self._python("git")), "--repository", str(repository)]

    def fetch(self) -> list[str]:
        """Return the command of the server that fetches pages as text, also from this machine. It
        asks no robots.txt."""
        return [str(self._python("fetch")), "--ignore-robots-txt", "--allow-private-ips"]

    def everything(self) -> list[str]:
        """Return the command of the server that shows everything a server may do."""
        return [*self._everything(), "stdio"]

    def everything_over_http(self, site: Site) -> "EverythingMcpServer":
        """Return the same server over HTTP, which is not started yet."""
        return EverythingMcpServer(site, command=[*self._everything(), "streamableHttp"])

    def filesystem(self, *roots: Path) -> list[str]:
        """Return the command of the server that reads and writes below some folders."""
        return [str(self._node), str(self._script("filesystem")), *map(str, roots)]

    def memory(self) -> list[str]:
        """Return the command of the server that keeps a graph of facts. The environment variable
        `MEMORY_FILE_PATH` says where."""
        return [str(self._node), str(self._script("memory"))]

    def _everything(self) -> list[str]:
        return [str(self._node), str(self._script("everything"))]

    def _python(self, name: str) -> Path:
        return self._environments / f"mcp-server-{name}" / "bin" / f"mcp-server-{name}"

    def _script(self, name: str) -> Path:
        return self._modules / f"server-{name}" / "dist" / "index.js"


class EverythingMcpServer(Server):
    """Runs the server that shows everything, at `url`."""

    def __init__(self, site: Site, *, command: list[str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/mcp"
        ready, environ = f"tcp:127.0.0.1:{port}", {"PORT": str(port)}
        everything = Peer("everything-mcp", command, site=site, ready=ready, environ=environ)
        super().__init__(everything, site=site)
