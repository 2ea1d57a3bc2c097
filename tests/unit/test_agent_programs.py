"""Checks which people share the processes of an external agent, and what it may do by itself."""

import json
from pathlib import Path

import pytest

from perdure.agents.acp.programs.presets import OTHER, PRESETS, Preset
from perdure.agents.acp.programs.program import AgentProgram


@pytest.mark.parametrize("preset", [*PRESETS.values(), OTHER], ids=lambda each: each.name)
def test_people_share_processes_only_of_an_agent_without_tools_of_its_own(preset: Preset) -> None:
    # With its own tools an agent reads and writes files for whoever talks with it.
    mild = AgentProgram(agent="main", base=Path("/nowhere"), preset=preset)
    able = AgentProgram(agent="main", base=Path("/nowhere"), preset=preset, has_own_tools=True)

    assert mild.is_shared is preset.may_lose_tools
    assert able.is_shared is False


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("has_own_tools", [True, False])
def test_what_is_configured_about_sharing_counts(share: bool, has_own_tools: bool) -> None:
    preset = PRESETS["gemini"]
    program = AgentProgram(
        agent="main",
        base=Path("/nowhere"),
        preset=preset,
        has_own_tools=has_own_tools,
        share=share,
    )
    assert program.is_shared is share


def test_opencode_is_denied_each_of_its_own_tools_and_asks_for_others() -> None:
    mild = AgentProgram(agent="main", base=Path("/nowhere"), preset=PRESETS["opencode"])
    able = AgentProgram(
        agent="main", base=Path("/nowhere"), preset=PRESETS["opencode"], has_own_tools=True
    )
    told = json.loads(mild.environment(Path("/nowhere"))["OPENCODE_PERMISSION"])
    # The last word about a tool counts, and a tool of the gateway has none but the first.
    assert next(iter(told.items())) == ("*", "ask")
    assert {told[name] for name in ("bash", "edit", "read", "write", "webfetch", "task")} == {
        "deny"
    }
    assert json.loads(able.environment(Path("/nowhere"))["OPENCODE_PERMISSION"]) == {"*": "ask"}
