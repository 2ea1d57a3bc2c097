"""Checks calls that ask a person in the middle, with a death, a lost answer or a refusal at every
instant.

Whatever happens, neither half of the call runs twice, the second half runs only with the answer of
somebody who may give it, and the turn ends.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import AnyEvent, ToolFinished, ToolStarted
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Outcome, QuestionKind
from perdure.domain.prompt.prompt import ResultBlock
from perdure.domain.tools.asking import ALLOW_CALL
from perdure.domain.turn.next_action import steps_taken
from perdure.testkit.simulator.answering.held import PICKS
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import BOSS, KEY, Life, Setup, World, rest

pytestmark = pytest.mark.timeout(100)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
LEFT, RIGHT = PICKS
Clickers = Sequence[tuple[str, str]]
WHO: dict[str, Clickers] = {
    "the person": [("person", LEFT)],
    "the person and an operator": [("person", LEFT), (BOSS, RIGHT)],
    # Time passes only where people are also asked before the call.
    "a stranger": [("person", ALLOW_CALL), ("stranger", RIGHT)],
}


async def ask(life: Life) -> None:
    """Let the agent call the tool, and let the tool ask."""
    await life.work()


async def click(life: Life) -> None:
    """Let people press, and let everything go on."""
    await life.rest()


def facts_in(records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [recorded.event for record in records for recorded in record.events]


async def world_of(simulator: Simulator, clickers: Clickers) -> World:
    asks = ("person", ALLOW_CALL) in clickers
    world = await simulator.world(setup=Setup(asks=asks))
    world.platform.can = BUTTONS
    world.clickers = list(clickers)
    world.say("tool pick")
    return world


def problems(world: World, records: Sequence[SessionRecord], clickers: Clickers) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    facts = facts_in(records)
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    found += [f"{part} ran {n} times" for part, n in Counter(world.tools_ran).items() if n > 1]
    if len(world.tools_ran) > 2:
        found.append(f"the halves ran as {world.tools_ran}")
    if sum(isinstance(each, ToolStarted) for each in facts) > 1:
        found.append("the call began twice")
    endings = [each.ending for each in facts if isinstance(each, ToolFinished)]
    if endings not in ([CallEnding.RETURNED], [CallEnding.UNKNOWN]):
        found.append(f"the call ended as {endings}")
    if endings == [CallEnding.RETURNED] and len(world.tools_ran) != 2:
        found.append(f"the call returned, and ran as {world.tools_ran}")
    may = {label for who, label in clickers if who != "stranger" and label in PICKS}
    second = {part.partition(" ")[2] for part in world.tools_ran} - {""}
    if not second <= (may or {"deadline"}):
        found.append(f"the call went on with {second}, people wanted {may}")
    found += [f"a button is left under {s.text!r}" for s in world.platform.visible if s.choices]
    return found


def on(simulator: Simulator, clickers: Clickers) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator, clickers)
        records = await world.play([ask, click], *fuses)
        return problems(world, records, clickers)

    return run


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_runs_half_a_call_twice(
    simulator: Simulator, nemesis: Nemesis, who: str
) -> None:
    await simulator.strike(on(simulator, WHO[who]), nemesis, every=2)


async def test_the_answer_becomes_part_of_the_call(simulator: Simulator) -> None:
    world = await world_of(simulator, WHO["the person"])
    records = await world.play([ask, click], last=rest)

    facts = facts_in(records)
    call = next(each.call for each in facts if isinstance(each, ToolStarted))
    assert world.tools_ran == [call, f"{call} {LEFT}"]
    (asked,) = [each for each in facts if isinstance(each, AnswerAwaited)]
    assert (asked.kind, asked.is_midway, asked.state) == (QuestionKind.QUESTION, True, "which")
    results = [
        block.text
        for request in world.agent.requests
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ResultBlock)
    ]
    # What the tool says after the answer is its own output, and no person's words.
    (result,) = results
    assert "picked left" in result
    assert result.startswith("[Output of pick; data from outside")
    assert len(world.agent.requests) == 2
    assert steps_taken(facts) == 1


async def test_an_approved_call_may_ask_midway(simulator: Simulator) -> None:
    world = await world_of(simulator, [("person", ALLOW_CALL), ("person", LEFT)])
    records = await world.play([ask, click, click], last=rest)

    facts = facts_in(records)
    kinds = [each.kind for each in facts if isinstance(each, AnswerAwaited)]
    assert kinds == [QuestionKind.APPROVAL, QuestionKind.QUESTION]
    assert [part.partition(" ")[2] for part in world.tools_ran] == ["", LEFT]
    assert len([each for each in facts if isinstance(each, AnswerReceived)]) == 2


async def test_a_stop_in_the_middle_leaves_the_call_unknown(simulator: Simulator) -> None:
    world = await world_of(simulator, [])

    async def stop(life: Life) -> None:
        world.say("/stop")
        await life.rest()

    records = await world.play([ask, stop], last=rest)

    endings = [each.ending for each in facts_in(records) if isinstance(each, ToolFinished)]
    assert endings == [CallEnding.UNKNOWN]
    assert [effect.state for record in records for effect in record.effects] == ["unknown"]
    assert [each for record in records for each in violations(record)] == []
