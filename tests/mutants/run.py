"""Runs the mutants: `python -m tests.mutants.run [NAME ...]`, or `make mutants ONLY=NAME`.

Each deliberate bug is put into a copy of the source, never into the working tree, and the tests
that are named for it are run against that copy. They must fail. A bug that they do not find has
survived, and fails the run; so does an entry whose tests cannot be run, or fail without the bug.

Several workers share the list, each with a copy of its own. `--write-docs` runs nothing: it writes
the names of the mutants into docs/promises.md.
"""

import argparse
import importlib.util
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants import adapters, agents, domain, engine, store, tools, web
from tests.mutants.mutant import PACKAGE, ROOT, Mutant

MUTANTS: Final = (
    *store.MUTANTS,
    *engine.MUTANTS,
    *domain.MUTANTS,
    *adapters.MUTANTS,
    *web.MUTANTS,
    *agents.MUTANTS,
    *tools.MUTANTS,
)
PROMISES: Final = ROOT / "docs" / "promises.md"
FOUND: Final = "Deliberate bugs that its tests found: "

_WORKERS: Final = 3
_TIMEOUT_S: Final = 60
_ALL_TIMEOUT_S: Final = 600
# Folders that a copy does not get, because its tests do not need them: they hold half a gigabyte.
_LEFT_OUT: Final = shutil.ignore_patterns("node_modules", ".hypothesis")
# The same seeds each time: a mutant must not survive because another point was struck.
_OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--hypothesis-seed=0")
_SEED: Final = "1"


class Verdict(StrEnum):
    """Names what the tests found out about a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    ERROR = "ERROR"
    HUNG = "HUNG"


@dataclass(frozen=True, slots=True)
class Result:
    """Holds the verdict on one mutant, and what pytest printed."""

    mutant: Mutant
    verdict: Verdict
    took_s: float
    output: str

    @property
    def is_good(self) -> bool:
        """Return whether the tests did what the entry says."""
        return self.verdict is (Verdict.HUNG if self.mutant.hangs else Verdict.KILLED)


class Tree:
    """Holds a copy of source and tests, into which one bug at a time is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src", folder / "src")
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=_LEFT_OUT)
        shutil.copy2(ROOT / "pyproject.toml", folder)

    @contextmanager
    def with_bug(self, mutant: Mutant) -> Iterator[None]:
        """Put a bug into the copy, and take it out again."""
        path = self.folder / PACKAGE / mutant.file
        sound = path.read_text(encoding="utf-8")
        try:
            _write(path, mutant.applied(sound))
            yield
        finally:
            _write(path, sound)

    def pytest(self, tests: Iterable[str], *, timeout_s: float) -> tuple[int | None, str]:
        """Run tests against the copy. Returns pytest's exit code, or None if they hung."""
        command = [sys.executable, "-m", "pytest", *_OPTIONS, f"--timeout={timeout_s:.0f}", *tests]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        return process.returncode, output

    def _environment(self) -> dict[str, str]:
        """Return an environment in which the copy goes before the package that is installed."""
        return {**os.environ, "PYTHONPATH": str(self.folder / "src"), "PERDURE_SEED": _SEED}


def _write(path: Path, source: str) -> None:
    """Write a module and delete its compiled form: Python cannot tell two versions of one second
    apart."""
    path.write_text(source, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def judge(tree: Tree, mutant: Mutant, *, timeout_s: float = _TIMEOUT_S) -> Result:
    """Put a mutant into the tree and run its tests. Returns whether they have found it."""
    began = time.monotonic()
    try:
        with tree.with_bug(mutant):
            code, output = tree.pytest(mutant.killed_by, timeout_s=timeout_s)
    except ValueError as error:
        return Result(mutant, Verdict.ERROR, 0.0, str(error))
    verdicts = {None: Verdict.HUNG, 0: Verdict.SURVIVED, 1: Verdict.KILLED}
    verdict = verdicts.get(code, Verdict.ERROR)
    return Result(mutant, verdict, time.monotonic() - began, output)


def run(chosen: Sequence[Mutant]) -> list[Result]:
    """Judge mutants, several at a time, and print each result as soon as it is known."""
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="perdure-mutants-") as folder,
        ThreadPoolExecutor(_WORKERS) as workers,
    ):
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(min(_WORKERS, len(chosen))):
            trees.put(Tree(Path(folder) / str(number)))

        def judged(mutant: Mutant) -> Result:
            tree = trees.get()
            try:
                return judge(tree, mutant)
            finally:
                trees.put(tree)

        _insist_on_sound_tests(trees, chosen)
        for done in as_completed([workers.submit(judged, mutant) for mutant in chosen]):
            result = done.result()
            results.append(result)
            count = f"{len(results)}/{len(chosen)}"
            _say(f"{count:>7}  {result.verdict:8} {result.took_s:5.1f} s  {result.mutant.name}")
    return results


def _insist_on_sound_tests(trees: "queue.SimpleQueue[Tree]", chosen: Sequence[Mutant]) -> None:
    """Run all of the tests without a bug: a test that fails anyway would seem to find every bug."""
    began = time.monotonic()
    tests = sorted({test for mutant in chosen for test in mutant.killed_by})
    tree = trees.get()
    code, output = tree.pytest(tests, timeout_s=_ALL_TIMEOUT_S)
    trees.put(tree)
    if code != 0:
        _say(output)
        raise SystemExit("These tests must pass before a deliberate bug can mean anything.")
    _say(f"{len(tests)} tests pass without a bug ({time.monotonic() - began:.0f} s)")


def report(results: Sequence[Result], *, took_s: float) -> bool:
    """Print the counts, and every mutant that was not found. Returns whether all were found."""
    bad = [result for result in results if not result.is_good]
    for result in bad:
        _say(f"\n{result.verdict}: {result.mutant.name}: {result.mutant.bug}")
        _say("\n".join(f"  {line}" for line in result.output.splitlines()[-25:]))
        _say(f"  again: make mutants ONLY={result.mutant.name}")
    rooms = Counter(result.mutant.room for result in results)
    promises = Counter(result.mutant.promise for result in results)
    _say("\nby room:    " + ", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))
    by_number = sorted(promises.items(), key=lambda each: int(each[0][1:]))
    _say("by promise: " + ", ".join(f"{promise} {count}" for promise, count in by_number))
    _say(f"{len(results) - len(bad)} of {len(results)} found, in {took_s:.0f} s")
    return not bad


def documented(text: str) -> str:
    """Return docs/promises.md with the mutants of each promise in its section."""
    names: dict[str, list[str]] = {}
    for mutant in MUTANTS:
        names.setdefault(mutant.promise, []).append(mutant.name)
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(_documented_section(section, names) for section in sections)


def _documented_section(section: str, names: dict[str, list[str]]) -> str:
    """Return a section that ends with its line of mutants, where it has any."""
    heading = re.match(r"## (P\d+): ", section)
    found = names.get(heading[1], []) if heading else []
    plain = re.sub(rf"^{re.escape(FOUND)}.*\n\n?", "", section, flags=re.MULTILINE)
    if not found:
        return plain
    ending = "\n\n" if section.endswith("\n\n") else "\n"
    listed = ", ".join(f"`{name}`" for name in found)
    return f"{plain.rstrip()}\n\n{FOUND}{listed}.{ending}"


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the mutants that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Put deliberate bugs in, and see them found.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these alone")
    parser.add_argument("--write-docs", action="store_true", help="write docs/promises.md")
    asked = parser.parse_args()
    if asked.write_docs:
        PROMISES.write_text(documented(PROMISES.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"there is no mutant named {', '.join(unknown)}")
    began = time.monotonic()
    results = run([known[name] for name in asked.names] or MUTANTS)
    return 0 if report(results, took_s=time.monotonic() - began) else 1


if __name__ == "__main__":
    raise SystemExit(main())
