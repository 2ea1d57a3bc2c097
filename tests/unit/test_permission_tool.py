"""Checks how an external agent's wish to use a tool of its own becomes a call that rules, grants
and people decide about, and that no model is told of the tool behind it."""

import json
from typing import Any

import pytest

from perdure.app.config.tool_values import (
    PERMISSION_ACTS,
)
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.tools.policy import Decision, Do, Rule, ToolPolicy, decision_about
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.builtin.ask import AskTool
from perdure.tools.builtin.permission import KINDS, PermissionTool
from perdure.tools.toolbox import Toolbox

TOOLS = Toolbox([AskTool()], hidden=[PermissionTool()])
NOBODY = ToolCaller(
    principal=PrincipalId("prn_x"),
    conversation=ConversationId("cnv_x"),
    session=SessionId("ses_x"),
    turn=TurnId("trn_x"),
)


def decided(policy: ToolPolicy, **arguments: Any) -> Decision:
    given = json.dumps({"tool": "a tool", **arguments})
    traits = TOOLS.traits("permission", given)
    assert traits.problem == ""
    return decision_about(
        traits, policy, arguments=given, session=SessionId("ses_x"), now_ms=1_000_000
    )


def a_rule(do: str, tool: str, match: str = "") -> ToolPolicy:
    return ToolPolicy(agent="main", rules=(Rule(tool=tool, do=Do(do), match=match),))


def test_rules_may_name_every_kind() -> None:
    assert tuple(f"permission.{kind}" for kind in KINDS) == PERMISSION_ACTS


@pytest.mark.parametrize("kind", KINDS)
def test_people_are_asked_unless_something_else_is_configured(kind: str) -> None:
    assert decided(ToolPolicy(), kind=kind).do is Do.ASK
    assert decided(a_rule("allow", "permission"), kind=kind).do is Do.ALLOW
    assert decided(a_rule("deny", f"permission.{kind}"), kind=kind).do is Do.DENY


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("git", "status"), Do.ALLOW),
        (("git", "status;", "rm", "-rf", "/"), Do.ASK),
        (("git", "status\nrm"), Do.ASK),
        (("bash", "-c", "git status"), Do.ASK),
        (("git", "push"), Do.ASK),
    ],
)
def test_a_rule_for_a_command_allows_no_other_one(command: tuple[str, ...], expected: Do) -> None:
    policy = a_rule("allow", "permission.execute", "git status*")
    assert decided(policy, kind="execute", command=command).do is expected
    words = " ".join(command)
    assert decided(policy, kind="execute", tool=words).do is expected


def test_a_rule_may_name_a_file_below_the_folder_or_as_a_whole() -> None:
    edit = {"kind": "edit", "path": "/srv/notes/a.md", "folder": "/srv"}
    for match in ("notes/**", "/srv/notes/*.md"):
        assert decided(a_rule("allow", "permission.edit", match), **edit).do is Do.ALLOW
    assert decided(a_rule("allow", "permission.edit", "src/**"), **edit).do is Do.ASK
    assert decided(a_rule("deny", "permission", "**/a.md"), **edit).do is Do.DENY


def test_a_grant_covers_what_was_shown_and_no_more() -> None:
    def granted(**arguments: Any) -> str:
        offer = decided(ToolPolicy(), **arguments).offer
        return offer.words if offer else ""

    assert granted(kind="edit", path="/srv/a.md", folder="/srv") == "permission.edit on a.md"
    assert granted(kind="fetch", tool="web_fetch") == "permission.fetch on web_fetch"
    exactly = "with exactly these arguments"
    assert granted(kind="execute", command=("ls", "-l")) == f"permission.execute {exactly}"
    assert granted(kind="delete") == f"permission.delete {exactly}"
    assert granted(kind="execute", command=("sh", "-c", "ls")) == ""


async def test_the_question_shows_what_becomes_of_a_file() -> None:
    change = {"path": "a.md", "old": "one\ntwo\n", "new": "one\n2\n"}
    arguments = json.dumps({"tool": "Edit", "kind": "edit", "path": "/a.md", "change": change})
    call = ToolCall(id=CallId("call_1"), name="permission", arguments=arguments, repeat=Repeat.PURE)
    outlook = await TOOLS.outlook(call, NOBODY)
    assert outlook.preview.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert (await TOOLS.call(call, NOBODY)).ending is CallEnding.RETURNED


async def test_no_model_is_told_of_the_hidden_tool() -> None:
    for tools in (TOOLS, await TOOLS.current(NOBODY.principal)):
        assert "permission" not in tools.schemas()
        assert [offer.name for offer in tools.offers()] == ["ask"]
        assert tools.has("permission")
        assert "permission" not in tools.traits("permissions", "{}").problem.partition(";")[2]
