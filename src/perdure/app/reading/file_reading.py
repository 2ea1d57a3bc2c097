"""Reads the text of files: plain text at once, documents and texts in older encodings in a child
process, speech by a transcriber. Pictures that models do not take are made to fit in such a process
too.

Every failure is described in words that take the place of the text. A file that cannot be read is
still shown to the person and named to the model.
"""

import asyncio
import contextlib
import os
import signal
import sys
from typing import Final, Protocol

import msgspec

from perdure.domain.reading.encodings import encoding_of
from perdure.domain.reading.kinds import PACKED, PDF, is_sound
from perdure.domain.reading.pictures import fits, is_picture
from perdure.domain.reading.sound import seconds_of
from perdure.domain.reading.texts import FileReading, UnreadableFile, bounded, decoded_text
from perdure.ports.records.media import FileSource
from perdure.ports.system.time_limits import time_limit

DOCUMENT_S: Final = 30.0
CHILD: Final = "perdure.app.reading.reading_child"
NO_TRANSCRIBER: Final = "no transcriber is configured"
DAMAGED: Final = "the document is damaged, or too much to read"


class Transcriber(Protocol):
    """Turns speech into text. Raises `UnreadableFile` with the reason if it cannot."""

    async def hear(self, source: FileSource) -> str: ...


class FileReader:
    """Implements the `ReadsFiles` port."""

    def __init__(
        self, transcriber: Transcriber | None = None, *, document_s: float = DOCUMENT_S
    ) -> None:
        self._transcriber = transcriber
        self._document_s = document_s

    async def read(self, source: FileSource) -> FileReading:
        """Return the text of a file, or in words why there is none. Never raises for a bad file."""
        if is_sound(source.mime):
            return await self._heard(source)
        if source.mime in PACKED or source.mime in (PDF, "text/html"):
            return await self._read_in_child(source)
        if is_picture(source.mime):
            fits_already = fits(source.data, source.mime)
            return FileReading() if fits_already else await self._read_in_child(source)
        encoding = encoding_of(source.data)
        if not encoding:
            return await self._read_in_child(source)
        return FileReading(text=decoded_text(source.data, encoding))

    async def _heard(self, source: FileSource) -> FileReading:
        """Transcribe speech. The length of the sound is returned even if that fails."""
        seconds = seconds_of(source.data)
        if self._transcriber is None:
            return FileReading(problem=NO_TRANSCRIBER, seconds=seconds)
        try:
            text = (await self._transcriber.hear(source)).strip()
        except UnreadableFile as error:
            return FileReading(problem=f"it could not be understood: {error}", seconds=seconds)
        problem = "" if text else "nothing was heard in it"
        return FileReading(text=bounded(text), problem=problem, seconds=seconds)

    async def _read_in_child(self, source: FileSource) -> FileReading:
        command = [sys.executable, "-I", "-m", CHILD, source.mime, source.address]
        try:
            said = await run_child(command, source.data, seconds=self._document_s)
            return msgspec.json.decode(said, type=FileReading)
        except UnreadableFile as error:
            return FileReading(problem=str(error))
        except msgspec.MsgspecError:
            return FileReading(problem=DAMAGED)


async def run_child(command: list[str], data: bytes, *, seconds: float) -> bytes:
    """Run a program on these bytes, and return what it prints. When it ends, every process that it
    started is killed. Raises `UnreadableFile`. The program gets none of our environment variables,
    which may contain keys."""
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
        )
    except OSError as error:
        raise UnreadableFile(f"{command[0]} cannot be started ({error.strerror})") from error
    try:
        async with time_limit(seconds):
            said, _ = await child.communicate(data)
    except TimeoutError as error:
        raise UnreadableFile(f"it took longer than {seconds:g} s") from error
    except OSError as error:
        raise UnreadableFile(f"{command[0]} ended too early") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    if child.returncode:
        raise UnreadableFile(DAMAGED if CHILD in command else f"{command[0]} failed")
    return said
