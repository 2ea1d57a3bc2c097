"""Checks the files of the page: the vendored ones are as they were released, and what is loaded
before anything is asked for is small."""

import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Final

import perdure.web
from perdure.web.pages import load

STATIC: Final = Path(perdure.web.__file__).with_name("static")
ROW: Final = re.compile(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", re.MULTILINE)
IMPORT: Final = re.compile(
    r"""^(?:import|export) [^'"]*?from '(\./|\.\./)([^']+)';""", re.MULTILINE
)
FIRST_BYTES_MAX: Final = 200_000


def test_vendored_files_are_the_released_ones() -> None:
    vendor = STATIC / "vendor"
    named = dict(ROW.findall((vendor / "README.md").read_text()))
    kept = {
        str(each.relative_to(vendor))
        for each in vendor.rglob("*")
        if each.is_file() and each.name not in {"README.md", "LICENSE"}
    }
    assert named.keys() == kept
    for name, digest in named.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def first_loaded() -> set[str]:
    """Return the files that a browser fetches before the page asks for anything."""
    html = load()["index.html"].body.decode()
    found = {"index.html", *re.findall(r'(?:href|src)="static/([^"]+)"', html)}
    waiting = {name for name in found if name.endswith("js")}
    while waiting:
        name = waiting.pop()
        text = load()[name].body.decode()
        for up, path in IMPORT.findall(text):
            other = normpath(str(PurePosixPath(name).parent / (up + path)))
            if other not in found:
                found.add(other)
                waiting.add(other)
    return found


def test_little_is_loaded_before_anything_is_asked_for() -> None:
    files = first_loaded()
    assert {"chat.js", "vendor/htm-preact.standalone.mjs", "blocks/text.js"} <= files
    sizes = {name: len(load()[name].body) for name in files}
    assert sum(sizes.values()) < FIRST_BYTES_MAX, sizes


WORDS: Final = re.compile(r"""\bt\('((?:[^'\\]|\\.)+)'""")


def test_every_word_that_the_page_wants_translated_is_in_each_table() -> None:
    wanted = {
        word
        for path in STATIC.rglob("*.js")
        if "vendor" not in path.parts
        for word in WORDS.findall(path.read_text("utf-8"))
    }
    assert len(wanted) > 100
    for path in (STATIC / "languages").glob("*.json"):
        table = json.loads(path.read_bytes())
        assert wanted - table.keys() == set(), path.name
        # What braces name is the same in both.
        for english, other in table.items():
            assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", other))
