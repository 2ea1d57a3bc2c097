"""Strike the gateway at any port call while it starts, tells its operator's home, ends and starts
again.

Once everything is at rest, the home was told of one end at most, and the last that it was told is
that the gateway is back.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest
from tests.sim.test_boot_survives import SETUP, before, equip

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import NoticePosted
from perdure.domain.journal.records import SessionRecord
from perdure.domain.people.notices import AGAIN_MS
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, World

END, BACK = "The gateway stops now.", "The gateway is back"
STRIKES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]


async def live_and_end(life: Life) -> None:
    life.world.clock.advance(1)
    await life.greet()
    await life.rest()
    life.world.clock.advance(1)
    await life.drain()


async def live(life: Life) -> None:
    life.world.clock.advance(1)
    await life.greet()
    await life.rest()


def written(records: Sequence[SessionRecord]) -> list[tuple[int, str]]:
    """Return what was written down for the home, and when."""
    return [
        (recorded.at, recorded.event.text)
        for record in records
        for recorded in record.events
        if isinstance(recorded.event, NoticePosted) and "gateway" in recorded.event.text
    ]


def too_often(notices: Sequence[tuple[int, str]]) -> list[str]:
    """Report notices of one kind within ten minutes; a return may follow an end at once."""
    ends = [at for at, text in notices if text.startswith(END)]
    found = [f"ends at {a} and {b}" for a, b in pairwise(ends) if b - a < AGAIN_MS]
    for (one, first), (two, second) in pairwise(notices):
        is_twice = first.startswith(BACK) and second.startswith(BACK)
        if is_twice and two - one < AGAIN_MS:
            found.append(f"returns at {one} and {two}")
    return found


def broken(world: World, records: Sequence[SessionRecord]) -> list[str]:
    found = [each for record in records for each in violations(record)]
    notices = written(records)
    seen = [each.text for each in world.platform.visible if each.place == "home"]
    told = [each for each in seen if each.startswith((END, BACK))]
    if not told or not told[-1].startswith(BACK):
        found.append(f"the last that it heard is not that the gateway is back: {told}")
    if not set(told) <= {text for _, text in notices} or len(told) > len(notices):
        found.append(f"it heard {told} of {notices}")
    return found + too_often(notices)


async def play(simulator: Simulator, fuse: Fuse, *second: Fuse) -> list[str]:
    world = await simulator.world(setup=SETUP, before=before)
    equip(world)
    records = await world.play([live_and_end, live_and_end, live], fuse, *second, last=live)
    return broken(world, records)


@pytest.mark.parametrize("nemesis", STRIKES)
async def test_whatever_is_struck_the_home_hears_once_and_at_last_of_the_return(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(partial(play, simulator), nemesis, every=2)


async def test_two_deaths_leave_the_home_with_the_return(simulator: Simulator) -> None:
    await simulator.strike_twice(partial(play, simulator), most=40)


async def test_whatever_is_struck_on_postgres_the_home_hears_at_last_of_the_return(
    simulator_on_postgres: Simulator,
) -> None:
    await simulator_on_postgres.strike(partial(play, simulator_on_postgres), Nemesis.DIE, every=8)
