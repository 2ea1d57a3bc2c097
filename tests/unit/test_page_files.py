"""Checks the files of the page: the vendored ones are as they were released, and what is loaded
before anything is asked for is small."""

import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Final

import pytest

import perdure.web
from perdure.domain.sayings.saying import ReaderLanguage, in_language, worded
from perdure.web.pages import load

STATIC: Final = Path(perdure.web.__file__).with_name("static")
ROW: Final = re.compile(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", re.MULTILINE)
IMPORT: Final = re.compile(
    r"""^(?:import|export) [^'"]*?from '(\./|\.\./)([^']+)';""", re.MULTILINE
)
FIRST_BYTES_MAX: Final = 200_000
LINES_MAX: Final = 300


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
    assert {"chat.js", "vendor/htm-preact.standalone.mjs", "page.js"} <= files
    sizes = {name: len(load()[name].body) for name in files}
    sizes["words"] = max(path.stat().st_size for path in (STATIC / "languages").iterdir())
    assert sum(sizes.values()) < FIRST_BYTES_MAX, sizes


SCRIPTS: Final = [path for path in STATIC.rglob("*.js") if "vendor" not in path.parts]
WANTED: Final = re.compile(r"""\bt\('([a-z0-9_]+)'[,)]""")
ANY_WANTED: Final = re.compile(r"\bt\((?!key, values\))[^)]{0,60}")
NAMED: Final = re.compile(r"\{(\w+)\}")
LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
# Words that are the same in every language.
NAMES: Final = {"Perdure", "Ctrl K"}
SAID: Final = re.compile(r"""\b(aria-label|title|placeholder|alt|label)="([^"\0]+)\"""")
DRAWN: Final = "html`"


def test_what_the_page_begins_with_is_fetched_at_once() -> None:
    html = load()["index.html"].body.decode()
    named = re.findall(r'<link rel="modulepreload" href="static/([^"]+)">', html)
    assert sorted(named) == sorted(n for n in first_loaded() - {"chat.js"} if n.endswith("js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(STATIC)))
def test_each_script_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LINES_MAX


def tables() -> dict[str, dict[str, str | dict[str, str]]]:
    return {
        path.stem: json.loads(path.read_bytes()) for path in (STATIC / "languages").glob("*.json")
    }


def wordings(found: str | dict[str, str]) -> list[str]:
    return [found] if isinstance(found, str) else list(found.values())


def test_each_language_has_all_words_of_the_page_and_no_others() -> None:
    wanted = {key for path in SCRIPTS for key in WANTED.findall(path.read_text("utf-8"))}
    assert len(wanted) > 200
    assert {"en", "de"} <= tables().keys()
    for language, table in tables().items():
        assert table.keys() == wanted, language
        for key, found in table.items():
            assert all(text.strip() for text in wordings(found)), key
            if isinstance(found, dict):
                assert "other" in found, key


def test_no_language_forgets_what_is_filled_in() -> None:
    english = tables()["en"]
    for language, table in tables().items():
        for key, found in table.items():
            named = {name for text in wordings(english[key]) for name in NAMED.findall(text)}
            others = {name for text in wordings(found) for name in NAMED.findall(text)}
            assert others == named, f"{language} {key}"


def test_the_page_can_be_set_to_each_language_that_there_is() -> None:
    script = (STATIC / "language.js").read_text("utf-8")
    line = next(line for line in script.splitlines() if line.startswith("export const LANGUAGES"))
    assert set(re.findall(r"(\w+):", line)) == tables().keys()


def fixed_parts(script: str) -> list[str]:
    """Return what stands fixed in each template of a script. A NUL is where something is filled
    in."""
    found = []
    stack: list[tuple[str, list[str]]] = [("", [])]
    at, depths = 0, [0]
    while at < len(script):
        kind, parts = stack[-1]
        if kind:
            if script.startswith("${", at):
                parts.append("\0")
                stack.append(("", []))
                depths.append(0)
                at += 2
                continue
            if script[at] == "`":
                if kind == DRAWN:
                    found.append("".join(parts))
                stack.pop()
            else:
                parts.append(script[at])
        elif script.startswith("`", at):
            stack.append((DRAWN if script.startswith(DRAWN, max(0, at - 4)) else "`", []))
        elif script[at] == "}" and depths[-1] == 0 and len(stack) > 1:
            stack.pop()
            depths.pop()
        else:
            depths[-1] += {"{": 1, "}": -1}.get(script[at], 0)
        at += 1
    return found


# Comments, quoted strings and regular expressions, in which a sign of a template means nothing.
REGEX: Final = r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*"
PIECE: Final = re.compile(
    rf"^\s*//[^\n]*$|'(?:[^'\\\n]|\\.)*'|(?<=[(=:,|&!] ){REGEX}|(?<=\(){REGEX}", re.MULTILINE
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(STATIC)))
def test_no_component_says_anything_that_is_not_in_the_tables(path: Path) -> None:
    script = path.read_text("utf-8")
    unknown = [call for call in ANY_WANTED.findall(script) if not WANTED.match(call + ")")]
    assert unknown == [], "only fixed keys can be checked"
    for part in fixed_parts(PIECE.sub("''", script)):
        said = {text.strip() for text in re.split(r"<[^>]*>|\0", part)} - NAMES
        assert {text for text in said if LETTERS.search(text)} == set()
        assert SAID.findall(part) == []


def test_words_outside_of_the_tables_are_found() -> None:
    script = (
        """const A = html`<p title="Say it" class=${a ? 'x' : `y ${b}`}>Words ${t('key')}</p>`;"""
    )
    (part,) = fixed_parts(PIECE.sub("''", script))
    assert SAID.findall(part) == [("title", "Say it")]
    assert "Words" in part


def test_the_page_knows_what_the_gateway_says_when_it_asks_again() -> None:
    script = (STATIC / "rows.js").read_text("utf-8")
    for language in ReaderLanguage:
        assert f"'{in_language(worded('Asking again.'), language)}'" in script
