"""A stop that comes before heavy work begins is honoured before it begins."""

import asyncio
from pathlib import Path

from perdure.app.node import Parts, Surroundings, put_together
from perdure.domain.address import Address
from perdure.domain.events import ToolCall
from perdure.domain.ids import TurnId
from perdure.domain.menu import PLAIN, Menu
from perdure.domain.updates import Update
from perdure.engine.feed import Feed
from perdure.engine.roster import Roster, Seat
from perdure.engine.supervisor import Supervisor
from perdure.ports.inbox import Reception
from perdure.ports.tools import Caller, ToolResult
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.store.writing import StoredInbox
from perdure.testkit.agent import CountingTools, ScriptedAgent
from perdure.testkit.stores import admitted
from perdure.testkit.system import SeededEntropy, VirtualClock


class StopsDuringClaim:
    """The turn is claimed as it is accepted; before the answer arrives, someone stops it."""

    def __init__(self, inner: StoredInbox) -> None:
        self._inner = inner
        self.parts: Parts | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def accept_and_start(
        self, update: Update, *, queue_max: int, menu: Menu = PLAIN
    ) -> Reception:
        received = await self._inner.accept_and_start(update, queue_max=queue_max, menu=menu)
        assert received.claimed is not None
        assert self.parts is not None
        await self.parts.door.stop(received.claimed.lease.turn, by=None)
        return received


class StopsBeforeSecondCall(CountingTools):
    """While the first tool runs, someone stops the turn."""

    parts: Parts | None = None

    async def call(self, call: ToolCall, caller: Caller) -> ToolResult:
        result = await super().call(call, caller)
        assert self.parts is not None
        await self.parts.door.stop(caller.turn, by=None)
        return result


async def run(tmp_path: Path, text: str, *, at_claim: bool) -> tuple[ScriptedAgent, list[str], str]:
    clock, entropy, agent = VirtualClock(is_eager=True), SeededEntropy(), ScriptedAgent()
    driver = SqliteDriver(tmp_path / "perdure.db", synchronous="OFF")
    store = Store(driver, clock=clock, entropy=entropy, media=tmp_path / "media")
    await store.open()
    await store.nodes.join(name="sim")
    tools = CountingTools([]) if at_claim else StopsBeforeSecondCall([])
    claims = StopsDuringClaim(store.inbox)
    if at_claim:
        store.inbox = claims  # type: ignore[assignment]
    seat = Seat(name="main", kind="s", agent=agent, tools=tools)
    async with Supervisor() as supervisor:
        around = Surroundings(
            store=store, roster=Roster({"main": seat}), clock=clock, entropy=entropy
        )
        parts = put_together(around, supervisor.start, feed=Feed())
        claims.parts = parts
        if isinstance(tools, StopsBeforeSecondCall):
            tools.parts = parts
        turn = await _accept(store, parts, text)
        await parts.turns.step()
        await parts.turns.finished()
    outcome = (await store.archive.turn(turn, principal=None)).outcome
    await store.close()
    return agent, tools.ran, outcome or ""


async def test_a_turn_stopped_before_its_first_step_is_not_waited_for(tmp_path: Path) -> None:
    """A task that is cancelled before it has begun runs none of its own cleaning up."""
    clock, entropy = VirtualClock(is_eager=True), SeededEntropy()
    driver = SqliteDriver(tmp_path / "perdure.db", synchronous="OFF")
    store = Store(driver, clock=clock, entropy=entropy, media=tmp_path / "media")
    await store.open()
    await store.nodes.join(name="sim")
    seat = Seat(name="main", kind="s", agent=ScriptedAgent(), tools=CountingTools([]))
    roster = Roster({"main": seat})
    async with Supervisor() as supervisor:
        around = Surroundings(store=store, roster=roster, clock=clock, entropy=entropy)
        parts = put_together(around, supervisor.start, feed=Feed())
        turn = await _accept(store, parts, "hello")
        if not parts.turns.running:
            await parts.turns.step()
        parts.turns.abandon(turn)
        async with asyncio.timeout(5):
            await parts.turns.finished()
        assert parts.turns.running == 0
    await store.close()


async def _accept(store: Store, parts: Parts, text: str) -> TurnId:
    person = await admitted(store, "ada")
    update = Update(
        address=Address(adapter="http", account=person, place="main"),
        external_id="u1",
        kind="message",
        principal=person,
        text=text,
    )
    accepted = await parts.door.accept(update)
    assert accepted.turn is not None
    return accepted.turn


async def test_a_turn_stopped_while_it_is_claimed_asks_no_model(tmp_path: Path) -> None:
    agent, _, outcome = await run(tmp_path, "hello", at_claim=True)
    assert (agent.requests, outcome) == ([], "stopped")


async def test_a_turn_stopped_during_a_tool_makes_no_further_call(tmp_path: Path) -> None:
    agent, ran, outcome = await run(tmp_path, "tool look", at_claim=False)
    assert (len(ran), len(agent.requests), outcome) == (1, 1, "stopped")
