"""Kills the real gateway under load at random moments, and checks what must hold afterwards.

Eight people write to it, each in a conversation of their own: they repeat a message under its id
until it is acknowledged, sometimes stop a turn, and read along with `Last-Event-ID`. The model
streams by words, calls tools, fails, and cuts its stream. Meanwhile the process is killed, while it
starts and while it works. In the end everything comes to rest, and what people were told, what the
model received and what is stored is compared.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import aiohttp
import pytest

from perdure.app.operate.verify import report
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    NoticePosted,
    SteerAccepted,
    SteerTaken,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.recovery import SUSPENDED, given_up_text
from perdure.ports.records.history import Page
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    call_tools,
    cut_after,
    error_in_stream,
    hang,
    say,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
PEOPLE = 8
REST_S = 60.0
END = "that-is-all."
GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
NO_LIMIT = 1000


def configuration(server: ModelServer, *, busy: str = "queue", attempts_max: int) -> str:
    return (
        f'[server]\nbusy = "{busy}"\n'
        f'[agents.main]\nkind = "chat"\nbase_url = "{server.openai_url}"\nmodel = "scripted"\n'
        f"[recovery]\nattempts_max = {attempts_max}\n"
    )


def unreliable_model(dice: random.Random) -> Callable[[ScriptedRequest], Reply]:
    """Return a model that is slow, fails and cuts. Only a complete answer ends with `END`."""

    def answer(request: ScriptedRequest) -> Reply:
        words = " ".join(f"w{request.number}.{each}" for each in range(dice.randrange(3, 30)))
        whole = say(f"{words} {END}", delay_ms=dice.choice((0, 2, 5, 15)))
        roll = dice.random()
        if roll < 0.2 and request.messages[-1]["role"] != "tool":
            calls = [(f"c{each}", "look", '{"at": "it"}') for each in range(dice.randrange(1, 4))]
            return call_tools(calls, text="Let me see. ", delay_ms=whole.delay_ms)
        if roll < 0.3:
            return cut_after(dice.randrange(50 * len(words.split())), whole)
        if roll < 0.35:
            return error_in_stream(2, whole)
        return say("") if roll < 0.38 else whole

    return answer


class Listener:
    """Reads along in one conversation, through every life of the gateway."""

    def __init__(self, client: Client, name: str) -> None:
        self.shown: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.there_is_something = asyncio.Event()
        self.is_listening = asyncio.Event()
        self._client = client
        self._name = name
        self._last: str | None = None

    async def listen(self) -> None:
        await self.there_is_something.wait()
        while True:
            try:
                async with self._client.events(self._name, self._last) as events:
                    async for event_id, kind, data in events:
                        self._hear(kind, data)
                        self._last = event_id
                        self.is_listening.set()
            except GONE:
                pass
            await self._client.gateway.pause(0.02)

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "outcome":
            self.outcomes[data["turn"]] += 1
        elif kind == "message" and data["role"] == "assistant":
            self._show(data["id"], 0, data["text"])
        elif kind == "delta":
            self._show(data["message"], data["offset"], data["text"])

    def _show(self, message: str, offset: int, text: str) -> None:
        seen = self.shown.get(message, "")
        if offset > len(seen):
            self.faults.append(f"{message}: a gap from {len(seen)} to {offset}")
        if not text.startswith(seen[offset:][: len(text)]):
            self.faults.append(f"{message}: {seen[offset:]!r} became {text!r}")
        self.shown[message] = max(seen, seen[:offset] + text, key=len)


class Person:
    """Writes to one conversation until told to stop, and repeats each message until its 202."""

    def __init__(self, client: Client, name: str, dice: random.Random) -> None:
        self.name = name
        self.listener = Listener(client, name)
        self.accepted: dict[str, dict[str, Any]] = {}
        self.texts: dict[str, str] = {}
        self._client = client
        self._dice = dice
        self._numbers = count()

    async def write_until(self, over: asyncio.Event) -> None:
        await self.write()
        self.listener.there_is_something.set()
        await self.listener.is_listening.wait()
        while not over.is_set():
            accepted = await self.write()
            roll = self._dice.random()
            if roll < 0.1 and accepted["turn"]:
                await self._call("POST", f"/api/turns/{accepted['turn']}/stop", (200, 409))
            elif roll < 0.6:
                await self.until_at_rest()
            await self._client.gateway.pause(self._dice.uniform(0, 0.3))

    async def write(self, text: str | None = None) -> dict[str, Any]:
        client_id = f"{self.name}-{next(self._numbers)}"
        said = text or f"this is {client_id}"
        path = f"/api/conversations/{self.name}/messages"
        accepted = await self._call("POST", path, (202,), {"text": said, "id": client_id})
        self.accepted[client_id] = accepted
        self.texts[accepted["message"]] = said
        return accepted

    async def until_at_rest(self) -> dict[str, Any]:
        while True:
            there = await self._call("GET", f"/api/conversations/{self.name}", (200,))
            if there["state"] in ("idle", "suspended") and not there["queued"]:
                return there
            await self._client.gateway.pause(0.03)

    async def _call(
        self, method: str, path: str, wanted: Sequence[int], body: object = None
    ) -> dict[str, Any]:
        """Repeat a call while nobody answers, or while something is not ready."""
        while True:
            try:
                status, answer = await self._client.call(method, path, body=body)
            except GONE:
                status, answer = 503, {}
            if status in wanted:
                found: dict[str, Any] = answer
                return found
            assert status in (429, 503), (status, answer)
            await self._client.gateway.pause(0.02)


async def kill_at_random(gateway: GatewayProcess, dice: random.Random, kills: int) -> None:
    """Kill the gateway that often, every fourth time while it starts. In the end it runs."""
    starting = dice.sample(range(kills), kills // 4)
    for number in range(kills):
        if number in starting:
            await _kill_while_starting(gateway, dice.uniform(0.05, 1.0))
        else:
            await gateway.pause(dice.uniform(0.0, 1.0))
            await gateway.kill()
        await gateway.start()


async def _kill_while_starting(gateway: GatewayProcess, after_s: float) -> None:
    await gateway.kill()
    starting = asyncio.create_task(gateway.start())
    await gateway.pause(after_s)
    await gateway.kill()
    await asyncio.gather(starting, return_exceptions=True)
    await gateway.kill()  # the start may have been faster than the kill


async def records_of(gateway: GatewayProcess) -> list[SessionRecord]:
    """Return everything that an ended gateway has stored, after a check found it sound."""
    store = Store(
        SqliteDriver(gateway.home / "perdure.db"),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        media=gateway.home / "media",
    )
    await store.open()
    try:
        found = await report(store.audit, store.diagnostics)
        assert found.violations == []
        sessions = await store.archive.sessions(principal=None, page=Page(limit=1000))
        return [await store.diagnostics.record(session.id) for session in sessions]
    finally:
        await store.close()


def events_of(records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [recorded.event for record in records for recorded in record.events]


def assert_nothing_lost_or_twice(people: Sequence[Person], events: Sequence[AnyEvent]) -> None:
    """Check that each acknowledged message became a turn, or part of one, exactly once (P1, P3)."""
    queued = [(e.message, e.text) for e in events if isinstance(e, TurnQueued)]
    steered = [(e.message, e.text) for e in events if isinstance(e, SteerAccepted)]
    taken = [(e.message, e.text) for e in events if isinstance(e, SteerTaken)]
    ends = Counter(queued) + Counter(taken)
    acknowledged = {said for person in people for said in person.texts.items()}
    assert set(ends) == acknowledged
    assert set(ends.values()) <= {1}
    assert Counter(steered) <= ends


def assert_shown_is_stored(people: Sequence[Person], events: Sequence[AnyEvent]) -> None:
    """Check that everything watchers were shown is stored, and that each `done` answer was complete
    (P4)."""
    said: dict[str, str] = {e.message: e.text for e in events if isinstance(e, AssistantSaid)}
    turns = {e.turn for e in events if isinstance(e, TurnSettled)}
    for person in people:
        listener = person.listener
        assert listener.faults == []
        lost = {m: t for m, t in listener.shown.items() if not said.get(m, "").startswith(t)}
        assert {message: (text, said.get(message)) for message, text in lost.items()} == {}
        assert set(listener.outcomes) <= turns
        assert set(listener.outcomes.values()) <= {1}
    for event in events:
        if isinstance(event, TurnSettled) and event.outcome is Outcome.DONE:
            mine = [e for e in events if isinstance(e, AssistantSaid) and e.turn == event.turn]
            ended = [e for e in mine if not e.calls and not e.is_interrupted]
            assert all(e.text.endswith(END) for e in ended), event.turn


def assert_in_order(records: Sequence[SessionRecord]) -> None:
    """Check that messages were begun, or taken in, in the order in which they came (P6)."""
    for record in records:
        events = [recorded.event for recorded in record.events]
        came = dict.fromkeys(e.message for e in events if isinstance(e, TurnQueued | SteerAccepted))
        of_turn = {e.turn: e.message for e in events if isinstance(e, TurnQueued)}
        begun = dict.fromkeys(
            of_turn[e.turn] if isinstance(e, TurnStarted) else e.message
            for e in events
            if isinstance(e, TurnStarted | SteerTaken)
        )
        assert list(begun) == [message for message in came if message in begun]


async def under_fire(
    factory: Factory, *, busy: str, kills: int, seed: int
) -> tuple[list[SessionRecord], Sequence[Person]]:
    dice = random.Random(seed)
    async with (
        ModelServer(unreliable_model(random.Random(seed + 1))) as server,
        aiohttp.ClientSession() as session,
    ):
        toml = configuration(server, busy=busy, attempts_max=NO_LIMIT)
        gateway = await factory(toml=toml)
        client = Client(gateway, session)
        people = [Person(client, f"room-{n}", random.Random(seed + 2 + n)) for n in range(PEOPLE)]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as listening:
            listeners = [listening.create_task(each.listener.listen()) for each in people]
            async with asyncio.TaskGroup() as writing:
                for person in people:
                    writing.create_task(person.write_until(over))
                await kill_at_random(gateway, dice, kills)
                over.set()
            async with asyncio.timeout(REST_S):
                for person in people:
                    await person.until_at_rest()
            for listener in listeners:
                listener.cancel()
        assert await gateway.terminate() == 0
        assert server.violations == []
    return await records_of(gateway), people


async def keeps_its_promises(factory: Factory, *, busy: str, kills: int, seed: int) -> None:
    records, people = await under_fire(factory, busy=busy, kills=kills, seed=seed)
    events = events_of(records)
    assert len(records) == PEOPLE, "no session was reset or suspended"
    turns = [turn for record in records for turn in record.turns]
    assert all(turn.state == "settled" for turn in turns)
    # Interrupted turns go on by themselves, so no newer message may end one of them.
    assert [turn for turn in turns if turn.outcome == Outcome.INTERRUPTED] == []
    assert_nothing_lost_or_twice(people, events)
    assert_shown_is_stored(people, events)
    assert_in_order(records)
    interrupted = sum(isinstance(event, AttemptInterrupted) for event in events)
    assert interrupted >= kills / 4, f"only {interrupted} attempts were hit: this proves nothing"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("busy", ["queue", "interrupt", "steer"])
async def test_random_kills_break_no_promise(
    gateway_factory: Factory, busy: str, seed: int
) -> None:
    await keeps_its_promises(gateway_factory, busy=busy, kills=4, seed=seed)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("busy", ["queue", "interrupt", "steer"])
async def test_two_hundred_random_kills_break_no_promise(
    gateway_factory: Factory, busy: str, seed: int
) -> None:
    await keeps_its_promises(gateway_factory, busy=busy, kills=70, seed=seed)


POISON = "poison"


def deadly_model(request: ScriptedRequest) -> Reply:
    """Answer one message without ever ending, and others in more than a second."""
    if POISON in request.last_user_text:
        return hang(3, say("This is going to take its time."))
    return say(f"{' '.join(['word'] * 60)} {END}", delay_ms=20)


async def until_poison_was_asked(server: ModelServer, *, times: int) -> None:
    arrived = 0
    async with asyncio.timeout(REST_S):
        while sum(POISON.encode() in each.raw for each in server.requests) < times:
            arrived = len(await server.wait_for_requests(arrived + 1))


@pytest.mark.timeout(120)
async def test_a_deadly_message_is_suspended_alone(gateway_factory: Factory) -> None:
    # Its conversation continues in a new session with the next message, and turns that died with it
    # go on.
    async with ModelServer(deadly_model) as server, aiohttp.ClientSession() as session:
        gateway = await gateway_factory(toml=configuration(server, attempts_max=3))
        client = Client(gateway, session)
        names = ["deadly", "one", "two", "three"]
        deadly, *others = (Person(client, name, random.Random(0)) for name in names)
        begun = [await other.write() for other in others]
        poisoned = await deadly.write(POISON)
        for times in (1, 2, 3):
            await until_poison_was_asked(server, times=times)
            await gateway.restart()

        outcomes = [await client.settled(each["turn"]) for each in (poisoned, *begun)]
        assert [each["outcome"] for each in outcomes] == ["suspended", "done", "done", "done"]
        assert outcomes[0]["attempts"] == 3
        assert (await deadly.until_at_rest())["state"] == "suspended"
        again = await deadly.write("hello again")
        following = [await other.write() for other in others]
        for each in (again, *following):
            assert (await client.settled(each["turn"]))["outcome"] == "done"
        assert again["session"] != poisoned["session"]
        assert [each["session"] for each in following] == [each["session"] for each in begun]
        assert await gateway.terminate() == 0
        assert server.violations == []

    records = await records_of(gateway)
    events = events_of(records)
    assert_nothing_lost_or_twice([deadly, *others], events)
    told = {each.text for each in events if isinstance(each, NoticePosted)}
    assert told == {given_up_text(3, goes_on=False), SUSPENDED}
    states = {record.session.id: record.session.state for record in records}
    assert states.pop(poisoned["session"]) == "suspended"
    assert set(states.values()) == {"open"}
