"""Checks on both databases what people's browsers are to be told, and what not."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import NotFound
from perdure.domain.ids import QuestionId, SessionId
from perdure.domain.outcomes import Outcome
from perdure.domain.people.menu import PLAIN
from perdure.domain.tools.asking import ALLOW
from perdure.ports.delivery.pushes import Push, PushKind, PushSubscription, PushTarget
from perdure.ports.records.shelves import Shelving
from perdure.ports.turns.questions import QuestionReply
from perdure.store.operations.pushes import BROWSERS_MAX, KEPT_MS, LOOKS_MS
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    message,
    question_about,
    said,
    settle,
    tool_call,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
LATER_S = LOOKS_MS / 1000 + 1
PAY = tool_call("pay")


def browser(number: int = 1) -> PushTarget:
    return PushTarget(endpoint=f"https://push.example/{number}", p256dh="key", auth="secret")


async def subscribed(store: Store, person: Person, number: int = 1) -> PushSubscription:
    return await store.pushes.subscribe(person.id, browser(number))


async def taken(store: Store, *, limit: int = 10, but: tuple[Person, ...] = ()) -> list[Push]:
    busy = [each.id for each in but]
    return list((await store.pushes.take(limit=limit, but=busy)).taken)


async def answered(store: Store, person: Person, text: str = "hello") -> str:
    return await person.is_answered(text, "fine")


async def is_asked(store: Store, person: Person, *, question: str = "qst_pay") -> SessionId:
    """Begin a turn of a person, and let it wait for an approval."""
    accepted = await person.says("pay the bill")
    lease = (await claim_one(store)).lease
    await store.turns.append(lease, [said(lease, "Sure.", calls=(PAY,))])
    await store.turns.wait(lease, [question_about(lease, PAY, question=question)])
    return accepted.session


async def test_an_answer_is_told_once_it_had_time_to_be_seen(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    kept = await subscribed(store, ada)
    turn = await answered(store, ada)
    assert await taken(store) == []
    waits = await store.pushes.take(limit=1, but=())
    assert waits.next_ms == clock.now_ms() + LOOKS_MS

    clock.advance(LATER_S)
    (push,) = await taken(store)
    assert (push.kind, push.subject, push.conversation) == (PushKind.ANSWER, turn, "home")
    assert push.subscription == kept
    await store.pushes.arrived(push)
    await store.pushes.arrived(push)
    assert (await store.pushes.take(limit=1, but=())).next_ms is None


async def test_what_was_seen_is_not_told(store: Store, ada: Person, clock: VirtualClock) -> None:
    await subscribed(store, ada)
    seen = await ada.says()
    await settle(store, await claim_one(store))
    clock.advance(0.5)
    await store.shelves.shelve(seen.conversation, Shelving(is_seen=True))
    clock.advance(LATER_S)
    found = await store.pushes.take(limit=10, but=())
    assert (list(found.taken), found.next_ms) == ([], None)


async def test_a_hidden_conversation_is_not_told_of(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    accepted = await ada.says()
    await settle(store, await claim_one(store))
    await store.shelves.shelve(accepted.conversation, Shelving(hidden=True))
    clock.advance(LATER_S)
    assert await taken(store) == []


@pytest.mark.parametrize(
    ("outcome", "kinds"),
    [
        (Outcome.FAILED, [PushKind.FAILURE]),
        (Outcome.REFUSED, [PushKind.FAILURE]),
        (Outcome.STOPPED, []),
        (Outcome.SUPERSEDED, []),
    ],
)
async def test_a_person_is_told_of_ends_that_they_have_not_brought_about(
    store: Store, ada: Person, clock: VirtualClock, outcome: Outcome, kinds: list[PushKind]
) -> None:
    await subscribed(store, ada)
    await ada.says()
    await settle(store, await claim_one(store), outcome=outcome)
    clock.advance(LATER_S)
    assert [each.kind for each in await taken(store)] == kinds


async def test_a_question_is_told_until_it_was_answered(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    await is_asked(store, ada)
    clock.advance(LATER_S)
    (push,) = await taken(store)
    assert (push.kind, push.subject) == (PushKind.APPROVAL, "qst_pay")
    # The row stays until it has arrived. By then somebody may have answered.
    await store.questions.answer(
        QuestionReply(question=QuestionId("qst_pay"), answer=ALLOW, by=ada.id)
    )
    assert await taken(store) == []
    assert (await store.pushes.take(limit=1, but=())).next_ms is None


async def test_of_a_conversation_only_the_newest_is_told(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    await answered(store, ada, "one")
    clock.advance(LATER_S)
    (first,) = await taken(store)
    second = await answered(store, ada, "two")
    # The first one arrives only now. That must not end the second one.
    await store.pushes.arrived(first)
    clock.advance(LATER_S)
    assert [each.subject for each in await taken(store)] == [second]


async def test_only_its_person_is_told_of_a_conversation(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada, 1)
    await subscribed(store, bob, 2)
    await answered(store, bob)
    group = message(ada.id, "hi", external_id="g1", place="g", adapter="chat", place_kind="group")
    await store.inbox.accept(group, queue_max=10, menu=PLAIN)
    await settle(store, await claim_one(store))
    clock.advance(LATER_S)
    assert [each.subscription.principal for each in await taken(store)] == [bob.id]


async def test_of_each_person_one_thing_is_under_way(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    for number in (1, 2):
        await subscribed(store, ada, number)
    await subscribed(store, bob, 3)
    await answered(store, ada)
    await answered(store, bob)
    clock.advance(LATER_S)
    first = await taken(store)
    assert {each.subscription.principal for each in first} == {ada.id, bob.id}
    assert len(first) == 2
    assert [each.subscription.principal for each in await taken(store, but=(bob,))] == [ada.id]


async def test_a_push_service_is_left_alone_for_as_long_as_it_wants(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    await answered(store, ada)
    clock.advance(LATER_S)
    (push,) = await taken(store)
    until_ms = clock.now_ms() + 60_000
    await store.pushes.rest(push, until_ms=until_ms)
    await answered(store, ada, "more")  # news do not shorten the wait
    clock.advance(59)
    found = await store.pushes.take(limit=1, but=())
    assert (list(found.taken), found.next_ms) == ([], until_ms)
    clock.advance(2)
    (again,) = await taken(store)
    assert again.subscription.failures == 1
    await store.pushes.arrived(again)
    assert [each.failures for each in await store.pushes.of(ada.id)] == [0]


async def test_what_is_old_is_not_worth_telling(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    await answered(store, ada)
    clock.advance(KEPT_MS / 1000 + 1)
    found = await store.pushes.take(limit=1, but=())
    assert (list(found.taken), found.next_ms) == ([], None)


async def test_a_browser_that_is_gone_is_told_nothing_more(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    kept = await subscribed(store, ada)
    await answered(store, ada)
    await store.pushes.gone(kept.id)
    clock.advance(LATER_S)
    assert (await store.pushes.take(limit=1, but=())).next_ms is None
    assert await store.pushes.of(ada.id) == []


async def test_a_browser_belongs_to_whoever_uses_it_now(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    first = await subscribed(store, ada)
    await answered(store, ada)
    again = await subscribed(store, bob)
    assert again.id == first.id
    clock.advance(LATER_S)
    assert await taken(store) == []
    with pytest.raises(NotFound):
        await store.pushes.unsubscribe(ada.id, first.id)
    await store.pushes.unsubscribe(bob.id, first.id)
    assert await store.pushes.of(bob.id) == []


async def test_a_person_has_a_bounded_number_of_browsers(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    for number in range(BROWSERS_MAX + 2):
        clock.advance(1)
        await subscribed(store, ada, number)
    kept = await store.pushes.of(ada.id)
    assert [each.target for each in kept] == [browser(n) for n in range(2, BROWSERS_MAX + 2)]


async def test_a_revoked_token_ends_the_notifications_of_its_person(
    store: Store, ada: Person, bob: Person
) -> None:
    await subscribed(store, ada, 1)
    await subscribed(store, bob, 2)
    view = await store.principals.grant(ada.id, "a token of ada's laptop, which was stolen")
    await store.principals.revoke(view.id)
    assert await store.pushes.of(ada.id) == []
    assert len(await store.pushes.of(bob.id)) == 1


async def test_all_nodes_sign_with_the_key_that_was_made_first(store: Store) -> None:
    assert await store.pushes.known_key() is None
    assert await store.pushes.key("first") == "first"
    assert await store.pushes.key("second") == "first"
    assert await store.pushes.known_key() == "first"


async def test_what_a_living_node_sends_is_left_to_it_and_what_a_dead_one_sent_is_taken_again(
    store: Store, peers: list[Store], restart: OpenStore, ada: Person, clock: VirtualClock
) -> None:
    await subscribed(store, ada)
    await answered(store, ada)
    clock.advance(LATER_S)
    assert len(await taken(store)) == 1
    for other in peers:
        if other is not store:
            assert await taken(other) == []
    # A call whose answer was lost takes the same again.
    assert len(await taken(store)) == 1
    assert len(await taken(await restart())) == 1
