"""Checks a message that names a prompt of a tool server, with a death, a lost answer or a refusal
at every instant.

Whatever happens, the message is answered, the turn has the prompt's text once, and every request
tells the same text: a later attempt does not fetch it again once it is stored.
"""

from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.ids import MessageId
from perdure.domain.journal.events import PromptExpanded, Recorded, TurnSettled
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, TextBlock
from perdure.domain.tools.framing import expanded_text
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import Life, Setup, World, rest

pytestmark = pytest.mark.timeout(100)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
ASKED = "/sea__tide Brest"


def told(request: ModelRequest) -> list[str]:
    return [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]


def answer(request: ModelRequest) -> Sequence[AgentEvent]:
    return [AgentText("High "), AgentText("water."), Stopped(reason=StopReason.STOP)]


def expansions(records: Sequence[SessionRecord]) -> list[PromptExpanded]:
    events = [recorded.event for record in records for recorded in record.events]
    return [event for event in events if isinstance(event, PromptExpanded)]


def endings(records: Sequence[SessionRecord]) -> list[TurnSettled]:
    events = [recorded.event for record in records for recorded in record.events]
    return [event for event in events if isinstance(event, TurnSettled)]


def problems(world: World, records: Sequence[SessionRecord]) -> list[str]:
    found = [each for record in records for each in violations(record)]
    if [each.outcome for each in endings(records)] != [Outcome.DONE]:
        found.append(f"the turn ended as {endings(records)}")
    stored = expansions(records)
    if [(each.name, each.text in world.prompts_fetched) for each in stored] != [
        ("sea__tide", True)
    ]:
        return [*found, f"the prompt is stored as {stored}, fetched as {world.prompts_fetched}"]
    for request in world.agent.requests:
        if ASKED not in told(request) or expanded_text(stored[0]) not in told(request):
            found.append(f"a request told {told(request)}")
        if sum("as of fetch" in text for text in told(request)) != 1:
            found.append(f"a request told the prompt more than once: {told(request)}")
    found += [f"{part} was shown twice" for part in world.platform.repeated()]
    return found


def asking(simulator: Simulator, setup: Setup) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await simulator.world(setup=setup)
        world.agent = ScriptedAgent(answer)
        world.say(ASKED)
        return problems(world, await world.play([rest], *fuses))

    return run


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_tells_two_texts_of_a_prompt_or_loses_the_message(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(asking(simulator, Setup()), nemesis, every=2)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_commit_tells_two_texts_of_a_prompt_or_loses_the_message(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(asking(simulator, Setup(strikes_commits=True)), nemesis, every=2)


@pytest.mark.parametrize("nemesis", [*NEMESES, Nemesis.PAUSE])
async def test_no_instant_tells_two_texts_of_a_prompt_on_postgres(
    simulator_on_postgres: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator_on_postgres.world()
        world.agent = ScriptedAgent(answer)
        world.say(ASKED)

        async def take_over() -> None:
            await world.take_over()

        fuse.meanwhile = take_over
        return problems(world, await world.play([rest], fuse))

    await simulator_on_postgres.strike(run, nemesis, every=3)


@pytest.mark.chaos
async def test_no_two_deaths_tell_two_texts_of_a_prompt(simulator: Simulator) -> None:
    await simulator.strike_twice(asking(simulator, Setup()), most=150)


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("/sea__tide", Outcome.REFUSED, StopReason.INVALID_REQUEST),
        ("/sea__tide nowhere", Outcome.FAILED, StopReason.PROMPT_FAILED),
    ],
)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_a_prompt_that_cannot_be_had_ends_the_turn_without_a_model_at_every_instant(
    simulator: Simulator, nemesis: Nemesis, text: str, outcome: Outcome, reason: StopReason
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.say(text)
        records = await world.play([rest], fuse)
        found = [each for record in records for each in violations(record)]
        if [(each.outcome, each.reason) for each in endings(records)] != [(outcome, reason)]:
            found.append(f"the turn ended as {endings(records)}")
        if world.agent.requests:
            found.append("the model was asked")
        if len(world.platform.visible) != 1:
            found.append(f"people were told {world.platform.visible}")
        return found

    await simulator.strike(run, nemesis, every=2)


async def test_the_person_is_told_what_to_write(simulator: Simulator) -> None:
    world = await simulator.world()
    world.say("/sea__tide")
    await world.tell(rest)
    world.say("/sea__tide nowhere")
    await world.tell(rest)

    first, second = (shown.text for shown in world.platform.visible)
    assert first == "/sea__tide needs place (where). Write: /sea__tide place"
    assert "could not be asked" in second
    assert "/retry tries again." in second


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("/sea__tide Brest", 1),
        ("  /SEA__TIDE Brest", 1),
        ("!sea__tide Brest", 1),
        ("/tide Brest", 1),
        ("/tide@some_bot Brest", 1),
        ("> an earlier message\n\n/sea__tide Brest", 1),
        ("What does /sea__tide Brest do?", 0),
        ("/sea__ebb Brest", 0),
        ("/usr/bin is full", 0),
        ("sea__tide Brest", 0),
    ],
)
async def test_the_first_word_of_a_message_names_a_prompt(
    simulator: Simulator, text: str, times: int
) -> None:
    world = await simulator.world()
    world.say(text)
    records = await world.tell(rest)

    assert len(expansions(records)) == times
    assert [each.outcome for each in endings(records)] == [Outcome.DONE]
    assert told(world.agent.requests[-1])[0] == text


async def test_a_retry_an_edit_and_work_in_the_background_fetch_the_prompt_anew(
    simulator: Simulator,
) -> None:
    async def act(life: Life) -> None:
        life.world.say(ASKED)
        await life.rest()
        life.world.say("/retry")
        await life.rest()
        life.world.edit("u1", "/sea__tide Dover")
        await life.rest()
        life.world.say("/background /sea__tide Hull")
        await life.rest()

    world = await simulator.world()
    world.agent = ScriptedAgent(answer)
    records = await world.tell(act)

    assert [each for record in records for each in violations(record)] == []
    places = [each.text.split()[4] for each in expansions(records)]
    assert sorted(places) == ["Brest,", "Brest,", "Dover,", "Hull,"]
    asked = [told(request) for request in world.agent.requests]
    assert [sum("as of fetch" in text for text in each) for each in asked] == [1] * 4


async def test_the_next_turn_tells_the_prompt_with_the_same_bytes(simulator: Simulator) -> None:
    async def act(life: Life) -> None:
        for text in (ASKED, "and now?"):
            life.world.say(text)
            await life.rest()

    world = await simulator.world()
    world.agent = ScriptedAgent(answer)
    records = await world.tell(act)

    (expanded,) = expansions(records)
    final = b",".join(world.agent.requests[-1].history)
    assert msgspec.json.encode(expanded_text(expanded)) in final
    assert [each.prefix_break for each in endings(records)] == ["", ""]
    entries = [shown.text for shown in world.platform.visible]
    assert entries == ["High water.", "High water."], "people see the message as it was typed"


async def test_a_search_finds_what_the_person_typed_and_not_what_the_server_wrote(
    simulator: Simulator,
) -> None:
    hits: dict[str, list[str]] = {}

    async def act(life: Life) -> None:
        await life.rest()
        for words in ("sea__tide", "fetch"):
            found = await life.store.archive.search(words, principal=None, before=None, limit=9)
            hits[words] = [hit.text for hit in found]

    world = await simulator.world()
    world.agent = ScriptedAgent(answer)
    world.say(ASKED)
    await world.tell(act)

    assert hits == {"sea__tide": [ASKED], "fetch": []}


async def test_the_checker_finds_a_prompt_that_was_expanded_wrongly(simulator: Simulator) -> None:
    world = await simulator.world()
    world.say(ASKED)
    (record,) = await world.tell(rest)
    (expanded,) = (r for r in record.events if isinstance(r.event, PromptExpanded))
    others = [recorded for recorded in record.events if recorded is not expanded]
    foreign = msgspec.structs.replace(expanded.event, message=MessageId("msg_other"))

    def found(*expansions: Recorded, at: int) -> list[str]:
        events = [*others[:at], *expansions, *others[at:]]
        in_order = [msgspec.structs.replace(r, seq=n) for n, r in enumerate(events, 1)]
        wrong = violations(msgspec.structs.replace(record, events=tuple(in_order)))
        return [each.partition(": a prompt was ")[2] for each in wrong if "a prompt was" in each]

    place = record.events.index(expanded)
    elsewhere = msgspec.structs.replace(expanded, event=foreign)
    twice = "expanded twice, or for another message"
    assert found(expanded, at=place) == []
    assert found(expanded, expanded, at=place) == [twice]
    assert found(elsewhere, at=place) == [twice]
    assert found(expanded, at=len(others) - 1) == ["expanded after the model had answered"]
