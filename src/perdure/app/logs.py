"""Writes the logs: short lines for people on stderr, and JSON lines in the home's
`logs/perdure.log`.

A separate thread writes, so a slow disk or terminal never holds up the event loop. Lines carry ids
and lengths, never what people said. The number of lines that one cause writes is bounded
(`repetition.py`). If the file cannot be written, this is said once, and the gateway runs on without
it.
"""

import contextlib
import logging
import logging.handlers
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

import structlog

from perdure.app.config.environment import LOG_FILE
from perdure.app.repetition import Repetition
from perdure.domain.errors import NO_SPACE

# Lines of this logger are not shown on a terminal, because the banner says the same.
START = "start"
FILE_BYTES = 10_000_000
FILES_KEPT = 5
# How long the end of the process waits for the last lines. They are few, and a terminal that
# accepts no output must not hold up the end.
LAST_LINES_S = 0.3


def begin(home: Path, *, verbose: bool) -> "Writer":
    """Set up logging. The caller must finish the returned writer last of all."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handlers = [_terminal(shared), _file(home / "logs" / LOG_FILE, shared)]
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    root = logging.getLogger()
    passing = _Passing(lines)
    root.handlers = [passing]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # While the server is away, the pool logs each try with a traceback. The store logs it once.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    writer = Writer(lines, *handlers, respect_handler_level=True)
    writer.sum_up = passing.sum_up
    writer.start()
    return writer


class Writer(logging.handlers.QueueListener):
    """Runs the thread that writes the lines."""

    sum_up: Callable[[], None] = staticmethod(lambda: None)

    def finish(self) -> None:
        """Write what is queued, and stop. May be called from any thread, any number of times. A
        blocked terminal or disk delays the end by at most `LAST_LINES_S`."""
        waiting = threading.Thread(target=self._stop_once, daemon=True)
        waiting.start()
        waiting.join(LAST_LINES_S)

    def _stop_once(self) -> None:
        if self._thread is not None:
            self.sum_up()
            self.stop()


class _Passing(logging.handlers.QueueHandler):
    """Passes records to the writer's thread unchanged, because both formatters need the structured
    event. Debug lines of libraries are left out: they log each of their steps, and some of what
    people said."""

    def __init__(self, lines: "SimpleQueue[logging.LogRecord]") -> None:
        super().__init__(lines)
        self._repetition = Repetition()

    def emit(self, record: logging.LogRecord) -> None:
        for each in self._repetition.passed(record, now_s=time.monotonic()):
            super().emit(each)

    def sum_up(self) -> None:
        """Write how many lines were left out."""
        with self.lock or contextlib.nullcontext():
            for each in self._repetition.rest():
                super().emit(each)

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out the debug lines of libraries."""
        is_ours = isinstance(record.msg, dict)
        return (is_ours or record.levelno > logging.DEBUG) and bool(super().filter(record))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record unchanged. The base class would format it here and lose the structured
        event."""
        return record


class _Terminal(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name
        """Do nothing if the terminal is gone, because there is nowhere to report it. A line that
        cannot be formatted is written as it is."""
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            with contextlib.suppress(OSError, ValueError):
                self.stream.write(f"{record.msg}\n")


class _File(logging.handlers.RotatingFileHandler):
    """Writes the log file, and rotates it."""

    has_complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name
        """Complain once about a file that cannot be written. Otherwise each line would print a
        traceback."""
        why = sys.exc_info()[1]
        self._let_go()
        if self.has_complained:
            return
        self.has_complained = True
        with contextlib.suppress(OSError, ValueError):
            advice = "free some space" if _is_full(why) else "check who may write to its folder"
            print(f"the log file cannot be written ({why}); {advice}", file=sys.stderr)  # noqa: T201

    def _let_go(self) -> None:
        """Close the file, so that the next line opens it anew. Unwritten text stays in the file's
        buffer: it would be tried again with every line, and once more when the process ends, which
        prints a traceback."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _is_full(why: BaseException | None) -> bool:
    return isinstance(why, OSError) and why.errno in NO_SPACE


def _terminal(shared: list[structlog.typing.Processor]) -> logging.Handler:
    handler = _Terminal(sys.stderr)
    if sys.stderr.isatty():
        handler.addFilter(lambda record: record.name != START)
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    handler.setFormatter(_formatter(renderer, shared))
    return handler


def _file(path: Path, shared: list[structlog.typing.Processor]) -> logging.Handler:
    handler = _File(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8", delay=True)
    handler.setFormatter(_formatter(structlog.processors.JSONRenderer(), shared))
    return handler


def _formatter(
    renderer: structlog.typing.Processor, shared: list[structlog.typing.Processor]
) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        foreign_pre_chain=shared,
    )
