"""Checks what the command line tells of tool servers."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.testkit.processes.command import TRUSTS_NOBODY, Result, run_command

TWO = """
[tools.mcp.time]
command = ["mcp-server-time"]
shared = true

[tools.mcp.board]
url = "http://127.0.0.1:9/mcp"
"""
pytestmark = pytest.mark.timeout(90)


def environment(**more: str) -> dict[str, str]:
    foreign = ("PERDURE_", "OPENAI_", "ANTHROPIC_", "OLLAMA_", "GEMINI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PERDURE_DISCOVER": "0", **TRUSTS_NOBODY, **more}


async def perdure(home: Path, *arguments: str) -> Result:
    result = await run_command(arguments, environ=environment(PERDURE_HOME=str(home)))
    assert "Traceback" not in result.err, result.err
    return result


def configured(folder: Path, toml: str) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "perdure.toml").write_text(toml)
    return home


def states(found: Result) -> Mapping[str, str]:
    return {each["name"]: each["state"] for each in found.json["servers"]}


async def test_without_a_node_the_list_is_what_is_configured(tmp_path: Path) -> None:
    home = configured(tmp_path, TWO)

    text = await perdure(home, "mcp", "list")
    machine = await perdure(home, "mcp", "list", "--json")

    assert text.code == machine.code == 0
    assert "only what is configured" in text.err
    assert "no node is running" in text.err
    time, board = text.out.splitlines()[1:]
    assert time.split()[:4] == ["time", "program", "not", "started"]
    assert board.split()[:4] == ["board", "address", "not", "started"]
    assert states(machine) == {"time": "not_started", "board": "not_started"}
    assert [each["is_shared"] for each in machine.json["servers"]] == [True, False]
    assert sorted(path.name for path in home.iterdir()) == ["perdure.toml"]


async def test_without_tool_servers_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    found = await perdure(tmp_path, "mcp", "list")

    assert found.code == 0
    assert "[tools.mcp.NAME]" in found.out


async def test_without_a_node_there_are_no_logs(tmp_path: Path) -> None:
    found = await perdure(configured(tmp_path, TWO), "mcp", "logs", "time")

    assert found.code == 3
    assert "perdure serve" in found.err
