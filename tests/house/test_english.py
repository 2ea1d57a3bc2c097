"""Keeps the code easy to enter: docstrings begin with a verb, and a public name has one meaning."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.docstrings import offences, verbs

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "perdure"
# Packages of one kind share the names of their common shape.
OF_ONE_KIND = {"adapters", "agents"}


def python_files() -> list[Path]:
    """Return the files whose docstrings are judged. Peers under `tests/peers` are not all ours."""
    folders = (ROOT / name for name in ("src", "tests", "bench", "scripts"))
    return sorted(
        path
        for folder in folders
        for path in folder.rglob("*.py")
        if "node_modules" not in path.parts
    )


def test_every_docstring_begins_with_a_verb() -> None:
    known = verbs()
    found = [offence for path in python_files() for offence in offences(path, known)]
    assert found == [], "write what is done or returned, or add a verb to tests/house/verbs.txt"


def public_names() -> dict[str, set[str]]:
    """Return the modules that define each public class, and each function imported by its name.

    A function that is only called through its module, such as `turn_rows.settle`, has the module's
    name beside it and may share its own."""
    defined: dict[str, set[str]] = defaultdict(set)
    imported: set[tuple[str, str]] = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported |= set(imports_of(tree))
        if OF_ONE_KIND.isdisjoint(path.parts):
            for name in names_of(tree):
                defined[name].add(module)
    return {
        name: homes if name[0].isupper() else {home for home in homes if (home, name) in imported}
        for name, homes in defined.items()
    }


def names_of(tree: ast.Module) -> Iterator[str]:
    """Yield the public classes, functions and type aliases that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            name = ast.unparse(node.target)
        else:
            continue
        if not name.startswith("_"):
            yield name


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that a module imports from another module of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, each.name) for each in node.names)


def test_a_public_name_is_used_for_one_thing() -> None:
    names = public_names()
    assert names["Ledger"] == {"perdure.engine.turns.ledger"}
    assert {name: sorted(homes) for name, homes in names.items() if len(homes) > 1} == {}


@pytest.mark.parametrize("text", ['"""Of one account."""', '"""What is left."""', '"""A turn."""'])
def test_a_riddle_is_found(tmp_path: Path, text: str) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(f'"""Holds a function."""\ndef left():\n    {text}\n')
    assert len(list(offences(sample, verbs()))) == 1
