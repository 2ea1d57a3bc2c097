"""Reads the instructions that run when the node starts, and decides when they run again.

They are a job like any other, with one run for a start. The last run is known from its row, so a
node that starts again and again finds it there, whatever it is that makes the node start again.
"""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import JobId
from perdure.domain.schedule.jobs import PROMPT_MAX

BOOT: Final = JobId("job_boot")
# The file in the home, which names its job.
BOOT_FILE: Final = "BOOT.md"
# After a run was over, no start runs the instructions for so long.
BOOT_AGAIN_MS: Final = 600_000
# A larger file is not read: no character takes more bytes than four.
BOOT_BYTES_MAX: Final = 4 * PROMPT_MAX
TOO_LONG: Final = f"{BOOT_FILE} has more than {PROMPT_MAX:,} characters; shorten it"
_OPENS, _CLOSES = "<!--", "-->"


class BootFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the file says: its instructions, or what keeps them from being read. Both are
    empty if there is nothing to do."""

    text: str = ""
    problem: str = ""


class BootState(StrEnum):
    """Says what becomes of the instructions at a start. WAITS: an interrupted turn of the home
    conversation goes on first."""

    STARTED = "started"
    NO_HOME = "no home"
    UNDER_WAY = "under way"
    TOO_SOON = "too soon"
    WAITS = "waits"


BOOT_WORDS: Final = {
    BootState.STARTED: "it runs",
    BootState.NO_HOME: "no operator has a home conversation; say /home where it should run from"
    " the next start on",
    BootState.UNDER_WAY: "the run of an earlier start is not over, and goes on",
    BootState.TOO_SOON: "it has run within the last ten minutes",
    BootState.WAITS: "it waits until the interrupted answer in the home conversation is over",
}


def boot_file(content: bytes) -> BootFile:
    """Return the instructions of a file, of which at most one byte more than `BOOT_BYTES_MAX` was
    read."""
    if len(content) > BOOT_BYTES_MAX:
        return BootFile(problem=TOO_LONG)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").strip()
    except UnicodeDecodeError:
        return BootFile(problem=f"{BOOT_FILE} is not text in UTF-8; save it as UTF-8")
    if len(text) > PROMPT_MAX:
        return BootFile(problem=TOO_LONG)
    if "\0" in text:
        return BootFile(problem=f"{BOOT_FILE} has a NUL character in it; remove it")
    return BootFile(text=text if has_instructions(text) else "")


def has_instructions(text: str) -> bool:
    """Tell whether a text says anything besides headings and comments."""
    lines = _without_comments(text).splitlines()
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


def _without_comments(text: str) -> str:
    """Return a text without its HTML comments. One that is never closed reaches to the end."""
    kept, at = [], 0
    while (opens := text.find(_OPENS, at)) >= 0:
        kept.append(text[at:opens])
        closes = text.find(_CLOSES, opens + len(_OPENS))
        if closes < 0:
            return "".join(kept)
        at = closes + len(_CLOSES)
    return "".join([*kept, text[at:]])
