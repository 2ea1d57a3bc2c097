"""Bounds what one cause writes into the log.

Whoever finds a way to make the gateway complain can do it thousands of times a second. So a line
that is the same as one of the last minute is counted, not written, and of the lines that one cause
writes a bounded number differs. What was left out is summed up in a line of its own, as soon as
the minute is over and anything else is written, and at the end.
"""

import logging
from collections.abc import Iterator
from typing import Final, cast

PERIOD_S: Final = 60.0
LINES_MAX: Final = 50
CAUSES_MAX: Final = 1_000
SUMMARY: Final = "more lines of this kind were left out"
# What differs between two lines that say the same.
_WHEN: Final = frozenset({"timestamp"})
_KEPT: Final = ("logger", "level", "timestamp")


class _Cause:
    """Remembers what one cause has written since `began_s`, and the last line left out."""

    def __init__(self, record: logging.LogRecord, began_s: float) -> None:
        self.record = record
        self.began_s = began_s
        self.written: set[int] = set()
        self.left_out = 0

    def takes(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is written. One that is not is counted."""
        line = hash(_said(record))
        if line in self.written or len(self.written) >= LINES_MAX:
            self.left_out += 1
            self.record = record
            return False
        self.written.add(line)
        return True


class Repetition:
    """Decides which warnings and errors are written. Other lines always are."""

    def __init__(self) -> None:
        # In the order in which their periods began.
        self._causes: dict[tuple[str, int, str], _Cause] = {}

    def passed(self, record: logging.LogRecord, *, now_s: float) -> Iterator[logging.LogRecord]:
        """Yield what is written instead of a line: sums that are due, and the line if it is new."""
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
        """Yield all sums, whether or not they are due."""
        while self._causes:
            yield from self._close_first()

    def _due(self, now_s: float) -> Iterator[logging.LogRecord]:
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
    """Return the words of a line without what differs from case to case. Libraries put that behind
    the words, as arguments; our own lines have it in fields."""
    return str(record.msg.get("event")) if isinstance(record.msg, dict) else str(record.msg)


def _said(record: logging.LogRecord) -> str:
    """Return all that a line says."""
    if isinstance(record.msg, dict):
        return repr({key: value for key, value in record.msg.items() if key not in _WHEN})
    return record.getMessage()


def _sum(cause: _Cause) -> logging.LogRecord:
    """Return a line in the name of the last one that was left out."""
    record, count = cause.record, cause.left_out
    made = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
    fields: object = record.msg
    if isinstance(fields, dict):
        kept = {key: fields[key] for key in _KEPT if key in fields}
        said: object = {**kept, "event": SUMMARY, "line": _event(record), "count": count}
    else:
        said, made.args = f"{SUMMARY}: {count} of {_event(record)!r}", ()
    # A record of structlog carries a mapping, whatever the type says.
    made.msg = cast("str", said)
    return made
