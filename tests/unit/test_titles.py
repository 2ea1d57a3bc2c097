"""Checks that a title is one line that can be shown anywhere."""

import pytest

from perdure.domain.turn.errands import clean_title, plain_line

HOSTILE = [
    "A\x1b[31mtrip\x07",
    "A\u202etrip",
    "A\u2066trip\u2069",
    "A\r\ntrip",
    "A\u2028trip",
    "A\x00trip\x9b",
    "A\u200ftrip",
    "A\ufefftrip",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_title_holds_no_control_characters(text: str) -> None:
    for title in (plain_line(text), clean_title(text)):
        assert title.isprintable()
        assert title.startswith("A")
    assert "trip" in plain_line(text)


def test_what_scripts_and_emoji_are_spelt_with_stays() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert plain_line(f"  {family}  \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 ") == (
        f"{family} \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )
    assert plain_line("\x07\u202e") == ""
