"""Checks how the calls of one answer run: side by side or alone, in time or not, with what they say
on the way, and that no call loses the result of another."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.errors import Ambiguous, Rejected
from perdure.domain.ids import QuestionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import (
    AttemptInterrupted,
    NoticePosted,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.records import EffectView, QuestionView, SessionRecord, TurnView
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, CallEnding, Repeat, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock, TextBlock
from perdure.domain.tools.asking import ALLOW, DENY, STILL_WAITING
from perdure.domain.tools.policy import Do, Rule, ToolPolicy
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.domain.turn.watching import ToolProgress
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.turns.tools.tool_calls import AT_ONCE, REPORT_MAX
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Page
from perdure.ports.turns.questions import QuestionReply
from perdure.ports.turns.tools import ToolCaller
from perdure.store.store import Store
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, ToolOutput, schema_of
from perdure.tools.toolbox import Toolbox

SOON_S = 10
Work = Callable[[ToolCaller], Awaitable[str | ToolOutput]]


class PlainTool:
    """Does what the test says, and needs nobody's approval."""

    description: str = "It does what the test says."
    parameters: str = schema_of(ToolArguments)

    def __init__(
        self,
        name: str,
        work: Work,
        *,
        repeat: Repeat = Repeat.REPEATABLE,
        permission: Permission = Permission.OWN,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self.name: str = name
        self.time_limit_s: float = time_limit_s
        self._repeat = repeat
        self._permission = permission
        self._work = work

    def traits(self, arguments: str) -> CallTraits:
        return self._kind()

    def kinds(self) -> Sequence[CallTraits]:
        return (self._kind(),)

    def _kind(self) -> CallTraits:
        return CallTraits(names=(self.name,), repeat=self._repeat, permission=self._permission)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str | ToolOutput:
        return await self._work(caller)


class Moody(PlainTool):
    """Says that a call cannot work, and would do it all the same."""

    def traits(self, arguments: str) -> CallTraits:
        raise Rejected("not today")


class Meeting:
    """Lets calls wait until a number of them are at work together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._all_here = asyncio.Event()
        self.most = self.present = 0

    async def attend(self, caller: ToolCaller) -> str:
        self.present += 1
        self.most = max(self.most, self.present)
        if self.present >= self._size:
            self._all_here.set()
        await self._all_here.wait()
        self.present -= 1
        return "met"


class ToolRig:
    """Lets an agent make calls in one answer, and holds what came of them."""

    def __init__(
        self, store: Store, parts: NodeParts, feed: Feed, roster: Roster, agent: ScriptedAgent
    ) -> None:
        self.store = store
        self.roster = roster
        self.parts = parts
        self.feed = feed
        self.agent = agent
        self.turn = TurnId("")
        self._said = 0

    async def begins(self) -> None:
        turn = (await self.says("do it")).turn
        assert turn is not None
        self.turn = turn

    async def says(self, text: str, *, busy: Busy = Busy.QUEUE) -> Accepted:
        person = await admitted(self.store, "ada")
        self._said += 1
        update = Update(
            address=Address(adapter="http", account=person, place="main"),
            external_id=f"u{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=person,
            text=text,
            busy=busy,
        )
        return await self.parts.door.accept(update)

    async def questions(self) -> list[QuestionView]:
        """Return the open questions."""
        return await self.store.questions.page(Page(limit=99), principal=None, is_pending=True)

    async def asked(self) -> QuestionView:
        """Wait until people are asked, and return the first question."""
        async with asyncio.timeout(SOON_S):
            while not (found := await self.questions()):
                await asyncio.sleep(0.005)
        return found[0]

    async def answers(self, question: QuestionView, word: str) -> None:
        person = await admitted(self.store, "ada")
        reply = QuestionReply(question=QuestionId(question.id), answer=word, by=person)
        await self.parts.door.answer(reply)

    async def replace(self, *, policy: ToolPolicy) -> None:
        """Apply another policy, as a changed configuration does."""
        (backend,) = self.roster.backends
        await self.roster.replace({backend.name: msgspec.structs.replace(backend, policy=policy)})

    async def results(self) -> list[ToolFinished]:
        """Return the results that are stored so far, in their order."""
        events = (await self.record()).events
        return [r.event for r in events if isinstance(r.event, ToolFinished)]

    async def is_done(self) -> list[ToolFinished]:
        """Wait until the turn is over, and return the results in the order in which they were
        stored."""
        assert (await self.ended()).outcome == "done"
        return await self.results()

    async def ended(self) -> TurnView:
        """Wait until the turn is over, and return how it ended."""
        async with asyncio.timeout(SOON_S):
            while (
                found := await self.store.archive.turn(self.turn, principal=None)
            ).outcome is None:
                await asyncio.sleep(0.005)
        assert violations(await self.record()) == []
        return found

    async def record(self) -> SessionRecord:
        found = await self.store.archive.turn(self.turn, principal=None)
        return await self.store.diagnostics.record(found.session)

    async def effects(self) -> list[EffectView]:
        return await self.store.effects.page(Page(limit=99), principal=None)

    def told(self) -> list[str]:
        """Return the results as the model was told them."""
        blocks = [b for m in self.agent.requests[-1].messages for b in m.blocks]
        return [block.text for block in blocks if isinstance(block, ResultBlock)]


def calling(names: Sequence[str]) -> ScriptedAgent:
    """Return an agent that makes these calls in one answer, and then says that it is done."""

    def rule(request: ModelRequest) -> list[AgentEvent]:
        if any(isinstance(b, ResultBlock) for m in request.messages for b in m.blocks):
            return [AgentText("done"), Stopped(reason=StopReason.STOP)]
        calls = [AgentCall(id=f"c{n}", name=name, arguments="{}") for n, name in enumerate(names)]
        return [*calls, Stopped(reason=StopReason.TOOL_CALLS)]

    return ScriptedAgent(rule)


@asynccontextmanager
async def tool_rig(
    folder: Path,
    *plain_tools: PlainTool,
    calls: Sequence[str] = (),
    agent: ScriptedAgent | None = None,
) -> AsyncIterator[ToolRig]:
    clock, entropy = SystemClock(), SeededEntropy()
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    agent = agent or calling(calls or [each.name for each in plain_tools])
    backend = Backend(name="main", kind="s", agent=agent, tools=Toolbox(plain_tools))
    feed, roster = Feed(), Roster({"main": backend})
    try:
        async with Supervisor() as supervisor:
            dependencies = NodeDependencies(
                store=store,
                roster=roster,
                clock=clock,
                entropy=entropy,
                limits=Limits(drain_timeout_s=0, has_titles=False),
            )
            parts = compose_node(dependencies, supervisor.start, feed=feed)
            await parts.gateway.begin(name="sim")
            found = ToolRig(store, parts, feed, roster, agent)
            await found.begins()
            try:
                yield found
            finally:
                await parts.gateway.drain()
                await supervisor.let_go()
    finally:
        await store.close()


async def quickly(caller: ToolCaller) -> str:
    return "here"


async def never(caller: ToolCaller) -> str:
    await asyncio.Event().wait()
    return "late"


def failing(error: BaseException) -> Work:
    async def fail(caller: ToolCaller) -> str:
        raise error

    return fail


async def test_calls_that_may_be_repeated_run_side_by_side_and_a_few_at_once(
    tmp_path: Path,
) -> None:
    meeting = Meeting(AT_ONCE)
    plain_tool = PlainTool("meet", meeting.attend)

    async with tool_rig(tmp_path, plain_tool, calls=["meet"] * (AT_ONCE * 2)) as found:
        results = await found.is_done()

    assert [each.result for each in results] == ["met"] * (AT_ONCE * 2)
    assert meeting.most == AT_ONCE


async def test_results_keep_the_order_of_their_calls(tmp_path: Path) -> None:
    first_may_end = asyncio.Event()

    async def slow(caller: ToolCaller) -> str:
        await first_may_end.wait()
        return "slow"

    async def fast(caller: ToolCaller) -> str:
        first_may_end.set()
        return "fast"

    async with tool_rig(tmp_path, PlainTool("slow", slow), PlainTool("fast", fast)) as found:
        results = await found.is_done()

    assert [each.result for each in results] == ["slow", "fast"]


async def test_a_call_that_must_not_be_repeated_runs_alone_in_its_place(tmp_path: Path) -> None:
    at_work, order = set[str](), list[tuple[str, int]]()

    def noted(name: str) -> Work:
        async def work(caller: ToolCaller) -> str:
            at_work.add(name)
            await asyncio.sleep(0.01)
            order.append((name, len(at_work)))
            at_work.discard(name)
            return name

        return work

    plain_tools = [
        PlainTool("look", noted("look")),
        PlainTool("pay", noted("pay"), repeat=Repeat.ONCE),
        PlainTool("check", noted("check")),
    ]
    async with tool_rig(tmp_path, *plain_tools) as found:
        await found.is_done()

    assert order == [("look", 1), ("pay", 1), ("check", 1)]


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (failing(Rejected("that cannot be")), "that cannot be"),
        (failing(RuntimeError("broken")), "failed unexpectedly (RuntimeError)"),
        (failing(RecursionError("deep")), "failed unexpectedly (RecursionError)"),
        (failing(MemoryError()), "failed unexpectedly (MemoryError)"),
        (failing(asyncio.CancelledError()), "ended without a result"),
        (failing(TimeoutError()), "failed unexpectedly (TimeoutError)"),
        (never, "took longer than the 0.1 s"),
    ],
    ids=["refused", "broken", "too deep", "no memory", "cancelled", "its own time-out", "hangs"],
)
async def test_a_failing_call_loses_no_result_of_another(
    tmp_path: Path, work: Work, said: str
) -> None:
    plain_tools = [
        PlainTool("before", quickly),
        PlainTool("bad", work, time_limit_s=0.1),
        PlainTool("after", quickly),
    ]

    async with tool_rig(tmp_path, *plain_tools) as found:
        before, bad, after = await found.is_done()
        assert await found.effects() == []

    assert [before.result, after.result] == ["here", "here"]
    assert bad.ending is CallEnding.FAILED
    assert said in bad.result


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (failing(Ambiguous("the line was cut")), "the line was cut"),
        (failing(RuntimeError("broken")), "failed unexpectedly (RuntimeError)"),
        (failing(asyncio.CancelledError()), "ended without a result"),
        (never, "took longer than the 0.1 s"),
    ],
    ids=["in doubt", "broken", "cancelled", "hangs"],
)
async def test_what_must_not_be_repeated_and_may_have_happened_is_told_to_agent_and_people(
    tmp_path: Path, work: Work, said: str
) -> None:
    pay = PlainTool("pay", work, repeat=Repeat.ONCE, time_limit_s=0.1)

    async with tool_rig(tmp_path, pay, PlainTool("after", quickly)) as found:
        unknown, after = await found.is_done()
        (effect,) = await found.effects()
        record = await found.record()

    assert (unknown.ending, after.result) == (CallEnding.UNKNOWN, "here")
    assert said in unknown.result
    assert (effect.call, effect.tool, effect.state) == (unknown.call, "pay", "unknown")
    assert said in found.told()[0]
    notices = [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]
    assert ["pay was cut short" in each for each in notices] == [True]


async def test_what_comes_after_its_time_goes_to_the_ledger_and_never_into_the_turn(
    tmp_path: Path,
) -> None:
    may_end = asyncio.Event()

    async def late(caller: ToolCaller) -> str:
        await may_end.wait()
        return "it was paid"

    pay = PlainTool("pay", late, repeat=Repeat.ONCE, time_limit_s=0.05)
    async with tool_rig(tmp_path, pay) as found:
        (unknown,) = await found.is_done()
        before = await found.record()
        may_end.set()
        async with asyncio.timeout(SOON_S):
            while not (effect := (await found.effects())[0]).late_result:
                await asyncio.sleep(0.005)
        assert await found.record() == before

    assert (unknown.ending, effect.late_result) == (CallEnding.UNKNOWN, "it was paid")


async def test_what_is_said_to_be_impossible_is_not_run_without_an_approval(
    tmp_path: Path,
) -> None:
    # Nobody is asked about a call that cannot work, so it must not work after all.
    ran: list[str] = []

    async def work(caller: ToolCaller) -> str:
        ran.append(caller.turn)
        return "done"

    async with tool_rig(tmp_path, Moody("moody", work)) as found:
        (refused,) = await found.is_done()
        record = await found.record()

    assert (refused.ending, refused.result, ran) == (CallEnding.FAILED, "not today", [])
    assert not any(isinstance(r.event, ToolStarted) for r in record.events)


async def test_what_is_said_while_people_are_asked_is_kept_and_told_after_the_call(
    tmp_path: Path,
) -> None:
    pay = PlainTool("pay", quickly, permission=Permission.ACT)
    async with tool_rig(tmp_path, pay) as found:
        question = await found.asked()

        steered = await found.says("by card", busy=Busy.STEER)
        assert (steered.effect, steered.turn) == (UpdateEffect.STEERED, found.turn)
        assert [each.id for each in await found.questions()] == [question.id]
        await found.answers(question, ALLOW)

        (result,) = await found.is_done()
        record = await found.record()
    assert result.result == "here"
    told = [
        each.text
        for m in found.agent.requests[-1].messages
        for each in m.blocks
        if isinstance(each, TextBlock)
    ]
    assert told[-1] == "by card"
    assert not any("interrupted" in each for each in told), "waiting is no interruption"
    waits = [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]
    assert STILL_WAITING in waits
    assert not any(isinstance(r.event, AttemptInterrupted) for r in record.events)


async def test_all_questions_of_an_answer_are_asked_at_once_after_the_free_calls(
    tmp_path: Path,
) -> None:
    plain_tools = [
        PlainTool("pay", quickly, permission=Permission.ACT),
        PlainTool("look", quickly),
        PlainTool("save", quickly, permission=Permission.ACT),
    ]
    async with tool_rig(tmp_path, *plain_tools) as found:
        await found.asked()
        first, second = await found.questions()
        assert (first.tool, second.tool) == ("pay", "save")
        assert [each.result for each in await found.results()] == ["here"], "the free call has run"
        await found.answers(second, DENY)
        await found.answers(first, ALLOW)

        results = {each.call: each.ending for each in await found.is_done()}
    assert sorted(results.values()) == ["denied", "returned", "returned"]
    assert len(found.agent.requests) == 2, "the model is asked once more, with all results"


async def test_a_rule_that_was_added_while_people_were_asked_wins_over_their_answer(
    tmp_path: Path,
) -> None:
    ran: list[str] = []

    async def work(caller: ToolCaller) -> str:
        ran.append(caller.turn)
        return "paid"

    pay = PlainTool("pay", work, permission=Permission.ACT)
    async with tool_rig(tmp_path, pay) as found:
        question = await found.asked()
        denying = ToolPolicy(agent="main", rules=(Rule(tool="pay", do=Do.DENY),))
        await found.replace(policy=denying)
        await found.answers(question, ALLOW)

        (result,) = await found.is_done()

    assert (result.ending, ran) == (CallEnding.DENIED, [])
    assert "a rule for pay does not allow this call" in result.result


async def test_work_beside_a_conversation_asks_nobody_and_is_told_so(tmp_path: Path) -> None:
    ran: list[str] = []

    async def pay(caller: ToolCaller) -> str:
        ran.append("pay")
        return "paid"

    plain_tool = PlainTool("pay", pay, repeat=Repeat.ONCE, permission=Permission.ACT)
    async with tool_rig(tmp_path, plain_tool) as found:
        await found.answers(await found.asked(), DENY)
        await found.ended()
        turn = (await found.says("/background pay as well")).turn
        assert turn is not None
        found.turn = turn
        (result,) = await found.is_done()
        assert await found.questions() == []

    assert (result.ending, ran) == (CallEnding.DENIED, [])
    assert "nobody can be asked here" in result.result


async def test_a_flood_of_progress_is_shown_now_and_then_and_short(tmp_path: Path) -> None:
    may_begin = asyncio.Event()

    async def flood(caller: ToolCaller) -> str:
        await may_begin.wait()
        for number in range(100_000):
            caller.report(f"{number} {'x' * 1_000}\x00")
        return "flooded"

    async with tool_rig(tmp_path, PlainTool("flood", flood)) as found:
        watched = found.feed.subscribe((await found.record()).session.id)
        may_begin.set()
        await found.is_done()
        shown = [e for e in await watched.next(0) if isinstance(e, ToolProgress)]

    assert len(shown) == 1
    assert len(shown[0].text) == REPORT_MAX
