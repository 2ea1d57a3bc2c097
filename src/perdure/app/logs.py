"""Logs: short lines for people on stderr, JSON lines in the home's `logs/perdure.log`.

Writing happens on a thread of its own, so a slow disk or terminal never holds up the loop. Lines
carry ids and lengths, never what people said. A place that cannot be written to is named once;
the gateway goes on without it.
"""

import contextlib
import logging
import logging.handlers
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

import structlog

from perdure.app.environment import LOG_FILE

FILE_BYTES = 10_000_000
FILES_KEPT = 5


def begin(home: Path, *, verbose: bool) -> logging.handlers.QueueListener:
    """Set logging up; stop the returned listener last of all."""
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
    root.handlers = [_Passing(lines)]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    listener = logging.handlers.QueueListener(lines, *handlers, respect_handler_level=True)
    listener.start()
    return listener


class _Passing(logging.handlers.QueueHandler):
    """Hands records over as they are: both formatters need the structured event."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


class _Terminal(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name
        """The terminal is gone, and there is nowhere to say so."""


class _File(logging.handlers.RotatingFileHandler):
    has_complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name
        """Complain once about a full disk: each line would print a traceback of its own."""
        why = sys.exc_info()[1]
        self._let_go()
        if self.has_complained:
            return
        self.has_complained = True
        with contextlib.suppress(OSError, ValueError):
            print(f"the log file cannot be written ({why}); free some space", file=sys.stderr)  # noqa: T201

    def _let_go(self) -> None:
        """Close the file, and let the next line open it anew. What could not be written stays in
        the file's buffer: it would be tried again with every line, and once more by whoever
        collects the file at the end of the process, who prints a traceback."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _terminal(shared: list[structlog.typing.Processor]) -> logging.Handler:
    handler = _Terminal(sys.stderr)
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
