"""However a text is cut, the same of it is thought, and nothing else of it is lost."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.agents.chat.thoughts import ThoughtScanner

CASES = {
    # What the model wrote, and what of it people are told.
    "<think>hm</think>Blue.": "Blue.",
    "<think>\nhm\n</think>\n\nBlue.\n": "Blue.\n",
    "\n <think>hm</think> Blue.": "Blue.",
    "<thinking>hm</thinking>Blue.": "Blue.",
    "<THINK>hm</Think>Blue.": "Blue.",
    "<think></think>\n\nBlue.": "Blue.",
    "<think>a</think>\n<think>b</think>Blue.": "Blue.",
    "<think>if a < b </thinking> <think> then</think>Blue.": "Blue.",
    "</think>\n\nBlue.": "Blue.",
    "Blue.": "Blue.",
    "  Blue.": "  Blue.",
    "<thinker>Blue.": "<thinker>Blue.",
    "<thin": "<thin",
    "<think>hm</think><thin": "<thin",
    "<": "<",
    " \n ": " \n ",
    "": "",
    "The tag <think>opens</think> it.": "The tag <think>opens</think> it.",
    "```\n<think>hm</think>\n```": "```\n<think>hm</think>\n```",
    "`<think>` opens a thought.": "`<think>` opens a thought.",
    "<think>hm</think>Write <think>x</think>.": "Write <think>x</think>.",
    "hm, let me see\n</think>\n\nBlue.": "hm, let me see\n</think>\n\nBlue.",
    "<think>hm, and it never": "",
    "<think>hm</think>": "",
    "<think>hm</think>  \n": "",
    "<think>hm</think><think>": "",
    "<think>": "<think>",
    "</think>\n": "</think>",
}
TAGS = ("<think>", "</think>", "<thinking>", "</thinking>", "THINK", "<thi", "nk>", "</", "<", ">")
OTHERS = ("\n", "  ", "a", "word ", "```", "\N{KELVIN SIGN}", "\u0130")
pieces = st.lists(st.sampled_from((*TAGS, *OTHERS)), max_size=12)


def scanned(texts: list[str], *, is_finished: bool = True) -> str:
    scanner = ThoughtScanner()
    return "".join(map(scanner.feed, texts)) + scanner.rest(is_finished=is_finished)


def expected(text: str, *, is_finished: bool) -> str:
    """The same rules over a whole text, in the plainest way."""
    rest, first = text, ""
    while tag := re.match(r"\s*<(/?)(thinking|think)>", rest, re.IGNORECASE | re.ASCII):
        is_first = rest is text
        rest = rest[tag.end() :]
        first = tag[0].strip() if is_first else ""
        if not tag[1]:
            end = re.search(f"</{tag[2]}>", rest, re.IGNORECASE | re.ASCII)
            if end is None:
                return first if is_finished and not rest.strip() else ""
            rest, first = rest[end.end() :], ""
    if rest is text:
        return text
    if not rest.strip():
        return first if is_finished else ""
    return rest.lstrip()


@pytest.mark.parametrize(("written", "told"), CASES.items())
def test_what_is_told_of_an_answer_with_thoughts(written: str, told: str) -> None:
    assert scanned([written]) == told
    assert scanned(list(written)) == told
    assert expected(written, is_finished=True) == told


@given(words=pieces, at=st.lists(st.integers(0, 200), max_size=8), is_finished=st.booleans())
@settings(max_examples=300, deadline=None)
@example(words=["<think>", "</", "a"], at=[9], is_finished=True)
def test_where_a_text_is_cut_makes_no_difference(
    words: list[str], at: list[int], *, is_finished: bool
) -> None:
    text = "".join(words)
    borders = sorted({0, len(text), *(place % (len(text) + 1) for place in at)})
    parts = [text[a:b] for a, b in pairwise(borders)]

    told = expected(text, is_finished=is_finished)

    assert scanned([text], is_finished=is_finished) == told
    assert scanned(parts, is_finished=is_finished) == told
    assert scanned(list(text), is_finished=is_finished) == told


def test_an_answer_that_was_cut_at_a_tag_says_nothing() -> None:
    assert scanned(["<think>"], is_finished=False) == ""
    assert scanned(["<thi"], is_finished=False) == "<thi"


@pytest.mark.parametrize("unit", [" ", "<", "a", "</", "<think>", "</think", "<think></think>"])
@pytest.mark.parametrize("opening", ["", "<think>", " "])
def test_the_time_over_a_text_is_linear(opening: str, unit: str) -> None:
    def seconds(count: int) -> float:
        scanner = ThoughtScanner()
        began = time.process_time()
        for piece in (opening, *[unit] * count):
            scanner.feed(piece)
        scanner.rest(is_finished=True)
        return time.process_time() - began

    few = min(seconds(5_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(3)) < 10 * few + 0.05
