"""Checks that splitting and healing lose no text and show nothing broken, whatever is written.

Documents are made of random blocks. Text that pieces may repeat is written in its own letters (one
letter for the heads of tables, another for info strings), so that the rest can be compared letter
by letter.
"""

import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.domain.markdown.heal import heal
from perdure.domain.markdown.html import to_html
from perdure.domain.markdown.marks import closing_of
from perdure.domain.markdown.parse import BlockKind, blocks_of, parse, tail_of
from perdure.domain.markdown.plain import to_plain
from perdure.domain.markdown.split import split, stretches
from perdure.domain.markdown.units import TextUnit, border, cut, size_of

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text(encoding="utf-8")
HEAD, INFO = "ħ", "ł"
TAGS = re.compile(
    "p|h[1-6]|pre|code|blockquote|[uo]l|li|table|thead|tbody|t[rhd]|hr|br|em|strong|del|a"
)
VOID = {"hr", "br"}

WORDS = """alpha beta. **gamma** _delta_ `epsilon` [zeta](http://eta/_t) theta! 1984 iota&kappa
<lambda> über 日本語。 👨‍👩‍👧‍👦 café ~~mu~~ omicronpirhosigmatauupsilonphichipsiomega a_b x*y"""
MARKS = """** * _ ~~ ` `` ``` # | [a](b) [a]( ![ ] <b> <!-- \\ &amp; word -"""

words = st.sampled_from(WORDS.split())
phrases = st.lists(words, min_size=1, max_size=25).map(" ".join)
short_phrases = st.lists(words, min_size=1, max_size=3).map(" ".join)
code_lines = st.lists(
    st.sampled_from(["x = 1", "", "    return y", "| not | a table |", "- not a list", "z" * 70]),
    max_size=14,
)


@st.composite
def fences(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from(["```", "~~~~"]))
    lines = [mark + draw(st.sampled_from(["", INFO * 3])), *draw(code_lines), mark]
    return "\n".join(lines)


@st.composite
def tables(draw: st.DrawFn) -> str:
    columns = draw(st.integers(1, 3))
    rows = draw(st.lists(st.lists(short_phrases, min_size=columns, max_size=columns), max_size=8))
    lines = [[HEAD] * columns, ["---"] * columns, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def indented(text: str, mark: str) -> str:
    return mark + text.replace("\n", "\n" + " " * len(mark)).replace(" " * len(mark) + "\n", "\n")


@st.composite
def lists(draw: st.DrawFn, blocks: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(st.lists(blocks, min_size=1, max_size=2), min_size=1, max_size=4))
    start = draw(st.one_of(st.none(), st.integers(1, 99)))
    marks = [f"{start + n}. " if start else "- " for n in range(len(items))]
    return "\n".join(
        indented("\n\n".join(item), mark) for item, mark in zip(items, marks, strict=True)
    )


def quoted(blocks: Sequence[str]) -> str:
    return "\n".join(f"> {line}".rstrip() for line in "\n\n".join(blocks).split("\n"))


flat = st.one_of(phrases, fences(), tables(), short_phrases.map("## {}".format), st.just("---"))
nested = st.recursive(
    flat,
    lambda blocks: st.one_of(lists(blocks), st.lists(blocks, max_size=3).map(quoted)),
    max_leaves=6,
)
documents = st.lists(nested, min_size=1, max_size=5).map("\n\n".join)

# Any text, with the marks of Markdown more often than chance would give.
scraps = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(MARKS.split()),
        st.sampled_from(["\n", "\n\n", "\r\n", " ", "    ", "\t", "- ", "1. ", "> ", "- [x] "]),
        st.sampled_from(["| a | b |\n|---|---|\n", "| c | d |\n", "---\n", "===\n", "[a]: b\n"]),
        st.just("A sentence. "),
    ),
    max_size=40,
).map("".join)


def html_size(piece: str) -> int:
    return len(to_html(parse(piece)))


def escaped_size(piece: str) -> int:
    return sum(6 if char in "<>&*_`" else 1 for char in piece)


SIZES: dict[str, Callable[[str], int]] = {
    "chars": len,
    "utf16": lambda piece: size_of(piece, TextUnit.UTF16),
    "bytes": lambda piece: size_of(piece, TextUnit.BYTES),
    "html": html_size,
    "escaped": escaped_size,
}


def letters(text: str) -> str:
    """Return the text without its marks, and without what pieces may repeat."""
    return re.sub(rf"[\W_{HEAD}{INFO}]+", "", text)


def is_within(part: str, whole: str) -> bool:
    """Tell whether the letters of one text stand in the other, in order."""
    rest = iter(whole)
    return all(letter in rest for letter in part)


@pytest.mark.parametrize("unit", SIZES)
@given(text=documents, limit=st.one_of(st.integers(40, 200), st.just(4096)))
@settings(max_examples=40, deadline=None)
def test_pieces_are_the_text_and_fit(unit: str, text: str, limit: int) -> None:
    size = SIZES[unit]
    parts = split(text, size=size, limit=limit)
    assert letters("".join(parts)) == letters(text)
    assert all(part.strip() for part in parts)
    assert [part for part in parts if size(part) > limit] == []
    if size(text) <= limit:
        assert parts == (text,)


@given(text=documents, size=st.sampled_from(list(SIZES.values())))
@settings(max_examples=40, deadline=None)
def test_a_text_one_too_long_is_cut(text: str, size: Callable[[str], int]) -> None:
    limit = size(text) - 1
    if limit < 40:
        return
    parts = split(text, size=size, limit=limit)
    assert letters("".join(parts)) == letters(text)
    assert all(size(part) <= limit for part in parts)


@given(text=documents, limit=st.integers(90, 200))
@settings(max_examples=80, deadline=None)
def test_code_is_code_and_heads_are_there_in_every_piece(text: str, limit: int) -> None:
    parts = split(text, size=len, limit=limit)
    for part in parts:
        tail = tail_of(part)
        assert tail
        assert not tail.is_open or tail_of(text) == tail
        assert blocks_of(part + "\n\nafter")[-1].kind is BlockKind.PARAGRAPH
    assert "".join(parts).count(HEAD) >= text.count(HEAD)


@given(text=scraps, limit=st.integers(6, 120), size=st.sampled_from([len, escaped_size]))
@settings(max_examples=80, deadline=None)
def test_no_text_whatever_is_lost(text: str, limit: int, size: Callable[[str], int]) -> None:
    parts = split(text, size=size, limit=limit)
    assert is_within(letters(text), letters("".join(parts)))
    assert all(part.strip() and (size(part) <= limit or part == text) for part in parts)


@given(text=st.text(), unit=st.sampled_from(list(TextUnit)), limit=st.integers(0, 40))
def test_a_cut_is_the_longest_prefix_that_fits(text: str, unit: TextUnit, limit: int) -> None:
    prefix = cut(text, unit, limit)
    assert text.startswith(prefix)
    assert size_of(prefix, unit) <= limit
    longer = next((n for n in range(len(prefix) + 1, len(text) + 1) if border(text, n) == n), None)
    assert longer is None or size_of(text[:longer], unit) > limit


@given(text=scraps)
@settings(max_examples=80, deadline=None)
def test_healing_twice_is_healing_once(text: str) -> None:
    once = heal(text)
    assert heal(once) == once
    assert letters(text).startswith(letters(once))


@given(text=documents)
@settings(max_examples=100, deadline=None)
def test_a_finished_document_is_not_changed(text: str) -> None:
    assert heal(text + "\n\nThe end.") == text + "\n\nThe end."


@pytest.mark.parametrize("part", range(4))
def test_every_prefix_of_the_torture_text_can_be_shown(part: int) -> None:
    # Tries the prefixes of each section, with the section before it as context.
    sections = re.split(r"(?m)^(?=##? )", TORTURE)
    for before, section in list(zip(["", *sections], sections, strict=False))[part::4]:
        for end in range(len(section)):
            text = before + section[:end]
            shown = heal(text)
            assert heal(shown) == shown
            assert letters(text).startswith(letters(shown))
            tail = tail_of(shown)
            if tail and tail.kind in (BlockKind.PARAGRAPH, BlockKind.FENCE):
                assert not tail.is_open
                assert closing_of(tail.content) == "" or tail.kind is BlockKind.FENCE


@pytest.mark.parametrize("unit", SIZES)
@pytest.mark.parametrize("limit", [60, 200, 1000, 4096])
def test_the_torture_text_is_split_whole(unit: str, limit: int) -> None:
    parts = split(TORTURE, size=SIZES[unit], limit=limit)
    assert is_within(letters(TORTURE), letters("".join(parts)))
    assert all(SIZES[unit](part) <= limit for part in parts)
    # At the smallest limits, the frame of the widest fence alone does not fit.
    if limit >= 200:
        assert all(not (tail := tail_of(part)) or not tail.is_open for part in parts)


class Checked(HTMLParser):
    """Refuses HTML that is not well-formed, not allowed or not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert TAGS.fullmatch(tag)
        assert not (tag == "a" and "a" in self.open)
        for name, value in attrs:
            assert (tag, name) in {("a", "href"), ("code", "class"), ("ol", "start")}
            if name == "href":
                assert re.match(r"(https?|mailto|matrix):", value or "", re.IGNORECASE)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def check_html(text: str) -> None:
    checked = Checked()
    checked.feed(to_html(parse(text)))
    checked.close()
    assert checked.open == []


@given(text=st.one_of(scraps, documents))
@settings(max_examples=60, deadline=None)
def test_html_is_well_formed_and_allowed(text: str) -> None:
    check_html(text)


def test_the_torture_text_is_well_formed_and_allowed() -> None:
    check_html(TORTURE)


@given(text=documents)
@settings(max_examples=50, deadline=None)
def test_plain_text_has_every_word(text: str) -> None:
    shown = to_plain(parse(text))
    for word in re.findall(
        r"alpha|gamma|delta|epsilon|zeta|eta|theta|1984|日本語|omega|return", text
    ):
        assert word in shown
    assert letters(re.sub(r"```.*|~~~~.*", "", shown)).count("alpha") == text.count("alpha")


@given(text=st.one_of(documents, scraps), data=st.data(), least=st.sampled_from([1, 20, 200]))
@settings(deadline=None)
def test_what_stands_stays_whatever_follows(text: str, data: st.DataObject, least: int) -> None:
    *standing, _ = stretches(text[: data.draw(st.integers(0, len(text)))], least=least)

    assert list(stretches(text, least=least)[: len(standing)]) == standing


@given(text=st.one_of(documents, scraps), least=st.sampled_from([1, 20, 200]))
@settings(deadline=None)
def test_stretches_are_the_text(text: str, least: int) -> None:
    found = stretches(text, least=least)

    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(each for each in found[:-1])
