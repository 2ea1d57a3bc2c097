"""Checks the pumps step by step: how much runs at once, what wakes them, and how long they wait."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.cadence import CADENCE_MAX_S
from perdure.domain.delivery import Capabilities, Pace, Rate, backoff_s
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import ConversationId, MessageId, PartId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    SteerTaken,
    ToolCall,
    TurnSettled,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption, NodeRequest, StopReason
from perdure.domain.people.sharing import FairShares
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentSpent, AgentText, Stopped
from perdure.engine.delivery.reconciling import LATE_S
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.flusher import Flusher
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import Limits
from perdure.engine.turns.scribe import PIECE_MIN, Scribe
from perdure.engine.watching.feed import Feed
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Effect, Post, Receipt, Unrenderable
from perdure.ports.records.history import Conversations
from perdure.ports.turns.agent import Work
from perdure.ports.turns.room import ContextRoom
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.ports.turns.turns import Claimed, TextPiece, TurnLease, Turns
from perdure.ports.turns.wakes import Topic
from perdure.store.ports.delivery.outbox import StoredOutbox
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import Person, admitted, only
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

NAME = "scripted"
SOON_S = 5
CLAIMED = Claimed(
    lease=TurnLease(session=SessionId("ses_1"), turn=TurnId("trn_1"), epoch=1, attempt=1),
    conversation=ConversationId("con_1"),
    principal=PrincipalId("prn_1"),
    address=Address(adapter="http", account="", place="home"),
    parent=None,
    events=(),
)


class Patient(ScriptedAgent):
    """Says one word, waits for `go_on`, and ends. `open` counts the streams that are open now,
    `most` the largest number that ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.open = self.most = 0

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            yield AgentText("Well, ")
            await self.go_on.wait()
            yield Stopped(reason=StopReason.STOP)
        finally:
            self.open -= 1


class Counting(ScriptedPlatform):
    """Counts how often it was asked for something."""

    def __init__(self, capabilities: Capabilities | None = None) -> None:
        super().__init__(capabilities=capabilities or Capabilities(takes_key=True))
        self.asked = 0

    async def perform(self, effect: Effect) -> Receipt:
        self.asked += 1
        return await super().perform(effect)


class Node:
    def __init__(
        self, store: Store, parts: NodeParts, clock: VirtualClock, who: PrincipalId
    ) -> None:
        self.store = store
        self.parts = parts
        self.clock = clock
        self.who = who

    async def hears(
        self, place: str, *, who: str = "", text: str = "", busy: Busy = Busy.QUEUE
    ) -> Accepted:
        """Take a message of Ada's, or of the person who is named."""
        principal = await admitted(self.store, who) if who else self.who
        update = Update(
            address=Address(adapter="http", account=principal, place=place),
            external_id=text or place,
            kind=UpdateKind.MESSAGE,
            principal=principal,
            text=text or place,
            busy=busy,
        )
        return await self.parts.door.accept(update)

    async def answers(self, place: str, text: str) -> TurnId:
        """Put a reply into the outbox. Returns its turn."""
        person = Person(self.store, self.who, adapter=NAME, place=place)
        return await person.is_answered("hi", text, parts=(text,))

    async def outcome(self, accepted: Accepted) -> str | None:
        assert accepted.turn is not None
        return (await self.store.archive.turn(accepted.turn, principal=None)).outcome

    async def is_settled(self, *accepted: Accepted) -> None:
        async with asyncio.timeout(SOON_S):
            while not all([await self.outcome(each) for each in accepted]):
                await asyncio.sleep(0.002)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_so():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def a_node(
    folder: Path,
    *,
    clock: VirtualClock | None = None,
    agent: ScriptedAgent | None = None,
    platform: ScriptedPlatform | None = None,
    limits: Limits | None = None,
    concurrent: int | None = None,
    tools: CountingTools | None = None,
    is_running: bool = True,
) -> AsyncIterator[Node]:
    """Run a node, whose agent takes `concurrent` calls at once. If it is not `is_running`, the test
    makes every step and moves the time itself."""
    clock = clock or VirtualClock(is_eager=is_running)
    driver = sqlite_on(folder / "perdure.db")
    entropy = SeededEntropy(clock.now_ms())
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    backend = Backend(
        name="main",
        kind="s",
        agent=agent or ScriptedAgent(),
        tools=tools or CountingTools([]),
        concurrent=concurrent,
    )
    dependencies = NodeDependencies(
        store=store,
        roster=Roster({"main": backend}),
        clock=clock,
        entropy=entropy,
        limits=limits or Limits(drain_timeout_s=0, has_titles=False),
        adapters={platform.name: platform} if platform else {},
    )
    try:
        async with Supervisor() as supervisor:
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            if is_running:
                await parts.gateway.begin(name="sim")
            else:
                await store.nodes.join(name="sim")
            who = await admitted(store, "ada")
            try:
                yield Node(store, parts, clock, who)
            finally:
                if is_running:
                    await parts.gateway.drain()
    finally:
        await store.close()


@pytest.mark.parametrize("concurrent", [1, 2])
async def test_no_more_turns_run_at_once_than_are_allowed_and_all_get_their_turn(
    tmp_path: Path, concurrent: int
) -> None:
    agent = Patient()
    limits = Limits(drain_timeout_s=0, has_titles=False, concurrent=concurrent)
    async with a_node(tmp_path, agent=agent, limits=limits) as node:
        people = ("ada", "bob", "ada", "bob", "ada")
        accepted = [await node.hears(f"{n}", who=who) for n, who in enumerate(people)]
        await until(lambda: agent.open == concurrent)
        assert node.parts.turns.running == concurrent

        agent.go_on.set()

        await node.is_settled(*accepted)
    assert (agent.most, len(agent.requests)) == (concurrent, 5)


class InTurn(Patient):
    """Ends an answer only once its question is in `ended`."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: set[str] = set()
        self.asked: list[str] = []

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        text = said(request)
        self.asked.append(text)
        self.open += 1
        try:
            yield AgentText("Well, ")
            while text not in self.ended:
                await asyncio.sleep(0.002)
            yield Stopped(reason=StopReason.STOP)
        finally:
            self.open -= 1


async def test_one_person_never_has_all_the_slots_and_the_next_goes_to_who_has_the_fewest(
    tmp_path: Path,
) -> None:
    agent = InTurn()
    limits = Limits(drain_timeout_s=0, has_titles=False, concurrent=4)
    async with a_node(tmp_path, agent=agent, limits=limits) as node:
        for number in range(20):
            await node.hears(f"ada {number}", who="ada")
        await until(lambda: agent.open == 3)

        for who in ("bob", "cyd", "dan"):
            await node.hears(f"{who} 0", who=who)
        await node.hears("bob 1", who="bob")
        await until(lambda: agent.open == 4)
        assert agent.asked[3:] == ["bob 0"], "a slot was kept for others"
        for ends, begins in [("ada 0", "cyd 0"), ("ada 1", "dan 0"), ("bob 0", "bob 1")]:
            agent.ended.add(ends)
            await until(lambda begins=begins: agent.asked[-1] == begins)  # type: ignore[misc]
        agent.ended |= {"bob 1", "cyd 0", "dan 0", *(f"ada {number}" for number in range(20))}
        await until(lambda: len(agent.asked) == 24 and not agent.open)
        assert [text for text in agent.asked if "ada" in text] == [f"ada {n}" for n in range(20)]


async def test_an_agent_is_called_by_as_many_turns_at_once_as_it_allows(tmp_path: Path) -> None:
    agent = Patient()
    async with a_node(tmp_path, agent=agent, concurrent=2) as node:
        people = ("ada", "bob", "ada", "bob", "ada")
        accepted = [await node.hears(f"{n}", who=who) for n, who in enumerate(people)]
        await until(lambda: agent.open == 2 and node.parts.turns.running == 5)

        agent.go_on.set()

        await node.is_settled(*accepted)
    assert (agent.most, len(agent.requests)) == (2, 5)


async def test_a_person_with_many_turns_leaves_a_place_at_the_agent_to_others(
    tmp_path: Path,
) -> None:
    agent = InTurn()
    async with a_node(tmp_path, agent=agent, concurrent=2) as node:
        for number in range(3):
            await node.hears(f"ada {number}", who="ada")
        await until(lambda: node.parts.turns.running == 3)
        await node.hears("bob 0", who="bob")
        await until(lambda: agent.asked == ["ada 0", "bob 0"])

        agent.ended |= {"bob 0", *(f"ada {number}" for number in range(3))}

        await until(lambda: len(agent.asked) == 4 and not agent.open)


async def test_a_turn_that_is_stopped_while_it_waits_for_a_place_makes_no_call(
    tmp_path: Path,
) -> None:
    agent = Patient()
    async with a_node(tmp_path, agent=agent, concurrent=1) as node:
        first, second, third = [await node.hears(f"{n}") for n in range(3)]
        await until(lambda: agent.open == 1 and node.parts.turns.running == 3)
        await node.hears("1", text="instead", busy=Busy.INTERRUPT)
        assert await node.outcome(second) == "superseded"
        agent.go_on.set()

        await node.is_settled(first, third)
        await until(lambda: len(agent.requests) == 3 and not agent.open)
    assert [said(each) for each in agent.requests] == ["0", "2", "instead"]


class HeldTool(CountingTools):
    """Ends no call before `go_on`."""

    def __init__(self) -> None:
        super().__init__([])
        self.go_on = asyncio.Event()

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        result = await super().call(call, caller)
        await self.go_on.wait()
        return result


async def test_a_turn_has_no_place_at_the_agent_while_its_tools_run(tmp_path: Path) -> None:
    agent, tools = ScriptedAgent(), HeldTool()
    async with a_node(tmp_path, agent=agent, tools=tools, concurrent=1) as node:
        slow = await node.hears("1", text="tool look")
        await until(lambda: len(tools.ran) == 1)

        quick = await node.hears("2")
        await node.is_settled(quick)
        tools.go_on.set()

        await node.is_settled(slow)


async def test_a_drain_does_not_wait_for_turns_that_wait_for_a_place(tmp_path: Path) -> None:
    agent, after = Patient(), ScriptedAgent()
    limits = Limits(drain_timeout_s=5, has_titles=False)
    async with a_node(tmp_path, agent=agent, limits=limits, concurrent=1) as node:
        turns = [await node.hears(f"{n}") for n in range(3)]
        await until(lambda: agent.open == 1 and node.parts.turns.running == 3)
        ending = asyncio.ensure_future(node.parts.gateway.drain())
        await until(lambda: node.parts.turns.running == 1)
        agent.go_on.set()
        await ending
        assert len(agent.requests) == 1
    async with a_node(tmp_path, agent=after) as node:
        await node.is_settled(*turns)


async def test_a_turn_whose_claim_was_not_heard_of_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Patient()
    limits = Limits(drain_timeout_s=0, has_titles=False, concurrent=1)
    async with a_node(tmp_path, agent=agent, limits=limits) as node:
        first, second = await node.hears("one"), await node.hears("two")
        await until(lambda: agent.open == 1)
        claim, lost = node.store.turns.claim, list[Claimed]()

        async def loses_an_answer(*, limit: int, shares: FairShares) -> list[Claimed]:
            claimed = await claim(limit=limit, shares=shares)
            if claimed and not lost:
                lost.extend(claimed)
                raise Ambiguous("the connection broke after the commit")
            return claimed

        monkeypatch.setattr(node.store.turns, "claim", loses_an_answer)
        agent.go_on.set()

        await node.is_settled(first, second)
        assert [each.lease.turn for each in lost] == [second.turn]
        assert await node.outcome(second) == "done"


async def test_what_was_sent_to_a_turn_before_a_restart_is_taken_after_it(tmp_path: Path) -> None:
    clock, before, after = VirtualClock(is_eager=True), Patient(), ScriptedAgent()
    async with a_node(tmp_path, clock=clock, agent=before) as node:
        first = await node.hears("home")
        await until(lambda: before.open == 1)
        steered = await node.hears("home", text="this way", busy=Busy.STEER)
        assert steered.turn == first.turn
    async with a_node(tmp_path, clock=clock, agent=after) as node:
        await node.is_settled(first)
        record = await node.store.diagnostics.record(first.session)

    assert [each.text for each in only(SteerTaken, record.events)] == ["this way"]
    assert len(record.turns) == 1, "it is no turn of its own"


async def test_an_interruption_is_told_once_where_the_model_answers_with_a_call(
    tmp_path: Path,
) -> None:
    clock, before = VirtualClock(is_eager=True), Patient()
    steps: list[list[AgentEvent]] = [
        [
            AgentCall(id="1", name="look", arguments="{}"),
            Stopped(reason=StopReason.TOOL_CALLS),
        ],
        [AgentText("Trees."), Stopped(reason=StopReason.STOP)],
    ]
    after = ScriptedAgent(lambda _: steps.pop(0))
    async with a_node(tmp_path, clock=clock, agent=before) as node:
        first = await node.hears("home")
        await until(lambda: before.open == 1)
    async with a_node(tmp_path, clock=clock, agent=after) as node:
        await node.is_settled(first)
        record = await node.store.diagnostics.record(first.session)

    (interrupted,) = [each for each in record.events if isinstance(each.event, AttemptInterrupted)]
    told = only(InterruptionAcknowledged, record.events)
    assert [each.interruption for each in told] == [interrupted.seq]


async def test_a_node_without_its_lease_claims_nothing_until_it_has_joined_again(
    tmp_path: Path,
) -> None:
    # Its turns, and all that wait, may be another node's by now.
    async with a_node(tmp_path, is_running=False) as node:
        turns = node.parts.turns
        turns.let_go()

        accepted = await node.hears("home")
        assert not await turns.step()
        assert (turns.running, await node.outcome(accepted)) == (0, None)

        turns.come_back()
        assert await turns.step()
        await node.is_settled(accepted)


@pytest.mark.parametrize("is_restart", [False, True], ids=["stop", "restart"])
async def test_a_drain_parks_what_runs_and_says_that_it_was_no_crash(
    tmp_path: Path, is_restart: bool
) -> None:
    agent = Patient()
    async with a_node(tmp_path, agent=agent) as node:
        accepted = await node.hears("home")
        await until(lambda: agent.open == 1)
        if is_restart:
            node.parts.gateway.request_restart()
        async with asyncio.timeout(SOON_S):
            await node.parts.gateway.drain()

        record = await node.store.diagnostics.record(accepted.session)
        (turn,) = record.turns
        (interrupted,) = only(AttemptInterrupted, record.events)
        wanted = Interruption.RESTART if is_restart else Interruption.SHUTDOWN
        assert (turn.state, interrupted.reason) == ("interrupted", wanted)
        assert [each.text for each in only(AssistantSaid, record.events)] == ["Well, "]
    assert agent.open == 0


class LooksFirst(Patient):
    """Calls a tool before each answer, and tells what that has used."""

    used = Usage(input_tokens=500, output_tokens=20, model_calls=1)

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        if not self.requests:
            self.requests.append(request)
            yield AgentCall(id="1", name="look", arguments="{}")
            yield AgentSpent(self.used)
            yield Stopped(reason=StopReason.TOOL_CALLS)
            return
        async for event in super().run(request, work):
            if isinstance(event, Stopped):
                yield AgentSpent(self.used)
            yield event


async def test_a_drain_charges_the_model_calls_that_have_ended(tmp_path: Path) -> None:
    agent = LooksFirst()
    async with a_node(tmp_path, agent=agent) as node:
        accepted = await node.hears("home")
        await until(lambda: agent.open == 1)
        await node.parts.gateway.drain()

        record = await node.store.diagnostics.record(accepted.session)
        (interrupted,) = only(AttemptInterrupted, record.events)
        assert interrupted.usage == agent.used
    agent.go_on.set()
    async with a_node(tmp_path, agent=agent) as node:
        await node.is_settled(accepted)
        record = await node.store.diagnostics.record(accepted.session)
        (settled,) = only(TurnSettled, record.events)
        assert settled.usage == agent.used + agent.used


@pytest.mark.parametrize(("code", "holds_others"), [(ACCOUNT_WAIT, True), ("", False)])
async def test_a_wait_that_a_send_has_met_is_kept_by_all_whom_it_concerns(
    tmp_path: Path, code: str, holds_others: bool
) -> None:
    platform = Counting()
    platform.failures = [Transient("429", retry_after_s=30, code=code or None)]
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        await node.answers("first", "one")
        await node.parts.outbox.step()
        assert (platform.asked, platform.shown) == (1, [])

        await node.answers("second", "two")
        node.clock.advance(29)
        await node.parts.outbox.step()

        shown = [each.text for each in platform.shown]
        assert shown == ([] if holds_others else ["two"])
        assert platform.asked == 1 + len(shown), "nothing is asked during the wait"
        for _ in range(3):
            node.clock.advance(1)
            await node.parts.outbox.step()
        assert sorted(each.text for each in platform.shown) == ["one", "two"]


async def test_a_platform_that_names_no_time_is_left_alone_for_a_while(tmp_path: Path) -> None:
    platform = Counting()
    platform.failures = [Transient("503"), Transient("503")]
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        await node.answers("home", "at last")
        for attempt in (1, 2):
            await node.parts.outbox.step()
            assert platform.asked == attempt
            node.clock.advance(backoff_s(attempt) - 0.1)
            await node.parts.outbox.step()
            assert platform.asked == attempt, "too soon"
            node.clock.advance(0.2)
        await node.parts.outbox.step()
    assert [each.text for each in platform.shown] == ["at last"]


@pytest.mark.parametrize(
    ("key_s", "passed_s", "state"),
    [(60, 59, "sent"), (60, 61, "unknown"), (60, -7_200, "unknown"), (math.inf, -7_200, "sent")],
)
async def test_a_key_is_repeated_only_while_the_platform_remembers_it(
    tmp_path: Path, key_s: float, passed_s: int, state: str
) -> None:
    # The process died while it was sending, and the message had arrived. If the clock was set back
    # since then, nobody knows how long ago that was.
    platform = Counting(Capabilities(takes_key=True, key_s=key_s))
    clock = VirtualClock()
    async with a_node(tmp_path, clock=clock, platform=platform, is_running=False) as node:
        await node.answers("home", "hello")
        (part,) = await node.store.outbox.take(adapter=NAME, limit=1)
    clock.jump(passed_s)
    async with a_node(tmp_path, clock=clock, platform=platform, is_running=False) as node:
        for _ in range(2):
            await node.parts.outbox.step()

        assert (await node.store.parked.part(PartId(part.id))).state == state
    assert platform.asked == (state == "sent")


async def test_what_is_found_on_the_platform_is_not_sent_again(tmp_path: Path) -> None:
    platform = Counting(Capabilities(can_find=True))
    clock = VirtualClock()
    async with a_node(tmp_path, clock=clock, platform=platform, is_running=False) as node:
        for place in ("arrived", "lost"):
            await node.answers(place, place)
        parts = await node.store.outbox.take(adapter=NAME, limit=2)
        (arrived,) = [part for part in parts if part.text == "arrived"]
        await platform.perform(Post(key=arrived.id, address=arrived.address, text=arrived.text))
    clock.advance(LATE_S)  # earlier, a part that is not found may still arrive
    async with a_node(tmp_path, clock=clock, platform=platform, is_running=False) as node:
        for _ in range(2):
            await node.parts.outbox.step()
        for part in parts:
            assert (await node.store.parked.part(part.id)).state == "sent"
    assert [each.text for each in platform.shown] == ["arrived", "lost"]
    assert platform.asked == 2


async def test_an_answer_names_the_message_that_it_answers(tmp_path: Path) -> None:
    class Noting(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.posts: list[Post] = []

        async def perform(self, effect: Effect) -> Receipt:
            if isinstance(effect, Post):
                self.posts.append(effect)
            return await super().perform(effect)

    platform = Noting()
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        await node.answers("home", "hello")
        await node.parts.outbox.step()
    assert [(each.text, each.reply_to) for each in platform.posts] == [("hello", "home-1")]


async def test_a_part_that_is_sent_again_says_so(tmp_path: Path) -> None:
    class Noting(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.repeats: list[bool] = []

        async def perform(self, effect: Effect) -> Receipt:
            assert isinstance(effect, Post)
            self.repeats.append(effect.is_repeat)
            return await super().perform(effect)

    platform = Noting()
    platform.failures = [Transient("try again")]
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        await node.answers("home", "hello")
        for _ in range(2):
            await node.parts.outbox.step()
            node.clock.advance(60)
    assert platform.repeats == [False, True]


async def test_the_same_words_in_another_form_count_as_another_call(tmp_path: Path) -> None:
    class Plain(Counting):
        async def perform(self, effect: Effect) -> Receipt:
            receipt = await super().perform(effect)
            if isinstance(effect, Post) and not effect.is_plain:
                raise Unrenderable("the marks are refused")
            return receipt

    pace = Pace(account=Rate(2, 60))
    platform = Plain(Capabilities(takes_key=True, pace=pace))
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        for place in ("home", "elsewhere"):
            await node.answers(place, place)
        await node.parts.outbox.step()
        assert platform.asked == 2, "both calls were for the first part"
        node.clock.advance(60)
        await node.parts.outbox.step()
    assert platform.asked == 4


@pytest.mark.parametrize("failure", [Ambiguous("no answer"), KeyError("a bug")])
async def test_what_may_have_arrived_is_not_sent_again_without_a_key(
    tmp_path: Path, failure: Exception
) -> None:
    class Breaks(Counting):
        async def perform(self, effect: Effect) -> Receipt:
            await super().perform(effect)
            raise failure

    platform = Breaks(Capabilities())
    async with a_node(tmp_path, platform=platform, is_running=False) as node:
        await node.answers("home", "hello")
        for _ in range(3):
            await node.parts.outbox.step()
            node.clock.advance(3600)
    assert platform.asked == 1


async def test_a_part_is_expired_after_its_time_and_not_before(tmp_path: Path) -> None:
    platform = Counting()
    platform.failures = [Transient("503") for _ in range(10)]
    limits = Limits(drain_timeout_s=0, delivery_expire_s=3600)
    states = []
    async with a_node(tmp_path, platform=platform, limits=limits, is_running=False) as node:
        turn = await node.answers("home", "too late")
        session = (await node.store.archive.turn(turn, principal=None)).session
        for passed_s in (0, 3500, 200):
            node.clock.advance(passed_s)
            await node.parts.outbox.step()
            states += [each.state for each in (await node.store.diagnostics.record(session)).parts]
    assert states == ["pending", "pending", "expired"]


class SlowPlatform(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def perform(self, effect: Effect) -> Receipt:
        self.asked += 1
        await self.go_on.wait()
        return await super().perform(effect)


async def test_a_node_leaves_after_its_last_word_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once the node has left, other nodes treat what it is sending as stranded.
    platform = SlowPlatform()
    shown_at_the_end: list[str] = []
    async with a_node(tmp_path, platform=platform) as node:
        leave = node.store.nodes.leave

        async def noted(*, restart_session: SessionId | None, asked: NodeRequest) -> None:
            shown_at_the_end.extend(each.text for each in platform.shown)
            await leave(restart_session=restart_session, asked=asked)

        monkeypatch.setattr(node.store.nodes, "leave", noted)
        await node.answers("home", "the last word")
        node.parts.wakes.publish(Topic.OUTBOX)
        await until(lambda: platform.asked == 1)
        draining = asyncio.ensure_future(node.parts.gateway.drain())
        await until(lambda: node.parts.gateway.is_draining)
        for _ in range(100):
            await asyncio.sleep(0)
        platform.go_on.set()
        await draining
    assert shown_at_the_end == ["the last word"]


class SlowDisk:
    """Takes flushes, and ends them once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0
        self.stored: list[str] = []

    async def flush(self, pieces: Sequence[TextPiece], *, beats: bool) -> list[TurnLease]:
        self.begun += 1
        await self.go_on.wait()
        self.stored += [piece.text for piece in pieces]
        return []


class Carried:
    """Takes flushes, and notes which of them were heartbeats."""

    def __init__(self) -> None:
        self.beats: list[bool] = []

    async def flush(self, pieces: Sequence[TextPiece], *, beats: bool) -> list[TurnLease]:
        self.beats.append(beats)
        return []


async def test_text_is_a_heartbeat_once_the_next_one_is_near() -> None:
    clock = VirtualClock(is_eager=True)
    disk, heartbeat = Carried(), Heartbeat(clock)
    lease = TurnLease(session=SessionId("ses_1"), turn=TurnId("trn_1"), epoch=1, attempt=1)
    async with Supervisor() as supervisor:
        flusher = Flusher(
            cast("Turns", disk), clock=clock, start=supervisor.start, heartbeat=heartbeat
        )
        for number, passed_s in enumerate((0.24, 0.24, 0.24, 0.24, 0.24, 30)):
            clock.advance(passed_s)
            await flusher.flush(
                TextPiece(lease=lease, message=MessageId("msg_1"), start=number, text="x")
            )
            assert heartbeat.left_s > 0, "nobody else needs to say that we live"

    assert disk.beats == [False, True, False, True, False, True]


@pytest.mark.parametrize("first_s", [0.02, 0.1, 0.2])
async def test_flushes_of_a_long_answer_carry_every_heartbeat(first_s: float) -> None:
    clock = VirtualClock(is_eager=True)
    disk, heartbeat = Carried(), Heartbeat(clock)
    lease = TurnLease(session=SessionId("ses_1"), turn=TurnId("trn_1"), epoch=1, attempt=1)
    async with Supervisor() as supervisor:
        flusher = Flusher(
            cast("Turns", disk), clock=clock, start=supervisor.start, heartbeat=heartbeat
        )
        clock.advance(first_s)
        for number in range(20):
            assert heartbeat.left_s > 0, "a commit of its own would be due"
            piece = TextPiece(lease=lease, message=MessageId("msg_1"), start=number, text="x")
            await flusher.flush(piece)
            clock.advance(CADENCE_MAX_S)

    assert sum(disk.beats) <= 11, "one every half second is enough"


async def test_a_message_is_not_final_while_words_of_it_are_being_stored() -> None:
    # The words would be stored behind the message, and come back as a second one.
    clock, disk = VirtualClock(is_eager=True), SlowDisk()
    turns = cast("Turns", disk)
    feed = Feed()
    async with Supervisor() as supervisor, asyncio.TaskGroup() as scribbling:
        ledger = Ledger(
            CLAIMED,
            turns=turns,
            room=cast("ContextRoom", disk),
            conversations=cast("Conversations", disk),
            flusher=Flusher(turns, clock=clock, start=supervisor.start, heartbeat=Heartbeat(clock)),
            feed=feed,
            clock=clock,
        )
        scribe = Scribe(
            ledger,
            MessageId("msg_1"),
            scribbling=scribbling,
            acknowledgements=(),
        )
        scribe.add("Well, ")
        await until(lambda: disk.begun == 1)
        scribe.add("no.")
        finishing = asyncio.ensure_future(scribe.finish())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not finishing.done()
        disk.go_on.set()
        assert await finishing == "Well, no."
    assert disk.stored == ["Well, "], "the rest is stored with the message"


class Shelf:
    """Takes the pieces of one message as a ledger does: a piece with the same start replaces the
    one before it. Notes what watchers would see."""

    def __init__(self) -> None:
        self.clock = VirtualClock(is_eager=True)
        self.lease = TurnLease(session=SessionId("ses_1"), turn=TurnId("trn_1"), epoch=1, attempt=1)
        self.pieces: list[TextPiece] = []
        self.shown = ""

    async def flush(self, piece: TextPiece, *, known: int, events: Sequence[AnyEvent]) -> None:
        assert piece.start + known == len(self.shown)
        self.pieces.append(piece)
        self.shown += piece.text[known:]

    @property
    def rows(self) -> dict[int, str]:
        return {piece.start: piece.text for piece in self.pieces}


async def test_few_words_become_few_rows_and_no_flush_writes_much_again() -> None:
    shelf, words = Shelf(), [f"word {number} " for number in range(100)]
    async with asyncio.TaskGroup() as scribbling:
        scribe = Scribe(
            cast("Ledger", shelf), MessageId("msg_1"), scribbling=scribbling, acknowledgements=()
        )
        for word in words:
            scribe.add(word)
            await scribe.flush()
            assert "".join(shelf.rows.values()) == shelf.shown, "what is shown is stored"
        assert await scribe.finish() == "".join(words)

    assert shelf.shown == "".join(words)
    assert [piece.text for piece in shelf.pieces if piece.start == 0] == ["word 0 "]
    assert len(shelf.rows) < 15
    assert max(len(piece.text) for piece in shelf.pieces) < PIECE_MIN + 10


@pytest.mark.parametrize("error", [Transient("not now"), Ambiguous("no answer")])
async def test_what_people_are_told_beside_a_turn_is_tried_once_and_ends_nothing(
    error: Transient | Ambiguous,
) -> None:
    # It may have been stored, and would then be told twice.
    class Mute:
        told = 0

        async def tell(self, lease: TurnLease, text: str) -> None:
            self.told += 1
            raise error

    clock, store = VirtualClock(is_eager=True), Mute()
    turns = cast("Turns", store)
    async with Supervisor() as supervisor:
        ledger = Ledger(
            CLAIMED,
            turns=turns,
            room=cast("ContextRoom", store),
            conversations=cast("Conversations", store),
            flusher=Flusher(turns, clock=clock, start=supervisor.start, heartbeat=Heartbeat(clock)),
            feed=Feed(),
            clock=clock,
        )
        await ledger.tell("The model is away.")
    assert store.told == 1


@pytest.mark.parametrize("jump_s", [-7_200, 7_200])
async def test_pumps_look_again_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    # One part waits for an hour by the clock. If the clock is set back, the part waits for that
    # hour again.
    clock, platform = VirtualClock(), Counting()
    async with a_node(tmp_path, clock=clock, platform=platform, is_running=False) as node:
        await node.answers("home", "hello")
        (part,) = await node.store.outbox.take(adapter=NAME, limit=1)
        await node.store.outbox.defer(part.id, due_in_s=3_600, attempt=part.attempts)
    looked = asyncio.Event()
    next_due_ms = StoredOutbox.next_due_ms

    async def noted(outbox: StoredOutbox) -> int | None:
        looked.set()
        return await next_due_ms(outbox)

    monkeypatch.setattr(StoredOutbox, "next_due_ms", noted)
    async with a_node(tmp_path, clock=clock, platform=platform) as node:
        await looked.wait()

        clock.jump(jump_s)

        due_ms = clock.now_ms() + 3_600_000 if jump_s < 0 else None
        async with asyncio.timeout(SOON_S):
            while await next_due_ms(node.store.outbox) != due_ms:
                await asyncio.sleep(0.01)
    assert len(platform.shown) == (jump_s > 0)
