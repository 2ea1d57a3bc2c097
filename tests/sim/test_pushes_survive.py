"""Checks that people's browsers are told of every answer that nobody has seen, whenever the gateway
dies, and of nothing once it was told."""

from collections import Counter
from functools import partial

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.errors import Permanent, Transient
from perdure.domain.journal.records import SessionRecord
from perdure.ports.delivery.pushes import GONE, NoPushSender, Push, PushTarget
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, World, patiently

LATER_S = 5.0
DAY_S = 86_400.0


class Browsers(NoPushSender):
    """Shows what arrives, the newest of each conversation, as browsers do. It outlives each
    process. `refusals` are raised first."""

    def __init__(self) -> None:
        self.got: list[Push] = []
        self.refusals: list[Exception] = []

    async def send(self, push: Push, key: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.got.append(push)

    @property
    def shown(self) -> dict[tuple[str, str], str]:
        """Return the turn that is shown for each browser and conversation."""
        return {(each.subscription.id, each.conversation): each.subject for each in self.got}


async def subscribe(life: Life, number: int = 1) -> None:
    target = PushTarget(endpoint=f"https://push.example/{number}", p256dh="key", auth="secret")
    await patiently(partial(life.store.pushes.key, "key"))
    await patiently(partial(life.store.pushes.subscribe, life.person, target))


async def tell(life: Life) -> None:
    """Let time pass until nothing is left to tell."""
    for _ in range(10):
        life.world.clock.advance(LATER_S)
        while await patiently(life.parts.pushes.step):
            pass
        if (await life.store.pushes.take(limit=1, but=())).next_ms is None:
            return
        life.world.clock.advance(3_600)


async def answer(life: Life) -> None:
    await life.rest()
    await tell(life)


def world_of(world: World) -> Browsers:
    world.push_sender = browsers = Browsers()
    world.say("hello")
    world.say("and hello there", place="other")
    return browsers


def untold(browsers: Browsers, records: list[SessionRecord]) -> list[str]:
    turns = {turn.id for each in records for turn in each.turns if turn.state == "settled"}
    assert len(turns) == 2
    return sorted(turns - set(browsers.shown.values()))


@pytest.mark.parametrize(
    "nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE], ids=lambda each: each.value
)
async def test_no_instant_hides_an_answer_from_a_browser(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        await world.live(subscribe)
        browsers = world_of(world)
        records = await world.play([answer], fuse, last=answer)
        flaws = [each for record in records for each in violations(record)]
        return flaws + [f"nobody was told of {each}" for each in untold(browsers, records)]

    await simulator.strike(run, nemesis, every=4)


async def test_without_a_death_each_answer_is_told_once(simulator: Simulator) -> None:
    world = await simulator.world()
    await world.live(subscribe)
    browsers = world_of(world)
    records = await world.play([], last=answer)
    assert untold(browsers, records) == []
    assert set(Counter(each.subject for each in browsers.got).values()) == {1}


async def test_a_push_service_that_wants_to_be_left_alone_is_asked_later(
    simulator: Simulator,
) -> None:
    world = await simulator.world()
    await world.live(subscribe)
    browsers = world_of(world)
    browsers.refusals = [Transient("busy", retry_after_s=600)]

    async def wait(life: Life) -> None:
        await life.rest()
        life.world.clock.advance(LATER_S)
        await life.parts.pushes.step()
        life.world.clock.advance(590)
        assert not await life.parts.pushes.step()
        assert browsers.got == []
        life.world.clock.advance(11)
        await tell(life)

    records = await world.play([], last=wait)
    assert untold(browsers, records) == []


async def test_a_push_service_that_stays_away_is_asked_less_and_less(simulator: Simulator) -> None:
    world = await simulator.world()
    await world.live(subscribe)
    browsers = world_of(world)
    browsers.refusals = [Transient("down")] * 1_000

    async def wait(life: Life) -> None:
        await life.rest()
        while (await life.store.pushes.take(limit=1, but=())).next_ms is not None:
            life.world.clock.advance(10)
            await life.parts.pushes.step()

    await world.play([], last=wait)
    assert 20 <= 1_000 - len(browsers.refusals) <= 40, "a day, at most once an hour in the end"


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "refused"])
async def test_what_is_refused_for_good_is_not_sent_again(
    simulator: Simulator, is_gone: bool
) -> None:
    world = await simulator.world()
    await world.live(subscribe)
    browsers = world_of(world)
    browsers.refusals = [Permanent("no", code=GONE if is_gone else None)]

    async def look(life: Life) -> None:
        await answer(life)
        assert len(await life.store.pushes.of(life.person)) == (0 if is_gone else 1)

    await world.play([], last=look)
    assert len(browsers.got) == (0 if is_gone else 1)


async def test_a_sender_that_breaks_costs_nobody_else_a_notification(
    simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    world = await simulator.world()
    await world.live(subscribe)
    browsers = world_of(world)
    browsers.refusals = [RuntimeError("nobody has thought of this")]
    records = await world.play([], last=answer)
    assert untold(browsers, records) == []
