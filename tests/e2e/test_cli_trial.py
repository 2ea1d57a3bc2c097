"""Checks `perdure mcp test`: what it lists, and what it says of servers that cannot be used."""

import json
from pathlib import Path

import pytest
from tests.e2e.test_cli_servers import configured, perdure

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.peers.peer import free_port
from perdure.testkit.processes.command import Result

AGENT = """
[agents.main]
kind = "demo"
tools = ["mcp.good"]

[[agents.main.rules]]
tool = "mcp.good.add"
do = "allow"
"""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


def section(name: str, *lines: str) -> str:
    return "\n".join([f"[tools.mcp.{name}]", *lines, ""])


def program(command: list[str]) -> str:
    return f"command = {json.dumps(command)}"


async def refused(folder: Path, *lines: str, wait: int = 30) -> Result:
    """Try a server called `bad`, which cannot be used."""
    home = configured(folder, section("bad", *lines))
    found = await perdure(home, "mcp", "test", "bad", "--wait", str(wait))
    assert found.code == 1, found
    problem, advice = found.err.splitlines()
    assert problem.startswith("perdure: bad: ")
    assert "[tools.mcp.bad]" in advice
    return found


async def test_a_good_server_is_listed_with_what_agents_may_do(
    tmp_path: Path, hostile: HostileMcp
) -> None:
    lines = (program(hostile.command()), 'tools = ["!wipe"]', 'repeat = { add = "pure" }')
    home = configured(tmp_path, AGENT + section("good", *lines))

    text = await perdure(home, "mcp", "test", "good")
    machine = await perdure(home, "mcp", "test", "good", "--json")

    assert text.code == machine.code == 0, text
    found = machine.json
    assert found["problems"] == []
    assert found["server"].startswith("hostile")
    assert found["agents"] == ["main"]
    tools = {each["name"]: each for each in found["tools"]}
    assert tools["echo"]["called"] == "good__echo"
    assert tools["echo"]["rule"] == "mcp.good.echo"
    assert (tools["echo"]["repeat"], tools["echo"]["asks"]) == ("once", {"main": "ask"})
    assert (tools["add"]["repeat"], tools["add"]["asks"]) == ("pure", {"main": "allow"})
    assert not tools["wipe"]["is_taken"]
    (greet,) = (each for each in found["prompts"] if each["name"] == "greet")
    assert (greet["called"], greet["arguments"]) == ("good__greet", ["name", "[style]"])
    assert "memo://text" in {each["uri"] for each in found["resources"]}
    for told in ("good__echo", "/good__greet name [style]", "memo://text", "left out"):
        assert told in text.out
    assert sorted(path.name for path in home.iterdir()) == ["perdure.toml"]


async def test_a_server_at_an_address_is_tried_with_its_headers(
    tmp_path: Path, hostile: HostileMcp
) -> None:
    async with hostile.over_http(token="canary-71") as server:
        right = section(
            "good", f'url = "{server.url}"', 'headers = { Authorization = "Bearer canary-71" }'
        )
        wrong = right.replace("good", "bad").replace("canary-71", "canary-72")
        home = configured(tmp_path, right + wrong)
        good = await perdure(home, "mcp", "test", "good")
        bad = await perdure(home, "mcp", "test", "bad")

    assert good.code == 0, good
    assert "good__echo" in good.out
    assert bad.code == 1
    assert "401" in bad.err
    assert "headers" in bad.err
    assert "canary" not in good.out + good.err + bad.out + bad.err


async def test_a_name_that_is_not_configured_is_wrong_usage(tmp_path: Path) -> None:
    home = configured(tmp_path, section("time", 'command = ["x"]'))

    found = await perdure(home, "mcp", "test", "tine")

    assert found.code == 2
    assert "[tools.mcp.tine]" in found.err
    assert 'did you mean "time"?' in found.err


async def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    found = await refused(tmp_path, 'command = ["no-such-program-anywhere"]')

    assert "no-such-program-anywhere" in found.err


@pytest.mark.parametrize(
    ("mischief", "words"),
    [
        ("exits", "exit code"),
        ("silent", "2 s"),
        ("wrong_version", "version"),
        ("silent_lists", "2 s"),
        ("endless_line", ""),
        ("same_cursor", "list"),
    ],
)
async def test_a_program_that_is_no_good_server_is_said_to_be_none(
    tmp_path: Path, hostile: HostileMcp, mischief: str, words: str
) -> None:
    found = await refused(tmp_path, program(hostile.command(Mischief(mischief))), wait=2)

    assert words in found.err


async def test_the_last_words_of_a_program_that_ends_are_shown(
    tmp_path: Path, hostile: HostileMcp
) -> None:
    speaks = "import sys; print('the key is missing\\x1b[2J', file=sys.stderr); sys.exit(3)"

    found = await refused(tmp_path, program(["python3", "-c", speaks]))

    assert "3" in found.err
    assert "the key is missing" in found.out + found.err
    assert "\x1b" not in found.out + found.err


@pytest.mark.parametrize(
    ("mischief", "words"),
    [("unauthorized", "401"), ("unavailable", "500"), ("page", ""), ("redirects", "")],
)
async def test_an_address_that_is_no_good_server_is_said_to_be_none(
    tmp_path: Path, hostile: HostileMcp, mischief: str, words: str
) -> None:
    async with hostile.over_http(Mischief(mischief)) as server:
        found = await refused(tmp_path, f'url = "{server.url}"', wait=10)

    assert words in found.err


async def test_an_address_where_nobody_listens_is_said(tmp_path: Path) -> None:
    found = await refused(tmp_path, f'url = "http://127.0.0.1:{free_port()}/mcp"')

    assert "127.0.0.1" in found.err


async def test_a_failed_trial_is_told_to_programs_too(tmp_path: Path) -> None:
    home = configured(tmp_path, section("bad", 'command = ["no-such-program-anywhere"]'))

    found = await perdure(home, "mcp", "test", "bad", "--json")

    assert found.code == 1
    assert len(found.json["problems"]) == 1
    assert found.json["tools"] == []
