"""Checks that hooks hear of every settled turn and of every delivered part, whenever the gateway
dies, and that nothing is kept once they have."""

import asyncio

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.journal.records import SessionRecord
from perdure.engine.watching.hook_pump import WAITING_MAX
from perdure.ports.records.occasions import HookFailures
from perdure.ports.turns.wakes import Topic
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, World, patiently, until

ABOUT = (Occasion.TURN_SETTLED, Occasion.DELIVERY)


class Listening:
    """Remembers what it is told. It outlives each process, as the operator's files do."""

    def __init__(self, *occasions: Occasion) -> None:
        self._occasions = frozenset(occasions)
        self.heard: list[HookCall] = []
        self.missed: list[HookCall] = []
        self.failures = HookFailures()

    async def find(self) -> frozenset[Occasion]:
        return self._occasions

    async def call(self, call: HookCall) -> None:
        self.heard.append(call)

    def dropped(self, call: HookCall) -> None:
        self.missed.append(call)

    def subjects(self, of: Occasion) -> set[str]:
        return {each.part or each.turn for each in self.heard if each.event is of}


async def begin(life: Life) -> None:
    await patiently(life.parts.hooks.begin)


async def tell(life: Life) -> None:
    while await patiently(life.parts.hooks.step):
        pass


async def answer(life: Life) -> None:
    await begin(life)
    await life.rest()
    await tell(life)


def say(world: World) -> None:
    world.say("hello")
    world.say("and hello there", place="other")


def unheard(hooks: Listening, records: list[SessionRecord]) -> list[str]:
    """Return the settled turns and sent parts of which no hook was told."""
    turns = {turn.id for each in records for turn in each.turns if turn.state == "settled"}
    parts = {part.id for each in records for part in each.parts if part.state == "sent"}
    assert parts, "nothing was delivered at all"
    missed = turns - hooks.subjects(Occasion.TURN_SETTLED)
    return sorted(missed | (parts - hooks.subjects(Occasion.DELIVERY)))


async def left(world: World) -> list[HookCall]:
    """Return what is still written down for hooks."""
    found: list[HookCall] = []

    async def look(life: Life) -> None:
        await begin(life)
        world.hooks = told = Listening(*ABOUT)
        await tell(life)
        found.extend(told.heard)

    await world.live(look)
    return found


@pytest.mark.parametrize(
    "nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE], ids=lambda each: each.value
)
async def test_no_instant_hides_an_end_from_hooks(simulator: Simulator, nemesis: Nemesis) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.hooks = hooks = Listening(*ABOUT)
        say(world)
        records = await world.play([answer], fuse, last=answer)
        flaws = [each for record in records for each in violations(record)]
        return flaws + [f"no hook was told of {each}" for each in unheard(hooks, records)]

    await simulator.strike(run, nemesis, every=4)


async def test_without_a_death_hooks_hear_of_everything_once(simulator: Simulator) -> None:
    world = await simulator.world()
    world.hooks = hooks = Listening(*ABOUT)
    say(world)
    records = await world.play([], last=answer)

    assert unheard(hooks, records) == []
    subjects = [(each.event, each.part or each.turn) for each in hooks.heard]
    assert len(subjects) == len(set(subjects))
    assert {each.outcome for each in hooks.heard} == {"done", "sent"}
    assert {each.conversation for each in hooks.heard} == {"scripted:room", "scripted:other"}
    assert await left(world) == []


async def test_where_nobody_listens_nothing_is_written(simulator: Simulator) -> None:
    world = await simulator.world()
    say(world)
    await world.play([], last=answer)
    assert await left(world) == []


async def test_a_hook_that_is_gone_leaves_nothing_to_tell(simulator: Simulator) -> None:
    world = await simulator.world()
    world.hooks = Listening(*ABOUT)
    await world.live(begin)
    world.hooks = Listening(Occasion.DELIVERY)
    say(world)
    await world.play([], last=answer)
    assert [each.event for each in await left(world)] == []


async def test_the_events_of_a_journal_are_told_as_they_come(simulator: Simulator) -> None:
    world = await simulator.world()
    world.hooks = hooks = Listening(*Occasion)

    async def reset(life: Life) -> None:
        await begin(life)
        for text in ("hello", "tool look", "/new"):
            world.say(text)
            await life.rest()
            await tell(life)

    await world.play([], last=reset)
    told = [(each.event, each.reason) for each in hooks.heard if not each.event.is_stored]
    assert told.count((Occasion.SESSION_OPENED, "first message")) == 1
    assert told.count((Occasion.TURN_STARTED, "")) == 2
    assert told.count((Occasion.TURN_STEP, "")) == 3, "one answer, and two model calls with a tool"
    assert (Occasion.COMMAND, "new") in told
    assert (Occasion.SESSION_CLOSED, "new") in told
    assert (Occasion.SESSION_RESET, "new") in told
    assert {each.conversation for each in hooks.heard} == {"scripted:room"}


async def test_what_is_delivered_is_told_without_looking_for_it(simulator: Simulator) -> None:
    world = await simulator.world()
    world.hooks = hooks = Listening(*ABOUT)
    say(world)

    async def listen(life: Life) -> None:
        await begin(life)  # from here on rows are written
        pump = asyncio.create_task(life.parts.hooks.run())
        await life.rest()
        await until(lambda: len(hooks.subjects(Occasion.DELIVERY)) == 2)
        life.parts.hooks.stop()
        await pump

    records = await world.play([], last=listen)
    assert unheard(hooks, records) == []


async def test_hooks_that_are_too_slow_hear_the_newest_and_what_is_stored(
    simulator: Simulator,
) -> None:
    world = await simulator.world()
    world.hooks = hooks = Listening(*Occasion)
    say(world)

    async def flood(life: Life) -> None:
        await begin(life)
        for number in range(WAITING_MAX + 5):
            life.parts.wakes.publish(Topic.CONNECTED, f"adapter {number}")
        await life.rest()
        await tell(life)

    records = await world.play([], last=flood)
    assert [each.adapter for each in hooks.missed][:5] == [f"adapter {n}" for n in range(5)]
    assert unheard(hooks, records) == []
