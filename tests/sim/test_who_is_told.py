"""Checks who is told why an answer failed: people in one sentence, operators in full, and their
homes once."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import GROUP, Address
from perdure.domain.delivery import PartState
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Recorded
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.people.alarm import AGAIN_S
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Page
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.system import SeededEntropy

NAME = "chat"
DETAIL = "http://10.0.0.7:8000/v1 refused the key (401); is api_key of agent main right?"
FAILED = Stopped(reason=StopReason.PROVIDER_REJECTED, detail=DETAIL)


class Clock(SystemClock):
    """Gives the real time, which a test can move on."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Gateway:
    def __init__(self, store: Store, parts: NodeParts, platform: ScriptedPlatform) -> None:
        self.store = store
        self.parts = parts
        self.platform = platform
        self.clock = Clock()
        self._said = 0

    async def person(self, name: str, role: str = "member") -> PrincipalId:
        return (await self.store.principals.appoint(f"{NAME}:{name}", role=role)).id

    async def hears(
        self, text: str, who: PrincipalId, *, place: str, kind: str = "private", person: str = ""
    ) -> Accepted:
        """Say something, and wait until everything that follows from it was delivered."""
        self._said += 1
        accepted = await self.parts.door.accept(
            Update(
                address=Address(adapter=NAME, account="bot", place=place, person=person),
                external_id=f"m{self._said}",
                kind=UpdateKind.MESSAGE,
                principal=who,
                text=text,
                place_kind=kind,
            )
        )
        async with asyncio.timeout(20):
            while not await self._is_over():
                await asyncio.sleep(0.005)
        return accepted

    async def _is_over(self) -> bool:
        pages = await self.store.archive.sessions(principal=None, page=Page(limit=100))
        records = [await self.store.diagnostics.record(each.id) for each in pages]
        turns = [turn for record in records for turn in record.turns]
        states = {part.state for record in records for part in record.parts}
        is_done = all(turn.outcome for turn in turns) and not self.parts.turns.running
        return is_done and not states & {PartState.PENDING, PartState.ATTEMPTING}

    def texts(self, place: str) -> list[str]:
        return [shown.text for shown in self.platform.visible if shown.place == place]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with _gateway(tmp_path) as gateway:
        yield gateway


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[Gateway]:
    clock, entropy = Clock(), SeededEntropy(time.monotonic_ns())
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder)

    def rule(request: ModelRequest) -> Sequence[AgentEvent]:
        last = str(request.messages[-1].blocks[-1])
        is_fine = "fine" in last
        return [AgentText("Hello."), Stopped(reason=StopReason.STOP)] if is_fine else [FAILED]

    platform = ScriptedPlatform(name=NAME)
    await store.open()
    try:
        async with Supervisor() as supervisor:
            agent = ScriptedAgent(rule)
            backend = Backend(name="main", kind="s", agent=agent, tools=CountingTools([]))
            dependencies = NodeDependencies(
                store=store,
                roster=Roster({"main": backend}),
                clock=clock,
                entropy=entropy,
                limits=Limits(drain_timeout_s=5),
                adapters={NAME: platform},
            )
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await parts.gateway.begin(name="sim")
            gateway = Gateway(store, parts, platform)
            gateway.clock = clock
            yield gateway
            await parts.gateway.drain()
    finally:
        await store.close()


async def test_people_read_no_internals_and_operators_all_of_it(gateway: Gateway) -> None:
    member = await gateway.person("eve")
    root = await gateway.person("root", role="operator")

    accepted = await gateway.hears("hi", member, place="eve")
    await gateway.hears("hi", root, place="root")
    await gateway.hears("hi", root, place="group", kind=GROUP)
    await gateway.hears("hi", root, place="divided", kind=GROUP, person="root")
    for place in ("eve", "group", "divided"):
        (text,) = gateway.texts(place)
        assert "10.0.0.7" not in text
        assert "api_key" not in text
        assert "trn_" in text
    assert DETAIL in gateway.texts("root")[0]
    assert accepted.turn is not None
    assert accepted.turn in gateway.texts("eve")[0]
    turn = await gateway.store.archive.turn(accepted.turn, principal=None)
    assert turn.detail == DETAIL, "what is stored is whole"


async def test_why_is_answered_to_each_as_far_as_it_concerns_them(gateway: Gateway) -> None:
    member = await gateway.person("eve")
    root = await gateway.person("root", role="operator")
    await gateway.hears("hi", member, place="eve")
    await gateway.hears("hi", root, place="root")
    await gateway.hears("hi", root, place="group", kind=GROUP)

    for_member = (await gateway.hears("/why", member, place="eve")).reply
    for_root = (await gateway.hears("/why", root, place="root")).reply
    for_group = (await gateway.hears("/why", root, place="group", kind=GROUP)).reply

    assert (DETAIL in for_member, DETAIL in for_root, DETAIL in for_group) == (False, True, False)
    assert "refused the request" in for_member


async def test_the_operators_home_is_told_once_until_it_has_worked(gateway: Gateway) -> None:
    member = await gateway.person("eve")
    root = await gateway.person("root", role="operator")
    await gateway.hears("/home", root, place="root")

    def told() -> int:
        return sum(DETAIL in text and "told once" in text for text in gateway.texts("root"))

    for text in ("hi", "hello?", "anybody?"):
        await gateway.hears(text, member, place="eve")
    assert told() == 1
    await gateway.hears("fine", member, place="eve")
    await gateway.hears("hi", member, place="eve")
    assert told() == 1, "not every time it comes and goes"
    await gateway.hears("fine", member, place="eve")
    gateway.clock.ahead_s = AGAIN_S
    await gateway.hears("hi", member, place="eve")
    assert told() == 2
    assert not any(DETAIL in text for text in gateway.texts("eve"))
    assert all(f"{DETAIL}\n\nYou are told" in text for text in gateway.texts("root")[1:])


@pytest.mark.parametrize("error", [Transient("the disk is full"), Ambiguous("the answer was lost")])
async def test_the_operators_home_is_told_by_the_next_failure_if_the_store_refused(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: Transient | Ambiguous
) -> None:
    member = await gateway.person("eve")
    root = await gateway.person("root", role="operator")
    await gateway.hears("/home", root, place="root")
    tell = gateway.store.operators.tell
    refusals = [error]

    async def refuses_once(text: str, *, but: ConversationId | None) -> list[Recorded]:
        if refusals:
            raise refusals.pop()
        return await tell(text, but=but)

    monkeypatch.setattr(gateway.store.operators, "tell", refuses_once)

    def told() -> int:
        return sum("told once" in text for text in gateway.texts("root"))

    await gateway.hears("hi", member, place="eve")
    assert told() == 0
    for text in ("hello?", "anybody?"):
        await gateway.hears(text, member, place="eve")
    assert told() == 1


async def test_who_has_just_read_it_is_not_told_again(gateway: Gateway) -> None:
    root = await gateway.person("root", role="operator")
    await gateway.hears("/home", root, place="root")

    await gateway.hears("hi", root, place="root")

    assert sum(DETAIL in text for text in gateway.texts("root")) == 1
