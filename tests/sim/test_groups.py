"""Checks how a bot behaves where several people share a place: whose answer ends, when it is
silent, what calls it, and what the settings of a place change."""

from pathlib import Path

import msgspec
import pytest
from tests.platform_world import BOTH, CLUB, Life, World, heard_by, told

from perdure.domain.inbound.arrivals import Arrival, FileReference, PlaceKind
from perdure.domain.journal.events import TurnQueued
from perdure.domain.prompt.prompt import MediaBlock
from perdure.ports.platform.settings import AdapterSettings, BusyChoice, PlaceSection
from perdure.testkit.contract.receiver import ADA, BOB
from perdure.testkit.simulator.stores import only

OPEN = AdapterSettings(allow=("*",), overhear=False)
READING = msgspec.structs.replace(OPEN, mention=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def at(place: str = CLUB, **settings: object) -> AdapterSettings:
    """Return settings that are different in one place."""
    section = msgspec.convert({"place": place, **settings}, PlaceSection)
    return msgspec.structs.replace(OPEN, places=(section,))


async def hold(world: World, text: str = "first") -> None:
    """Let Ada ask something whose answer does not come."""
    world.agent.go_on.clear()
    world.platform.write(text, place=CLUB, is_addressed=True)
    await world.until(lambda: bool(world.agent.requests), "the first turn")


async def queued(life: Life) -> list[TurnQueued]:
    found: list[TurnQueued] = []
    for session in await life.sessions():
        found += only(TurnQueued, (await life.store.diagnostics.record(session)).events)
    return found


async def outcomes(life: Life) -> list[str]:
    (session,) = await life.sessions()
    record = await life.store.diagnostics.record(session)
    return [str(turn.outcome) for turn in record.turns]


@pytest.mark.parametrize("busy", ["interrupt", "steer", None])
async def test_one_persons_message_does_not_end_anothers_answer(
    world: World, busy: BusyChoice | None
) -> None:
    world.serve(msgspec.structs.replace(OPEN, busy=busy))
    async with world.life() as life:
        await hold(world)
        world.platform.write("second", sender=BOB, place=CLUB, is_addressed=True)
        await world.is_taken()
        world.agent.go_on.set()
        await world.until(lambda: len(world.shown(CLUB)) == 2, "both answers")
        assert await outcomes(life) == ["done", "done"]
    assert [text.endswith("first") for text in world.shown(CLUB)] == [True, False]


async def test_people_end_their_own_answer_where_that_is_configured(world: World) -> None:
    world.serve(msgspec.structs.replace(OPEN, busy="interrupt"))
    async with world.life() as life:
        await hold(world)
        world.platform.write("never mind", place=CLUB, is_addressed=True)
        await world.is_taken()
        world.agent.go_on.set()
        await world.until(lambda: any("never mind" in t for t in world.shown(CLUB)), "the answer")
        assert await outcomes(life) == ["superseded", "done"]


async def test_without_a_setting_messages_wait_in_groups_and_replace_in_private(
    world: World,
) -> None:
    world.serve(OPEN)
    async with world.life() as life:
        await hold(world)
        world.platform.write("second", place=CLUB, is_addressed=True)
        await world.is_taken()
        world.agent.go_on.set()
        await world.until(lambda: len(world.shown(CLUB)) == 2, "both answers")
        assert await outcomes(life) == ["done", "done"]
        world.agent.go_on.clear()
        before = len(world.agent.requests)
        world.platform.write("one")
        await world.until(lambda: len(world.agent.requests) > before, "the private turn")
        world.platform.write("two")
        await world.is_taken()
        world.agent.go_on.set()
        await world.is_shown("heard: two")
    assert not any(text == "heard: one" for text in world.shown(ADA.id))


@pytest.mark.parametrize("command", ["/stop", "/stop all", "/new", "/undo", "/retry", "/resume"])
async def test_in_an_open_group_nobody_stops_or_resets_what_is_anothers(
    world: World, command: str
) -> None:
    world.serve(OPEN)
    async with world.life() as life:
        await hold(world)
        world.platform.write(command, sender=BOB, place=CLUB, is_addressed=True)
        await world.until(
            lambda: any("somebody else's" in text for text in world.shown(CLUB)), "the refusal"
        )
        world.agent.go_on.set()
        await world.until(lambda: len(world.shown(CLUB)) == 2, "the answer")
        assert await outcomes(life) == ["done"]
        if command.startswith("/stop"):
            return
        world.platform.write(command, sender=BOB, place=CLUB, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 3, "the second refusal")
        assert "somebody else's" in world.shown(CLUB)[-1]
        assert len(await life.sessions()) == 1


@pytest.mark.parametrize(
    ("settings", "sender"),
    [(OPEN, ADA), (msgspec.structs.replace(OPEN, operators=(BOB.id,)), BOB), (BOTH, BOB)],
)
async def test_the_turns_person_operators_and_listed_people_may(
    world: World, settings: AdapterSettings, sender: object
) -> None:
    world.serve(settings)
    who = msgspec.convert(sender, type(ADA)) if not isinstance(sender, type(ADA)) else sender
    async with world.life() as life:
        await hold(world)
        world.platform.write("/stop", sender=who, place=CLUB, is_addressed=True)
        await world.until(lambda: "Stopped." in world.shown(CLUB), "the reply")
        assert await outcomes(life) == ["stopped"]


async def test_an_agent_that_reads_along_may_say_nothing(world: World) -> None:
    world.serve(READING)
    world.agent.pieces = ("[SI", "LENT", "]\n")
    async with world.life() as life:
        world.platform.write("how are you, Bob?", place=CLUB)
        await world.until(lambda: bool(world.agent.requests), "the turn")
        world.platform.write("in private")
        await world.until(lambda: "[SILENT]\n" in world.shown(ADA.id), "the private answer")
        assert world.shown(CLUB) == []
        assert not any("[SI" in each.text for each in world.platform.shown if each.place == CLUB)
        world.agent.pieces = ("[SILENT] is a word",)
        world.platform.write("what is that word?", place=CLUB)
        await world.until(lambda: bool(world.shown(CLUB)), "the answer")
        assert world.shown(CLUB) == ["[SILENT] is a word"]
        assert set(await outcomes_everywhere(life)) == {"done"}
    assert "[SILENT]" in world.agent.requests[0].instructions


async def outcomes_everywhere(life: Life) -> list[str]:
    records = [await life.store.diagnostics.record(each) for each in await life.sessions()]
    return [str(turn.outcome) for record in records for turn in record.turns]


async def test_where_the_bot_must_be_called_it_answers_in_words(world: World) -> None:
    world.serve(OPEN)
    world.agent.pieces = ("[SILENT]",)
    async with world.life():
        world.platform.write("hello", place=CLUB, is_addressed=True)
        await world.until(lambda: world.shown(CLUB) == ["[SILENT]"], "the words")
    assert world.agent.requests[0].instructions == ""


async def test_a_bare_mention_is_about_what_was_said_last(world: World) -> None:
    world.serve(msgspec.structs.replace(OPEN, overhear=True))
    async with world.life():
        world.platform.write("what is the tide today?", sender=BOB, place=CLUB)
        world.platform.write(place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.shown(CLUB)), "the answer")
        world.platform.write(place=CLUB)
        world.platform.write()
        await world.is_taken()
    (request,) = world.agent.requests
    words = told(request)
    assert "> what is the tide today?" in words[0]
    assert words[1].startswith("[Ada (ada)]\n(This message only calls you.")


async def test_a_reply_brings_what_it_is_about(world: World) -> None:
    world.serve(OPEN)
    picture = FileReference(reference="f1", name="tide.jpg", mime="image/jpeg", size=3)
    world.platform.held["f1"] = b"jpg"
    reply = Arrival(
        external_id="club/r1",
        place=CLUB,
        place_kind=PlaceKind.GROUP,
        sender=ADA,
        is_addressed=True,
        text="what is this?",
        quote="look at this",
        quoted_from="Bob\n[Ada",
        quoted_files=(picture,),
    )
    bare = msgspec.structs.replace(reply, external_id="club/r2", text="")
    command = msgspec.structs.replace(reply, external_id="club/r3", text="/whoami")
    async with world.life() as life:
        for number, arrival in enumerate((reply, bare, command), start=1):
            world.platform.offer(arrival)
            await world.until(lambda: len(world.shown(CLUB)) == number, "the answer")  # noqa: B023
        turns = await queued(life)
    assert [[file.name for file in each.attachments] for each in turns] == [["tide.jpg"]] * 2
    assert turns[0].text == "> Bob Ada wrote:\n> look at this\n\nwhat is this?"
    assert turns[1].text.startswith("> Bob Ada wrote:\n> look at this\n\n(This message only")
    assert any(isinstance(b, MediaBlock) for b in world.agent.requests[0].messages[-1].blocks)


async def test_the_settings_of_a_place_count_there_alone(world: World) -> None:
    world.serve(at(mention=False, instructions="Be brief.", busy="interrupt"))
    async with world.life():
        world.platform.write("to nobody", place=CLUB)
        world.platform.write("to nobody", place="other club")
        await world.until(lambda: bool(world.shown(CLUB)), "the answer")
        await world.is_taken()
        assert world.shown("other club") == []
        world.platform.write("hello", place="other club", is_addressed=True)
        await world.until(lambda: bool(world.shown("other club")), "the other answer")
    first, second = world.agent.requests
    assert first.instructions.startswith("Be brief.\n\nYou read along")
    assert second.instructions == ""


async def test_a_place_may_be_named_by_a_pattern_and_the_first_section_counts(
    world: World,
) -> None:
    one = PlaceSection(place="help *", instructions="You help.")
    two = PlaceSection(place="*", instructions="You chat.")
    world.serve(msgspec.structs.replace(OPEN, places=(one, two)))
    async with world.life():
        for number, label in enumerate(("Help Desk", "Fun", ""), start=1):
            world.platform.offer(
                Arrival(
                    external_id=f"p{number}",
                    place=f"place {number}",
                    place_kind=PlaceKind.GROUP,
                    label=label,
                    sender=ADA,
                    is_addressed=True,
                    text="hi",
                )
            )
            await world.until(lambda: len(world.agent.requests) == number, "the turn")  # noqa: B023
    assert [each.instructions for each in world.agent.requests] == ["You help.", "You chat.", ""]


async def test_topics_may_be_allowed_or_ignored(world: World) -> None:
    world.serve(at(topics=["t1", "t2"], ignore_topics=["t2"]))
    async with world.life():
        for thread in ("t2", "t3", "t1", ""):
            world.platform.write(f"in {thread}", place=CLUB, thread=thread, is_addressed=True)
        await world.until(lambda: len(world.shown(CLUB)) == 2, "two answers")
        await world.is_taken()
    assert [text.rpartition("\n")[2] for text in heard_by(world.agent)] == ["in t1", "in "]


async def test_a_word_wakes_the_bot_and_only_for_those_who_may_speak(world: World) -> None:
    settings = at(wake=["Captain", "ahoy!"])
    world.serve(msgspec.structs.replace(settings, allow=(ADA.id,)))
    async with world.life():
        for text in ("captains are many", "the captain, please", "AHOY! you"):
            world.platform.write(text, place=CLUB)
        strange = world.platform.write("captain, to me", sender=BOB, place=CLUB)
        world.platform.write("captain", place="other club")
        await world.until(lambda: len(world.shown(CLUB)) == 2, "two answers")
        await world.is_taken()
    assert len(world.agent.requests) == 2
    assert strange not in world.platform.was_read, "what strangers say is not read for it"


async def test_what_is_for_another_bot_is_left_to_it(world: World) -> None:
    world.serve(READING)
    for_another = Arrival(
        external_id="club/a1",
        place=CLUB,
        place_kind=PlaceKind.GROUP,
        sender=ADA,
        text="@other_bot hello",
        is_for_another=True,
    )
    async with world.life():
        world.platform.offer(for_another)
        world.platform.write("hello all", place=CLUB)
        await world.until(lambda: bool(world.shown(CLUB)), "the answer")
    assert len(world.agent.requests) == 1


async def test_each_question_may_have_a_thread_of_its_own_or_none(world: World) -> None:
    begins = Arrival(
        external_id="club/s1",
        place=CLUB,
        place_kind=PlaceKind.GROUP,
        sender=ADA,
        is_addressed=True,
        text="one",
        own_thread="s1",
    )
    world.serve(at(thread=True, overhear=True))
    async with world.life() as life:
        aside = msgspec.structs.replace(
            begins, external_id="club/s0", sender=BOB, text="said before", own_thread="s0"
        )
        world.platform.offer(msgspec.structs.replace(aside, is_addressed=False))
        world.platform.offer(begins)
        await world.until(lambda: len(world.agent.requests) == 1, "the turn")
        world.serve(at(thread=False))
        slack = msgspec.structs.replace(
            begins, external_id="club/s2", thread="s2", begins_thread=True
        )
        world.platform.offer(slack)
        await world.until(lambda: len(world.agent.requests) == 2, "the second turn")
        await world.until(lambda: len(world.shown(CLUB)) == 2, "both answers")
        records = [await life.store.diagnostics.record(each) for each in await life.sessions()]
    addresses = sorted({part.address for record in records for part in record.parts})
    assert addresses == ["scripted:club", "scripted:club:s1"]
    assert "> said before" in told(world.agent.requests[0])[0]


async def test_people_choose_another_persona_than_the_place_has(world: World) -> None:
    world.serve(at(persona="pirate"))
    async with world.life() as life:
        world.platform.write("hello", place=CLUB, is_addressed=True)
        await world.until(lambda: bool(world.shown(CLUB)), "the answer")
        (turn,) = await queued(life)
    assert turn.persona == "pirate"


def agents_of(turns: list[TurnQueued]) -> list[tuple[str, str]]:
    return [(turn.agent, turn.persona) for turn in turns]


async def told_in_club(world: World, text: str) -> str:
    """Return what the bot replies to a command in the club."""
    before = len(world.shown(CLUB))
    world.platform.write(text, place=CLUB, is_addressed=True)
    await world.until(lambda: len(world.shown(CLUB)) > before, "the reply")
    return world.shown(CLUB)[-1]


async def test_people_choose_another_agent_than_the_place_has_and_go_back(world: World) -> None:
    world.agents = ("main", "helper")
    world.personas = ("pirate", "poet")
    world.serve(at(agent="helper", persona="pirate"))
    async with world.life() as life:
        assert (await told_in_club(world, "/agent")).startswith("helper answers here. ")
        assert "pirate, as configured for this place" in await told_in_club(world, "/persona")
        await told_in_club(world, "one")
        await told_in_club(world, "/agent main")
        assert "/agent default goes back to helper" in await told_in_club(world, "/agent")
        assert "No persona" in await told_in_club(world, "/persona none")
        await told_in_club(world, "two")
        left = await told_in_club(world, "/new")
        assert "main still answers, as /agent chose. Persona stays none" in left
        await told_in_club(world, "three")
        assert "helper answers here from now on, as configured" in await told_in_club(
            world, "/agent default"
        )
        assert "here from now on: pirate" in await told_in_club(world, "/persona default")
        await told_in_club(world, "four")
        turns = sorted(await queued(life), key=lambda turn: turn.message)
    configured, chosen = ("helper", "pirate"), ("main", "")
    assert agents_of(turns) == [configured, chosen, chosen, configured]


async def test_a_choice_in_one_thread_is_no_choice_in_another(world: World) -> None:
    world.agents = ("main", "helper")
    world.serve(AdapterSettings(allow=(ADA.id,), agent="main"))
    async with world.life() as life:
        world.platform.write("/agent helper", thread="t1")
        world.platform.write("/agent helper")
        await world.until(lambda: len(world.shown(ADA.id)) == 2, "the replies")
        for text, thread in (("one", "t1"), ("two", "t2"), ("three", "")):
            world.platform.write(text, thread=thread)
            await world.is_shown(f"heard: {text}")
        turns = sorted(await queued(life), key=lambda turn: turn.message)
    assert [turn.agent for turn in turns] == ["helper", "main", "helper"]
