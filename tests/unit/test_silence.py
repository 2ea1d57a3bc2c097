"""Checks what counts as an answer of nothing."""

import pytest

from perdure.domain.content.silence import is_silent, may_become_silent
from perdure.domain.people.places import is_woken


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("[SILENT]", True),
        (" [SILENT]\n", True),
        ("[silent]", False),
        ("[SILENT] then", False),
        ("SILENT", False),
        ("", False),
        ("[SILENT][SILENT]", False),
    ],
)
def test_only_the_exact_word_is_silence(text: str, *, is_so: bool) -> None:
    assert is_silent(text) is is_so


def test_a_growing_answer_is_held_while_it_may_become_silence() -> None:
    assert [may_become_silent(text) for text in ("[", "[SIL", "[SILENT]", "[S ", "Hi", "[x")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("Captain, please", True),
        ("o CAPTAIN!", True),
        ("captains", False),
        ("x" * 100_000 + " captain", False),
        ("a (b", True),
        ("a(b", False),
    ],
)
def test_a_word_wakes_as_a_whole_word_only(text: str, *, is_so: bool) -> None:
    assert is_woken(("captain", "(b"), text) is is_so
