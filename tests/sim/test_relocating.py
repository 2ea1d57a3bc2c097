"""Checks that everything about a group moves along when its platform gives it another id: once, and
whatever happens to the process."""

from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.platform_world import CLUB, NAME, Life, World, told

from perdure.domain.address import GROUP, Address
from perdure.domain.checking.checker import violations
from perdure.domain.content.overheard import Overheard
from perdure.domain.inbound.arrivals import relocation
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import UpdateKind
from perdure.ports.people.overhearing import HeardLine
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.platform.settings import AdapterSettings, PlaceSection
from perdure.ports.records.history import Page
from perdure.testkit.contract.receiver import ADA, BOB
from perdure.testkit.simulator import world as simulated
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Setup, patiently

NEW = "superclub"
OPEN = AdapterSettings(allow=("*",), busy="queue")
# The club may speak, and has an instruction of its own; both name it by the id that it had.
NAMED = AdapterSettings(
    allow=(ADA.id,),
    allow_places=(CLUB,),
    busy="queue",
    places=(PlaceSection(place=CLUB, instructions="You look after the club."),),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def ask(world: World, text: str, *, place: str, sender: object = ADA) -> list[str]:
    """Let somebody speak to the bot, and return all that the model was told."""
    before = len(world.agent.requests)
    who = BOB if sender is BOB else ADA
    world.platform.write(text, place=place, sender=who, is_addressed=True)
    await world.until(lambda: len(world.agent.requests) > before, "the request")
    await world.until(lambda: any(text in each for each in world.shown(place)), "the answer")
    return told(world.agent.requests[-1])


async def conversations(life: Life) -> list[str]:

    found = await life.store.places.known(principal=None, page=Page())
    return sorted(each.address for each in found)


async def test_history_and_what_was_overheard_go_on_under_the_new_id(world: World) -> None:
    world.serve(OPEN)
    async with world.life() as life:
        await ask(world, "remember the key", place=CLUB)
        world.platform.write("lunch?", sender=BOB, place=CLUB)
        world.platform.offer(relocation(CLUB, NEW))
        world.platform.write("at noon", sender=BOB, place=NEW)
        await ask(world, "what now?", place=NEW)
        assert await conversations(life) == [f"{NAME}:{NEW}"]
        assert len(await life.sessions()) == 1
    last = world.agent.requests[-1]
    words = "\n".join(told(last))
    assert b"remember the key" in b",".join(last.history)
    assert words.index("> lunch?") < words.index("> at noon") < words.index("what now?")


async def test_settings_and_permission_by_the_former_id_stay_good_after_a_restart(
    world: World,
) -> None:
    world.serve(NAMED)
    async with world.life():
        await ask(world, "hello", place=CLUB, sender=BOB)
        world.platform.offer(relocation(CLUB, NEW))
        await world.is_taken()
    async with world.life():
        await ask(world, "hello again", place=NEW, sender=BOB)
        stranger = world.platform.write("and here?", place="other", sender=BOB, is_addressed=True)
        await world.is_taken()
    assert [each.instructions for each in world.agent.requests] == ["You look after the club."] * 2
    assert stranger not in world.platform.was_read


async def test_a_turn_that_waits_while_the_group_moves_is_answered_in_its_new_place(
    world: World,
) -> None:
    world.serve(NAMED)
    async with world.life():
        world.agent.go_on.clear()
        world.platform.write("first", place=CLUB, sender=BOB, is_addressed=True)
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second", place=CLUB, sender=BOB, is_addressed=True)
        world.platform.offer(relocation(CLUB, NEW))
        await world.is_taken()
        world.agent.go_on.set()
        await world.until(
            lambda: any("second" in each for each in world.shown(NEW)), "the second answer"
        )
    assert len(world.agent.requests) == 2, "who wrote it may still speak there"


async def test_homes_and_old_addresses_lead_to_the_new_place(world: World) -> None:
    world.serve(msgspec.structs.replace(OPEN, operators=(ADA.id,)))
    async with world.life() as life:
        world.platform.write("/home", place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.shown(CLUB)), "the reply")
        world.platform.offer(relocation(CLUB, NEW))
        await world.is_taken()
        ada = await life.store.principals.ensure(f"{NAME}:{ADA.id}", role="operator")
        for number, to in enumerate(("home", f"{NAME}:{CLUB}", f"{NAME}:{NEW}")):
            sending = OutgoingMessage(
                to=to, text=f"note {number}", external_id=to, by=ada, accounts={NAME: "bot"}
            )
            assert (await life.parts.door.send(sending)).address == f"{NAME}:{NEW}"
        await world.is_shown("note 2", NEW)
        view = await life.store.conversations.find(
            f"{NAME}:{CLUB}", principal=ada.id, sees_all=True
        )
        assert view.view.address.name == f"{NAME}:{NEW}"


async def test_where_people_wrote_first_under_the_new_id_that_conversation_stays(
    world: World,
) -> None:
    world.serve(msgspec.structs.replace(OPEN, operators=(ADA.id,)))
    async with world.life() as life:
        world.platform.write("/home", place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.shown(CLUB)), "the reply")
        await ask(world, "is anybody here?", place=NEW)
        for _ in range(2):
            world.platform.offer(relocation(CLUB, NEW))
        await world.is_taken()
        ada = await life.store.principals.ensure(f"{NAME}:{ADA.id}", role="operator")
        sending = OutgoingMessage(
            to="home", text="a note", external_id="n", by=ada, accounts={NAME: "bot"}
        )
        assert (await life.parts.door.send(sending)).address == f"{NAME}:{NEW}"
        assert await conversations(life) == [f"{NAME}:{CLUB}", f"{NAME}:{NEW}"]


OLD_ROOM = Address(adapter=PLATFORM, account="bot", place="room")
NEW_ROOM = msgspec.structs.replace(OLD_ROOM, place="new room")


def mention(life: simulated.Life, number: int, where: Address) -> Update:
    return Update(
        address=where,
        external_id=f"mention{number}",
        kind=UpdateKind.MESSAGE,
        principal=life.person,
        text=f"mention {number}",
        sender="Ada (ada)",
        place_kind=GROUP,
        overhears=True,
    )


def line(number: int, where: Address) -> HeardLine:
    told_ = Overheard(sender="Bob (bob)", text=f"line {number}")
    return HeardLine(address=where, external_id=f"line{number}", person="bob", line=told_)


async def moving(life: simulated.Life) -> None:
    """Offer a batch as a platform does: after a death all of it comes again, so the move may come
    again after messages in the new place."""
    await life.accept(mention(life, 1, OLD_ROOM))
    await patiently(partial(life.store.overhearing.note, line(1, OLD_ROOM)))
    for _ in range(2):
        await patiently(partial(life.store.places.relocate, OLD_ROOM, to="new room"))
    await patiently(partial(life.store.overhearing.note, line(2, NEW_ROOM)))
    await life.accept(mention(life, 2, NEW_ROOM))
    await life.rest()


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_no_instant_moves_a_group_twice_or_by_half(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world(setup=Setup(strikes_commits=True))
        records = await world.play([moving], fuse, last=moving)
        queued = only(TurnQueued, [event for record in records for event in record.events])
        found = [[each.text, *(line.text for line in each.overheard)] for each in queued]
        right = [["mention 1"], ["mention 2", "line 1", "line 2"]]
        broken = [] if found == right and len(records) == 1 else [f"said: {found}"]
        addresses = {part.address for record in records for part in record.parts}
        broken += [] if addresses == {f"{PLATFORM}:new room"} else [f"shown: {addresses}"]
        return broken + [each for record in records for each in violations(record)]

    await simulator.strike(run, nemesis, every=2)
