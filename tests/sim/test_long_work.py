"""Checks what people see while an answer takes long: one line, also if the gateway dies meanwhile,
and none where its text grows before their eyes."""

import asyncio

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import KEY, Life, Setup, World, patiently

TYPES = msgspec.structs.replace(KEY, typing_s=5)
SETUP = Setup(still_at_work_s=60)
LONG = "long question"


def told(world: World) -> list[str]:
    return [each.text for each in world.platform.visible if "Still at it" in each.text]


async def take_long(life: Life) -> None:
    """Let an answer take two minutes while a person waits."""
    await life.hold(*([LONG] if not life.world.platform.sent else []))
    await look(life)
    await life.rest()


async def look(life: Life) -> None:
    """Let two minutes pass, and let the preview look."""
    life.world.clock.advance(120)
    if life.parts.turns.running:
        await life.talk_beside("and another one")
        while await patiently(life.parts.outbox.step):
            pass


async def world_of(simulator: Simulator) -> World:
    world = await simulator.world(setup=SETUP)
    world.platform.can = TYPES
    return world


async def test_a_long_answer_says_once_that_it_goes_on(simulator: Simulator) -> None:
    world = await world_of(simulator)

    async def wait(life: Life) -> None:
        await life.hold(LONG)
        for _ in range(3):
            await look(life)
        await until_told(life)
        await life.rest()

    records = await world.tell(wait)
    assert told(world) == ["Still at it, for 2 minutes now."]
    assert [each for record in records for each in violations(record)] == []
    assert not any("Still at it" in str(request) for request in world.agent.requests)


async def until_told(life: Life) -> None:
    """Send what is to be sent until people see the line."""
    async with asyncio.timeout(30):
        while not told(life.world):
            await life.parts.outbox.step()


async def test_where_nobody_types_nobody_is_told(simulator: Simulator) -> None:
    world = await simulator.world(setup=SETUP)
    await world.tell(take_long)
    assert told(world) == []


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_whatever_is_struck_a_turn_tells_of_itself_at_most_once(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await world_of(simulator)
        records = await world.play([take_long, take_long], fuse)
        flaws = [each for record in records for each in violations(record)]
        return flaws + [f"told {told(world)}" for _ in range(len(told(world)) > 1)]

    await simulator.strike(run, nemesis, every=3)
