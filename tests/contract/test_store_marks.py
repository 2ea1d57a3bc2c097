"""Checks what is left of an answer that was ended before its agent finished: its words with a mark
under them, written in the transaction that ends it."""

from typing import Any

import pytest
from msgspec import structs

from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.records import PartView
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption
from perdure.domain.people.menu import Menu
from perdure.domain.turn.endings import REPLACED_MARK, STOPPED_MARK
from perdure.domain.turn.recovery import Policy, Resume
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    flush,
    message,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import VirtualClock

CHAT = "chat"
WAIT = Policy(resume=Resume.WAIT)


@pytest.fixture
async def eve(store: Store) -> Person:
    """Return a person on a platform that replies are sent to."""
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT, place="room")


async def grows(store: Store, eve: Person, text: str, *, bubbles: int = 1) -> Claimed:
    """Begin an answer that is being written and shown."""
    await eve.says("go")
    claimed = await claim_one(store)
    if text:
        await flush(store, claimed.lease, text)
    for index in range(bubbles):
        bubble = await store.outbox.bubble(claimed.lease, index, text[:4])
        assert bubble is not None
        await store.outbox.record(bubble.part.id, PartState.SENT, receipt=f"r{index}")
    return claimed


async def replies(store: Store, claimed: Claimed) -> list[PartView]:
    record = await store.diagnostics.record(claimed.lease.session)
    return [part for part in record.parts if part.message == f"{claimed.lease.turn}.reply"]


async def says(store: Store, eve: Person, text: str, **more: Any) -> Accepted:
    """Send an update that is more than a message in the usual mode."""
    update = message(eve.id, text, external_id="more", place="room", adapter=CHAT)
    return await store.inbox.accept(structs.replace(update, **more), queue_max=9)


@pytest.mark.parametrize("how", ["api", "/stop", "/new", "/branch", "newer"])
async def test_what_is_left_of_an_answer_is_marked_in_place(
    store: Store, eve: Person, how: str
) -> None:
    claimed = await grows(store, eve, "So far so good")
    mark = REPLACED_MARK if how == "newer" else STOPPED_MARK

    match how:
        case "api":
            await store.inbox.stop(claimed.lease.turn, by=eve.id)
        case "newer":
            await says(store, eve, "no, this", busy=Busy.INTERRUPT)
        case command:
            await eve.says(command)

    parts = await replies(store, claimed)
    assert [(part.step, part.text) for part in parts] == [
        (DeliveryStep.EDIT, f"So far so good\n\n{mark}")
    ]
    await assert_sound(store, claimed.lease.session)


async def test_what_is_taken_back_gets_no_mark(store: Store, eve: Person) -> None:
    claimed = await grows(store, eve, "So far")

    await says(store, eve, "rather this", kind=UpdateKind.EDIT, target="room-1")

    assert [part.error for part in await replies(store, claimed)] == ["withdrawn"]


async def test_what_was_cut_by_a_crash_is_marked_when_something_newer_replaces_it(
    store: Store, eve: Person
) -> None:
    claimed = await grows(store, eve, "So far")
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(WAIT, limit=9)

    update = message(eve.id, "something else", external_id="else", place="room", adapter=CHAT)
    await store.inbox.accept(update, queue_max=9, menu=Menu(recovery=WAIT))

    (part,) = await replies(store, claimed)
    assert (part.step, part.text) == (DeliveryStep.EDIT, f"So far\n\n{REPLACED_MARK}")


async def test_where_only_work_was_shown_the_mark_takes_its_place(
    store: Store, eve: Person
) -> None:
    claimed = await grows(store, eve, "")

    await eve.says("/stop")

    assert [part.text for part in await replies(store, claimed)] == [STOPPED_MARK]


async def test_where_nothing_was_shown_there_is_nothing_to_mark(store: Store, eve: Person) -> None:
    claimed = await grows(store, eve, "", bubbles=0)

    await eve.says("/stop")

    assert await replies(store, claimed) == []


async def test_what_cannot_be_changed_is_followed_by_the_rest_and_the_mark(
    store: Store, eve: Person
) -> None:
    claimed = await grows(store, eve, "One.\n\nTwo.\n\nThr", bubbles=0)
    await store.outbox.go_ahead(claimed.lease, ["One.", "Two."])

    await eve.says("/stop")

    parts = await replies(store, claimed)
    assert [(part.step, part.text) for part in parts] == [
        (DeliveryStep.POST, f"Thr\n\n{STOPPED_MARK}")
    ]
    await assert_sound(store, claimed.lease.session)


async def test_over_http_people_see_the_outcome_itself(store: Store, ada: Person) -> None:
    accepted = await ada.says("go")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "So far")

    await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert (await store.diagnostics.record(accepted.session)).parts == ()


async def test_what_does_not_fit_takes_the_place_of_the_other_bubbles(
    store: Store, eve: Person
) -> None:
    # Each shown message is edited into its piece, so that no shown text disappears and comes again.
    claimed = await grows(store, eve, "one two three", bubbles=3)
    await eve.says("/stop")
    (whole,) = await store.outbox.take(adapter=CHAT, limit=1)

    texts = ("one", "two", f"three\n\n{STOPPED_MARK}")
    await store.outbox.divide(whole.id, texts, attempt=whole.attempts)
    # The answer of the store was lost.
    await store.outbox.divide(whole.id, texts, attempt=whole.attempts)

    done = []
    while taken := await store.outbox.take(adapter=CHAT, limit=1):
        (part,) = taken
        await store.outbox.record(part.id, PartState.SENT, receipt=part.receipt or "new")
        done.append((part.step, part.receipt, part.text))
    edits = [(DeliveryStep.EDIT, f"r{index}", text) for index, text in enumerate(texts)]
    assert done == [*edits, (DeliveryStep.POST, "", "Stopped.")]
    await assert_sound(store, claimed.lease.session)
    await eve.says("/undo")
    gone = await store.outbox.take(adapter=CHAT, limit=1)
    assert [(part.step, part.receipt) for part in gone] == [(DeliveryStep.DELETE, "r0")]


async def test_an_undo_while_a_text_is_divided_takes_all_of_it_back(
    store: Store, eve: Person
) -> None:
    claimed = await grows(store, eve, "one two", bubbles=2)
    await eve.says("/stop")
    (whole,) = await store.outbox.take(adapter=CHAT, limit=1)
    await eve.says("/undo")

    for _ in range(2):  # the first answer of the store was lost
        await store.outbox.divide(whole.id, ("one", "two"), attempt=whole.attempts)

    assert [part.state for part in await replies(store, claimed)] == ["expired"]
    steps = []
    while taken := await store.outbox.take(adapter=CHAT, limit=1):
        (part,) = taken
        await store.outbox.record(part.id, PartState.SENT, receipt=part.receipt or "new")
        steps.append((part.step, part.receipt))
    assert [step for step in steps if step[0] is not DeliveryStep.POST] == [
        (DeliveryStep.DELETE, "r1"),
        (DeliveryStep.DELETE, "r0"),
    ]


async def test_another_node_gives_the_last_preview_time_to_end(
    peers: list[Store], clock: VirtualClock
) -> None:
    here, there = peers[0], peers[-1]
    principal = await here.principals.ensure("eve", role="member")
    eve = Person(here, principal.id, adapter=CHAT, place="room")
    claimed = await grows(here, eve, "So far")

    await there.inbox.stop(claimed.lease.turn, by=eve.id)

    assert bool(await there.outbox.take(adapter=CHAT, limit=9)) == (here is there)
    if here is there:
        return
    clock.advance(1_000)
    assert len(await there.outbox.take(adapter=CHAT, limit=9)) == 1


async def test_a_turn_that_its_agent_ended_gets_no_mark(store: Store, eve: Person) -> None:
    claimed = await grows(store, eve, "So far")
    await settle(store, claimed, "So far so good", parts=("So far so good",))

    await eve.says("/stop")

    assert [part.text for part in await replies(store, claimed)] == ["So far so good"]
