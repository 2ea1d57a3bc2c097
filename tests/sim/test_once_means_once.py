"""Checks that a tool which kills its host runs once, however often the gateway comes back."""

from functools import partial
from pathlib import Path

from tests.databases import sqlite_on

from perdure.app.wiring.assembly import compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import NoticePosted, ToolCall, ToolFinished
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.crash import SimulatedCrash
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

LIVES = 20


class DeadlyTools(CountingTools):
    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        self.ran.append(call.id)
        raise SimulatedCrash


def stubborn(request: ModelRequest) -> list[AgentEvent]:
    """Ask for the same call until two results say that its effect is unknown."""
    results = [b for m in request.messages for b in m.blocks if isinstance(b, ResultBlock)]
    if len(results) < 2:
        arguments = '{"to": "ada", "amount": 5}' if results else '{"amount":5,"to":"ada"}'
        return [
            AgentCall(id="given", name="pay", arguments=arguments),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]
    return [AgentText("I do not know whether it was paid."), Stopped(reason=StopReason.STOP)]


async def test_a_deadly_tool_runs_once(tmp_path: Path) -> None:
    clock, entropy, ran = VirtualClock(is_eager=True), SeededEntropy(), list[str]()
    make = partial(Store, clock=clock, entropy=entropy, media=tmp_path / "media")
    backend = Backend(name="main", kind="s", agent=ScriptedAgent(stubborn), tools=DeadlyTools(ran))
    session = None
    for _ in range(LIVES):
        store = make(sqlite_on(tmp_path / "perdure.db"))
        await store.open()
        try:
            async with Supervisor() as supervisor:
                dependencies = NodeDependencies(
                    store=store,
                    roster=Roster({"main": backend}),
                    clock=clock,
                    entropy=entropy,
                    limits=Limits(recovery=Policy(attempts_max=LIVES)),
                )
                parts = compose_node(dependencies, supervisor.start, feed=Feed())
                await store.nodes.join(name="sim")
                while await parts.reaper.step():
                    pass
                person = await admitted(store, "ada")
                update = Update(
                    address=Address(adapter="http", account=person, place="main"),
                    external_id="u1",
                    kind=UpdateKind.MESSAGE,
                    principal=person,
                    text="pay",
                )
                session = (await parts.door.accept(update)).session
                await parts.turns.step()
                await parts.turns.finished()
        except BaseExceptionGroup as group:
            if group.split(SimulatedCrash)[1] is not None:
                raise
        finally:
            await store.close()
    assert session is not None
    store = make(sqlite_on(tmp_path / "perdure.db"))
    await store.open()
    record = await store.diagnostics.record(session)
    await store.close()
    endings = [r.event.ending for r in record.events if isinstance(r.event, ToolFinished)]
    told = [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]
    assert len(ran) == 1
    assert ["was cut short" in text for text in told] == [True], "people are told once"
    assert endings == [CallEnding.UNKNOWN, CallEnding.UNKNOWN]
    assert [turn.outcome for turn in record.turns] == ["done"]
    assert violations(record) == []
