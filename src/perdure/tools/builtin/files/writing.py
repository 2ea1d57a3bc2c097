"""Writes whole files, so that each reader sees the old text or the new one and never a part.

The new text goes to a temporary file beside the old one, is made durable, and takes the old one's
name. If the process dies before that, the old file is untouched, and a temporary file that list and
search leave out is left over. Just before the name is taken, the old file is looked at again: if it
has changed since it was read, the work begins anew with its present text. Only a program other than
the gateway that writes in the moment between that look and the renaming can lose its change.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, Conflict, NotFound, Rejected, Transient
from perdure.domain.tools.diffs import unified_diff
from perdure.domain.tools.traits import Outlook, digest_of
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.opening import failures_told, opened_file, opened_folder
from perdure.tools.builtin.files.roots import RootedPath

_TRIES: Final = 5
_DIGEST_CHARS: Final = 16
# What a file that is replaced passes on. A program's special rights end when its text changes, as
# they do when somebody writes to it.
_MODE: Final = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
# Held from the last look at a file to its replacement, so that calls do not undo each other.
_replacing: Final = Lock()

# What makes the new text of the old one, which is None if the file does not exist. Raises
# `Rejected` if it cannot.
Change = Callable[["PresentFile | None"], str]


class PresentFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file as it is now. `stamp` changes whenever the file does."""

    data: bytes
    stamp: tuple[int, ...]
    mode: int
    owner: int
    group: int

    @property
    def text(self) -> str | None:
        """Return the text, or None if it is not UTF-8."""
        try:
            return None if b"\0" in self.data else self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def digest(self) -> str:
        """Return the digest of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


class _Changed(Exception):
    """Says that the file has changed since it was read."""


class FileWriter:
    """Changes one file. `key` names its temporary file, and must differ between calls."""

    def __init__(self, path: RootedPath, change: Change, key: str, bounds: FilesBounds) -> None:
        assert path.parts, "a root is no file"
        self._path = path
        self._change = change
        self._key = digest_of(key)[:_DIGEST_CHARS]
        self._bounds = bounds

    def foresee(self) -> Outlook:
        """Return what would change now, and the digest of what is there: an empty string for a
        file that does not exist."""
        try:
            with opened_folder(self._path.upward()) as folder:
                present = self._present(folder)
        except NotFound:
            present = None
        preview = self._told(present, checked_text(self._change(present), self._bounds))
        return Outlook(preview=preview, operands=present.digest if present else "")

    def write(self, *, make_folders: bool, is_unwanted: Event) -> str:
        """Change the file, and return what has changed."""
        with opened_folder(self._path.upward(), make=make_folders) as folder:
            for _ in range(_TRIES):
                present = self._present(folder)
                text = checked_text(self._change(present), self._bounds)
                data = text.encode()
                if present is None or present.data != data:
                    try:
                        self._replace(folder, data, present, is_unwanted)
                    except _Changed:
                        continue
                return self._told(present, text)
        raise Conflict(f"{self._path.shown} changes all the time; read it again and try later")

    def _present(self, folder: int) -> PresentFile | None:
        """Return the file as it is now, or None if there is none."""
        try:
            with opened_file(folder, self._path, is_written=True) as file:
                return self._read(file)
        except NotFound:
            return None

    def _read(self, file: int) -> PresentFile:
        limit = self._bounds.text_bytes
        found = os.fstat(file)
        data = b""
        if found.st_size <= limit:
            with os.fdopen(os.dup(file), "rb") as reader:
                data = reader.read(limit + 1)
        if max(found.st_size, len(data)) > limit:
            raise Rejected(
                f"{self._path.shown} has {found.st_size:,} bytes, and only files of up to "
                f"{limit:,} can be changed; write to another file"
            )
        return PresentFile(
            data=data,
            stamp=_stamp(found),
            mode=found.st_mode & _MODE,
            owner=found.st_uid,
            group=found.st_gid,
        )

    def _told(self, present: PresentFile | None, text: str) -> str:
        """Return what a change does to the file, in words and as a diff."""
        name, size = self._path.shown, len(text.encode())
        if present is None:
            return _joined(
                f"New file {name}, {size:,} bytes:",
                unified_diff(None, text, name, self._bounds.diff),
            )
        if present.data == text.encode():
            return f"{name} holds exactly this text already, so nothing changes."
        before = present.text
        if before is None or before.count("\n") > self._bounds.text_lines:
            diff = unified_diff(None, text, name, self._bounds.diff)
            what = "no text in UTF-8" if before is None else "more lines than can be compared"
            old = f"{len(present.data):,} bytes, {what}"
            return _joined(f"All of {name} ({old}) is replaced by {size:,} bytes:", diff)
        return unified_diff(before, text, name, self._bounds.diff)

    def _replace(
        self, folder: int, data: bytes, present: PresentFile | None, is_unwanted: Event
    ) -> None:
        """Give the file its new content, in one moment. Raises `_Changed` if it is no longer as it
        was read."""
        with failures_told(self._path):
            temporary, file = self._temporary(folder, 0o600 if present else 0o666)
            try:
                with os.fdopen(file, "wb") as writer:
                    writer.write(data)
                    writer.flush()
                    _dress(file, present)
                    os.fsync(file)
                self._rename(folder, temporary, present, is_unwanted)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        try:
            os.fsync(folder)
        except OSError as error:
            raise Ambiguous(
                f"{self._path.shown} was written, but the disk failed to keep its name "
                f"({error.strerror}); read it again"
            ) from error

    def _temporary(self, folder: int, mode: int) -> tuple[str, int]:
        """Create the temporary file, and return its name and descriptor. If a dead call has left
        one of the same name, the next name is taken."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for number in range(_TRIES):
            name = f".perdure-{self._key}{number:x}.tmp"
            with suppress(FileExistsError):
                return name, os.open(name, flags, mode, dir_fd=folder)
        raise Transient(
            f"the folder of {self._path.shown} is full of temporary files (.perdure-*.tmp) of "
            "earlier calls; ask the person to delete them"
        )

    def _rename(
        self, folder: int, temporary: str, present: PresentFile | None, is_unwanted: Event
    ) -> None:
        """Let the temporary file take the file's name, unless the file has changed."""
        name = self._path.name
        with _replacing:
            if is_unwanted.is_set():
                raise Transient("the call was cancelled before anything was written")
            if _stamp_in(folder, name) != (present.stamp if present else ()):
                raise _Changed
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def checked_text(text: str, bounds: FilesBounds) -> str:
    """Return a new text. Raises `Rejected` if it is too large, or cannot be stored."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Rejected(
            "the text holds half of a character pair, which no file can store; write the whole "
            "character"
        ) from error
    if size > bounds.text_bytes or text.count("\n") > bounds.text_lines:
        raise Rejected(
            f"the text is too large: a file may have {bounds.text_bytes:,} bytes and "
            f"{bounds.text_lines:,} lines; divide it into several files"
        )
    return text


def _dress(file: int, present: PresentFile | None) -> None:
    """Give a new file the owner, the group and the rights of the one that it replaces. Only a
    privileged process may give files away; for others it stays its own."""
    if present is None:
        return
    for owner in (present.owner, -1):
        with suppress(PermissionError):
            os.fchown(file, owner, present.group)
            break
    os.fchmod(file, present.mode)


def _stamp_in(folder: int, name: str) -> tuple[int, ...]:
    """Return the stamp of what has this name now; an empty one for nothing."""
    try:
        return _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _joined(heading: str, diff: str) -> str:
    return f"{heading}\n{diff}" if diff else heading
