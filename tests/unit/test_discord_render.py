"""Checks what Discord is given for Markdown: its own dialect, and nothing with a meaning that the
text did not have."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.discord.adapter import CAPABILITIES
from perdure.adapters.discord.bodies import (
    LABEL_MAX,
    changed_message,
    new_message,
    nonce_of,
    offered_commands,
)
from perdure.adapters.discord.inbound import button_id
from perdure.adapters.discord.render import TEXT_MAX, render, size
from perdure.domain.delivery import plan_parts
from perdure.domain.inbound.commands import COMMANDS

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text("utf-8")
GAP = "\u200b"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("plain words", "plain words"),
        ("**bold** _slanted_ ~~gone~~ `code`", "**bold** *slanted* ~~gone~~ `code`"),
        ("***both***", "***both***"),
        ("**a***b*", f"**a**{GAP}*b*"),
        ("one\ntwo", "one\ntwo"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("# One\ntext", "# One\ntext"),
        ("### Three", "### Three"),
        ("##### Five", "**Five**"),
        ("Title\n===", "# Title"),
        ("- a\n- b\n  - c", "- a\n- b\n  - c"),
        ("7. a\n8. b", "7. a\n8. b"),
        ("- [ ] open\n- [x] done", "- \u2610 open\n- \u2611 done"),
        ("> said\n> twice", "> said\n> twice"),
        ("> one\n> > two\n> > > three", "> one\n> \n> two\n> \n> three"),
        ("```python\nx = 1\n```", "```python\nx = 1\n```"),
        ("```no such language!\nx\n```", "```no\nx\n```"),
        ("    indented", "```\nindented\n```"),
        ("---", "\u2014\u2014\u2014"),
        ("[text](https://example.org)", "[text](https://example.org)"),
        ("[text](https://example.org/a_(b))", "[text](https://example.org/a_%28b%29)"),
        (
            "[https://good.example](https://evil.example)",
            "https://good.example (https://evil.example)",
        ),
        ("<https://example.org/a_b>", "https://example.org/a_b"),
        ("[up](../up.md)", "up (../up.md)"),
        ("![a chart](https://example.org/c.png)", "[a chart](https://example.org/c.png)"),
        ("see https://example.org/a_b_c*d", "see https://example.org/a_b_c*d"),
        ("<b>not markup</b>", "<b>not markup</b>"),
    ],
)
def test_markdown_becomes_discords_own(markdown: str, shown: str) -> None:
    assert render(markdown) == shown


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        (r"2 \* 3 \* 4", r"2 \* 3 \* 4"),
        ("snake_case_name", r"snake\_case\_name"),
        ("||secret||", r"\|\|secret\|\|"),
        ("a | b", "a | b"),
        ("C:\\temp", r"C:\\temp"),
        ("<@123> <@!123> <@&123> <#123>", r"\<@123> \<@!123> \<@&123> \<#123>"),
        (
            "<t:1700000000:R> <:smile:123> </stop:123>",
            r"\<t:1700000000:R> \<:smile:123> \</stop:123>",
        ),
        ("@everyone and @here", f"@{GAP}everyone and @{GAP}here"),
        (r"\# not a heading", r"\# not a heading"),
        (r"\- not a list", r"\- not a list"),
        (r"\> not a quote", r"\> not a quote"),
        (r"\-# not small", r"\-# not small"),
        (r"\[not\](https://example.org)", r"[not]\(https://example.org)"),
    ],
)
def test_what_is_only_text_stays_text(markdown: str, shown: str) -> None:
    assert render(markdown) == shown


def test_code_cannot_close_its_own_fence() -> None:
    shown = render("````\n```\n@everyone\n```\n````")

    assert shown.count("```") == 2
    assert "@everyone" in shown  # inside code Discord calls nobody, and a copy stays exact


def test_code_in_a_list_keeps_its_columns() -> None:
    shown = render("- step\n\n  ```py\n  if x:\n      y()\n  ```\n- next")

    assert shown == "- step\n```py\nif x:\n    y()\n```\n- next"


def test_a_table_is_lined_up_in_code() -> None:
    shown = render("| a | b |\n|---|--:|\n| one | 1 |\n| three | 22 |")

    first, *rows, last = shown.split("\n")
    assert first == last == "```"
    assert len({len(row) for row in rows}) == 1


def test_text_without_blocks_is_shown_all_the_same() -> None:
    assert render("[only]: https://example.org") == "[only]: https://example.org"


@given(st.text(alphabet=st.sampled_from("ab *_`~|>#-[]()<@!&\\\n1.:x")))
def test_no_text_calls_a_group_or_leaves_a_fence_open(text: str) -> None:
    shown = render(f"{text} @everyone <@&42>")

    outside = re.sub(r"```.*?```|``.*?``|`[^`\n]*`", "", shown, flags=re.DOTALL)
    assert "@everyone" not in outside
    assert shown.count("```") % 2 == 0


def test_torture_is_cut_within_the_limit() -> None:
    parts = plan_parts(TORTURE, CAPABILITIES, size=size)

    assert len(parts) > 1
    for part in parts:
        shown = render(part)
        assert 0 < len(shown) == size(part) <= TEXT_MAX
        assert shown.count("```") % 2 == 0


def test_a_nonce_is_the_same_for_a_key_and_short() -> None:
    assert nonce_of("prt_1") == nonce_of("prt_1") != nonce_of("prt_2")
    assert all(len(nonce_of(f"prt_{number}")) <= 25 for number in range(1000))


def test_a_message_calls_nobody() -> None:
    for body in (new_message("x", key="prt_1"), changed_message("x")):
        assert body.allowed_mentions.parse == ()
        assert not body.allowed_mentions.replied_user


def test_buttons_keep_within_discords_limits() -> None:
    long = "word " * 50
    body = changed_message("?", choices=(long, "yes", *map(str, range(40))))

    buttons = [button for row in body.components for button in row.components]
    assert len(body.components) == 5
    assert all(len(row.components) <= 5 for row in body.components)
    assert all(0 < len(button.label) <= LABEL_MAX for button in buttons)
    assert all(len(button.custom_id) <= 100 for button in buttons)
    assert len({button.custom_id for button in buttons}) == len(buttons) == 25
    assert button_id(1, "yes") == buttons[1].custom_id


def test_every_open_command_is_offered_in_discords_form() -> None:
    offered = offered_commands()

    assert {command.name for command in offered} == {
        name for name, command in COMMANDS.items() if not command.is_for_operators
    }
    assert len(offered) <= 100
    for command in offered:
        assert re.fullmatch(r"[a-z]{1,32}", command.name)
        assert 0 < len(command.description) <= 100
        for option in command.options:
            assert re.fullmatch(r"[a-z]{1,32}", option.name)
            assert 0 < len(option.description) <= 100
