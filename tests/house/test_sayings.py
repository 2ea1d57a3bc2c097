"""Checks that the gateway's own texts are there in every language that it speaks."""

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from perdure.domain.sayings import german
from perdure.domain.sayings.saying import (
    ReaderLanguage,
    in_language,
    in_lines,
    in_one_line,
    language_of,
    worded,
)

SOURCE = Path(__file__).resolve().parents[2] / "src" / "perdure"
# What has the same form in every language: fields and signs.
SAME = "{first} {second}"


def forms() -> Iterator[str]:
    """Yield the English forms of all sayings in the source."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "from perdure.domain.sayings.saying import" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            is_said = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "worded"
            if is_said and isinstance(node, ast.Call):
                (form,) = node.args
                assert isinstance(form, ast.Constant), f"{path}:{node.lineno}: write the form here"
                yield str(form.value)


def fields_of(form: str) -> list[tuple[str, str, str]]:
    """Return what is filled into a form, with how it is written."""
    return sorted(
        (name, spec or "", conversion or "")
        for _, name, spec, conversion in Formatter().parse(form)
        if name is not None
    )


def has_words(form: str) -> bool:
    return any(any(map(str.isalpha, text)) for text, *_ in Formatter().parse(form))


def test_every_saying_has_a_german_form_and_no_form_is_left_over() -> None:
    said = {form for form in forms() if has_words(form)}
    assert sorted(said - german.FORMS.keys()) == [], "these have no German form"
    assert sorted(german.FORMS.keys() - said) == [], "nobody says these any more"


def test_every_form_says_the_same_values() -> None:
    wrong = {
        form
        for form, other in german.FORMS.items()
        if set(fields_of(form)) != set(fields_of(other))
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("tag", "language"),
    [("de", "de"), ("de-AT", "de"), ("DE_ch", "de"), ("fr", "en"), ("", "en"), ("x" * 99, "en")],
)
def test_a_language_that_is_not_spoken_here_is_english(tag: str, language: str) -> None:
    assert language_of(tag) == language


def test_a_saying_is_put_into_a_language_with_all_sayings_in_it() -> None:
    told = in_one_line(worded("Stopped."), "", worded("{count} more messages wait.", count=3))
    assert told == "Stopped. 3 more messages wait."
    assert in_language(told, ReaderLanguage.GERMAN) == "Angehalten. 3 weitere Nachrichten warten."
    assert type(in_language(told, ReaderLanguage.ENGLISH)) is str
    assert in_language("Stopped.", ReaderLanguage.GERMAN) == "Stopped.", "an agent's words stay"


def test_what_people_wrote_is_never_taken_for_a_form() -> None:
    told = in_lines(worded("There is no agent {name!r}. {offered}", name="{0.x}", offered="{y}"))
    assert "{0.x}" in in_language(told, ReaderLanguage.GERMAN)
