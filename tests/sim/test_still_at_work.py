"""Checks that a node which lost an answer, its lease or a race goes on working afterwards."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.errors import Ambiguous, Conflict, Corrupt
from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import AttemptInterrupted, NoticePosted, Recorded, TurnSettled
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption, NodeRequest
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.stream import AgentEvent, AgentText
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.flusher import Flusher
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.platform.adapter import Effect, Receipt
from perdure.ports.turns.agent import Agent, Work
from perdure.ports.turns.turns import TextPiece, TurnLease, Turns
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, FusedStore, Nemesis
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import OwnedDatabase, admitted, turn_of
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """Share one clock between the store and everything around it, so that all agree on what is
    due."""
    return VirtualClock(is_eager=True)


def seated(agent: Agent) -> dict[str, Backend]:
    return {"main": Backend(name="main", kind="s", agent=agent, tools=CountingTools([]))}


def put_up(
    store: Store,
    platform: ScriptedPlatform,
    supervisor: Supervisor,
    *,
    clock: VirtualClock,
    is_shared: bool = False,
    roster: Roster | None = None,
    concurrent: int = 100,
    feed: Feed | None = None,
) -> NodeParts:
    dependencies = NodeDependencies(
        store=store,
        roster=roster or Roster(seated(ScriptedAgent())),
        clock=clock,
        entropy=SeededEntropy(),
        limits=Limits(drain_timeout_s=5, concurrent=concurrent),
        adapters={platform.name: platform},
        is_shared=is_shared,
    )
    return compose_node(dependencies, supervisor.start, feed=feed or Feed())


@asynccontextmanager
async def begun(parts: NodeParts) -> AsyncIterator[NodeParts]:
    await parts.gateway.begin(name="sim")
    try:
        yield parts
    finally:
        await parts.gateway.drain()


@asynccontextmanager
async def opened(
    driver: SqliteDriver | PostgresDriver, media: Path, clock: VirtualClock, *, seed: int = 0
) -> AsyncIterator[Store]:
    store = Store(driver, clock=clock, entropy=SeededEntropy(seed), media=media)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def on_sqlite(folder: Path) -> SqliteDriver:
    return sqlite_on(folder / "p.db")


@asynccontextmanager
async def inhabited(
    driver: SqliteDriver | PostgresDriver, media: Path, clock: VirtualClock
) -> AsyncIterator[tuple[Store, Supervisor, PrincipalId]]:
    async with opened(driver, media, clock) as store, Supervisor() as supervisor:
        yield store, supervisor, await admitted(store, "person")
        await all_end(supervisor, clock)


async def all_end(supervisor: Supervisor, clock: VirtualClock) -> None:
    """Let time pass until every task has ended: a task may wait for a moment after a failure."""
    async with asyncio.TaskGroup() as group:
        finished = group.create_task(supervisor.finished())

        async def is_over() -> bool:
            return finished.done()

        await until(is_over, "the end of every task", clock)


def hello(
    person: PrincipalId, external_id: str, *, place: str = "room", text: str = "hello"
) -> Update:
    return Update(
        address=Address(adapter="scripted", account="bot", place=place),
        external_id=external_id,
        kind=UpdateKind.MESSAGE,
        principal=person,
        text=text,
    )


class Tampered:
    """Replaces some calls of a port."""

    def __init__(self, inner: object, **calls: Callable[..., Awaitable[object]]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return self._calls.get(name) or getattr(self._inner, name)


class PatientAgent(ScriptedAgent):
    """Says one word in its first call, and then nothing until the call is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = asyncio.Event()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        if not self.requests:
            self.requests.append(request)
            yield AgentText("word ")
            self.has_begun.set()
            await asyncio.Event().wait()
        async for event in super().run(request, work):
            yield event


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, clock: VirtualClock, seconds: float = 10
) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.02)
                clock.advance(0.02)
    except TimeoutError:
        pytest.fail(f"{what} never happened; the tasks stand here:\n{where_tasks_stand()}")


def where_tasks_stand() -> str:
    """Return the innermost line of each task that has not ended."""
    stacks = {task.get_name(): task.get_stack(limit=1) for task in asyncio.all_tasks()}
    return "\n".join(
        f"{name}: {frame.f_code.co_filename}:{frame.f_lineno}"
        for name, frames in stacks.items()
        for frame in frames
    )


async def record_of(store: Store, accepted: Accepted) -> SessionRecord:
    return await store.diagnostics.record(accepted.session)


async def outcomes_of(store: Store, accepted: Accepted) -> list[str | None]:
    return [turn.outcome for turn in (await record_of(store, accepted)).turns]


async def is_answered(store: Store, accepted: Accepted) -> bool:
    """Tell whether the turn is done and people have seen all of its answer."""
    record = await record_of(store, accepted)
    outcomes = [turn.outcome for turn in record.turns if turn.id == accepted.turn]
    return outcomes == ["done"] and all(part.state == "sent" for part in record.parts)


async def test_a_message_whose_acceptance_was_not_heard_is_answered(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # The sender repeats the message, and the repeat must wake the turn pump.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        fuse = Fuse(1, Nemesis.LOSE_REPLY)
        fused: Store = FusedStore(store, Fuse())  # type: ignore[assignment]
        fused.inbox = FusedStore(store, fuse).inbox
        async with begun(put_up(fused, ScriptedPlatform(), supervisor, clock=clock)) as parts:
            with pytest.raises(Ambiguous):
                await parts.door.accept(hello(person, "u1"))

            again = await parts.door.accept(hello(person, "u1"))

            assert fuse.struck.startswith("after StoredInbox.accept")
            assert again.is_duplicate
            await until(partial(is_answered, store, again), "the answer", clock)


@pytest.mark.parametrize("port", ["turns", "outbox", "fetches", "nodes"])
async def test_what_nobody_foresaw_costs_a_pump_a_moment(
    tmp_path: Path, clock: VirtualClock, port: str
) -> None:
    # A node without its pumps would go on accepting messages that nobody answers.
    calls = {"turns": "claim", "outbox": "take", "fetches": "take", "nodes": "beat"}
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        whole = getattr(store, port)
        failed = asyncio.Event()

        async def fails_once(*args: Any, **kwargs: Any) -> object:
            if not failed.is_set():
                failed.set()
                raise Corrupt("an answer that nobody foresaw")
            return await getattr(whole, calls[port])(*args, **kwargs)

        setattr(store, port, Tampered(whole, **{calls[port]: fails_once}))
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock)
        async with begun(parts):
            await failed.wait()
            assert not parts.gateway.is_ready
            accepted = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, accepted), "the answer", clock)
            waiting = await parts.door.accept(hello(person, "u2"))
            await until(partial(is_answered, store, waiting), "the second answer", clock)


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "unheard"])
async def test_who_comes_while_a_lost_turn_is_looked_for_is_answered(
    tmp_path: Path, clock: VirtualClock, is_heard: bool
) -> None:
    # The message that comes during the look must not be taken for the lost turn, nor be forgotten.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        inbox, nodes = store.inbox, store.nodes
        lost = {"u1"} if is_heard else {"u1", "u2"}
        comes = [hello(person, "u2", place="two")]

        async def unheard(update: Update, **more: Any) -> object:
            received = await inbox.accept_and_start(update, **more)
            if update.external_id in lost:
                lost.discard(update.external_id)
                raise Ambiguous("nobody hears the answer")
            return received

        async def slow(**more: Any) -> object:
            found = [] if is_heard else await nodes.reclaim(**more)
            if comes:
                with suppress(Ambiguous):
                    await parts.door.accept(comes.pop())
                lost.clear()
            return found or await nodes.reclaim(**more)

        store.inbox = Tampered(inbox, accept_and_start=unheard)  # type: ignore[assignment]
        store.nodes = Tampered(nodes, reclaim=slow)  # type: ignore[assignment]
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock)
        async with begun(parts):
            with pytest.raises(Ambiguous):
                await parts.door.accept(hello(person, "u1", place="one"))
            again = await parts.door.accept(hello(person, "u1", place="one"))
            await until(partial(is_answered, store, again), "the first answer", clock)
            again = await parts.door.accept(hello(person, "u2", place="two"))
            await until(partial(is_answered, store, again), "the second answer", clock)
            events = (await record_of(store, again)).events
            assert not [each for each in events if isinstance(each.event, AttemptInterrupted)]


async def test_room_that_was_held_in_vain_is_given_to_others(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # A repeat with other words is refused. A message that came meanwhile must not wait for ever.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        inbox = store.inbox
        other: list[Accepted] = []

        async def slow(update: Update, **more: Any) -> object:
            if update.text == "other words":
                other.append(await parts.door.accept(hello(person, "u2", place="elsewhere")))
                for _ in range(20):
                    await asyncio.sleep(0)  # the pump looks, and finds no room
            return await inbox.accept_and_start(update, **more)

        store.inbox = Tampered(inbox, accept_and_start=slow)  # type: ignore[assignment]
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, concurrent=1)
        async with begun(parts):
            first = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, first), "the first answer", clock)
            with pytest.raises(Conflict):
                await parts.door.accept(hello(person, "u1", text="other words"))
            await until(partial(is_answered, store, other[0]), "the answer elsewhere", clock)


class SlowToAnswer:
    """Calls a port, and answers once `may_answer` is set. `is_under_way` is set when the call was
    made."""

    def __init__(self, inner: Callable[..., Awaitable[object]], *, is_done: bool) -> None:
        self._inner = inner
        self._is_done = is_done
        self.is_under_way = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, *args: Any, **kwargs: Any) -> object:
        answer = await self._inner(*args, **kwargs) if self._is_done else None
        self.is_under_way.set()
        await self.may_answer.wait()
        return answer if self._is_done else await self._inner(*args, **kwargs)


async def test_a_turn_that_is_superseded_while_it_settles_ends_without_a_word(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # The settlement comes too late and is refused, and the runner that began it learns of that.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        settle = SlowToAnswer(store.turns.settle, is_done=False)
        store.turns = Tampered(store.turns, settle=settle)  # type: ignore[assignment]
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock)
        async with begun(parts):
            await parts.door.accept(hello(person, "u1"))
            await settle.is_under_way.wait()
            newer = msgspec.structs.replace(hello(person, "u2"), busy=Busy.INTERRUPT)
            accepted = await parts.door.accept(newer)
            settle.may_answer.set()
            await until(partial(is_answered, store, accepted), "the answer", clock)
            assert await outcomes_of(store, accepted) == ["superseded", "done"]


async def test_a_settlement_that_a_drain_finds_under_way_is_waited_for(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # The settlement has happened, so there is nothing to park, and the watchers are told of it.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        settle = SlowToAnswer(store.turns.settle, is_done=True)
        store.turns = Tampered(store.turns, settle=settle)  # type: ignore[assignment]
        seen: list[Recorded] = []
        feed = Feed(seen.append)
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, feed=feed)
        async with begun(parts):
            accepted = await parts.door.accept(hello(person, "u1"))
            await settle.is_under_way.wait()
            parts.gateway.hurry()
            draining = asyncio.create_task(parts.gateway.drain())
            await asyncio.wait({draining}, timeout=0.1)
            assert not draining.done()
            settle.may_answer.set()
            await draining
            assert await outcomes_of(store, accepted) == ["done"]
            assert [r for r in seen if isinstance(r.event, TurnSettled)]


async def test_a_heartbeat_under_way_at_the_end_of_a_drain_holds_nobody_up(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with asyncio.timeout(10):
        async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, _):
            beat = SlowToAnswer(store.nodes.beat, is_done=True)
            store.nodes = Tampered(store.nodes, beat=beat)  # type: ignore[assignment]
            async with begun(put_up(store, ScriptedPlatform(), supervisor, clock=clock)):
                await beat.is_under_way.wait()
            beat.may_answer.set()


@pytest.mark.parametrize("asked", [NodeRequest.STOP, NodeRequest.RESTART])
@pytest.mark.parametrize("how", ["in time", "hurried", "replaced"])
async def test_a_drain_does_what_it_announces_and_records_what_it_was_for(
    tmp_path: Path, clock: VirtualClock, asked: NodeRequest, how: str
) -> None:
    # An answer that takes longer than the last allowed drain is given up. An answer that the drain
    # did not wait for is parked.
    limits = Limits(drain_timeout_s=0.05, recovery=Policy(attempts_max=1))
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        agent = PatientAgent()
        dependencies = NodeDependencies(
            store=store,
            roster=Roster(seated(agent)),
            clock=clock,
            entropy=SeededEntropy(),
            limits=limits,
            adapters={"scripted": ScriptedPlatform()},
        )
        parts = compose_node(dependencies, supervisor.start, feed=Feed())
        async with begun(parts):
            accepted = await parts.door.accept(hello(person, "u1"))
            await agent.has_begun.wait()
            if asked is NodeRequest.RESTART and how != "replaced":
                parts.gateway.request_restart()
            else:
                parts.gateway.request_drain(is_replaced=asked is NodeRequest.RESTART)
            if how == "hurried":
                parts.gateway.hurry()
            await parts.gateway.drain()
        record = await record_of(store, accepted)

    (cut,) = [r.event for r in record.events if isinstance(r.event, AttemptInterrupted)]
    told = [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]
    assert cut.asked is asked
    if how == "hurried":
        assert cut.reason == (Interruption.RESTART if asked == "restart" else Interruption.SHUTDOWN)
        assert [turn.state for turn in record.turns] == ["interrupted"]
        assert ["given up" in text for text in told] == [False]
    else:
        assert cut.reason is Interruption.DRAIN_TIMEOUT
        assert [turn.outcome for turn in record.turns] == ["suspended"]
        assert ["given up" in text for text in told] == [True, True]  # before, and after


class MeetingAgent(ScriptedAgent):
    """Answers only once this many calls run at the same time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._meeting = asyncio.Barrier(count)

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        yield AgentText("word ")
        await self._meeting.wait()
        async for event in super().run(request, work):
            yield event


async def test_suspects_do_not_wait_for_each_others_ends(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # Each turn has crashed twice, after a tenth of a second. So each one is alone for that long and
    # no longer, and only the pump itself can know when that time is over.
    places = [f"p{n}" for n in range(4)]
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        await store.nodes.join(name="first")
        sent = [
            await store.inbox.accept(hello(person, place, place=place), queue_max=9)
            for place in places
        ]
        for _ in range(2):
            await store.nodes.resume(Policy(), limit=9)
            assert len(await store.turns.claim(limit=9)) == len(places)
            clock.advance(0.1)
            await store.nodes.reclaim(known=(), attempts_max=3)
        roster = Roster(seated(MeetingAgent(len(places))))
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, roster=roster)
        async with begun(parts):
            for accepted in sent:
                await until(partial(is_answered, store, accepted), "an answer", clock)


class BrittlePlatform(ScriptedPlatform):
    """Raises an unforeseen error when it is asked about certain words."""

    def size(self, text: str) -> int:
        if "hello" in text:
            raise RecursionError
        return super().size(text)


async def test_a_turn_whose_failure_cannot_be_written_down_blocks_nobody(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        parts = put_up(store, BrittlePlatform(), supervisor, clock=clock)
        async with begun(parts):
            broken = await parts.door.accept(hello(person, "u1"))

            async def is_given_up() -> bool:
                return await outcomes_of(store, broken) == ["suspended"]

            await until(is_given_up, "an end", clock, seconds=40)
            after = await parts.door.accept(hello(person, "u2", text="are you there?"))
            await until(partial(is_answered, store, after), "the next answer", clock)


async def test_parts_of_the_drain_are_known_to_the_pump(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # The pump gives back parts that it does not know of, and those would be shown twice.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        outbox = store.outbox

        async def unheard(**more: Any) -> object:
            await outbox.take(**more)
            raise Ambiguous("nobody hears the answer")

        async def meanwhile() -> None:
            parts.outbox._outbox = Tampered(outbox, take=unheard)
            await parts.outbox._take("scripted", 8)
            parts.outbox._outbox = outbox

        platform = SlowPlatform(meanwhile, is_before=True)
        platform.can = Capabilities(can_find=True)
        parts = put_up(store, platform, supervisor, clock=clock)
        await store.nodes.join(name="sim")
        await store.inbox.accept(hello(person, "u1"), queue_max=10)
        await parts.turns.step()
        await parts.turns.finished()

        await parts.outbox.finish(3)

        assert [each.text for each in platform.visible] == ["echo: hello "]


async def test_nobody_waits_for_a_flush_that_broke(clock: VirtualClock) -> None:
    async def broken(pieces: object, *, beats: bool) -> object:
        raise RecursionError

    turns: Turns = Tampered(object(), flush=broken)
    async with Supervisor() as supervisor:
        flusher = Flusher(turns, clock=clock, start=supervisor.start, heartbeat=Heartbeat(clock))
        lease = TurnLease(session=SessionId("ses_1"), turn=TurnId("trn_1"), epoch=1, attempt=1)
        piece = TextPiece(lease=lease, message=MessageId("msg_1"), start=0, text="a word")
        async with asyncio.timeout(5):
            with pytest.raises(RecursionError):
                await flusher.flush(piece)


class OtherWire(ScriptedAgent):
    def encode(self, message: PromptMessage) -> bytes:
        return b'{"in other words":%s}' % super().encode(message)


async def test_what_one_agent_has_encoded_is_not_sent_to_another(
    tmp_path: Path, clock: VirtualClock
) -> None:
    # An agent may be configured anew, under its old name, for a server of another kind.
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        roster = Roster(seated(ScriptedAgent()))
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, roster=roster)
        async with begun(parts):
            for number in (1, 2):
                said = await parts.door.accept(hello(person, f"u{number}"))
                await until(partial(is_answered, store, said), "an answer", clock)
            other = OtherWire()

            await roster.replace(seated(other))
            said = await parts.door.accept(hello(person, "u3"))
            await until(partial(is_answered, store, said), "the answer of the new one", clock)

            (request,) = other.requests
            earlier = msgspec.json.decode(b"[" + b",".join(request.history) + b"]")
            assert earlier
            assert all([*each] == ["in other words"] for each in earlier)


class Held(ScriptedAgent):
    """Answers once `may_end` is set, and counts how often it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.may_end = asyncio.Event()
        self.closed = 0

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        assert not self.closed, "a closed agent was asked"
        self.begun += 1
        await self.may_end.wait()
        async for event in super().run(request, work):
            yield event

    async def close(self) -> None:
        self.closed += 1


async def has_begun(agent: Held, turns: int) -> bool:
    return agent.begun == turns


async def runs(parts: NodeParts, turns: int) -> bool:
    return parts.turns.running == turns


async def test_a_replaced_agent_is_let_go_with_its_last_turn(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with inhabited(on_sqlite(tmp_path), tmp_path, clock) as (store, supervisor, person):
        busy, idle, newest = Held(), Held(), Held()
        newest.may_end.set()
        roster = Roster(seated(busy))
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, roster=roster)
        async with begun(parts):
            turns = [
                await parts.door.accept(hello(person, f"u{number}", place=f"room {number}"))
                for number in range(2)
            ]
            await until(partial(has_begun, busy, 2), "both to be asked", clock)

            await roster.replace(seated(idle))
            await roster.replace(seated(newest))
            assert (busy.closed, idle.closed) == (0, 1)
            await parts.door.stop(turn_of(turns[0]), by=None)
            await until(partial(runs, parts, 1), "the end of one", clock)
            assert busy.closed == 0
            busy.may_end.set()
            await until(partial(is_answered, store, turns[1]), "its last answer", clock)
            await until(partial(runs, parts, 0), "the end of it", clock)
            assert busy.closed == 1

            said = await parts.door.accept(hello(person, "u9", place="room 1"))
            await until(partial(is_answered, store, said), "the answer of the new one", clock)
            assert newest.closed == 0
            gone = weakref.ref(busy)
            del busy
            gc.collect()
            assert gone() is None
        await roster.close()
        assert newest.closed == 1


async def test_a_turn_under_way_when_the_lease_was_lost_is_taken_up_again(
    tmp_path: Path, clock: VirtualClock, postgres: OwnedDatabase
) -> None:
    driver = PostgresDriver(postgres.url, connections=4)
    async with inhabited(driver, tmp_path, clock) as (store, supervisor, person):
        agent = PatientAgent()
        roster = Roster(seated(agent))
        parts = put_up(
            store, ScriptedPlatform(), supervisor, clock=clock, is_shared=True, roster=roster
        )
        async with begun(parts):
            accepted = await parts.door.accept(hello(person, "u1"))
            await agent.has_begun.wait()
            alone = PostgresDriver(postgres.url, connections=1)
            async with opened(alone, tmp_path, clock, seed=1) as other:
                # Another node lives and might have taken the turn. It joins first: a node that is
                # alone renews even a lease that has run out.
                await other.nodes.join(name="other")
                await postgres.bury(store.node)
                await until(partial(is_answered, store, accepted), "the answer", clock)

            events = (await record_of(store, accepted)).events
            assert len([each for each in events if isinstance(each.event, AttemptInterrupted)]) == 1


async def test_a_node_that_lost_its_lease_lives_again(
    tmp_path: Path, clock: VirtualClock, postgres: OwnedDatabase
) -> None:
    # A lone node that slept for too long must not treat its own turns as a dead node's for ever.
    driver = PostgresDriver(postgres.url, connections=4)
    async with inhabited(driver, tmp_path, clock) as (store, supervisor, person):
        parts = put_up(store, ScriptedPlatform(), supervisor, clock=clock, is_shared=True)
        async with begun(parts):
            first = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, first), "the first answer", clock)
            await postgres.bury_all()

            async def lives() -> bool:
                return await postgres.leases() == 1

            await until(lives, "a lease", clock)
            second = await parts.door.accept(hello(person, "u2"))
            await until(partial(is_answered, store, second), "the second answer", clock)

            events = (await record_of(store, second)).events
            assert not [each for each in events if isinstance(each.event, AttemptInterrupted)]


class SlowPlatform(ScriptedPlatform):
    """Answers its first call only after another node has found the message. The two receipts
    differ."""

    def __init__(
        self, meanwhile: Callable[[], Awaitable[object]], *, is_before: bool = False
    ) -> None:
        super().__init__()
        self._meanwhile: list[Callable[[], Awaitable[object]]] = [meanwhile]
        self._is_before = is_before
        self._receipts = 0

    async def perform(self, effect: Effect) -> Receipt:
        if self._is_before:
            await self._happen()
        await super().perform(effect)
        await self._happen()
        self._receipts += 1
        return Receipt(external_id=f"receipt-{self._receipts}")

    async def _happen(self) -> None:
        if self._meanwhile:
            await self._meanwhile.pop()()


async def test_a_delivery_that_another_node_finished_stops_no_other(
    tmp_path: Path, clock: VirtualClock, postgres: OwnedDatabase
) -> None:
    make = partial(PostgresDriver, postgres.url, connections=4)
    async with opened(make(), tmp_path, clock) as store, Supervisor() as supervisor:

        async def take_over() -> None:
            await postgres.bury_all()
            async with opened(make(), tmp_path, clock) as other:
                await other.nodes.join(name="other")
                await put_up(other, platform, supervisor, clock=clock).outbox.recover()

        platform = SlowPlatform(take_over)
        person = await admitted(store, "person")
        async with begun(put_up(store, platform, supervisor, clock=clock)) as parts:
            first = await parts.door.accept(hello(person, "u1"))
            await until(partial(is_answered, store, first), "the first answer", clock)

            second = await parts.door.accept(hello(person, "u2"))

            await until(partial(is_answered, store, second), "the second answer", clock)
