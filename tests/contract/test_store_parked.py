"""Checks what could not be delivered, and what a person decides about it, on both databases."""

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import PartId
from perdure.domain.journal.records import LETTER
from perdure.domain.outcomes import Outcome
from perdure.ports.delivery.outbox import Part
from perdure.ports.people.access import DeadLetter
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Settlement
from perdure.store.operations.delivery import dead_letters
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, reply_id
from perdure.testkit.simulator.system import VirtualClock

CHAT = "scripted"


@pytest.fixture
async def eve(store: Store) -> Person:
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT)


async def taken(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=10)
    return part


async def parked(store: Store, eve: Person, state: PartState, text: str = "a") -> PartId:
    await eve.is_answered("hi", text, parts=(text,))
    part = await taken(store)
    await store.outbox.record(part.id, state, error="it said no")
    return part.id


async def listed(store: Store) -> list[str]:
    return [part.id for part in await store.parked.page(Page())]


async def test_a_parked_part_is_shown_with_what_it_says_and_why(store: Store, eve: Person) -> None:
    part = await parked(store, eve, PartState.FAILED, "what was said")

    (view,) = await store.parked.page(Page())

    assert (view.id, view.text, view.error) == (part, "what was said", "it said no")
    assert (view.state, view.step, view.address) == ("failed", "post", "scripted:home")
    assert await store.parked.part(part) == view
    assert (await store.diagnostics.counts()).outbox_parked == 1
    with pytest.raises(NotFound):
        await store.parked.part(PartId("prt_nothing"))


async def test_a_failed_part_is_sent_after_all(store: Store, eve: Person) -> None:
    part = await parked(store, eve, PartState.FAILED)

    replayed = await store.parked.replay(part, force=False)

    assert (replayed.state, replayed.error) == ("pending", "")
    assert await listed(store) == []
    again = await taken(store)
    assert again.id == part
    await store.outbox.record(part, PartState.SENT, receipt="r")
    with pytest.raises(Conflict, match="not parked"):
        await store.parked.replay(part, force=True)


async def test_an_expired_part_does_not_expire_again_at_once(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "a", parts=("a",))
    clock.advance(100)
    await store.outbox.expire(older_than_s=50)
    (view,) = await store.parked.page(Page())

    await store.parked.replay(PartId(view.id), force=False)

    assert (await store.outbox.expire(older_than_s=50)).parts == 0
    clock.advance(51)
    assert (await store.outbox.expire(older_than_s=50)).parts == 1


async def test_what_may_have_arrived_is_sent_only_by_force(store: Store, eve: Person) -> None:
    part = await parked(store, eve, PartState.UNKNOWN)

    with pytest.raises(Conflict, match="may have arrived") as refused:
        await store.parked.replay(part, force=False)

    assert refused.value.code == "may_show_twice"
    assert await listed(store) == [part]
    await store.parked.replay(part, force=True)
    assert (await taken(store)).id == part


async def test_what_is_dropped_is_gone_from_the_list_and_stays_in_the_record(
    store: Store, eve: Person
) -> None:
    part = await parked(store, eve, PartState.FAILED)

    dropped = await store.parked.drop(part)

    assert (dropped.state, dropped.error) == ("failed", "it said no")
    assert await listed(store) == []
    assert (await store.diagnostics.counts()).outbox_parked == 0
    for act in (store.parked.drop(part), store.parked.replay(part, force=True)):
        with pytest.raises(Conflict, match="not parked"):
            await act
    assert dropped.turn is not None
    explained = await store.diagnostics.explain(dropped.turn, principal=None)
    assert [each.text for each in explained.parts] == ["a"]


@pytest.mark.parametrize("state", [PartState.FAILED, PartState.UNKNOWN])
async def test_of_previews_only_those_that_may_be_seen_are_shown(
    store: Store, eve: Person, state: PartState
) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    bubble = await store.outbox.bubble(claimed.lease, 0, "grow")
    assert bubble is not None
    await store.outbox.record(bubble.part.id, state, error="cut")
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        message=reply_id(claimed.lease),
        text="grown",
        parts=("grown",),
    )
    await store.turns.settle(claimed.lease, settlement)
    final = await taken(store)
    assert (final.step, final.text) == (DeliveryStep.POST, "grown")

    seen = [bubble.part.id] if state is PartState.UNKNOWN else []
    assert await listed(store) == seen
    with pytest.raises(Conflict):
        await store.parked.replay(bubble.part.id, force=True)


async def test_what_was_undone_is_not_parked(store: Store, eve: Person) -> None:
    await eve.is_answered("hi", "a", parts=("a",))

    await eve.says("/undo")

    assert await listed(store) == []


async def test_the_list_comes_in_pages_the_latest_first(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    made = []
    for number in range(3):
        clock.advance(1)
        made.append(await parked(store, eve, PartState.FAILED, f"part {number}"))

    first = await store.parked.page(Page(limit=2))
    rest = await store.parked.page(Page(limit=2, after=(first[-1].at, first[-1].id)))

    assert [part.id for part in [*first, *rest]] == made[::-1]


async def test_depths_are_counted_by_platform(store: Store, eve: Person) -> None:
    other = Person(store, eve.id, adapter="another")
    await eve.is_answered("hi", "a", parts=("a", "b"))
    await other.is_answered("hi", "c", parts=("c",))
    await taken(store)

    assert (await store.diagnostics.counts()).outbox_depths == (("another", 1), (CHAT, 2))


def letter(name: str, payload: str = "what came") -> DeadLetter:
    address = Address(adapter=CHAT, account="bot", place="")
    return DeadLetter(
        address=address, external_id=name, kind="message", payload=payload, error="KeyError"
    )


async def test_what_came_and_could_not_be_taken_is_kept_whole(store: Store) -> None:
    payload = "words \u00e4\n" * 1_000
    for _ in range(2):  # the platform offers it again
        await store.access.park(letter("m1", payload))

    (view,) = await store.parked.page(Page())

    assert (view.step, view.state, view.error) == (LETTER, "parked", "KeyError")
    assert (view.text, view.message, view.address) == (payload, "m1", "scripted:bot")
    assert await store.parked.part(PartId(view.id)) == view


@pytest.mark.parametrize("end", ["replayed", "dropped"])
async def test_a_letter_leaves_the_list_once(store: Store, end: str) -> None:
    await store.access.park(letter("m1"))
    await store.access.park(letter("m2"))
    name = PartId(next(each.id for each in await store.parked.page(Page()) if each.message == "m1"))

    async def act() -> str:
        if end == "dropped":
            return (await store.parked.drop(name)).state
        return (await store.parked.replay(name, force=False)).state

    assert await act() == end

    with pytest.raises(Conflict, match=f"is {end} already"):
        await act()
    assert [each.message for each in await store.parked.page(Page())] == ["m2"]
    assert (await store.parked.part(name)).text == "what came", "nothing is deleted"


async def test_letters_and_parts_are_one_list(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await store.access.park(letter("m1"))
    clock.advance(1)
    part = await parked(store, eve, PartState.FAILED)
    clock.advance(1)
    await store.access.park(letter("m2"))

    first = await store.parked.page(Page(limit=2))
    rest = await store.parked.page(Page(limit=2, after=(first[-1].at, first[-1].id)))

    assert [each.message for each in (first[0], *rest)] == ["m2", "m1"]
    assert first[1].id == part
    with pytest.raises(NotFound):
        await store.parked.part(PartId("ltr_nothing"))


async def test_what_was_taken_back_is_not_sent_after_all(store: Store, eve: Person) -> None:
    # It may have arrived, so its turn's undo has added a deletion of it.
    await eve.is_answered("hi", "a", parts=("a",))
    part = await taken(store)
    await eve.says("/undo")
    await store.outbox.record(part.id, PartState.UNKNOWN, error="cut")

    with pytest.raises(Conflict) as refused:
        await store.parked.replay(part.id, force=True)

    assert refused.value.code == "not_replayable"


async def test_letters_of_an_account_are_bounded_and_the_oldest_give_way(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 3)
    other = Address(adapter="another", account="bot", place="")
    await store.access.park(msgspec.structs.replace(letter("theirs"), address=other))
    for number in range(5):
        clock.advance(1)
        await store.access.park(letter(f"m{number}"))

    kept = [each.message for each in await store.parked.page(Page())]

    assert kept == ["m4", "m3", "m2", "theirs"]


async def test_what_came_is_kept_up_to_a_bound(store: Store) -> None:
    await store.access.park(letter("m1", "x" * (dead_letters.PAYLOAD_MAX + 1)))

    (view,) = await store.parked.page(Page())

    assert len(view.text) == dead_letters.PAYLOAD_MAX
