"""Names the command of the scripted agent that is good or bad as a test likes.

What it can do, and what it can do wrong, is in `tests/peers/hostile_acp.py`, or with `--help`. A
test may give several kinds of mischief at once.
"""

import sys
from pathlib import Path

from perdure.testkit.peers.mcp.hostile_mcp import Mischief


class HostileAcp:
    """Makes the command. Its program is in the tests' folder `peers` below `root`."""

    def __init__(self, root: Path) -> None:
        self._program = root / "tests" / "peers" / "hostile_acp.py"

    def command(
        self,
        mischief: Mischief | None = None,
        *,
        once: Path | None = None,
        keep: Path | None = None,
    ) -> list[str]:
        """Return the command of the agent.

        With `once`, the mischief happens if that file is not there, and makes it, so that the
        process that comes next is good. With `keep`, sessions outlive the process in that folder.
        """
        words = [*(mischief or Mischief()).words]
        words += ["--once", str(once)] if once else []
        words += ["--keep", str(keep)] if keep else []
        # Without the site's packages it starts in half the time, and it needs none.
        return [sys.executable, "-S", str(self._program), *words]
