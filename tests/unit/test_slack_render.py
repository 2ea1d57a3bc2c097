"""Checks what Slack is given: Markdown as it is, no mention of anybody, and Slack's own markup
where needed."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.slack.names import (
    MessageName,
    file_of,
    file_receipt,
    is_marked,
    marked,
    message_of,
)
from perdure.adapters.slack.render import (
    TEXT_MAX,
    buttons,
    content,
    markdown,
    plainer_content,
    size,
)
from perdure.adapters.slack.text.emoji import name_of
from perdure.adapters.slack.text.mrkdwn import mrkdwn
from perdure.domain.delivery import Capabilities, plan_parts
from perdure.domain.errors import Permanent
from perdure.domain.ids import PartId

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text()
GROUPS = ("<!channel>", "<!here|here>", "<!everyone>", "<!subteam^S012|@team>", "<!group>")
# Text that a model may write, cut at any place.
PIECES = st.lists(
    st.sampled_from(["<", "!", "@", "#", "channel", "here", "U012", "doctype", " ", "a", "\n"])
).map("".join)


@pytest.mark.parametrize("mention", [*GROUPS, "<@U012AB>", "<#C012|general>", "@here", "@Channel"])
def test_no_text_addresses_anybody(mention: str) -> None:
    for written in (mention, f"see {mention} and `{mention}`", f"```\n{mention}\n```"):
        assert mention not in markdown(written)
        assert mention not in mrkdwn(written)
        blocks = msgspec.json.encode(content(written).blocks).decode()
        assert mention not in blocks


@pytest.mark.parametrize(
    "text",
    [
        "<!doctype html>",
        "<!-- a comment -->",
        "<b>bold</b>",
        "bob@hereford.example",
        "@alice",
        "a<b",
    ],
)
def test_what_addresses_nobody_is_left_alone(text: str) -> None:
    assert markdown(text) == text


@given(PIECES, PIECES)
def test_what_a_longer_text_becomes_begins_with_what_a_shorter_one_became(
    shown: str, more: str
) -> None:
    assert markdown(shown + more).startswith(markdown(shown))


@given(PIECES)
def test_nothing_is_broken_twice(text: str) -> None:
    assert markdown(markdown(text)) == markdown(text)


def test_markdown_goes_out_as_it_is() -> None:
    text = "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n**bold** & [link](https://example.org)"

    shown = content(text)

    assert list(msgspec.to_builtins(shown.blocks)) == [{"type": "markdown", "text": text}]


def test_choices_are_buttons_whose_value_is_the_word() -> None:
    below = buttons(("Yes", "No " + "x" * 100))
    (_, actions) = msgspec.to_builtins(content("Sure?", below).blocks)

    assert actions["type"] == "actions"
    assert [button["value"] for button in actions["elements"]] == ["Yes", "No " + "x" * 100]
    assert [len(button["text"]["text"]) for button in actions["elements"]] == [3, 75]
    assert len({button["action_id"] for button in actions["elements"]}) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**bold** *it* ~~gone~~ `a<b`", "*bold* _it_ ~gone~ `a&lt;b`"),
        ("# The **title**", "*The title*"),
        ("[a|b](https://x.org/?a=1&b=2)", "<https://x.org/?a=1&amp;b=2|a¦b>"),
        ("[old](ftp://x.org/a|b)", "old (ftp://x.org/a%7Cb)"),
        ("![a cat](https://x.org/c.png)", "<https://x.org/c.png|a cat>"),
        ("- one\n- two\n  - three", "• one\n• two\n    • three"),
        ("3. three\n4. four", "3. three\n4. four"),
        ("- [x] done\n- [ ] open", "• ☑ done\n• ☐ open"),
        ("> said\n>\n> twice", "> said\n> \n> twice"),
        ("```py\nif a < b: pass\n```", "```\nif a &lt; b: pass\n```"),
        ("<div>& raw</div>", "```\n&lt;div&gt;&amp; raw&lt;/div&gt;\n```"),
        ("---", "———"),
    ],
)
def test_markdown_becomes_slacks_own_markup(text: str, expected: str) -> None:
    assert mrkdwn(text) == expected


def test_a_table_is_shown_in_columns() -> None:
    shown = mrkdwn("| a | bb |\n|---|---|\n| 1 | 2 |")

    assert shown.startswith("```\n")
    assert [line.split() for line in shown.splitlines() if "1" in line] == [["1", "2"]]


def test_a_server_without_markdown_gets_sections_within_its_limit() -> None:
    text = f"{TORTURE}\n\n{'many words & more. ' * 500}"

    blocks = msgspec.to_builtins(plainer_content(text).blocks)

    assert {block["type"] for block in blocks} == {"section"}
    assert 1 < len(blocks) <= 50
    assert all(0 < len(block["text"]["text"]) <= 3000 for block in blocks)


@given(st.text(max_size=200), st.sampled_from(["&", "<", "words ", "**x**"]))
def test_notifications_are_short_whatever_is_escaped(text: str, filler: str) -> None:
    assert len(content(text + filler * 2_000).text) <= 3000


def test_parts_fit_in_slacks_form() -> None:
    text = "<!channel> " * 3_000
    capabilities = Capabilities(text_max=TEXT_MAX)

    parts = plan_parts(text, capabilities, size=size)

    assert len(parts) > 1
    assert all(len(markdown(part)) <= TEXT_MAX for part in parts)
    assert " ".join(parts).split() == text.split()


def test_names_are_read_back() -> None:
    name = MessageName("C01", "1700000000.000100")
    assert message_of(name.external_id) == name
    assert message_of("C01/command/17.42.abc") is None
    assert message_of("C01/F012") is None
    assert file_of(file_receipt("C01", "F012")) == "F012"
    assert not file_of(name.external_id)


@pytest.mark.parametrize("name", ["a.tar.gz", "README", ".env", "two words.png"])
def test_a_file_is_known_by_its_key(name: str) -> None:
    key = PartId("stp_1")

    assert is_marked(marked(name, key), key)
    assert not is_marked(marked(name, key), PartId("stp_2"))
    assert marked(name, key).endswith(name[-3:]) or "." not in name.strip(".")


def test_emoji_have_names() -> None:
    assert name_of("👀") == "eyes"
    assert name_of("❤️") == "heart"
    assert name_of(":party_parrot:") == "party_parrot"
    with pytest.raises(Permanent, match="give its name"):
        name_of("🦩")
