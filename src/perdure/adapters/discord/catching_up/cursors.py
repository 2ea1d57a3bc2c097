"""Remembers the last message taken of each channel, in a file that survives restarts.

Discord does not tell a new session what it missed, so the messages after each cursor are asked for.
The file may be older than the truth: an old cursor only causes messages to be offered again, which
changes nothing. The file is written under another name, synced, and then renamed, so a crash leaves
either the old file or the new one, never a damaged one.
"""

import asyncio
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec
import structlog

# Bounds the file. The channel that was written in least recently is forgotten first.
CHANNELS_MAX: Final = 1_000

log = structlog.get_logger("discord")


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Says how far one channel was read. `last` is the id of the last message taken.

    `is_direct` marks direct channels: Discord lists the channels of servers but not these, so only
    the cursors know them.
    """

    last: int
    is_direct: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    channels: dict[str, Cursor]


class Cursors:
    """Keeps the cursors of the channels, ordered from the least to the most recently used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._channels: OrderedDict[str, Cursor] = OrderedDict()
        self._changed = asyncio.Event()
        self._newest = 0
        self._lock = threading.Lock()
        self._version = self._written = 0

    async def load(self) -> None:
        """Read the file. A missing or damaged file counts as empty."""
        try:
            raw = await asyncio.to_thread(self._path.read_bytes)
            found = msgspec.json.decode(raw, type=_File)
        except FileNotFoundError:
            return
        except (msgspec.DecodeError, OSError) as error:
            # Without cursors only the messages written while the process was down are missed.
            log.warning("cursors_unreadable", path=str(self._path), error=str(error))
            return
        self._channels = OrderedDict(sorted(found.channels.items(), key=lambda each: each[1].last))

    def advance(self, channel: str, message: str, *, is_direct: bool) -> None:
        """Move a channel's cursor to `message`; it never moves back."""
        known = self._channels.pop(channel, None)
        last = max(int(message), known.last if known else 0)
        self._channels[channel] = Cursor(last=last, is_direct=is_direct)
        if len(self._channels) > CHANNELS_MAX:
            self._channels.popitem(last=False)
        self._changed.set()

    def begin(self) -> None:
        """Note that a new session begins: channels without a cursor are read from the newest cursor
        on."""
        self._newest = max((cursor.last for cursor in self._channels.values()), default=0)

    def knows(self, channel: str) -> bool:
        return channel in self._channels

    def last(self, channel: str) -> int:
        """Return the id of the last message taken in a channel.

        For a channel without a cursor, return the newest cursor of all channels when the session
        began; 0 if there was none, which means that the bot starts for the first time.
        """
        known = self._channels.get(channel)
        return known.last if known else self._newest

    def direct(self) -> list[str]:
        """Return the direct channels that are known."""
        return [channel for channel, cursor in self._channels.items() if cursor.is_direct]

    async def changed(self) -> None:
        """Wait until a cursor has moved since the last save."""
        await self._changed.wait()

    async def save(self) -> None:
        """Write all cursors to the disk. A failure is logged, and the next change tries again."""
        if not self._changed.is_set() and self._written == self._version:
            return
        self._changed.clear()
        body = msgspec.json.encode(_File(v=1, channels=dict(self._channels)))
        self._version += 1
        try:
            await asyncio.to_thread(self._write, self._version, body)
        except OSError as error:
            # Messages do not depend on the file, and the next change writes it again.
            log.warning("cursors_not_saved", path=str(self._path), error=str(error))

    def _write(self, version: int, body: bytes) -> None:
        # A cancelled caller does not stop its thread, so two writes can overlap. The lock puts them
        # in order, and the version keeps an older state from replacing a newer one.
        with self._lock:
            if version > self._written:
                _replace(self._path, body)
                self._written = version


def _replace(path: Path, body: bytes) -> None:
    """Replace the file in one step, after its new content has reached the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
