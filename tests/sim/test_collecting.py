"""Checks that messages which a person sends quickly are stored one by one and answered as one,
whatever happens to the process."""

import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import MessageJoined, TurnQueued
from perdure.domain.kinds import UpdateKind
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, Setup

PIECES = ("one", "two", "three")


async def quickly(life: Life) -> None:
    for number, text in enumerate(PIECES):
        await life.accept(
            Update(
                address=Address(adapter=PLATFORM, account="bot", place="room"),
                external_id=f"q{number}",
                kind=UpdateKind.MESSAGE,
                principal=life.person,
                text=text,
                collect_ms=1_000,
            )
        )
    await life.rest()


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_no_instant_loses_or_repeats_a_quick_message(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    turns: list[int] = []

    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world(setup=Setup(strikes_commits=True))
        records = await world.play([quickly], fuse, last=quickly)
        events = [event for record in records for event in record.events]
        said = [each.text for each in (*only(TurnQueued, events), *only(MessageJoined, events))]
        turns.append(len(only(TurnQueued, events)))
        broken = [] if sorted(said) == sorted(PIECES) else [f"said: {said}"]
        return broken + [each for record in records for each in violations(record)]

    await simulator.strike(run, nemesis, every=2)
    assert turns[-1] == 1, "without a strike they are one"
