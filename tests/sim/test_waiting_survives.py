"""Checks a turn that waits for an answer, with a death, a lost answer or a refusal at every
instant."""

from functools import partial

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.errors import Conflict, Fenced, NotFound
from perdure.domain.ids import CallId, MessageId, QuestionId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import (
    AssistantSaid,
    ToolCall,
    ToolFinished,
)
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding, Outcome, Repeat
from perdure.domain.tools.asking import ALLOW
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Permission, frozen_digest
from perdure.domain.turn.spent import NOTHING_SPENT
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.turns.flusher import Flusher
from perdure.engine.turns.ledger import Ledger
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.questions import QuestionReply
from perdure.ports.turns.turns import Claimed
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.stores import question_about
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, World, patiently, rest

pytestmark = pytest.mark.timeout(100)
LOOK = ToolCall(id=CallId("call_1"), name="look", arguments="{}", repeat=Repeat.ONCE)
QUESTION = QuestionId("qst_1")


def question(claimed: Claimed) -> AnswerAwaited:
    """Return the question whether the call may run, frozen as the engine freezes it."""
    traits = CallTraits(
        names=(LOOK.name,),
        repeat=LOOK.repeat,
        permission=Permission.OWN,
        definition=LOOK.name,
    )
    digest = frozen_digest(LOOK.name, LOOK.arguments, traits, NOTHING_AHEAD)
    asked = question_about(claimed.lease, LOOK, question=QUESTION)
    return msgspec.structs.replace(asked, digest=digest)


async def accept(life: Life) -> None:
    """Take the person's message, which may have been taken before."""
    update = Update(
        address=Address(adapter=PLATFORM, account="bot", place="room"),
        external_id="m1",
        kind=UpdateKind.MESSAGE,
        principal=life.person,
        text="tool look",
    )
    await patiently(partial(life.store.inbox.accept, update, queue_max=9))


async def ask(life: Life) -> None:
    """Do what a runner does whose policy asks a person before a call."""
    await accept(life)
    for claimed in await patiently(partial(life.store.turns.claim, limit=1)):
        turns, clock = life.store.turns, life.world.clock
        start, heartbeat = Supervisor().start, Heartbeat(clock)
        ledger = Ledger(
            claimed,
            turns=turns,
            room=life.store.room,
            conversations=life.store.conversations,
            flusher=Flusher(turns, clock=clock, start=start, heartbeat=heartbeat),
            feed=Feed(),
            clock=clock,
        )
        said = AssistantSaid(
            turn=claimed.lease.turn,
            attempt=claimed.lease.attempt,
            message=MessageId("msg_said"),
            text="Let me look.",
            calls=(LOOK,),
        )
        try:
            await ledger.append([said])
            await ledger.wait([question(claimed)], spent=NOTHING_SPENT)
        except Fenced:
            return  # the write had taken effect, and its answer was lost


async def answer(life: Life) -> None:
    """Let somebody answer twice, and then everything go on. A person who got no reply writes
    again."""
    await accept(life)
    reply = QuestionReply(question=QUESTION, answer=ALLOW, by=life.person)
    for _ in range(2):
        try:
            await patiently(partial(life.store.questions.answer, reply))
        except (Conflict, NotFound):
            continue
    await life.rest()


def problems(world: World, records: list[SessionRecord]) -> list[str]:
    found = [each for record in records for each in violations(record)]
    turns = [turn for record in records for turn in record.turns]
    if [turn.outcome for turn in turns] != [Outcome.DONE]:
        found.append(f"the turn is {turns}")
    # A call that had begun when the process died is not run again: its effect is unknown.
    events = [recorded.event for record in records for recorded in record.events]
    results = [event.ending for event in events if isinstance(event, ToolFinished)]
    if len(world.tools_ran) > 1 or (not world.tools_ran and results != [CallEnding.UNKNOWN]):
        found.append(f"the tools ran as {world.tools_ran}, and ended as {results}")
    return found


@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE])
async def test_no_instant_loses_the_question_or_repeats_the_call(
    nemesis: Nemesis, simulator: Simulator
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        world = await simulator.world()
        records = await world.play([ask, answer], fuse, last=answer)
        return problems(world, records)

    await simulator.strike(run, nemesis, every=2)


async def test_the_model_is_asked_once_where_nobody_dies(simulator: Simulator) -> None:
    # The answer must lead the turn back to its call, and not to the model.
    world = await simulator.world()
    records = await world.play([ask, answer], last=rest)

    assert problems(world, records) == []
    assert len(world.agent.requests) == 1
