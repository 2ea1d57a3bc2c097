"""Checks what the demo agent repeats: the words without the sender's line, and what a sticker
is."""

import tracemalloc
from itertools import islice

import pytest

from perdure.agents.demo.questions import QuestionSoFar, hear, plan
from perdure.domain.content.stickers import Sticker
from perdure.domain.journal.events import Attachment
from perdure.domain.prompt.prompt import MediaBlock, PromptMessage, Role, TextBlock


@pytest.mark.parametrize(
    ("told", "question"),
    [
        ("[Ada (42)]\nhello", "hello"),
        ("[Forwarded from Bob]\n> hello", "[Forwarded from Bob]\n> hello"),
        ("[Ada (42)]\n[Forwarded from Bob]\n> hello", "[Forwarded from Bob]\n> hello"),
    ],
)
def test_the_senders_line_is_left_out_and_a_forwards_line_is_not(told: str, question: str) -> None:
    assert hear([PromptMessage(role=Role.USER, blocks=(TextBlock(told),))]).question == question


def test_a_sticker_is_said_as_any_model_is_told_of_it() -> None:
    cat = Attachment(name="sticker 🙂", sticker=Sticker(id="1", emoji="🙂", set_name="Cats"))
    heard = hear([PromptMessage(role=Role.USER, blocks=(MediaBlock(attachment=cat),))])
    assert heard.files == ["[sticker; emoji 🙂, set Cats]"]


def test_a_long_question_is_repeated_word_by_word() -> None:
    words = "word " * 400_000
    tracemalloc.start()
    try:
        answer = plan(QuestionSoFar(question=words, words_said=2))
        assert list(islice(answer.pieces(), 3)) == ['"word ', "word ", "word "]
        assert tracemalloc.get_traced_memory()[1] < 3 * len(words)
    finally:
        tracemalloc.stop()
