"""Checks that the tool servers of the tests speak MCP, by the client of the official package.

What a peer does wrong on purpose is checked here too, as far as that client shows it, so that a
gateway's test never passes because the peer was harmless.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import psutil
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.streamable_http import streamable_http_client

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


def parameters(command: list[str], **environ: str) -> StdioServerParameters:
    # What is not UTF-8 would end the package's reader, without a word to those who wait.
    return StdioServerParameters(
        command=command[0], args=command[1:], env=environ, encoding_error_handler="replace"
    )


@asynccontextmanager
async def connected(
    hostile: HostileMcp, mischief: Mischief | None = None, **options: Any
) -> AsyncIterator[Client]:
    """Connect to the hostile server over standard input and output."""
    server = parameters(hostile.command(mischief))
    async with Client(server, cache=None, mode="legacy", **options) as client:
        yield client


@asynccontextmanager
async def over_http(
    hostile: HostileMcp, mischief: Mischief | None = None, **options: Any
) -> AsyncIterator[Client]:
    async with (
        hostile.over_http(mischief) as server,
        Client(server.url, cache=None, mode="legacy", **options) as client,
    ):
        yield client


both = pytest.mark.parametrize("connect", [connected, over_http], ids=["stdio", "http"])


async def said(client: Client, name: str, **arguments: object) -> str:
    """Call a tool, and return its text."""
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


@both
async def test_it_offers_tools_prompts_and_resources(connect: Any, hostile: HostileMcp) -> None:
    async with connect(hostile) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert await said(client, "echo", text="héllo") == "héllo"
        assert await said(client, "add", a=2, b=3) == "5"
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        greeting = await client.get_prompt("greet", {"name": "Eva"})
        resources = [str(each.uri) for each in (await client.list_resources()).resources]
        (text,) = (await client.read_resource("memo://text")).contents
    assert tools["echo"].annotations is not None
    assert tools["echo"].annotations.read_only_hint is True
    assert tools["note"].annotations is None
    assert prompts == ["plain", "greet"]
    assert greeting.messages[0].content == mcp_types.TextContent(type="text", text="Greet Eva.")
    assert resources == ["memo://text", "memo://picture"]
    assert isinstance(text, mcp_types.TextResourceContents)
    assert text.text == "the text"


@both
async def test_its_results_have_every_shape(connect: Any, hostile: HostileMcp) -> None:
    async with connect(hostile) as client:
        failed = await client.call_tool("fail", {"text": "no"})
        (picture,) = (await client.call_tool("picture")).content
        papers = [each.type for each in (await client.call_tool("papers")).content]
        structured = await client.call_tool("structured")
        with pytest.raises(RuntimeError, match="structured content"):
            await client.call_tool("lie")
        with pytest.raises(ValueError, match="content"):
            await client.call_tool("malformed")
        with pytest.raises(MCPError, match="there is no tool nothing"):
            await client.call_tool("nothing")
        with pytest.raises(MCPError, match="not today"):
            await client.call_tool("refuse", {"text": "not today"})
    assert failed.is_error
    assert picture.type == "image"
    assert papers == ["resource", "resource_link"]
    assert structured.structured_content == {"city": "Bern", "degrees": 21}


@both
async def test_it_asks_the_person_and_the_model(connect: Any, hostile: HostileMcp) -> None:
    asked: list[mcp_types.ElicitRequestParams] = []

    async def answer(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        asked.append(params)
        return mcp_types.ElicitResult(action="accept", content={"colour": "red"})

    async def think(
        context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult:
        content = mcp_types.TextContent(type="text", text="thought")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="m")

    asks = {"elicitation_callback": answer, "sampling_callback": think}
    async with connect(hostile, **asks) as client:
        colour = json.loads(await said(client, "ask", message="Which?"))
        await said(client, "ask_to_visit", url="https://example.org/login")
        thought = json.loads(await said(client, "sample", prompt="?"))
    async with connect(hostile) as client:
        refused = json.loads(await said(client, "sample", prompt="?"))
    assert colour == {"action": "accept", "content": {"colour": "red"}}
    assert [each.mode for each in asked] == ["form", "url"]
    assert thought["content"]["text"] == "thought"
    assert refused["error"]["message"] == "Sampling not supported"


@both
async def test_it_tells_progress(connect: Any, hostile: HostileMcp) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with connect(hostile) as client:
        await client.call_tool("slow", {"seconds": 0.2}, progress_callback=hear)
    assert sorted(told) == [(step, 10, f"step {step}") for step in range(1, 11)]


@both
@pytest.mark.parametrize("tool", ["slow", "stubborn"])
async def test_a_cancelled_call_leaves_the_connection_usable(
    connect: Any, hostile: HostileMcp, tool: str
) -> None:
    async with connect(hostile) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(tool, {"seconds": 0.6}, read_timeout_seconds=0.2)
        assert caught.value.code == mcp_types.REQUEST_TIMEOUT
        assert await said(client, "echo", text="after") == "after"
        await asyncio.sleep(0.6)
        assert await said(client, "echo", text="later") == "later"


@both
async def test_it_changes_its_tools_in_a_call(connect: Any, hostile: HostileMcp) -> None:
    heard = asyncio.Event()

    async def take(message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            heard.set()

    async with connect(hostile, message_handler=take) as client:
        assert await said(client, "change") == "changed"
        async with asyncio.timeout(5):
            await heard.wait()
        names = {each.name for each in (await client.list_tools()).tools}
        assert "added" in names
        assert "echo" not in names
        assert await said(client, "added") == "added"


async def test_it_speaks_the_modern_version(hostile: HostileMcp, tmp_path: Path) -> None:
    async def answer(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="decline")

    mischief = Mischief("modern", calls=tmp_path / "calls")
    server = parameters(hostile.command(mischief))
    async with Client(server, cache=None, elicitation_callback=answer) as client:
        assert client.protocol_version == "2026-07-28"
        assert "echo" in {each.name for each in (await client.list_tools()).tools}
        assert json.loads(await said(client, "ask", message="Which?")) == {"action": "decline"}
        first = await client.session.call_tool("ask", {"message": "?"}, allow_input_required=True)
        assert isinstance(first, mcp_types.InputRequiredResult)
        async with client.listen(tools_list_changed=True) as events, asyncio.timeout(5):
            assert await said(client, "change") == "changed"
            assert await anext(events) is not None
        assert (await client.get_prompt("plain")).messages
    assert [each.tool for each in mischief.ran()] == ["ask", "change"]


async def test_it_tells_what_it_knows(hostile: HostileMcp, tmp_path: Path) -> None:
    command = hostile.command()
    server = StdioServerParameters(
        command=command[0], args=command[1:], env={"CANARY": "yellow"}, cwd=tmp_path
    )
    async with Client(server, cache=None, mode="legacy") as client:
        known = json.loads(await said(client, "whoami"))
    assert known["environ"]["CANARY"] == "yellow"
    assert known["cwd"] == str(tmp_path)
    assert {0, 1, 2} <= set(known["files"])


def test_it_starts_quickly(hostile: HostileMcp) -> None:
    # The processor's time, because the machine may be busy with other tests.
    before = os.times()
    for _ in range(5):
        subprocess.run(hostile.command(), input=b"", check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    assert (spent - before.children_user - before.children_system) / 5 < 0.1


async def test_calls_that_really_ran_are_on_disk(hostile: HostileMcp, tmp_path: Path) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    for when in ("before", "after"):
        async with connected(hostile, mischief) as client:
            await said(client, "note", text=when)
            with pytest.raises(MCPError) as caught:
                await client.call_tool("die", {"when": when})
            assert caught.value.code == mcp_types.CONNECTION_CLOSED
    ran = [(each.tool, each.arguments) for each in mischief.ran()]
    assert ran == [
        ("note", {"text": "before"}),
        ("note", {"text": "after"}),
        ("die", {"when": "after"}),
    ]


async def test_a_call_waits_for_a_file(hostile: HostileMcp, tmp_path: Path) -> None:
    path = tmp_path / "go"
    async with connected(hostile) as client, asyncio.TaskGroup() as tasks:
        call = tasks.create_task(said(client, "hold", path=str(path)))
        assert await said(client, "echo", text="beside") == "beside"
        assert not call.done()
        path.touch()
        assert await call == "released"


async def test_it_keeps_what_people_tell_it(hostile: HostileMcp) -> None:
    async with connected(hostile) as client:
        await said(client, "note", text="one person's")
        await said(client, "note", text="another's")
        assert json.loads(await said(client, "notes")) == ["one person's", "another's"]
        assert await said(client, "wipe") == "wiped"
        assert json.loads(await said(client, "notes")) == []
        assert await said(client, "hog", megabytes=1) == "1000000"


async def test_a_detached_child_outlives_it(hostile: HostileMcp) -> None:
    async with connected(hostile) as client:
        child = psutil.Process(int(await said(client, "spawn", seconds=30, detached=True)))
        own = json.loads(await said(client, "whoami"))
    try:
        assert child.is_running()
        assert os.getpgid(child.pid) != own["group"]
        assert not psutil.pid_exists(own["pid"])
    finally:
        child.kill()


@pytest.mark.parametrize("kind", ["garbage", "floods_errors", "floods_notices", "restless"])
async def test_noise_loses_no_answer(hostile: HostileMcp, kind: str, tmp_path: Path) -> None:
    server = parameters(hostile.command(Mischief(kind, amount=2000)))
    with (tmp_path / "errors").open("w") as errors:
        transport = stdio_client(server, errlog=errors)
        async with Client(transport, cache=None, mode="legacy") as client:
            assert len((await client.list_tools()).tools) > 20
            assert await said(client, "echo", text="clear") == "clear"
    noise = (tmp_path / "errors").stat().st_size
    assert (noise >= 2000 * 1024) is (kind == "floods_errors")


def test_a_server_that_ends_at_once_says_why(hostile: HostileMcp) -> None:
    ended = subprocess.run(hostile.command(Mischief("exits")), capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"TOKEN is missing" in ended.stderr


@pytest.mark.parametrize(("kind", "size"), [("floods_output", 300 * 1024), ("endless_line", 300)])
def test_a_flood_has_the_size_that_was_asked_for(hostile: HostileMcp, kind: str, size: int) -> None:
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    flooded = subprocess.run(
        hostile.command(Mischief(kind, amount=300)),
        input=b"".join(json.dumps(line).encode() + b"\n" for line in lines),
        capture_output=True,
        check=True,
    )
    _, _, flood = flooded.stdout.partition(b"\n")
    assert len(flood) == size


@pytest.mark.parametrize(
    "kind", ["silent", "silent_lists", "exits", "exits_later", "closes_output", "wrong_version"]
)
async def test_a_dead_end_gives_no_list(hostile: HostileMcp, kind: str) -> None:
    with pytest.raises((MCPError, BaseExceptionGroup)):
        async with connected(hostile, Mischief(kind), read_timeout_seconds=0.5) as client:
            await client.list_tools()


def test_it_refuses_to_end(hostile: HostileMcp) -> None:
    command = hostile.command(Mischief("refuses_to_end"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.close()
        assert b"result" in process.stdout.readline()
        process.terminate()
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("kind", "cursors"),
    [("same_cursor", ["1", "1"]), ("endless_pages", ["1", "2"]), ("pages", ["1", "2"])],
)
async def test_pages_lead_on(hostile: HostileMcp, kind: str, cursors: list[str]) -> None:
    async with connected(hostile, Mischief(kind)) as client:
        first = await client.list_tools()
        second = await client.list_tools(cursor=first.next_cursor)
    assert [first.next_cursor, second.next_cursor] == cursors
    assert (first.tools == second.tools) is (kind != "pages")


async def test_lists_can_be_strange(hostile: HostileMcp) -> None:
    async with connected(hostile, Mischief("names", "bad_schema", "claims_harmless")) as client:
        tools = (await client.list_tools()).tools
    names = {each.name for each in tools}
    assert {"a.b", "a_b", "l" * 128, "l" * 127 + "m", "Ünïcode", "bad"} <= names
    assert all(each.annotations and each.annotations.read_only_hint for each in tools)
    async with connected(hostile, Mischief("schema_no_object")) as client:
        with pytest.raises(ValueError, match="inputSchema"):
            await client.list_tools()


async def test_a_schema_can_be_huge(hostile: HostileMcp) -> None:
    async with connected(hostile, Mischief("big_schema")) as client:
        (huge,) = [each for each in (await client.list_tools()).tools if each.name == "huge"]
        assert len(json.dumps(huge.input_schema)) > 10_000_000
        assert len(await said(client, "big", bytes=5_000_000)) == 5_000_000


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unauthorized", "Server returned an error response"),
        ("unavailable", "Server returned an error response"),
        ("redirects", "not followed"),
        ("page", "Unexpected content type"),
        ("forgetful", "Session terminated"),
        ("accepts_requests", "202 Accepted"),
        ("dies_without_ids", "."),
    ],
)
async def test_http_can_go_wrong(
    hostile: HostileMcp, kind: str, words: str, tmp_path: Path
) -> None:
    mischief = Mischief(kind, calls=tmp_path / "calls")
    with pytest.raises((MCPError, BaseExceptionGroup)) as caught:
        async with over_http(hostile, mischief) as client, asyncio.timeout(5):
            await client.call_tool("echo", {"text": "lost"})
    assert caught.group_contains(MCPError, match=words) or words in str(caught.value)
    ran = [each.tool for each in mischief.ran()]
    assert ran == (["echo"] if kind in {"accepts_requests", "dies_without_ids"} else [])


async def test_http_forgets_sessions_and_answers_plainly(hostile: HostileMcp) -> None:
    async with over_http(hostile, Mischief("plain")) as client:
        await client.list_tools()
        assert await said(client, "echo", text="plain") == "plain"
        assert await said(client, "forget") == "forgotten"
        with pytest.raises(MCPError, match="Session terminated"):
            await client.list_tools()
    async with over_http(hostile, Mischief("bad_request")) as client:
        await client.list_tools()
        assert await said(client, "forget") == "forgotten"
        with pytest.raises(MCPError, match="error response"):
            await client.list_tools()


async def test_http_wants_its_token_and_shows_headers(hostile: HostileMcp) -> None:
    async with hostile.over_http(token="let-me-in") as server:
        headers = {"Authorization": "Bearer let-me-in", "X-Canary": "yellow"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(server.url, http_client=http)
            async with Client(transport, cache=None, mode="legacy") as client:
                known = json.loads(await said(client, "whoami"))
        with pytest.raises((MCPError, BaseExceptionGroup)):
            async with Client(server.url, mode="legacy"):
                pass
    assert known["headers"]["x-canary"] == "yellow"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make an empty repository."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "repository")], check=True)
    return tmp_path / "repository"


@pytest.mark.parametrize("name", ["time", "git", "everything", "filesystem", "memory"])
async def test_servers_by_others_answer(
    new_peer: NewPeer, tmp_path: Path, repository: Path, name: str
) -> None:
    published = new_peer.published_mcp()
    (tmp_path / "a.txt").write_text("from a file")
    cases: dict[str, tuple[list[str], str, dict[str, object], str]] = {
        "time": (published.time(), "get_current_time", {"timezone": "UTC"}, "UTC"),
        "git": (published.git(repository), "git_status", {"repo_path": str(repository)}, "commits"),
        "everything": (published.everything(), "get-sum", {"a": 2, "b": 3}, "5"),
        "filesystem": (
            published.filesystem(tmp_path),
            "read_text_file",
            {"path": str(tmp_path / "a.txt")},
            "from a file",
        ),
        "memory": (published.memory(), "read_graph", {}, "entities"),
    }
    command, tool, arguments, expected = cases[name]
    server = parameters(command, MEMORY_FILE_PATH=str(tmp_path / "facts.json"))
    async with Client(server, cache=None) as client:
        assert expected in await said(client, tool, **arguments)


async def test_the_server_that_fetches_reads_a_page(new_peer: NewPeer, hostile: HostileMcp) -> None:
    async with (
        hostile.over_http(Mischief("page")) as site,
        Client(parameters(new_peer.published_mcp().fetch()), cache=None) as client,
    ):
        assert "Welcome" in await said(client, "fetch", url=site.url, raw=True)


async def test_everything_answers_over_http(new_peer: NewPeer) -> None:
    async with (
        new_peer.everything_mcp() as server,
        Client(server.url, cache=None, mode="legacy") as client,
    ):
        assert "hello" in await said(client, "echo", message="hello")
