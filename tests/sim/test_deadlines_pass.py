"""Checks that questions are closed when their time is over, though nobody says anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.system import SystemClock
from perdure.domain.checking.checker import violations
from perdure.domain.ids import QuestionId
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.foundation.wakes import Bus
from perdure.engine.models.lost_agents import LostAgents
from perdure.engine.turns.tools.deadlines import Deadlines
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    question_about,
    said,
    tool_call,
)
from perdure.testkit.simulator.system import SeededEntropy

SOON_S = 5
MOMENT_MS, LONG_MS = 50, 3_600_000


class Asking:
    """Asks questions on a node whose pump for deadlines runs."""

    def __init__(self, store: Store, bus: Bus, person: Person) -> None:
        self.store = store
        self.bus = bus
        self._person = person
        self._asked = 0

    async def ask(self, *, within_ms: int) -> Claimed:
        """Let an agent ask about a call, under the next of the ids `qst_1`, `qst_2`."""
        self._asked += 1
        person = Person(self.store, self._person.id, place=f"room {self._asked}")
        await person.says("pay")
        claimed = await claim_one(self.store)
        call = tool_call(f"pay{self._asked}")
        await self.store.turns.append(claimed.lease, [said(claimed.lease, "", calls=(call,))])
        question = question_about(
            claimed.lease,
            call,
            question=f"qst_{self._asked}",
            deadline=SystemClock().now_ms() + within_ms if within_ms else 0,
        )
        await self.store.turns.wait(claimed.lease, [question])
        self.bus.publish(Topic.QUESTIONS)
        return claimed

    async def state_of(self, question: str) -> str:
        return (await self.store.questions.one(QuestionId(question), principal=None)).state

    async def until_it_is_closed(self, question: str) -> None:
        async with asyncio.timeout(SOON_S):
            while await self.state_of(question) == "pending":
                await asyncio.sleep(0.002)


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asking]:
    clock, bus, feed = SystemClock(), Bus(), Feed()
    store = Store(
        sqlite_on(folder / "perdure.db"),
        clock=clock,
        entropy=SeededEntropy(),
        media=folder / "media",
    )
    await store.open()
    try:
        await store.nodes.join(name="sim")
        person = await store.principals.ensure("ada", role="member")
        async with Supervisor() as supervisor:
            lost = LostAgents(supervisor.start, bus)
            deadlines = Deadlines(
                store.questions,
                store.delegations,
                feed,
                lost=lost,
                clock=clock,
                bus=bus,
                poll_s=None,
            )
            supervisor.start(deadlines.run(), name="deadlines")
            try:
                yield Asking(store, bus, Person(store, person.id))
            finally:
                deadlines.stop()
    finally:
        await store.close()


async def test_a_question_is_closed_when_its_time_is_over(tmp_path: Path) -> None:
    async with asking(tmp_path) as asks:
        claimed = await asks.ask(within_ms=MOMENT_MS)

        await asks.until_it_is_closed("qst_1")

        assert await asks.state_of("qst_1") == "expired"
        assert (await claim_one(asks.store)).lease.turn == claimed.lease.turn
        assert violations(await asks.store.diagnostics.record(claimed.lease.session)) == []


async def test_a_question_with_an_earlier_deadline_is_not_kept_waiting(tmp_path: Path) -> None:
    async with asking(tmp_path) as asks:
        await asks.ask(within_ms=LONG_MS)
        await asks.ask(within_ms=0)
        await asks.ask(within_ms=MOMENT_MS)

        await asks.until_it_is_closed("qst_3")

        assert [await asks.state_of(each) for each in ("qst_1", "qst_2")] == ["pending"] * 2


@pytest.mark.parametrize("within_ms", [0, LONG_MS])
async def test_the_end_of_the_node_waits_for_no_deadline(tmp_path: Path, within_ms: int) -> None:
    # The pump is told to stop when the block is left, and leaving it waits for the pump.
    async with asyncio.timeout(SOON_S), asking(tmp_path) as asks:
        await asks.ask(within_ms=within_ms)

    assert asyncio.all_tasks() == {asyncio.current_task()}
