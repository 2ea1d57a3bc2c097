"""Checks the `Turns` port: a turn that waits for an answer has no owner, and goes on when it is
answered."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from perdure.domain.errors import Conflict, Fenced, NotFound, Rejected
from perdure.domain.ids import QuestionId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    ToolFinished,
    TurnSettled,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, WaitEnded
from perdure.domain.outcomes import Busy, CallEnding, Interruption, NodeRequest, Outcome
from perdure.domain.tools.asking import ALLOW, DENY
from perdure.domain.turn.next_action import RunCalls, TurnFacts, next_action
from perdure.domain.turn.spent import Spent
from perdure.domain.turn.turn import State
from perdure.ports.turns.questions import QuestionReply, QuestionTaken
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    assert_sound,
    claim_one,
    message,
    only,
    question_about,
    said,
    settle,
    tool_call,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
QUESTION = QuestionId("qst_1")
PAY = tool_call("pay")


async def asks(store: Store, ada: Person) -> Claimed:
    """Begin a turn that has asked whether a call may be made."""
    await ada.says("pay the bill")
    claimed = await claim_one(store)
    await store.turns.append(claimed.lease, [said(claimed.lease, "Sure.", calls=(PAY,))])
    await store.turns.wait(claimed.lease, [question_of(claimed)])
    return claimed


def question_of(claimed: Claimed, *, deadline: int = 0) -> AnswerAwaited:
    return question_about(claimed.lease, PAY, question=QUESTION, deadline=deadline)


async def answered(
    store: Store, by: Person, answer: str = ALLOW, *, question: QuestionId = QUESTION
) -> QuestionTaken:
    reply = QuestionReply(question=question, answer=answer, by=by.id)
    return await store.questions.answer(reply)


async def state_of(store: Store, claimed: Claimed) -> str:
    record = await store.diagnostics.record(claimed.lease.session)
    (turn,) = [each for each in record.turns if each.id == claimed.lease.turn]
    return turn.state


async def test_whoever_has_asked_has_no_lease_any_more(store: Store, ada: Person) -> None:
    claimed = await asks(store, ada)

    with pytest.raises(Fenced):
        await settle(store, claimed)
    assert (await state_of(store, claimed)) == State.WAITING
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, claimed.lease.session)


async def test_an_answered_turn_goes_on_with_the_call_and_does_not_ask_the_model(
    store: Store, ada: Person
) -> None:
    claimed = await asks(store, ada)
    behind = await ada.says("and then?")

    taken = await answered(store, ada)

    received, ended = [each.event for each in taken.recorded]
    assert isinstance(received, AnswerReceived)
    assert (received.question, received.answer, received.by) == (QUESTION, ALLOW, ada.id)
    assert isinstance(ended, WaitEnded)
    assert (taken.session, taken.turn) == (claimed.lease.session, claimed.lease.turn)
    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (claimed.lease.turn, 1)
    assert again.telling.interruptions == (), "nobody was interrupted"
    events = [each.event for each in again.events]
    assert next_action(events, TurnFacts()) == RunCalls((PAY,))
    await assert_sound(store, claimed.lease.session)
    await settle(store, again, "Paid.")
    assert (await claim_one(store)).lease.turn == behind.turn


async def test_what_was_spent_until_a_question_is_charged_with_it(
    store: Store, ada: Person
) -> None:
    await ada.says("pay the bill")
    claimed = await claim_one(store)
    spent = Spent(agent="main", usage=Usage(input_tokens=30, model_calls=1), cost=4)

    await store.turns.wait(claimed.lease, [question_of(claimed)], spent=spent)

    told = (await ada.says("/usage")).reply.splitlines()
    assert told[-1] == "You in all: 0 turns, 30 tokens in (0% cached), 0 out, cost 0.000004"
    await answered(store, ada)
    await settle(store, await claim_one(store))
    record = await store.diagnostics.record(claimed.lease.session)
    (settled,) = only(TurnSettled, record.events)
    assert (settled.usage, settled.cost) == (spent.usage, 4)


async def test_only_the_first_answer_counts(peers: list[Store], ada: Person) -> None:
    claimed = await asks(peers[0], ada)

    answers = await asyncio.gather(
        *(answered(each, ada, [ALLOW, DENY][n % 2]) for n, each in enumerate(2 * peers)),
        return_exceptions=True,
    )

    taken = [each for each in answers if not isinstance(each, BaseException)]
    refused = [each for each in answers if isinstance(each, Conflict)]
    assert (len(taken), len(refused)) == (1, 2 * len(peers) - 1)
    assert {each.code for each in refused} <= {"already_answered"}
    record = await peers[0].diagnostics.record(claimed.lease.session)
    (received,) = only(AnswerReceived, record.events)
    told = {each.message for each in refused}
    assert told == {f"already answered: ada said {received.answer}"}
    await assert_sound(peers[0], claimed.lease.session)


async def test_an_answer_to_nothing_is_refused(store: Store, ada: Person) -> None:
    claimed = await asks(store, ada)

    with pytest.raises(NotFound):
        await answered(store, ada, question=QuestionId("qst_2"))
    for nothing in ("", "yes", "denied", "allow ", "Allow"):
        with pytest.raises(Rejected) as refused:
            await answered(store, ada, nothing)
        assert refused.value.code == "no_answer"
    assert (await state_of(store, claimed)) == State.WAITING
    await assert_sound(store, claimed.lease.session)


async def test_no_death_and_no_drain_interrupts_a_turn_that_waits(
    store: Store, ada: Person, restart: OpenStore, clock: VirtualClock
) -> None:
    await ada.says("pay the bill")
    claimed = await claim_one(store)
    await store.turns.append(claimed.lease, [said(claimed.lease, "Sure.", calls=(PAY,))])
    deadline = clock.now_ms() + 60_000
    await store.turns.wait(claimed.lease, [question_of(claimed, deadline=deadline)])
    store = await restart()

    assert only(AttemptInterrupted, await store.nodes.reap(attempts_max=1, limit=10)) == []
    assert (await store.nodes.resume(GO_ON, limit=10)).recorded == []
    with pytest.raises(Fenced):
        await store.turns.interrupt(
            claimed.lease, Interruption.SHUTDOWN, attempts_max=1, asked=NodeRequest.STOP
        )
    assert (await state_of(store, claimed)) == State.WAITING
    clock.advance(60)
    (received,) = only(AnswerReceived, await store.questions.expire(limit=10))
    assert (received.question, received.by, received.reason) == (QUESTION, None, "deadline")
    assert (await claim_one(store)).lease.turn == claimed.lease.turn
    await assert_sound(store, claimed.lease.session)


async def test_a_stop_ends_a_turn_that_waits_and_closes_its_call(store: Store, ada: Person) -> None:
    claimed = await asks(store, ada)

    recorded = await store.inbox.stop(claimed.lease.turn, by=ada.id)

    assert [(e.call, e.ending) for e in only(ToolFinished, recorded)] == [
        (PAY.id, CallEnding.DENIED)
    ]
    assert [each.outcome for each in only(TurnSettled, recorded)] == [Outcome.STOPPED]
    with pytest.raises(Conflict) as refused:
        await answered(store, ada)
    assert refused.value.code == "already_answered"
    await assert_sound(store, claimed.lease.session)


async def test_a_newer_message_replaces_a_turn_that_waits(store: Store, ada: Person) -> None:
    claimed = await asks(store, ada)

    update = message(ada.id, "never mind", external_id="newer")
    update = msgspec.structs.replace(update, busy=Busy.INTERRUPT)
    accepted = await store.inbox.accept(update, queue_max=9)

    assert accepted.ended == (claimed.lease.turn,)
    assert (await claim_one(store)).lease.turn == accepted.turn
    await assert_sound(store, claimed.lease.session)
