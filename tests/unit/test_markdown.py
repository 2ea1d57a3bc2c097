"""Checks by examples how Markdown is read, shown, cut and healed."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.domain.markdown.heal import heal
from perdure.domain.markdown.html import to_html
from perdure.domain.markdown.parse import BlockKind, blocks_of, parse
from perdure.domain.markdown.plain import to_plain
from perdure.domain.markdown.split import split
from perdure.domain.markdown.tree import (
    Align,
    Break,
    Code,
    Emphasis,
    Heading,
    HorizontalRule,
    Image,
    InlineCode,
    Link,
    List,
    ListItem,
    Paragraph,
    Quote,
    RawHtml,
    Strong,
    Struck,
    Table,
    Text,
)
from perdure.domain.markdown.units import TextUnit, cut, size_of

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text(encoding="utf-8")
FAMILY = "👨‍👩‍👧‍👦"


def paragraph(text: str) -> Paragraph:
    return Paragraph((Text(text),))


def test_blocks_become_a_tree() -> None:
    source = "# One\n\ntwo\n\n```py x\nthree\n```\n\n> four\n\n---\n\n<div>\n\n    five\n"
    assert parse(source) == (
        Heading(1, (Text("One"),)),
        paragraph("two"),
        Code("py x", "three"),
        Quote((paragraph("four"),)),
        HorizontalRule(),
        RawHtml("<div>"),
        Code("", "five"),
    )


def test_inlines_become_a_tree() -> None:
    (block,) = parse("*a* **b** ~~c~~ `d` [e](http://f 'g') ![h *i*](j) \\* &lt;k>\nl  \nm")
    assert block == Paragraph(
        (
            Emphasis((Text("a"),)),
            Text(" "),
            Strong((Text("b"),)),
            Text(" "),
            Struck((Text("c"),)),
            Text(" "),
            InlineCode("d"),
            Text(" "),
            Link("http://f", "g", (Text("e"),)),
            Text(" "),
            Image("j", "h i"),
            Text(" * <k>"),
            Break(is_hard=False),
            Text("l"),
            Break(is_hard=True),
            Text("m"),
        )
    )


def test_lists_keep_their_numbers_and_boxes() -> None:
    assert parse("7. a\n8. b\n\n- [x] c\n- [ ] d\n- [y] e") == (
        List(
            is_ordered=True,
            start=7,
            items=(ListItem((paragraph("a"),)), ListItem((paragraph("b"),))),
        ),
        List(
            is_ordered=False,
            start=1,
            items=(
                ListItem((paragraph("c"),), is_done=True),
                ListItem((paragraph("d"),), is_done=False),
                ListItem((paragraph("[y] e"),)),
            ),
        ),
    )


def test_a_table_keeps_what_has_no_column() -> None:
    (table,) = parse("| a | b |\n|:-:|--:|\n| 1 | 2 | 3 | 4 |\n| `x \\| y` |")
    assert table == Table(
        header=((Text("a"),), (Text("b"),)),
        rows=(((Text("1"),), (Text("2"), Text(" | 3 | 4"))), ((InlineCode("x | y"),), ())),
        aligns=(Align.CENTER, Align.RIGHT),
    )


def test_links_and_images_do_not_nest() -> None:
    (block,) = parse("[a <http://b> ![c](d)](e)")
    assert block == Paragraph((Link("e", "", (Text("a http://b c"),)),))


def test_a_definition_is_shown_unless_something_refers_to_it() -> None:
    used, unused = "[a]\n\n[a]: http://b", "[a]: http://b"
    assert parse(used) == (Paragraph((Link("http://b", "", (Text("a"),)),)),)
    assert to_plain(parse(unused)) == "[a]: http://b"


def test_html_within_a_line_is_text() -> None:
    assert parse("<b>x</b> <!channel>") == (paragraph("<b>x</b> <!channel>"),)


def test_slices_say_where_blocks_stand() -> None:
    slices = blocks_of("a\nb\n\n- c\n\n  d\n- e\n\n[f]: g\n```\nh\n```")
    assert [(s.kind, s.start, s.end, s.items) for s in slices] == [
        (BlockKind.PARAGRAPH, 0, 2, ()),
        (BlockKind.LIST, 3, 8, (3, 6)),
        (BlockKind.DEFINITION, 8, 9, ()),
        (BlockKind.FENCE, 9, 12, ()),
    ]


@pytest.mark.parametrize("mark", ["> ", "- ", "1. "])
def test_what_is_too_deep_is_still_there(mark: str) -> None:
    blocks = parse(mark * 500 + "the bottom\n\nand after")
    assert "the bottom" in to_plain(blocks)
    assert "and after" in to_plain(blocks)
    assert to_html(blocks).count("the bottom") == 1


def test_emphasis_may_nest_as_deep_as_it_likes() -> None:
    blocks = parse("*a " * 3000 + "b*" * 3000)
    assert to_plain(blocks).count("a") == 3000
    assert to_html(blocks).count("<em>") < 50


HOSTILE: dict[str, str] = {
    "brackets": "[" * 16_000,
    "brackets and words": "[a " * 5_000,
    "closed brackets": "[" * 8_000 + "]" * 8_000,
    "images": "![" * 8_000,
    "links": "[a](" * 4_000,
    "references": "[a][" * 4_000,
    "quotes": ">" * 16_000,
    "spaced quotes": "> " * 8_000,
    "stars": "*" * 16_000,
    "stars and words": "*a " * 5_000,
    "stars in words": "a*" * 8_000,
    "backticks": "`" * 16_000,
    "growing backticks": "".join("`" * n + " " for n in range(180)),
    "tags": "<a " * 5_000,
    "comments": "<!--" * 4_000,
    "escapes": "\\*" * 8_000,
    "pipes": "|" * 16_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("use", [parse, heal, lambda text: split(text, size=len, limit=4096)])
def test_hostile_text_costs_time_in_its_length(use: Callable[[str], object], name: str) -> None:
    # Four times the text may take eight times as long, to allow for noise; quadratic time would be
    # sixteen times.

    def seconds(text: str) -> float:
        def once() -> float:
            start = time.process_time()
            use(text)
            return time.process_time() - start

        return min(once() for _ in range(2))

    text = HOSTILE[name]
    quarter = seconds(text[: len(text) // 4])
    assert seconds(text) < max(8 * quarter, 0.1)


@pytest.mark.parametrize("char", "[>*")
def test_a_hundred_thousand_marks_are_read_within_a_second(char: str) -> None:
    start = time.process_time()
    parse(char * 100_000)
    assert time.process_time() - start < 1


def test_the_parser_is_loaded_when_something_is_parsed() -> None:
    script = (
        "import sys\n"
        "from perdure.domain.markdown import heal, html, parse, plain, split, units\n"
        "assert 'markdown_it' not in sys.modules\n"
        "parse.parse('a')\n"
        "assert 'markdown_it' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_plain_text_reads_well() -> None:
    source = (
        "# Title\n\nSee [the *docs*](http://d) or <http://e>, ~~not~~ ![pic](f.png).\n\n"
        "- one\n  - [x] two\n\n    still two\n9. nine\n10. ten\n\n"
        "> quoted\n>\n> ```py\n> x = 1\n> ```\n\n"
        "| a | wide |\n|---|-----:|\n| 日本 | 1 |\n\n---\n\n<p>raw</p>"
    )
    assert to_plain(parse(source)) == (
        "Title\n\nSee the docs (http://d) or http://e, ~~not~~ pic (f.png).\n\n"
        "- one\n  - [x] two\n\n    still two\n\n9.  nine\n10. ten\n\n"
        "> quoted\n>\n>     x = 1\n\n"
        "a     wide\n----  ----\n日本     1\n\n---\n\n<p>raw</p>"
    )


def test_html_is_what_matrix_allows() -> None:
    source = (
        "## T\n\n**a** *b* ~~c~~ `<d>`\ne\n\n```c++ x\n<f>\n```\n\n> g\n\n3. h\n   - i\n\n"
        "| j |\n|---|\n| k |\n\n---\n\n<script>l</script>"
    )
    assert to_html(parse(source)) == (
        "<h2>T</h2><p><strong>a</strong> <em>b</em> <del>c</del> <code>&lt;d&gt;</code><br>e</p>"
        '<pre><code class="language-c++">&lt;f&gt;\n</code></pre><blockquote><p>g</p></blockquote>'
        '<ol start="3"><li>h<ul><li>i</li></ul></li></ol>'
        "<table><thead><tr><th>j</th></tr></thead><tbody><tr><td>k</td></tr></tbody></table>"
        "<hr><p>&lt;script&gt;l&lt;/script&gt;</p>"
    )


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[a](https://b/?c&d)", '<a href="https://b/?c&amp;d">a</a>'),
        ("[a](MAILTO:b@c)", '<a href="MAILTO:b@c">a</a>'),
        ("[a](matrix:r/b:c)", '<a href="matrix:r/b:c">a</a>'),
        ("[a](ftp://b)", "a (ftp://b)"),
        ("[a](../b)", "a (../b)"),
        ("[a](javascript:b)", "[a](javascript:b)"),
        ("[a]()", "a"),
        ('[a](http://b"onclick=c)', '<a href="http://b%22onclick=c">a</a>'),
        ("![a](http://b)", '<a href="http://b">a</a>'),
        ("![](http://b)", '<a href="http://b">http://b</a>'),
    ],
)
def test_a_link_leads_only_where_it_may(source: str, shown: str) -> None:
    assert to_html(parse(source)) == f"<p>{shown}</p>"


@pytest.mark.parametrize(
    ("text", "chars", "utf16", "size"),
    [("abc", 3, 3, 3), ("é", 1, 1, 2), ("日", 1, 1, 3), ("😀", 1, 2, 4), ("\ud800", 1, 1, 3)],
)
def test_units_count_as_platforms_do(text: str, chars: int, utf16: int, size: int) -> None:
    assert size_of(text, TextUnit.CHARS) == chars
    assert size_of(text, TextUnit.UTF16) == utf16
    assert size_of(text, TextUnit.BYTES) == size


@pytest.mark.parametrize(
    "character",
    ["e\u0301", FAMILY, "👩🏽‍🚀", "🇩🇪", "1️⃣", "🏴󠁧󠁢󠁷󠁬󠁳󠁿", "\u1112\u1161\u11ab", "\r\n", "क्\u200dष"],
)
def test_a_cut_leaves_characters_whole(character: str) -> None:
    text = f"{character}{character}"
    for limit in range(len(text)):
        whole = limit // len(character)
        assert cut(text, TextUnit.CHARS, limit) == character * whole


def test_a_cut_takes_all_that_fits() -> None:
    assert cut("😀😀", TextUnit.UTF16, 3) == "😀"
    assert cut("日本語", TextUnit.BYTES, 8) == "日本"
    assert cut("abc", TextUnit.BYTES, 3) == "abc"
    assert cut("abc", TextUnit.CHARS, 0) == ""


def pieces(text: str, limit: int) -> tuple[str, ...]:
    return split(text, size=len, limit=limit)


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert pieces("  a\r\n\r\nb \n", 100) == ("  a\r\n\r\nb \n",)


@pytest.mark.parametrize("text", ["", " ", "\n\t\n", "\u3000"])
def test_blank_text_is_no_piece(text: str) -> None:
    assert pieces(text, 100) == ()


def test_blocks_are_cut_apart_first() -> None:
    assert pieces("aaaa bbbb\n\ncccc\n\ndddd. eeee", 16) == ("aaaa bbbb\n\ncccc", "dddd. eeee")


def test_a_heading_goes_with_what_it_heads() -> None:
    text = "aaaa aaaa\n\n# Head\n\nbbbb bbbb"
    assert pieces(text, 20) == ("aaaa aaaa", "# Head\n\nbbbb bbbb")
    code = "# H\n\n```\n" + "1111\n" * 9 + "```"
    assert pieces(code, 32) == (
        "# H\n\n```\n" + "1111\n" * 4 + "```",
        "```\n" + "1111\n" * 5 + "```",
    )


def test_code_is_cut_between_lines_and_opened_again() -> None:
    code = "```py x=1\naaaa\nbbbb\n\ncccc\n```\n\nafter"
    assert pieces(code, 24) == (
        "```py x=1\naaaa\nbbbb\n```",
        "```py x=1\ncccc\n```",
        "after",
    )


def test_an_info_string_without_code_is_kept() -> None:
    assert pieces("~~~aaaa bbbb", 8) == ("~~~aaaa", "bbbb")


def test_a_line_of_code_that_is_cut_does_not_end_the_code() -> None:
    parts = pieces("```\n" + "a" * 20 + "```\n" + "b" * 20 + "\n```", 20)
    assert len(parts) > 2
    assert all(isinstance(block, Code) for part in parts for block in parse(part))
    assert "".join(to_plain(parse(part)).strip() for part in parts) == "a" * 20 + "```" + "b" * 20


def test_a_table_is_cut_between_rows_under_its_head() -> None:
    head = "| h | i |\n|---|---|\n"
    rows = [f"| {n} | {n} |" for n in range(1, 6)]
    assert pieces(head + "\n".join(rows), 40) == (
        head + "\n".join(rows[:2]),
        head + "\n".join(rows[2:4]),
        head + rows[4],
    )


def test_a_row_that_is_too_long_is_text() -> None:
    head = "| h | i |\n|---|---|"
    assert pieces(f"{head}\n| {'a ' * 20}| b |\n| c | d |", 40) == (
        head,
        "| " + "a " * 18 + "a",
        "a | b |",
        f"{head}\n| c | d |",
    )


def test_a_list_is_cut_between_items_then_inside_one() -> None:
    text = "1. aaaa\n2. bbbb bbbb bbbb bbbb\n   - cccc\n3. dddd"
    assert pieces(text, 20) == (
        "1. aaaa",
        "2. bbbb bbbb bbbb",
        "bbbb\n\n- cccc",
        "3. dddd",
    )


def test_a_fence_in_a_list_in_a_quote_is_a_fence_in_each_piece() -> None:
    text = "> - item\n>   ```py\n" + "".join(f">   line{n}\n" for n in range(9)) + ">   ```\n"
    assert pieces(text, 60) == (
        "> - item",
        "> ```py\n> line0\n> line1\n> line2\n> line3\n> line4\n> ```",
        "> ```py\n> line5\n> line6\n> line7\n> line8\n> ```",
    )


def test_a_paragraph_is_cut_at_a_sentence_then_at_a_word() -> None:
    assert pieces("One two three. Four five six seven.", 22) == (
        "One two three.",
        "Four five six seven.",
    )
    assert pieces("one two three four five", 12) == ("one two", "three four", "five")
    assert pieces("日本語の文。次の文です。終わり", 8) == ("日本語の文。", "次の文です。", "終わり")


def test_a_word_is_cut_between_characters() -> None:
    assert pieces(FAMILY * 3, 15) == (FAMILY * 2, FAMILY)


def test_a_cut_does_not_make_a_list_of_a_dash() -> None:
    assert pieces("aaaa bbbb - cccc dddd", 10) == ("aaaa", "bbbb -", "cccc dddd")


def test_marks_are_closed_and_opened_again() -> None:
    assert pieces("**aaaa bbbb cccc dddd**", 14) == ("**aaaa bbbb**", "**cccc dddd**")
    assert pieces("_a **bbbb cccc** dddd_", 13) == ("_a **bbbb**_", "_**cccc**_", "_dddd_")
    assert pieces("`aaaa bbbb`", 8) == ("`aaaa`", "`bbbb`")


def test_a_link_is_not_cut_if_it_need_not_be() -> None:
    text = "aaaa bbbb [cc dd](http://e) ffff gggg"
    assert pieces(text, 24) == ("aaaa bbbb", "[cc dd](http://e) ffff", "gggg")


def test_the_size_is_the_callers() -> None:
    def escaped(piece: str) -> int:
        return sum(6 if char == "&" else 1 for char in piece)

    assert split("&&&&&", size=escaped, limit=13) == ("&&", "&&", "&")
    assert split("a😀😀b", size=lambda p: size_of(p, TextUnit.UTF16), limit=3) == ("a😀", "😀b")


def test_sizes_that_make_no_sense_still_end() -> None:
    def moody(piece: str) -> int:
        return 10 if len(piece) % 3 == 0 or len(piece) > 30 else 1

    parts = split("word " * 40, size=moody, limit=5)
    assert "".join(parts).replace(" ", "") == "word" * 40
    assert all(moody(part) <= 5 for part in parts)


def test_frames_are_given_up_before_text_is() -> None:
    text = "> - ```python\n>   x\n>   ```"
    assert "".join("".join(pieces(text, 2)).split()) == "".join(text.split())


def test_no_room_for_one_character_is_an_error() -> None:
    with pytest.raises(ValueError, match="raise the limit"):
        split("&", size=lambda piece: 5 * len(piece), limit=4)
    with pytest.raises(ValueError, match="raise the limit"):
        pieces("- `a`", 0)


def test_a_long_answer_is_cut_with_few_looks() -> None:
    section = "## Head\n\nSome **bold** text. More.\n\n- a\n- b\n\n```py\nx = 1\n```\n\n"
    for text in (section * 400, "A sentence. " * 2_400, "x" * 30_000, "- item\n" * 4_000):
        looks = 0

        def look(piece: str) -> int:
            nonlocal looks
            looks += 1
            return len(piece)

        parts = split(text, size=look, limit=4096)
        assert len(parts) <= len(text) // 3500
        assert looks < 10 * len(parts)


@pytest.mark.parametrize(
    ("half", "shown"),
    [
        ("**bold", "**bold**"),
        ("**bold*", "**bold**"),
        ("**bold _and it", "**bold _and it_**"),
        ("~~gone", "~~gone~~"),
        ("`code", "`code`"),
        ("``a`b", "``a`b``"),
        ("``a`", "``a` ``"),
        ("**a `b", "**a `b`**"),
        ("text **", "text"),
        ("text `", "text"),
        ("**a\\", "**a**"),
        ("# **Head", "# **Head**"),
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("```py\nx = 1\n``", "```py\nx = 1\n```"),
        ("text\n\n```py", "text"),
        ("~~~~\n```", "~~~~\n```\n~~~~"),
        ("- a\n  ```\n  b", "- a\n  ```\n  b\n  ```"),
        ("> ```\n> a", "> ```\n> a\n> ```"),
        ("1. ```\n   a", "1. ```\n   a\n   ```"),
        ("see [the docs](htt", "see the docs"),
        ("see ![a pic](http://e/x_(y", "see a pic"),
        ('see [the docs](http://e "Ti', "see the docs"),
        ("**see [the docs](htt", "**see the docs**"),
        ("text\n\n| a | b", "text"),
        ("text\n| a | b |\n|--", "text"),
        ("| a | b |\n|---|--", ""),
        ("a | b\n--", ""),
        ("| a | b |\n|---|---|", "| a | b |\n|---|---|"),
        ("| a | b |\n|---|---|\n| c", "| a | b |\n|---|---|"),
        ("| a | b |\n|---|---|\n| c | d |", "| a | b |\n|---|---|\n| c | d |"),
        ("text\n-", "text"),
        ("text\n\n- ", "text"),
        ("- a\n- ", "- a"),
        ("- a\n  - [ ", "- a"),
        ("- a\n- [x] ", "- a"),
        ("1. a\n2.", "1. a"),
        ("text\n##", "text"),
        ("> text\n> ", "> text"),
        ("> - ", ""),
    ],
)
def test_what_is_half_written_is_healed(half: str, shown: str) -> None:
    assert heal(half) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Two times 3 * 4 and 5*6, snake_case and __init__.",
        "An interval [0, 1) and an array[0].",
        "The year was\n1999.",
        'He **said "yes"**',
        "`` a` ``",
        "`a `",
        "# Head #",
        "Head\n====",
        "text\n\n---",
        "a | b\n--|--\nc | d",
        "```\n**a\n```",
        "<div>\n**a",
        "[a]: http://b",
        "[a](http://b) and [c] and <http://d_e>",
        TORTURE,
    ],
)
def test_what_is_finished_stays(text: str) -> None:
    assert heal(text + " \n\n") == text.rstrip()


def test_every_mention_of_the_torture_text_is_only_text() -> None:
    shown = to_html(parse(TORTURE))
    assert "&lt;!channel&gt;" in shown
    assert (
        re.findall(
            r"<(?!/?(?:p|h\d|pre|code|blockquote|[ou]l|li|t(?:able|head|body|r|h|d)|hr|br|em|strong|del|a)\b)",
            shown,
        )
        == []
    )
