"""Checks what a link makes of bad tool servers: each ends in clear words, in bounded time and
space, and harms nobody else."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_links import KINDS, Kind, Links, answer_of, said, unheard, until

from perdure.app.children.children import LaunchedChildren
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.ports.system.children import ChildProgram
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.testkit.peers.peer import free_port
from perdure.tools.mcp.connecting import connect_address, connect_program
from perdure.tools.mcp.link import LinkTerms

every_kind = pytest.mark.parametrize("kind", KINDS)
piped = pytest.mark.parametrize("kind", ["stdio", "modern"])


@pytest.fixture
async def links(new_peer: NewPeer) -> AsyncIterator[Links]:
    children = LaunchedChildren()
    yield Links(new_peer.hostile_mcp(), children)
    await children.close()
    # Whatever happened, nothing goes on behind the links.
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@pytest.mark.parametrize(
    ("kind", "mischief", "error", "words"),
    [
        ("stdio", "exits", Transient, r"it ended with exit code 1; its last words: .*TOKEN is mis"),
        ("stdio", "silent", Transient, "did not get ready within 0.5 seconds"),
        ("http", "silent", Transient, "did not get ready within 0.5 seconds"),
        ("stdio", "wrong_version", Permanent, "Unsupported protocol version .*1999-01-01"),
        ("http", "wrong_version", Permanent, "Unsupported protocol version .*1999-01-01"),
        ("http", "unauthorized", Rejected, "HTTP 401: it asks for a token; check the headers"),
        ("http", "unavailable", Transient, "HTTP 500"),
        ("http", "redirects", Rejected, "sends us to http://127.0.0.2:9/…; if that is"),
        ("http", "page", Permanent, "no tool server: it sends text/html; check the url"),
    ],
)
async def test_what_cannot_be_connected_says_why(
    links: Links, kind: Kind, mischief: str, error: type[PerdureError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        async with links(kind, mischief, connect_s=0.5 if mischief == "silent" else 30.0):
            pass
    assert type(caught.value) is error
    assert links.children._running == set()


async def test_an_address_where_nobody_listens_is_told(links: Links) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    with pytest.raises(Transient, match="cannot be reached: ClientConnector"):
        await connect_address(url, {}, outgoing=DIRECT, terms=LinkTerms())


async def test_a_program_that_does_not_exist_is_told(links: Links) -> None:
    program = ChildProgram(argv=("no-such-server",))
    with pytest.raises(Rejected, match="there is no program 'no-such-server'"):
        await connect_program(program, children=links.children, terms=LinkTerms())


async def test_a_connect_that_is_cancelled_leaves_nothing_behind(links: Links) -> None:
    async def connect() -> None:
        async with links("stdio", "silent", "refuses_to_end"):
            pass

    connecting = asyncio.ensure_future(connect())
    await until(lambda: bool(links.children._running))
    await asyncio.sleep(0.1)
    connecting.cancel()
    await until(connecting.done, within_s=15)
    assert connecting.cancelled()
    assert links.children._running == set()


async def test_closing_ends_what_refuses_to_end(links: Links) -> None:
    async with links("stdio", "refuses_to_end") as link:
        assert await said(link, "echo", text="here") == "here"
        began = time.monotonic()
        await link.close()
        assert time.monotonic() - began < 8
    assert links.children._running == set()
    with pytest.raises(Transient, match="has ended: the server was closed"):
        await link.tools()


@pytest.mark.parametrize(
    ("mischief", "words"),
    [("exits_later", "ended with exit code 4"), ("closes_output", "has closed its output")],
)
async def test_a_server_that_goes_is_noticed(links: Links, mischief: str, words: str) -> None:
    # The modern server has no moment after its handshake.
    async with links("stdio", mischief) as link:
        await until(lambda: bool(link.ended))
        assert link.ended == words
        with pytest.raises(Transient, match=f"the connection has ended: the server {words}"):
            await said(link, "echo", text="?")
        await until(lambda: not links.children._running)


@pytest.mark.parametrize("when", ["before", "after"])
@piped
async def test_nobody_knows_what_became_of_a_call_whose_server_died(
    links: Links, kind: Kind, when: str, tmp_path: Path
) -> None:
    async with links(kind, calls=tmp_path / "calls") as link:
        with pytest.raises(Ambiguous, match="the server is gone: it was ended by signal 9"):
            await said(link, "die", when=when)
        assert link.ended == "was ended by signal 9"
    assert len(Mischief(calls=tmp_path / "calls").ran()) == (when == "after")


@piped
async def test_a_request_right_after_the_end_finds_the_link_ended(links: Links, kind: Kind) -> None:
    for _ in range(5):
        async with links(kind) as link:
            pid = json.loads(await said(link, "whoami"))["pid"]
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Transient, match="the server is gone: it was ended by signal 9"):
                await link.tools()
            assert link.ended == "was ended by signal 9"


@pytest.mark.parametrize(
    ("mischief", "amount", "words"),
    [
        ("floods_output", 0, "has written more than 20,000,000 bytes that are no messages"),
        ("endless_line", 0, "has written more than 20,000,000 bytes without the end of a line"),
    ],
)
async def test_a_flood_ends_the_link(links: Links, mischief: str, amount: int, words: str) -> None:
    async with links("stdio", mischief, amount=amount) as link:
        await until(lambda: bool(link.ended), within_s=20)
        assert link.ended == words


@pytest.mark.parametrize("mischief", ["floods_errors", "floods_notices", "floods_output"])
async def test_noise_that_ends_costs_nothing_but_time(links: Links, mischief: str) -> None:
    late = 0.0

    async def watch() -> None:
        nonlocal late
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - began)

    watching = asyncio.ensure_future(watch())
    async with links("stdio", mischief, amount=15_000) as link:
        assert await said(link, "echo", text="clear") == "clear"
        assert len(link.errors) <= 64 * 1024
    watching.cancel()
    # Everybody else runs on meanwhile. The bound is wide because the machine may be busy.
    assert late < 1


async def test_garbage_between_messages_is_passed_over(links: Links) -> None:
    async with links("stdio", "garbage") as link:
        assert len(await link.tools()) > 20
        assert await said(link, "echo", text="héllo") == "héllo"


async def test_a_server_that_announces_without_end_is_heard_once_a_second(links: Links) -> None:
    changes: list[float] = []
    async with links("stdio", "restless", on_change=lambda: changes.append(time.monotonic())) as it:
        for _ in range(50):
            await it.tools()
        await until(lambda: bool(changes))
    assert len(changes) <= 3


@every_kind
@pytest.mark.parametrize("mischief", ["same_cursor", "endless_pages"])
async def test_a_list_without_end_is_an_error(links: Links, kind: Kind, mischief: str) -> None:
    async with links(kind, mischief) as link:
        with pytest.raises(Permanent, match="the server's list has no end"):
            await link.tools()
        assert await said(link, "echo", text="still here") == "still here"


@every_kind
async def test_all_pages_of_a_list_are_read(links: Links, kind: Kind) -> None:
    async with links(kind, "pages") as link:
        assert len(await link.tools()) > 20


@every_kind
async def test_what_is_no_tool_is_left_out_of_the_list(links: Links, kind: Kind) -> None:
    wrong = ("names", "schema_no_object", "big_schema")
    async with links(kind, *wrong) as link:
        names = [each.name for each in await link.tools()]
        told = link.errors
    assert {"echo", "a.b", "a_b", "l" * 128, "Ünïcode"} <= set(names)
    assert not {"", "bad", "huge"} & set(names)
    assert "number 1 of the tools is left out" in told
    assert "the tool 'huge' is left out: its schema is too long (10,000,0" in told


@every_kind
async def test_a_list_that_never_comes_is_given_up(links: Links, kind: Kind) -> None:
    async with links(kind, "silent_lists", answer_s=0.3) as link:
        with pytest.raises(Transient, match=r"did not answer tools/list within 0\.3 seconds"):
            await link.tools()
        assert await said(link, "echo", text="still here") == "still here"


@every_kind
async def test_a_large_answer_arrives_whole(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        assert len(await said(link, "big", bytes=15_000_000)) == 15_000_000


@every_kind
async def test_an_answer_that_is_too_large_is_an_error(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        with pytest.raises(Ambiguous):
            await said(link, "big", bytes=25_000_000)
        if kind == "http":
            assert await said(link, "echo", text="still here") == "still here"
        else:
            assert "without the end of a line" in link.ended


@every_kind
async def test_an_answer_of_too_many_pieces_is_not_even_read(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        assert len((await answer_of(link, "crowd", blocks=1_000)).pieces) == 1_000
        with pytest.raises(Ambiguous, match="too many values"):
            await said(link, "crowd", blocks=100_000)
        if kind == "http":
            assert await said(link, "echo", text="still here") == "still here"
        else:
            assert "too many values" in link.ended


async def test_an_answer_of_too_many_pieces_without_a_stream_is_not_read_either(
    links: Links,
) -> None:
    async with links("http", "plain") as link:
        with pytest.raises(Permanent, match="too many values"):
            await said(link, "crowd", blocks=100_000)
        assert await said(link, "echo", text="still here") == "still here"


async def test_a_large_answer_without_a_stream_is_an_error_too(links: Links) -> None:
    async with links("http", "plain") as link:
        with pytest.raises(Permanent, match="has more than 20,000,000 bytes"):
            await said(link, "big", bytes=25_000_000)
        assert await said(link, "echo", text="still here") == "still here"


def has_begun(calls: Path) -> Callable[[], bool]:
    """Tell whether the server runs a call."""
    return lambda: bool(Mischief(calls=calls).ran())


@every_kind
@pytest.mark.parametrize("tool", ["slow", "stubborn"])
async def test_a_cancelled_call_is_over_at_once(
    links: Links, kind: Kind, tool: str, tmp_path: Path
) -> None:
    async with links(kind, calls=tmp_path / "calls") as link:
        calling = asyncio.ensure_future(link.call("call-1", tool, {"seconds": 1}, report=unheard))
        await until(has_begun(tmp_path / "calls"))
        calling.cancel()
        await until(calling.done, within_s=0.5)
        assert await said(link, "echo", text="after") == "after"
        # By now the server has answered the cancelled call, if it does.
        await link.call("call-2", "slow", {"seconds": 1.2}, report=unheard)
        assert await said(link, "echo", text="later") == "later"


async def test_a_cancelled_call_ends_at_the_server(links: Links, tmp_path: Path) -> None:
    async with links("stdio", calls=tmp_path / "calls") as link:
        calling = asyncio.ensure_future(
            link.call("call-1", "hold", {"path": str(tmp_path / "never")}, report=unheard)
        )
        await until(has_begun(tmp_path / "calls"))
        calling.cancel()
        # Each call has a thread there.
        pid = json.loads(await said(link, "whoami"))["pid"]
        threads = Path(f"/proc/{pid}/task")
        await until(lambda: len(list(threads.iterdir())) == 1)


@every_kind
async def test_closing_ends_the_calls_that_run(links: Links, kind: Kind, tmp_path: Path) -> None:
    async with links(kind, calls=tmp_path / "calls") as link:
        calling = asyncio.ensure_future(
            link.call("call-1", "hold", {"path": str(tmp_path / "never")}, report=unheard)
        )
        await until(has_begun(tmp_path / "calls"))
        await link.close()
        with pytest.raises(Ambiguous, match="the server is gone: it was closed"):
            await calling


@pytest.mark.parametrize(
    ("mischief", "error", "words", "has_run"),
    [
        ("accepts_requests", Ambiguous, "says that no answer follows", True),
        ("dies_without_ids", Ambiguous, "ended without a response", True),
        ("forgetful", Transient, "has forgotten the connection", False),
    ],
)
async def test_http_can_lose_a_call(
    links: Links,
    mischief: str,
    error: type[PerdureError],
    words: str,
    has_run: bool,
    tmp_path: Path,
) -> None:
    async with links("http", mischief, calls=tmp_path / "calls") as link:
        with pytest.raises(error, match=words) as caught:
            await said(link, "echo", text="lost")
        assert type(caught.value) is error
        assert bool(link.ended) == (mischief == "forgetful")
    assert bool(Mischief(calls=tmp_path / "calls").ran()) == has_run


@pytest.mark.parametrize("mischief", ["plain", "bad_request"])
async def test_a_forgotten_session_ends_the_link(links: Links, mischief: str) -> None:
    async with links("http", mischief) as link:
        assert await said(link, "forget") == "forgotten"
        with pytest.raises(Transient, match="has forgotten the connection; it is made anew"):
            await said(link, "echo", text="?")
        assert re.fullmatch(r"has forgotten this connection \(HTTP 40[04]\)", link.ended)


async def test_a_link_outlives_a_server_that_is_away(new_peer: NewPeer) -> None:
    async with new_peer.hostile_mcp().over_http() as server:
        link = await connect_address(server.url, {}, outgoing=DIRECT, terms=LinkTerms())
        await server.stop()
        with pytest.raises(Transient, match="cannot be reached"):
            await said(link, "echo", text="?")
        with pytest.raises(Transient, match="cannot be reached"):
            await link.ping()
        assert link.ended == ""
        await server.start()
        # It knows nothing of its earlier life.
        with pytest.raises(Transient, match="has forgotten the connection"):
            await link.ping()
        await link.close()


async def test_headers_are_sent_and_refusals_are_told(links: Links) -> None:
    headers = {"Authorization": "Bearer let-me-in", "X-Canary": "yellow"}
    async with links("http", token="let-me-in", headers=headers) as link:
        known = json.loads(await said(link, "whoami"))["headers"]
    with pytest.raises(Rejected, match="asks for a token"):
        async with links("http", token="let-me-in"):
            pass
    assert known["x-canary"] == "yellow"
    assert known["user-agent"] == "perdure"


DEAF = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        about["serverInfo"] = {"name": "deaf", "version": "1"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": about}), flush=True)
    elif "id" not in asked:
        break
    else:
        refusal = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": refusal}), flush=True)
for number in range(20_000):
    print(json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}), flush=True)
time.sleep(60)
"""


async def test_a_server_that_asks_and_never_listens_is_bounded(links: Links) -> None:
    program = ChildProgram(argv=(sys.executable, "-S", "-c", DEAF))
    link = await connect_program(program, children=links.children, terms=LinkTerms(answer_s=0.5))
    before = len(asyncio.all_tasks())
    arguments: dict[str, Any] = {"text": "x" * 1_000_000}
    calling = asyncio.ensure_future(link.call("call-1", "echo", arguments, report=unheard))
    with pytest.raises(Transient, match="did not answer ping"):
        await link.ping()
    assert len(asyncio.all_tasks()) < before + 80
    calling.cancel()
    await until(calling.done, within_s=1)
    began = time.monotonic()
    await link.close()
    assert time.monotonic() - began < 8
