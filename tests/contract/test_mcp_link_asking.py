"""Checks that a tool server asks the person whose call it is, and a model only where it may."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_links import KINDS, Kind, Links, said, text_of, unheard, until

from perdure.app.children.children import LaunchedChildren
from perdure.domain.errors import Ambiguous, Rejected
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.tools.mcp.link import (
    InputGiven,
    InputNeeded,
    Sampler,
    ServerAnswer,
    ServerLink,
)

every_kind = pytest.mark.parametrize("kind", KINDS)
handshake = pytest.mark.parametrize("kind", ["stdio", "http"])


@pytest.fixture
async def links(new_peer: NewPeer) -> AsyncIterator[Links]:
    children = LaunchedChildren()
    yield Links(new_peer.hostile_mcp(), children)
    await children.close()
    # Whatever happened, nothing goes on behind the links.
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def asked(link: ServerLink, tool: str, call: str = "call-1", **arguments: Any) -> InputNeeded:
    """Call a tool that asks, and return its question."""
    async with asyncio.timeout(10):
        needed = await link.call(call, tool, arguments, report=unheard)
    assert isinstance(needed, InputNeeded)
    return needed


def accept(needed: InputNeeded, **content: Any) -> InputGiven:
    return InputGiven(action="accept", content=content, state=needed.state)


async def resumed(
    link: ServerLink, given: InputGiven, tool: str, call: str = "call-1", **arguments: Any
) -> ServerAnswer | InputNeeded:
    async with asyncio.timeout(10):
        return await link.resume(call, tool, arguments, given, report=unheard)


@every_kind
async def test_a_call_goes_on_with_what_the_person_says(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        needed = await asked(link, "ask", message="Which?")
        assert needed.message == "Which?"
        assert json.loads(needed.schema)["required"] == ["colour"]
        assert await said(link, "echo", text="beside") == "beside"
        given = accept(needed, colour="red", number=3)
        answer = json.loads(text_of(await resumed(link, given, "ask", message="Which?")))
    assert answer == {"action": "accept", "content": {"colour": "red", "number": 3}}


@every_kind
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(links: Links, kind: Kind, action: Any) -> None:
    async with links(kind) as link:
        needed = await asked(link, "ask", message="Which?")
        given = InputGiven(action=action, state=needed.state)
        answer = json.loads(text_of(await resumed(link, given, "ask", message="Which?")))
    assert answer == {"action": action}


@every_kind
async def test_a_server_may_send_the_person_to_an_address(links: Links, kind: Kind) -> None:
    url = "https://example.org/login"
    async with links(kind) as link:
        needed = await asked(link, "ask_to_visit", url=url)
        answer = text_of(await resumed(link, accept(needed), "ask_to_visit", url=url))
    assert (needed.url, needed.schema, needed.message) == (url, "", "Please sign in")
    assert json.loads(answer)["action"] == "accept"


@handshake
async def test_two_calls_may_wait_for_their_people(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        first = await asked(link, "ask", "call-1", message="First?")
        if kind == "stdio":
            # Nothing tells whose question the second is, so it is declined.
            second = await link.call("call-2", "ask", {"message": "Second?"}, report=unheard)
            assert json.loads(text_of(second)) == {"action": "decline"}
            assert "was declined" in link.errors
        else:
            needed = await asked(link, "ask", "call-2", message="Second?")
            assert needed.message == "Second?"
            given = accept(needed, colour="green")
            answer = await resumed(link, given, "ask", "call-2", message="Second?")
            assert json.loads(text_of(answer))["content"] == {"colour": "green"}
        given = accept(first, colour="red")
        answer = await resumed(link, given, "ask", "call-1", message="First?")
    assert json.loads(text_of(answer))["content"] == {"colour": "red"}


async def test_no_more_than_so_many_calls_wait(links: Links) -> None:
    async with links("http") as link:
        for number in range(32):
            await asked(link, "ask", f"call-{number}", message="?")
        one_more = await link.call("call-32", "ask", {"message": "?"}, report=unheard)
        assert json.loads(text_of(one_more)) == {"action": "decline"}


@handshake
async def test_a_call_that_nobody_goes_on_with_is_cancelled(links: Links, kind: Kind) -> None:
    async with links(kind, waits_s=0.2) as link:
        needed = await asked(link, "ask", message="Which?")
        with pytest.raises(Ambiguous, match="nobody knows"):
            await until_unknown(link, needed)
        assert await said(link, "echo", text="after") == "after"


async def until_unknown(link: ServerLink, needed: InputNeeded) -> None:
    """Wait longer than the call waits, then go on with it."""
    await asyncio.sleep(0.4)
    await resumed(link, accept(needed, colour="red"), "ask", message="Which?")


@handshake
async def test_a_call_that_waits_is_lost_with_its_link(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        needed = await asked(link, "ask", message="Which?")
    async with links(kind) as other:
        with pytest.raises(Ambiguous, match="a connection that has ended since"):
            await resumed(other, accept(needed, colour="red"), "ask", message="Which?")


async def test_a_modern_call_goes_on_over_another_link(links: Links, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    async with links("modern", calls=calls) as link:
        needed = await asked(link, "ask", message="Which?")
    assert Mischief(calls=calls).ran() == []
    async with links("modern", calls=calls) as other:
        answer = await resumed(other, accept(needed, colour="red"), "ask", message="Which?")
    assert json.loads(text_of(answer))["content"] == {"colour": "red"}
    assert [each.tool for each in Mischief(calls=calls).ran()] == ["ask"]


async def test_an_answer_without_a_question_is_refused(links: Links) -> None:
    async with links("modern") as link:
        for state in ("{}", '{"v":', '{"asked":{"a":{}},"given":{"a":{}}}'):
            with pytest.raises(Rejected, match="belongs to no question"):
                await resumed(link, InputGiven(action="accept", state=state), "ask", message="?")
        with pytest.raises(Ambiguous):
            await resumed(link, InputGiven(action="accept", state="1"), "ask", message="?")


@every_kind
async def test_a_model_is_asked_only_where_that_is_allowed(links: Links, kind: Kind) -> None:
    requests: list[dict[str, Any]] = []

    async def sampler(request: dict[str, Any], /) -> dict[str, Any]:
        requests.append(request)
        content = {"type": "text", "text": "thought"}
        return {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}

    async with links(kind, can_sample=True) as link:
        thought = json.loads(await said(link, "sample", sampler=sampler, prompt="?"))
    async with links(kind) as link:
        if kind == "modern":
            with pytest.raises(Rejected, match="not allowed; the call was not made"):
                await said(link, "sample", prompt="?")
        else:
            refused = json.loads(await said(link, "sample", prompt="?"))
            assert refused["error"]["message"] == "Sampling not supported"
    assert thought["content"] == {"type": "text", "text": "thought"}
    (request,) = requests
    assert request["maxTokens"] == 100
    assert request["messages"][0]["content"]["text"] == "?"


@every_kind
async def test_a_sampler_may_refuse(links: Links, kind: Kind) -> None:
    async def sampler(request: dict[str, Any], /) -> dict[str, Any]:
        raise Rejected("no words are left for today")

    async with links(kind, can_sample=True) as link:
        if kind == "modern":
            with pytest.raises(Rejected, match="no words are left"):
                await said(link, "sample", sampler=sampler, prompt="?")
        else:
            refused = json.loads(await said(link, "sample", sampler=sampler, prompt="?"))
            assert refused["error"]["message"] == "no words are left for today"


@handshake
async def test_no_model_is_asked_for_another_call(links: Links, kind: Kind, tmp_path: Path) -> None:
    asked: list[str] = []

    def sampler_of(person: str) -> Sampler:
        async def sampler(request: dict[str, Any], /) -> dict[str, Any]:
            asked.append(person)
            content = {"type": "text", "text": f"for {person}"}
            return {"role": "assistant", "content": content, "model": "m"}

        return sampler

    async with links(kind, can_sample=True, calls=tmp_path / "calls") as link:
        held = asyncio.ensure_future(
            said(link, "hold", sampler=sampler_of("ada"), path=str(tmp_path / "go"))
        )
        await until(lambda: bool(Mischief(calls=tmp_path / "calls").ran()))
        told = json.loads(await said(link, "sample", sampler=sampler_of("bob"), prompt="?"))
        (tmp_path / "go").touch()
        assert await held == "released"
        alone = json.loads(await said(link, "sample", sampler=sampler_of("eve"), prompt="?"))
    if kind == "stdio":
        # Nothing tells which of the two calls the server means.
        assert "exactly one call" in told["error"]["message"]
        assert asked == ["eve"]
    else:
        assert told["content"]["text"] == "for bob"
        assert asked == ["bob", "eve"]
    assert alone["content"]["text"] == "for eve"


@handshake
async def test_no_model_is_asked_while_a_call_waits_for_its_person(
    links: Links, kind: Kind
) -> None:
    async def sampler(request: dict[str, Any], /) -> dict[str, Any]:
        raise AssertionError("nobody pays for this")

    async with links(kind, can_sample=True) as link:
        arguments = {"message": "Which?"}
        needed = await link.call(
            "call-1", "ask_and_sample", arguments, report=unheard, sampler=sampler
        )
        assert isinstance(needed, InputNeeded)
        await until(lambda: "a question to a model was declined" in link.errors)
        answer = await resumed(link, accept(needed, colour="red"), "ask_and_sample", **arguments)
    assert "exactly one call" in text_of(answer)


@every_kind
async def test_a_server_learns_no_folders(links: Links, kind: Kind) -> None:
    async with links(kind) as link:
        known = json.loads(await said(link, "roots"))
    assert known.get("roots", []) == []


async def test_a_cancelled_call_asks_no_more(links: Links) -> None:
    async with links("stdio") as link:
        needed = await asked(link, "ask", message="Which?")
        waiting = asyncio.ensure_future(
            link.resume("call-1", "ask", {}, InputGiven(action="accept", state="7"), report=unheard)
        )
        await asyncio.sleep(0.05)
        waiting.cancel()
        await until(waiting.done)
        with pytest.raises(Ambiguous):
            await resumed(link, accept(needed, colour="red"), "ask", message="Which?")
        assert await said(link, "echo", text="after") == "after"
