"""Checks how titles are made from a model's answer, and the numbers that decide about
compaction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.ids import MessageId, TurnId
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import ERRANDS, TurnKind
from perdure.domain.prompt.compaction import back_off_ms, background
from perdure.domain.prompt.prompt import Note
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.errands import TITLE_MAX, clean_title, instruction


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A trip to Oslo", "A trip to Oslo"),
        ('"A trip to Oslo."', "A trip to Oslo"),
        ("**A trip**\n\nI chose this because", "A trip"),
        ("# A trip", "A trip"),
        ("Title: A trip.", "A trip"),
        ('Title: "A trip"', "A trip"),
        ("\n\n  „Reise“  \n", "Reise"),
        ("", ""),
        ("  \n ", ""),
        ('""', ""),
        ("旅行の計画", "旅行の計画"),
    ],
)
def test_an_answer_becomes_a_title(answer: str, title: str) -> None:
    assert clean_title(answer) == title


def test_a_long_title_is_cut_between_words() -> None:
    title = clean_title("word " * 50)

    assert title.endswith("word…")
    assert len(title) <= TITLE_MAX


@given(st.text(max_size=300))
def test_a_title_is_one_short_line(answer: str) -> None:
    title = clean_title(answer)

    assert len(title) <= TITLE_MAX
    assert len(title.splitlines()) <= 1
    assert title == title.strip()


@pytest.mark.parametrize("errand", ERRANDS)
def test_only_what_a_person_asked_for_is_in_their_words(errand: TurnKind) -> None:
    queued = TurnQueued(turn=TurnId("t"), message=MessageId("m"), text="", kind=errand)
    told = instruction(queued)

    assert errand.is_errand
    assert (told is None) == (errand is TurnKind.BACKGROUND)
    assert told is None or isinstance(told, Note)


@pytest.mark.parametrize("kind", sorted(set(TurnKind) - set(ERRANDS)))
def test_other_turns_are_no_errands(kind: TurnKind) -> None:
    queued = TurnQueued(turn=TurnId("t"), message=MessageId("m"), text="hi", kind=kind)

    assert not kind.is_errand
    assert instruction(queued) is None


@given(st.integers(1, 100))
def test_each_failure_makes_the_wait_longer_up_to_a_limit(failures: int) -> None:
    wait, longer = back_off_ms(failures), back_off_ms(failures + 1)

    assert 60_000 <= wait <= longer <= 6 * 3_600_000
    assert longer in (2 * wait, 6 * 3_600_000)


def test_a_summary_is_told_as_background() -> None:
    told = background("  They plan a trip. \n")

    assert told.startswith("<background>")
    assert told.endswith("They plan a trip.\n</background>")


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert 1 <= tokens_of(text) <= tokens_of(text + more)
    assert tokens_of(text + more) <= tokens_of(text) + tokens_of(more)


def test_ideographs_cost_more_than_letters() -> None:
    assert tokens_of("旅" * 100) > 2 * tokens_of("t" * 100)
