"""Checks that answers appear in their order, whatever grows, waits, is lost, or comes late."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.delivery import Capabilities, Pace, PartState, Rate, Streaming
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.journal.records import SessionRecord
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Effect, Receipt
from perdure.ports.system.clock import Clock
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Act, Life, World, patiently, until

EDITED = Capabilities(
    can_edit=True, can_delete=True, streaming=Streaming.EDIT, pace=Pace(preview_s=0), text_max=40
)
WITH = msgspec.structs.replace
PLATFORMS = {
    "key": WITH(EDITED, takes_key=True),
    "find": WITH(EDITED, can_find=True),
    "neither": EDITED,
    "slow": WITH(EDITED, takes_key=True, pace=Pace(place=Rate(2, 30), preview_s=0)),
    "draft": WITH(EDITED, takes_key=True, streaming=Streaming.DRAFT),
}


STORY = "long story of which a message holds only the beginning, and another one the end: "


async def queue(life: Life) -> None:
    """Let the answers of several messages wait behind each other. Each begins to grow before the
    one before it is delivered."""
    for word in ("one", "two", "three"):
        life.world.say(STORY + word)
    await life.receive()
    for _ in range(3):
        await grow(life)
    await life.rest()


async def two_places(life: Life) -> None:
    """Let answers in several places be on their way at once."""
    for word in ("one", "two"):
        for place in ("room", "other"):
            life.world.say(f"{STORY}{word} in {place}", place=place)
    await life.receive()
    for _ in range(2):
        await grow(life)
    await life.rest()


async def grow(life: Life) -> None:
    """Let the next answers begin and be shown as far as they may; then they end. Nothing is sent
    but what they show themselves."""
    life.world.gate.close()
    await patiently(life.parts.turns.step)
    await until(lambda: life.world.gate.reached.is_set() or not life.parts.turns.running)
    for _ in range(20):
        await asyncio.sleep(0.0005)
    life.world.gate.open()
    await life.parts.turns.finished()


def in_order(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Return every broken promise about what people see, once everything is at rest."""
    found = [each for record in records for each in violations(record)]
    for record in records:
        found += _misplaced(world, record)
    found += [f"shown twice: {key}" for key in world.platform.repeated()]
    found += [f"asked during a wait: {each}" for each in world.platform.hasty]
    return found


def _misplaced(world: World, record: SessionRecord) -> list[str]:
    known = {part.id for part in record.parts if part.state == PartState.SENT}
    turns = {part.id: part.turn for part in record.parts if part.turn is not None}
    seen = [turns[shown.key] for shown in world.platform.shown if shown.key in known & turns.keys()]
    begun = [turn.id for turn in record.turns]
    if seen != sorted(seen, key=begun.index):
        return [f"turns were shown as {seen}, and begun as {begun}"]
    finals = [part for part in record.parts if part.message.endswith(".reply")]
    lost = {part.turn for part in record.parts if part.state == PartState.UNKNOWN}
    visible = [shown.text for shown in world.platform.visible]
    return [
        f"{part.id} ({part.state}) is not to be seen"
        for part in finals
        if part.turn not in lost and part.text not in visible
    ]


async def struck(
    simulator: Simulator, act: Act, can: Capabilities, nemesis: Nemesis, *, every: int
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.platform.can = can
        world.platform.finishes_late = True
        return in_order(world, await world.play([act], fuse))

    await simulator.strike(run, nemesis, every=every)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("can", PLATFORMS)
async def test_nothing_overtakes_anything(simulator: Simulator, can: str, nemesis: Nemesis) -> None:
    # Calls that were made in the instant of a death take effect when the next life has begun.
    every = 10 if nemesis is Nemesis.DIE else 24
    await struck(simulator, queue, PLATFORMS[can], nemesis, every=every)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("can", ["find", "neither"])
async def test_several_answers_are_on_their_way_at_once(simulator: Simulator, can: str) -> None:
    await struck(simulator, two_places, PLATFORMS[can], Nemesis.DIE, every=30)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("can", PLATFORMS)
async def test_a_pause_beyond_the_lease_shows_nothing_twice(
    simulator_on_postgres: Simulator, can: str
) -> None:
    # While this process stands still, another one takes over all that it was doing.
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator_on_postgres.world()
        world.platform.can = PLATFORMS[can]

        async def take_over() -> None:
            await world.take_over()

        fuse.meanwhile = take_over
        return in_order(world, await world.play([queue], fuse))

    await simulator_on_postgres.strike(run, Nemesis.PAUSE, every=40)


class HangingPlatform(ScriptedPlatform):
    """Answers only once `let_go` is set."""

    def __init__(self, clock: Clock, can: Capabilities) -> None:
        super().__init__(name=PLATFORM, capabilities=can, clock=clock)
        self.is_asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def perform(self, effect: Effect) -> Receipt:
        self.is_asked.set()
        await self.let_go.wait()
        return await super().perform(effect)


@pytest.mark.parametrize("can", PLATFORMS)
async def test_a_process_takes_nothing_back_that_it_has_in_flight(
    simulator_on_postgres: Simulator, can: str
) -> None:
    # The machine sleeps for longer than the lease while a part is on its way, and no other process
    # is there: the answer comes when it is awake again.
    world = await simulator_on_postgres.world()
    world.platform = platform = HangingPlatform(world.clock, PLATFORMS[can])

    async def sleep(life: Life) -> None:
        world.say("hello")
        await life.receive()
        await life.parts.turns.step()
        await life.parts.turns.finished()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(life.parts.outbox.step())
            await platform.is_asked.wait()
            await world.sleep()
            assert await life.store.outbox.stranded(adapter=PLATFORM) == []
            platform.let_go.set()
        await life.rest()

    records = await world.play([sleep])

    assert in_order(world, records) == []
    assert [shown.text.strip() for shown in platform.shown] == ["echo: hello"]
    assert [part.state for record in records for part in record.parts] == ["sent"]


class TestWaits:
    """Checks that everything keeps a wait that the server has named, and so does the next
    process."""

    @pytest.mark.parametrize("code", ["rate_limited", ACCOUNT_WAIT])
    async def test_a_restart_does_not_forget_one(self, simulator: Simulator, code: str) -> None:
        world = await simulator.world()
        world.platform.failures = [Transient("slow down", retry_after_s=60, code=code)]

        async def meet_it(life: Life) -> None:
            world.say("hello")
            await life.work()
            life.kill()

        async def come_back(life: Life) -> None:
            assert world.platform.shown == []
            world.say("and another", place="room" if code == "rate_limited" else "other")
            await life.work()
            assert world.platform.shown == []
            await life.rest()

        records = await world.play([meet_it], last=come_back)

        assert in_order(world, records) == []
        assert len(world.platform.shown) == 2

    async def test_a_lookup_keeps_one_and_asks_again(self, simulator: Simulator) -> None:
        # A busy server is asked again: what it will know later is not unknown.
        world = await simulator.world()
        world.platform.can = Capabilities(can_find=True)
        world.platform.failures = [Ambiguous("cut")]
        world.platform.lookups = [
            Transient("busy; it is tried again in 1 s", retry_after_s=30),
            Transient("503"),
        ]

        async def talk(life: Life) -> None:
            world.say("hello")
            await life.rest()

        records = await world.play([talk])

        assert in_order(world, records) == []
        (part,) = [part for record in records for part in record.parts]
        assert (part.state, len(world.platform.shown)) == ("sent", 1)

    @pytest.mark.parametrize("code", [None, ACCOUNT_WAIT])
    @pytest.mark.parametrize("can", ["key", "find"])
    @pytest.mark.parametrize("grows", [False, True])
    async def test_a_call_that_broke_names_one_and_everything_keeps_it(
        self, simulator: Simulator, can: str, code: str | None, grows: bool
    ) -> None:
        # A server that is out of order may have done what it was asked, and say for how long it
        # wants to be left alone. Until then it is not even asked whether the message is there.
        world = await simulator.world()
        world.platform.can = PLATFORMS[can]
        world.platform.failures = [Ambiguous("503", retry_after_s=60, code=code)]

        async def talk(life: Life) -> None:
            await life.hold("long story" if grows else "hello")
            await life.rest()

        records = await world.play([talk])

        assert world.platform.failures == [], "it was met"
        assert in_order(world, records) == []
        assert len(world.platform.visible) == 1

    async def test_what_nobody_can_tell_for_a_day_is_shown_as_what_it_is(
        self, simulator: Simulator
    ) -> None:
        world = await simulator.world()
        world.platform.can = Capabilities(can_find=True)
        world.platform.failures = [Ambiguous("cut")]
        world.platform.lookups = [Transient("busy; it is tried again in 1 s")] * 10_000

        async def talk(life: Life) -> None:
            world.say("hello")
            await life.work()
            world.clock.advance(86_400)
            await life.rest()

        records = await world.play([talk])

        (part,) = [part for record in records for part in record.parts]
        assert part.state == "unknown"
        assert "tried again" not in part.error

    async def test_typing_meets_one_and_everything_keeps_it(self, simulator: Simulator) -> None:
        world = await simulator.world()
        world.platform.can = WITH(PLATFORMS["key"], typing_s=5)
        world.platform.typing_failures = [Transient("slow down", retry_after_s=60)]

        async def talk(life: Life) -> None:
            await life.hold("long story")
            await life.rest()

        records = await world.play([talk])

        assert world.platform.typing_failures == [], "it was met"
        assert in_order(world, records) == []
        assert len(world.platform.visible) == 1


async def test_the_pace_goes_on_where_a_dead_process_left_it(simulator: Simulator) -> None:
    world = await simulator.world()
    world.platform.can = Capabilities(takes_key=True, pace=Pace(place=Rate(3, 60)))
    shown_at: list[float] = []

    async def talk(life: Life) -> None:
        for nth in range(3):
            world.say(f"message {nth}")
        await life.work()
        assert len(world.platform.shown) == 3
        shown_at.append(world.clock.monotonic_s())
        life.kill()

    async def go_on(life: Life) -> None:
        world.say("one more")
        await life.work()
        assert len(world.platform.shown) == 3, "that would be four in a minute"
        world.clock.advance(60)
        await life.rest()

    await world.play([talk], last=go_on)
    assert len(world.platform.shown) == 4
