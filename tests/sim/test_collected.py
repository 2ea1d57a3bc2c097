"""Checks what people meet who send several messages quickly: they are one message, nobody waits
without a sign, and a command waits for nothing."""

from pathlib import Path

import msgspec
import pytest
from tests.platform_world import CLUB, Life, World, told

from perdure.domain.inbound.arrivals import FileReference
from perdure.domain.journal.events import TurnQueued
from perdure.domain.prompt.prompt import MediaBlock, ModelRequest
from perdure.ports.platform.settings import AdapterSettings, PlaceSection
from perdure.testkit.contract.receiver import ADA, BOB
from perdure.testkit.simulator.stores import only

OPEN = AdapterSettings(allow=("*",), overhear=False)
QUEUEING = AdapterSettings(allow=(ADA.id,), busy="queue")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def queued(life: Life) -> list[TurnQueued]:
    found: list[TurnQueued] = []
    for session in await life.sessions():
        found += only(TurnQueued, (await life.store.diagnostics.record(session)).events)
    return found


def photo(world: World, name: str) -> tuple[FileReference, ...]:
    world.platform.held[name] = b"jpg"
    return (FileReference(reference=name, name=name, mime="image/jpeg", size=3),)


def pictures(request: ModelRequest) -> int:
    return sum(isinstance(b, MediaBlock) for m in request.messages for b in m.blocks)


async def test_quick_messages_of_one_person_are_one_message(world: World) -> None:
    world.serve(OPEN, collects=True)
    async with world.life() as life:
        for text in ("first half", "second half", "/whoami", "and more"):
            world.platform.write(text)
        world.platform.write("in the club", place=CLUB, is_addressed=True)
        await world.until(lambda: any("and more" in t for t in world.shown(ADA.id)), "the answer")
        await world.until(lambda: bool(world.shown(CLUB)), "the answer in the club")
        turns = await queued(life)
        world.platform.write("a new question")
        await world.is_shown("heard: a new question")
    assert sorted(each.text for each in turns) == ["first half", "in the club"]
    private = next(each for each in world.agent.requests if "first half" in told(each))
    assert told(private) == ["first half", "second half", "and more"]


async def test_messages_are_collected_also_behind_a_running_answer(world: World) -> None:
    world.serve(QUEUEING, collects=True)
    async with world.life():
        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second")
        world.platform.write("third")
        await world.is_taken()
        world.agent.go_on.set()
        await world.is_shown("heard: third")
    assert [told(each)[-2:] for each in world.agent.requests] == [["first"], ["second", "third"]]


async def test_who_is_waited_for_sees_at_once_that_the_message_was_taken(world: World) -> None:
    world.serve(OPEN, collects=True)
    async with world.life():
        world.platform.write("first half")
        await world.until(lambda: bool(world.platform.typed), "the typing signal")
        assert not world.agent.requests, "it is shown before the turn begins"
        await world.is_shown("heard: first half")
    assert {address.place for address in world.platform.typed} == {ADA.id}


@pytest.mark.parametrize("command", ["/queue now", "/steer now"])
async def test_what_a_command_says_waits_for_nothing(world: World, command: str) -> None:
    world.serve(msgspec.structs.replace(QUEUEING, collect_ms=5_000), collects=True)
    async with world.life():
        begun_s = world.clock.monotonic_s()
        world.platform.write(command)
        await world.until(lambda: bool(world.agent.requests), "the turn")
        assert world.clock.monotonic_s() - begun_s < 2


async def test_a_stop_ends_what_is_still_waited_for(world: World) -> None:
    world.serve(msgspec.structs.replace(QUEUEING, collect_ms=5_000), collects=True)
    async with world.life() as life:
        world.platform.write("never mind")
        world.platform.write("/stop")
        await world.is_shown("Stopped.")
        world.platform.write("something else")
        await world.is_shown("heard: something else")
        turns = await queued(life)
    assert [each.text for each in turns] == ["never mind", "something else"]
    assert "never mind" not in str(told(world.agent.requests[0])[-1:])


async def test_single_photos_and_words_and_an_album_are_one_message(world: World) -> None:
    world.serve(OPEN, collects=True)
    async with world.life():
        world.platform.write("which one?")
        world.platform.write(files=photo(world, "a.jpg"))
        world.platform.write(files=photo(world, "b.jpg"), album="trip")
        world.platform.write(files=photo(world, "c.jpg"), album="trip")
        world.platform.write("the last?")
        await world.until(lambda: bool(world.shown(ADA.id)), "the answer")
        await world.is_taken()
    (request,) = world.agent.requests
    assert pictures(request) == 3
    assert [each for each in told(request) if each] == ["which one?", "the last?"]


async def test_what_comes_after_the_answer_has_begun_is_a_message_of_its_own(
    world: World,
) -> None:
    world.serve(QUEUEING, collects=True)
    async with world.life():
        world.agent.go_on.clear()
        world.platform.write("first")
        await world.until(lambda: bool(world.agent.requests), "the first turn")
        world.platform.write("second")
        await world.is_taken()
        world.agent.go_on.set()
        await world.is_shown("heard: second")
    assert len(world.agent.requests) == 2


async def test_two_people_of_a_group_are_never_joined_and_a_place_may_collect(
    world: World,
) -> None:
    place = PlaceSection(place=CLUB, collect_ms=1_000)
    world.serve(msgspec.structs.replace(OPEN, places=(place,)), collects=True)
    async with world.life() as life:
        for text, sender in (("a", ADA), ("b", ADA), ("c", BOB)):
            world.platform.write(text, sender=sender, place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 2, "both answers")
        turns = await queued(life)
    assert [each.text for each in turns] == ["a", "c"]
