"""Finds the process that is the node of a home, whether it answers or not.

On SQLite it is the process that holds the lock beside the database; the kernel releases the lock
however the process ends. `server.json` is only a hint where to ask: it outlives a killed node, and
its process id may then belong to another program. On PostgreSQL nodes share the store and there is
no lock: the node of a home is the one that answers at the hint's address. If it is silent, its
command line tells it from another program.
"""

import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from perdure.app.config.environment import DATABASE, LOG_FILE, SERVER_FILE
from perdure.app.config.toml_errors import ConfigError


class ServerFile(msgspec.Struct, frozen=True):
    """Holds what a node writes about itself. `socket` is where the command line reaches it,
    `public` is the address for people."""

    pid: int
    port: int
    url: str
    socket: str = ""
    public: str = ""


def hint(home: Path) -> ServerFile | None:
    """Return what the node that started last wrote, or None if there is nothing usable."""
    try:
        return msgspec.json.decode((home / SERVER_FILE).read_bytes(), type=ServerFile)
    except (OSError, msgspec.MsgspecError):
        return None


def silent_node(home: Path, environ: Mapping[str, str]) -> int | None:
    """Return the process id of a node that exists but did not answer. Returns None if there is
    none, and 0 if its id is unknown."""
    lock = lock_of(home)
    holder = lock_holder(lock)
    if holder is not None:
        return None if _is_verb(holder, lock) else holder
    found = hint(home)
    is_there = found is not None and _is_serving(found.pid) and _is_shared(home, environ)
    return found.pid if found is not None and is_there else None


def lock_of(home: Path) -> Path:
    """Return the file beside a SQLite database that its node holds locked."""
    return home / f"{DATABASE}.lock"


def lock_holder(lock: Path) -> int | None:
    """Return the process id of the holder of the lock. Returns None if nobody holds it, and 0 if
    the file does not say who."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock, so that two processes that look at the same time do not take each other for
        # the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).strip()
        return int(text) if text.isdigit() else 0
    else:
        return None
    finally:
        os.close(descriptor)


def drain_by_signal(pid: int, lock: Path) -> bool:
    """Ask the holder of the lock by a signal to drain, if it cannot be asked over HTTP. Returns
    False if it was not asked, because it may not be a node or we may not signal it."""
    if not _is_node(pid, lock):
        return False
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError:
        return False
    return True


def _is_node(pid: int, lock: Path) -> bool:
    """Tell whether a process is a node of this home. A process id that was written in another
    container may be another program here, and a command of the command line ends soon by itself."""
    if not is_alive(pid):
        return False
    return not _is_visible(pid) or (_has_open_here(pid, lock) and is_serve(_words(pid)))


def is_alive(pid: int) -> bool:
    """Tell whether a process still runs. A zombie does not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[:1] != ["Z"]


def _is_verb(pid: int, lock: Path) -> bool:
    """Tell whether the holder is a command of the command line that has opened the store for a
    moment."""
    return _is_visible(pid) and _has_open(pid, lock) and not is_serve(_words(pid))


def _is_serving(pid: int) -> bool:
    """Tell whether a process runs `perdure serve`. Where its command line is not visible, any
    living process counts."""
    if not is_alive(pid) or not _is_visible(pid):
        return is_alive(pid)
    return is_serve(_words(pid))


def is_serve(words: Sequence[bytes]) -> bool:
    """Tell whether a command line is `perdure serve`, by its program and its verb alone. The folder
    of the program and its other arguments may have any name."""
    match _arguments_of_perdure(words):
        case [b"--home", _, *rest]:  # global options may come before the verb
            return is_serve([b"perdure", *rest])
        case [option, *rest] if option.startswith(b"-"):
            return is_serve([b"perdure", *rest])
        case [verb, *_]:
            return verb == b"serve"
        case _:
            return False


def _arguments_of_perdure(words: Sequence[bytes]) -> Sequence[bytes]:
    """Return what follows `perdure`, `python …/perdure` or `python -m perdure`. Returns nothing for
    another program."""
    name = _name_of(words[0]) if words else b""
    if name == b"perdure":
        return words[1:]
    match _without_options(words[1:]) if name.startswith((b"python", b"pypy")) else []:
        case [b"-m", b"perdure", *arguments]:
            return arguments
        case [script, *arguments] if _name_of(script) == b"perdure":
            return arguments
        case _:
            return []


def _without_options(words: Sequence[bytes]) -> Sequence[bytes]:
    """Remove the interpreter's options before its module or script."""
    while words and words[0].startswith(b"-") and words[0] not in (b"-m", b"-c"):
        words = words[2 if words[0] in (b"-X", b"-W") else 1 :]
    return words


def _name_of(program: bytes) -> bytes:
    return program.rpartition(b"/")[2]


def _is_shared(home: Path, environ: Mapping[str, str]) -> bool:
    """Tell whether the home's store is a PostgreSQL database."""
    from perdure.app.config import loading as config  # noqa: PLC0415 - only where a node is silent

    try:
        return not config.load(home, environ).store.is_sqlite
    except ConfigError:
        return False


def _is_visible(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()


def _has_open_here(pid: int, lock: Path) -> bool:
    """Tell whether the process has the home's lock open, or its log, which PostgreSQL nodes have
    too."""
    return _has_open(pid, lock) or _has_open(pid, lock.parent / "logs" / LOG_FILE)


def _has_open(pid: int, file: Path) -> bool:
    try:
        opened = Path(f"/proc/{pid}/fd").iterdir()
        return any(each.exists() and each.samefile(file) for each in opened)
    except OSError:
        return False


def _words(pid: int) -> list[bytes]:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
