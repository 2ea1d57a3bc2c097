"""Checks that a turn which waits for an unreachable model can be ended at any moment, and survives
a death."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import HTTP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import AttemptInterrupted, NoticePosted, TurnSettled
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption, Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.agent import Work
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, echo
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock
from perdure.testkit.simulator.world import rest

AWAY = Stopped(
    reason=StopReason.PROVIDER_UNREACHABLE,
    detail="nothing answers at http://10.0.0.7/v1",
    may_retry=True,
)


class AwayAgent(ScriptedAgent):
    """Answers as the scripted agent does, unless it is away."""

    def __init__(self, *, is_away: bool) -> None:
        super().__init__()
        self.is_away = is_away

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        if self.is_away:
            self.requests.append(request)
            yield AWAY
            return
        async for event in super().run(request, work):
            yield event


class Node:
    def __init__(
        self, store: Store, parts: NodeParts, person: PrincipalId, clock: VirtualClock
    ) -> None:
        self.store = store
        self.parts = parts
        self.person = person
        self.clock = clock

    async def hears(
        self,
        text: str,
        *,
        busy: Busy = Busy.QUEUE,
        adapter: str = "scripted",
        kind: UpdateKind = UpdateKind.MESSAGE,
    ) -> Accepted:
        address = Address(adapter=adapter, account="bot", place="room")
        update = Update(
            address=address,
            external_id=text,
            kind=kind,
            principal=self.person,
            text=text,
            busy=busy,
        )
        return await self.parts.door.accept(update)

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass until the condition holds."""
        async with asyncio.timeout(20):
            while not await is_so():
                self.clock.advance(0.05)
                await asyncio.sleep(0.001)

    async def waits(self) -> bool:
        return any(runner.is_waiting for runner, _ in self.parts.turns._running.values())

    async def record(self, accepted: Accepted) -> SessionRecord:
        record = await self.store.diagnostics.record(accepted.session)
        assert violations(record) == []
        return record

    async def settled(self, turn: TurnId | None) -> TurnSettled | None:
        assert turn is not None
        view = await self.store.archive.turn(turn, principal=None)
        record = await self.store.diagnostics.record(view.session)
        found = [r.event for r in record.events if isinstance(r.event, TurnSettled)]
        return next((event for event in found if event.turn == turn), None)

    async def is_settled(self, turn: TurnId | None) -> bool:
        return await self.settled(turn) is not None

    async def notices(self, accepted: Accepted) -> list[str]:
        record = await self.record(accepted)
        return [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]


@asynccontextmanager
async def a_node(
    folder: Path,
    *agents: AwayAgent,
    platform: ScriptedPlatform | None = None,
    clock: VirtualClock | None = None,
) -> AsyncIterator[Node]:
    clock = clock or VirtualClock()
    names = ("main", "spare")[: len(agents)]
    backends = {
        name: Backend(
            name=name,
            kind="s",
            agent=agent,
            tools=CountingTools([]),
            fallbacks=names[1:] if name == "main" else (),
        )
        for name, agent in zip(names, agents, strict=True)
    }
    platform = platform or ScriptedPlatform(name="scripted")
    driver = sqlite_on(folder / "p.db")
    store = Store(driver, clock=clock, entropy=SeededEntropy(), media=folder / "media")
    await store.open()
    dependencies = NodeDependencies(
        store=store,
        roster=Roster(backends),
        clock=clock,
        entropy=SeededEntropy(),
        limits=Limits(drain_timeout_s=30),
        adapters={platform.name: platform},
    )
    try:
        async with Supervisor() as supervisor:
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await parts.gateway.begin(name="sim")
            try:
                yield Node(store, parts, await admitted(store, "person"), clock)
            finally:
                async with asyncio.timeout(10):
                    await parts.gateway.drain()
    finally:
        await store.close()


async def test_a_turn_that_waits_is_answered_when_the_model_is_back(tmp_path: Path) -> None:
    agent, platform = AwayAgent(is_away=True), ScriptedPlatform(name="scripted")
    async with a_node(tmp_path, agent, platform=platform) as node:
        accepted = await node.hears("hello")
        await node.until(lambda: _has(platform, "still being tried"))
        assert not await node.is_settled(accepted.turn)
        agent.is_away = False
        await node.until(partial(node.is_settled, accepted.turn))
        await node.until(lambda: _has(platform, "echo: hello"))

        (notice,) = await node.notices(accepted)
        assert "10.0.0.7" not in notice
        settled = await node.settled(accepted.turn)
    assert settled is not None
    assert settled.outcome is Outcome.DONE
    assert settled.reach.waited_s >= 5
    assert [each.agent for each in settled.reach.missed] == ["main"]
    # The notice about the wait is for people; the model must not read it.
    assert "still being tried" not in repr(agent.requests)
    # The request is prepared once, however often it is sent.
    assert len(agent.requests) > 3
    assert all(request is agent.requests[0] for request in agent.requests)


async def test_a_program_is_told_of_no_wait(tmp_path: Path) -> None:
    # It reads the end of its turn alone.
    agent = AwayAgent(is_away=True)
    async with a_node(tmp_path, agent) as node:
        accepted = await node.hears("hello", adapter="http", kind=UpdateKind.CALL)
        await node.until(partial(node.is_settled, accepted.turn))
        assert await node.notices(accepted) == []


async def _has(platform: ScriptedPlatform, text: str) -> bool:
    return any(text in shown.text for shown in platform.shown)


@pytest.mark.parametrize("how", ["stop", "command", "interrupt"])
async def test_a_turn_that_waits_is_ended_at_once(tmp_path: Path, how: str) -> None:
    agent = AwayAgent(is_away=True)
    async with a_node(tmp_path, agent) as node:
        accepted = await node.hears("hello")
        await node.until(node.waits)
        tries = len(agent.requests)
        assert accepted.turn is not None
        match how:
            case "stop":
                await node.parts.door.stop(accepted.turn, by=node.person)
            case "command":
                await node.hears("/stop")
            case _:
                agent.is_away = False
                await node.hears("rather this", busy=Busy.INTERRUPT)
        settled = await node.settled(accepted.turn)
        assert settled is not None
        assert settled.outcome in (Outcome.STOPPED, Outcome.SUPERSEDED)
        await asyncio.sleep(0)
        await node.until(lambda: _is(not node.parts.turns.running))
        if how != "interrupt":
            assert len(agent.requests) == tries


async def _is(value: bool) -> bool:
    return value


async def test_a_drain_does_not_wait_for_a_model_that_is_away(tmp_path: Path) -> None:
    agent = AwayAgent(is_away=True)
    async with a_node(tmp_path, agent) as node:
        accepted = await node.hears("hello")
        await node.until(node.waits)
    agent.is_away = False
    async with a_node(tmp_path, agent) as node:
        await node.until(partial(node.is_settled, accepted.turn))
        record = await node.record(accepted)
        settled = await node.settled(accepted.turn)
    cuts = [r.event for r in record.events if isinstance(r.event, AttemptInterrupted)]
    assert [cut.reason for cut in cuts] == [Interruption.SHUTDOWN]
    assert settled is not None
    assert settled.outcome is Outcome.DONE


async def test_another_agent_that_answers_says_so(tmp_path: Path) -> None:
    main, spare = AwayAgent(is_away=True), AwayAgent(is_away=False)
    platform = ScriptedPlatform(name="scripted")
    async with a_node(tmp_path, main, spare, platform=platform) as node:
        accepted = await node.hears("hello")
        await node.until(partial(node.is_settled, accepted.turn))
        await node.until(lambda: _has(platform, "Answered by spare: main was away"))
        again = await node.hears("and now?")
        await node.until(partial(node.is_settled, again.turn))
        assert len(main.requests) == 1  # an agent that failed is not asked for a while
        why = (await node.hears("/why")).reply
        settled = await node.settled(again.turn)

        over_http = await node.hears("over http", adapter=HTTP)
        await node.until(partial(node.is_settled, over_http.turn))
        notices = await node.notices(over_http)
    assert why is not None
    assert "Answered by spare: main was away" in why
    assert "10.0.0.7" not in why
    assert settled is not None
    assert settled.agent == "spare"
    assert [each.detail for each in settled.reach.missed] == [AWAY.detail]
    assert len(notices) == 1
    assert notices[0].startswith("Answered by spare: main was away")


async def test_a_wait_that_was_in_vain_is_told_and_explained(tmp_path: Path) -> None:
    agent, platform = AwayAgent(is_away=True), ScriptedPlatform(name="scripted")
    async with a_node(tmp_path, agent, platform=platform) as node:
        accepted = await node.hears("hello")
        await node.until(partial(node.is_settled, accepted.turn))
        settled = await node.settled(accepted.turn)
        await node.until(lambda: _has(platform, "There is no answer: "))
        why = (await node.hears("/why")).reply
    assert settled is not None
    assert settled.outcome is Outcome.FAILED
    assert settled.reason == StopReason.PROVIDER_UNREACHABLE
    assert 58 <= settled.reach.waited_s <= 61
    assert why is not None
    assert "for an agent" in why


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_no_instant_of_a_wait_loses_the_turn(simulator: Simulator, nemesis: Nemesis) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        calls = count()
        world.agent = ScriptedAgent(lambda asked: [AWAY] if next(calls) < 6 else echo(asked))
        world.say("hello")
        records = await world.play([rest], fuse)
        answers = [shown.text for shown in world.platform.shown if "echo: hello" in shown.text]
        problems = [each for record in records for each in violations(record)]
        return problems if len(answers) == 1 else [*problems, f"answers: {answers}"]

    await simulator.strike(run, nemesis, every=3)
