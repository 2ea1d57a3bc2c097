"""Strike the gateway at every port call while it works beside conversations.

Survives a strike: the database, the platform, the clock. Dies: everything else. Each scenario is
played once per point, and what is promised of errands is judged when everything is at rest: a
result comes back once, a summary changes nothing but what the model is told, nobody waits for
memories for ever.
"""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.checker import violations
from perdure.domain.delivery import Capabilities, PartState
from perdure.domain.errands import RESULT, Errand
from perdure.domain.errors import Ambiguous, Corrupt, Transient
from perdure.domain.events import (
    CommandTaken,
    Compacted,
    CompactionFailed,
    NoticePosted,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import PrincipalId
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt import (
    Message,
    Request,
    Role,
    TextBlock,
    assert_valid,
    messages_of,
    weave,
)
from perdure.domain.records import SessionRecord
from perdure.domain.recovery import PERSONAL, Policy
from perdure.domain.stream import AgentEvent, Stopped, Text
from perdure.domain.updates import Update
from perdure.engine.desk import Limits
from perdure.engine.feed import Feed
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.history import Page
from perdure.ports.turns import Settlement
from perdure.store.driver import Driver
from perdure.store.postgres import PostgresDriver
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.agent import CountingTools
from perdure.testkit.crash import (
    PORTS,
    Fuse,
    Fused,
    FusedAgent,
    FusedStore,
    Nemesis,
    SimulatedCrash,
)
from perdure.testkit.platform import ScriptedPlatform
from perdure.testkit.stores import OwnedDatabase, claim_one, only, reply_id
from perdure.testkit.system import SeededEntropy, VirtualClock

T = TypeVar("T")
POINTS_MAX = 400
HERE = Address(adapter="scripted", account="bot", place="room")
HOLD_MS = 10_000
LONG = "of the sea, the wind and the long way home " * 9
BEFORE = [f"{number} {LONG}" for number in ("one", "two", "three", "four")]
NEVER_MIND = "/undo 4"


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """How the model behaves: what it says to an errand (None: it breaks in the middle), and where
    it stands still until it is let go on."""

    answers: dict[str, str | None] = {}
    held: str | None = None


ANSWERS = {Errand.TITLE: "The sea", Errand.SUMMARY: "They spoke of the sea.", "": "Yes."}


class World:
    """What survives."""

    def __init__(
        self, folder: Path, driver: Callable[[], Driver], scenario: "Scenario", *, seed: int = 1
    ) -> None:
        self.driver = driver
        self.scenario = scenario
        self.platform = ScriptedPlatform(capabilities=Capabilities(takes_key=True))
        self.clock = VirtualClock(is_eager=True)
        self.entropy = SeededEntropy(seed)
        self.requests: list[Request] = []
        self.complaints: list[str] = []
        self._media = folder

    def say(self, *texts: str) -> None:
        for text in texts:
            self.platform.say(f"u{len(self.platform.sent) + 1}", "room", text)

    @asynccontextmanager
    async def store(self) -> AsyncGenerator[Store, None]:
        store = Store(self.driver(), clock=self.clock, entropy=self.entropy, media=self._media)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def bury(self) -> None:
        """On SQLite whoever opens the file is alone."""


class Gate:
    """Holds the model of one life in the middle of an answer."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def enter(self) -> None:
        self.reached.set()
        await self._open.wait()


class Model:
    """Answers by the scenario's script, and judges every request as a strict provider would."""

    def __init__(self, world: World, gate: Gate) -> None:
        self._world = world
        self._gate = gate

    def encode(self, message: Message) -> bytes:
        return msgspec.json.encode(message)

    async def close(self) -> None:
        return

    async def run(self, request: Request) -> AsyncGenerator[AgentEvent, None]:
        world, script = self._world, self._world.scenario.script
        world.requests.append(request)
        world.complaints += flaws(request)
        answer = {**ANSWERS, **script.answers}.get(request.purpose, "Done.")
        yield Text("Well" if answer is None else answer[:4] or " ")
        is_long = request.purpose or newest(request).startswith("long ")
        if request.purpose == script.held and is_long:
            await self._gate.enter()
        if answer is None:
            yield Stopped(reason=StopReason.AGENT_ERROR, detail="the model broke")
            return
        yield Text(answer[4:])
        yield Stopped(reason=StopReason.STOP)


def flaws(request: Request) -> list[str]:
    encoded = b"[" + b",".join(request.history) + b"]"
    roles = [each["role"] for each in msgspec.json.decode(encoded, type=list[dict[str, Any]])]
    roles += [message.role for message in request.messages]
    are_in_turn = all(one != other for one, other in pairwise(roles))
    if roles[0] != Role.USER or roles[-1] != Role.USER or not are_in_turn:
        return [f"a request for {request.purpose or newest(request)!r} is not valid: {roles}"]
    return []


def newest(request: Request) -> str:
    """What the person has said last, as the model reads it."""
    asked = [message for message in request.messages if message.role is Role.USER]
    texts = [b.text for message in asked for b in message.blocks if isinstance(b, TextBlock)]
    return texts[-1] if texts else ""


class Life:
    """One process, from its recovery to its end."""

    def __init__(self, world: World, store: Store, fuse: Fuse, supervisor: Supervisor) -> None:
        self.world = world
        self.gate = Gate()
        self.store = store
        self._fuse = fuse
        self._person = PrincipalId("")
        self.parts = self._put_together(supervisor)

    def _put_together(self, supervisor: Supervisor) -> Parts:
        world, fuse, scenario = self.world, self._fuse, self.world.scenario
        seat = Seat(
            name="main",
            kind="scripted",
            agent=FusedAgent(Model(world, self.gate), fuse),
            tools=CountingTools([]),
            has_memory=scenario.has_memory,
            context_tokens=scenario.context_tokens,
        )
        deliveries = fuse if scenario.strikes_deliveries else Fuse()
        ports = [port for port in PORTS if port != "outbox" or scenario.strikes_deliveries]
        around = Surroundings(
            store=FusedStore(self.store, fuse, ports),  # type: ignore[arg-type]
            roster=Roster({"main": seat}),
            clock=world.clock,
            entropy=world.entropy,
            limits=Limits(has_titles=True, recovery=Policy(freshness_ms=0, attempts_max=5)),
            adapters={"scripted": Fused(world.platform, deliveries)},
        )
        return put_together(around, supervisor.start, feed=Feed())

    async def recover(self) -> None:
        self._person = (await self.store.principals.ensure("person", role="member")).id
        await self.store.nodes.join(name="sim")
        while await patiently(self.parts.reaper.step):
            pass
        await patiently(self.parts.outbox.recover)

    async def receive(self) -> None:
        """Acknowledge only what is committed; the rest comes again."""
        for sent in list(self.world.platform.unacknowledged):
            update = Update(
                address=HERE,
                external_id=sent.id,
                kind=sent.kind,
                principal=self._person,
                text=sent.text,
            )
            await patiently(partial(self.parts.door.accept, update))
            await self.world.platform.acknowledge(sent.id)

    async def hold(self, *texts: str) -> None:
        """Accept messages and work until the model stands at the gate."""
        self.gate.close()
        self.world.say(*texts)
        await self.receive()
        await patiently(self.parts.turns.step)
        await self._until(lambda: self.gate.reached.is_set() or not self.parts.turns.running)

    async def talk_beside(self, *texts: str) -> None:
        """Accept more and let it be answered while the model still stands at the gate."""
        self.world.say(*texts)
        await self.receive()
        while await patiently(self.parts.turns.step):
            pass
        await self._until(lambda: self.parts.turns.running <= 1)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so():
                await asyncio.sleep(0.0005)

    async def breathe(self) -> None:
        """Let the pumps come to what they wait for."""
        for _ in range(20):
            await self.store.turns.next_claim_ms()

    async def work(self) -> None:
        """Everything that can be done now."""
        self.gate.open()
        is_busy = True
        while is_busy:
            await self.receive()
            is_busy = await patiently(self.parts.turns.step)
            await self.parts.turns.finished()
            is_busy |= await patiently(self.parts.outbox.step)

    async def rest(self) -> None:
        """Everything, however long it takes."""
        for _ in range(10):
            await self.work()
            self.world.clock.advance(400)
            waiting = await self.store.turns.next_claim_ms()
            if waiting is None and await self.store.outbox.next_due_ms() is None:
                return
        raise AssertionError("the gateway never came to rest")


async def patiently(step: Callable[[], Awaitable[T]]) -> T:
    """Again after a refusal or a lost answer, as the pumps' own loops do."""
    for _ in range(3):
        try:
            return await step()
        except (Transient, Ambiguous):
            continue
    raise AssertionError("refused three times")


Act = Callable[[Life], Awaitable[None]]


async def live(world: World, fuse: Fuse, act: Act) -> None:
    async with world.store() as store:
        try:
            async with Supervisor() as supervisor:
                life = Life(world, store, fuse, supervisor)
                await life.recover()
                await act(life)
        except BaseExceptionGroup as group:
            if group.split(SimulatedCrash)[1] is not None:
                raise
    await world.bury()


async def before(world: World) -> None:
    """A conversation of some length, told to the model in full."""
    async with world.store() as store:
        await store.nodes.join(name="before")
        person = (await store.principals.ensure("person", role="member")).id
        for number, text in enumerate(BEFORE, 1):
            update = Update(
                address=HERE,
                external_id=f"before-{number}",
                kind=PERSONAL,
                principal=person,
                text=text,
            )
            await store.inbox.accept(update, queue_max=9)
            lease = (await claim_one(store)).lease
            settlement = Settlement(
                outcome=Outcome.DONE,
                reason="stop",
                message=reply_id(lease),
                text="Yes.",
                context_tokens=120 * number,
            )
            await store.turns.settle(lease, settlement)
        await store.nodes.leave()


async def talk(life: Life) -> None:
    life.world.say(f"five {LONG}")
    await life.work()


async def talk_on(life: Life) -> None:
    await life.rest()
    life.world.say("and now?")
    await life.rest()


async def go_back(life: Life) -> None:
    """The session that was left can be gone back to, and knows what was said in it."""
    await life.rest()
    life.world.say("/resume", "and now?")
    await life.rest()


async def dig(life: Life) -> None:
    life.world.say("/background dig")
    await life.work()


async def begin_anew(life: Life) -> None:
    life.world.say("/new")
    await life.receive()
    await life.work()


async def begin_anew_while_digging(life: Life) -> None:
    await life.hold("/background dig")
    await life.talk_beside("/new", "hello")
    await life.work()


async def begin_anew_before_it_is_said(life: Life) -> None:
    """The result waits behind a long answer, and the session is left."""
    await life.hold("long story")
    await life.talk_beside("/background dig")
    await life.talk_beside("/new")
    await life.work()


async def compact(life: Life) -> None:
    await life.hold("/compact")
    await life.talk_beside("meanwhile")
    await life.work()


async def compact_and_undo(life: Life) -> None:
    """What the summary stands for is left behind while it is written."""
    await life.hold("/compact")
    await life.talk_beside(NEVER_MIND)
    await life.work()


async def compact_and_stop(life: Life) -> None:
    await life.hold("/compact")
    await life.talk_beside("/stop")
    await life.work()


async def reset(life: Life) -> None:
    life.world.say("/reset", "hello")
    await life.work()


async def reset_and_wait(life: Life) -> None:
    """Nobody can say when the memories are saved; the new session begins all the same."""
    await life.hold("/reset", "hello")
    await life.talk_beside()
    life.world.clock.advance(HOLD_MS / 1000)
    await life.talk_beside()
    await life.work()


Judge = Callable[[World, Sequence[SessionRecord]], list[str]]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`promise` holds whoever strikes; `proof` says what must happen when nobody does. Results and
    notices go out like every answer, so few scenarios are struck there too."""

    acts: tuple[Act, ...]
    promise: Judge
    proof: Callable[[Sequence[SessionRecord]], bool]
    script: Script = Script()
    is_begun: bool = True
    has_memory: bool = False
    context_tokens: int = 128_000
    strikes_deliveries: bool = False
    last: Act = talk_on


def events_of(kind: type[Any], records: Sequence[SessionRecord]) -> list[Any]:
    return only(kind, [recorded for record in records for recorded in record.events])


def errands_of(errand: Errand, records: Sequence[SessionRecord]) -> list[SessionRecord]:
    return [record for record in records if opening(record).kind == errand]


def opening(record: SessionRecord) -> SessionOpened:
    event = record.events[0].event
    assert isinstance(event, SessionOpened)
    return event


def outcome_of(record: SessionRecord) -> str | None:
    """An errand's session has one turn."""
    (turn,) = record.turns
    return turn.outcome


def comes_back_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Each answer of the background is said once, as a turn of a session that people are in."""
    results = {
        event.turn: event for event in events_of(TurnQueued, records) if event.kind == RESULT
    }
    said = [
        turn.id
        for record in records
        for turn in record.turns
        if turn.id in results and turn.outcome == Outcome.DONE and not opening(record).kind
    ]
    shown = [each.text for each in world.platform.shown if "In the background: dig" in each.text]
    given = sum(sent.text == "/background dig" for sent in world.platform.sent)
    if not len(said) == len(shown) == given:
        return [f"asked {given} times, brought {len(said)} times, shown {len(shown)} times"]
    return []


def entitles_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    titles = [events_of(TitleSet, [record]) for record in records]
    return ["a session got its title twice"] if any(len(each) > 1 for each in titles) else []


def compacts_once(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Each errand for a summary has come to exactly one end, and who asked for it was told."""
    errands = errands_of(Errand.SUMMARY, records)
    ended = [
        event.errand
        for event in [*events_of(Compacted, records), *events_of(CompactionFailed, records)]
    ]
    found = []
    if sorted(ended) != sorted(record.turns[0].id for record in errands):
        found.append(f"{len(errands)} summaries were ordered, {len(ended)} came to an end")
    asked = sum(opening(record).reason == "command" for record in errands)
    notices = [event.text for event in events_of(NoticePosted, records)]
    told = sum(text.startswith(("Compacted: ", "Not compacted: ")) for text in notices)
    if told != asked:
        found.append(f"{asked} summaries were asked for, {told} were told of")
    return found


def saves_before_it_goes_on(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """The new session's first turn begins when the memories are saved, or after a while."""
    found = []
    saved = errands_of(Errand.MEMORY, records)
    for record in records:
        if opening(record).reason != "reset":
            continue
        over = [r.at for each in saved for r in each.events if isinstance(r.event, TurnSettled)]
        begun = [r.at for r in record.events if isinstance(r.event, TurnStarted)]
        may_begin = min([record.events[0].at + HOLD_MS, *over])
        if begun and begun[0] < may_begin:
            found.append(f"{record.session.id} began {may_begin - begun[0]} ms too early")
    failed = [each for each in saved if outcome_of(each) != Outcome.DONE]
    notices = [event.text for event in events_of(NoticePosted, records)]
    if sum("could not be saved" in text for text in notices) != len(failed):
        found.append(f"{len(failed)} times memories were not saved, and {notices} were told")
    resets = sum(sent.text == "/reset" for sent in world.platform.sent)
    if len(saved) != resets:
        found.append(f"{resets} resets saved memories {len(saved)} times")
    return found + _left_whole(records)


def _left_whole(records: Sequence[SessionRecord]) -> list[str]:
    """The session that was left was closed, and gone back to."""
    closed = [event for event in events_of(SessionClosed, records) if event.reason == "reset"]
    resumed = events_of(SessionResumed, records)
    return [] if len(closed) <= len(resumed) else ["the session that was left is gone"]


def _is_brought(records: Sequence[SessionRecord]) -> bool:
    return any(event.kind == RESULT for event in events_of(TurnQueued, records))


def _is_brought_elsewhere(records: Sequence[SessionRecord]) -> bool:
    anew = [record for record in records if opening(record).reason == "new"]
    return _is_brought(anew)


def _has(kind: type[Any]) -> Callable[[Sequence[SessionRecord]], bool]:
    return lambda records: bool(events_of(kind, records))


def _fails_with(reason: str) -> Callable[[Sequence[SessionRecord]], bool]:
    def proof(records: Sequence[SessionRecord]) -> bool:
        return any(reason in event.reason for event in events_of(CompactionFailed, records))

    return proof


def _waits(records: Sequence[SessionRecord]) -> bool:
    """The hold was over sooner than it had to be: by what it was for."""
    (anew,) = [record for record in records if opening(record).reason == "reset"]
    begun = next(r.at for r in anew.events if isinstance(r.event, TurnStarted))
    return begun < anew.events[0].at + HOLD_MS


def _waits_no_longer(records: Sequence[SessionRecord]) -> bool:
    (saved,) = errands_of(Errand.MEMORY, records)
    (anew,) = [record for record in records if opening(record).reason == "reset"]
    begun = next(r.at for r in anew.events if isinstance(r.event, TurnStarted))
    over = next(r.at for r in saved.events if isinstance(r.event, TurnSettled))
    return begun < over


BACKGROUND = Script(held=Errand.BACKGROUND)
SUMMARY = Script(held=Errand.SUMMARY)
SCENARIOS = {
    "background": Scenario(
        acts=(dig, begin_anew),
        promise=comes_back_once,
        proof=_is_brought,
        is_begun=False,
        strikes_deliveries=True,
    ),
    "background left": Scenario(
        acts=(begin_anew_while_digging,),
        promise=comes_back_once,
        proof=_is_brought_elsewhere,
        script=BACKGROUND,
    ),
    "background in line": Scenario(
        acts=(begin_anew_before_it_is_said,),
        promise=comes_back_once,
        proof=_is_brought_elsewhere,
        script=Script(held=""),
    ),
    "title": Scenario(acts=(talk,), promise=entitles_once, proof=_has(TitleSet), is_begun=False),
    "long": Scenario(
        acts=(talk,), promise=compacts_once, proof=_has(Compacted), context_tokens=500
    ),
    "compact": Scenario(
        acts=(compact,), promise=compacts_once, proof=_has(Compacted), script=SUMMARY
    ),
    "compact to nothing": Scenario(
        acts=(compact,),
        promise=compacts_once,
        proof=_fails_with("empty"),
        script=Script(held=Errand.SUMMARY, answers={Errand.SUMMARY: ""}),
    ),
    "compact and break": Scenario(
        acts=(compact,),
        promise=compacts_once,
        proof=_fails_with("failed"),
        script=Script(held=Errand.SUMMARY, answers={Errand.SUMMARY: None}),
    ),
    "compact and undo": Scenario(
        acts=(compact_and_undo,),
        promise=compacts_once,
        proof=_fails_with("another way"),
        script=SUMMARY,
    ),
    "compact and stop": Scenario(
        acts=(compact_and_stop,),
        promise=compacts_once,
        proof=_fails_with("stopped"),
        script=SUMMARY,
    ),
    "reset": Scenario(
        acts=(reset,),
        promise=saves_before_it_goes_on,
        proof=_waits,
        has_memory=True,
        last=go_back,
    ),
    "reset and break": Scenario(
        acts=(reset,),
        promise=saves_before_it_goes_on,
        proof=_waits,
        script=Script(answers={Errand.MEMORY: None}),
        has_memory=True,
        strikes_deliveries=True,
        last=go_back,
    ),
    "reset and hang": Scenario(
        acts=(reset_and_wait,),
        promise=saves_before_it_goes_on,
        proof=_waits_no_longer,
        script=Script(held=Errand.MEMORY),
        has_memory=True,
        last=go_back,
    ),
}


async def play(world: World, fuse: Fuse) -> list[str]:
    """The acts under the fuse, after a death without it, at last in peace: what was broken."""
    for act in world.scenario.acts:
        await live(world, Fuse() if fuse.is_dead else fuse, act)
    found = ["the last life was cut short"]
    await live(world, Fuse(), partial(end, found=found, is_untouched=not fuse.has_struck))
    return found


async def end(life: Life, *, found: list[str], is_untouched: bool) -> None:
    """The last act, and what is found to be broken after it."""
    world, store, scenario = life.world, life.store, life.world.scenario
    await scenario.last(life)
    page = Page(limit=1000, with_unlisted=True)
    sessions = await store.archive.sessions(principal=None, page=page)
    records = [await store.diagnostics.record(session.id) for session in sessions]
    found[:] = [each for record in records for each in violations(record)]
    for record in records:
        found += await unreadable(store, record)
    found += broken(world, records)
    if is_untouched and not scenario.proof(records):
        found.append("the scenario does not do what it is for")


async def unreadable(store: Store, record: SessionRecord) -> list[str]:
    """The next request is one that strict providers take, with the summaries and without."""
    if record.head is None or opening(record).kind:
        return []
    found = []
    for read in (store.conversations.window, store.conversations.chain):
        turns = await read(record.head, limit=1000)
        something = Message(role=Role.USER, blocks=(TextBlock("next"),))
        told = [message for events in turns for message in messages_of(events)]
        final, last = weave(None, [*told, something])
        try:
            assert_valid([*final, *([last] if last else [])], begins=True)
        except Corrupt as error:
            found.append(f"{record.session.id}: {error.message}")
    return found


def broken(world: World, records: Sequence[SessionRecord]) -> list[str]:
    found = [*world.complaints, *world.scenario.promise(world, records), *misheard(world, records)]
    for record in records:
        found += [f"{turn.id} is {turn.state}" for turn in record.turns if turn.outcome is None]
        found += [f"{p.id} is {p.state}" for p in record.parts if p.state != PartState.SENT]
    found += [f"never acknowledged: {each}" for each in world.platform.unacknowledged]
    found += [f"shown twice: {part}" for part in world.platform.repeated()]
    if newest(world.requests[-1]) not in ("and now?", ""):
        found.append(f"the model was asked last: {newest(world.requests[-1])!r}")
    return found


def misheard(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """What people said stands once, commands were taken once, and the model has read the rest word
    for word, as the newest."""
    words = [sent.text for sent in world.platform.sent]
    commands = sorted(text.split()[0][1:] for text in words if text.startswith("/"))
    spoken = sorted(text for text in words if not text.startswith("/"))
    queued = [event for event in events_of(TurnQueued, records) if event.kind == PERSONAL]
    heard = sorted(event.text for event in queued if event.text not in BEFORE)
    taken = sorted(event.command for event in events_of(CommandTaken, records))
    read = {newest(request) for request in world.requests}
    found = [f"{text!r} was never read" for text in spoken if text not in read]
    if heard != spoken or commands != taken:
        found.append(f"{words} were said, {heard} were heard and {taken} taken")
    return found


@pytest.fixture(autouse=True)
async def _quiet_deaths() -> None:
    """Tasks of a dead process die untidily; that is the point."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)


async def begun(folder: Path, scenario: Scenario) -> Path:
    """A database to begin with, made once."""
    path = folder / "before.db"
    world = World(folder, partial(SqliteDriver, path, synchronous="OFF"), scenario, seed=0)
    if scenario.is_begun:
        await before(world)
    else:
        async with world.store():
            pass
    return path


async def strike(folder: Path, scenario: Scenario, nemesis: Nemesis, *, every: int = 1) -> None:
    template = await begun(folder, scenario)
    for point in range(0, POINTS_MAX, every):
        path = folder / f"{point}.db"
        shutil.copy(template, path)
        world = World(folder, partial(SqliteDriver, path, synchronous="OFF"), scenario)
        fuse = Fuse(point, nemesis)
        found = await play(world, fuse)
        assert not found, f"{nemesis} at {point}, {fuse.struck}: {found}"
        path.unlink()
        if not fuse.has_struck:
            assert point > 15, "the scenario has lost its points"
            return
    raise AssertionError("the scenario never passed untouched")


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_death_breaks_an_errand(tmp_path: Path, name: str) -> None:
    await strike(tmp_path, SCENARIOS[name], Nemesis.DIE)


@pytest.mark.chaos
@pytest.mark.parametrize("nemesis", [Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_failure_breaks_an_errand(tmp_path: Path, name: str, nemesis: Nemesis) -> None:
    await strike(tmp_path, SCENARIOS[name], nemesis)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("name", ["background", "title", "long", "reset"])
async def test_no_fifth_failure_breaks_an_errand(
    tmp_path: Path, name: str, nemesis: Nemesis
) -> None:
    await strike(tmp_path, SCENARIOS[name], nemesis, every=5)


class SharedWorld(World):
    def __init__(self, folder: Path, postgres: OwnedDatabase, scenario: Scenario) -> None:
        super().__init__(folder, partial(PostgresDriver, postgres.url, connections=2), scenario)
        self._postgres = postgres

    async def bury(self) -> None:
        await self._postgres.bury_all()


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_tenth_instant_breaks_an_errand_on_postgres(
    tmp_path: Path, postgres: OwnedDatabase, name: str
) -> None:
    scenario = SCENARIOS[name]
    # Another tenth for each, so that together they come close to all.
    for point in count(list(SCENARIOS).index(name) % 10, 10):
        await postgres.empty()
        world = SharedWorld(tmp_path, postgres, scenario)
        if scenario.is_begun:
            await before(world)
        fuse = Fuse(point)
        found = await play(world, fuse)
        assert not found, f"death at {point}, {fuse.struck}: {found}"
        if not fuse.has_struck:
            return


@asynccontextmanager
async def at_work(world: World) -> AsyncGenerator[Life, None]:
    """A process whose pumps run by themselves."""
    async with world.store() as store, Supervisor() as supervisor:
        life = Life(world, store, Fuse(), supervisor)
        await life.recover()
        await life.parts.gateway.begin(name="sim")
        try:
            yield life
        finally:
            life.gate.open()
            await life.parts.gateway.drain()


async def until_asked(world: World, text: str) -> None:
    async with asyncio.timeout(5):  # half of what the hold would take
        while not any(newest(each) == text for each in world.requests if not each.purpose):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def held_at_memories(folder: Path) -> AsyncGenerator[Life, None]:
    """The old session's memories are being saved, and the new one has something to do."""
    scenario = SCENARIOS["reset and hang"]
    path = await begun(folder, scenario)
    world = World(folder, partial(SqliteDriver, path, synchronous="OFF"), scenario)
    async with at_work(world) as life:
        life.gate.close()
        world.say("/reset", "hello")
        await life.receive()
        await life.gate.reached.wait()
        await life.breathe()
        assert not any(newest(each) == "hello" for each in world.requests)
        yield life


async def test_a_new_session_begins_as_soon_as_memories_are_saved(tmp_path: Path) -> None:
    """Time stands still, so nobody waits it out."""
    async with held_at_memories(tmp_path) as life:
        life.gate.open()
        await until_asked(life.world, "hello")


async def test_a_new_session_waits_for_memories_no_longer_than_it_must(tmp_path: Path) -> None:
    async with held_at_memories(tmp_path) as life:
        life.world.clock.advance(HOLD_MS / 1000 - 0.2)
        life.parts.turns.wake()
        await life.breathe()
        assert not any(newest(each) == "hello" for each in life.world.requests)
        life.world.clock.advance(0.2)
        await until_asked(life.world, "hello")
