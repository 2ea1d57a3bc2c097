"""Checks the tool servers of a gateway with real servers: what starts when, what is offered, what
becomes of calls when a server breaks, and that people stay apart."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.app.children.environment import child_environment
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.secret import Secret
from perdure.ports.system.outgoing import DIRECT
from perdure.ports.turns.servers import ServerState
from perdure.ports.turns.tools import ToolCaller, ToolReply, ToolResult, Tools
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.peers.mcp.published_mcp import PublishedMcp
from perdure.tools.mcp.calls.traits import RepeatRule
from perdure.tools.mcp.servers.reaching import reach
from perdure.tools.mcp.servers.servers import McpServers
from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings
from perdure.tools.toolbox import Toolbox

ADA, BOB = PrincipalId("prn_ada"), PrincipalId("prn_bob")
FREELY = (RepeatRule("*", Repeat.PURE),)
IN_A_WHILE_S = 20
QUICK = ServerTimings(
    first_wait_s=15.0,
    again_wait_s=3.0,
    connect_s=10.0,
    answer_s=2.0,
    waits_s=20.0,
    rest_s=0.2,
    rest_max_s=0.4,
)


class House:
    """Holds tool servers, and asks them on behalf of people."""

    def __init__(self, children: LaunchedChildren) -> None:
        self.servers = McpServers(clock=SystemClock(), entropy=SystemEntropy())
        self._reach = partial(reach, children=children, outgoing=DIRECT)
        self._calls = 0

    def has(self, *settings: ServerSettings, timings: ServerTimings = QUICK) -> None:
        self.servers.replace(settings, self._reach, timings)

    async def tools(self, person: PrincipalId, *names: str) -> Tools:
        sources = [self.servers.source(name) for name in names or ("peer",)]
        return await Toolbox(sources=sources).current(person)

    async def names(self, person: PrincipalId = ADA, *names: str) -> set[str]:
        return {offer.name for offer in (await self.tools(person, *names)).offers()}

    async def calls(self, person: PrincipalId, tool: str, **arguments: Any) -> ToolResult:
        return await self.calls_with(await self.tools(person), person, tool, **arguments)

    async def calls_with(
        self, tools: Tools, person: PrincipalId, tool: str, **arguments: Any
    ) -> ToolResult:
        call = self.call(tools, tool, **arguments)
        return await tools.call(call, caller(person))

    def call(self, tools: Tools, tool: str, **arguments: Any) -> ToolCall:
        self._calls += 1
        text = json.dumps(arguments)
        repeat = tools.traits(tool, text).repeat
        return ToolCall(id=CallId(f"call_{self._calls}"), name=tool, arguments=text, repeat=repeat)

    async def says(self, person: PrincipalId, tool: str, **arguments: Any) -> str:
        result = await self.calls(person, tool, **arguments)
        assert result.ending is CallEnding.RETURNED, result.text
        return result.text

    def view(self) -> Any:
        (view,) = self.servers.views()
        return view


def caller(
    person: PrincipalId,
    *,
    can_ask: bool = True,
    reply: ToolReply | None = None,
    report: Callable[[str], None] = print,
) -> ToolCaller:
    return ToolCaller(
        principal=person,
        conversation=ConversationId("cnv_1"),
        session=SessionId("ses_1"),
        turn=TurnId("trn_1"),
        can_ask=can_ask,
        reply=reply,
        report=report,
    )


@pytest.fixture
async def house() -> AsyncIterator[House]:
    children = LaunchedChildren()
    house = House(children)
    yield house
    async with asyncio.timeout(IN_A_WHILE_S):
        await house.servers.close()
        await children.close()


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


def program(command: Sequence[str], **more: Any) -> ServerSettings:
    return ServerSettings(name="peer", command=tuple(command), **more)


def address(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(name="peer", url=url, **more)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(IN_A_WHILE_S):
        while not is_so():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def quickly(seconds: float = 1.0) -> AsyncIterator[None]:
    """Fail if the block takes longer. The machine may be busy, so seconds are many."""
    async with asyncio.timeout(seconds):
        yield


async def test_nothing_starts_before_it_is_needed(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    assert house.view().state is ServerState.NOT_STARTED
    (offer,) = house.servers.source("peer").offers()
    assert offer.name == "mcp.peer"
    assert offer.trouble.startswith("not started yet")
    assert house.view().links == 0

    assert "peer__echo" in await house.names()

    view = house.view()
    assert (view.state, view.links, view.why) == (ServerState.READY, 1, "")
    assert view.tools == len(house.servers.source("peer").offers())
    assert view.version.startswith("hostile 1")


async def test_a_tool_is_called(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    assert await house.says(ADA, "peer__echo", text="hello") == "hello"
    failed = await house.calls(ADA, "peer__fail", text="so sorry")
    assert (failed.ending, failed.text) == (CallEnding.FAILED, "so sorry")
    refused = await house.calls(ADA, "peer__refuse", text="not today")
    assert refused.ending is CallEnding.FAILED
    assert "not today" in refused.text
    picture = await house.calls(ADA, "peer__picture")
    assert [(each.name, each.mime) for each in picture.files] == [("picture-1.png", "image/png")]
    assert house.view().calls == 4
    assert house.view().failures == 0


async def test_nobody_is_asked_about_a_call_that_lacks_what_its_tool_requires(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    house.has(program(hostile.command(mischief)))
    tools = await house.tools(ADA)
    problem = tools.traits("peer__add", '{"b": 1}').problem
    assert problem.startswith("wrong arguments: it requires a as well; call peer__add again")
    assert tools.traits("peer__add", "").problem.startswith("wrong arguments: it requires a, b")
    assert tools.traits("peer__add", '{"a": null, "b": "1", "c": 2}').problem == ""
    assert mischief.ran() == []


async def test_the_tools_that_are_not_wanted_are_left_out(
    house: House, hostile: HostileMcp
) -> None:
    house.has(program(hostile.command(), takes=("a*", "!ask*")))
    assert await house.names() == {"peer__add"}


async def test_strange_names_are_all_callable(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command(Mischief("names", "bad_schema"))))
    names = await house.names()
    assert "peer__bad" not in names
    assert "the tool 'bad' is left out: its schema cannot be used" in house.servers.log("peer")
    assert all(len(name) <= 64 for name in names)
    assert len({name for name in names if name.startswith("peer__a")}) > 4
    assert await house.says(ADA, "peer__echo", text="still") == "still"


async def test_resources_are_listed_and_read(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    listed = await house.says(ADA, "peer__resources", action="list")
    assert "memo://text (text, text/plain)" in listed
    assert "the text" in await house.says(ADA, "peer__resources", action="read", uri="memo://text")
    missing = await house.calls(ADA, "peer__resources", action="read", uri="memo://nothing")
    assert missing.ending is CallEnding.FAILED
    assert "there is no memo://nothing" in missing.text
    traits = (await house.tools(ADA)).traits("peer__resources", '{"action":"read"}')
    assert "uri is missing" in traits.problem


async def test_prompts_are_known_and_asked(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    assert house.servers.known_prompts("peer") == ()
    names = [each.name for each in await house.servers.prompts("peer", ADA)]
    assert names == ["greet", "plain"]
    assert [each.name for each in house.servers.known_prompts("peer")] == names
    answer = await house.servers.prompt("peer", ADA, "greet", {"name": "Ada"})
    assert "Greet Ada." in str(answer.pieces)
    with pytest.raises(NotFound):
        await house.servers.prompts("other", ADA)


async def test_progress_is_told(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    told: list[str] = []
    call = house.call(tools, "peer__slow", seconds=0.2)
    await tools.call(call, caller(ADA, report=told.append))
    assert any("step" in each for each in told)


async def test_two_people_share_one_server_or_have_one_each(
    house: House, hostile: HostileMcp
) -> None:
    house.has(program(hostile.command(), is_shared=True))
    await house.says(ADA, "peer__note", text="Ada's canary")
    assert "Ada's canary" in await house.says(BOB, "peer__notes")
    assert house.view().links == 1

    house.has(program(hostile.command()))
    await house.says(ADA, "peer__note", text="Ada's canary")
    assert house.view().links == 1
    assert await house.names(BOB)
    assert house.view().links == 1, "a list alone starts no process"
    assert await house.says(BOB, "peer__notes") == "[]"
    assert "Ada's canary" in await house.says(ADA, "peer__notes")
    assert house.view().links == 2


@pytest.mark.parametrize("is_program", [True, False], ids=["program", "address"])
async def test_over_one_shared_link_everybody_gets_their_own_results(
    house: House, hostile: HostileMcp, *, is_program: bool
) -> None:
    async with hostile.over_http() as server:
        shared = {"is_shared": True}
        house.has(
            program(hostile.command(), **shared) if is_program else address(server.url, **shared)
        )
        tools = {person: await house.tools(person) for person in (ADA, BOB)}
        canaries = [(who, f"canary of {who} {n} " + "." * n) for n in range(60) for who in tools]
        results = await asyncio.gather(
            *(house.calls_with(tools[who], who, "peer__echo", text=text) for who, text in canaries)
        )
        assert [each.text for each in results] == [text for _, text in canaries]
        assert house.view().links == 1


async def test_each_person_has_a_folder_and_words_of_their_own(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    env = {"WHO": Secret("it is {person}")}
    house.has(program(hostile.command(), env=env, cwd=str(tmp_path / "of" / "{person}")))
    for person in (ADA, BOB):
        known = json.loads(await house.says(person, "peer__whoami"))
        assert known["environ"]["WHO"] == f"it is {person}"
        assert known["cwd"] == str(tmp_path / "of" / person)
        assert (tmp_path / "of" / person).stat().st_mode & 0o077 == 0


async def test_the_facts_of_one_person_are_never_those_of_another(
    house: House, new_peer: NewPeer, tmp_path: Path
) -> None:
    env = {"MEMORY_FILE_PATH": Secret(f"{tmp_path}/{{person}}.jsonl")}
    house.has(program(new_peer.published_mcp().memory(), env=env))
    secret = {"name": "Ada", "entityType": "person", "observations": ["canary-9120"]}
    await house.says(ADA, "peer__create_entities", entities=[secret])
    assert "canary-9120" in await house.says(ADA, "peer__read_graph")
    assert "canary-9120" not in await house.says(BOB, "peer__read_graph")
    assert "canary-9120" not in await house.says(BOB, "peer__search_nodes", query="canary")


def tried(name: str, published: PublishedMcp, folder: Path, site: str) -> dict[str, Any]:
    """Return how a server by others is started, and one call of it with what its answer holds."""
    repository = folder / "repository"
    match name:
        case "time":
            return {
                "command": published.time(),
                "tool": "get_current_time",
                "arguments": {"timezone": "UTC"},
                "expected": "UTC",
            }
        case "git":
            subprocess.run(["git", "init", "-q", str(repository)], check=True)
            return {
                "command": published.git(repository),
                "tool": "git_status",
                "arguments": {"repo_path": str(repository)},
                "expected": "commits",
            }
        case "filesystem":
            (folder / "a.txt").write_text("from a file")
            return {
                "command": published.filesystem(folder),
                "tool": "read_text_file",
                "arguments": {"path": str(folder / "a.txt")},
                "expected": "from a file",
            }
        case "fetch":
            return {
                "command": published.fetch(),
                "tool": "fetch",
                "arguments": {"url": site, "raw": True},
                "expected": "Welcome",
            }
        case _:
            return {
                "command": published.everything(),
                "tool": "get-sum",
                "arguments": {"a": 2, "b": 3},
                "expected": "5",
            }


@pytest.mark.parametrize("name", ["time", "git", "filesystem", "everything", "fetch"])
async def test_servers_by_others_are_used(
    house: House, new_peer: NewPeer, hostile: HostileMcp, tmp_path: Path, name: str
) -> None:
    async with hostile.over_http(Mischief("page")) as site:
        case = tried(name, new_peer.published_mcp(), tmp_path, site.url)
        house.has(program(case["command"]))
        said = await house.says(ADA, f"peer__{case['tool']}", **case["arguments"])
    assert case["expected"] in said


async def test_secrets_reach_the_server_that_they_are_for_and_nobody_else(
    house: House, hostile: HostileMcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "canary-88")
    settings = program(hostile.command(), env={"TOKEN": Secret("canary-77")})
    house.has(settings)
    known = json.loads(await house.says(ADA, "peer__whoami"))
    assert known["environ"]["TOKEN"] == "canary-77"
    assert set(known["environ"]) <= {"TOKEN", *child_environment({}), "LC_CTYPE"}
    assert "canary-88" not in str(known)
    assert "canary-77" not in repr(settings)
    assert "TOKEN" not in os.environ


async def test_a_server_that_dies_costs_one_call(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    house.has(program(hostile.command(mischief)))
    await house.says(ADA, "peer__echo", text="warm")
    died = await house.calls(ADA, "peer__die", when="after")
    assert died.ending is CallEnding.UNKNOWN
    assert "Do not repeat it" in died.text
    assert await house.says(ADA, "peer__echo", text="again") == "again"
    assert [each.tool for each in mischief.ran()] == ["echo", "die", "echo"]
    assert house.view().failures == 1


async def test_only_what_may_be_repeated_is_made_again(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    house.has(program(hostile.command(mischief), repeat=FREELY))
    await house.says(ADA, "peer__echo", text="warm")
    died = await house.calls(ADA, "peer__die", when="after")
    assert died.ending is CallEnding.FAILED
    assert "you may call again" in died.text
    assert [each.tool for each in mischief.ran()] == ["echo", "die", "die"]


async def test_a_server_that_dies_with_each_call_is_left_alone_for_a_while(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    timings = ServerTimings(rest_s=60.0)
    house.has(program(hostile.command(mischief)), timings=timings)
    tools = await house.tools(ADA)
    died = [await house.calls_with(tools, ADA, "peer__die", when="after") for _ in range(6)]
    assert "cannot be used now" in died[-1].text
    assert len(mischief.ran()) == 2
    # Somebody else's process has done nothing wrong.
    assert await house.says(BOB, "peer__echo", text="mine") == "mine"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("exits", "TOKEN is missing"),
        ("exits_later", ""),
        ("closes_output", ""),
        ("wrong_version", ""),
        ("silent", ""),
        ("silent_lists", ""),
        ("endless_pages", ""),
        ("same_cursor", ""),
        ("endless_line", ""),
    ],
)
async def test_a_broken_server_costs_its_tools_and_no_turn(
    house: House, hostile: HostileMcp, kind: str, why: str
) -> None:
    good = ServerSettings(name="good", command=tuple(hostile.command()))
    house.has(good)
    assert "good__echo" in await house.names(ADA, "good")
    # Only of a server that says nothing does the connection run out of time. A process may need
    # seconds to start on a busy machine, and to say why it ends.
    connect_s = 1.5 if kind.startswith("silent") else 30.0
    timings = ServerTimings(first_wait_s=2.0, again_wait_s=0.5, connect_s=connect_s, answer_s=1.0)
    broken = program(hostile.command(Mischief(kind)))
    house.has(broken, good, timings=timings)
    async with asyncio.timeout(10):
        found = await house.names(ADA, "peer", "good")
    assert "good__echo" in found
    assert not any(name.startswith("peer__") for name in found)

    await until(lambda: house.servers.views()[0].state is ServerState.DOWN)
    (offer,) = house.servers.source("peer").offers()
    assert offer.trouble.startswith("it is down: ")
    assert why in house.servers.views()[0].why
    assert why in house.servers.log("peer")
    assert house.servers.views()[1].state is ServerState.READY


async def test_only_the_first_turn_waits_long_for_a_server_that_says_nothing(
    house: House, hostile: HostileMcp
) -> None:
    timings = ServerTimings(first_wait_s=2.0, again_wait_s=0.2, connect_s=30.0)
    house.has(program(hostile.command(Mischief("silent"))), timings=timings)
    took = []
    for person in (ADA, BOB, ADA):
        began = time.monotonic()
        assert await house.names(person) == set()
        took.append(time.monotonic() - began)
    assert took[0] >= 2.0
    assert max(took[1:]) < 1.5
    assert house.view().state is ServerState.STARTING
    (offer,) = house.servers.source("peer").offers()
    assert offer.trouble == "it is being started"


async def test_a_slow_start_is_waited_for_once_and_then_used(
    house: House, hostile: HostileMcp
) -> None:
    slow = ["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *hostile.command()]
    timings = ServerTimings(first_wait_s=0.2, again_wait_s=0.1)
    house.has(program(slow), timings=timings)
    async with asyncio.TaskGroup() as tasks:
        looks = [tasks.create_task(house.names(each)) for each in (ADA, BOB)]
    assert [each.result() for each in looks] == [set(), set()]
    await until(lambda: house.view().state is ServerState.READY)
    assert "peer__echo" in await house.names()
    assert house.view().links <= 2


async def test_a_program_that_is_missing_says_so(house: House) -> None:
    house.has(program(["/nowhere/at-all"]))
    assert await house.names() == set()
    assert "the program cannot be started" in house.view().why
    called = await house.calls(ADA, "peer__echo")
    assert called.ending is CallEnding.FAILED


async def test_the_pause_after_failures_grows_and_nobody_waits_meanwhile(
    house: House, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    script = f"echo x >> {starts}; exit 1"
    house.has(program(["/bin/sh", "-c", script]), timings=ServerTimings(rest_s=60.0))
    for _ in range(2):
        assert await house.names() == set()
    began = time.monotonic()
    for _ in range(20):
        assert await house.names() == set()
    # One that waited would wait for two seconds each time.
    assert time.monotonic() - began < 10
    assert len(starts.read_text().splitlines()) == 2
    assert "it is tried again in" in house.view().why


async def test_a_server_that_comes_back_is_used_again(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    flag = tmp_path / "healthy"
    command = ["/bin/sh", "-c", f'test -e {flag} || exit 1; exec "$@"', "sh", *hostile.command()]
    house.has(program(command))
    for _ in range(3):
        assert await house.names() == set()
    flag.touch()
    async with asyncio.timeout(IN_A_WHILE_S):
        while "peer__echo" not in await house.names():
            await asyncio.sleep(0.1)
    assert house.view().state is ServerState.READY


async def test_a_changed_list_is_seen_by_the_next_turn(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    before = await house.tools(ADA)
    assert await house.says(BOB, "peer__echo", text="x") == "x"
    await house.calls_with(before, ADA, "peer__change")

    async with asyncio.timeout(IN_A_WHILE_S):
        while "peer__added" not in await house.names(ADA):
            await asyncio.sleep(0.05)

    assert before.has("peer__echo"), "a turn keeps the tools that it began with"
    gone = await house.calls_with(before, ADA, "peer__echo", text="x")
    assert gone.ending is CallEnding.FAILED
    assert "there is no tool echo" in gone.text
    assert "peer__echo" in await house.names(BOB), "the list of one person is not another's"


@pytest.mark.parametrize(
    "kind", ["restless", "floods_notices", "floods_errors", "garbage", "pages"]
)
async def test_a_noisy_server_is_used_all_the_same(
    house: House, hostile: HostileMcp, kind: str
) -> None:
    house.has(program(hostile.command(Mischief(kind, amount=5_000))))
    first = await house.tools(ADA)
    assert await house.says(ADA, "peer__echo", text="clear") == "clear"
    assert (await house.tools(ADA)).schemas() == first.schemas()


async def test_equal_lists_keep_their_tools(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    box = Toolbox(sources=[house.servers.source("peer")])
    first = await box.current(ADA)
    await house.calls(ADA, "peer__die", when="before")
    await house.says(ADA, "peer__echo", text="x")
    assert await box.current(BOB) is first


async def test_an_idle_link_of_a_person_is_closed(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()), timings=ServerTimings(idle_s=0.3))
    known = json.loads(await house.says(ADA, "peer__whoami"))
    await until(lambda: house.view().links == 0)
    await until(lambda: not psutil.pid_exists(known["pid"]))
    assert "peer__echo" in await house.names()
    assert house.view().links == 0
    assert await house.says(ADA, "peer__echo", text="x") == "x"


async def test_the_link_that_rested_longest_makes_room(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    house.has(program(hostile.command()), timings=ServerTimings(links_max=2))
    await house.says(ADA, "peer__note", text="kept")
    await house.says(BOB, "peer__note", text="lost")
    await house.says(ADA, "peer__echo", text="x")
    await house.says(PrincipalId("prn_eve"), "peer__echo", text="x")
    assert house.view().links == 2
    assert "kept" in await house.says(ADA, "peer__notes")

    go = tmp_path / "go"
    tools = await house.tools(ADA)
    async with asyncio.TaskGroup() as tasks:
        holds = [
            tasks.create_task(house.calls_with(tools, each, "peer__hold", path=str(go)))
            for each in (ADA, BOB)
        ]
        await until(lambda: house.view().calls >= 7 and house.view().links == 2)
        await asyncio.sleep(0.3)
        full = await house.calls_with(tools, PrincipalId("prn_eve"), "peer__echo", text="x")
        go.touch()
    assert "too many people" in full.text
    assert [each.result().text for each in holds] == ["released", "released"]


async def test_a_server_over_http_is_called_and_found_again(
    house: House, hostile: HostileMcp
) -> None:
    async with hostile.over_http(token="let-me-in") as server:
        headers = {"Authorization": Secret("Bearer let-me-in")}
        house.has(address(server.url, headers=headers, is_shared=True))
        assert await house.says(ADA, "peer__echo", text="over") == "over"
        await house.calls(ADA, "peer__forget")
        assert await house.says(BOB, "peer__echo", text="again") == "again"
    house.has(address(server.url))
    assert await house.names() == set()
    assert house.view().state is ServerState.DOWN


async def test_an_idle_link_that_has_died_is_found_out(house: House, hostile: HostileMcp) -> None:
    timings = ServerTimings(ping_s=0.2, answer_s=1.0)
    async with hostile.over_http() as server:
        house.has(address(server.url, is_shared=True), timings=timings)
        await house.says(ADA, "peer__echo", text="x")
        await asyncio.sleep(0.7)
        assert house.view().links == 1, "it answers, so it stays"
    await until(lambda: house.view().links == 0)


@pytest.mark.parametrize("kind", ["unauthorized", "unavailable", "redirects", "page", "forgetful"])
async def test_an_address_that_is_no_server_costs_its_tools(
    house: House, hostile: HostileMcp, kind: str
) -> None:
    async with hostile.over_http(Mischief(kind)) as server:
        house.has(address(server.url))
        assert await house.names() == set()
        assert house.view().why.startswith("it is down: ")


async def test_a_server_asks_and_a_person_answers(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    call = house.call(tools, "peer__ask", message="Which colour?")
    asked = await tools.call(call, caller(ADA))
    assert asked.question is not None
    assert "> Which colour?" in asked.question.text

    wrong = ToolReply(answer="colour: blue", state=asked.question.state)
    again = await tools.call(call, caller(ADA, reply=wrong))
    assert again.question is not None
    assert "colour must be one of red, green" in again.question.text

    right = ToolReply(answer="colour: red\nnumber: 3", state=again.question.state)
    ended = await tools.call(call, caller(ADA, reply=right))
    given = json.loads(ended.text)
    assert given == {"action": "accept", "content": {"colour": "red", "number": 3}}


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (ToolReply(answer="Decline", state=""), "decline"),
        (ToolReply(answer="", state="", reason="deadline"), "cancel"),
        (None, "decline"),
    ],
)
async def test_a_server_is_told_no(
    house: House, hostile: HostileMcp, reply: ToolReply | None, action: str
) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    call = house.call(tools, "peer__ask", message="Which colour?")
    if reply is None:
        ended = await tools.call(call, caller(ADA, can_ask=False))
    else:
        asked = await tools.call(call, caller(ADA))
        assert asked.question is not None
        said = ToolReply(answer=reply.answer, state=asked.question.state, reason=reply.reason)
        ended = await tools.call(call, caller(ADA, reply=said))
    assert json.loads(ended.text)["action"] == action


async def test_a_question_outlives_a_server_that_keeps_nothing(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief("modern", calls=tmp_path / "calls")
    house.has(program(hostile.command(mischief)))
    tools = await house.tools(ADA)
    call = house.call(tools, "peer__ask", message="Which colour?")
    asked = await tools.call(call, caller(ADA))
    assert asked.question is not None
    await house.servers.close()

    house.servers = McpServers(clock=SystemClock(), entropy=SystemEntropy())
    house.has(program(hostile.command(mischief)))
    reply = ToolReply(answer="colour: green", state=asked.question.state)
    ended = await (await house.tools(ADA)).call(call, caller(ADA, reply=reply))
    assert json.loads(ended.text) == {"action": "accept", "content": {"colour": "green"}}
    assert [each.tool for each in mischief.ran()] == ["ask"]


async def test_a_question_is_lost_with_a_server_that_waited(
    house: House, hostile: HostileMcp
) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    call = house.call(tools, "peer__ask", message="Which colour?")
    asked = await tools.call(call, caller(ADA))
    assert asked.question is not None
    await house.calls_with(tools, ADA, "peer__die", when="before")
    reply = ToolReply(answer="colour: green", state=asked.question.state)
    ended = await tools.call(call, caller(ADA, reply=reply))
    assert ended.ending is CallEnding.UNKNOWN


async def test_the_questions_of_two_people_are_kept_apart(
    house: House, hostile: HostileMcp
) -> None:
    async with hostile.over_http() as server:
        house.has(address(server.url, is_shared=True))
        tools = await house.tools(ADA)
        calls = {each: house.call(tools, "peer__ask", message=each) for each in (ADA, BOB)}
        asked = {each: await tools.call(calls[each], caller(each)) for each in (ADA, BOB)}
        for person, colour in ((BOB, "green"), (ADA, "red")):
            question = asked[person].question
            assert question is not None
            assert f"> {person}" in question.text
            reply = ToolReply(answer=f"colour: {colour}", state=question.state)
            ended = await tools.call(calls[person], caller(person, reply=reply))
            assert json.loads(ended.text)["content"] == {"colour": colour}


async def test_a_question_that_was_given_up_is_in_nobodys_way(
    house: House, hostile: HostileMcp
) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    for _ in range(2):
        given_up = await tools.call(house.call(tools, "peer__ask", message="?"), caller(ADA))
        assert given_up.question is not None
    call = house.call(tools, "peer__ask", message="the last")
    asked = await tools.call(call, caller(ADA))
    assert asked.question is not None
    assert "> the last" in asked.question.text
    reply = ToolReply(answer="colour: red", state=asked.question.state)
    assert '"red"' in (await tools.call(call, caller(ADA, reply=reply))).text


async def test_nobody_is_asked_for_somebody_else(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command(), is_shared=True))
    tools = await house.tools(ADA)
    first = await tools.call(house.call(tools, "peer__ask", message="Ada?"), caller(ADA))
    second = await tools.call(house.call(tools, "peer__ask", message="Bob?"), caller(BOB))
    assert first.question is not None
    assert "> Ada?" in first.question.text
    # Over its one output the server does not say whose call it asks for.
    assert second.question is None
    assert "decline" in second.text


async def test_a_new_configuration_ends_what_it_replaces(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    kept = ServerSettings(name="kept", command=tuple(hostile.command()))
    house.has(program(hostile.command()), kept)
    go = tmp_path / "go"
    tools = await house.tools(ADA, "peer", "kept")
    await house.calls_with(tools, ADA, "kept__note", text="kept")
    own = json.loads((await house.calls_with(tools, ADA, "peer__whoami")).text)
    async with asyncio.TaskGroup() as tasks:
        hold = tasks.create_task(house.calls_with(tools, ADA, "peer__hold", path=str(go)))
        await until(lambda: house.servers.views()[0].calls == 2)
        await asyncio.sleep(0.3)
        house.has(program(hostile.command(), timeout_s=7.0), kept)
        assert psutil.pid_exists(own["pid"])
        go.touch()
    assert hold.result().text == "released"
    await until(lambda: not psutil.pid_exists(own["pid"]))
    late = await house.calls_with(tools, ADA, "peer__echo", text="x")
    assert "was changed or removed in the configuration" in late.text
    assert "kept" in (await house.calls_with(tools, ADA, "kept__notes")).text
    assert "peer__echo" in await house.names()


async def test_closing_ends_every_process(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command(Mischief("refuses_to_end"))))
    pids = [json.loads(await house.says(each, "peer__whoami"))["pid"] for each in (ADA, BOB)]
    async with asyncio.timeout(15):
        await house.servers.close()
    await until(lambda: not any(map(psutil.pid_exists, pids)))
    with pytest.raises(Rejected):
        house.servers.log("nobody")


async def test_closing_ends_a_server_that_is_just_being_started(
    house: House, hostile: HostileMcp
) -> None:
    timings = ServerTimings(first_wait_s=0.3, connect_s=30.0)
    house.has(program(hostile.command(Mischief("silent"))), timings=timings)
    before = set(psutil.Process().children(recursive=True))
    assert await house.names() == set()
    started = set(psutil.Process().children(recursive=True)) - before
    assert started
    async with asyncio.timeout(15):
        await house.servers.close()
    await until(lambda: not any(each.is_running() for each in started))
    assert await house.names() == set()


async def test_what_is_too_much_is_refused_below(house: House, hostile: HostileMcp) -> None:
    house.has(program(hostile.command()))
    huge = await house.calls(ADA, "peer__big", bytes=100_000_000)
    assert huge.ending is CallEnding.UNKNOWN
    assert await house.says(ADA, "peer__echo", text="after") == "after"
    long = await house.says(ADA, "peer__big", bytes=2_000_000)
    assert len(long) == 2_000_000


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("malformed", {}), ("lie", {}), ("sample", {"prompt": "?"}), ("roots", {})],
)
async def test_an_odd_answer_is_told(
    house: House, hostile: HostileMcp, tool: str, arguments: dict[str, Any]
) -> None:
    house.has(program(hostile.command()))
    result = await house.calls(ADA, f"peer__{tool}", **arguments)
    assert result.text
    assert await house.says(ADA, "peer__echo", text="after") == "after"


async def test_a_cancelled_call_is_cancelled_at_the_server(
    house: House, hostile: HostileMcp, tmp_path: Path
) -> None:
    house.has(program(hostile.command()))
    tools = await house.tools(ADA)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await house.calls_with(tools, ADA, "peer__hold", path=str(tmp_path / "never"))
    assert await house.says(ADA, "peer__echo", text="after") == "after"
    assert house.view().links == 1
