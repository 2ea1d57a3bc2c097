"""Checks how Telegram shows Markdown: the text, and where its marks stand."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.telegram import payloads
from perdure.adapters.telegram.names import draft_number, is_private, message_of
from perdure.adapters.telegram.render import rendered, size
from perdure.adapters.telegram.rich import is_rich
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PartId
from perdure.domain.markdown.split import split
from perdure.ports.platform.adapter import React, Upload
from perdure.testkit.peers.telegram.bot_api_rules import keyboard_problem, text_problem

TORTURE = Path(__file__).parents[1] / "golden" / "torture.md"
HERE = Address(adapter="telegram", account="700", place="42")


def marks(text: str) -> list[tuple[str, str]]:
    """Return each mark with the words it stands on."""
    shown = rendered(text)
    units = shown.text.encode("utf-16-le")
    return [
        (mark.type, units[2 * mark.offset : 2 * (mark.offset + mark.length)].decode("utf-16-le"))
        for mark in shown.marks
    ]


def problem(text: str) -> str:
    shown = rendered(text)
    raw: Any = msgspec.json.decode(msgspec.json.encode(shown.marks))
    return text_problem(shown.text, raw, 10**9)


@pytest.mark.parametrize(
    ("text", "shown", "marked"),
    [
        ("plain", "plain", []),
        ("**bold** *it* ~~no~~", "bold it no", [
            ("bold", "bold"), ("italic", "it"), ("strikethrough", "no"),
        ]),
        ("**a *b* c**", "a b c", [("bold", "a b c"), ("italic", "b")]),
        ("**a `b` *c `d`***", "a b c d", [
            ("bold", "a "), ("code", "b"), ("bold", " c "), ("italic", "c "), ("code", "d"),
        ]),
        ("👩‍👩‍👧 **x** 🙂 `y`", "👩‍👩‍👧 x 🙂 y", [("bold", "x"), ("code", "y")]),
        ("# Title\n\ntext", "Title\n\ntext", [("bold", "Title")]),
        ("# A **B** C", "A B C", [("bold", "A B C")]),
        ("```python\nx = 1\n\ny\n```", "x = 1\n\ny", [("pre", "x = 1\n\ny")]),
        ("[a `b` c](https://e.org)", "a b c", [("text_link", "a b c")]),
        ("[mail](mailto:a@b.c)", "mail (mailto:a@b.c)", []),
        ("[him](tg://user?id=1)", "him (tg://user?id=1)", []),
        ("[x](javascript:alert)", "[x](javascript:alert)", []),
        ("![cat](https://e.org/c.png)", "cat", [("text_link", "cat")]),
        ("> a\n> b", "a\nb", [("blockquote", "a\nb")]),
        ("> a\n>\n> > b\n> > c", "a\n\n> b\n> c", [("blockquote", "a\n\n> b\n> c")]),
        ("- a\n- b\n  - c\n\n    d", "• a\n• b\n   • c\n      d", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("- [x] done\n- [ ] open", "• ☑ done\n• ☐ open", []),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("<b>x</b> & <script>", "<b>x</b> & <script>", []),
        ("<div>\nx\n</div>", "<div>\nx\n</div>", []),
        ("a  \nb\nc", "a\nb\nc", []),
    ],
)  # fmt: skip
def test_markdown_becomes_text_and_marks(
    text: str, shown: str, marked: list[tuple[str, str]]
) -> None:
    assert rendered(text).text == shown
    assert marks(text) == marked
    assert problem(text) == ""


def test_code_names_its_language_and_links_their_address() -> None:
    (pre,) = rendered("```rust ignore\nfn\n```").marks
    assert (pre.type, pre.language) == ("pre", "rust")
    (link,) = rendered("[a](https://e.org/?q=1&r=2)").marks
    assert link.url == "https://e.org/?q=1&r=2"
    encoded = msgspec.json.decode(msgspec.json.encode(link))
    assert set(encoded) == {"type", "offset", "length", "url"}


def test_code_inside_a_list_keeps_its_columns() -> None:
    text = "- item\n\n  ```\n  if x:\n      y\n  ```"
    assert marks(text) == [("pre", "if x:\n    y")]


def test_a_table_stands_in_columns() -> None:
    ((kind, table),) = marks("| a | b |\n|---|--:|\n| long cell | 1 |\n| c | 22 |")
    assert kind == "pre"
    assert "long cell" in table
    assert "22" in table


@pytest.mark.parametrize("name", ["everyone", "all", "here", "channel", "room", "Everyone"])
def test_nobody_is_addressed_as_a_group(name: str) -> None:
    shown = rendered(f"hey @{name}! [@{name}](x:@{name}) and `@{name}`").text
    assert shown.count(f"@{name}") == 1, "only as code"
    assert rendered(f"write to bob@{name}x.org").text == f"write to bob@{name}x.org"


def test_only_so_many_marks_and_links_before_looks() -> None:
    text = " ".join(["**b**"] * 150 + ["[l](https://e.org)"] * 60)
    shown = rendered(text)
    kinds = [mark.type for mark in shown.marks]
    assert (len(kinds), kinds.count("text_link")) == (100, 60)


def test_the_torture_text_has_no_mark_out_of_place() -> None:
    text = TORTURE.read_text()
    assert problem(text) == ""
    pieces = split(text, size=size, limit=400)
    assert all(size(piece) <= 400 for piece in pieces)
    assert [problem(piece) for piece in pieces if rendered(piece).text] == [""] * len(pieces)


PIECES = (
    "a", "🙂", " ", "\n", "\n\n", "**", "*", "~~", "`", "```\n", "> ", "- ", "1. ", "  ", "# ", "[",
    "]", "](https://e.org)", "| a | b |\n|---|---|\n", "| `c` |\n", "<b>", "&amp;", "\\",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_text_has_a_mark_out_of_place(text: str) -> None:
    assert problem(text) in ("", "message text is empty")


def test_size_is_counted_in_utf_16_of_what_is_shown() -> None:
    assert size("**a**") == 1
    assert size("👩‍👩‍👧") == 8
    assert size("x" * 4096) == 4096
    assert size("🙂" * 2048) == 4096


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("plain **words**", False),
        ("# Title\n\nwords", True),
        ("| a | b |\n|---|---|\n| 1 < 2 | `<b>` |", True),
        ("- # Title in a list", True),
        ("# T\n\n![x](https://e.org/x.png)", False),
        ("# T\n\n<details>x</details>", False),
        ("# T\n\nhey @everyone", False),
        ("# T\n\n[x](tg://user?id=1)", False),
        ("#hashtag and a|b", False),
        ("| " + " | ".join("abcdefghijklmnopqrstu") + " |\n" + "|-" * 21 + "|", False),
    ],
)
def test_answers_with_blocks_are_rich(text: str, is_so: bool) -> None:
    assert is_rich(text) is is_so


def test_a_text_of_which_nothing_is_left_is_shown_as_it_was_written() -> None:
    assert rendered("&#32;").text == ""
    assert payloads.words("&#32;")["text"] == "&#32;"


def test_buttons_fit_whatever_they_say() -> None:
    words = ("continue", "é" * 40, "é" * 40 + "x", "y" * 300)
    keyboard: Any = payloads.keyboard(words)
    assert keyboard_problem(keyboard["reply_markup"]) == ""
    rows = keyboard["reply_markup"]["inline_keyboard"]
    assert [row[0]["text"] for row in rows] == list(words)
    assert len({row[0]["callback_data"] for row in rows}) == len(words)
    assert payloads.keyboard(()) == {}


def test_a_caption_that_is_too_long_is_cut_and_says_so() -> None:
    upload = Upload(
        key=PartId("prt_1"), address=HERE, name="a", mime="b/c", data=b"", caption="🙂" * 600
    )
    caption: Any = payloads.upload(upload)["caption"]
    assert caption == "🙂" * 511 + "…"


def test_reactions_that_telegram_has_not_become_the_nearest_it_has() -> None:
    def shown(emoji: str) -> object:
        return payloads.reaction(React(address=HERE, external_id="42/1", emoji=emoji))["reaction"]

    assert shown("✅") == [{"type": "emoji", "emoji": "👍"}]
    assert shown("❤️") == [{"type": "emoji", "emoji": "❤"}]
    assert shown("") == []


def test_ids_are_read_back_into_chats_and_messages() -> None:
    assert message_of("-100123/7") == (-100123, 7)
    with pytest.raises(NotFound, match="names no message"):
        message_of("42/click/9")
    assert is_private("42")
    assert not is_private("-42")
    assert not is_private("@channel")
    assert payloads.place(Address(adapter="t", account="1", place="@news")) == {"chat_id": "@news"}
    assert payloads.reply("42/click/9") == {}


@given(st.text())
def test_drafts_are_numbered_by_their_key(key: str) -> None:
    number = draft_number(PartId(key))
    assert 0 < number < 2**31
    assert number == draft_number(PartId(key))
