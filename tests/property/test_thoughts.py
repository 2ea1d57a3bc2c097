"""Checks that the same text counts as thought however an answer is cut, and that nothing else is
lost."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.agents.chat.answer.thoughts import ThoughtScanner

CASES = {
    # What the model wrote, and what of it people are shown.
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
    # Thoughts in the middle of an answer.
    "Hello <think>secret plan</think>there": "Hello there",
    "Hello <THINKING>hm</thinking> there": "Hello  there",
    "A<think>b</think>C<thinking>d</thinking>E": "ACE",
    "<think>a</think>B <think>c\n\nd</think>E": "B E",
    "<think>a</think>B.\n\n<think>c</think>\n\nD.": "B.\n\nD.",
    "A <think>b <think>c</think>D</think>": "A D</think>",
    "A <think>`b</think>C": "A C",
    "A <think>```\nb</think>C <think>d</think>": "A C ",
    "A <think foo=1>b</think>": "A <think foo=1>b</think>",
    "A < b <think>c</think>": "A < b ",
    # Thoughts that are never closed.
    "the <think> tag is used for\n\nthoughts": "the <think> tag is used for\n\nthoughts",
    "- <think>": "- <think>",
    "the <think> and </thi": "the <think> and </thi",
    "A.\n<think>hm, and it never": "A.\n",
    "A.\n\n  <think>hm</think> <think>never": "A.\n\n   ",
    "The tag is:\n<think>": "The tag is:\n<think>",
    # Thoughts on lines of their own.
    "A.\n<think>b</think>\nC.": "A.\nC.",
    "A.\n\n<think>b</think>\nC.": "A.\n\nC.",
    "A.\n<think>b</think>\n\n    C": "A.\n\n    C",
    "A.\n\n  <think>b</think>\n\n<think>c</think>\n\nD.": "A.\n\nD.",
    "A.\n<think>b</think> C.": "A.\n C.",
    "A.\n\n\n\nB.": "A.\n\n\n\nB.",
    # Tags within code.
    "```\n<think>hm</think>\n```": "```\n<think>hm</think>\n```",
    "`<think>` opens a thought.": "`<think>` opens a thought.",
    "Use `<think>` and `</think>`. <think>a</think>B": "Use `<think>` and `</think>`. B",
    "``a ` <think>b</think>`` <think>c</think>": "``a ` <think>b</think>`` ",
    "a ` <think>b</think>\n<think>c</think>": "a ` <think>b</think>\n<think>c</think>",
    "a ` <think>b</think>\n \n<think>c</think>D": "a ` <think>b</think>\n \nD",
    "a `\n```\n\n<think>b</think>": "a `\n```\n\n<think>b</think>",
    "A.\n   ~~~x`y\n\n<think>b</think>\n~~~ \n<think>c</think>D": (
        "A.\n   ~~~x`y\n\n<think>b</think>\n~~~ \nD"
    ),
    "````\n```\n<think>b</think>\n```` x\n<think>c</think>\n`````\n<think>d</think>": (
        "````\n```\n<think>b</think>\n```` x\n<think>c</think>\n`````\n"
    ),
    "```<think>```\n\n<think>b</think>C": "```<think>```\n\nC",
    "Run ```\n<think>b</think>\n```\n<think>c</think>D": "Run ```\n<think>b</think>\n```\nD",
    "A.\n    ```\n\n<think>b</think>C": "A.\n    ```\n\nC",
    "a ~~~ <think>b</think>C": "a ~~~ C",
    "<think>a</think>\n```\n<think>b</think>": "```\n<think>b</think>",
    "hm, let me see\n</think>\n\nBlue.": "hm, let me see\n</think>\n\nBlue.",
    "<think>hm, and it never": "",
    "<think>hm</think>": "",
    "<think>hm</think>  \n": "",
    "<think>hm</think><think>": "",
    "<think>": "<think>",
    "</think>\n": "</think>",
}
TAGS = ("<think>", "</think>", "<thinking>", "</thinking>", "THINK", "<thi", "nk>", "</", "<", ">")
OTHERS = ("\n", "\n\n", "  ", "a", "word ", "\N{KELVIN SIGN}", "\u0130")
MARKS = ("`", "``", "```", "\n```", "\n~~~\n", "~", "<think>a</think>", "\n<think>a</think>\n")
pieces = st.lists(st.sampled_from((*TAGS, *OTHERS, *MARKS)), max_size=14)


def scanned(texts: list[str], *, is_finished: bool = True) -> str:
    scanner = ThoughtScanner()
    return "".join(map(scanner.feed, texts)) + scanner.rest(is_finished=is_finished)


def expected(text: str, *, is_finished: bool) -> str:
    """Return what people are shown, by the same rules applied to the whole text in the simplest
    way: step by step, looking back at all that was shown and forward over all that is left."""
    told, rest, lone, has_tag = "", text, "", False
    while rest:
        line = told.rpartition("\n")[2]
        has_words, is_line_start = bool(told.strip()), not line.strip()
        tag = re.match("<(/?)(thinking|think)>", rest, re.IGNORECASE | re.ASCII)
        if tag is None or (tag[1] and has_words):
            step = code_at(rest, may_fence=line in ("", " ", "  ", "   ")) or rest[0]
            told, rest = told + step, rest[len(step) :]
            continue
        lone = tag[0] if has_words or not has_tag else ""
        has_tag = True
        told = told if has_words else ""
        end: re.Match[str] | None = tag
        if not tag[1]:
            end = re.search(f"</{tag[2]}>", rest, re.IGNORECASE | re.ASCII)
            if end is None and not is_line_start:
                return told + rest
            if end is None:
                return told + (lone if is_finished and rest.strip() == tag[0] else "")
            lone = ""
        assert end is not None
        behind = rest[end.end() :]
        rest = behind.lstrip() if is_line_start else behind
        if has_words and is_line_start:
            told = with_gap(told, behind[: len(behind) - len(rest)])
    return told if told.strip() or not has_tag else lone if is_finished else ""


def with_gap(told: str, behind: str) -> str:
    """Return the shown text with the white space behind a thought that began a line."""
    *_, indent = behind.split("\n")
    if indent == behind:
        return told + behind
    before = re.search(r"\n\s*\Z", told)
    assert before is not None
    newlines = min(2, max(before[0].count("\n"), behind.count("\n")))
    return told[: before.start()] + "\n" * newlines + indent


def code_at(text: str, *, may_fence: bool) -> str:
    """Return the code that begins here, with its marks, or an empty string if none does."""
    fence = re.match(r"(`{3,})[^`\n]*(\n|\Z)|(~{3,})[^\n]*(\n|\Z)", text)
    if fence and may_fence:
        mark = fence[1] or fence[3]
        closing = re.compile(rf"^ {{0,3}}{mark}{mark[0]}*[^\S\n]*$", re.MULTILINE)
        end = closing.search(text, fence.end())
        return text[: end.end()] if end else text
    ticks = re.match("`+", text)
    if ticks is None:
        return ""
    run = re.compile(f"(?<!`){ticks[0]}(?!`)").search(text, ticks.end())
    blank = re.search(r"\n\s*\n", text)
    other = re.search(rf"\n {{0,3}}(?!{ticks[0]}(?!`))(?=```|~~~)", text)
    border = min(found.end() if found else len(text) for found in (blank, other))
    return text[: run.end() if run and run.start() < border else border]


@pytest.mark.parametrize(("written", "told"), CASES.items())
def test_people_are_shown_an_answer_without_its_thoughts(written: str, told: str) -> None:
    assert scanned([written]) == told
    assert scanned(list(written)) == told
    assert expected(written, is_finished=True) == told


@given(words=pieces, at=st.lists(st.integers(0, 200), max_size=8), is_finished=st.booleans())
@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize(
    "text", ["Hello ", "a <b", "a </think", "`<thi", "```\n<think>x", "a\n  ~~~ <think>x</think>"]
)
def test_text_that_can_become_no_thought_is_told_at_once(text: str) -> None:
    assert ThoughtScanner().feed(text) == text


def test_a_thought_in_the_middle_is_known_while_it_lasts() -> None:
    scanner = ThoughtScanner()

    told = [(scanner.feed(text), scanner.is_inside) for text in ("Hello <thi", "nk>a", "</think>b")]

    assert told == [("Hello ", False), ("", True), ("b", False)]


def seconds(*parts: str) -> float:
    scanner = ThoughtScanner()
    began = time.process_time()
    for part in parts:
        scanner.feed(part)
    scanner.rest(is_finished=True)
    return time.process_time() - began


UNITS = (
    " ",
    "\n",
    "<",
    "a",
    "</",
    "`",
    "~",
    "` ",
    "\n~~~",
    "<think>",
    "</think",
    "<think></think>",
)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("opening", ["", "<think>", "a <think>", "a `"])
def test_the_time_over_a_text_in_pieces_is_linear(opening: str, unit: str) -> None:
    few, many = seconds(opening, *[unit] * 2_000), seconds(opening, *[unit] * 20_000)

    assert many < 20 * few + 0.05


@pytest.mark.parametrize("unit", ["<", "` ", "<think></think>", "a\n<think></think>"])
def test_the_time_over_a_text_in_one_piece_is_linear(unit: str) -> None:
    assert seconds("a " + unit * 50_000) < 20 * seconds("a " + unit * 5_000) + 0.05
