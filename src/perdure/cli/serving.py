"""`perdure serve`."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perdure.app.environment import home_folder, process_environ
from perdure.app.serve import ServeOptions, begin_again
from perdure.app.serve import serve as serve_node
from perdure.app.systemd import is_supervised
from perdure.cli.exits import START_AGAIN


def serve(
    home: Path | None, *, host: str | None, port: int | None, is_replacing: bool, is_verbose: bool
) -> int | None:
    environ = process_environ()
    options = ServeOptions(
        home=home_folder(home, environ),
        host=host,
        port=port,
        is_replacing=is_replacing,
        is_verbose=is_verbose,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        # Whoever started us may wait for the banner through a pipe.
        again = runner.run(serve_node(options, environ, partial(print, flush=True)))
    if again is not None and not is_supervised(environ):
        sys.stdout.flush()
        begin_again(again, environ)
    return None if again is None else START_AGAIN


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
