"""Checks that the repository keeps its own house rules: it names no machine, and its rooms stay
small."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.turn.turn import State

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "perdure"
LINES_MAX = 450
FUNCTION_LINES_MAX = 60
# The beginning of a statement, and lines that may stand between its comment and the statement.
SQL = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH RECURSIVE) ")
BEGUN = re.compile(r"_?[A-Z_]+(: \S+)? = |    (_[A-Z]|\+|f?\")|\(")

# Written in pieces, so that this file passes its own test.
HOSTS = [
    "pypi" + ".org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "deb.debian" + ".org",
]
MACHINE_PATHS = ["/wo" + "rk/", "/ro" + "ot/"]

# A clause that catches whatever was not foreseen.
CATCHES_ALL = re.compile(r"^ *except( Exception( as \w+)?)?:", re.MULTILINE)

VAGUE_NAMES = {"utils", "common", "helpers", "core", "base", "manager"}


def tracked_files() -> list[Path]:
    """Return what git tracks or would track, so that a file is judged before it is committed."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def lines_naming(words: list[str]) -> Iterator[str]:
    pattern = re.compile("|".join(re.escape(word) for word in words))
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"


def test_the_listing_sees_this_repository() -> None:
    assert Path(__file__).resolve() in tracked_files()
    assert PACKAGE / "__init__.py" in modules()


def test_no_file_names_a_package_registry() -> None:
    assert list(lines_naming(HOSTS)) == []


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    assert list(lines_naming(MACHINE_PATHS)) == []


def test_every_module_name_says_what_is_inside() -> None:
    vague = [
        path.relative_to(PACKAGE)
        for path in modules()
        if VAGUE_NAMES & {part.removesuffix(".py") for part in path.relative_to(PACKAGE).parts}
    ]
    assert vague == []


def test_every_module_can_be_read_in_one_sitting() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    long = [
        f"{path.relative_to(PACKAGE)} has {count} lines"
        for path, count in lines.items()
        if count >= LINES_MAX
    ]
    assert not long, "\n".join(["split each by what it is about:", *long])


def test_every_function_can_be_seen_at_once() -> None:
    long = [
        f"{path.relative_to(PACKAGE)}: {each.name} has {length} lines"
        for path in modules()
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (each.end_lineno or each.lineno) - each.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def queries(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Return the statements of a module: each one's beginning, its line, and whether it has a name
    at the top of the module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {id(part) for each in tree.body if not hasattr(each, "body") for part in ast.walk(each)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Constant) and isinstance(text, str) and SQL.match(text):
            yield text.strip()[:40], node.lineno, id(node) in named


def test_every_query_has_a_name_and_says_what_it_is_for() -> None:
    bare = []
    for path in sorted((PACKAGE / "store" / "operations").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for text, number, is_named in queries(path):
            above = next(
                (line for line in reversed(lines[: number - 1]) if not BEGUN.match(line)), ""
            )
            if not is_named or not above.startswith("#"):
                bare.append(f"{path.relative_to(PACKAGE)}:{number}: {text}")
    assert bare == []


class _Writes(ast.NodeVisitor):
    """Finds the functions that ask a driver of the store to write."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._inside: list[str] = []

    def visit(self, node: ast.AST) -> None:
        is_scope = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        self._inside += [node.name] if is_scope else []  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("driver.write"):
            self.found.add(".".join(self._inside))
        self.generic_visit(node)
        del self._inside[len(self._inside) - is_scope :]


def test_only_ports_of_the_store_write() -> None:
    # A write from anywhere else would be missed by the tests that count writes and make them fail.
    writes = _Writes()
    for path in modules():
        if "testkit" not in path.parts:
            writes.visit(ast.parse(path.read_text(encoding="utf-8")))
    assert "StoredTurns.settle" in writes.found
    assert [name for name in writes.found if not name.startswith("Stored")] == []


def test_no_sql_spells_a_state_or_a_kind_of_a_turn() -> None:
    # Each word has one definition: a statement takes it from the enum.
    states = "|".join(State)
    kinds = "|".join({*TurnKind, *UpdateKind})
    # A part of the outbox also has a state, but none of its states is called like one of a turn.
    spelled = re.compile(
        rf"\bstate\s*(=|<>|IN|NOT IN)\s*\(?'({states})'"
        rf"|\bkind\s*(=|<>|IN|NOT IN)\s*\(?'({kinds})'"
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {each.group()}"
        for path in (PACKAGE / "store").rglob("*.py")
        for each in spelled.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_only_the_places_that_are_named_catch_everything() -> None:
    # Elsewhere a foreign exception is translated, and what nobody foresaw ends its task.
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rule = text.partition("- `except Exception` is used")[2].partition("\n- ")[0]
    catching = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if "testkit" not in path.parts and CATCHES_ALL.search(path.read_text(encoding="utf-8"))
    }
    assert catching == set(re.findall(r"`([a-z_/]+\.py)`", rule))


# Folders that hold more files than a reader keeps in mind, and the most that each may hold.
FULL_FOLDERS = {
    "agents/chat": 13,
}


def test_a_folder_holds_about_a_dozen_files() -> None:
    counted = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    )
    crowded = {
        folder: count for folder, count in counted.items() if count > FULL_FOLDERS.get(folder, 12)
    }
    assert crowded == {}
