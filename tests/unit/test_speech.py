"""Checks which words of an answer are read aloud."""

import pytest

from perdure.domain.content.speech import SPOKEN_MAX, words_to_speak

ANSWERS = [
    ("It rains.", "It rains."),
    ("# Tomorrow\n\nSun and **wind**", "Tomorrow.\nSun and wind."),
    ("Do this:\n\n1. open it\n2. `run` it\n", "Do this:\nopen it.\nrun it."),
    ("See [the map](https://example.com/x), or https://example.com/y now", "See the map, or now."),
    ("Look:\n\n```python\nprint(1)\n```\n\nThat is all", "Look:\nThat is all."),
    ("| a | b |\n|---|---|\n| 1 | 2 |", ""),
    ("~~no~~ yes ![a cat](https://example.com/cat.png)", "yes a cat."),
    ("> quoted\n\n---\n\n<div>x</div>", "quoted."),
    ("今天下雨。", "今天下雨。"),
    ("```\nonly code\n```", ""),
    ("🙂", ""),
    ("", ""),
]


@pytest.mark.parametrize(("answer", "words"), ANSWERS)
def test_code_tables_and_addresses_are_left_to_the_text(answer: str, words: str) -> None:
    assert " ".join(words_to_speak(answer).split(" ")) == words


def test_a_long_answer_ends_with_a_whole_sentence() -> None:
    words = words_to_speak("This goes on and on. " * 1_000)
    assert SPOKEN_MAX - 30 < len(words) <= SPOKEN_MAX
    assert words.endswith("on.")
    assert len(words_to_speak("word " * 2_000)) <= SPOKEN_MAX
    assert len(words_to_speak("w" * 9_000)) <= SPOKEN_MAX
