"""Makes and checks the socket by which the command line talks to the node of its home.

A port does not say who listens on it: when a node is killed, any program on the machine may take
the port, and would get the operator's token with the next command. A socket in a folder that only
one user can open must be that user's. The client checks the owners of the folder, of the socket and
of the listening process before it sends anything. The node still asks for the token.

The socket is in the home. If that path is too long for the system, or the file system has no
sockets, it is in the user's runtime folder, under a name derived from the home's.
"""

import hashlib
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

NAME: Final = "perdure.sock"
# The longest path of a socket on this system, without the zero at its end.
PATH_BYTES_MAX: Final = 107 if sys.platform == "linux" else 103
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
# How long we wait for a connection while we check who listens.
LOOK_S: Final = 2.0
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
# The process, user and group of the listening process, as the kernel returns them.
_CREDENTIALS: Final = struct.Struct("3i")


@contextmanager
def bound_socket(home: Path, environ: Mapping[str, str]) -> Iterator[socket.socket | None]:
    """Yield a bound socket of this home that does not listen yet, or None if none can be made. A
    socket left by a dead node is replaced, and ours is removed at the end."""
    made = _first_bound(places(home, environ))
    if made is None:
        yield None
        return
    path = Path(os.fsdecode(made.getsockname()))
    ours = path.lstat()
    try:
        yield made
    finally:
        # On a shared store another node of this home may have replaced our socket with its own.
        # While our socket is open, no other file can have its inode number, so this comparison is
        # safe.
        with suppress(OSError):
            if os.path.samestat(path.lstat(), ours):
                path.unlink()
        made.close()


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield where the socket of a home may be, the best place first."""
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:24]
    folders = [Path(environ.get(RUNTIME_VARIABLE, "")), Path(f"/run/user/{os.getuid()}")]
    named = [folder / f"perdure-{name}.sock" for folder in folders if folder.is_absolute()]
    last = Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}" / f"{name}.sock"
    for path in (home / NAME, *named, last):
        if len(os.fsencode(path)) <= PATH_BYTES_MAX:
            yield path


def proven(home: Path, told: str) -> Path | None:
    """Return the socket of this home's node, once it is proven that a trusted user listens on it.
    `told` is where the node said that it is. The home's own socket is tried first: a home that is
    mounted elsewhere still contains it."""
    for path in dict.fromkeys((home / NAME, Path(told or os.devnull))):
        if len(os.fsencode(path)) <= PATH_BYTES_MAX and _is_trusted(path, _trusted(home)):
            return path
    return None


def _first_bound(paths: Iterator[Path]) -> socket.socket | None:
    """Bind a socket at the first path where that works."""
    for path in paths:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _take(path, one)
        except OSError:
            one.close()
        else:
            return one
    return None


def _take(path: Path, one: socket.socket) -> None:
    """Bind a socket where only its user can reach it. Raises `OSError` if that is not possible."""
    folder = path.parent
    if folder.parent == Path(tempfile.gettempdir()):
        folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & _OTHERS or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is open to others")
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} is something else")
        path.unlink()
    one.settimeout(0)
    one.bind(str(path))
    # The socket does not listen yet, so nobody could connect before the rights were narrowed.
    path.chmod(0o600)


def _trusted(home: Path) -> frozenset[int]:
    """Return the users who can read the token of this home anyway."""
    with suppress(OSError):
        return frozenset({0, os.geteuid(), home.stat().st_uid})
    return frozenset({0, os.geteuid()})


def _is_trusted(path: Path, users: frozenset[int]) -> bool:
    """Tell whether the folder, the socket and the listening process all belong to trusted users."""
    try:
        folder, found = path.parent.stat(), path.lstat()
        if not stat.S_ISSOCK(found.st_mode) or folder.st_mode & _WRITABLE_BY_OTHERS:
            return False
        if not {folder.st_uid, found.st_uid} <= users:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(LOOK_S)
            one.connect(str(path))
            return _listener(one) in {None, *users}
    except OSError:
        return False


def _listener(one: socket.socket) -> int | None:
    """Return the user of the listening process, or None if the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    told = one.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[1])
