"""Checks what is a command and what is text, and what a person is told about a mistake."""

import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from perdure.domain.inbound.commands import (
    COMMANDS,
    COUNT_MAX,
    Takes,
    command_in,
    help_text,
    unknown_text,
)


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "",
        "/",
        "//",
        "/usr/bin",
        "/usr/bin is full",
        "/etc/hosts x",
        "/2+2",
        "/stop!",
        "/new\x00",
        "/ stop",
        "say /stop",
        "/undo-it",
        "/größe",
    ],
)
def test_what_only_begins_with_a_slash_is_text(text: str) -> None:
    assert command_in(text) is None


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("/stop", "stop", ""),
        ("  /STOP all \n", "stop", "all"),
        ("/Undo 3", "undo", "3"),
        ("/queue one\ntwo  three ", "queue", "one\ntwo  three"),
        ("/title\nA trip", "title", "A trip"),
        ("/compress names", "compact", "names"),
        ("/model backup", "agent", "backup"),
        ("/queue /stop", "queue", "/stop"),
    ],
)
def test_a_command_is_its_first_word(text: str, name: str, arguments: str) -> None:
    found = command_in(text)

    assert found is not None
    assert (found.name, found.arguments, found.problem) == (name, arguments, "")
    assert found.command is COMMANDS[name]


@pytest.mark.parametrize(
    ("typed", "meant"), [("sotp", "stop"), ("undu", "undo"), ("modl", "model")]
)
def test_an_unknown_command_suggests_the_nearest(typed: str, meant: str) -> None:
    found = command_in(f"/{typed} now")

    assert found is not None
    assert found.command is None
    assert f"/{meant}?" in found.problem
    assert "/help" in found.problem


def test_a_command_like_no_other_suggests_nothing() -> None:
    assert "mean" not in unknown_text("xyzzyplugh")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_what_may_follow_is_checked(command: object) -> None:
    name = next(name for name, each in COMMANDS.items() if each is command)
    alone, followed = command_in(f"/{name}"), command_in(f"/{name} something")

    assert alone is not None
    assert followed is not None
    takes = COMMANDS[name].takes
    assert bool(alone.problem) == (takes is Takes.WORDS)
    assert bool(followed.problem) == (takes in (Takes.NOTHING, Takes.MAYBE_COUNT))
    for problem in filter(None, (alone.problem, followed.problem)):
        assert COMMANDS[name].usage in problem


@pytest.mark.parametrize(
    "count", ["0", "-1", "1.5", "1001", "99999999999999999999", "two", "²", "٣"]
)
def test_a_count_is_a_small_whole_number(count: str) -> None:
    found = command_in(f"/undo {count}")

    assert found is not None
    assert "whole number" in found.problem


@holds_for(st.integers(1, COUNT_MAX))
def test_every_count_that_is_allowed_is_read(count: int) -> None:
    found = command_in(f"/undo {count}")

    assert found is not None
    assert (found.problem, found.count) == ("", count)


@holds_for(st.text(max_size=30))
def test_any_text_is_text_or_a_command(text: str) -> None:
    found = command_in(text)

    if not text.strip().startswith("/"):
        assert found is None
    if found is not None:
        assert found.name.isascii()
        assert found.name.isalpha()
        assert found.problem or found.command is not None


def test_help_lists_what_one_may_use() -> None:
    for_members, for_operators = help_text(is_operator=False), help_text(is_operator=True)

    assert "/restart" not in for_members
    for command in COMMANDS.values():
        assert command.usage in for_operators
        assert command.help in for_operators
        assert command.is_for_operators or command.usage in for_members
