"""Tests questions, which people answer with buttons, and replies to what the bot has shown."""

from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

from perdure.domain.errors import Transient
from perdure.domain.ids import QuestionId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Press
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.adapter import Edit, Post, Receipt
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.contract.adapter_suite_showing import capabilities, needs, new_key, post

WORDS: Final = ("yes", "no")
# Longer than the label of a button on any platform, and alike in all that fits on one.
LONG: Final = "Yes, and do the same for every file in the folder that nobody has touched. " * 8
# What no adapter gives to a button, but a person's own client may send.
MALFORMED: Final = (
    "qst_",
    "qst_01h",
    "qst_01h:",
    "qst_01h:yes",
    "qst_01h:-1",
    "qst_01h:100",
    "qst_01h:00",
    "qst_01h:1.0",
    "qst_01h:٣",
    "qst_01h:0:1",
    "qst_:0",
    ":0",
    "trn_01h:0",
    "qst_a question:0",
    f"qst_{'0' * 40}:0",
)
_NUMBERS: Final = count(1)


def new_question() -> QuestionId:
    """Return the id of a question that nobody has asked yet. It is as long as an id may be."""
    return QuestionId(f"qst_{next(_NUMBERS):036}")


async def ask(
    case: AdapterCase,
    question: QuestionId | None,
    choices: tuple[str, ...] = WORDS,
    text: str = "Go on?",
) -> Receipt:
    """Show a question in private, and return its receipt. Skips the test if the platform cannot
    offer so many choices."""
    needs(case, (await capabilities(case)).choices_max >= len(choices), "buttons")
    asked = Post(
        key=new_key(),
        address=await case.private(),
        text=text,
        choices=choices,
        question=question,
    )
    return await case.platform.perform(asked)


async def amend(
    case: AdapterCase,
    shown: Receipt,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    question: QuestionId | None = None,
    is_plain: bool = False,
) -> None:
    """Edit a question of the bot in private."""
    edit = Edit(
        key=new_key(),
        address=await case.private(),
        receipt=shown.external_id,
        text=text,
        choices=choices,
        question=question,
        is_plain=is_plain,
    )
    assert await case.platform.perform(edit) == shown


def has_pressed(question: QuestionId, choice: int) -> Callable[[Arrival], bool]:
    """Return whether an arrival is the press of this choice."""
    return lambda arrival: arrival.press == Press(question=question, choice=choice)


class Asking:
    """Tests buttons that belong to a question of the gateway."""

    async def test_a_press_names_the_question_and_the_choice(self, case: AdapterCase) -> None:
        question = new_question()
        shown = await ask(case, question)
        async with case.hearing() as heard:
            await case.press(shown.external_id, 1)
            arrival = await heard.wait(has_pressed(question, 1), "the press")
        assert (arrival.kind, arrival.text, arrival.files) == (UpdateKind.MESSAGE, "", ())
        assert (arrival.sender.id, arrival.is_addressed) == (case.person, True)
        place = (await case.private()).place
        assert (arrival.place, arrival.place_kind) == (place, PlaceKind.PRIVATE)
        (envelope,) = heard.offered
        assert (envelope.press, envelope.external_id) == (arrival.press, arrival.external_id)

    async def test_a_press_changes_nothing_by_itself(self, case: AdapterCase) -> None:
        """Check that the adapter leaves the question as it is: the gateway edits it once the answer
        is stored."""
        question = new_question()
        shown = await ask(case, question)
        async with case.hearing() as heard:
            await case.press(shown.external_id, 0)
            await heard.wait(has_pressed(question, 0), "the press")
            await heard.named(await case.say("and the next"))
        assert await case.shown() == ["Go on?"]
        assert await case.buttons(shown.external_id) == list(WORDS)

    async def test_questions_with_the_same_words_are_told_apart(self, case: AdapterCase) -> None:
        first, second = new_question(), new_question()
        older, newer = await ask(case, first), await ask(case, second)
        async with case.hearing() as heard:
            await case.press(newer.external_id, 0)
            await heard.wait(has_pressed(second, 0), "the press under the second question")
            await case.press(older.external_id, 0)
            await heard.wait(has_pressed(first, 0), "the press under the first question")
        assert [each.press.question for each in heard.taken if each.press] == [second, first]
        assert len({each.external_id for each in heard.taken}) == 2

    async def test_a_press_that_comes_again_has_the_same_id(self, case: AdapterCase) -> None:
        needs(case, case.redelivers, "second delivery")
        question = new_question()
        shown = await ask(case, question)
        async with case.hearing() as heard:
            heard.failures = [Transient("the store is away")]
            await case.press(shown.external_id, 1)
            await heard.wait(has_pressed(question, 1), "the second offer")
        assert len(heard.offered) > 1
        assert len({each.external_id for each in heard.offered}) == 1

    @pytest.mark.parametrize("is_plain", [False, True], ids=["formatted", "plain"])
    async def test_an_edit_without_choices_removes_the_buttons(
        self, case: AdapterCase, *, is_plain: bool
    ) -> None:
        needs(case, (await capabilities(case)).can_edit, "edits")
        shown = await ask(case, new_question())
        assert await case.buttons(shown.external_id) == list(WORDS)
        # Twice, because an edit may be repeated after a crash.
        for _ in range(2):
            await amend(case, shown, "Go on?", is_plain=is_plain)
        assert await case.buttons(shown.external_id) == []
        assert len(await case.shown()) == 1

    async def test_an_edit_with_other_choices_replaces_the_buttons(self, case: AdapterCase) -> None:
        needs(case, (await capabilities(case)).can_edit, "edits")
        later = new_question()
        shown = await ask(case, new_question())
        await amend(case, shown, "Really?", choices=("really", "never", "later"), question=later)
        assert await case.buttons(shown.external_id) == ["really", "never", "later"]
        async with case.hearing() as heard:
            await case.press(shown.external_id, 2)
            await heard.wait(has_pressed(later, 2), "the press")

    async def test_long_choices_are_cut_and_still_told_apart(self, case: AdapterCase) -> None:
        can, question = await capabilities(case), new_question()
        needs(case, can.choices_max, "buttons")
        choices = tuple(f"{LONG}{number}" for number in range(can.choices_max))
        shown = await ask(case, question, choices)
        labels = await case.buttons(shown.external_id)
        assert len(labels) == len(choices)
        assert all(label and LONG.startswith(label) for label in labels if label not in choices)
        async with case.hearing() as heard:
            await case.press(shown.external_id, len(choices) - 1)
            await heard.wait(has_pressed(question, len(choices) - 1), "the press")

    @pytest.mark.parametrize("data", MALFORMED)
    async def test_a_malformed_press_holds_up_nothing(self, case: AdapterCase, data: str) -> None:
        shown = await ask(case, new_question())
        async with case.hearing() as heard:
            await case.forge(shown.external_id, data)
            await heard.named(await case.say("and the next"))
        assert [each.press for each in heard.offered if each.press] == []
        assert case.lost == 0

    async def test_a_word_is_never_taken_for_the_press_of_another_question(
        self, case: AdapterCase
    ) -> None:
        """Check that words on buttons, which may be an agent's, cannot answer a question."""
        word = f"{new_question()}:0"
        shown = await ask(case, None, (word,))
        async with case.hearing() as heard:
            await case.press(shown.external_id, 0)
            arrival = await heard.wait(lambda each: each.text == word, "the word")
        assert arrival.press is None


class NamingReplies:
    """Tests that a message names the one that it answers."""

    async def test_a_reply_names_the_receipt_of_what_it_answers(self, case: AdapterCase) -> None:
        await post(case, "one")
        shown = await post(case, "two")
        await post(case, "three")
        async with case.hearing() as heard:
            arrival = await heard.named(await case.reply(shown.external_id, "just so"))
        assert (arrival.reply_to, arrival.text) == (shown.external_id, "just so")
        assert [each.reply_to for each in heard.offered] == [shown.external_id]

    async def test_what_answers_no_message_names_none(self, case: AdapterCase) -> None:
        await post(case, "one")
        async with case.hearing() as heard:
            arrival = await heard.named(await case.say("by the way"))
        assert arrival.reply_to == ""
