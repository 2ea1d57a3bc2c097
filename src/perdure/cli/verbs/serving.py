"""Implements `perdure serve`."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from perdure.app.config.environment import home_folder, process_environ
from perdure.app.life.serve import Again, ServeOptions, begin_again
from perdure.app.life.serve import serve as serve_node
from perdure.app.life.systemd import is_supervised
from perdure.cli.exits import FAILED, START_AGAIN, complain
from perdure.cli.streams import lose_output
from perdure.domain.errors import Rejected

log = structlog.get_logger("serve")


def run_serve(
    home: Path | None,
    *,
    host: str | None,
    port: int | None,
    is_replacing: bool,
    is_verbose: bool,
    has_token_shown: bool,
) -> int | None:
    """Run a node. After a restart that was asked for, begin again in the same process, or let
    systemd do it."""
    environ = process_environ()
    options = ServeOptions(
        home=home_folder(home, environ),
        host=host,
        port=port,
        is_replacing=is_replacing,
        is_verbose=is_verbose,
        # Output that is no terminal may be a log that others can read, so the token is not shown
        # there.
        has_token_shown=has_token_shown or sys.stdout.isatty(),
    )
    leave = partial(_leave_at_once, environ)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        again = runner.run(serve_node(options, environ, _announce, leave))
    if again is not None and not is_supervised(environ):
        begin_again(again, environ)
    return None if again is None else START_AGAIN


def _announce(text: str) -> None:
    """Print the banner. A node runs on if nobody reads it, as in `perdure serve | head -1`."""
    try:
        # A program may wait for this line through a pipe, so it is flushed.
        print(text, flush=True)
    except OSError as error:
        lose_output()
        log.warning("the output was closed; the node goes on", error=error.strerror)


def _leave_at_once(environ: Mapping[str, str], again: Again | None) -> NoReturn:
    """End the process from any thread, whatever the other threads do. Nothing is cleaned up."""
    if again is not None and not is_supervised(environ):
        try:
            begin_again(again, environ)
        except Rejected as error:
            complain(error.message)
            os._exit(FAILED)
    os._exit(0 if again is None else START_AGAIN)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of uvloop's event loop, or of Python's own where there is no uvloop."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
