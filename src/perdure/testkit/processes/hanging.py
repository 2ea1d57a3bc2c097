"""Ends tests that hang in an event loop.

pytest-timeout ends a test by a signal, and Python runs a signal's handler only between two of its
own instructions. uvloop waits outside of Python, so a test in which nothing happens any more would
wait for ever. Therefore a timer on a thread of its own cancels everything that such a loop still
waits for.
"""

import asyncio
import sys
import threading
from collections.abc import Generator
from typing import Final
from weakref import WeakSet

import pytest
import uvloop

# Time for pytest-timeout to end the test first.
GRACE_S: Final = 2.0
AGAIN_S: Final = 1.0
DEFAULT_S: Final = 60.0
_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the kind that a gateway uses. Tests in it are ended when they
    hang."""
    loop = uvloop.new_event_loop()
    _loops.add(loop)
    return loop


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test with all its fixtures, and cancel what its loop waits for when its time is
    over."""
    timer = threading.Timer(_limit_s(item) + GRACE_S, _cut)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _limit_s(item: pytest.Item) -> float:
    """Return how long a test may take, by its marker, the command line or the configuration."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    return float(
        item.config.getoption("timeout", None) or item.config.getini("timeout") or DEFAULT_S
    )


def _cut() -> None:
    """Cancel everything in the loops that run. This is called on the timer's thread."""
    for loop in list(_loops):
        if loop.is_running():
            loop.call_soon_threadsafe(_cancel_everything, loop)


def _cancel_everything(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks of a loop, and again after a while: a task may go on although it was
    cancelled."""
    for task in asyncio.all_tasks(loop):
        task.print_stack(file=sys.stderr)
        task.cancel("the test took too long")
    loop.call_later(AGAIN_S, _cancel_everything, loop)
