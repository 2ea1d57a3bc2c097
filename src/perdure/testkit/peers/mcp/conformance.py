"""Runs the official conformance suite against a client of MCP.

For each scenario the suite serves MCP over HTTP, starts the client's command with the address of
that server behind it, and judges what the client sent. `MCP_CONFORMANCE_SCENARIO` in the client's
environment names the scenario.
"""

import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.testkit.peers.peer import Site

# Those that ask for no sign-in: a gateway is given its tokens, and does not fetch any.
CLIENT_SCENARIOS: Final = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
)
_LIMIT_MS: Final = 30_000


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """Holds one check of a scenario. `INFO` tells what was sent, and judges nothing."""

    id: str
    status: str
    description: str = ""
    error_message: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """Holds what the suite says of one scenario, and what it and the client have printed."""

    has_ended_well: bool
    checks: tuple[Check, ...]
    printed: str

    @property
    def has_passed(self) -> bool:
        """Tell whether the client passed. The suite is content where it had nothing to judge."""
        return self.has_ended_well and bool(self.judged)

    @property
    def judged(self) -> dict[str, str]:
        """Return the status of each check that judges."""
        return {each.id: each.status for each in self.checks if each.status != "INFO"}


class ConformanceSuite:
    """Runs the suite with `node`. `script` is the suite's program."""

    def __init__(self, site: Site, *, node: Path, script: Path) -> None:
        self._site = site
        self._node = node
        self._script = script

    async def judge(self, scenario: str, client: Sequence[str]) -> Verdict:
        """Run one scenario against a client's command. No word of it may hold a space, because the
        suite splits the command at spaces and gives it to a shell."""
        assert not any(" " in word for word in client), client
        results = self._site.path(f"results-{scenario}")
        command = [str(self._node), str(self._script), "client", "--command", shlex.join(client)]
        command += ["--scenario", scenario, "--timeout", str(_LIMIT_MS), "-o", str(results)]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._site.path("."),
            env=dict(self._site.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return Verdict(process.returncode == 0, _checks(results), printed.decode(errors="replace"))


def _checks(results: Path) -> tuple[Check, ...]:
    """Return the checks of the newest run below a folder."""
    written = sorted(results.glob("*/checks.json"), key=lambda path: path.stat().st_mtime_ns)
    if not written:
        return ()
    raw = json.loads(written[-1].read_text("utf-8"))
    return msgspec.convert(raw, tuple[Check, ...])
