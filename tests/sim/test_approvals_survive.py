"""Checks approvals with a death, a lost answer, a refusal or a long pause at every instant: between
the question, its delivery, the press of a button, the answer, and the call itself.

Whatever happens, a call runs at most once and only if it was allowed, one answer counts, the turn
ends, and nobody is left with a button that does nothing.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import (
    AnyEvent,
    NoticePosted,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.tools.asking import ALLOW, ALLOW_CALL, ALLOW_SESSION, DENY, DENY_CALL
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.records.history import Page
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import BOSS, KEY, Life, Setup, World, rest

pytestmark = pytest.mark.timeout(100)
ASKING = Setup(asks=True)
BUTTONS = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
HOUR_S = 3_600
Clickers = Sequence[tuple[str, str]]
ONE: dict[str, Clickers] = {
    "allow": [("person", ALLOW_CALL)],
    "allow in this session": [("person", ALLOW_SESSION)],
    "deny": [("person", DENY_CALL)],
    "nobody": [],
}
TWO: dict[str, Clickers] = {
    "allow and deny": [("person", ALLOW_CALL), (BOSS, DENY_CALL)],
    "deny and allow": [("person", DENY_CALL), (BOSS, ALLOW_CALL)],
    "a stranger allows": [("stranger", ALLOW_CALL), ("person", DENY_CALL)],
    "only a stranger": [("stranger", ALLOW_CALL)],
}


async def ask(life: Life) -> None:
    """Let the agent want to call the tool, and let people be asked."""
    await life.work()


async def click(life: Life) -> None:
    """Let people press, and let everything go on. Whoever sees no button waits for the deadline."""
    await life.rest()


async def world_of(simulator: Simulator, clickers: Clickers, setup: Setup = ASKING) -> World:
    world = await simulator.world(setup=setup)
    world.platform.can = BUTTONS
    world.clickers = list(clickers)
    world.say("tool pay")
    return world


def facts_in(records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [recorded.event for record in records for recorded in record.events]


def of(kind: type[AnyEvent], records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [event for event in facts_in(records) if isinstance(event, kind)]


def problems(world: World, records: Sequence[SessionRecord], clickers: Clickers) -> list[str]:
    """Return what must not be, after everything has come to rest."""
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    found += _of_the_call(world, records)
    found += _of_the_answer(records, clickers)
    found += _of_what_people_see(world, records)
    return found


def _of_the_call(world: World, records: Sequence[SessionRecord]) -> list[str]:
    answers = [each for each in facts_in(records) if isinstance(each, AnswerReceived)]
    is_allowed = any(each.answer == ALLOW for each in answers)
    found = [f"{call} ran {n} times" for call, n in Counter(world.tools_ran).items() if n > 1]
    if len(world.tools_ran) > 1:
        found.append(f"more than one call ran: {world.tools_ran}")
    if world.tools_ran and not is_allowed:
        found.append("the call ran, and nobody had allowed it")
    began = [each for each in facts_in(records) if isinstance(each, ToolStarted)]
    if world.tools_ran and [each.call for each in began] != world.tools_ran:
        found.append(f"{world.tools_ran} ran, the journal says {began}")
    endings = [each.ending for each in facts_in(records) if isinstance(each, ToolFinished)]
    if not is_allowed and endings != [CallEnding.DENIED]:
        found.append(f"nobody has allowed it, and it ended as {endings}")
    if is_allowed and endings not in ([CallEnding.RETURNED], [CallEnding.UNKNOWN]):
        found.append(f"it was allowed, and ended as {endings}")
    if is_allowed and endings == [CallEnding.RETURNED] and not world.tools_ran:
        found.append("it returned without having run")
    return found


def _of_the_answer(records: Sequence[SessionRecord], clickers: Clickers) -> list[str]:
    asked = [each for each in facts_in(records) if isinstance(each, AnswerAwaited)]
    answers = [each for each in facts_in(records) if isinstance(each, AnswerReceived)]
    found = []
    if len(asked) != 1 or len(answers) != 1:
        return [f"asked as {asked}, answered as {answers}"]
    may = {label for who, label in clickers if who != "stranger"}
    said = {ALLOW_CALL: ALLOW, ALLOW_SESSION: ALLOW, DENY_CALL: DENY}
    wanted = {said[label] for label in may} or {""}
    if answers[0].answer not in wanted:
        found.append(f"the answer is {answers[0]}, people wanted {wanted}")
    if not may and answers[0].reason != "deadline":
        found.append(f"nobody may answer, and the wait ended as {answers[0]}")
    return found


def _of_what_people_see(world: World, records: Sequence[SessionRecord]) -> list[str]:
    found = [
        f"a button is left under {shown.text!r}"
        for shown in world.platform.visible
        if shown.choices and shown.question
    ]
    found += [f"{part} was shown twice" for part in world.platform.repeated()]
    asking = [shown for shown in world.platform.visible if "May I call" in shown.text]
    if len(asking) > 1:
        found.append(f"people were asked {len(asking)} times")
    notices = [each for each in facts_in(records) if isinstance(each, NoticePosted)]
    if sum(each.question is not None for each in notices) != 1:
        found.append(f"the notices are {notices}")
    return found


def on(simulator: Simulator, clickers: Clickers, setup: Setup = ASKING) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator, clickers, setup)
        records = await world.play([ask, click], *fuses)
        return problems(world, records, clickers)

    return run


@pytest.mark.parametrize("who", ONE)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_runs_a_call_twice_or_unasked(
    simulator: Simulator, nemesis: Nemesis, who: str
) -> None:
    await simulator.strike(on(simulator, ONE[who]), nemesis, every=2)


@pytest.mark.parametrize("who", TWO)
@pytest.mark.parametrize("nemesis", NEMESES)
async def test_of_two_who_press_one_is_heard(
    simulator: Simulator, nemesis: Nemesis, who: str
) -> None:
    await simulator.strike(on(simulator, TWO[who]), nemesis, every=3)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_commit_runs_a_call_twice_or_unasked(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    # The fuse is in the driver: it strikes before and after each commit.
    setup = msgspec.structs.replace(ASKING, strikes_commits=True)
    await simulator.strike(on(simulator, TWO["allow and deny"], setup), nemesis, every=2)


@pytest.mark.parametrize("nemesis", [*NEMESES, Nemesis.PAUSE])
async def test_no_instant_runs_a_call_twice_or_unasked_on_postgres(
    simulator_on_postgres: Simulator, nemesis: Nemesis
) -> None:
    # While a process stands still, another one takes over all that it was doing.
    async def run(fuse: Fuse) -> list[str]:
        clickers = TWO["allow and deny"]
        world = await world_of(simulator_on_postgres, clickers)

        async def take_over() -> None:
            await world.take_over()

        fuse.meanwhile = take_over
        records = await world.play([ask, click], fuse)
        return problems(world, records, clickers)

    await simulator_on_postgres.strike(run, nemesis, every=6)


@pytest.mark.chaos
@pytest.mark.parametrize("who", [*ONE, *TWO])
async def test_no_two_deaths_run_a_call_twice_or_unasked(simulator: Simulator, who: str) -> None:
    await simulator.strike_twice(on(simulator, (ONE | TWO)[who]), most=150)


# Deadlines.


async def wait_past_the_deadline(life: Life) -> None:
    """Let the time of the question pass, and only then let people press."""
    life.world.clock.advance(HOUR_S)
    life.world.answer()
    await life.rest()


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY])
async def test_a_deadline_that_passes_first_is_the_verdict_for_everybody(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await world_of(simulator, ONE["allow"])
        records = await world.play([ask, wait_past_the_deadline], fuse)
        found = problems(world, records, ONE["allow"])
        answers = [each for each in facts_in(records) if isinstance(each, AnswerReceived)]
        if not fuse.has_struck and [each.reason for each in answers] != ["deadline"]:
            found.append(f"the deadline passed first, and the answer is {answers}")
        # A death may come before the question does, and then it is asked after the pause.
        return [each for each in found if "people wanted" not in each]

    await simulator.strike(run, nemesis, every=2)


@pytest.mark.parametrize("who", ["allow", "deny"])
async def test_a_deadline_may_pass_at_any_instant(simulator: Simulator, who: str) -> None:
    # The process stands still at that point until the question's time is over.
    async def run(fuse: Fuse) -> list[str]:
        world = await world_of(simulator, ONE[who])

        async def pass_time() -> None:
            world.clock.stand_still(HOUR_S)

        fuse.meanwhile = pass_time
        records = await world.play([ask, click], fuse)
        found = problems(world, records, ONE[who])
        return [each for each in found if "people wanted" not in each]

    await simulator.strike(run, Nemesis.PAUSE, every=2)


# Grants.


async def ask_twice(life: Life) -> None:
    await life.rest()
    life.world.say("tool pay")
    await life.rest()


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_what_was_granted_for_the_session_is_not_asked_again(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await world_of(simulator, ONE["allow in this session"])
        records = await world.play([ask_twice], fuse)
        found = [each for record in records for each in violations(record)]
        if len(set(world.tools_ran)) < len(world.tools_ran):
            found.append(f"a call ran twice: {world.tools_ran}")
        turns = [turn for record in records for turn in record.turns]
        if [turn.outcome for turn in turns] != [Outcome.DONE] * len(turns):
            found.append(f"the turns are {turns}")
        asked = of(AnswerAwaited, records)
        if len(asked) != 1:
            found.append(f"people were asked {len(asked)} times")
        return found

    await simulator.strike(run, nemesis, every=4)


# A tool that kills its host.


def stubborn(request: ModelRequest) -> list[AgentEvent]:
    """Ask for the same call again when its effect is unknown, and give up when it is denied."""
    results = [b for m in request.messages for b in m.blocks if isinstance(b, ResultBlock)]
    if len(results) < 2:
        return [
            AgentCall(id="given", name="pay", arguments='{"to": "ada"}'),
            Stopped(reason=StopReason.TOOL_CALLS),
        ]
    return [AgentText("I do not know whether it was paid."), Stopped(reason=StopReason.STOP)]


LIVES = 20


async def test_a_tool_that_kills_its_host_runs_once_and_is_asked_about_once_more(
    simulator: Simulator,
) -> None:
    world = await world_of(
        simulator, ONE["allow"], Setup(asks=True, recovery=Policy(attempts_max=LIVES))
    )
    world.agent = ScriptedAgent(stubborn)
    alive: list[Life] = []

    def kill() -> None:
        alive[-1].kill()

    world.when_called = kill

    async def go_on(life: Life) -> None:
        alive.append(life)
        await life.work()
        if len(alive) == 2:  # the person allows the call once, and is silent about it later
            world.answer()
            world.clickers = []
            await life.work()

    for _ in range(LIVES):
        await world.live(go_on)

    async def look(life: Life) -> None:
        alive.append(life)
        (unknown,) = await life.store.effects.page(Page(limit=9), principal=None)
        assert (unknown.call, unknown.state) == (world.tools_ran[0], "unknown")

    await world.live(look)
    assert len(world.tools_ran) == 1
    asking = [shown for shown in world.platform.visible if "May I call" in shown.text]
    assert len(asking) == 2, "once before it ran, and once because the agent wants it again"
    assert [bool(shown.choices) for shown in asking] == [False, True]
    assert "may have happened already" in asking[1].text
    assert ALLOW_SESSION not in asking[1].choices, "nobody grants what may have happened"

    records = await world.tell(rest)

    assert len(world.tools_ran) == 1
    assert [each for record in records for each in violations(record)] == []
    assert [turn.outcome for record in records for turn in record.turns] == [Outcome.DONE]
    endings = [each.ending for each in of(ToolFinished, records) if isinstance(each, ToolFinished)]
    assert endings == [CallEnding.UNKNOWN, CallEnding.DENIED]
    notices = [each for each in of(NoticePosted, records) if isinstance(each, NoticePosted)]
    assert len([each for each in notices if each.question is None]) <= 1, "one notice of the crash"
