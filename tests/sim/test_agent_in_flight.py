"""Checks agents that stay in the middle of an answer while tools run and people are asked, with a
death, a lost answer or a refusal at every instant.

Whatever happens, no call runs twice, what the agent did by itself is in the journal once for each
time that it was told, the turn ends, and no answer stays in flight that nobody waits for.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    ToolFinished,
    TurnSettled,
)
from perdure.domain.journal.question_events import AnswerReceived
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Interruption, Outcome
from perdure.domain.tools.asking import ALLOW_CALL, DENY_CALL
from perdure.domain.turn.recovery import Policy
from perdure.testkit.simulator.answering.flying import BEGAN, KNOWN, REBUILT, WENT_ON
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import KEY, Life, Setup, World, rest

pytestmark = pytest.mark.timeout(100)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]


async def ask(life: Life) -> None:
    """Let the agent call the tool, and let people be asked."""
    await life.work()


async def click(life: Life) -> None:
    """Let people answer, and let everything go on."""
    await life.rest()


async def ask_and_click(life: Life) -> None:
    """Do both in one life of the gateway, so that the answer stays in flight."""
    await life.rest()


def facts_in(records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [recorded.event for record in records for recorded in record.events]


async def world_of(simulator: Simulator, answer: str = ALLOW_CALL, *, asks: bool = True) -> World:
    world = await simulator.world(setup=Setup(asks=asks, flies=True))
    world.platform.can = BUTTONS
    world.clickers = [("person", answer)] if asks else []
    world.say("tool mail")
    return world


def problems(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    facts = facts_in(records)
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    found += [f"{call} ran {n} times" for call, n in Counter(world.tools_ran).items() if n > 1]
    said = [each for each in facts if isinstance(each, AssistantSaid)]
    own = {call.id for each in said for call in each.calls if call.is_agents}
    ended = Counter(each.call for each in facts if isinstance(each, ToolFinished))
    found += [f"{call} of the agent ended {ended[call]} times" for call in own if ended[call] != 1]
    kept = [each.agent_session for each in facts if isinstance(each, TurnSettled)]
    if kept != [f"kept-{turns[0].id}"]:
        found.append(f"the agent's sessions are {kept}")
    return found


def on(simulator: Simulator, *, is_one_life: bool) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator)
        acts = [ask_and_click] if is_one_life else [ask, click]
        records = await world.play(acts, *fuses)
        return problems(world, records)

    return run


@pytest.mark.parametrize("is_one_life", [True, False], ids=["in flight", "after a restart"])
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_loses_an_answer_that_is_in_flight(
    simulator: Simulator, nemesis: Nemesis, *, is_one_life: bool
) -> None:
    await simulator.strike(on(simulator, is_one_life=is_one_life), nemesis, every=2)


@pytest.mark.parametrize("asks", [True, False])
async def test_an_answer_goes_on_where_it_waits(simulator: Simulator, *, asks: bool) -> None:
    world = await world_of(simulator, asks=asks)
    records = await world.play([ask_and_click], last=rest)

    assert problems(world, records) == []
    assert world.flown == [BEGAN, WENT_ON]
    (settled,) = [each for each in facts_in(records) if isinstance(each, TurnSettled)]
    assert (settled.timings.transport, settled.timings.first_token) == ("pool", 1)
    texts = [each.text for each in facts_in(records) if isinstance(each, AssistantSaid)]
    assert texts == ["Let me look. ", "And ask. ", "This is what I know."]


async def test_an_answer_is_made_again_from_the_journal_after_a_restart(
    simulator: Simulator,
) -> None:
    world = await world_of(simulator)
    records = await world.play([ask, click], last=rest)

    assert problems(world, records) == []
    assert world.flown == [BEGAN, REBUILT]
    assert len(world.tools_ran) == 1


async def test_a_denied_call_goes_on_as_well(simulator: Simulator) -> None:
    world = await world_of(simulator, DENY_CALL)
    records = await world.play([ask_and_click], last=rest)

    assert problems(world, records) == []
    assert (world.flown, world.tools_ran) == ([BEGAN, WENT_ON], [])
    endings = [each.ending for each in facts_in(records) if isinstance(each, ToolFinished)]
    assert endings == [CallEnding.RETURNED, CallEnding.DENIED]


async def test_a_stopped_turn_is_let_go_also_while_it_waits_for_a_person(
    simulator: Simulator,
) -> None:
    world = await world_of(simulator)
    world.clickers = [("person", "nothing")]

    async def stop(life: Life) -> None:
        await life.work()
        assert world.flown == [BEGAN]
        await life.stop("u1")
        assert world.flown == [BEGAN, "let go"]
        await life.rest()

    records = await world.play([stop], last=rest)
    assert [each for record in records for each in violations(record)] == []
    assert [turn.outcome for record in records for turn in record.turns] == [Outcome.STOPPED]


async def test_the_next_turn_finds_the_session_that_the_agent_keeps(simulator: Simulator) -> None:
    world = await world_of(simulator, asks=False)

    async def talk(life: Life) -> None:
        await life.rest()
        world.say("and now")
        await life.rest()

    await world.play([talk])
    assert world.flown == [BEGAN, WENT_ON, KNOWN]


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_loses_a_turn_whose_agent_is_lost(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(*fuses: Fuse) -> list[str]:
        world = await simulator.world(setup=Setup(flies=True))
        world.say("lose 1")
        records = await world.play([ask_and_click], *fuses)
        found = [each for record in records for each in violations(record)]
        outcomes = [turn.outcome for record in records for turn in record.turns]
        return found if outcomes == [Outcome.DONE] else [*found, f"the turn is {outcomes}"]

    await simulator.strike(run, nemesis, every=2)


async def test_a_lost_agent_interrupts_the_turn_which_then_goes_on(simulator: Simulator) -> None:
    world = await simulator.world(setup=Setup(flies=True))
    world.say("lose 2")
    records = await world.play([ask_and_click])

    facts = facts_in(records)
    cuts = [each.reason for each in facts if isinstance(each, AttemptInterrupted)]
    assert cuts == [Interruption.AGENT_LOST] * 2
    said = [(e.text, e.is_interrupted) for e in facts if isinstance(e, AssistantSaid)]
    assert said == [("This is ", True), ("This is ", True), ("This is what I know.", False)]
    assert "The agent's program ended unexpectedly" in str(world.agent.requests[-1].messages)


async def test_a_turn_that_kills_its_agent_each_time_is_given_up(simulator: Simulator) -> None:
    setup = Setup(flies=True, recovery=Policy(freshness_ms=0, attempts_max=3))
    world = await simulator.world(setup=setup)
    world.say("lose 100")
    records = await world.play([ask_and_click])

    turns = [turn for record in records for turn in record.turns]
    assert [turn.outcome for turn in turns] == [Outcome.SUSPENDED]
    assert len(world.flown) == 3


async def test_a_turn_whose_agent_dies_of_others_is_not_given_up(simulator: Simulator) -> None:
    setup = Setup(flies=True, recovery=Policy(freshness_ms=0, attempts_max=3))
    world = await simulator.world(setup=setup)
    world.say("lose 5 beside")
    records = await world.play([ask_and_click])

    turns = [turn for record in records for turn in record.turns]
    assert [turn.outcome for turn in turns] == [Outcome.DONE]
    facts = facts_in(records)
    cuts = [each.reason for each in facts if isinstance(each, AttemptInterrupted)]
    assert cuts == [Interruption.AGENT_LOST_BESIDE] * 5


async def test_a_question_of_an_agent_that_dies_is_void(simulator: Simulator) -> None:
    world = await simulator.world(setup=Setup(asks=True, flies=True))
    world.platform.can = BUTTONS
    world.clickers = [("person", "nothing")]
    world.say("tool mail dying")
    records = await world.play([ask_and_click], last=rest)

    assert [each for record in records for each in violations(record)] == []
    assert [turn.outcome for record in records for turn in record.turns] == [Outcome.DONE]
    facts = facts_in(records)
    (received,) = [each for each in facts if isinstance(each, AnswerReceived)]
    assert (received.by, received.reason) == (None, "agent_lost")
    assert [row.state for record in records for row in record.questions] == ["withdrawn"]
    assert world.tools_ran == []
    endings = [each.ending for each in facts if isinstance(each, ToolFinished)]
    assert endings == [CallEnding.RETURNED, CallEnding.DENIED]
    assert world.flown == [BEGAN, "lost", REBUILT]


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_lets_a_question_outlive_its_agent(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(*fuses: Fuse) -> list[str]:
        world = await simulator.world(setup=Setup(asks=True, flies=True))
        world.platform.can = BUTTONS
        # Whether people or the loss come first: the call runs once or never.
        world.clickers = [("person", ALLOW_CALL)]
        world.say("tool mail dying")
        records = await world.play([ask_and_click], *fuses)
        return problems(world, records)

    await simulator.strike(run, nemesis, every=2)
