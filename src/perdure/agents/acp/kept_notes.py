"""Keeps what each session of an agent was told, from one life of the gateway to the next.

The journal holds under which name the agent keeps its session. It does not hold whether the agent
has gone on there since: with a turn that was stopped, or one that was undone. So a note in a file
says what the session was told, and it is taken away before each prompt. If the gateway dies in
between, there is no note, and the session is made again from the journal.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from perdure.agents.acp.translation.transcript import Told
from perdure.domain.ids import SessionId
from perdure.ports.system.clock import Clock

# Notes of conversations that nobody has gone on with for so long are removed.
DAYS: Final = 30


class KeptNote(msgspec.Struct, frozen=True, kw_only=True):
    """Says under which name an agent keeps a session, and what the session was told."""

    kept_as: str
    told: Told
    instructions: str


class KeptNotes:
    """Holds a note for each session whose agent agrees with the journal."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._is_swept = False

    async def take(self, session: SessionId) -> KeptNote | None:
        """Remove the note of a session, and return it."""
        return await asyncio.to_thread(self._take, session)

    async def put(self, session: SessionId, note: KeptNote) -> None:
        """Write the note of a session. Without it the session is only made again."""
        await asyncio.to_thread(self._put, session, note)

    def _path(self, session: SessionId) -> Path:
        return self._folder / f"{session}.json"

    def _take(self, session: SessionId) -> KeptNote | None:
        path = self._path(session)
        try:
            raw = path.read_bytes()
            path.unlink()
            return msgspec.json.decode(raw, type=KeptNote)
        except (OSError, msgspec.DecodeError):
            return None

    def _put(self, session: SessionId, note: KeptNote) -> None:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
            path = self._path(session)
            new = path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(note))
            new.replace(path)

    def _sweep(self) -> None:
        """Remove old notes, once in a life of the gateway."""
        if self._is_swept:
            return
        self._is_swept = True
        oldest = self._clock.now_ms() / 1000 - DAYS * 86_400
        for path in self._folder.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
