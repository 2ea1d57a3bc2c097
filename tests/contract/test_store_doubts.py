"""Checks that parts of unknown fate wait for the platform's answer and keep their place, and that
no node owns them."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.delivery import PartState
from perdure.domain.errors import Conflict
from perdure.ports.delivery.outbox import Part
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, message, settle
from perdure.testkit.simulator.system import VirtualClock

CHAT = "chat"


@pytest.fixture
async def eve(store: Store) -> Person:
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT, place="room")


async def take_one(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=1)
    return part


async def doubted(store: Store, part: Part, due_in_s: float = 5) -> None:
    await store.outbox.doubt(part.id, error="busy", due_in_s=due_in_s, attempt=part.attempts)


async def stranded(store: Store) -> list[Part]:
    return await store.outbox.stranded(adapter=CHAT)


async def test_a_part_in_doubt_is_asked_about_again_when_its_time_comes(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("1", "ab", parts=("a", "b"))
    part = await take_one(store)
    tried_at = clock.now_ms()
    clock.advance(1)

    await doubted(store, part)

    assert await stranded(store) == []
    assert await store.outbox.next_due_ms() == clock.now_ms() + 5_000
    assert await store.outbox.take(adapter=CHAT, limit=10) == [], "nothing overtakes it"
    clock.advance(5)
    (again,) = await stranded(store)
    assert (again.id, again.changed_at) == (part.id, tried_at), "that is when it was sent"
    await store.outbox.record(part.id, PartState.SENT, receipt="r", attempt=part.attempts)
    assert (await take_one(store)).text == "b"


async def test_a_doubt_survives_a_restart(
    store: Store, eve: Person, restart: Callable[[], Awaitable[Store]]
) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    part = await take_one(store)
    await doubted(store, part, due_in_s=0)

    reborn = await restart()

    assert [each.id for each in await stranded(reborn)] == [part.id]


async def test_a_clock_that_was_set_back_does_not_hide_a_doubt(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    part = await take_one(store)
    await doubted(store, part)

    clock.jump(-86_400)

    assert [each.id for each in await stranded(store)] == [part.id]


async def test_what_is_settled_is_in_no_doubt(store: Store, eve: Person) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    part = await take_one(store)
    await store.outbox.record(part.id, PartState.SENT, receipt="r")

    with pytest.raises(Conflict):
        await doubted(store, part)


class TestRivals:
    async def test_rivals_are_the_other_parts_of_the_place(self, store: Store, eve: Person) -> None:
        await eve.is_answered("1", "ab", parts=("a", "b"))
        elsewhere = Person(store, eve.id, adapter=CHAT, place="elsewhere")
        await elsewhere.is_answered("2", "c", parts=("c",))
        for part in await store.outbox.take(adapter=CHAT, limit=10):
            await store.outbox.record(part.id, PartState.SENT, receipt=f"r{part.text}")
        lost = await take_one(store)

        rivals = await store.outbox.rivals(lost)

        assert rivals.receipts == {"ra"}
        assert not rivals.has_twin

    @pytest.mark.parametrize(("text", "has_twin"), [("same", True), ("other", False)])
    async def test_a_twin_is_being_sent_with_the_same_words(
        self, store: Store, eve: Person, text: str, has_twin: bool
    ) -> None:
        # The twin belongs to another conversation of the same place.
        await eve.is_answered("1", "same", parts=("same",))
        lost = await take_one(store)
        bobs = message(
            eve.id, "2", external_id="b1", place="room", adapter=CHAT, account=eve.id, person="bob"
        )
        await store.inbox.accept(bobs, queue_max=10)
        await settle(store, await claim_one(store), text, parts=(text,))
        await take_one(store)

        assert (await store.outbox.rivals(lost)).has_twin is has_twin
