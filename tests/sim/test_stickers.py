"""Checks that a sticker is looked at once, by an agent that can see, and that it is always
answered."""

from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.content.stickers import WAIT_MS, Sticker
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.attachments import as_fetched, in_words, places_of
from perdure.domain.journal.events import Attachment, TurnQueued, TurnSettled
from perdure.domain.journal.records import SessionRecord
from perdure.domain.journal.session_events import SessionOpened
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import MediaBlock, ModelRequest, Note
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent, echo
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, Setup, World

WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 " + bytes(32)
CAT = Sticker(id="AgAD1", emoji="🙂", set_name="Cats")
TOLD = "[sticker: A cat waves; emoji 🙂, set Cats]"
UNTOLD = "[sticker; emoji 🙂, set Cats]"


def sees(request: ModelRequest) -> Sequence[AgentEvent]:
    if request.purpose == TurnKind.STICKER:
        return [AgentText("A cat "), AgentText("waves."), Stopped(reason=StopReason.STOP)]
    return echo(request)


def fails(request: ModelRequest) -> Sequence[AgentEvent]:
    if request.purpose == TurnKind.STICKER:
        return [AgentText("A c"), Stopped(reason=StopReason.AGENT_ERROR, detail="it broke")]
    return echo(request)


async def send(life: Life, update: str, *, place: str = "room", sticker: Sticker = CAT) -> None:
    life.world.platform.held["r1"] = WEBP
    attachment = Attachment(reference="r1", mime="image/webp", name="sticker", sticker=sticker)
    await life.accept(
        Update(
            address=Address(adapter=PLATFORM, account="bot", place=place),
            external_id=update,
            kind=UpdateKind.MESSAGE,
            principal=life.person,
            text=f"look, {update}",
            attachments=(attachment,),
        )
    )


async def two_at_once(life: Life) -> None:
    await send(life, "s1")
    await send(life, "s2", place="other")
    await life.rest()


async def once_more(life: Life) -> None:
    await send(life, "s3", place="third")
    await life.rest()


def described(world: World) -> list[ModelRequest]:
    return [each for each in world.agent.requests if each.purpose == TurnKind.STICKER]


def told(records: Sequence[SessionRecord]) -> dict[str, str]:
    """Return what each turn of the people was told of its sticker, by the turn's text."""
    events = [recorded for record in records for recorded in record.events]
    spoken = [event for event in only(TurnQueued, events) if event.kind == TurnKind.MESSAGE]
    places = places_of(events)
    return {each.text: in_words(as_fetched(each, places)[0]) for each in spoken}


def seen_by_the_model(world: World) -> set[str]:
    """Return how stickers are described in the requests of the people's turns."""
    blocks = [
        block
        for request in world.agent.requests
        if not request.purpose
        for message in request.messages
        for block in message.blocks
        if isinstance(block, MediaBlock)
    ]
    assert all(block.data is None for block in blocks), "the picture itself is never told"
    return {in_words(block.attachment) for block in blocks}


async def test_a_sticker_is_described_once(simulator: Simulator) -> None:
    world = await simulator.world()
    world.agent = ScriptedAgent(sees)
    records = await world.play([two_at_once], last=once_more)

    assert set(told(records).values()) == {TOLD}
    assert seen_by_the_model(world) == {TOLD}
    (request,) = described(world)
    (message,) = request.messages
    picture, order = message.blocks
    assert isinstance(picture, MediaBlock)
    assert (picture.data, isinstance(order, Note)) == (WEBP, True)
    assert (request.instructions, request.history, request.tools) == ("", (), "")
    assert [flaw for record in records for flaw in violations(record)] == []


async def test_who_describes_a_sticker_is_told_nothing_about_its_sender(
    simulator: Simulator,
) -> None:
    # The description is told to other people too.
    world = await simulator.world(setup=Setup(has_memory=True))
    world.agent = ScriptedAgent(sees)

    async def with_memories(life: Life) -> None:
        world.say("/memory add I live in Harbour Street")
        await life.rest()
        await send(life, "s1")
        await life.rest()

    await world.play([], last=with_memories)
    (request,) = described(world)
    (answered,) = [each for each in world.agent.requests if not each.purpose]
    assert "Harbour Street" in answered.instructions
    assert request.instructions == ""


async def test_the_picture_is_fetched_once(simulator: Simulator) -> None:
    world = await simulator.world()
    world.agent = ScriptedAgent(sees)
    await world.play([once_more], last=two_at_once)
    assert world.platform.fetched == ["r1"]


async def test_a_description_that_fails_is_done_without(simulator: Simulator) -> None:
    world = await simulator.world()
    world.agent = ScriptedAgent(fails)
    records = await world.play([two_at_once], last=once_more)

    assert set(told(records).values()) == {UNTOLD}
    assert seen_by_the_model(world) == {UNTOLD}


async def test_a_description_that_hangs_is_done_without(simulator: Simulator) -> None:
    world = await simulator.world()
    world.agent = ScriptedAgent(sees)
    world.holds = lambda request: request.purpose == TurnKind.STICKER

    async def wait(life: Life) -> None:
        world.gate.close()
        await send(life, "s1")
        assert await life.parts.fetching.step()
        await life.parts.turns.step()
        assert not await life.parts.fetching.step()
        world.clock.advance(WAIT_MS / 1000)
        assert await life.parts.fetching.step()
        await life.parts.turns.step()
        while not seen_by_the_model(world):
            await life.parts.turns.step()
            await world.clock.sleep(0)
        assert seen_by_the_model(world) == {UNTOLD}
        await life.rest()

    records = await world.play([], last=wait)
    assert told(records) == {"look, s1": UNTOLD}, "what a turn was told stays"
    again = await world.tell(once_more)
    assert told(again)["look, s3"] == TOLD


async def test_without_a_picture_nobody_is_asked(simulator: Simulator) -> None:
    world = await simulator.world()
    world.agent = ScriptedAgent(sees)

    async def lost(life: Life) -> None:
        world.platform.gone.add("r1")
        await send(life, "s1")
        await send(life, "s2", sticker=msgspec.structs.replace(CAT, id=""))
        await life.rest()

    records = await world.play([], last=lost)
    assert set(told(records).values()) == {UNTOLD}
    assert described(world) == []


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_no_instant_keeps_a_sticker_from_its_answer(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.agent = ScriptedAgent(sees)
        records = await world.play([two_at_once, once_more], fuse)
        return _flaws(world, records)

    await simulator.strike(run, nemesis, every=6)


def _flaws(world: World, records: Sequence[SessionRecord]) -> list[str]:
    found = [flaw for record in records for flaw in violations(record)]
    events = [recorded for record in records for recorded in record.events]
    outcomes = {settled.turn: settled.outcome for settled in only(TurnSettled, events)}
    found += [
        f"{queued} ended as {outcomes.get(queued.turn)}"
        for queued in only(TurnQueued, events)
        if outcomes.get(queued.turn) is not Outcome.DONE
    ]
    words = told(records)
    if not set(words.values()) <= {TOLD, UNTOLD}:
        found.append(f"they were told {words}")
    if seen_by_the_model(world) != set(words.values()):
        found.append(f"{words} are stored, {seen_by_the_model(world)} were told")
    opened = [each for each in only(SessionOpened, events) if each.kind == TurnKind.STICKER]
    if len(opened) > 1:
        found.append(f"{len(opened)} errands describe one sticker")
    return found
