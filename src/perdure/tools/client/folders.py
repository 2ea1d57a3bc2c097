"""Finds the folders that an agent may use through the gateway: the one where its session works, and
those that are configured for it."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath


def folders_of(folder: str, roots: Sequence[Path]) -> tuple[Path, ...]:
    """Return the folders of a session, without those that lie in another one and those that are not
    there: the sandbox of the agent does not show these either."""
    found: dict[Path, Path] = {}
    for given in (Path(folder), *roots):
        if given.is_dir():
            found.setdefault(given.resolve(), given)
    return tuple(
        given
        for real, given in found.items()
        if not any(real != other and real.is_relative_to(other) for other in found)
    )


def whole_path(folder: str, path: str) -> str:
    """Return a path that an agent gives. It should be whole; if it is not, it begins where the
    session works."""
    return path if path.startswith("/") else str(PurePosixPath(folder, path))
