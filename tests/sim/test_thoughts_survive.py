"""Strike the gateway at any port call while a model thinks between its tool calls.

The model refuses a request in which a call of the answer under way lacks the thoughts that led to
it, and one in which thoughts of an earlier turn stand. Whatever happens to the gateway, it never
sees such a request, and each turn is answered.
"""

from collections.abc import Sequence

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.model.thoughts import Thought, Thoughts
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import CallBlock, ModelRequest, ResultBlock, ThoughtBlock
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, AgentThoughts, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, World

STEPS = 2
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]


class ThoughtfulAgent:
    """Calls a tool `STEPS` times with other thoughts each time, then answers. `wrong` says what was
    wrong with a request."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def __call__(self, request: ModelRequest) -> Sequence[AgentEvent]:
        blocks = [block for message in request.messages for block in message.blocks]
        calls = [block for block in blocks if isinstance(block, CallBlock)]
        thoughts = [block for block in blocks if isinstance(block, ThoughtBlock)]
        wanted = [thought(call.arguments) for call in calls]
        if [each.body for each in thoughts] != wanted:
            self.wrong.append(f"{len(thoughts)} thoughts come back with {len(calls)} calls")
        if b"thought-" in b"".join(request.history):
            self.wrong.append("the history holds thoughts")
        results = sum(isinstance(block, ResultBlock) for block in blocks)
        if results >= STEPS:
            return [AgentText("That is all."), Stopped(reason=StopReason.STOP)]
        arguments = f'{{"step": {results}}}'
        pieces = (Thought(kind="thinking", body=thought(arguments)),)
        return [
            AgentText("Well. "),
            AgentThoughts(Thoughts(thinker="simulated", pieces=pieces)),
            AgentCall(id="given", name="look", arguments=arguments),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]


def thought(arguments: str) -> str:
    return f'"thought-{arguments.encode().hex()}"'


async def talk(life: Life) -> None:
    life.world.say("hello")
    await life.rest()
    life.world.say("and then?")
    await life.rest()
    life.world.say("/retry")
    await life.rest()


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_parts_a_call_from_its_thoughts(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world: World = await simulator.world()
        model = ThoughtfulAgent()
        world.agent = ScriptedAgent(model)
        records = await world.play([talk], fuse)
        found = [each for record in records for each in violations(record)]
        outcomes = [turn.outcome for record in records for turn in record.turns]
        unanswered = [each for each in outcomes if each != Outcome.DONE]
        return [*found, *model.wrong, *(f"a turn is {each}" for each in unanswered)]

    await simulator.strike(run, nemesis, every=4)
