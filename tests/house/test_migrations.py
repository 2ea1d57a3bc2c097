"""Checks that a shipped migration never changes: existing databases were made by it.

`tests/golden/migrations.txt` keeps the checksum of each migration that was ever shipped. Lines are
added to it and never changed, and the version grows with them.
"""

import hashlib
import subprocess
from pathlib import Path

import perdure

ROOT = Path(__file__).resolve().parents[2]
MIGRATIONS = ROOT / "src" / "perdure" / "store" / "migrations"
KEPT = "tests/golden/migrations.txt"


def line_of(file: Path) -> str:
    return f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def kept_lines() -> list[str]:
    return (ROOT / KEPT).read_text("utf-8").splitlines()


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def test_shipped_migrations_are_what_they_were() -> None:
    shipped = [line_of(file) for file in sorted(MIGRATIONS.glob("*.sql"))]
    told = (
        f"a shipped migration never changes: write a new one instead. For a new one add its line "
        f"to the end of {KEPT}, and raise __version__"
    )
    assert shipped == kept_lines(), told


def test_the_list_of_shipped_migrations_only_grows() -> None:
    # Looks as far back as this clone's history goes.
    now = kept_lines()
    for commit in git("log", "--format=%H", "--", KEPT).split():
        listed = git("ls-tree", "--name-only", commit, "--", KEPT)
        then = git("show", f"{commit}:{KEPT}").splitlines() if listed else []
        assert now[: len(then)] == then, f"{KEPT} had other lines in {commit[:7]}"


def test_the_version_grows_with_the_schema() -> None:
    # An operator who reads "schema 12" in an error can conclude that version 0.12 opens it.
    newest = int(kept_lines()[-1].partition("_")[0])
    major, minor, _ = perdure.__version__.split(".")
    assert (int(major), int(minor)) == (0, newest)
