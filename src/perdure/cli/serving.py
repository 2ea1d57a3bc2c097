"""`perdure serve`."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perdure.app.environment import home_folder, process_environ
from perdure.app.serve import ServeOptions
from perdure.app.serve import serve as serve_node


def serve(home: Path | None, *, host: str | None, port: int | None, verbose: bool) -> None:
    environ = process_environ()
    options = ServeOptions(home=home_folder(home, environ), host=host, port=port, verbose=verbose)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        # Whoever started us may wait for the banner through a pipe.
        runner.run(serve_node(options, environ, partial(print, flush=True)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
