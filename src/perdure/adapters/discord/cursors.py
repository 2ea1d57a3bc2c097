"""How far each channel has been heard, kept over restarts.

Discord tells a new session nothing of what it missed, so the last message taken of each channel is
written down and the rest is asked for. The file may lag behind: a cursor that is too old only
offers again what was taken already, and that changes nothing. It is written whole beside itself and
moved into place, so a crash leaves the old one or the new one.
"""

import asyncio
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec
import structlog

CHANNELS_MAX: Final = 1_000

log = structlog.get_logger("discord")


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the id of a message. Discord lists the channels of servers, but no direct ones."""

    last: int
    is_direct: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    channels: dict[str, Cursor]


class Cursors:
    """The newest channels, the last spoken in at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._channels: OrderedDict[str, Cursor] = OrderedDict()
        self._changed = asyncio.Event()
        self._newest = 0
        self._lock = threading.Lock()
        self._version = self._written = 0

    async def load(self) -> None:
        try:
            raw = await asyncio.to_thread(self._path.read_bytes)
            found = msgspec.json.decode(raw, type=_File)
        except FileNotFoundError:
            return
        except (msgspec.DecodeError, OSError) as error:
            # Without it nothing is lost but what was written while we were away.
            log.warning("cursors_unreadable", path=str(self._path), error=str(error))
            return
        self._channels = OrderedDict(sorted(found.channels.items(), key=lambda each: each[1].last))

    def advance(self, channel: str, message: str, *, is_direct: bool) -> None:
        known = self._channels.pop(channel, None)
        last = max(int(message), known.last if known else 0)
        self._channels[channel] = Cursor(last=last, is_direct=is_direct)
        if len(self._channels) > CHANNELS_MAX:
            self._channels.popitem(last=False)
        self._changed.set()

    def begin(self) -> None:
        """A session begins: what was heard until now is all there is of the time before."""
        self._newest = max((cursor.last for cursor in self._channels.values()), default=0)

    def knows(self, channel: str) -> bool:
        return channel in self._channels

    def last(self, channel: str) -> int:
        """The last message heard there; of a channel not heard yet, the last one of all when the
        session began. 0 if there was none, for then this is the beginning."""
        known = self._channels.get(channel)
        return known.last if known else self._newest

    def direct(self) -> list[str]:
        return [channel for channel, cursor in self._channels.items() if cursor.is_direct]

    async def changed(self) -> None:
        await self._changed.wait()

    async def save(self) -> None:
        """Returns once all that was taken until now is on the disk, if that can be written to."""
        if not self._changed.is_set() and self._written == self._version:
            return
        self._changed.clear()
        body = msgspec.json.encode(_File(v=1, channels=dict(self._channels)))
        self._version += 1
        try:
            await asyncio.to_thread(self._write, self._version, body)
        except OSError as error:
            # Talk goes on without it, and the next change tries again.
            log.warning("cursors_not_saved", path=str(self._path), error=str(error))

    def _write(self, version: int, body: bytes) -> None:
        # A write goes on in its thread when the one who asked for it is cancelled; the next one
        # waits for it, and an older state never replaces a newer.
        with self._lock:
            if version > self._written:
                _replace(self._path, body)
                self._written = version


def _replace(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
