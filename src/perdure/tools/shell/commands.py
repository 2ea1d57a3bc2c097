"""Reads what a command is: its words, the folder where it works, and the program that it runs.

A command is a list of words, and no shell reads it. So `;`, `|` and `$HOME` are plain characters,
and what a person approves is what runs.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.tools.traits import digest_of
from perdure.tools.builtin.files.roots import FileRoots

WORDS_MAX: Final = 1_000
# Linux starts no program with a longer word, and none with many more in all.
WORD_CHARS: Final = 30_000
COMMAND_CHARS: Final = 200_000
INPUT_CHARS: Final = 1_000_000
# How many words of a command are looked at for files, and how many bytes of one file are read.
_OPERANDS_MAX: Final = 32
_OPERAND_BYTES: Final = 5_000_000
# Where programs of the system are, besides the search path of the gateway.
_USUAL_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a command, the whole path of the folder where it works, what it reads, and how long it
    may take."""

    argv: tuple[str, ...]
    folder: str
    given: bytes = b""
    timeout_s: float


class ShellFolders:
    """Knows where commands may work, and which programs they find: any, or only those in the roots
    and in `seen`, if a sandbox shows them nothing else."""

    def __init__(
        self, roots: Sequence[Path], *, search_path: str, seen: Sequence[str] = ()
    ) -> None:
        self._folders = FileRoots(roots, tool="shell")
        self.roots: tuple[str, ...] = self._folders.folders
        self._seen = [Path(each).resolve() for each in seen]
        self.search_path: str = self._safe_path(search_path)

    def folder(self, given: str) -> str:
        """Return the folder that a call names, without links in its path. Raises `Rejected`."""
        named = self._folders.path(given)
        try:
            found = Path(named.absolute).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise NotFound(f"cwd {named.shown} cannot be used ({why}); name another one") from error
        if not found.is_dir():
            raise Rejected(f"cwd {named.shown} is not a folder; name one")
        if not self.holds(found):
            raise Rejected(
                f"cwd {named.shown} is a link that leads out of the folders of this tool; "
                "name a folder inside of them"
            )
        return str(found)

    def holds(self, path: Path) -> bool:
        """Tell whether a path without links is inside of the roots."""
        return any(path.is_relative_to(root) for root in self.roots)

    def program(self, command: ShellCommand) -> Path:
        """Return the file that a command runs. Raises `NotFound` if there is none."""
        name = command.argv[0]
        if "/" in name:
            path = Path(command.folder, name)
            found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
        else:
            found = shutil.which(name, path=self.search_path)
        if found is None or not self._is_seen(Path(found).resolve()):
            hint = " (no shell reads the command: give each word by itself)" * (" " in name)
            raise NotFound(f"commands find no program {name[:200]!r}{hint}; name another one")
        return Path(found).resolve()

    def operands(self, command: ShellCommand) -> str:
        """Return a digest of the program and of the files that a command names. A script that has
        changed since a person approved it is not what they approved."""
        program = self.program(command)
        found = [f"{program}", *self._digest(program)]
        for word in command.argv[1 : _OPERANDS_MAX + 1]:
            for name in dict.fromkeys((word, word.partition("=")[2])):
                if name:
                    found += self._digest(Path(command.folder, name))
        return digest_of(*found)

    def _digest(self, path: Path) -> Iterator[str]:
        """Yield a digest of a file in the roots. What else there is belongs to the system."""
        try:
            real = path.resolve(strict=True)
            if not self.holds(real):
                return
            # It may have become something else by now, on which an open would wait.
            opened = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with os.fdopen(opened, "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    return
                start = hashlib.sha256(file.read(_OPERAND_BYTES)).hexdigest()
            is_long = found.st_size > _OPERAND_BYTES
            yield f"{real}:{start}:{found.st_size}:{found.st_mtime_ns if is_long else 0}"
        except (OSError, ValueError, RuntimeError):
            return

    def _safe_path(self, search_path: str) -> str:
        """Return a search path without folders that commands can write: a program put there would
        run under the name of another one."""
        given = [*search_path.split(os.pathsep), *_USUAL_PATH.split(os.pathsep)]
        entries = [(each, Path(each).resolve()) for each in given if each.startswith("/")]
        kept = [each for each, real in entries if not self.holds(real) and self._is_seen(real)]
        return os.pathsep.join(dict.fromkeys(kept))

    def _is_seen(self, real: Path) -> bool:
        """Tell whether commands see a path without links."""
        above = [*self._seen, *map(Path, self.roots)]
        return not self._seen or any(real.is_relative_to(each) for each in above)


def checked_words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command. Raises `Rejected` for words that no program can be given."""
    if not argv or not argv[0].strip():
        raise Rejected('run needs argv, such as ["git", "status"]; call again with it')
    if len(argv) > WORDS_MAX or sum(map(len, argv)) > COMMAND_CHARS:
        raise Rejected(
            f"the command is longer than {WORDS_MAX:,} words or {COMMAND_CHARS:,} characters; put "
            "long text into a file or into input"
        )
    if any(len(word) > WORD_CHARS for word in argv):
        raise Rejected(
            f"a word of the command is longer than {WORD_CHARS:,} characters; put it into a file "
            "or into input"
        )
    if any("\0" in word for word in argv):
        raise Rejected("a word of the command holds a zero byte; leave it out")
    return tuple(argv)
