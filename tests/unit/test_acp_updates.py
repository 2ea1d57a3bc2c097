"""Checks how the updates of external agents become the events of an answer, also where an agent
leaves half of them out, and how its questions become calls."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from acp import schema

from perdure.agents.acp.translation.asking import FILES_MAX, permission_calls
from perdure.agents.acp.translation.own_calls import BridgedNames
from perdure.agents.acp.translation.updates import OPEN_MAX, UpdateReader
from perdure.domain.tools.todo import TodoItem, TodoState
from perdure.domain.turn.stream import (
    AgentActed,
    AgentBegan,
    AgentEvent,
    AgentFile,
    AgentPlan,
    AgentText,
    Thinking,
)

CODEX = {
    "server_name": "perdure",
    "request": {"_meta": {"codex_approval_kind": "mcp_tool_call"}},
}
OURS = BridgedNames("perdure", ["mail", "files"])


def reader() -> UpdateReader:
    return UpdateReader(OURS)


def read(reading: UpdateReader, **update: Any) -> list[AgentEvent]:
    told = {"sessionId": "s", "update": update}
    return list(reading.read(schema.SessionNotification.model_validate(told).update))


def chunk(**content: Any) -> list[AgentEvent]:
    return read(reader(), sessionUpdate="agent_message_chunk", content=content)


def test_text_is_the_answer_and_thoughts_are_nobodys() -> None:
    assert chunk(type="text", text="hé\x00llo") == [AgentText("hé\ufffdllo")]
    assert chunk(type="text", text="") == []
    thought = {"type": "text", "text": "secret"}
    assert read(reader(), sessionUpdate="agent_thought_chunk", content=thought) == [Thinking()]
    link = chunk(type="resource_link", name="a.txt", uri="file:///a.txt")
    assert link == [AgentText("[a.txt](file:///a.txt)")]


def test_pictures_of_an_answer_are_files() -> None:
    data = base64.b64encode(b"png").decode()
    (file,) = chunk(type="image", data=data, mimeType="image/png")
    assert file == AgentFile(name="file-1.png", mime="image/png", data=b"png")
    assert chunk(type="image", data="no base64", mimeType="image/png") == [AgentText("[image/png]")]


def test_a_plan_is_a_list_of_things_to_do() -> None:
    entries = [
        {"content": "look\naround", "priority": "high", "status": "completed"},
        {"content": "act", "priority": "low", "status": "in_progress"},
        {"content": "", "priority": "low", "status": "pending"},
        *({"content": "x" * 999, "priority": "low", "status": "pending"} for _ in range(200)),
    ]
    (plan,) = read(reader(), sessionUpdate="plan", entries=entries)
    assert isinstance(plan, AgentPlan)
    assert plan.items[:2] == (
        TodoItem(text="look around", state=TodoState.DONE),
        TodoItem(text="act", state=TodoState.DOING),
    )
    assert (len(plan.items), len(plan.items[2].text)) == (99, 300)


def test_a_call_is_told_when_it_begins_and_whole_when_it_is_over() -> None:
    reading = reader()
    began = read(
        reading, sessionUpdate="tool_call", toolCallId="c", title="Edit a.md", kind="edit",
        status="pending", rawInput={"path": "/a.md"}, locations=[{"path": "/a.md"}],
    )  # fmt: skip
    assert began == [AgentBegan(id="c", name="Edit a.md")]
    diff = {"type": "diff", "path": "/a.md", "oldText": "one\n", "newText": "two\n"}
    assert read(reading, sessionUpdate="tool_call_update", toolCallId="c", content=[diff]) == []
    (acted,) = read(reading, sessionUpdate="tool_call_update", toolCallId="c", status="completed")
    assert isinstance(acted, AgentActed)
    assert (acted.name, acted.has_failed) == ("Edit a.md", False)
    assert json.loads(acted.arguments) == {
        "kind": "edit",
        "paths": ["/a.md"],
        "input": {"path": "/a.md"},
    }
    assert acted.text == "```diff\n--- /a.md\n+++ /a.md\n@@ -1 +1 @@\n-one\n+two\n```"
    assert list(reading.rest()) == []


def test_a_call_of_which_only_the_end_is_told_is_told() -> None:
    (acted,) = read(
        reader(), sessionUpdate="tool_call_update", toolCallId="c", title="ls", status="failed",
        rawOutput={"code": 2},
    )  # fmt: skip
    expected = AgentActed(
        id="c", name="ls", arguments='{"kind":"other"}', text='{"code":2}', has_failed=True
    )
    assert acted == expected


def test_of_a_question_only_the_changes_are_kept() -> None:
    reading = reader()
    change = {"type": "diff", "path": "/a.md", "oldText": "one", "newText": "two"}
    reason = {"type": "content", "content": {"type": "text", "text": "May I?"}}
    for call, content in (("edit", [reason, change]), ("run", [reason])):
        reading.asked(wish(toolCallId=call, title=call, content=content))
        (acted,) = read(
            reading, sessionUpdate="tool_call_update", toolCallId=call, status="completed"
        )
        assert isinstance(acted, AgentActed)
        assert "May I?" not in acted.text
        assert ("+two" in acted.text) == (call == "edit")


def test_a_call_that_never_ends_is_told_with_the_answer() -> None:
    reading = reader()
    read(reading, sessionUpdate="tool_call", toolCallId="c", title="search")
    (left,) = reading.rest()
    assert isinstance(left, AgentActed)
    assert left.text == "The agent has not said what came of this."
    assert list(reading.rest()) == []


def test_calls_without_end_and_number_are_forgotten() -> None:
    reading = reader()
    for number in range(OPEN_MAX + 50):
        read(reading, sessionUpdate="tool_call", toolCallId=f"c{number}", title="search")
    assert len(list(reading.rest())) == OPEN_MAX


@pytest.mark.parametrize(
    "title", ["mail", "mail (perdure MCP Server)", "mcp__perdure__mail", "perdure_mail"]
)
def test_a_call_that_comes_over_the_bridge_is_not_told_twice(title: str) -> None:
    reading = reader()
    started = {"toolCallId": "c", "title": title, "rawInput": {"to": "ada"}}
    assert read(reading, sessionUpdate="tool_call", **started) == []
    reading.bridged.came("mail", '{"to": "ada"}')
    assert read(reading, sessionUpdate="tool_call_update", toolCallId="c", status="completed") == []
    # The same words once more, and nothing has come: it is a tool of the agent's own.
    assert read(reading, sessionUpdate="tool_call", **(started | {"status": "completed"})) != []


def test_a_call_is_known_by_its_arguments_where_its_title_says_nothing() -> None:
    reading = reader()
    reading.bridged.came("mail", '{"to":   "ada"}')
    told = {"toolCallId": "c", "title": "Calling a tool", "status": "completed"}
    assert read(reading, sessionUpdate="tool_call", rawInput={"to": "ada"}, **told) == []


def wish(**told: Any) -> schema.ToolCallUpdate:
    return schema.ToolCallUpdate.model_validate({"toolCallId": "c", **told})


def asked(tool: schema.ToolCallUpdate, known: Any = None) -> list[dict[str, Any]]:
    calls = permission_calls(tool, folder="/srv", known=known)
    assert {call.name for call in calls} <= {"permission"}
    return [json.loads(call.arguments) for call in calls]


def test_a_question_about_a_command_names_its_words() -> None:
    tool = wish(title="Run", kind="execute", rawInput={"command": "git  status;\nrm x"})
    (arguments,) = asked(tool)
    assert arguments["command"] == ["git", "status;\nrm", "x"]
    listed = wish(title="Run", kind="execute", rawInput={"command": ["bash", "-lc", "ls"]})
    assert asked(listed)[0]["command"] == ["bash", "-lc", "ls"]
    later = wish(title="Run", kind="execute")
    assert asked(later, known={"cmd": "ls -l"})[0]["command"] == ["ls", "-l"]


def test_a_question_about_files_becomes_one_for_each_file() -> None:
    diff = {"type": "diff", "path": "a.md", "oldText": None, "newText": "one"}
    tool = wish(
        title="Edit", kind="edit", content=[diff],
        locations=[{"path": "/srv/a.md"}, {"path": "../etc/./b"}],
    )  # fmt: skip
    first, second = asked(tool)
    assert (first["path"], second["path"]) == ("/srv/a.md", "/etc/b")
    assert first["change"] == {"path": "a.md", "new": "one", "old": None}
    assert "change" not in second


def test_a_question_about_too_much_is_not_put() -> None:
    many = [{"path": f"/{number}"} for number in range(FILES_MAX + 1)]
    assert asked(wish(kind="edit", locations=many)) == []
    assert asked(wish(kind="other", rawInput={"text": "x" * 2_000_000})) == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"title": "mail (perdure MCP Server)", "kind": "other"}, True),
        ({"title": "mcp__perdure__files"}, True),
        ({"title": "mail (perdure MCP Server)", "kind": "execute"}, False),
        ({"title": "mail (perdure MCP Server)", "kind": "think"}, False),
        ({"title": "Approve MCP tool call", "kind": "other", "rawInput": CODEX}, True),
        ({"title": "Approve MCP tool call", "kind": "execute", "rawInput": CODEX}, False),
        ({"title": "anything", "kind": "other", "rawInput": CODEX}, False),
        ({"title": "Approve MCP tool call", "rawInput": {**CODEX, "server_name": "x"}}, False),
        ({"title": "mail (perdure MCP Server); rm -rf /"}, False),
        ({"title": "mail"}, False),
        ({"title": "perdure_shell"}, False),
        ({}, False),
    ],
)
def test_only_a_tool_of_the_gateway_is_allowed_without_a_question(
    told: dict[str, Any], expected: bool
) -> None:
    assert OURS.asked_about(wish(**told)) is expected


def test_other_updates_are_told_to_nobody() -> None:
    kinds: Sequence[dict[str, Any]] = (
        {"sessionUpdate": "current_mode_update", "currentModeId": "x"},
        {"sessionUpdate": "available_commands_update", "availableCommands": []},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "echo"}},
    )
    assert [event for each in kinds for event in read(reader(), **each)] == []
