"""Telling systemd how we are, in its notify protocol and without its library.

A message is one datagram of lines to the socket that NOTIFY_SOCKET names. Where nobody listens,
every word is dropped, so callers need not ask. The watchdog is fed while the loop turns: a gateway
that hangs is worth less than one that is started again. A store that is away does not matter here:
the next life would find it no better, and what runs would be interrupted for nothing.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from perdure.ports.system.clock import Clock

CLOSING_S: Final = 30.0
log = structlog.get_logger("systemd")


def is_supervised(environ: Mapping[str, str]) -> bool:
    """Would systemd start us again? Shells of its desktop services inherit INVOCATION_ID too."""
    if environ.get("NOTIFY_SOCKET"):
        return True
    if not environ.get("INVOCATION_ID"):
        return False
    return environ.get("SYSTEMD_EXEC_PID") in (None, str(os.getpid()))


class Notifier:
    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(environ)
        self._clock = clock

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def stopping(self, status: str, *, within_s: float) -> None:
        """The drain may take longer than a unit usually gets for its end."""
        extend_us = int((within_s + CLOSING_S) * 1_000_000)
        self._send("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={extend_us}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        now_us = int(self._clock.monotonic_s() * 1_000_000)
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=reading perdure.toml again")
        try:
            yield
        finally:
            self.ready("serving")

    async def watch(self) -> None:
        """Feed the watchdog at half its time for as long as the loop turns."""
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
    """A path, or a name in the abstract space, which begins with a zero byte."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    is_ours = environ.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not is_ours or not (microseconds.isascii() and microseconds.isdigit()):
        return None
    return int(microseconds) / 1_000_000 or None
