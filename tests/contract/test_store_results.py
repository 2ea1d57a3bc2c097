"""Checks that the result of a background request is said, whatever happens to the turn that brings
it."""

import msgspec
import pytest

from perdure.domain.address import HTTP
from perdure.domain.ids import MessageId
from perdure.domain.journal.events import AssistantSaid, TurnQueued, TurnSettled
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Busy, Interruption, Outcome, StopReason
from perdure.domain.people.menu import Menu
from perdure.domain.turn.endings import SILENT
from perdure.domain.turn.recovery import Policy, Resume
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, Person, assert_sound, message, only, settle


def queued(claimed: Claimed) -> TurnQueued:
    first = claimed.events[0].event
    assert isinstance(first, TurnQueued)
    return first


async def _brought(store: Store, ada: Person, *, adapter: str = HTTP) -> Claimed:
    """Return a result that is claimed and not yet said."""
    asked = message(ada.id, "/background count the stars", external_id="b", adapter=adapter)
    await store.inbox.accept(asked, queue_max=9)
    (errand,) = await store.turns.claim(limit=9)
    await settle(store, errand, "seven")
    (result,) = await store.turns.claim(limit=9)
    assert queued(result).kind == TurnKind.RESULT
    return result


async def _next_answers(store: Store) -> list[str]:
    """Return the answers of all results that can still be said, in their order."""
    answers = []
    while claimed := await store.turns.claim(limit=1):
        answers.append(queued(claimed[0]).answer)
        await settle(store, claimed[0], "said")
    return answers


@pytest.mark.parametrize("finish", [StopReason.LENGTH, StopReason.CONTENT_FILTER])
async def test_a_result_ends_as_its_errand_has_ended(
    store: Store, ada: Person, finish: StopReason
) -> None:
    # So the result is marked like any other answer, and one that was cut off can be continued.
    await store.inbox.accept(message(ada.id, "/background count", external_id="b"), queue_max=9)
    (errand,) = await store.turns.claim(limit=9)
    settlement = Settlement(
        outcome=Outcome.DONE, reason=finish, message=MessageId("msg_errand"), text="six, sev"
    )
    await store.turns.settle(errand.lease, settlement)

    (result,) = await store.turns.claim(limit=9)
    assert queued(result).finish == finish


async def test_a_result_without_a_word_says_so(store: Store, ada: Person) -> None:
    await store.inbox.accept(message(ada.id, "/background count", external_id="b"), queue_max=9)
    (errand,) = await store.turns.claim(limit=9)
    await store.turns.settle(errand.lease, Settlement(outcome=Outcome.DONE, reason=StopReason.STOP))

    (result,) = await store.turns.claim(limit=9)
    assert queued(result).answer == f"In the background: count\n\n{SILENT}"


async def test_a_result_is_said_while_an_interrupted_turn_waits_for_its_people(
    store: Store, ada: Person
) -> None:
    # The interrupted turn may wait for ever. When it does go on, it goes on where it was.
    cut = await ada.says("dig")
    (claimed,) = await store.turns.claim(limit=9)
    await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)
    result = await _brought(store, ada)
    await assert_sound(store, cut.session)
    await settle(store, result, "said")
    await assert_sound(store, cut.session)

    await store.nodes.resume(GO_ON, limit=9)
    (resumed,) = await store.turns.claim(limit=9)
    assert (resumed.lease.turn, resumed.lease.attempt) == (cut.turn, 2)
    await settle(store, resumed, "dug")
    await assert_sound(store, cut.session)


async def test_a_result_is_said_when_the_turn_that_it_waits_for_is_interrupted(
    store: Store, ada: Person
) -> None:
    # The result came while that turn was at work.
    asked = message(ada.id, "/background count the stars", external_id="b")
    await store.inbox.accept(asked, queue_max=9)
    (errand,) = await store.turns.claim(limit=9)
    cut = await ada.says("dig")
    (claimed,) = await store.turns.claim(limit=9)
    await settle(store, errand, "seven")
    assert await store.turns.claim(limit=9) == []

    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=3)

    await assert_sound(store, cut.session)
    (result,) = await store.turns.claim(limit=9)
    assert queued(result).kind == TurnKind.RESULT
    await settle(store, result, "said")
    await assert_sound(store, cut.session)


async def test_a_begun_result_is_said_when_the_turn_before_it_is_given_up(
    store: Store, ada: Person
) -> None:
    # The result began while that turn was interrupted, and both were resumed. Then the session of
    # both is left.
    cut = await ada.says("dig")
    (digging,) = await store.turns.claim(limit=9)
    await store.turns.interrupt(digging.lease, Interruption.SHUTDOWN, attempts_max=3)
    result = await _brought(store, ada)
    await store.turns.interrupt(result.lease, Interruption.SHUTDOWN, attempts_max=3)
    await store.nodes.resume(GO_ON, limit=9)
    (digging,) = await store.turns.claim(limit=9)
    assert digging.lease.turn == cut.turn
    behind = await ada.says("and then?")

    await store.turns.interrupt(digging.lease, Interruption.CRASH, attempts_max=1)

    record = await store.diagnostics.record(cut.session)
    assert (record.session.state, record.head) == ("suspended", cut.turn)
    await assert_sound(store, cut.session)
    (answered,) = await store.turns.claim(limit=9)
    assert answered.lease.turn == behind.turn
    await settle(store, answered)
    assert await _next_answers(store) == [queued(result).answer]
    await assert_sound(store, cut.session, answered.lease.session)


@pytest.mark.parametrize("said", ["hello", "/undo", "/retry", "/redo"])
async def test_a_result_is_said_whatever_ends_the_interrupted_turn_meanwhile(
    store: Store, ada: Person, said: str
) -> None:
    # Otherwise the result would be at work for ever, and everything behind it would wait.
    await ada.is_answered("one", "fine")
    cut = await ada.says("dig")
    (claimed,) = await store.turns.claim(limit=9)
    await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)
    result = await _brought(store, ada)
    menu = Menu(recovery=Policy(resume=Resume.WAIT))
    update = message(ada.id, said, external_id="m")

    accepted = await store.inbox.accept(update, queue_max=9, menu=menu)

    assert accepted.ended == (cut.turn,)
    await settle(store, result, "said")
    await assert_sound(store, cut.session)
    await _next_answers(store)
    assert (await store.diagnostics.counts()).running == 0


async def test_a_message_that_supersedes_a_result_does_not_lose_it(
    store: Store, ada: Person
) -> None:
    result = await _brought(store, ada)
    update = msgspec.structs.replace(message(ada.id, "hello", external_id="m"), busy=Busy.INTERRUPT)
    accepted = await store.inbox.accept(update, queue_max=9)

    assert accepted.ended == (result.lease.turn,)
    assert await _next_answers(store) == ["", queued(result).answer]


async def test_an_interrupted_result_is_not_lost_either(store: Store, ada: Person) -> None:
    result = await _brought(store, ada)
    await store.turns.interrupt(result.lease, Interruption.SHUTDOWN, attempts_max=3)
    accepted = await store.inbox.accept(message(ada.id, "hello", external_id="m"), queue_max=9)
    await store.nodes.resume(GO_ON, limit=9)

    assert accepted.ended == ()
    assert await _next_answers(store) == [queued(result).answer, ""]


@pytest.mark.parametrize("adapter", [HTTP, "chat"])
async def test_a_result_that_was_interrupted_too_often_is_said_all_the_same(
    store: Store, ada: Person, adapter: str
) -> None:
    # No model is asked for a result, so it cannot be what crashes the gateway.
    result = await _brought(store, ada, adapter=adapter)
    waiting = message(ada.id, "hello", external_id="m", adapter=adapter)
    await store.inbox.accept(waiting, queue_max=9)
    answer = queued(result).answer

    recorded = await store.turns.interrupt(result.lease, Interruption.CRASH, attempts_max=1)

    assert [event.text for event in only(AssistantSaid, recorded)] == [answer]
    assert [event.outcome for event in only(TurnSettled, recorded)] == [Outcome.DONE]
    record = await store.diagnostics.record(result.lease.session)
    assert (record.session.state, record.head) == ("open", result.lease.turn)
    told = [part.text for part in record.parts if part.turn == result.lease.turn]
    assert told == ([] if adapter == HTTP else [answer])
    assert await _next_answers(store) == [""]
    await assert_sound(store, result.lease.session)


async def test_a_background_request_wakes_a_suspended_conversation(
    store: Store, ada: Person
) -> None:
    first = message(ada.id, "one", external_id="1", adapter="chat")
    await store.inbox.accept(first, queue_max=9)
    (claimed,) = await store.turns.claim(limit=1)
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)
    asked = message(ada.id, "/background count", external_id="2", adapter="chat")
    accepted = await store.inbox.accept(asked, queue_max=9)

    assert accepted.turn is not None
    assert await store.outbox.take(adapter="chat", limit=9)
