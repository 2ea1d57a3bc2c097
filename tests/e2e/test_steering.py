"""Checks conversations that people steer, end to end: a real gateway, and a model server that keeps
every request it gets."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.turn.errands import instruction
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    cut_after,
    hang,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
FILLER = "word " * 120
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def order_of(errand: TurnKind) -> str:
    """Return what the model is told to do in such an errand."""
    ordered = instruction(TurnQueued(turn="t", message="m", text="", kind=errand))  # type: ignore[arg-type]
    assert ordered is not None
    return ordered.text


def is_order(request: ScriptedRequest, errand: TurnKind) -> bool:
    return order_of(errand) in request.last_user_text


class Scene:
    """Plays a model that names the question it answers, and answers each errand with what a test
    puts into `errands`."""

    def __init__(self) -> None:
        self.errands: dict[TurnKind, Reply] = {TurnKind.TITLE: say("A Fine Title")}
        self.client: Client
        self.server = ModelServer(self._answer)

    def _answer(self, request: ScriptedRequest) -> Reply:
        for errand, reply in self.errands.items():
            if is_order(request, errand):
                return reply
        return say(f"answer to {request.last_user_text.splitlines()[-1][:40]}")

    @property
    def talk(self) -> list[list[dict[str, Any]]]:
        """Return the messages of each request that was no errand, without the system message."""
        bodies = [received.body for received in self.server.requests if received.body]
        orders = [order_of(errand) for errand in self.errands]
        return [
            [m for m in body["messages"] if m["role"] != "system"]
            for body in bodies
            if not any(order in json.dumps(body, ensure_ascii=False) for order in orders)
        ]

    async def say(self, text: str, **more: object) -> dict[str, Any]:
        said = await self.client.say("main", text, **more)
        assert (await self.client.settled(said["turn"]))["outcome"] == "done"
        return said

    async def command(self, text: str) -> str:
        return str((await self.client.say("main", text))["reply"])

    async def journal(self) -> list[dict[str, Any]]:
        _, here = await self.client.call("GET", "/api/conversations/main")
        _, body = await self.client.call("GET", f"/api/sessions/{here['session']}/journal")
        events: list[dict[str, Any]] = body["events"]
        return events

    async def until(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the journal has this many events of a kind. Returns them."""
        async with asyncio.timeout(15):
            while True:
                found = [e for e in await self.journal() if e["kind"] == kind]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)


@pytest.fixture
async def scene(gateway_factory: Factory) -> AsyncIterator[Callable[[str], Awaitable[Scene]]]:
    made = Scene()
    async with made.server, aiohttp.ClientSession() as session:

        async def begin(agent: str = "", rest: str = "") -> Scene:
            toml = (
                f'[agents.main]\nkind = "chat"\nbase_url = "{made.server.openai_url}"\n'
                "patience_s = 1\ncontext = false\n"
                f'model = "scripted"\n{agent}\n{rest}'
            )
            made.client = Client(await gateway_factory(toml=toml), session)
            return made

        yield begin
        assert made.server.violations == []


async def test_a_title_is_found_once_and_its_order_is_stored_nowhere(scene: Any) -> None:
    here = await scene()
    await here.say("hello there")
    (named,) = await here.until("title_set")
    await here.say("and again")
    await here.say("and once more")

    _, shown = await here.client.call("GET", "/api/conversations/main")
    assert shown["title"] == named["body"]["title"] == "A Fine Title"
    asked = [r for r in here.server.requests if order_of(TurnKind.TITLE).encode() in r.raw]
    assert len(asked) == 1
    await here.client.gateway.terminate()
    stored = b"".join(p.read_bytes() for p in here.client.gateway.home.glob("perdure.db*"))
    assert b"Give this conversation a title" not in stored


async def test_requests_begin_with_the_bytes_of_the_one_before(scene: Any) -> None:
    here = await scene('instructions = "Be brief."')
    here.errands = {}
    await here.client.gateway.pause(0)
    for number in range(4):
        await here.say(f"question {number}")
    talk = [r.raw for r in here.server.requests if b"title of at most" not in r.raw]

    for before, after in pairwise(talk):
        shared = before[: before.rindex(b"]")]  # to the end of its last message
        assert after.startswith(shared), (before, after)


async def test_a_break_of_the_prefix_is_recorded_with_its_cause(scene: Any) -> None:
    here = await scene(
        rest=f'[agents.other]\nkind = "demo"\n[personas.pirate]\ninstructions = "Arr."\n{""}'
    )
    await here.say("one")
    await here.say("two")
    await here.command("/persona pirate")
    await here.say("three")
    await here.command("/agent other")
    await here.say("four")

    breaks = [e["body"].get("prefix_break", "") for e in await here.until("turn_settled", 4)]
    assert breaks == ["", "", "instructions", "agent"]
    system = here.server.requests[-1].body["messages"][0]
    assert system == {"role": "system", "content": "Arr."}


async def test_retry_sends_the_image_again(scene: Any) -> None:
    here = await scene()
    url = here.client.gateway.url + "/api/media"
    headers = {"Authorization": f"Bearer {here.client.token}", "Content-Type": "image/png"}
    async with here.client.session.post(url, data=PIXEL, headers=headers) as response:
        media = (await response.json())["id"]
    await here.say("what is this?", attachments=[{"media": media}])
    again = await here.client.say("main", "/retry")
    assert (await here.client.settled(again["turn"]))["outcome"] == "done"

    first, second = [m for m in here.talk if "image_url" in json.dumps(m)]
    assert first == second
    assert [e["text"] for e in await here.client.transcript("main") if e["role"] == "user"] == [
        "what is this?"
    ]


async def test_a_background_request_runs_beside_and_comes_back_as_one_message(scene: Any) -> None:
    here = await scene()
    await here.say("hello")
    beside = await here.client.say("main", "/background count the stars")
    await here.say("go on")
    assert (await here.client.settled(beside["turn"]))["outcome"] == "done"
    async with asyncio.timeout(15):
        while True:
            texts = [e["text"] for e in await here.client.transcript("main")]
            if any("answer to count the stars" in text for text in texts):
                break
            await asyncio.sleep(0.02)

    assert sum("answer to count the stars" in text for text in texts) == 1
    await here.say("thanks")
    assert "answer to count the stars" in json.dumps(here.talk[-1])


CONTEXT = "context_tokens = 1200\ncompact_at = 0.5"


async def _grow(here: Scene, turns: int = 6) -> None:
    for number in range(turns):
        await here.say(f"{FILLER} question {number}")


async def test_compaction_by_itself_is_a_view_that_can_be_dropped(scene: Any) -> None:
    here = await scene(CONTEXT)
    here.errands[TurnKind.SUMMARY] = say("They talked about words.")
    await _grow(here)
    (compacted, *_) = await here.until("compacted")
    await here.say("what now?")
    shortened = here.talk[-1]
    session = (await here.client.call("GET", "/api/conversations/main"))[1]["session"]

    assert compacted["body"]["tokens_after"] < compacted["body"]["tokens_before"]
    assert "They talked about words." in json.dumps(shortened[0])
    assert "<background>" in json.dumps(shortened[0])
    assert json.dumps(shortened[-1]).endswith('what now?"}') or "what now?" in json.dumps(
        shortened[-1]
    )
    texts = [e["text"] for e in await here.client.transcript("main") if e["role"] == "user"]
    assert [text.split()[-1] for text in texts[:-1]] == [str(n) for n in range(6)]
    while "full again" in await here.command("/compact off"):
        pass
    here.errands[TurnKind.SUMMARY] = status(500)
    await here.say("and now?")
    whole = [m["content"] for m in here.talk[-1] if m["role"] == "user"]
    assert whole == [*texts, "and now?"]
    assert (await here.client.call("GET", "/api/conversations/main"))[1]["session"] == session


@pytest.mark.parametrize(
    "fault",
    [
        say(""),
        say(FILLER * 40),
        status(500),
        status(400),
        cut_after(120, say("half a summary that breaks off")),
    ],
    ids=["empty", "longer", "500", "400", "cut"],
)
async def test_a_summary_that_fails_changes_nothing(scene: Any, fault: Reply) -> None:
    here = await scene(CONTEXT)
    here.errands[TurnKind.SUMMARY] = fault
    await _grow(here, 4)
    failed = await here.until("compaction_failed")
    await here.say("what now?")
    await here.say("and then?")

    assert (
        len(await here.until("compaction_failed")) == len(failed) == 1
    )  # no second attempt follows at once
    users = [m["content"] for m in here.talk[-1] if m["role"] == "user"]
    assert [text.split()[-1] for text in users] == ["0", "1", "2", "3", "now?", "then?"]


async def test_a_hanging_summary_holds_nobody_up_and_can_be_stopped(scene: Any) -> None:
    here = await scene(CONTEXT)
    here.errands[TurnKind.SUMMARY] = hang(0)
    await _grow(here, 4)
    await here.say("still there?")

    assert await here.command("/stop") == "Stopped."
    (failed,) = await here.until("compaction_failed")
    assert "stopped" in failed["body"]["reason"]
    await here.say("good")


async def test_what_is_said_while_a_summary_is_made_stays_verbatim(scene: Any) -> None:
    here = await scene("context_tokens = 4000\ncompact_at = 0.9")
    here.errands[TurnKind.SUMMARY] = hang(0, say("They talked about words."))
    await _grow(here, 4)
    assert "Compacting" in await here.command("/compact the words")
    async with asyncio.timeout(15):
        await here.server.wait_for_requests(len(here.talk) + 2)
    asked = here.server.requests[-1].raw.decode()
    await here.say("meanwhile")
    here.server.release()
    await here.until("compacted")
    await here.say("afterwards")

    assert "the words" in asked
    assert "They talked about words." in json.dumps(here.talk[-1])
    assert "meanwhile" in json.dumps(here.talk[-1])
    told = [e["body"]["text"] for e in await here.until("notice_posted")]
    assert any(text.startswith("Compacted: ") for text in told)


async def test_a_compaction_of_turns_that_were_undone_is_dropped(scene: Any) -> None:
    here = await scene("context_tokens = 4000\ncompact_at = 0.9")
    here.errands[TurnKind.SUMMARY] = hang(0, say("They talked about words."))
    await _grow(here, 4)
    await here.command("/compact")
    async with asyncio.timeout(15):
        await here.server.wait_for_requests(len(here.talk) + 2)
    assert (await here.command("/undo 4")).startswith("Undone, 4 turns")
    here.server.release()
    (failed,) = await here.until("compaction_failed")

    assert "another way" in failed["body"]["reason"]
    await here.say("anew")
    assert [m["content"] for m in here.talk[-1]] == ["anew"]
