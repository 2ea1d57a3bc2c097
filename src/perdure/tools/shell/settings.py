"""Defines what is configured about the tool `shell`, and how much it may use."""

from pathlib import Path
from typing import Final

import msgspec

from perdure.ports.system.children import ChildLimits


class ShellSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the folders in which commands work, whether they reach the network and run in a
    sandbox, how long the agent may wait for one, and what one may use. `search_path` is where the
    gateway looks for programs."""

    roots: tuple[Path, ...]
    has_network: bool = False
    has_sandbox: bool = True
    timeout_s: float = 600.0
    limits: ChildLimits = ChildLimits()
    search_path: str = ""


# How much of an output is kept: of a command that the agent waits for, and of a job.
HEAD_BYTES: Final = 250_000
TAIL_BYTES: Final = 750_000
LOG_BYTES: Final = 1_000_000
# How many jobs one person may have, and all people together. Ended ones count until they make room.
JOBS_OF_PERSON: Final = 8
JOBS_MAX: Final = 32
# How long a job may run if its call does not say.
JOB_S: Final = 86_400.0
# How long a command may take if its call does not say.
USUAL_S: Final = 120.0
# How much longer than its command a call may take: a sandbox must start, and everything must end.
AROUND_S: Final = 60.0
