"""Checks the globs of rules: what a star may stand for, and that hostile ones take no time."""

import itertools
import re
import time

import pytest

from perdure.domain.tools.globs import is_match


@pytest.mark.parametrize(
    ("glob", "text"),
    [
        ("", ""),
        ("*", ""),
        ("**", ""),
        ("*.py", "tool.py"),
        ("*.py", ".py"),
        ("a*c", "ac"),
        ("a*c", "abbbc"),
        ("a*b*c", "a-b-b-c"),
        ("/srv/*/notes", "/srv/ada/notes"),
        ("/srv/**", "/srv/"),
        ("/srv/**", "/srv/a/b/c"),
        ("**/secret/**", "/srv/a/secret/b"),
        ("src/***.py", "src/a/b.py"),
        ("?", "é"),
        ("git ?*", "git status"),
        ("[a]", "[a]"),
        ("a.c", "a.c"),
        ("line\n*", "line\nnext"),
    ],
)
def test_a_glob_matches(glob: str, text: str) -> None:
    assert is_match(glob, text)


@pytest.mark.parametrize(
    ("glob", "text"),
    [
        ("", "a"),
        ("a", ""),
        ("*", "a/b"),
        ("?", "/"),
        ("?", ""),
        ("*.py", "tools/tool.py"),
        ("/srv/*/notes", "/srv/a/b/notes"),
        ("/srv/**", "/srv"),
        ("notes", "my notes"),
        ("notes", "notes of mine"),
        ("a.c", "abc"),
        ("[a]", "a"),
        ("a*b", "ab "),
        ("A", "a"),
    ],
)
def test_a_glob_does_not_match(glob: str, text: str) -> None:
    assert not is_match(glob, text)


def test_it_agrees_with_regular_expressions_on_all_short_texts() -> None:
    texts = ["".join(each) for size in range(5) for each in itertools.product("ab/", repeat=size)]
    for size in range(4):
        for each in itertools.product(["a", "*", "**", "?", "/"], repeat=size):
            glob = "".join(each)
            if "***" in glob:
                continue
            pattern = re.compile(
                "".join({"*": "[^/]*", "**": ".*", "?": "[^/]"}.get(sign, sign) for sign in each)
            )
            for text in texts:
                if glob.count("*") == 2 and "**" in glob and "**" not in each:
                    continue  # two single stars side by side read as one double star
                assert is_match(glob, text) is bool(pattern.fullmatch(text)), (glob, text)


@pytest.mark.parametrize(
    ("glob", "piece"),
    [("*a" * 40 + "b", "a"), ("**a" * 40 + "b", "a"), ("*" * 200 + "b", "a"), ("?*" * 40, "a")],
)
def test_the_time_grows_linearly_with_a_hostile_text(glob: str, piece: str) -> None:
    def took_s(length: int) -> float:
        text = f"{piece * length}/"
        tries = []
        for _ in range(3):
            begun = time.thread_time()
            is_match(glob, text)
            tries.append(time.thread_time() - begun)
        return min(tries)

    # Eight times the text takes about eight times as long. A glob that tries the stars in all ways
    # would not end.
    assert took_s(8 * 400) < 30 * took_s(400) + 0.01


def test_many_stars_cost_no_more_than_both_lengths_together() -> None:
    begun = time.thread_time()

    assert not is_match("*a" * 100 + "b", "a" * 200_000)

    assert time.thread_time() - begun < 1
