"""Strikes the gateway at any port call while a model's server refuses a message. However it ends,
the refusal is recorded once, and the next message is answered without what was refused."""

from collections.abc import Sequence

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import ContentLeftOut, TurnSettled
from perdure.domain.outcomes import Refused, StopReason
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent, Stopped
from perdure.testkit.simulator.agent import ScriptedAgent, echo
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import Life, rest

BAD = "a bad thing"
REFUSED = Stopped(
    reason=StopReason.CONTENT_REFUSED,
    detail="the model's server refuses the message: flagged",
    status=400,
    refused=Refused.MESSAGE,
)


def by_policy(request: ModelRequest) -> Sequence[AgentEvent]:
    """Refuse a request with the bad words in it, wherever they are."""
    is_bad = any(BAD.encode() in each for each in request.history) or BAD in repr(request.messages)
    return [REFUSED] if is_bad else echo(request)


async def then_hello(life: Life) -> None:
    """Let the refused turn end, and send another message."""
    await life.rest()
    life.world.say("hello")
    await life.rest()


@pytest.mark.parametrize("nemesis", list(Nemesis))
async def test_no_instant_of_a_refusal_blocks_the_conversation(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        world.agent = ScriptedAgent(by_policy)
        world.say(BAD)
        records = await world.play([rest], fuse, last=then_hello)
        events = [recorded.event for record in records for recorded in record.events]
        ends = [each.reason for each in events if isinstance(each, TurnSettled)]
        left_out = [each for each in events if isinstance(each, ContentLeftOut)]
        answers = [shown.text for shown in world.platform.shown if "echo: hello" in shown.text]
        problems = [each for record in records for each in violations(record)]
        if ends.count(StopReason.CONTENT_REFUSED) != len(left_out):
            problems.append(f"{len(left_out)} refusals were recorded for the ends {ends}")
        return problems if len(answers) == 1 else [*problems, f"answers: {answers}"]

    await simulator.strike(run, nemesis, every=3)
