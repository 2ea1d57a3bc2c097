"""Turns the paths that a model gives into paths below a root, by arithmetic alone.

Nothing here asks the disk, except once when the roots are set up. What a path means is decided
while it is opened, component by component (`opening.py`): a check by name would hold only until
somebody renames something.
"""

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from perdure.domain.errors import Rejected

PATH_MAX: Final = 4_096
_NAME_BYTES: Final = 255
# Matches the names of our own temporary files. A crash may leave one behind.
_TEMPORARY: Final = re.compile(r"\.perdure-[0-9a-f]{1,64}\.tmp")
# The categories of characters that are no part of a name here: control codes, which hide what a
# name is, and half characters, which no message can carry.
_NO_NAME: Final = frozenset({"Cc", "Cs"})


class RootedPath(msgspec.Struct, frozen=True, kw_only=True):
    """Names a file or a folder by its root and the names below it. `is_main`: the root is the one
    where relative paths begin."""

    root: str
    parts: tuple[str, ...] = ()
    is_main: bool = True

    @property
    def below(self) -> str:
        """Return the path relative to its root."""
        return "/".join(self.parts) or "."

    @property
    def absolute(self) -> str:
        """Return the whole path."""
        return str(PurePosixPath(self.root, *self.parts))

    @property
    def shown(self) -> str:
        """Return the path as the model may give it in another call."""
        return self.below if self.is_main else self.absolute

    @property
    def name(self) -> str:
        """Return the last name, or an empty string for the root itself."""
        return self.parts[-1] if self.parts else ""

    def upward(self) -> "RootedPath":
        """Return the folder that holds it. The root itself has none."""
        assert self.parts
        return msgspec.structs.replace(self, parts=self.parts[:-1])

    def child(self, name: str) -> "RootedPath":
        """Return what is called `name` in this folder."""
        return msgspec.structs.replace(self, parts=(*self.parts, name))


class FileRoots:
    """Knows the folders that a tool may use. The first is where relative paths begin."""

    def __init__(self, roots: Sequence[Path], *, tool: str = "files") -> None:
        self._roots = tuple(_usable_root(root, tool) for root in roots)
        if not self._roots:
            raise Rejected(f"the tool {tool} has no folder; configure at least one")
        _refuse_overlaps(self._roots, tool)
        # A root may be configured through a link. Then both spellings of it are understood.
        self._spellings = [
            (PurePosixPath(spelling).parts, root)
            for given, root in zip(roots, self._roots, strict=True)
            for spelling in (root, given)
        ]

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the paths of the roots."""
        return tuple(str(root) for root in self._roots)

    def path(self, given: str) -> RootedPath:
        """Return what a model's path names. Raises `Rejected` if it leads out of the roots or can
        be no path."""
        _refuse_unusual(given)
        parts = tuple(part for part in given.split("/") if part not in ("", "."))
        _refuse_names(parts)
        if not given.startswith("/"):
            return RootedPath(root=str(self._roots[0]), parts=parts)
        for spelling, root in self._spellings:
            above = spelling[1:]
            if parts[: len(above)] == above:
                is_main = root == self._roots[0]
                return RootedPath(root=str(root), parts=parts[len(above) :], is_main=is_main)
        raise Rejected(
            f"{given} is outside of the folders that you may use; give a path relative to "
            f"{self._roots[0]}{self._others()}"
        )

    def _others(self) -> str:
        """Return the words for the other roots."""
        names = ", ".join(self.folders[1:])
        return f", or an absolute one in {names}" if names else ""


def is_temporary(name: str) -> bool:
    """Tell whether this is the name of a temporary file of ours."""
    return _TEMPORARY.fullmatch(name) is not None


def is_sayable(name: str) -> bool:
    """Tell whether a name can be told and given back: it is text without control characters."""
    return not any(unicodedata.category(char) in _NO_NAME for char in name)


def _refuse_unusual(given: str) -> None:
    """Raise `Rejected` for a text that can be no path here."""
    if len(given) > PATH_MAX:
        raise Rejected(f"the path has more than {PATH_MAX:,} characters; give a shorter one")
    if not is_sayable(given):
        raise Rejected(
            "the path holds a line break or another character that no name may have here; take "
            "the path from list"
        )


def _refuse_names(parts: Sequence[str]) -> None:
    """Raise `Rejected` for names that are no names of files of the person."""
    if ".." in parts:
        raise Rejected("a path must not hold ..; give it from the top of the folder")
    if parts[:1] == ("~",):
        raise Rejected("~ has no meaning here; give a path from the top of the folder")
    for part in parts:
        if is_temporary(part):
            raise Rejected(f"{part} is a temporary file of the gateway; choose another name")
        if len(part.encode()) > _NAME_BYTES:
            raise Rejected(f"a name has more than {_NAME_BYTES} bytes; choose a shorter one")


def _usable_root(root: Path, tool: str) -> Path:
    """Return a root without links in its path. Raises `Rejected` if it is none."""
    if not root.is_absolute():
        raise Rejected(f"the folder {root} of the tool {tool} is not absolute; give its whole path")
    try:
        found = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise Rejected(
            f"the folder {root} of the tool {tool} cannot be used ({error}); create it, or "
            "configure another one"
        ) from error
    if not found.is_dir():
        raise Rejected(f"{root} is not a folder; configure one for the tool {tool}")
    return found


def _refuse_overlaps(roots: Sequence[Path], tool: str) -> None:
    """Raise `Rejected` if one root is or holds another one: a rule for one would then miss what is
    done through the other."""
    for at, root in enumerate(roots):
        for other in roots[at + 1 :]:
            if root.is_relative_to(other) or other.is_relative_to(root):
                raise Rejected(
                    f"the folders {root} and {other} of the tool {tool} overlap; configure only "
                    "the outer one"
                )
