"""Checks questions of the agent's own, with a death, a lost answer or a refusal at every instant:
between the question, its delivery, the press of a button and the result.

Whatever happens, people are asked once, one answer counts and is the call's result, and the turn
ends.
"""

from collections.abc import Sequence

import msgspec
import pytest
from tests.sim.test_approvals_survive import BUTTONS, NEMESES, Clickers, ask, click, facts_in

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import ToolFinished, ToolStarted
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Outcome, QuestionKind
from perdure.domain.prompt.prompt import ResultBlock
from perdure.domain.tools.asking import refused_text
from perdure.testkit.simulator.answering.held import PICKS
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import BOSS, Setup, World, rest

pytestmark = pytest.mark.timeout(100)
ASKING = Setup(asks=True)
LEFT, RIGHT = PICKS
WHO: dict[str, Clickers] = {
    "the person": [("person", LEFT)],
    "the person and an operator": [("person", LEFT), (BOSS, RIGHT)],
    "a stranger first": [("stranger", RIGHT), ("person", LEFT)],
    "nobody who may": [("stranger", LEFT)],
}
TOO_LATE = refused_text("deadline", kind=QuestionKind.QUESTION)


async def world_of(simulator: Simulator, clickers: Clickers, setup: Setup = ASKING) -> World:
    world = await simulator.world(setup=setup)
    world.platform.can = BUTTONS
    world.clickers = list(clickers)
    world.say("tool ask")
    return world


def problems(world: World, records: Sequence[SessionRecord], clickers: Clickers) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    facts = facts_in(records)
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    if world.tools_ran or any(isinstance(each, ToolStarted) for each in facts):
        found.append(f"the tool ran: {world.tools_ran}")
    asked = [each for each in facts if isinstance(each, AnswerAwaited)]
    answers = [each for each in facts if isinstance(each, AnswerReceived)]
    ended = [each for each in facts if isinstance(each, ToolFinished)]
    if [len(asked), len(answers), len(ended)] != [1, 1, 1]:
        return [*found, f"asked as {asked}, answered as {answers}, ended as {ended}"]
    may = {label for who, label in clickers if who != "stranger"}
    if answers[0].answer not in (may or {""}):
        found.append(f"the answer is {answers[0]}, people said {may}")
    ending = (ended[0].ending, ended[0].result)
    wanted = (CallEnding.RETURNED, answers[0].answer) if may else (CallEnding.DENIED, TOO_LATE)
    if ending != wanted:
        found.append(f"the call ended as {ending}, and not as {wanted}")
    shown = [each for each in world.platform.visible if "Which one?" in each.text]
    if len(shown) != 1 or shown[0].choices:
        found.append(f"people see {shown}")
    return found


def on(simulator: Simulator, clickers: Clickers, setup: Setup = ASKING) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator, clickers, setup)
        records = await world.play([ask, click], *fuses)
        return problems(world, records, clickers)

    return run


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_loses_an_answer_or_asks_twice(
    simulator: Simulator, nemesis: Nemesis, who: str
) -> None:
    await simulator.strike(on(simulator, WHO[who]), nemesis, every=3)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_commit_loses_an_answer_or_asks_twice(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    setup = msgspec.structs.replace(ASKING, strikes_commits=True)
    clickers = WHO["the person and an operator"]
    await simulator.strike(on(simulator, clickers, setup), nemesis, every=3)


@pytest.mark.chaos
@pytest.mark.parametrize("who", WHO)
async def test_no_two_deaths_lose_an_answer_or_ask_twice(simulator: Simulator, who: str) -> None:
    await simulator.strike_twice(on(simulator, WHO[who]), most=150)


async def test_what_a_person_answers_is_told_as_their_own_words(simulator: Simulator) -> None:
    world = await world_of(simulator, WHO["the person"])
    records = await world.play([ask, click], last=rest)

    assert problems(world, records, WHO["the person"]) == []
    (result,) = [
        block
        for message in world.agent.requests[-1].messages
        for block in message.blocks
        if isinstance(block, ResultBlock)
    ]
    assert (result.text, result.is_error) == (LEFT, False)
