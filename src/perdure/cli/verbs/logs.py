"""Implements `perdure logs`: prints the home's log file for people. Works with and without a
node."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Final, TextIO

from perdure.app.config.environment import GAVE_UP, LOG_FILE, STOPPED
from perdure.app.wiring.system import SystemClock
from perdure.cli.exits import complain
from perdure.cli.printing import clean, in_json
from perdure.cli.target import CommandTarget
from perdure.domain.errors import Rejected

LOOK_EVERY_S: Final = 0.25
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


async def logs(target: CommandTarget, *, lines: int, level: str, follow: bool) -> None:
    """Print the last lines of the log, and with `follow` also the new ones."""
    if level not in LEVELS:
        raise Rejected(f"--level is one of {', '.join(LEVELS)}", code="config")
    wanted = LEVELS[LEVELS.index(level) :]
    path = target.home / "logs" / LOG_FILE
    if not path.exists():
        complain(f"there are no logs in {target.home} yet; `perdure serve` begins them")
    newest = islice((line for line in _newest_first(path) if _level(line) in wanted), lines)
    for line in reversed(list(newest)):
        _show(line, is_json=target.is_json)
    if follow:
        async for line in _arriving(path):
            if _level(line) in wanted:
                _show(line, is_json=target.is_json)


def left_behind(home: Path, *, since_ms: int) -> str:
    """Return what a stop since then left for the next start, from its last line in the log. Returns
    an empty string if it left nothing, or if the log does not say."""
    for line in _newest_first(home / "logs" / LOG_FILE):
        fields = _fields(line)
        if _at_ms(fields) < since_ms:
            break
        if fields.get("event") == STOPPED:
            return _left(int(str(fields["parked"])), int(str(fields["left_as_after_a_kill"])))
        if fields.get("event") == GAVE_UP:
            return "it did not end in time and was cut off; the next start recovers what was left"
    return ""


def _left(parked: int, unparked: int) -> str:
    turns = parked + unparked
    if not turns:
        return ""
    one = turns == 1
    told = f"{turns} turn{'' if one else 's'} did not finish and go{'es' if one else ''} on"
    return f"{told} at the next start"


def _at_ms(fields: dict[str, object]) -> float:
    try:
        return datetime.fromisoformat(str(fields.get("timestamp"))).timestamp() * 1000
    except ValueError:
        return 0


def _newest_first(path: Path) -> Iterator[str]:
    """Yield the lines of the current file and then of the older, rotated files, the newest
    first."""
    for number in count():
        older = path if number == 0 else path.with_name(f"{path.name}.{number}")
        try:
            text = older.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        yield from reversed(text.splitlines())


async def _arriving(path: Path) -> AsyncIterator[str]:
    """Yield whole lines as they are written, across rotations. Begins at the end of the file."""
    clock = SystemClock()
    file, held = _opened(path, at_end=True), ""
    while True:
        # Checked before reading. Otherwise lines written between the read and the rotation would be
        # lost.
        is_current = file is not None and _is_current(file, path)
        if file is not None:
            *whole, held = (held + file.read()).split("\n")
            for line in whole:
                yield line
        if is_current:
            await clock.sleep(LOOK_EVERY_S)
            continue
        if file is not None:
            file.close()
        file, held = _opened(path, at_end=False), ""
        if file is None:
            await clock.sleep(LOOK_EVERY_S)


def _opened(path: Path, *, at_end: bool) -> TextIO | None:
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    if at_end:
        file.seek(0, os.SEEK_END)
    return file


def _is_current(file: TextIO, path: Path) -> bool:
    """Tell whether the open file is still the one at the path. After a rotation it is not."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _fields(line: str) -> dict[str, object]:
    """Return the fields of a line. A line that is no JSON is the event itself."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"event": line, "level": "info"}


def _level(line: str) -> str:
    found = str(_fields(line).get("level", "info"))
    return found if found in LEVELS else "info"


def _show(line: str, *, is_json: bool) -> None:
    if not line.strip():
        return
    if is_json:
        print(in_json(line), flush=True)
        return
    fields = _fields(line)
    at, level = fields.pop("timestamp", ""), fields.pop("level", "info")
    event, logger = fields.pop("event", ""), fields.pop("logger", "")
    trouble = fields.pop("exception", None)
    rest = " ".join(f"{key}={_in_words(value)}" for key, value in fields.items())
    text = f"{at} {str(level).upper():<8} {logger}: {event} {rest}".rstrip()
    print(clean(text if trouble is None else f"{text}\n{trouble}"), flush=True)


def _in_words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
