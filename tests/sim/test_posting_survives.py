"""Checks what an agent sends into another conversation, with a death, a lost answer or a refusal at
every instant: between the call, the question, the answer, the sending and the delivery.

Whatever happens, the text is shown there once if a person has allowed it and never otherwise, and
the agent is told which. Nobody has to wonder whether it was sent.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import ToolFinished, ToolStarted, TurnQueued
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.tools.asking import ALLOW_CALL, DENY_CALL
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.turns.tools import Tools
from perdure.testkit.simulator.agent import ScriptedAgent, echo, said
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import KEY, Life, Setup, World
from perdure.tools.builtin.send import SendTool
from perdure.tools.toolbox import Toolbox

pytestmark = pytest.mark.timeout(100)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
NEWS = "the boat leaves at nine"


def sending(to: str) -> ScriptedAgent:
    """Return an agent that sends the news when somebody says "send"."""

    def rule(request: ModelRequest) -> Sequence[AgentEvent]:
        has_result = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
        if said(request) != "send" or has_result:
            return echo(request)
        arguments = msgspec.json.encode({"to": to, "text": NEWS}).decode()
        return [
            AgentText("One moment. "),
            AgentCall(id="given-by-provider", name="send", arguments=arguments),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]

    return ScriptedAgent(rule)


@asynccontextmanager
async def made(_: Fuse) -> AsyncIterator[Tools]:
    yield Toolbox([SendTool()])


async def world_of(simulator: Simulator, label: str, to: str, *, commits: bool = False) -> World:
    world = await simulator.world(setup=Setup(asks=True, strikes_commits=commits))
    world.platform.can = BUTTONS
    world.make_tools = made
    world.agent = sending(to)
    world.clickers = [("person", label)]
    world.say("hello", place="harbour")  # so the person takes part there
    world.say("send")
    return world


async def talk(life: Life) -> None:
    """Let the agent in the room want to send something."""
    await life.work()


async def go_on(life: Life) -> None:
    await life.rest()


def problems(world: World, records: Sequence[SessionRecord], *, is_allowed: bool) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    facts = [recorded.event for record in records for recorded in record.events]
    found = [each for record in records for each in violations(record)]
    outcomes = {turn.outcome for record in records for turn in record.turns}
    if outcomes != {Outcome.DONE}:
        found.append(f"the turns ended as {outcomes}")
    shown = [(each.place, each.text.strip()) for each in world.platform.visible]
    news = [place for place, text in shown if text == NEWS]
    if news != (["harbour"] if is_allowed else []):
        found.append(f"the news was shown in {news}")
    found += [f"{part} was shown twice" for part in world.platform.repeated()]
    queued = [e for e in facts if isinstance(e, TurnQueued) and e.kind is TurnKind.SENT]
    if len(queued) != is_allowed:
        found.append(f"queued as {queued}")
    ended = [each for each in facts if isinstance(each, ToolFinished)]
    wanted = CallEnding.RETURNED if is_allowed else CallEnding.DENIED
    if [each.ending for each in ended] != [wanted]:
        found.append(f"the call ended as {ended}")
    if sum(isinstance(each, ToolStarted) for each in facts) != is_allowed:
        found.append("the call has begun more or less often than once")
    return found


def on(simulator: Simulator, label: str, *, commits: bool = False) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator, label, "scripted:harbour", commits=commits)
        records = await world.play([talk, go_on], *fuses)
        return problems(world, records, is_allowed=label == ALLOW_CALL)

    return run


@pytest.mark.parametrize("label", [ALLOW_CALL, DENY_CALL])
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_sends_twice_or_unasked_or_leaves_doubt(
    simulator: Simulator, nemesis: Nemesis, label: str
) -> None:
    await simulator.strike(on(simulator, label), nemesis, every=2)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_commit_sends_twice_or_leaves_doubt(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(on(simulator, ALLOW_CALL, commits=True), nemesis, every=2)


@pytest.mark.chaos
async def test_no_two_deaths_send_twice_or_leave_doubt(simulator: Simulator) -> None:
    await simulator.strike_twice(on(simulator, ALLOW_CALL), most=150)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("scripted:cellar", "takes no part in scripted:cellar"),
        ("scripted:room", "is this conversation"),
        ("pigeon:7", "there is no platform 'pigeon' here"),
    ],
)
async def test_nobody_is_asked_about_a_text_that_may_not_be_sent(
    simulator: Simulator, to: str, why: str
) -> None:
    world = await world_of(simulator, ALLOW_CALL, to)
    records = await world.play([talk, go_on])

    facts = [recorded.event for record in records for recorded in record.events]
    (ended,) = [each for each in facts if isinstance(each, ToolFinished)]
    assert ended.ending is CallEnding.FAILED
    assert why in ended.result
    assert not [each for each in world.platform.shown if "May I call" in each.text]
