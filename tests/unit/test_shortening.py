"""Checks that what a summariser reads fits, keeps both ends of what was cut, and is a valid
history."""

import pytest

from perdure.domain.prompt.prompt import (
    CallBlock,
    PromptMessage,
    ResultBlock,
    Role,
    TextBlock,
    assert_valid,
    tokens_of_messages,
    weave,
)
from perdure.domain.prompt.shortening import shortened


def conversation(turns: int, size: int) -> list[PromptMessage]:
    """Make turns with one tool call each, whose result is `size` characters long."""
    messages: list[PromptMessage] = []
    for n in range(turns):
        call = CallBlock(id=f"c{n}", name="look", arguments="{}")
        result = ResultBlock(call=f"c{n}", text=f"<{n}>" + "x" * size + f"</{n}>", is_error=False)
        messages += [
            PromptMessage(role=Role.USER, blocks=(TextBlock(f"question {n}"),)),
            PromptMessage(role=Role.ASSISTANT, blocks=(call,)),
            PromptMessage(role=Role.USER, blocks=(result,)),
            PromptMessage(role=Role.ASSISTANT, blocks=(TextBlock(f"answer {n}"),)),
        ]
    return messages


@pytest.mark.parametrize(("turns", "size"), [(1, 200_000), (20, 20_000), (2_000, 100), (5, 10)])
@pytest.mark.parametrize("tokens_max", [2_000, 20_000])
def test_a_shortened_history_fits_and_is_valid(turns: int, size: int, tokens_max: int) -> None:
    fitting = shortened(conversation(turns, size), tokens_max=tokens_max)
    final, newest = weave(
        None, [*fitting, PromptMessage(role=Role.USER, blocks=(TextBlock("now"),))]
    )

    assert tokens_of_messages(fitting) <= tokens_max
    assert newest is not None
    assert_valid([*final, newest], begins=True)
    assert fitting[-1] == conversation(turns, size)[-1]


def test_what_fits_is_left_as_it_is() -> None:
    messages = conversation(5, 10)
    assert shortened(messages, tokens_max=20_000) == messages


def test_both_ends_of_a_long_result_are_kept() -> None:
    (_, _, result, _) = shortened(conversation(1, 200_000), tokens_max=5_000)
    (block,) = result.blocks
    assert isinstance(block, ResultBlock)
    assert block.text.startswith("<0>")
    assert block.text.endswith("</0>")
    assert "characters left out" in block.text
