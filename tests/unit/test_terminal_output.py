"""Checks that stored text, which other people wrote, is printed without steering the terminal."""

import json

import pytest

from perdure.cli.exits import complain
from perdure.cli.printing import clean, print_json, short_line

OVERRIDES = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]


@pytest.mark.parametrize("override", OVERRIDES, ids=lambda each: f"U+{ord(each):04X}")
def test_what_turns_the_order_of_letters_around_is_shown(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"invoice{override}fdp.exe"
    shown = f"invoice<U+{ord(override):04X}>fdp.exe"
    assert clean(text) == short_line(text) == shown
    complain(text)
    assert capsys.readouterr().err == f"perdure: {shown}\n"


def test_json_says_the_same_without_steering(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"text": "".join([*OVERRIDES, "\x7f", "\x9b2J", "é", "\u05d0", "\u200f"])}
    print_json(document)
    printed = capsys.readouterr().out
    assert json.loads(printed) == document
    assert not any(steering in printed for steering in (*OVERRIDES, "\x7f", "\x9b"))
    assert "é" in printed


def test_letters_that_are_written_from_right_to_left_stay() -> None:
    assert clean("\u05e9\u05dc\u05d5\u05dd\u200f!") == "\u05e9\u05dc\u05d5\u05dd\u200f!"
