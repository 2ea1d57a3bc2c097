"""Checks the order in which people see parts, and that a message on a platform belongs to one
part."""

import pytest

from perdure.domain.delivery import KEPT, DeliveryStep, PartState
from perdure.domain.ids import PartId
from perdure.ports.delivery.outbox import Bubble, Part
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, message, settle

CHAT = "chat"


@pytest.fixture
async def eve(store: Store) -> Person:
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT, place="room")


async def take_one(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=1)
    return part


async def deliver(store: Store, part: PartId) -> None:
    await store.outbox.record(part, PartState.SENT, receipt=f"r {part}")


async def shown(store: Store, claimed: Claimed, index: int = 0, text: str = "so far") -> Bubble:
    bubble = await store.outbox.bubble(claimed.lease, index, text)
    assert bubble is not None
    return bubble


class TestBubbles:
    async def test_no_bubble_opens_before_earlier_parts_are_sent(
        self, store: Store, eve: Person
    ) -> None:
        await eve.is_answered("1", "ab", parts=("a", "b"))
        await eve.says("2")
        claimed = await claim_one(store)

        for _ in range(2):
            assert not await store.outbox.may_show(claimed.lease)
            assert await store.outbox.bubble(claimed.lease, 0, "c") is None
            part = await take_one(store)
            assert await store.outbox.bubble(claimed.lease, 0, "c") is None
            await deliver(store, part.id)

        assert await store.outbox.may_show(claimed.lease)
        assert (await shown(store, claimed)).part.step is DeliveryStep.BUBBLE

    @pytest.mark.parametrize("end", [PartState.FAILED, PartState.UNKNOWN])
    async def test_a_part_that_was_given_up_holds_up_no_bubble(
        self, store: Store, eve: Person, end: PartState
    ) -> None:
        await eve.is_answered("1", "a", parts=("a",))
        await eve.says("2")
        claimed = await claim_one(store)
        await store.outbox.record((await take_one(store)).id, end)

        await shown(store, claimed)

    async def test_a_bubble_waits_for_a_part_that_waits_for_its_pace(
        self, store: Store, eve: Person
    ) -> None:
        await eve.is_answered("1", "a", parts=("a",))
        await eve.says("2")
        claimed = await claim_one(store)
        part = await take_one(store)

        await store.outbox.defer(part.id, due_in_s=20, attempt=part.attempts)

        assert await store.outbox.bubble(claimed.lease, 0, "b") is None

    async def test_the_next_bubble_waits_for_the_one_before(
        self, store: Store, eve: Person
    ) -> None:
        await eve.says("1")
        claimed = await claim_one(store)
        first = await shown(store, claimed)

        assert await store.outbox.bubble(claimed.lease, 1, "more") is None
        await deliver(store, first.part.id)
        await shown(store, claimed, 1, "more")

    async def test_other_conversations_hold_up_no_bubble(self, store: Store, eve: Person) -> None:
        other = Person(store, eve.id, adapter=CHAT, place="elsewhere")
        await other.is_answered("1", "a", parts=("a",))
        await eve.says("2")

        await shown(store, await claim_one(store))

    async def test_a_failed_bubble_comes_behind_what_came_meanwhile(
        self, store: Store, eve: Person
    ) -> None:
        accepted = await eve.says("1")
        claimed = await claim_one(store)
        failed = await shown(store, claimed, text="so")
        await store.outbox.record(failed.part.id, PartState.FAILED)
        await eve.says("/status")
        reply = await take_one(store)
        assert await store.outbox.bubble(claimed.lease, 0, "so far") is None
        await deliver(store, reply.id)

        again = await shown(store, claimed, text="so far")

        assert (again.part.id, again.part.text) == (failed.part.id, "so far")
        record = await store.diagnostics.record(accepted.session)
        assert [part.id for part in record.parts] == [reply.id, failed.part.id]


async def test_a_mark_holds_up_no_words(store: Store, eve: Person) -> None:
    await eve.says("1")
    claimed = await claim_one(store)
    update = message(
        eve.id, "2", external_id="waits", place="room", adapter=CHAT, place_kind="private"
    )
    await store.inbox.accept(update, queue_max=10)
    mark = await take_one(store)
    assert mark.step is DeliveryStep.REACT

    assert await store.outbox.may_show(claimed.lease)
    await settle(store, claimed, "a", parts=("a",))
    assert (await take_one(store)).text == "a"


class TestReceipts:
    async def test_no_two_parts_share_a_receipt(self, store: Store, eve: Person) -> None:
        await eve.is_answered("1", "ab", parts=("a", "b"))
        first = await take_one(store)
        await store.outbox.record(first.id, PartState.SENT, receipt="room/7")
        second = await take_one(store)

        await store.outbox.record(second.id, PartState.SENT, receipt="room/7")

        view = await store.parked.part(second.id)
        assert (view.state, view.receipt) == ("unknown", "")
        assert "room/7" in view.error

    async def test_an_edit_has_the_receipt_of_its_bubble(self, store: Store, eve: Person) -> None:
        await eve.says("1")
        claimed = await claim_one(store)
        bubble = await shown(store, claimed)
        await store.outbox.record(bubble.part.id, PartState.SENT, receipt="room/7")
        await settle(store, claimed, "a", parts=("a",))
        edit = await take_one(store)

        await store.outbox.record(edit.id, PartState.SENT, receipt="room/7")

        assert (await store.parked.part(edit.id)).state == "sent"

    async def test_parts_without_a_receipt_share_nothing(self, store: Store, eve: Person) -> None:
        await eve.is_answered("1", "ab", parts=("a", "b"))
        for _ in range(2):
            part = await take_one(store)
            await store.outbox.record(part.id, PartState.SENT, receipt=KEPT)
            assert (await store.parked.part(part.id)).state == "sent"
