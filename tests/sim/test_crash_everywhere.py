"""Strike the gateway at every port call, start it again, and check what the world saw.

Survives a strike: the database, the platform, what tools did. Dies: everything else. Each
scenario is run once per point: with a strike at its first port call, then at its second, and so on
until a run passes untouched.

A scenario is a few acts, each played in a life of its own; people go on with theirs whatever
happens to the gateway: they repeat what was not acknowledged and answer what they are asked.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.attachments import as_fetched, in_words, places_of
from perdure.domain.checker import violations
from perdure.domain.delivery import (
    AHEAD,
    REPLY,
    WITHDRAWN,
    Capabilities,
    Pace,
    PartState,
    Step,
    Streaming,
)
from perdure.domain.errors import Ambiguous, Conflict, Transient
from perdure.domain.events import (
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    CommandTaken,
    HeadMoved,
    MediaFetched,
    MediaLost,
    MessageJoined,
    NoticePosted,
    Recorded,
    SteerTaken,
    ToolCall,
    TurnAmended,
    TurnMoved,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import PartId, PrincipalId, SessionId, TurnId
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.prompt import MediaBlock, Request, TextBlock
from perdure.domain.records import PartView, SessionRecord
from perdure.domain.recovery import CONTINUE, PERSONAL, Policy, Resume
from perdure.domain.stream import AgentEvent, Text
from perdure.domain.turn import State
from perdure.domain.updates import EDIT, Update
from perdure.domain.watching import Delta
from perdure.engine.desk import Limits
from perdure.engine.feed import Feed, Item
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.history import Page
from perdure.ports.tools import Caller, ToolResult
from perdure.store.driver import Driver
from perdure.store.postgres import PostgresDriver
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.agent import CountingTools, ScriptedAgent, echo, said
from perdure.testkit.crash import (
    Fuse,
    Fused,
    FusedAgent,
    FusedFetcher,
    FusedStore,
    Nemesis,
    SimulatedCrash,
)
from perdure.testkit.platform import ScriptedPlatform
from perdure.testkit.stores import OwnedDatabase
from perdure.testkit.system import SeededEntropy, VirtualClock

T = TypeVar("T")
# How turns end of which people get all that there is.
_ANSWERED = (Outcome.DONE, Outcome.SUSPENDED)
POINTS_MAX = 400
KEY = Capabilities(takes_key=True, can_delete=True, upload_bytes_max=10_000)
FIND = Capabilities(can_find=True, can_delete=True, upload_bytes_max=10_000)
NEITHER = Capabilities(upload_bytes_max=10_000)
GROWING = Capabilities(
    can_edit=True,
    can_delete=True,
    streaming=Streaming.EDIT,
    upload_bytes_max=10_000,
    pace=Pace(preview_s=0),
)
APPENDING = Capabilities(
    can_find=True,
    can_delete=True,
    streaming=Streaming.APPEND,
    upload_bytes_max=10_000,
    ahead_min=1,
    pace=Pace(preview_s=0),
)
PLATFORMS = {
    "find": FIND,
    "neither": NEITHER,
    "growing": GROWING,
    "growing with a key": msgspec.structs.replace(GROWING, takes_key=True),
    "growing and can be asked": msgspec.structs.replace(GROWING, can_find=True),
    "growing in small messages": msgspec.structs.replace(GROWING, text_max=120),
    "appending": APPENDING,
    "appending and cannot be asked": msgspec.structs.replace(APPENDING, can_find=False),
}
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]  # one process cannot lose its lease
MakeDriver = Callable[[], Driver]
Bury = Callable[[], Awaitable[None]]


async def _nothing_to_bury() -> None:
    """On SQLite whoever opens the file is alone."""


class World:
    """What survives."""

    def __init__(self, media: Path, driver: MakeDriver, *, bury: Bury = _nothing_to_bury) -> None:
        self.driver = driver
        self.bury = bury
        self.platform = ScriptedPlatform(capabilities=KEY)
        self.agent = ScriptedAgent()
        self.tools_ran: list[str] = []
        self.clock = VirtualClock(is_eager=True)
        self.entropy = SeededEntropy()
        self.limits = Limits(drain_timeout_s=0)
        self.shown: dict[str, str] = {}
        self.modes: dict[str, Busy] = {}
        self.final: dict[TurnId, int] = {}
        self._media = media

    def store(self) -> Store:
        return Store(self.driver(), clock=self.clock, entropy=self.entropy, media=self._media)

    def say(
        self,
        text: str,
        *,
        place: str = "room",
        busy: Busy = Busy.QUEUE,
        files: Sequence[str] = (),
        album: str = "",
    ) -> None:
        update = f"u{len(self.platform.sent) + 1}"
        self.modes[update] = busy
        self.platform.say(update, place, text, files=files, album=album)

    def edit(self, target: str, text: str) -> None:
        self.platform.edit(f"u{len(self.platform.sent) + 1}", target, text)

    def delete(self, target: str) -> None:
        self.platform.delete_message(f"u{len(self.platform.sent) + 1}", target)

    def see(self, delta: Delta) -> None:
        """A watcher reads what it is told."""
        seen = self.shown.get(delta.message, "")
        self.shown[delta.message] = seen[: delta.offset] + delta.text

    def answer(self) -> None:
        """People answer each question that they see."""
        asked = sum(CONTINUE in shown.text for shown in self.platform.shown)
        answered = sum(sent.text == CONTINUE for sent in self.platform.sent)
        if asked > answered:
            self.say(CONTINUE)


class WatchedFeed(Feed):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def publish(self, session: SessionId, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Delta):
                self._world.see(item)
        super().publish(session, items)


def in_paragraphs(request: Request) -> Sequence[AgentEvent]:
    """An answer whose first piece holds a paragraph that nothing can change any more."""
    return [Text("Well.\n\nNow then.\n\n"), *echo(request)]


class Gate:
    """Holds the work of one life where a script wants it: in the middle of it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self.open()

    def close(self) -> None:
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def enter(self) -> None:
        self.reached.set()
        await self._open.wait()


class HeldAgent:
    """Stands at the gate after the first piece of a long answer."""

    def __init__(self, inner: ScriptedAgent, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self.encode = inner.encode
        self.close = inner.close

    async def run(self, request: Request) -> AsyncGenerator[AgentEvent, None]:
        async for event in self._inner.run(request):
            yield event
            if isinstance(event, Text) and said(request).startswith("long "):
                await self._gate.enter()


class HeldTools(CountingTools):
    """Stands at the gate when the work is done and its result is on the way."""

    def __init__(self, ran: list[str], gate: Gate) -> None:
        super().__init__(ran)
        self._gate = gate

    async def call(self, call: ToolCall, caller: Caller) -> ToolResult:
        result = await super().call(call, caller)
        await self._gate.enter()
        return result


class Life:
    """One process, from its recovery to its end."""

    def __init__(self, world: World, store: Store, fuse: Fuse, supervisor: Supervisor) -> None:
        self.world = world
        self.gate = Gate()
        self.turns: dict[str, TurnId | None] = {}
        self._store = store
        self._fuse = fuse
        self._person = PrincipalId("")
        self.parts = self._put_together(supervisor)

    def _put_together(self, supervisor: Supervisor) -> Parts:
        world, fuse = self.world, self._fuse
        seat = Seat(
            name="main",
            kind="scripted",
            agent=FusedAgent(HeldAgent(world.agent, self.gate), fuse),
            tools=HeldTools(world.tools_ran, self.gate),
        )
        around = Surroundings(
            store=FusedStore(self._store, fuse),  # type: ignore[arg-type]
            roster=Roster({"main": seat}),
            clock=world.clock,
            entropy=world.entropy,
            limits=world.limits,
            adapters={"scripted": Fused(world.platform, fuse)},
            sources={"scripted": FusedFetcher(world.platform, fuse)},
        )
        return put_together(around, supervisor.start, feed=WatchedFeed(world))

    async def recover(self) -> None:
        self._person = (await self._store.principals.ensure("person", role="member")).id
        await patiently(partial(Fused(self._store.nodes, self._fuse).join, name="sim"))
        while await patiently(self.parts.reaper.step):
            pass
        await patiently(self.parts.outbox.recover)

    async def receive(self) -> None:
        """The platform's receiver: acknowledge only what is committed; the rest comes again."""
        for sent in list(self.world.platform.unacknowledged):
            update = Update(
                address=Address(adapter="scripted", account="bot", place=sent.place),
                external_id=sent.id,
                kind=sent.kind,
                principal=self._person,
                text=sent.text,
                busy=self.world.modes.get(sent.id, Busy.QUEUE),
                target=sent.target,
                attachments=tuple(
                    Attachment(reference=file.reference, name=file.name, size=file.size)
                    for file in sent.files
                ),
                album=sent.album,
            )
            accepted = await patiently(partial(self.parts.door.accept, update))
            self.turns[sent.id] = accepted.turn
            await self.world.platform.acknowledge(sent.id)

    async def hold(self, text: str) -> None:
        """Accept a message and begin its turn, up to the gate."""
        self.gate.close()
        self.world.say(text)
        await self.receive()
        await patiently(self.parts.turns.step)
        async with asyncio.timeout(20):
            while self.parts.turns.running and not self._is_held:
                await asyncio.sleep(0.0005)

    @property
    def _is_held(self) -> bool:
        return self.gate.reached.is_set() and bool(self.world.shown or self.world.tools_ran)

    async def stop(self, update: str) -> None:
        turn = self.turns[update]
        assert turn is not None
        try:
            await patiently(partial(self.parts.door.stop, turn, by=self._person))
        except Conflict:
            return  # it had been stopped, and the answer was lost

    def kill(self) -> None:
        self._fuse.is_killed = True
        raise SimulatedCrash("killed")

    async def drain(self) -> None:
        await patiently(self.parts.gateway.drain)

    async def rest(self) -> None:
        """Work until nothing is left."""
        self.gate.open()
        for _ in range(50):
            await self.receive()
            fetched = await patiently(self.parts.fetching.step)
            claimed = await patiently(self.parts.turns.step)
            await self.parts.turns.finished()
            sent = await patiently(self.parts.outbox.step)
            self.world.clock.advance(400)
            self.world.answer()
            is_idle = not claimed and not fetched and not sent
            if is_idle and not self.world.platform.unacknowledged and await self._is_over():
                return
        raise AssertionError("the gateway never came to rest")

    async def records(self) -> list[SessionRecord]:
        sessions = await self._store.archive.sessions(principal=None, page=Page(limit=1000))
        return [await self._store.diagnostics.record(session.id) for session in sessions]

    async def _is_over(self) -> bool:
        due = [await self._store.outbox.next_due_ms(), await self._store.fetches.next_due_ms()]
        return due == [None, None] and await self._store.turns.next_claim_ms() is None


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
    store = world.store()
    await store.open()
    try:
        async with Supervisor() as supervisor:
            life = Life(world, store, fuse, supervisor)
            await life.recover()
            await act(life)
    except BaseExceptionGroup as group:
        if group.split(SimulatedCrash)[1] is not None:
            raise
    finally:
        await store.close()
        fuse.is_killed = False
    await world.bury()


async def live_and_tell(world: World, act: Act) -> list[SessionRecord]:
    """In peace: what stands in the store at the end."""
    records: list[SessionRecord] = []

    async def act_and_read(life: Life) -> None:
        await act(life)
        records.extend(await life.records())

    await live(world, Fuse(), act_and_read)
    return records


async def rest(life: Life) -> None:
    await life.rest()


async def talk(life: Life) -> None:
    life.world.say("hello")
    life.world.say("tool look")
    life.world.say("how are you", place="other")
    await life.rest()


async def supersede(life: Life) -> None:
    await life.hold("long story")
    life.world.say("never mind", busy=Busy.INTERRUPT)
    await life.receive()
    await life.rest()


async def steer(life: Life) -> None:
    await life.hold("tool look")
    life.world.say("rather north", busy=Busy.STEER)
    await life.receive()
    await life.rest()


async def stop(life: Life) -> None:
    await life.hold("long story")
    await life.stop("u1")
    await life.rest()


async def stop_in_words(life: Life) -> None:
    await life.hold("long story")
    life.world.say("/stop")
    await life.receive()
    await life.rest()


async def edit(life: Life) -> None:
    """What runs, what waits, what was answered last, and what was answered long ago."""
    await life.hold("long story")
    life.world.say("and then")
    life.world.edit("u1", "long tale")
    life.world.edit("u2", "and after that")
    await life.receive()
    await life.rest()
    life.world.edit("u2", "and before that")
    life.world.edit("u1", "short tale")
    await life.rest()


async def delete(life: Life) -> None:
    """What waits goes, what runs does not."""
    await life.hold("long story")
    life.world.say("and then")
    life.world.delete("u2")
    life.world.delete("u1")
    await life.receive()
    await life.rest()


async def undo(life: Life) -> None:
    """What was answered and shown, and what is being answered."""
    life.world.say("hello")
    await life.rest()
    life.world.say("/undo")
    await life.rest()
    await life.hold("long story")
    life.world.say("/undo")
    await life.receive()
    await life.rest()


async def send_files(life: Life) -> None:
    """What is said after them waits for them."""
    life.world.say("look at these", files=["one.txt", "two.txt"])
    life.world.say("and now?")
    await life.rest()


async def lose_a_file(life: Life) -> None:
    life.world.say("look at these", files=["one.txt", "two.txt"])
    life.world.platform.gone = {"u1/two.txt"}
    await life.rest()


async def stop_with_files(life: Life) -> None:
    """Nobody brings files to what was stopped."""
    life.world.say("look at this", files=["one.txt"])
    await life.receive()
    await life.stop("u1")
    life.world.say("never mind")
    await life.rest()


async def send_album(life: Life) -> None:
    life.world.say("our garden", files=["one.txt"], album="a")
    life.world.say("", files=["two.txt"], album="a")
    life.world.say("", files=["three.txt"], album="a")
    life.world.say("and now?")
    await life.rest()


async def give_a_file(life: Life) -> None:
    life.world.say("file plan.txt")
    await life.rest()


async def drain(life: Life) -> None:
    await life.hold("long story")
    await life.drain()


async def drain_with_more(life: Life) -> None:
    """Nobody says anything more after what waits behind the answer, and what was said to it."""
    await life.hold("long story")
    life.world.say("and then")
    life.world.say("rather short", busy=Busy.STEER)
    await life.receive()
    await life.drain()


async def talk_on(life: Life) -> None:
    life.world.say("and now?")
    await life.rest()


async def talk_on_if_left(life: Life) -> None:
    """An answer that still waits for the next message gets one; no message waits for another."""
    await life.rest()
    turns = [turn for record in await life.records() for turn in record.turns]
    assert not [turn for turn in turns if turn.state == State.QUEUED]
    life.world.say("still there?")
    await life.rest()


async def fall(life: Life) -> None:
    """The gateway ends in the middle of an answer. What waits behind it, and what was said to it,
    is not to blame."""
    await life.hold("long story")
    life.world.say("look at this", files=["one.txt"])
    life.world.say("rather short", busy=Busy.STEER)
    await life.receive()
    life.kill()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`outcomes` are those that turns may have; `proof` is what must happen when nobody strikes."""

    acts: tuple[Act, ...]
    outcomes: frozenset[Outcome] = frozenset({Outcome.DONE})
    proof: Callable[[Recorded], bool]
    resume: Resume = Resume.CONTINUE
    attempts_max: int = 5
    last: Act = rest


def _ended(outcome: Outcome) -> Callable[[Recorded], bool]:
    def proof(recorded: Recorded) -> bool:
        return isinstance(recorded.event, TurnSettled) and recorded.event.outcome is outcome

    return proof


def _was_parked(recorded: Recorded) -> bool:
    event = recorded.event
    return isinstance(event, AttemptInterrupted) and event.reason is Interruption.SHUTDOWN


def _was_asked_again(recorded: Recorded) -> bool:
    return isinstance(recorded.event, HeadMoved) and recorded.event.reason == EDIT


def _was_deleted(recorded: Recorded) -> bool:
    event = recorded.event
    return isinstance(event, TurnSettled) and event.reason == "deleted by its author"


def _was_undone(recorded: Recorded) -> bool:
    return isinstance(recorded.event, HeadMoved) and recorded.event.reason == "undo"


def _was_brought(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MediaFetched) and recorded.event.index == 1


def _was_lost(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MediaLost)


def _was_given(recorded: Recorded) -> bool:
    return isinstance(recorded.event, AssistantSaid) and bool(recorded.event.attachments)


def _was_joined(recorded: Recorded) -> bool:
    return isinstance(recorded.event, MessageJoined)


def _was_answered(recorded: Recorded) -> bool:
    return isinstance(recorded.event, CommandTaken) and recorded.event.command == CONTINUE


def _or(*outcomes: Outcome) -> frozenset[Outcome]:
    return frozenset({Outcome.DONE, *outcomes})


SCENARIOS = {
    "talk": Scenario(acts=(talk,), proof=_ended(Outcome.DONE)),
    "supersede": Scenario(
        acts=(supersede,),
        outcomes=_or(Outcome.SUPERSEDED),
        proof=_ended(Outcome.SUPERSEDED),
    ),
    "steer": Scenario(acts=(steer,), proof=lambda each: isinstance(each.event, SteerTaken)),
    "stop": Scenario(acts=(stop,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)),
    "stop in words": Scenario(
        acts=(stop_in_words,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)
    ),
    "edit": Scenario(
        acts=(edit,),
        outcomes=_or(Outcome.STOPPED, Outcome.INTERRUPTED),
        proof=_was_asked_again,
    ),
    "delete": Scenario(acts=(delete,), outcomes=_or(Outcome.STOPPED), proof=_was_deleted),
    "undo": Scenario(
        acts=(undo,),
        outcomes=_or(Outcome.STOPPED, Outcome.INTERRUPTED),
        proof=_was_undone,
    ),
    "files": Scenario(acts=(send_files,), proof=_was_brought),
    "a lost file": Scenario(acts=(lose_a_file,), proof=_was_lost),
    "files of a stopped turn": Scenario(
        acts=(stop_with_files,), outcomes=_or(Outcome.STOPPED), proof=_ended(Outcome.STOPPED)
    ),
    "album": Scenario(acts=(send_album,), proof=_was_joined),
    "a given file": Scenario(acts=(give_a_file,), proof=_was_given),
    "drain": Scenario(acts=(drain, rest), proof=_was_parked),
    "ask": Scenario(acts=(drain, rest), proof=_was_answered, resume=Resume.ASK),
    "give up": Scenario(
        acts=(fall, rest),
        outcomes=_or(Outcome.SUSPENDED),
        proof=lambda each: isinstance(each.event, TurnMoved),
        attempts_max=1,
    ),
    "wait": Scenario(
        acts=(drain, talk_on),
        outcomes=_or(Outcome.INTERRUPTED),
        proof=_ended(Outcome.INTERRUPTED),
        resume=Resume.WAIT,
        last=talk_on_if_left,
    ),
    "wait with more behind": Scenario(
        acts=(drain_with_more, rest),
        outcomes=_or(Outcome.INTERRUPTED),
        proof=_ended(Outcome.INTERRUPTED),
        resume=Resume.WAIT,
        last=talk_on_if_left,
    ),
}


async def play(world: World, scenario: Scenario, fuses: Sequence[Fuse]) -> list[str]:
    """The acts under the first fuse, after a death under the next, at last in peace: the verdict
    of everything."""
    left = list(fuses)
    policy = Policy(resume=scenario.resume, freshness_ms=0, attempts_max=scenario.attempts_max)
    world.limits = Limits(drain_timeout_s=0, recovery=policy)
    for act in scenario.acts:
        if left and left[0].is_dead:
            left.pop(0)
        await live(world, left[0] if left else Fuse(), act)
    if left and left[0].is_dead and len(left) > 1:
        await live(world, left[1], rest)
    records = await live_and_tell(world, scenario.last)
    found = broken(world, scenario, records)
    events = [recorded for record in records for recorded in record.events]
    if not any(fuse.has_struck for fuse in fuses) and not any(map(scenario.proof, events)):
        found.append("the scenario does not do what it is for")
    return found


def broken(world: World, scenario: Scenario, records: Sequence[SessionRecord]) -> list[str]:
    """Every rule that store and world together break, once everything is at rest."""
    found = [each for record in records for each in violations(record)]
    for record in records:
        found += _not_over(record, scenario)
        found += _still_visible(world, record)
        found += _not_as_said(world, record)
        found += _written_late(world, record)
    events = _without_what_moved([each for record in records for each in record.events])
    found += _not_told(records, events)
    found += _misheard(world, events)
    found += _seen_and_not_stored(world, events)
    found += _misfiled(world, events)
    for record in records:
        found += _out_of_order(world, record)
        found += _never_given(world, record)
    found += [f"never acknowledged: {each}" for each in world.platform.unacknowledged]
    found += [f"shown twice: {part}" for part in world.platform.repeated()]
    limit = world.platform.can.text_max
    found += [f"too long: {each}" for each in world.platform.visible if len(each.text) > limit]
    if len(world.tools_ran) != len(set(world.tools_ran)):
        found.append("a tool call ran twice")
    return found


def _without_what_moved(events: Sequence[Recorded]) -> list[Recorded]:
    """A turn that moved stands as a whole where it went."""
    left = {(r.session, r.event.turn) for r in events if isinstance(r.event, TurnMoved)}
    return [recorded for recorded in events if (recorded.session, recorded.turn) not in left]


def _not_told(records: Sequence[SessionRecord], events: Sequence[Recorded]) -> list[str]:
    """Only what has begun is given up, and its people are told so, once."""
    notices = [r.event for r in events if isinstance(r.event, NoticePosted)]
    told = Counter(each.about for each in notices if "given up" in each.text)
    turns = [turn for record in records for turn in record.turns]
    return [
        f"{turn.id} was given up after {turn.attempts} tries, and that was told {told[turn.id]}x"
        for turn in turns
        if turn.outcome == Outcome.SUSPENDED and (not turn.attempts or told[turn.id] != 1)
    ]


def _not_over(record: SessionRecord, scenario: Scenario) -> list[str]:
    over = (PartState.SENT, PartState.UNKNOWN, PartState.FAILED)
    answered = {part.turn for part in record.parts if _is_final(part)}
    found = [
        f"{part.id} is {part.state}"
        for part in record.parts
        if part.state not in over and part.error != WITHDRAWN
    ]
    for turn in record.turns:
        if turn.outcome not in scenario.outcomes:
            found.append(f"{turn.id} is {turn.state}: {turn.outcome} {turn.reason} {turn.detail}")
        if turn.outcome in _ANSWERED and turn.id not in answered:
            found.append(f"{turn.id} was never answered")
    return found


def _is_final(part: PartView) -> bool:
    return part.message in (f"{part.turn}{AHEAD}", f"{part.turn}{REPLY}")


def _not_as_said(world: World, record: SessionRecord) -> list[str]:
    """People see each answer whole and once, and no bubble beside it, unless one that nobody knows
    the fate of, which is shown as such."""
    gone = {
        each.turn for each in record.parts if each.step == Step.DELETE or each.error == WITHDRAWN
    }
    found = []
    for turn in record.turns:
        own = [part for part in record.parts if part.turn == turn.id and part.turn not in gone]
        parts = [part for part in own if part.step != Step.UPLOAD]
        said = [part.text for part in parts if _is_final(part)]
        keys = {part.id for part in parts if part.message.startswith(turn.id)}
        seen = [shown.text for shown in world.platform.visible if shown.key in keys]
        is_unknown = any(part.state == PartState.UNKNOWN for part in parts)
        if turn.outcome in _ANSWERED and not is_unknown and said and seen != said:
            found.append(f"{turn.id} said {said}, people see {seen}")
    return found


def _still_visible(world: World, record: SessionRecord) -> list[str]:
    """Nobody sees the answer of a turn that was taken back, where the platform can help it."""
    if not world.platform.can.can_delete:
        return []
    moves = [r.event for r in record.events if isinstance(r.event, HeadMoved)]
    queued = [r.event for r in record.events if isinstance(r.event, TurnQueued)]
    gone = {turn for move in moves for turn in move.redo} | {each.origin for each in queued}
    visible = {shown.key for shown in world.platform.visible}
    return [
        f"{part.id} of {part.turn} is still to be seen"
        for part in record.parts
        if _is_final(part) and part.turn in gone and part.id in visible
        if part.state != PartState.UNKNOWN
    ]


def _misheard(world: World, events: Sequence[Recorded]) -> list[str]:
    """What people said stands once where it was heard, and the model has read it."""
    spoken = TurnQueued | MessageJoined | SteerTaken
    asked = [r.event for r in events if isinstance(r.event, spoken)]
    done = {recorded.turn for recorded in events if _ended(Outcome.DONE)(recorded)}
    taken = [r.event for r in events if isinstance(r.event, CommandTaken)]
    questions = sum(bool(r.event.choices) for r in events if isinstance(r.event, NoticePosted))
    read = {
        block.text
        for request in world.agent.requests
        for message in request.messages
        for block in message.blocks
        if isinstance(block, TextBlock)
    }
    amended = {r.event.message for r in events if isinstance(r.event, TurnAmended)}
    found = [
        f"{each} was never read"
        for each in asked
        if each.turn in done and each.message not in amended and each.text not in {*read, ""}
    ]
    found += _misread(world, events)
    words = [sent.text for sent in world.platform.sent if sent.kind == PERSONAL]
    commands = [text for text in words if text == CONTINUE or text.startswith("/")]
    first = [each for each in asked if not (isinstance(each, TurnQueued) and each.origin)]
    heard = sorted(each.text for each in first)
    if heard != sorted(text for text in words if text not in commands):
        found.append(f"{words} were said, {heard} were heard")
    if len(taken) != len(commands):
        found.append(f"{commands} were given, {[each.command for each in taken]} were taken")
    if CONTINUE in words and questions != words.count(CONTINUE):
        found.append(f"{questions} questions got {words.count(CONTINUE)} answers")
    return found


def _misfiled(world: World, events: Sequence[Recorded]) -> list[str]:
    """Each file was brought once or lost once, and the model was told what it says, or that it is
    lost."""
    done = {recorded.turn for recorded in events if _ended(Outcome.DONE)(recorded)}
    ended = [r.event for r in events if isinstance(r.event, MediaFetched | MediaLost)]
    found = [
        f"{each} was brought twice"
        for each, times in Counter((event.message, event.index) for event in ended).items()
        if times > 1
    ]
    read = {
        in_words(block.attachment)
        for request in world.agent.requests
        for message in request.messages
        for block in message.blocks
        if isinstance(block, MediaBlock)
    }
    spoken = [r.event for r in events if isinstance(r.event, TurnQueued | MessageJoined)]
    for each in spoken:
        attachments = as_fetched(each, places_of(events))
        for attachment in attachments if each.turn in done else ():
            is_told = attachment.text == f"the words of {attachment.name}"
            is_told = is_told or attachment.reference in world.platform.gone
            if not is_told or in_words(attachment) not in read:
                found.append(f"nobody was told of {attachment}")
    notices = [r.event.text for r in events if isinstance(r.event, NoticePosted)]
    lost = [event for event in ended if isinstance(event, MediaLost)]
    if len(lost) != sum("could not be read" in text for text in notices):
        found.append(f"{lost} were lost, {notices} were told")
    return found


def _never_given(world: World, record: SessionRecord) -> list[str]:
    """What an agent gave in a turn that is done has reached its person, or is shown as what may
    not have."""
    done = {turn.id for turn in record.turns if turn.outcome == Outcome.DONE}
    given = [each for each in record.events if each.turn in done and _was_given(each)]
    uploads = [part for part in record.parts if part.step == Step.UPLOAD and part.turn in done]
    sent = {file.key for file in world.platform.files}
    certain = {part.id for part in uploads if part.state != PartState.UNKNOWN}
    if len(uploads) != len(given) or not certain <= sent:
        return [f"{given} were given, {uploads} were sent"]
    return []


def _out_of_order(world: World, record: SessionRecord) -> list[str]:
    """What came later has begun later, whatever it brought."""
    if not any(sent.files for sent in world.platform.sent):
        return []
    started = list(dict.fromkeys(r.turn for r in record.events if isinstance(r.event, TurnStarted)))
    queued = [r.event.turn for r in record.events if isinstance(r.event, TurnQueued)]
    if started != [turn for turn in queued if turn in started]:
        return [f"{queued} were asked, {started} were begun"]
    return []


def _misread(world: World, events: Sequence[Recorded]) -> list[str]:
    """Each edit has changed its message once, and messages read as they were last edited."""
    edits = [sent.text for sent in world.platform.sent if sent.kind == EDIT]
    queued = [r.event for r in events if isinstance(r.event, TurnQueued)]
    asked_again = {each.turn for each in queued if each.origin}
    amended = [
        r.event.text
        for r in events
        if isinstance(r.event, TurnAmended) and r.event.turn not in asked_again
    ]
    if sorted(amended) != sorted(edits):
        return [f"{edits} were edits, {amended} were amended"]
    return []


def _seen_and_not_stored(world: World, events: Sequence[Recorded]) -> list[str]:
    stored = {r.event.message: r.event.text for r in events if isinstance(r.event, AssistantSaid)}
    return [
        f"{message}: shown {text!r}, stored {stored.get(message)!r}"  # type: ignore[call-overload]
        for message, text in world.shown.items()
        if not stored.get(message, "").startswith(text)  # type: ignore[call-overload]
    ]


def _written_late(world: World, record: SessionRecord) -> list[str]:
    """Nothing was added to a turn that another process had settled."""
    lengths = _lengths(record)
    return [
        f"{turn} had {length} events when it was settled, and has {lengths[turn]}"
        for turn, length in world.final.items()
        if turn in lengths and lengths[turn] != length
    ]


def _lengths(record: SessionRecord) -> dict[TurnId, int]:
    return {
        turn.id: sum(
            recorded.turn == turn.id
            for recorded in record.events
            if not isinstance(recorded.event, TurnAmended)
        )
        for turn in record.turns
        if turn.outcome is not None
    }


async def take_over(world: World) -> None:
    """Another process finds the lease run out, and does everything that was left."""
    await world.bury()
    for record in await live_and_tell(world, rest):
        world.final |= _lengths(record)


@pytest.fixture(autouse=True)
async def _quiet_deaths() -> None:
    """Tasks of a dead process die untidily; that is the point."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)


def on_sqlite(folder: Path, name: object) -> World:
    return World(folder, partial(SqliteDriver, folder / f"{name}.db", synchronous="OFF"))


async def _migrated(folder: Path) -> Path:
    """A database without a row. A copy of it takes a third of the time of making one."""
    template = folder / "template.db"
    driver = SqliteDriver(template, synchronous="OFF")
    await driver.open(now_ms=VirtualClock().now_ms())
    await driver.close()
    return template


async def strike_everywhere(
    folder: Path, scenario: Scenario, nemesis: Nemesis, can: Capabilities, *, every: int = 1
) -> None:
    template = await _migrated(folder)
    for point in range(0, POINTS_MAX, every):
        shutil.copy(template, folder / f"{point}.db")
        world = on_sqlite(folder, point)
        world.platform.can = can
        if can.streaming is Streaming.APPEND:
            world.agent = ScriptedAgent(in_paragraphs)
        fuse = Fuse(point, nemesis)
        found = await play(world, scenario, [fuse])
        assert not found, f"{nemesis} at {point}, {fuse.struck}: {found}"
        if not fuse.has_struck:
            assert point > 20, "the scenario has lost its points"
            return
    raise AssertionError("the scenario never passed untouched")


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_instant_breaks_a_promise(tmp_path: Path, name: str, nemesis: Nemesis) -> None:
    """Death at each of them; what is milder is tried at each eighth one here, at all in chaos."""
    every = 1 if nemesis is Nemesis.DIE else 8
    await strike_everywhere(tmp_path, SCENARIOS[name], nemesis, KEY, every=every)


@pytest.mark.chaos
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_instant_at_all_breaks_a_promise(
    tmp_path: Path, name: str, nemesis: Nemesis
) -> None:
    await strike_everywhere(tmp_path, SCENARIOS[name], nemesis, KEY)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY])
@pytest.mark.parametrize(
    ("can", "name"),
    [
        ("find", "talk"),
        ("find", "undo"),
        ("neither", "talk"),
        ("neither", "undo"),
        ("growing", "talk"),
        ("growing in small messages", "give up"),
        ("growing with a key", "stop"),
        ("growing and can be asked", "undo"),
        ("appending", "undo"),
        ("appending and cannot be asked", "stop"),
    ],
)
async def test_no_platform_breaks_a_promise(
    tmp_path: Path, nemesis: Nemesis, can: str, name: str
) -> None:
    """Death at each second of them here, what is milder at each eighth; at all in chaos."""
    every = 2 if nemesis is Nemesis.DIE else 8
    await strike_everywhere(tmp_path, SCENARIOS[name], nemesis, PLATFORMS[can], every=every)


def _can_be_sure(can: Capabilities) -> bool:
    return can.takes_key or can.can_find


@pytest.mark.chaos
@pytest.mark.parametrize("nemesis", NEMESES)
@pytest.mark.parametrize(
    ("can", "name"),
    [
        (can, name)
        for can in PLATFORMS
        for name in SCENARIOS
        # Nobody answers a question of which nobody knows whether it was seen.
        if name != "ask" or _can_be_sure(PLATFORMS[can])
    ],
)
async def test_no_platform_breaks_any_promise(
    tmp_path: Path, nemesis: Nemesis, can: str, name: str
) -> None:
    await strike_everywhere(tmp_path, SCENARIOS[name], nemesis, PLATFORMS[can])


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", list(Nemesis))
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_tenth_instant_breaks_a_promise_on_postgres(
    tmp_path: Path, postgres: OwnedDatabase, name: str, nemesis: Nemesis
) -> None:
    # Another tenth for each pair, so that together they come close to all; what is milder than a
    # death or a lost lease is tried at each thirtieth.
    first = (list(SCENARIOS).index(name) * 3 + list(Nemesis).index(nemesis)) % 10
    for point in count(first, 10 if nemesis in (Nemesis.DIE, Nemesis.PAUSE) else 30):
        await postgres.empty()
        make = partial(PostgresDriver, postgres.url, connections=2)
        world = World(tmp_path, make, bury=postgres.bury_all)
        fuse = Fuse(point, nemesis, meanwhile=partial(take_over, world))
        found = await play(world, SCENARIOS[name], [fuse])
        assert not found, f"{nemesis} at {point}, {fuse.struck}: {found}"
        if not fuse.has_struck:
            return


@pytest.mark.chaos
@pytest.mark.parametrize("name", SCENARIOS)
async def test_no_two_deaths_break_a_promise(tmp_path: Path, name: str) -> None:
    """The second life dies too: at each second of its points, after each third of the first's."""
    for first in count(0, 3):
        one = Fuse(first)
        for second in count(first % 2, 2):
            world = on_sqlite(tmp_path, f"{first}-{second}")
            one, two = Fuse(first), Fuse(second)
            found = await play(world, SCENARIOS[name], [one, two])
            assert not found, f"deaths at {one.struck} and {two.struck}: {found}"
            if not two.has_struck:
                break
        if not one.has_struck:
            return


class ForgetfulPlatform(ScriptedPlatform):
    """Can be asked what arrived, and always says that nothing did."""

    async def find(self, key: PartId, address: Address) -> None:
        return None


async def test_the_harness_catches_a_repeated_reply(tmp_path: Path) -> None:
    """A platform that lies about what arrived makes us repeat ourselves: the checker must see."""
    found: list[str] = []
    for point in range(POINTS_MAX):
        world = on_sqlite(tmp_path, point)
        world.platform = ForgetfulPlatform(capabilities=FIND)
        fuse = Fuse(point, Nemesis.DIE)
        found += await play(world, SCENARIOS["talk"], [fuse])
        if any("shown twice" in each for each in found) or not fuse.has_struck:
            break
    assert any("shown twice" in each for each in found)
