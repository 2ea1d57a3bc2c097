"""Finds what commands must not change in the repositories where people work.

What git runs by itself stays as it is: the hooks and the configuration of a repository at the top
of a root are mounted read-only, because people run git there later, without a sandbox. They are
looked for only while no command runs. A command that runs could swap them for links between the
look and the mount, and get what is outside mounted; once they are mounted, it cannot move them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.ports.system.sandbox import Mount


def git_guards(roots: Sequence[str]) -> list[Mount]:
    """Return what keeps the repositories at the top of the roots from being given new hooks or
    another configuration."""
    return [mount for root in roots for mount in _guard(Path(root, ".git"), roots)]


def _guard(git: Path, roots: Sequence[str]) -> Iterator[Mount]:
    """Yield what is mounted for one repository."""
    if git.is_file():
        # The file names the repository; it must not name another one later.
        yield from _read_only(git, roots)
    if not (git / "HEAD").is_file():
        return
    if not git.is_symlink():
        # What is mounted cannot be renamed, so no other folder takes its place.
        yield Mount(path=str(git), is_writable=True)
    hooks = git / "hooks"
    if not hooks.is_symlink() and not hooks.exists():
        hooks.mkdir()
    for path in (hooks, git / "config", git / "config.worktree"):
        yield from _read_only(path, roots)


def _read_only(path: Path, roots: Sequence[str]) -> Iterator[Mount]:
    """Yield a path read-only, wherever its links lead. What is outside of the roots cannot be
    written anyway, and is not mounted at all."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return
    if any(real.is_relative_to(root) and real != Path(root) for root in roots):
        yield Mount(path=str(real))
