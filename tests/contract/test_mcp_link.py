"""Checks the link to a tool server: what it calls, lists and reads, over standard input and output
and over HTTP, in both kinds of versions, and with servers by others."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_links import KINDS, Links, answer_of, said, text_of, unheard

from perdure.app.children.children import LaunchedChildren
from perdure.domain.errors import Permanent, Rejected
from perdure.ports.system.children import ChildProgram
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.fixtures import NewPeer
from perdure.tools.mcp.connecting import connect_address, connect_program
from perdure.tools.mcp.link import (
    FilePiece,
    LinkTerms,
    ListedResource,
    PointerPiece,
    ServerLink,
    WordsPiece,
)

Connected = Callable[..., AbstractAsyncContextManager[ServerLink]]


@pytest.fixture
async def children() -> AsyncIterator[LaunchedChildren]:
    children = LaunchedChildren()
    yield children
    await children.close()


@pytest.fixture(params=KINDS)
def connected(
    request: pytest.FixtureRequest, new_peer: NewPeer, children: LaunchedChildren
) -> Connected:
    """Connect to the hostile server in one of the ways."""
    return partial(Links(new_peer.hostile_mcp(), children), request.param)


async def test_a_link_lists_calls_and_reads(connected: Connected) -> None:
    async with connected() as link:
        tools = {each.name: each for each in await link.tools()}
        assert await said(link, "echo", text="héllo") == "héllo"
        prompts = await link.prompts()
        resources = await link.resources()
        text = await link.read("memo://text")
        picture = await link.read("memo://picture")
        greeting = await link.prompt("greet", {"name": "Eva"})
        await link.ping()
        assert link.has_prompts
        assert link.has_resources
        assert link.ended == ""
    assert link.ended == "was closed"
    assert (tools["echo"].is_read_only, tools["note"].is_read_only) == (True, None)
    assert tools["wipe"].is_destructive is True
    assert json.loads(tools["echo"].parameters)["required"] == ["text"]
    assert tools["echo"].description == "Return the text."
    assert [each.name for each in prompts] == ["plain", "greet"]
    assert [each.is_required for each in prompts[1].arguments] == [True, False]
    assert [each.uri for each in resources] == ["memo://text", "memo://picture"]
    assert text.pieces == (WordsPiece(text="the text", uri="memo://text"),)
    (piece,) = picture.pieces
    assert isinstance(piece, FilePiece)
    assert piece.data.startswith(b"\x89PNG")
    assert (piece.mime, piece.name) == ("image/png", "picture")
    assert greeting.pieces == (WordsPiece(text="Greet Eva."),)


async def test_answers_have_every_shape(connected: Connected) -> None:
    async with connected() as link:
        (picture,) = (await answer_of(link, "picture")).pieces
        papers = (await answer_of(link, "papers")).pieces
        structured = await answer_of(link, "structured")
        failed = await answer_of(link, "fail", text="no")
        # What a server says of its own answers is not checked here.
        assert json.loads((await answer_of(link, "lie")).structured) == {"city": 7}
    assert isinstance(picture, FilePiece)
    assert picture.mime == "image/png"
    pointer = ListedResource(uri="memo://text", name="text", mime="text/plain")
    embedded = WordsPiece(text="embedded text", uri="memo://embedded")
    assert papers == (embedded, PointerPiece(resource=pointer))
    assert json.loads(structured.structured) == {"city": "Bern", "degrees": 21}
    assert failed.has_failed
    assert failed.pieces == (WordsPiece(text="no"),)


async def test_a_refusal_is_told_in_the_words_of_the_server(connected: Connected) -> None:
    async with connected() as link:
        with pytest.raises(Rejected, match="not today now"):
            await said(link, "refuse", text="not today\x1b\nnow")
        with pytest.raises(Rejected, match="there is no tool nothing"):
            await said(link, "nothing")
        with pytest.raises(Rejected, match="there is no memo://none"):
            await link.read("memo://none")
        with pytest.raises(Permanent, match=r"is no answer: .*content"):
            await said(link, "malformed")
        assert await said(link, "echo", text="still here") == "still here"


async def test_progress_is_told(connected: Connected) -> None:
    told: list[str] = []
    async with connected() as link:
        await link.call("call-1", "slow", {"seconds": 0.2}, report=told.append)
    assert min(told, key=len) == "1 of 10: step 1"
    assert len(told) == 10


async def test_many_calls_run_at_once(connected: Connected) -> None:
    async with connected() as link:
        calls = [link.call(f"call-{n}", "add", {"a": n, "b": 1}, report=unheard) for n in range(50)]
        sums = [text_of(answer) for answer in await asyncio.gather(*calls)]
    assert sums == [str(n + 1) for n in range(50)]


async def test_a_change_of_the_lists_is_told_once(connected: Connected) -> None:
    changes = 0
    changed = asyncio.Event()

    def change() -> None:
        nonlocal changes
        changes += 1
        changed.set()

    async with connected(on_change=change) as link:
        assert await said(link, "change") == "changed"
        async with asyncio.timeout(5):
            await changed.wait()
        names = {each.name for each in await link.tools()}
    assert "added" in names
    assert "echo" not in names
    assert changes == 1


@pytest.mark.parametrize("name", ["time", "memory", "everything"])
async def test_servers_by_others_answer_over_a_link(
    new_peer: NewPeer, children: LaunchedChildren, tmp_path: Path, name: str
) -> None:
    published = new_peer.published_mcp()
    cases: dict[str, tuple[list[str], str, dict[str, Any], str]] = {
        "time": (published.time(), "get_current_time", {"timezone": "UTC"}, "UTC"),
        "memory": (published.memory(), "read_graph", {}, "entities"),
        "everything": (published.everything(), "get-sum", {"a": 2, "b": 3}, "5"),
    }
    command, tool, arguments, expected = cases[name]
    environ = {"MEMORY_FILE_PATH": str(tmp_path / "facts.json")}
    program = ChildProgram(argv=tuple(command), env=environ)
    link = await connect_program(program, children=children, terms=LinkTerms())
    assert tool in {each.name for each in await link.tools()}
    answer = await answer_of(link, tool, **arguments)
    assert isinstance(answer.pieces[0], WordsPiece)
    assert expected in answer.pieces[0].text
    assert link.server
    await link.close()
    assert link.ended == "was closed"


async def test_everything_answers_over_a_link_by_http(new_peer: NewPeer) -> None:
    async with new_peer.everything_mcp() as server:
        link = await connect_address(server.url, {}, outgoing=DIRECT, terms=LinkTerms())
        answer = await answer_of(link, "echo", message="hello")
        assert await link.prompts()
        assert any(each.is_template for each in await link.resources())
        await link.ping()
        await link.close()
    assert answer.pieces == (WordsPiece(text="Echo: hello"),)
