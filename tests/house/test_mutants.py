"""Checks that the deliberate bugs fit the source, the tests and the promises, and that their runner
tests its copy of the source and nothing else."""

import ast
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.mutants import run
from tests.mutants.mutant import PACKAGE, ROOT, Mutant

COUNT_MIN = 80
ROOMS = ("adapters", "agents", "app", "domain", "engine", "store", "tools", "web")
ROOM_MIN = 10
TESTS_MAX = 3
LEASES = "tests/unit/test_leases.py::test_what_was_taken_may_be_acted_on_for_a_while"
# `LEASES` fails on this mutant only if it imports the copy of the source.
BROKEN = Mutant(
    name="broken",
    promise="P21",
    bug="No lease lasts.",
    file="engine/foundation/leases.py",
    symbol="Lease.may_act",
    old="return is_same_term",
    new="return not is_same_term",
    killed_by=(LEASES,),
)


@cache
def named_tests(file: str) -> frozenset[str]:
    """Return the names of the tests in a file. A test of a class has the name of the class before
    its own."""
    path = ROOT / file
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    found = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for group in [node for node in body if isinstance(node, ast.ClassDef)]:
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        found |= {f"{group.name}::{n.name}" for n in group.body if isinstance(n, functions)}
    return frozenset(found)


@pytest.mark.parametrize("mutant", run.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_its_source_and_names_tests_that_exist(mutant: Mutant) -> None:
    source = (ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8")
    changed = mutant.applied(source)
    assert changed != source
    ast.parse(changed)
    assert 1 <= len(mutant.killed_by) <= TESTS_MAX
    for test in mutant.killed_by:
        file, _, name = test.partition("[")[0].partition("::")
        assert name in named_tests(file), f"there is no {test}"
    assert mutant.bug.endswith("."), "say in a sentence what breaks"


def test_names_are_unique_and_every_room_has_its_share() -> None:
    names = Counter(mutant.name for mutant in run.MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert len(names) >= COUNT_MIN
    rooms = Counter(mutant.room for mutant in run.MUTANTS)
    assert sorted(rooms) == list(ROOMS)
    # The room `app` puts the others together, and has few rules of its own.
    assert min(count for room, count in rooms.items() if room != "app") >= ROOM_MIN


def test_every_promise_that_is_kept_has_a_mutant_and_names_it() -> None:
    text = run.PROMISES.read_text(encoding="utf-8")
    states = re.findall(r"^## (P\d+): .*?^State: \*\*(.+?)\*\*", text, re.MULTILINE | re.DOTALL)
    kept = {promise for promise, state in states if state in ("kept", "partly")}
    assert {mutant.promise for mutant in run.MUTANTS} == kept
    assert run.documented(text) == text, "run `.venv/bin/python -m tests.mutants.run --write-docs`"


def test_the_runner_tests_its_copy_and_knows_what_survives(tmp_path: Path) -> None:
    tree = run.Tree(tmp_path / "copy")
    harmless = replace(BROKEN, new=BROKEN.old)
    unknown = replace(BROKEN, killed_by=("tests/unit/test_leases.py::test_nobody",))
    misplaced = replace(BROKEN, old="there is no such line")

    verdicts = [run.judge(tree, each).verdict for each in (BROKEN, harmless, unknown, misplaced)]

    expected = [run.Verdict.KILLED, run.Verdict.SURVIVED, run.Verdict.ERROR, run.Verdict.ERROR]
    assert verdicts == expected
    file = PACKAGE / BROKEN.file
    assert (tree.folder / file).read_text() == (ROOT / file).read_text(), "the bug was taken out"
