"""Tells systemd how the node is, by its notify protocol and without its library.

A message is one datagram of lines to the socket that NOTIFY_SOCKET names. Without that variable
every message is dropped, so callers need not check. The watchdog is fed while the event loop runs:
a gateway that hangs should be restarted. A store that is away does not stop the feeding: a new
process would not find it sooner, and the running turns would be interrupted for nothing.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from perdure.ports.system.clock import Clock

# How much longer than the drain the end may take, as told to systemd.
CLOSING_S: Final = 30.0
log = structlog.get_logger("systemd")


def is_supervised(environ: Mapping[str, str]) -> bool:
    """Tell whether systemd would restart this process. INVOCATION_ID alone proves nothing, because
    shells in a desktop session inherit it."""
    if environ.get("NOTIFY_SOCKET"):
        return True
    if not environ.get("INVOCATION_ID"):
        return False
    return environ.get("SYSTEMD_EXEC_PID") in (None, str(os.getpid()))


class Notifier:
    """Sends notifications to systemd, if there is one."""

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(environ)
        self._clock = clock

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def stopping(self, status: str, *, within_s: float) -> None:
        """Announce the stop, and ask for more time: a drain may take longer than a unit's usual
        limit."""
        extend_us = int((within_s + CLOSING_S) * 1_000_000)
        self._send("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={extend_us}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Announce a reload while the `with` block runs, and that the node is ready after it."""
        now_us = int(self._clock.monotonic_s() * 1_000_000)
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=reading perdure.toml again")
        try:
            yield
        finally:
            self.ready("serving")

    async def watch(self) -> None:
        """Feed the watchdog at half its interval, for as long as the event loop runs."""
        if self._watchdog_s is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await self._clock.sleep(self._watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(0)
                out.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("systemd could not be told", lines=lines, error=error.strerror)


def _address(name: str) -> str | None:
    """Return the socket's address: a path, or an abstract name, which begins with a zero byte."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's interval, or None if there is no watchdog for this process."""
    is_ours = environ.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not is_ours or not (microseconds.isascii() and microseconds.isdigit()):
        return None
    return int(microseconds) / 1_000_000 or None
