"""Checks that an answer which was stopped or replaced is marked as such, whatever is struck in that
instant."""

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.transcript import reply_text
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.turn.endings import REPLACED_MARK, STOPPED_MARK
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, World, rest

pytestmark = pytest.mark.timeout(100)
ENDINGS = {
    Outcome.STOPPED: STOPPED_MARK,
    Outcome.SUPERSEDED: REPLACED_MARK,
    Outcome.INTERRUPTED: REPLACED_MARK,
}


async def stop(life: Life) -> None:
    await life.hold("long story")
    life.world.say("/stop")
    await life.receive()
    await life.rest()


async def replace(life: Life) -> None:
    await life.hold("long story")
    life.world.say("never mind", busy=Busy.INTERRUPT)
    await life.receive()
    await life.rest()


def check_marks(world: World, records: list[SessionRecord]) -> None:
    """Check that each answer which was ended by somebody else was shown once, with its mark."""
    texts = [shown.text for shown in world.platform.visible]
    for record in records:
        for turn in record.turns:
            text = reply_text([each for each in record.events if each.turn == turn.id])
            mark = ENDINGS.get(Outcome(turn.outcome)) if turn.outcome else None
            if text and mark:
                assert texts.count(f"{text}\n\n{mark}") == 1, texts
                assert text not in texts
    assert sum(STOPPED_MARK in text or REPLACED_MARK in text for text in texts) <= 1


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
@pytest.mark.parametrize("act", [stop, replace])
async def test_no_instant_leaves_a_stump_without_its_mark(
    act: object, nemesis: Nemesis, simulator: Simulator
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        await world.live(act, fuse)  # type: ignore[arg-type]
        records = await world.tell(rest)
        check_marks(world, records)
        assert world.platform.repeated() == []
        return [each for record in records for each in violations(record)]

    await simulator.strike(run, nemesis, every=2 if nemesis is Nemesis.DIE else 6)
