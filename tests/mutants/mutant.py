"""Defines a mutant: one deliberate bug, the promise that it breaks, and the tests that find it.

A mutant replaces one piece of text inside one function, class or constant. The text must stand
there exactly once, so that a mutant never changes another place than the one it was written for.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = Path("src/perdure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """Describes one deliberate bug. `file` is relative to `src/perdure`, `symbol` is dotted."""

    name: str
    promise: str
    bug: str
    file: str
    symbol: str
    old: str
    new: str
    killed_by: tuple[str, ...]
    hangs: bool = False

    @property
    def room(self) -> str:
        """Return the room of the architecture whose code is changed."""
        return self.file.partition("/")[0]

    def applied(self, source: str) -> str:
        """Return the source with the bug in it. Raises `ValueError` where it does not fit."""
        lines = source.splitlines(keepends=True)
        first, last = _extent(source, self.symbol)
        before, inside, after = lines[:first], lines[first:last], lines[last:]
        text = "".join(inside)
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: the old text stands {found} times in {self.symbol} of {self.file}, "
                "and must stand there once"
            )
        return "".join([*before, text.replace(self.old, self.new), *after])


def _extent(source: str, symbol: str) -> tuple[int, int]:
    """Return the lines of a symbol: the index of its first, and of the first after it."""
    scope: list[ast.stmt] = ast.parse(source).body
    found: ast.stmt | None = None
    for name in symbol.split("."):
        found = next((node for node in scope if name in _names(node)), None)
        if found is None:
            raise ValueError(f"there is no {symbol}")
        scope = getattr(found, "body", [])
    assert found is not None
    return found.lineno - 1, found.end_lineno or found.lineno


def _names(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
