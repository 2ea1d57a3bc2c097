"""Checks that an answer that belongs into another conversation is said there once, whatever happens
to the process."""

import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.people.principals import Principal
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, Setup


async def reported(life: Life) -> None:
    by = Principal(id=life.person, name=f"{PLATFORM}:hook", role="member")
    sending = OutgoingMessage(
        to=f"{PLATFORM}:room", text="", external_id="", by=by, accounts={PLATFORM: "bot"}
    )
    goal = await life.store.places.open(sending)
    await life.accept(
        Update(
            address=Address(adapter=PLATFORM, account="bot", place="hook"),
            external_id="h1",
            kind=UpdateKind.MESSAGE,
            principal=life.person,
            text="the build broke",
            deliver_to=goal,
        )
    )
    await life.rest()


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY])
async def test_no_instant_loses_or_repeats_an_answer_that_is_sent_on(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world(setup=Setup(strikes_commits=True))
        records = await world.play([reported], fuse, last=reported)
        queued = only(TurnQueued, [event for record in records for event in record.events])
        sent = [each.answer for each in queued if each.kind is TurnKind.SENT]
        shown = [part.text for record in records for part in record.parts
                 if part.address == f"{PLATFORM}:room" and part.state == "sent"]  # fmt: skip
        broken = [] if len(sent) == 1 and sent == shown else [f"sent {sent}, shown {shown}"]
        return broken + [each for record in records for each in violations(record)]

    await simulator.strike(run, nemesis, every=3)
