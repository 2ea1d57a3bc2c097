"""Opens files and folders below a root so that no link leads out of it.

A path is walked one name at a time. Each step is opened relative to the descriptor of the folder
before it and refuses symbolic links, so that nothing is looked up by a path that somebody could
change in the meantime. Links are refused even if they stay inside the root. A hard link is the file
itself, so it cannot be told from one that was always there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from perdure.domain.errors import (
    NO_FILES,
    NO_SPACE,
    OUT_OF_FILES,
    OUT_OF_FILES_CODE,
    NotFound,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.tools.builtin.files.roots import RootedPath, is_temporary

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe without a writer would otherwise keep the thread for ever.
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# What systems say if a link, or something else that is no folder, stands where one must be.
_NO_FOLDER: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})
_KINDS: Final = (
    (stat.S_ISLNK, "link"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISREG, "file"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
)


class FolderEntry(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Names what stands in a folder: a folder, a file, a link, a pipe, a socket or a device."""

    name: str
    kind: str


@contextmanager
def opened_folder(path: RootedPath, *, make: bool = False) -> Iterator[int]:
    """Open a folder, and close it at the end. With `make`, missing folders are created."""
    with failures_told(path):
        folder = _opened_root(path.root)
        try:
            for depth in range(len(path.parts)):
                above = folder
                here = msgspec.structs.replace(path, parts=path.parts[: depth + 1])
                folder = _entered(above, here, make=make)
                os.close(above)
            yield folder
        finally:
            os.close(folder)


@contextmanager
def opened_child(folder: int, path: RootedPath) -> Iterator[int]:
    """Open a folder that stands in an open one, and close it at the end."""
    child = _entered(folder, path, make=False)
    try:
        yield child
    finally:
        os.close(child)


@contextmanager
def opened_file(folder: int, path: RootedPath, *, is_written: bool = False) -> Iterator[int]:
    """Open a regular file of a folder, and close it at the end. With `is_written`, files that may
    only be read are refused; nothing is written through this descriptor."""
    _refuse_kind(_kind_in(folder, path.name), path)
    access = os.O_RDWR if is_written else os.O_RDONLY
    with failures_told(path):
        file = os.open(path.name, access | _FILE, dir_fd=folder)
        try:
            # It may have been exchanged since it was looked at. What is open now stays what it is.
            _refuse_kind(_kind(os.fstat(file).st_mode), path)
            yield file
        finally:
            os.close(file)


def is_folder(above: int, path: RootedPath) -> bool:
    """Tell whether a folder stands there at the moment. Opening it may still be refused."""
    return _kind_in(above, path.name) == "folder"


def folder_entries(folder: int, *, limit: int) -> tuple[list[FolderEntry], bool]:
    """Return what stands in an open folder, sorted, and whether there is more than `limit`."""
    found: list[FolderEntry] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_temporary(entry.name):
                continue
            if len(found) == limit:
                return sorted(found), True
            with suppress(FileNotFoundError):
                found.append(FolderEntry(name=entry.name, kind=_kind_of(entry)))
    return sorted(found), False


@contextmanager
def failures_told(path: RootedPath) -> Iterator[None]:
    """Translate the system's errors within into ours."""
    try:
        yield
    except OSError as error:
        raise refusal(error, path) from error


def refusal(error: OSError, path: RootedPath) -> PerdureError:
    """Return the error that tells the model what the system said about a path."""
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {path.shown}; list shows what there is")
    if error.errno in _NO_FOLDER:
        return Rejected(
            f"{path.shown} is a link or not a folder, so it is not opened; list shows what there is"
        )
    if error.errno in _DENIED:
        return Rejected(
            f"the gateway may not do this with {path.shown} ({error.strerror}); use another path"
        )
    if error.errno == errno.ENAMETOOLONG:
        return Rejected(f"the path {path.shown} is too long for this disk; choose a shorter one")
    if error.errno in NO_FILES:
        return Transient(OUT_OF_FILES, code=OUT_OF_FILES_CODE)
    if error.errno in NO_SPACE:
        return Transient(f"the disk is full, so {path.shown} was not written; tell the person")
    return Transient(f"the disk failed at {path.shown} ({error.strerror})")


def _opened_root(root: str) -> int:
    """Open a root. Its path held no link when the tool was set up, so a link there now is
    refused."""
    try:
        return os.open(root, _FOLDER)
    except OSError as error:
        if error.errno not in {errno.ENOENT, *_NO_FOLDER}:
            raise
        raise Rejected(
            f"the folder {root} is gone, so no file in it can be used; tell the person"
        ) from error


def _entered(above: int, path: RootedPath, *, make: bool) -> int:
    """Open the folder that the path names in the folder above it."""
    try:
        return os.open(path.name, _FOLDER, dir_fd=above)
    except FileNotFoundError as error:
        if not make:
            raise refusal(error, path) from error
        _make_folder(above, path.name)
        return _entered(above, path, make=False)
    except OSError as error:
        if error.errno in _NO_FOLDER and _kind_in(above, path.name) == "link":
            raise _link_refused(path) from error
        raise refusal(error, path) from error


def _make_folder(above: int, name: str) -> None:
    """Create a folder. Somebody else may do the same at this moment."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        os.fsync(above)


def _refuse_kind(kind: str, path: RootedPath) -> None:
    """Raise `Rejected` if something is no regular file. What is missing is found out by opening
    it."""
    if kind == "link":
        raise _link_refused(path)
    if kind == "folder":
        raise Rejected(f"{path.shown} is a folder; list shows what is in it")
    if kind not in ("file", ""):
        raise Rejected(f"{path.shown} is a {kind}, not a file; only files can be used")


def _link_refused(path: RootedPath) -> Rejected:
    return Rejected(
        f"{path.shown} is a symbolic link, and links are not followed, even inside the folder; "
        "give the path of what it points to"
    )


def _kind_in(folder: int, name: str) -> str:
    """Return what stands in an open folder under a name now, or an empty string. It serves only to
    explain; nothing relies on it."""
    try:
        return _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return ""


def _kind_of(entry: os.DirEntry[str]) -> str:
    """Return the kind of an entry. The system mostly tells it together with the name."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return _kind(entry.stat(follow_symlinks=False).st_mode)


def _kind(mode: int) -> str:
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "device")
