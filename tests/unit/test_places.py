"""Checks how the places of an agent are shared by those who wait for them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.domain.ids import PrincipalId
from perdure.engine.models.places import AgentCrowd, AgentPlaces

ADA, BOB, CYD = (PrincipalId(f"prn_{name}") for name in ("ada", "bob", "cyd"))


class Agent:
    """Takes calls that last until the test ends them, at places whose number the test sets."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.places = AgentPlaces(lambda _: self.most)
        self.inside: list[str] = []
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def call(self, who: PrincipalId, name: str) -> None:
        """Let a person's turn call the agent."""
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.ensure_future(self._call(who, name))
        await self.settle()

    async def _call(self, who: PrincipalId, name: str) -> None:
        visitor = self.places.visitor(who)
        await visitor.enter("main")
        self.begun.append(name)
        self.inside.append(name)
        await self._ends[name].wait()
        self.inside.remove(name)
        visitor.leave()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    agent = Agent(2)
    yield agent
    for task in agent.tasks.values():
        task.cancel()
    await asyncio.gather(*agent.tasks.values(), return_exceptions=True)


async def test_no_more_calls_are_under_way_than_there_are_places(agent: Agent) -> None:
    for who, name in ((ADA, "a"), (BOB, "b"), (CYD, "c")):
        await agent.call(who, name)

    assert agent.inside == ["a", "b"]
    assert agent.places.crowd("main") == AgentCrowd(calling=2, waiting=1)
    await agent.end("a")
    assert agent.inside == ["b", "c"]


async def test_an_agent_without_a_bound_takes_all(agent: Agent) -> None:
    agent.most = None
    for number in range(50):
        await agent.call(ADA, f"a{number}")

    assert len(agent.inside) == 50


async def test_one_person_cannot_take_the_last_place_of_several(agent: Agent) -> None:
    for number in range(4):
        await agent.call(ADA, f"a{number}")
    assert agent.inside == ["a0"]

    await agent.call(BOB, "b0")

    assert agent.inside == ["a0", "b0"]


async def test_the_only_place_goes_round(agent: Agent) -> None:
    agent.most = 1
    for who, name in ((ADA, "a0"), (ADA, "a1"), (ADA, "a2"), (BOB, "b0")):
        await agent.call(who, name)
    for name in ("a0", "a1", "b0"):
        await agent.end(name)

    assert agent.begun == ["a0", "a1", "b0", "a2"]


async def test_the_next_place_goes_to_whoever_has_the_fewest(agent: Agent) -> None:
    agent.most = 4
    for name in ("a0", "a1", "a2", "a3", "a4"):
        await agent.call(ADA, name)
    for who, name in ((BOB, "b0"), (BOB, "b1"), (CYD, "c0")):
        await agent.call(who, name)
    assert agent.inside == ["a0", "a1", "a2", "b0"]

    for name in ("a0", "a1", "b0"):
        await agent.end(name)

    assert agent.begun[4:] == ["c0", "a3", "b1"]


async def test_a_turn_that_goes_on_comes_before_the_later_turns_of_its_person(
    agent: Agent,
) -> None:
    agent.most = 1
    visitor = agent.places.visitor(ADA)
    await visitor.enter("main")
    for name in ("a1", "a2"):
        await agent.call(ADA, name)
    visitor.leave()
    await agent.settle()
    again = asyncio.ensure_future(visitor.enter("main"))
    await agent.settle()

    await agent.end("a1")

    assert await again, "it had to wait"
    assert agent.begun == ["a1"]
    visitor.leave()
    await agent.settle()
    assert agent.begun == ["a1", "a2"]


async def test_a_call_that_is_given_up_takes_no_place_and_leaves_none_taken(agent: Agent) -> None:
    agent.most = 1
    for who, name in ((ADA, "a"), (BOB, "b"), (CYD, "c")):
        await agent.call(who, name)
    await agent.stop("b")
    assert agent.places.crowd("main") == AgentCrowd(calling=1, waiting=1)

    await agent.end("a")
    assert agent.inside == ["c"]
    await agent.end("c")

    assert agent.places.crowd("main") == AgentCrowd()


async def test_a_place_that_comes_just_when_its_call_is_given_up_goes_to_the_next(
    agent: Agent,
) -> None:
    agent.most = 1
    visitor = agent.places.visitor(ADA)
    await visitor.enter("main")
    await agent.call(BOB, "b")
    await agent.call(CYD, "c")

    visitor.leave()  # the place is Bob's from here on
    agent.tasks["b"].cancel()
    await agent.settle()

    assert agent.inside == ["c"]


async def test_a_new_bound_holds_from_the_next_call_on(agent: Agent) -> None:
    agent.most = None
    for who, name in ((ADA, "a"), (BOB, "b"), (CYD, "c")):
        await agent.call(who, name)
    agent.most = 1
    await agent.call(BOB, "b1")
    await agent.end("a")
    assert agent.inside == ["b", "c"]

    agent.most = 3
    await agent.end("b")

    assert agent.inside == ["c", "b1"]
