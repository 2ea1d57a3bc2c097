"""Checks approvals on random walks: people write, steer, stop, approve and deny, deadlines pass,
and processes die anywhere and begin again.

A small model remembers what people have said about each question, and which grants there were. A
call may run only with a reason that the model knows, and never twice. What somebody was told counts
must be what the journal says for ever. At the end nobody says anything more, so every deadline
passes, and everything must come to rest.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import CallId, GrantId, PrincipalId, QuestionId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.journal.events import (
    AssistantSaid,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, EffectMarked
from perdure.domain.journal.records import SessionRecord
from perdure.domain.outcomes import Busy, CallEnding, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.tools.asking import ALLOW, DENY
from perdure.domain.tools.grants import Scope
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.records.history import Page
from perdure.ports.turns.questions import QuestionReply
from perdure.testkit.simulator.agent import ScriptedAgent, said
from perdure.testkit.simulator.crash import Fuse
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import BOSS, KEY, Life, Setup, World, patiently

pytestmark = pytest.mark.timeout(100)
SETUP: Final = Setup(asks=True, recovery=Policy(freshness_ms=0, attempts_max=50))
BUTTONS: Final = msgspec.structs.replace(KEY, choices_max=3, can_edit=True)
ALL: Final = Page(limit=1_000)
PEOPLE: Final = ["person", "person", BOSS, "stranger"]
WORDS: Final = ["hello", "tool pay", "tool pay", "tool save", "tool pay mail", "tool peek pay save"]
COMMANDS: Final = ["/stop", "/undo", "/retry", "/approve", "/deny", "/approve session", "/new"]
PLACES: Final = ["room", "garden"]
# How many points a process passes before it dies, if it does.
POINTS_MAX: Final = 60
STEPS_OF_A_LIFE: Final = 6
TOLD_MAX: Final = 60
HOURS_MAX: Final = 200


def obliging(request: ModelRequest) -> Sequence[AgentEvent]:
    """Call the tools that a message names, and answer once they have returned."""
    words = said(request).split()
    has_results = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
    if words[:1] == ["tool"] and not has_results:
        calls = [AgentCall(id="given", name=name, arguments="{}") for name in words[1:]]
        return [AgentText("Let me see. "), *calls, Stopped(reason=StopReason.TOOL_CALLS)]
    return [AgentText("Very well."), Stopped(reason=StopReason.STOP)]


class Model:
    """Remembers what people have said, and says what must hold."""

    def __init__(self) -> None:
        self.pressed: dict[QuestionId, set[tuple[PrincipalId, str]]] = {}
        self.taken: dict[QuestionId, str] = {}
        self.grants: set[str] = set()
        self.people: dict[str, PrincipalId] = {}
        self.has_commands = False  # /approve and /deny do not name the question

    def says(self, who: PrincipalId, question: QuestionId, answer: str) -> None:
        self.pressed.setdefault(question, set()).add((who, answer))

    def broken(self, world: World, records: Sequence[SessionRecord]) -> list[str]:
        """Return what must not be, at any moment."""
        found = [each for record in records for each in violations(record)]
        found += [f"{c} ran {n} times" for c, n in Counter(world.tools_ran).items() if n > 1]
        for record in records:
            found += self._of_answers(record)
            found += self._of_calls(world, record)
        told = Counter(
            each.call for record in records for each in only(EffectMarked, record.events)
        )
        found += [f"{call} was told {n} times" for call, n in told.items() if n > 1]
        return found

    def _of_answers(self, record: SessionRecord) -> list[str]:
        found = []
        for each in only(AnswerReceived, record.events):
            taken = self.taken.get(each.question, each.answer)
            if each.answer != taken:
                found.append(f"{each.question}: {taken} was taken, the journal says {each.answer}")
            given = self.pressed.get(each.question, set())
            if each.by is not None and (each.by, each.answer) not in given:
                by_command = self.has_commands and each.by == self.people["person"]
                found += [] if by_command else [f"{each} was never given"]
            if each.by == self.people.get("stranger"):
                found.append(f"{each} is a stranger's")
        return found

    def _of_calls(self, world: World, record: SessionRecord) -> list[str]:
        about = {each.question: each.call for each in only(AnswerAwaited, record.events)}
        allowed = {
            each.question
            for each in only(AnswerReceived, record.events)
            if each.answer == ALLOW and each.by is not None
        }
        names = {
            call.id: call.name for each in only(AssistantSaid, record.events) for call in each.calls
        }
        began = {each.call: each.why for each in only(ToolStarted, record.events)}
        found = []
        for call, why in began.items():
            if not self._is_reason(why, call, names[call], about, allowed):
                found.append(f"{names[call]} {call} began because of {why!r}")
        denied = [
            each.call
            for each in only(ToolFinished, record.events)
            if each.ending is CallEnding.DENIED and each.call in world.tools_ran
        ]
        found += [f"{call} was denied, and ran" for call in denied]
        ran = {call for call in names if call in world.tools_ran}
        return found + [f"{call} ran, and never began" for call in ran - began.keys()]

    def _is_reason(
        self,
        why: str,
        call: CallId,
        name: str,
        about: dict[QuestionId, CallId | None],
        allowed: set[QuestionId],
    ) -> bool:
        if name == "peek":
            return why == "policy"
        is_grant = why in self.grants
        return is_grant or (QuestionId(why) in allowed and about.get(QuestionId(why)) == call)


class ApprovalWalk:
    """Lets people and processes do one thing after another."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.model = Model()
        self.story: list[str] = []
        self._dice = dice

    async def go(self, steps: int) -> None:
        """Take the steps in as many lives as it takes, come to rest, and check everything."""
        try:
            while steps > 0:
                taken = min(steps, self._dice.randint(1, STEPS_OF_A_LIFE))
                steps -= taken
                await self._live(taken)
            await self.world.tell(self._end)
        except BaseException as error:
            error.add_note("the steps until then:\n" + "\n".join(self.story[-TOLD_MAX:]))
            raise

    async def _live(self, steps: int) -> None:
        """Take some steps in one process. Half of the processes die somewhere in them."""
        point = self._dice.randint(0, POINTS_MAX) if self._dice.random() < 0.5 else None
        fuse = Fuse(point)

        async def act(life: Life) -> None:
            self.model.people = life.people
            for _ in range(steps):
                # Before time passes or a grant is taken back, and before anything is checked.
                await self._know_grants(life)
                await self._step(life)
                await self._know_grants(life)
                self._check(await life.records())

        await self.world.live(act, fuse)
        self._tell(f"the process dies: {fuse.struck}" if fuse.is_dead else "the process ends")

    async def _step(self, life: Life) -> None:
        steps: list[tuple[int, Callable[[Life], Awaitable[None]]]] = [
            (6, self._say),
            (2, self._steer),
            (10, self._work),
            (6, self._press),
            (4, self._answer),
            (3, self._command),
            (2, self._stop),
            (3, self._pass_time),
            (2, self._revoke),
            (2, self._mark),
        ]
        (step,) = self._dice.choices([each for _, each in steps], [n for n, _ in steps])
        await step(life)

    def _tell(self, what: str) -> None:
        self.story.append(what)

    def _check(self, records: Sequence[SessionRecord]) -> None:
        found = self.model.broken(self.world, records)
        assert not found, found

    async def _say(self, life: Life) -> None:
        text, place = self._dice.choice(WORDS), self._dice.choice(PLACES)
        busy = self._dice.choice([Busy.QUEUE, Busy.QUEUE, Busy.INTERRUPT])
        self._tell(f"{text!r} in the {place}, {busy}")
        self.world.say(text, place=place, busy=busy)

    async def _steer(self, life: Life) -> None:
        text, place = self._dice.choice(WORDS), self._dice.choice(PLACES)
        self._tell(f"{text!r} to what runs in the {place}")
        self.world.say(text, place=place, busy=Busy.STEER)

    async def _command(self, life: Life) -> None:
        text, place = self._dice.choice(COMMANDS), self._dice.choice(PLACES)
        self._tell(f"{text} in the {place}")
        self.model.has_commands = True
        self.world.say(text, place=place)

    async def _work(self, life: Life) -> None:
        self._tell("work")
        await life.work()

    async def _press(self, life: Life) -> None:
        """Press a button that was ever shown, which may be gone by now."""
        shown = [each for each in self.world.platform.edits if each.choices and each.question]
        if not shown:
            return
        message, who = self._dice.choice(shown), self._dice.choice(PEOPLE)
        choice = self._dice.randrange(len(message.choices))
        question, label = QuestionId(message.question or ""), message.choices[choice]
        self.model.says(self._id_of(life, who), question, DENY if label == "Deny" else ALLOW)
        self._tell(f"{who} presses {label} under {question}")
        press = Press(question=question, choice=choice)
        update = f"u{len(self.world.platform.sent) + 1}"
        self.world.platform.press_button(update, message.place, press, by=who)

    async def _answer(self, life: Life) -> None:
        """Answer on the page, where also longer grants are given."""
        asked = await life.store.questions.page(ALL, principal=None, is_pending=False)
        if not asked:
            return
        question, name = self._dice.choice(asked[-4:]), self._dice.choice(PEOPLE)
        answer, scope = self._dice.choice([ALLOW, ALLOW, DENY]), self._dice.choice(list(Scope))
        who = self._id_of(life, name)
        reply = QuestionReply(
            question=question.id, answer=answer, by=who, scope=scope, for_ms=3_000_000
        )
        self.model.says(who, question.id, answer)
        try:
            taken = await patiently(partial(life.store.questions.answer, reply))
        except (Conflict, Rejected) as error:
            self._tell(f"{name} cannot answer {question.id}: {error.code}")
            return
        if "too late" not in taken.told:
            assert question.id not in self.model.taken, "two answers were taken"
            self.model.taken[question.id] = answer
        self._tell(f"{name} answers {question.id}: {answer} for {scope}: {taken.told}")

    async def _stop(self, life: Life) -> None:
        turns = [turn for each in await life.records() for turn in each.turns if not turn.outcome]
        if turns:
            turn = self._dice.choice(turns)
            self._tell(f"stop {turn.id}")
            try:
                await patiently(partial(life.parts.door.stop, turn.id, by=life.person))
            except Conflict:
                return

    async def _pass_time(self, life: Life) -> None:
        seconds = self._dice.choice([1, 400, 1_800, 3_600])
        self._tell(f"{seconds} s pass")
        self.world.clock.advance(seconds)

    async def _revoke(self, life: Life) -> None:
        held = await life.store.grants.page(ALL, principal=None)
        if held:
            grant = self._dice.choice(held).id
            self._tell(f"{grant} is taken back")
            try:
                await patiently(partial(life.store.grants.revoke, GrantId(grant), principal=None))
            except NotFound:
                return

    async def _mark(self, life: Life) -> None:
        known = await life.store.effects.page(ALL, principal=None)
        if known:
            call, has_happened = self._dice.choice(known).call, self._dice.random() < 0.5
            mark = partial(life.store.effects.mark, call, by=life.person, principal=None)
            try:
                await patiently(partial(mark, has_happened=has_happened))
            except Conflict:
                return
            self._tell(f"{call} has {'' if has_happened else 'not '}happened")

    async def _know_grants(self, life: Life) -> None:
        held = await life.store.grants.page(ALL, principal=None)
        self.model.grants.update(each.id for each in held)

    def _id_of(self, life: Life, name: str) -> PrincipalId:
        return life.people[name]

    async def _end(self, life: Life) -> None:
        """Come to rest without another word, and check everything. Every turn in a line may wait
        for an hour."""
        for _ in range(HOURS_MAX):
            await life.work()
            if not await life.store.questions.page(ALL, principal=None):
                break
            self.world.clock.advance(3_600)
        await life.rest()
        await self._know_grants(life)
        records = await life.records()
        self._check(records)
        open_turns = [turn.id for each in records for turn in each.turns if turn.outcome is None]
        assert open_turns == []
        assert await life.store.questions.page(ALL, principal=None) == []
        visible = self.world.platform.visible
        assert [each.text for each in visible if each.choices and each.question] == []
        assert self.world.platform.repeated() == []


async def walk(simulator: Simulator, seed: int, steps: int) -> None:
    world = await simulator.world(setup=SETUP)
    world.platform.can = BUTTONS
    world.agent = ScriptedAgent(obliging)
    # They are let in, and press where the walk says so.
    world.clickers = [(name, "") for name in (BOSS, "stranger")]
    await ApprovalWalk(world, random.Random(seed)).go(steps)


@pytest.mark.parametrize("number", range(4))
async def test_every_walk_of_approvals_keeps_to_what_people_said(
    simulator: Simulator, seed: int, number: int
) -> None:
    await walk(simulator, seed, 40)


async def test_a_walk_of_approvals_keeps_to_what_people_said_on_postgres(
    simulator_on_postgres: Simulator, seed: int
) -> None:
    await walk(simulator_on_postgres, seed, 20)


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(25))
async def test_every_long_walk_of_approvals_keeps_to_what_people_said(
    simulator: Simulator, seed: int, number: int
) -> None:
    await walk(simulator, seed, 300)
