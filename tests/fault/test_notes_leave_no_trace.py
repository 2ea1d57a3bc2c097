"""Checks that the notes which tell the model of an interruption are in its requests and nowhere
else.

A real gateway is killed, shut down and drained while it answers; the model's server sees which
requests carried a note. Then every sentence that a note can hold is searched for in everything that
was stored, served or logged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import apsw
import pytest

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    Recorded,
    SteerTaken,
    ToolCall,
    ToolFinished,
    TurnQueued,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest
from perdure.domain.prompt.prompt import Note
from perdure.domain.turn.errands import instruction
from perdure.domain.turn.recovery import Telling, messages_with_notes
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    call_tools,
    hang,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
Factory = Callable[..., Awaitable[GatewayProcess]]
STORY = say("once upon a time there was")
FOLLOW_UPS = ("and then", "and after that")


def order_to_sum_up() -> str:
    queued = TurnQueued(turn=TurnId("t"), message=MessageId("m"), text="", kind=TurnKind.SUMMARY)
    order = instruction(queued)
    assert order is not None
    return order.text


def every_note() -> set[str]:
    """Return each text that a note can have, for every kind of interruption."""
    turn, before = TurnId("trn_1"), TurnId("trn_0")
    found: set[str] = set()
    endings = chain.from_iterable(combinations(CallEnding, n) for n in range(len(CallEnding) + 1))
    causes = product(Interruption, NodeRequest)
    situations = product(causes, endings, (False, True), (False, True), (False, True))
    for (reason, asked), ended, has_text, has_steer, is_replaced in situations:
        hit = before if is_replaced else turn
        events: list[AnyEvent] = [TurnQueued(turn=hit, message=MessageId("msg_1"), text="hello")]
        events += _work(hit, ended, has_text=has_text, has_steer=has_steer)
        events.append(AttemptInterrupted(turn=hit, attempt=1, reason=reason, asked=asked))
        stored = _recorded(events)
        new = TurnQueued(turn=turn, message=MessageId("msg_9"), text="new")
        mine = _recorded([new], first=100) if is_replaced else stored
        telling = Telling(tuple(stored[-1:]), tuple(stored) if is_replaced else ())
        messages = messages_with_notes(mine, telling)
        blocks = [block for message in messages for block in message.blocks]
        notes = [block.text for block in blocks if isinstance(block, Note)]
        assert len(notes) == 1
        found.update(notes)
    return found


def _work(
    turn: TurnId, ended: tuple[CallEnding, ...], *, has_text: bool, has_steer: bool
) -> Iterator[AnyEvent]:
    calls = tuple(ToolCall(id=CallId(f"c_{each}"), name="look", arguments="{}") for each in ended)
    message = MessageId("msg_2")
    if calls:
        yield AssistantSaid(turn=turn, attempt=1, message=message, text="", calls=calls)
    for each in ended:
        yield ToolFinished(turn=turn, call=CallId(f"c_{each}"), ending=each, result="it")
    if has_steer:
        yield SteerTaken(turn=turn, message=MessageId("msg_3"), text="hurry")
    if has_text:
        cut = MessageId("msg_4")
        yield AssistantSaid(turn=turn, attempt=1, message=cut, text="So", is_interrupted=True)


def _recorded(events: list[AnyEvent], *, first: int = 1) -> list[Recorded]:
    session = SessionId("ses_1")
    return [Recorded(session=session, seq=n, at=n, event=e) for n, e in enumerate(events, first)]


def sentences(notes: set[str]) -> set[str]:
    found = {each.rstrip(".") for note in notes for each in note.strip("[]").split(". ")}
    assert all(len(each) > 20 for each in found), "too short to search for"
    return found


def user_parts(body: Mapping[str, Any]) -> list[str]:
    """Return the texts of the user's messages. Two messages that were joined have a blank line
    between them."""
    contents = [m["content"] for m in body["messages"] if m["role"] == "user"]
    return [text for content in contents for text in content.split("\n\n")]


class Model:
    """Gives each message its own replies: one for each request in which it is the newest."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply]] = {}
        self.notes: dict[str, list[str | None]] = {}

    def plan(self, text: str, *replies: Reply) -> str:
        self.replies[text] = list(replies)
        return text

    def answer(self, request: ScriptedRequest) -> Reply:
        parts = user_parts(request.body)
        text = next(part for part in reversed(parts) if part in self.replies)
        notes = [part for part in parts if part not in self.replies and part != order_to_sum_up()]
        assert len(notes) <= 1, notes
        self.notes.setdefault(text, []).append(notes[0] if notes else None)
        return self.replies[text].pop(0)

    def told(self, text: str) -> list[bool]:
        """Return which requests of this message carried a note."""
        return [note is not None for note in self.notes[text]]


class Stage:
    """Holds a gateway, its model, and the conversations that were played."""

    def __init__(self, client: Client, model: Model, server: ModelServer) -> None:
        self.client = client
        self.gateway = client.gateway
        self.model = model
        self.server = server
        self.rooms: list[str] = []

    async def begin(self, room: str, text: str, *, is_shown: bool = True) -> str:
        """Send a message. Returns once its model was asked and, unless told otherwise, has shown
        text."""
        self.rooms.append(room)
        accepted = await self.client.say(room, text)
        async with asyncio.timeout(20):
            if is_shown:
                await self._until_shown(room)
            while not self.model.notes.get(text) or self.model.replies[text] == []:
                await self.gateway.pause(0.01)
        return str(accepted["turn"])

    async def _until_shown(self, room: str) -> None:
        async with self.client.events(room) as events:
            async for _, kind, _data in events:
                if kind == "delta":
                    return

    async def until_asked(self, text: str, *, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.model.notes.get(text, ())) < times:
                await self.gateway.pause(0.01)

    async def follow_up(self, room: str) -> None:
        """Play two more turns, in whose requests no note may be."""
        for text in FOLLOW_UPS:
            key = self.model.plan(f"{text} in {room}", say("so it ends"))
            turn = await self.client.settled((await self.client.say(room, key))["turn"])
            assert turn["outcome"] == "done", turn
            assert self.model.told(key) == [False]

    async def journal(self, room: str) -> list[dict[str, Any]]:
        _, there = await self.client.call("GET", f"/api/conversations/{room}")
        _, page = await self.client.call(
            "GET", f"/api/sessions/{there['session']}/journal?limit=1000"
        )
        events: list[dict[str, Any]] = page["events"]
        return events

    async def assert_told_once(self, room: str, *, times: int) -> None:
        """Check that each interruption is acknowledged by exactly one event, with the same tail."""
        events = await self.journal(room)
        happened = [e for e in events if e["kind"] == "attempt_interrupted"]
        told = [e["body"] for e in events if e["kind"] == "interruption_acknowledged"]
        assert len(happened) == times
        assert [(t["interruption"], t.get("tail", "")) for t in told] == [
            (e["seq"], e["body"].get("tail", "")) for e in happened
        ]

    async def outcome(self, turn: str) -> str:
        return str((await self.client.settled(turn))["outcome"])


@pytest.fixture
async def stage(gateway_factory: Factory) -> Any:
    model = Model()
    async with ModelServer(model.answer) as server, aiohttp.ClientSession() as session:
        toml = configuration(server)
        gateway = await gateway_factory(toml=toml)
        yield Stage(Client(gateway, session), model, server)
        assert server.violations == []


def configuration(server: ModelServer, *, resume: str = "continue", drain_s: float = 0) -> str:
    return (
        "[sessions]\ntitles = false\n"
        f'[agents.main]\nkind = "chat"\nbase_url = "{server.openai_url}"\nmodel = "scripted"\n'
        "context = false\n"
        f'[recovery]\nresume = "{resume}"\nattempts_max = 100\n'
        f"[drain]\ntimeout_s = {drain_s}\n"
    )


def configure(stage: Stage, **more: Any) -> None:
    (stage.gateway.home / "perdure.toml").write_text(configuration(stage.server, **more))


async def crashes(stage: Stage) -> None:
    """Kill the gateway during four answers, and once more before the model has said a word of one
    of them."""
    model = stage.model
    lost = say("never sent")
    told = model.plan("tell", hang(3, STORY), call_tools([("c", "look", "{}")]), say("the end"))
    again = model.plan("again", hang(3, STORY), hang("before_headers"), say("the end"))
    silent = model.plan("be silent", hang(3, STORY), say(""))
    tools = model.plan("use tools", call_tools([("c", "look", "{}")]), hang(inner=lost), say("end"))
    turns = [
        await stage.begin("told", told),
        await stage.begin("again", again),
        await stage.begin("silent", silent),
        await stage.begin("tools", tools, is_shown=False),
    ]
    await stage.until_asked(tools, times=2)
    await stage.gateway.restart()
    assert [await stage.outcome(turn) for turn in (turns[0], turns[2], turns[3])] == ["done"] * 3
    await stage.until_asked(again, times=2)
    await stage.gateway.restart()
    assert await stage.outcome(turns[1]) == "done"

    assert model.told(told) == [False, True, True]
    assert model.told(again) == [False, True, True]
    assert model.told(silent) == [False, True]
    assert model.told(tools) == [False, False, True]
    for room in ("told", "again", "silent", "tools"):
        await stage.assert_told_once(room, times=2 if room == "again" else 1)
        await stage.follow_up(room)


async def planned_ends(stage: Stage) -> None:
    """Cut one answer by a shutdown, and one by a drain that runs out of time."""
    for room, drain_s in (("shutdown", 0.0), ("drained", 0.2)):
        configure(stage, drain_s=drain_s)
        await stage.gateway.restart()
        text = stage.model.plan(f"before {room}", hang(3, STORY), say("the end"))
        turn = await stage.begin(room, text)
        assert await stage.gateway.terminate() == 0
        await stage.gateway.start()
        assert await stage.outcome(turn) == "done"
        assert stage.model.told(text) == [False, True]
        await stage.assert_told_once(room, times=1)
        await stage.follow_up(room)


async def replaced(stage: Stage) -> None:
    """Let the next message replace an interrupted turn."""
    configure(stage, resume="wait")
    await stage.gateway.restart()
    text = stage.model.plan("to be replaced", hang(3, STORY), say("never asked for"))
    turn = await stage.begin("replaced", text)
    summed = stage.model.plan("to be summed up", hang(3, STORY), say("never asked for"))
    await stage.begin("summed", summed)
    await stage.gateway.restart()
    await summed_up(stage)
    new = stage.model.plan("something else", say("very well"))
    after = (await stage.client.say("replaced", new))["turn"]
    assert await stage.outcome(after) == "done"
    assert await stage.outcome(turn) == "interrupted"
    assert (stage.model.told(text), stage.model.told(new)) == ([False], [True])
    await stage.assert_told_once("replaced", times=1)
    await stage.follow_up("replaced")


async def summed_up(stage: Stage) -> None:
    """Order a summary that ends at an interrupted turn, which no turn had told of yet. The summary
    is told nothing either."""
    for text, told in (("one more", True), ("and another", False)):
        key = stage.model.plan(text, say("very well"))
        assert await stage.outcome((await stage.client.say("summed", key))["turn"]) == "done"
        assert stage.model.told(key) == [told]
    focus = stage.model.plan("the story so far", say("They told a story."))
    await stage.client.say("summed", f"/compact {focus}")
    await stage.until_asked(focus, times=1)
    assert stage.model.told(focus) == [False]
    await stage.assert_told_once("summed", times=1)


async def served(stage: Stage, words: set[str]) -> str:
    """Return everything that the API gives out about these conversations, as text."""
    found = []
    for room in stage.rooms:
        found.append(str(await stage.journal(room)))
        transcript = await stage.client.transcript(room, "?limit=1000")
        found.append(str(transcript))
        turns = {entry["turn"] for entry in transcript}
        found += [str(await stage.client.call("GET", f"/api/explain/{turn}")) for turn in turns]
    for each in words:
        code, hits = await stage.client.call("GET", f"/api/search?q={quote(each)}")
        assert (code, hits["hits"]) == (200, []), each
    _, hits = await stage.client.call("GET", f"/api/search?q={quote(STORY.chunks[1])}")
    assert hits["hits"], "the search finds nothing at all"
    return "\n".join(found)


def stored(home: Path) -> bytes:
    """Return the bytes of all files, and every column of every table."""
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name.endswith("-wal") for path in files), "the log of a killed process is there"
    raw = b"\n".join(path.read_bytes() for path in files)
    database = apsw.Connection(str(home / "perdure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    rows = [repr(row) for name in tables for row in database.execute(f'SELECT * FROM "{name}"')]
    database.close()
    return raw + "\n".join(rows).encode()


async def test_no_note_is_stored_served_or_logged(stage: Stage) -> None:
    await crashes(stage)
    await planned_ends(stage)
    await replaced(stage)
    notes = {note for each in stage.model.notes.values() for note in each if note}
    known = every_note()
    assert notes <= known, "a note that is not searched for"
    assert len(notes) >= 5
    words = sentences(known)

    api = await served(stage, words)
    await stage.gateway.kill()
    everything = stored(stage.gateway.home) + stage.gateway.output.encode() + api.encode()

    assert everything.count(STORY.chunks[0].encode()) > 10, "the search would find nothing at all"
    assert [each for each in words if each.encode() in everything] == []


async def test_a_note_is_not_lost_with_a_turn_that_never_reached_the_model(stage: Stage) -> None:
    # The message that replaced the interrupted turn fails, so the next one must carry the note.
    configure(stage, resume="wait")
    await stage.gateway.restart()
    await stage.begin("room", stage.model.plan("a story", hang(3, STORY), say("never")))
    await stage.gateway.restart()
    refused = stage.model.plan("to nobody", status(400))
    turn = (await stage.client.say("room", refused))["turn"]
    assert await stage.outcome(turn) == "failed"
    heard = stage.model.plan("hello?", say("hello"))
    turn = (await stage.client.say("room", heard))["turn"]
    assert await stage.outcome(turn) == "done"

    assert (stage.model.told(refused), stage.model.told(heard)) == ([True], [True])
    await stage.assert_told_once("room", times=1)
    await stage.follow_up("room")
