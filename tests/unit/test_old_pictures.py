"""Checks which older pictures requests leave out: never more than are allowed are sent, the turn's
own always are, and what is left out changes in steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.ids import MediaId
from perdure.domain.journal.events import Attachment
from perdure.domain.prompt.old_pictures import (
    NOT_AGAIN,
    is_shown,
    old_pictures,
    picture_count,
    without_old,
)
from perdure.domain.prompt.prefix import Basis, break_between, written_basis
from perdure.domain.prompt.prompt import MediaBlock, PromptMessage, Role, TextBlock

MED = MediaId("med_1")


def picture(number: int, mime: str = "image/png") -> MediaBlock:
    return MediaBlock(
        attachment=Attachment(media=MediaId(f"med_{number}"), mime=mime, name=f"{number}.png")
    )


def message(*blocks: MediaBlock) -> PromptMessage:
    return PromptMessage(role=Role.USER, blocks=(TextBlock("look"), *blocks))


@pytest.mark.parametrize(
    ("attachment", "is_so"),
    [
        (Attachment(media=MED, mime="image/png"), True),
        (Attachment(media=MED, mime="image/heic", shown="digest"), True),
        (Attachment(media=MED, mime="image/heic"), False),
        (Attachment(media=MED, mime="image/png", problem="damaged"), False),
        (Attachment(media=MED, mime="text/plain", text="words"), False),
        (Attachment(url="https://example.org/a.png", mime="image/png"), False),
    ],
)
def test_only_pictures_that_models_see_are_counted(attachment: Attachment, *, is_so: bool) -> None:
    assert is_shown(attachment) is is_so
    assert picture_count([message(MediaBlock(attachment=attachment))]) == is_so


def test_the_oldest_become_words_and_nothing_else_changes() -> None:
    text = MediaBlock(attachment=Attachment(media=MED, mime="text/plain", text="words"))
    said = [message(picture(1), text), message(), message(picture(2), picture(3))]

    told = without_old(said, 2)

    assert without_old(said, 0) == said
    assert picture_count(told) == 1
    assert told[0].blocks[2] is text
    first, second = told[0].blocks[1], told[2].blocks[1]
    assert isinstance(first, MediaBlock)
    assert isinstance(second, MediaBlock)
    assert (first.attachment.name, first.attachment.problem) == ("1.png", NOT_AGAIN)
    assert second.attachment.problem == NOT_AGAIN
    assert told[2].blocks[2] == picture(3)


@given(st.integers(0, 60), st.lists(st.integers(0, 5), max_size=80))
def test_requests_have_few_pictures_and_change_rarely(kept: int, turns: list[int]) -> None:
    before, known, changes = 0, 0, 0
    for own in turns:
        old = old_pictures(before=before, own=own, kept=kept)
        assert 0 <= old <= before, "a turn's own pictures are shown"
        assert before - old + own <= max(kept, own)
        assert old >= known, "what was left out stays left out"
        changes += old != known
        # Once the turn is settled, its pictures are as old as the others.
        assert old == before or old_pictures(before=before + own, own=0, kept=kept) == old
        known, before = old, before + own
    room = max(kept // 2, 1)
    assert changes <= before // room + 1


@pytest.mark.parametrize(
    ("kept", "steps"), [(20, [21, 31, 41]), (5, [6, 8, 10]), (1, [2, 3, 4]), (0, [2, 3, 4])]
)
def test_with_one_picture_in_each_turn_the_steps_are_far_apart(kept: int, steps: list[int]) -> None:
    left = [old_pictures(before=turn - 1, own=1, kept=kept) for turn in range(1, 50)]
    changes = [turn for turn in range(2, 50) if left[turn - 1] != left[turn - 2]]

    assert changes[:3] == steps


def test_a_step_is_named_as_what_breaks_the_prefix() -> None:
    before, now = Basis(agent="main", old_pictures=10), Basis(agent="main", old_pictures=20)

    assert break_between(written_basis(before), before) == ""
    assert break_between(written_basis(before), now) == "pictures"
