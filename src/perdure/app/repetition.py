"""Bounds what one cause writes into the log.

Anybody who finds a way to make the gateway complain can do so thousands of times a second. So a
line that repeats one of the last minute is counted and not written, and the number of different
lines of one cause is bounded. A summary line says how many were left out. It is written with the
first line after the minute is over, and at the end.
"""

import logging
from collections.abc import Iterator
from typing import Final, cast

PERIOD_S: Final = 60.0
# How many different lines one cause may write in a period.
LINES_MAX: Final = 50
# How many causes are remembered. Beyond that the oldest is summed up early.
CAUSES_MAX: Final = 1_000
SUMMARY: Final = "more lines of this kind were left out"
# Fields that differ between two lines that say the same.
_WHEN: Final = frozenset({"timestamp"})
_KEPT: Final = ("logger", "level", "timestamp")


class _Cause:
    """Remembers what one cause has written since `began_s`, and the last line that was left out."""

    def __init__(self, record: logging.LogRecord, began_s: float) -> None:
        self.record = record
        self.began_s = began_s
        self.written: set[int] = set()
        self.left_out = 0

    def takes(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written. A line that is not is counted."""
        line = hash(_said(record))
        if line in self.written or len(self.written) >= LINES_MAX:
            self.left_out += 1
            self.record = record
            return False
        self.written.add(line)
        return True


class Repetition:
    """Decides which warnings and errors are written. All other lines are always written."""

    def __init__(self) -> None:
        # Ordered by when their periods began, so that the first is always the next to end.
        self._causes: dict[tuple[str, int, str], _Cause] = {}

    def passed(self, record: logging.LogRecord, *, now_s: float) -> Iterator[logging.LogRecord]:
        """Yield the lines to write instead of this one: summaries that are due, and the line if it
        is new."""
        yield from self._due(now_s)
        if record.levelno < logging.WARNING:
            yield record
            return
        key = (record.name, record.levelno, _event(record))
        cause = self._causes.get(key)
        if cause is None:
            cause = self._causes[key] = _Cause(record, now_s)
        if cause.takes(record):
            yield record

    def rest(self) -> Iterator[logging.LogRecord]:
        """Yield all summaries, whether they are due or not."""
        while self._causes:
            yield from self._close_first()

    def _due(self, now_s: float) -> Iterator[logging.LogRecord]:
        """Yield the summaries of causes whose period is over, and of the oldest if there are too
        many."""
        while self._causes:
            first = next(iter(self._causes.values()))
            if now_s - first.began_s < PERIOD_S and len(self._causes) <= CAUSES_MAX:
                return
            yield from self._close_first()

    def _close_first(self) -> Iterator[logging.LogRecord]:
        cause = self._causes.pop(next(iter(self._causes)))
        if cause.left_out:
            yield _sum(cause)


def _event(record: logging.LogRecord) -> str:
    """Return the fixed text of a line, without what differs from case to case. Libraries pass the
    variable part as arguments; our own lines have it in fields."""
    return str(record.msg.get("event")) if isinstance(record.msg, dict) else str(record.msg)


def _said(record: logging.LogRecord) -> str:
    """Return the whole text of a line, without its time."""
    if isinstance(record.msg, dict):
        return repr({key: value for key, value in record.msg.items() if key not in _WHEN})
    return record.getMessage()


def _sum(cause: _Cause) -> logging.LogRecord:
    """Return the summary line of a cause, with the logger and level of the last line left out."""
    record, count = cause.record, cause.left_out
    made = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
    fields: object = record.msg
    if isinstance(fields, dict):
        kept = {key: fields[key] for key in _KEPT if key in fields}
        said: object = {**kept, "event": SUMMARY, "line": _event(record), "count": count}
    else:
        said, made.args = f"{SUMMARY}: {count} of {_event(record)!r}", ()
    # A record of structlog carries a mapping here, though the declared type is `str`.
    made.msg = cast("str", said)
    return made
