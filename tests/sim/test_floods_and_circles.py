"""Checks that an answer with many calls does not flood people with questions, and that a turn whose
calls go round comes to an end."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.sim.test_tool_calls import SOON_S, PlainTool, ToolRig, quickly, tool_rig

from perdure.domain.journal.events import ToolFinished
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.outcomes import CallEnding, QuestionKind, Repeat, StopReason
from perdure.domain.prompt.prompt import ModelRequest, Note, ResultBlock
from perdure.domain.tools.asking import ALLOW, refused_text
from perdure.domain.tools.rounds import VAIN_MAX, VAIN_NOTE, VAIN_TOLD
from perdure.domain.tools.traits import Permission
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.engine.turns.tools.permissions import AT_ONCE_MAX
from perdure.ports.turns.tools import ToolCaller, ToolQuestion
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.tools.tool import ToolOutput

MANY = 30


async def answered(found: ToolRig) -> list[ToolFinished]:
    """Answer all questions that are open, and return the results."""
    await found.asked()
    questions = await found.questions()
    assert len(questions) == AT_ONCE_MAX
    for each in questions:
        await found.answers(each, ALLOW)
    return await found.is_done()


async def test_an_answer_with_many_calls_asks_a_few_questions_and_denies_the_rest(
    tmp_path: Path,
) -> None:
    ran: list[str] = []

    async def pay(caller: ToolCaller) -> str:
        ran.append(caller.turn)
        return "paid"

    plain_tools = (
        PlainTool("pay", pay, permission=Permission.ACT, repeat=Repeat.ONCE),
        PlainTool("look", quickly),
    )
    calls = ["pay"] * MANY + ["look"]
    async with tool_rig(tmp_path, *plain_tools, calls=calls) as found:
        results = await answered(found)

    assert len(ran) == AT_ONCE_MAX
    assert Counter(each.ending for each in results) == {
        CallEnding.RETURNED: AT_ONCE_MAX + 1,
        CallEnding.DENIED: MANY - AT_ONCE_MAX,
    }
    denied = {each.result for each in results if each.ending is CallEnding.DENIED}
    assert denied == {refused_text("too_many", kind=QuestionKind.APPROVAL)}
    assert "Call again after these are answered" in denied.pop()
    assert len(found.agent.requests) == 2, "the model is asked once more, with all results"


@pytest.mark.parametrize("others", [0, MANY])
async def test_calls_that_ask_on_their_way_are_answered_before_any_that_has_not_begun(
    tmp_path: Path, others: int
) -> None:
    async def pick(caller: ToolCaller) -> ToolOutput:
        if caller.reply is None:
            return ToolOutput(question=ToolQuestion(text="Which?", choices=(ALLOW,)))
        return ToolOutput(text=f"picked {caller.reply.answer}")

    plain_tools = (PlainTool("pick", pick), PlainTool("pay", quickly, permission=Permission.ACT))
    calls = ["pay"] * others + ["pick"] * MANY
    async with tool_rig(tmp_path, *plain_tools, calls=calls) as found:
        results = await answered(found)
        events = [r.event for r in (await found.record()).events]

    assert all(e.is_midway for e in events if isinstance(e, AnswerAwaited))
    assert Counter(each.ending for each in results) == Counter(
        {
            CallEnding.RETURNED: AT_ONCE_MAX,
            CallEnding.FAILED: MANY - AT_ONCE_MAX,
            CallEnding.DENIED: others,
        }
    )


def circling(*names: str) -> ScriptedAgent:
    """Return an agent that calls these tools by turns, and never anything else."""

    def rule(request: ModelRequest) -> list[AgentEvent]:
        made = sum(isinstance(b, ResultBlock) for m in request.messages for b in m.blocks)
        name = names[made % len(names)]
        return [
            AgentText("Let me see. "),
            AgentCall(id=f"c{made}", name=name, arguments="{}"),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]

    return ScriptedAgent(rule)


def warnings(request: ModelRequest) -> int:
    return sum(block == Note(VAIN_NOTE) for m in request.messages for block in m.blocks)


@pytest.mark.parametrize("names", [("look",), ("look", "list"), ("look", "list", "find")], ids=len)
async def test_a_turn_whose_calls_go_round_tells_its_model_once_and_ends(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    plain_tools = [PlainTool(name, quickly) for name in names]
    async with tool_rig(tmp_path, *plain_tools, agent=circling(*names)) as found:
        ended = await found.ended()
        results = await found.results()

    assert (ended.outcome, ended.reason) == ("failed", StopReason.CALLS_REPEATED)
    assert len(results) == len(names) + VAIN_MAX
    told = [warnings(request) for request in found.agent.requests]
    assert told == [0] * (len(names) + VAIN_TOLD) + [1] * (VAIN_MAX - VAIN_TOLD)


async def test_a_turn_that_waits_for_something_to_change_goes_on(tmp_path: Path) -> None:
    rounds = 0
    is_over = asyncio.Event()

    async def poll(caller: ToolCaller) -> str:
        nonlocal rounds
        rounds += 1
        if rounds == 4 * VAIN_MAX:
            is_over.set()
        return f"still at work, for {rounds} s"

    async with tool_rig(tmp_path, PlainTool("poll", poll), agent=circling("poll")) as found:
        async with asyncio.timeout(SOON_S):
            await is_over.wait()
        ended = await found.ended()

    assert ended.reason == StopReason.STEPS_EXCEEDED
    assert not any(map(warnings, found.agent.requests))
