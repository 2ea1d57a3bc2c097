"""Finds what commands must not change in the repositories where people work.

What git runs by itself stays as it is: the hooks and the configuration of a repository at the top
of a root are mounted read-only, because people run git there later, without a sandbox. They are
looked for only while no command runs. A command that runs could swap them for links between the
look and the mount, and get what is outside mounted; once they are mounted, it cannot move them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from perdure.ports.system.sandbox import Mount

_KEPT: Final = ("hooks", "commondir", "config", "config.worktree")


def git_guards(roots: Sequence[str]) -> list[Mount]:
    """Return what keeps the repositories at the top of the roots from being given new hooks or
    another configuration."""
    return [mount for root in roots for mount in _guards(Path(root, ".git"), roots)]


def _guards(git: Path, roots: Sequence[str]) -> list[Mount]:
    """Return what is mounted for one repository: all of it read-only, if it cannot be looked at or
    prepared."""
    try:
        return [*_guard(git, roots)]
    except OSError:
        return [*_read_only(git, roots)]


def _guard(git: Path, roots: Sequence[str]) -> Iterator[Mount]:
    """Yield what is mounted for one repository."""
    kept = [git / name for name in _KEPT]
    if not _can_be_kept(git, kept):
        yield from _read_only(git, roots)
    else:
        if not git.is_symlink():
            # What is mounted cannot be renamed, so no other folder takes its place.
            yield Mount(path=str(git), is_writable=True)
        (git / "hooks").mkdir(exist_ok=True)
        if not (git / "commondir").exists():
            # Git takes its configuration from the folder that this file names. This one means the
            # same as no file, and nobody can write another one.
            (git / "commondir").write_text(".\n")
    for path in kept:
        yield from _read_only(path, roots)


def _can_be_kept(git: Path, kept: Sequence[Path]) -> bool:
    """Tell whether what git runs can be kept apart from the rest of a repository. What is missing
    could be put in its place, and a link replaced: nothing can be mounted over it. A file instead
    of the folder names the repository, and must not name another one later."""
    is_whole = (git / "HEAD").is_file() and (git / "config").is_file()
    return is_whole and not any(path.is_symlink() for path in kept)


def _read_only(path: Path, roots: Sequence[str]) -> Iterator[Mount]:
    """Yield a path read-only, wherever its links lead. What is outside of the roots cannot be
    written anyway, and is not mounted at all."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return
    if any(real.is_relative_to(root) and real != Path(root) for root in roots):
        yield Mount(path=str(real))
