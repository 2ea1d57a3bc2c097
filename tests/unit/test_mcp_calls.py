"""Checks how tools of servers are named, what is known of their calls, and what is made of their
answers."""

import json

import pytest

from perdure.domain.outcomes import Repeat
from perdure.domain.tools.globs import is_match
from perdure.domain.tools.traits import Permission
from perdure.tools.mcp.calls.names import rule_name, wire_name, wire_names
from perdure.tools.mcp.calls.results import FILES_MAX, output_of
from perdure.tools.mcp.calls.schemas import schema_problem
from perdure.tools.mcp.calls.traits import RepeatRule, is_taken, repeat_of, traits_of
from perdure.tools.mcp.link import (
    FilePiece,
    ListedResource,
    ListedTool,
    PointerPiece,
    ServerAnswer,
    WordsPiece,
)


def rules(**repeats: str) -> tuple[RepeatRule, ...]:
    return tuple(RepeatRule(glob, Repeat(repeat)) for glob, repeat in repeats.items())


def test_a_good_name_is_used_as_it_is() -> None:
    assert wire_name("time", "get_current_time") == "time__get_current_time"
    assert wire_name("a-b", "c-d") == "a-b__c-d"


@pytest.mark.parametrize(
    ("server", "own"),
    [
        ("time", "a.b"),
        ("time", "Ünïcode"),
        ("time", "two words"),
        ("time", "l" * 128),
        ("time", ""),
        ("my.server", "now"),
        ("a__b", "c"),
        ("a_", "b"),
        ("time", "now_0123abcd"),
        ("s" * 64, "now"),
    ],
)
def test_a_name_that_models_cannot_use_is_changed_and_marked(server: str, own: str) -> None:
    name = wire_name(server, own)
    assert len(name) <= 64
    assert name[-9] == "_"
    assert name == wire_name(server, own)


def test_names_that_look_alike_after_the_change_stay_apart() -> None:
    owns = ["a.b", "a_b", "a-b", "a/b", "l" * 128, "l" * 127 + "m"]
    names = wire_names("time", owns)
    assert sorted(names.values()) == sorted(owns)
    assert names == wire_names("time", reversed(owns))
    assert wire_name("a", "b__c") != wire_name("a__b", "c")
    assert wire_name("a_", "b") != wire_name("a", "_b")
    assert wire_name("a.b", "c.d") != wire_name("a_b", "c_d")


def test_a_rule_reaches_a_tool_whatever_it_is_called() -> None:
    assert rule_name("time", "now") == "mcp.time.now"
    for own in ("a/b", "a\nb", "a*b", "x" * 500, ""):
        assert is_match("mcp.time.*", rule_name("time", own))


def test_tools_are_taken_and_left_out_by_their_names() -> None:
    assert is_taken("now", ())
    assert is_taken("get_now", ("get_*",))
    assert not is_taken("set_now", ("get_*",))
    assert not is_taken("get_secret", ("get_*", "!get_secret"))
    assert not is_taken("set_now", ("!set_*",))
    assert is_taken("get_now", ("!set_*",))
    assert not is_taken("set/now", ("!*",))


def test_of_a_tool_that_nobody_speaks_of_nothing_is_assumed() -> None:
    traits = traits_of("time", ListedTool(name="now"), ())
    assert traits.names == ("mcp.time", "mcp.time.now")
    assert traits.repeat is Repeat.ONCE
    assert traits.permission is Permission.ACT


@pytest.mark.parametrize("configured", ["pure", "repeatable", "once"])
@pytest.mark.parametrize("is_read_only", [None, True, False])
@pytest.mark.parametrize("is_destructive", [None, True, False])
@pytest.mark.parametrize("is_idempotent", [None, True, False])
def test_a_server_can_only_tighten_what_is_configured(
    configured: str,
    is_read_only: bool | None,
    is_destructive: bool | None,
    is_idempotent: bool | None,
) -> None:
    tool = ListedTool(
        name="now",
        is_read_only=is_read_only,
        is_destructive=is_destructive,
        is_idempotent=is_idempotent,
    )
    order = [Repeat.PURE, Repeat.REPEATABLE, Repeat.ONCE]
    found = repeat_of(tool, rules(**{"*": configured}))
    assert order.index(found) >= order.index(Repeat(configured))
    assert repeat_of(tool, ()) is Repeat.ONCE


def test_what_a_server_says_of_its_risks_counts() -> None:
    freely = rules(**{"*": "pure"})
    assert repeat_of(ListedTool(name="now"), freely) is Repeat.PURE
    assert repeat_of(ListedTool(name="now", is_destructive=True), freely) is Repeat.ONCE
    assert repeat_of(ListedTool(name="now", is_read_only=False), freely) is Repeat.ONCE
    changing = ListedTool(name="now", is_read_only=False, is_idempotent=True)
    assert repeat_of(changing, freely) is Repeat.REPEATABLE


def test_the_first_glob_that_matches_says_whether_a_call_may_be_made_twice() -> None:
    configured = rules(**{"get_*": "pure", "*": "repeatable"})
    assert repeat_of(ListedTool(name="get_now"), configured) is Repeat.PURE
    assert repeat_of(ListedTool(name="set_now"), configured) is Repeat.REPEATABLE


def test_an_answer_is_told_in_the_order_of_its_pieces() -> None:
    memo = ListedResource(uri="memo://text", name="text", mime="text/plain", description="a memo")
    output = output_of(
        ServerAnswer(
            pieces=(
                WordsPiece(text="first"),
                WordsPiece(text="embedded", uri="memo://embedded"),
                PointerPiece(resource=memo),
            )
        )
    )
    assert output.text == (
        "first\n\nContent of memo://embedded:\nembedded\n\n"
        "Resource memo://text (text, text/plain): a memo"
    )
    assert not output.has_failed


def test_files_get_names_that_nobody_can_misuse() -> None:
    pieces = (
        FilePiece(data=b"1", mime="image/png"),
        FilePiece(data=b"2", mime="application/pdf", name="../../etc/.hidden\n.pdf"),
        FilePiece(data=b"3", mime="text/plain", uri="https://example.org/a/b.txt?key=secret"),
        FilePiece(data=b"4", mime="text/plain", uri="https://example.org/c/b.txt"),
        FilePiece(data=b"5", mime="strange/kind", uri="http://[broken"),
    )
    output = output_of(ServerAnswer(pieces=pieces))
    names = [each.name for each in output.files]
    assert names == ["picture-1.png", "hidden .pdf", "b.txt", "4-b.txt", "file-5.bin"]
    assert output.text.startswith("The tool has returned 5 files: picture-1.png")


def test_files_without_end_are_cut() -> None:
    pieces = tuple(FilePiece(data=b"x", mime="image/png") for _ in range(FILES_MAX + 3))
    output = output_of(ServerAnswer(pieces=pieces))
    assert len(output.files) == FILES_MAX
    assert "3 more files" in output.text


@pytest.mark.parametrize(
    ("text", "structured", "told"),
    [
        ('{"b": 1, "a": 2}', '{"a":2,"b":1}', '{"b": 1, "a": 2}'),
        ("sunny", '{"a":2}', 'sunny\n\n{"a":2}'),
        ("", '{"a":2}', '{"a":2}'),
        ("{broken", '{"a":2}', '{broken\n\n{"a":2}'),
        ("{" * 5_000, '{"a":2}', "{" * 5_000 + '\n\n{"a":2}'),
    ],
)
def test_structured_content_is_told_once(text: str, structured: str, told: str) -> None:
    answer = ServerAnswer(pieces=(WordsPiece(text=text),), structured=structured)
    assert output_of(answer).text == told


def test_an_answer_without_words_says_so() -> None:
    assert output_of(ServerAnswer()).text == "The tool has ended, and says nothing."
    failed = output_of(ServerAnswer(has_failed=True))
    assert failed.has_failed
    assert failed.text == "The tool has failed, and does not say why."


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"enum": [1, 2]}}},
        {"properties": {"a": {"$ref": "#/definitions/a~1b"}}, "definitions": {"a/b": {}}},
        {"properties": {"tree": {"items": {"$ref": "#"}}}, "additionalProperties": False},
        {"properties": {"type": {"type": "array", "items": [{"type": "string"}]}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    ],
)
def test_a_schema_that_models_servers_take_is_taken(schema: object) -> None:
    assert schema_problem(json.dumps(schema)) == ""


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "does not describe an object"),
        ([], "it is no object"),
        ({"properties": {"a": {"type": "nonsense"}}}, "a type that does not exist"),
        ({"properties": {"a": {"type": []}}}, "a type that does not exist"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "refers to something"),
        ({"properties": {"a": {"$ref": "https://example.org/schema"}}}, "refers to something"),
        ({"properties": ["a"]}, "its properties are no object"),
        ({"properties": {"a": "string"}}, "a part of it is no schema"),
        ({"required": "a"}, "no list of names"),
        ({"required": ["a", "a"]}, "requires something twice"),
        ({"anyOf": []}, "a list of choices"),
        ({"properties": {"a": {"enum": []}}}, "a list of choices"),
        ({"items": {"not": {"items": {"type": "x"}}}}, "a type that does not exist"),
    ],
)
def test_a_schema_that_would_spoil_a_request_is_refused(schema: object, problem: str) -> None:
    assert problem in schema_problem(json.dumps(schema))


def test_a_schema_without_end_is_refused() -> None:
    assert "too deeply" in schema_problem('{"items":' * 60 + "{}" + "}" * 60)
    assert schema_problem('{"items":' * 100_000 + "{}" + "}" * 100_000)
    assert schema_problem("{broken") == "it is no JSON"
