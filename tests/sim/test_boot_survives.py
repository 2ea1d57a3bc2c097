"""Strike the gateway at any port call while it starts and runs the instructions for the start.

Once everything is at rest, a start has run them at most once, no two runs are closer than ten
minutes, and the result of each was shown once, in the operator's home.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import TurnQueued, TurnSettled
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.schedule.boot import BOOT_AGAIN_MS
from perdure.domain.turn.stream import AgentText, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import BOSS, PLATFORM, Life, Setup, World, patiently

ORDERS = "Look at the mail."
RESULT = "No mail today."
SETUP = Setup(has_jobs=True)
STRIKES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]


async def go_home(life: Life) -> None:
    """Let the operator choose a home conversation."""
    update = Update(
        address=Address(adapter=PLATFORM, account="bot", place="home"),
        external_id="h1",
        kind=UpdateKind.MESSAGE,
        principal=life.people[BOSS],
        text="/home",
    )
    await life.accept(update)
    await life.rest()


async def before(world: World) -> None:
    equip(world)
    await world.live(go_home)


def equip(world: World) -> None:
    def rule(request: object) -> Sequence[object]:
        answer = RESULT if ORDERS in str(request) else "Hello."
        return [AgentText(answer), Stopped(reason=StopReason.STOP)]

    world.agent = ScriptedAgent(rule)  # type: ignore[arg-type]
    world.clickers = [(BOSS, "")]
    world.boot = ORDERS


async def start(life: Life) -> None:
    """Begin as a gateway does that serves."""
    await start_once(life)
    await life.rest()


async def start_once(life: Life) -> None:
    while await patiently(life.parts.boot.step):
        await life.work()


async def start_and_die(life: Life) -> None:
    """Let the process die as soon as the run has begun."""
    await start_once(life)
    await patiently(life.parts.turns.step)
    life.kill()


async def start_later(life: Life) -> None:
    life.world.clock.advance(BOOT_AGAIN_MS / 1000 + 1)
    await start(life)


def spans(records: Sequence[SessionRecord]) -> list[tuple[int, int]]:
    """Return when each run has begun and ended."""
    found = []
    for record in records:
        began = 0
        for recorded in record.events:
            match recorded.event:
                case TurnQueued(kind=TurnKind.SCHEDULED):
                    began = recorded.at
                case TurnSettled(outcome=Outcome.DONE) if began:
                    found.append((began, recorded.at))
                    began = 0
                case _:
                    pass
        assert not began, "a run is not over"
    return sorted(found)


def shown(world: World) -> int:
    return sum(RESULT in each.text for each in world.platform.visible)


def broken(world: World, records: Sequence[SessionRecord], *, starts: int) -> list[str]:
    found = [each for record in records for each in violations(record)]
    runs = spans(records)
    if not 1 <= len(runs) <= starts:
        found.append(f"{len(runs)} runs of {starts} starts")
    if shown(world) != len(runs):
        found.append(f"{len(runs)} runs, shown {shown(world)} times")
    if any(each.place != "home" for each in world.platform.visible if RESULT in each.text):
        found.append("it was said elsewhere")
    for (_, over), (began, _) in pairwise(runs):
        if began - over < BOOT_AGAIN_MS:
            found.append(f"two runs {began - over} ms apart")
    return found


async def play(simulator: Simulator, fuse: Fuse, *second: Fuse) -> list[str]:
    world = await simulator.world(setup=SETUP, before=before)
    equip(world)
    records = await world.play([start, start, start_later], fuse, *second, last=start)
    return broken(world, records, starts=2)


@pytest.mark.parametrize("nemesis", STRIKES)
async def test_whatever_is_struck_a_start_is_one_run_and_one_delivery(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(partial(play, simulator), nemesis, every=2)


async def test_two_deaths_leave_each_start_with_one_run(simulator: Simulator) -> None:
    await simulator.strike_twice(partial(play, simulator), most=40)


async def test_whatever_is_struck_on_postgres_a_start_is_one_run_and_one_delivery(
    simulator_on_postgres: Simulator,
) -> None:
    await simulator_on_postgres.strike(partial(play, simulator_on_postgres), Nemesis.DIE, every=8)


async def test_a_loop_of_starts_runs_them_once(simulator: Simulator) -> None:
    world = await simulator.world(setup=SETUP, before=before)
    equip(world)
    records = await world.play([start_and_die] * 4, last=start)
    assert broken(world, records, starts=1) == []


async def test_a_run_during_which_the_gateway_restarts_goes_on_and_no_other_begins(
    simulator: Simulator,
) -> None:
    world = await simulator.world(setup=SETUP, before=before)
    equip(world)
    world.holds = lambda request: ORDERS in str(request)

    async def restart_amid_the_run(life: Life) -> None:
        life.world.gate.close()
        await start_once(life)
        await patiently(life.parts.turns.step)
        await life.world.gate.reached.wait()
        # However long the run takes: it is not over, so no other one begins.
        life.world.clock.advance(BOOT_AGAIN_MS / 1000 + 1)
        await life.drain()

    records = await world.play([restart_amid_the_run] * 3, last=start)
    assert broken(world, records, starts=1) == []
