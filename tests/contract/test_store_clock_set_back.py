"""Checks what the store does when the wall clock is set back, while it runs or before it starts
again.

What is ready stays ready whatever the clock says, and is served in the order in which it came. What
must wait does not wait for longer than it would have waited without the change.
"""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.address import Address
from perdure.domain.content.stickers import WAIT_MS, Sticker
from perdure.domain.delivery import PartState
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Attachment, TurnRequeued
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.prompt.compaction import KEEP_TURNS_MIN
from perdure.domain.waits import AT_ONCE
from perdure.ports.people.access import PlacedArrival
from perdure.ports.records.media import FetchedFile
from perdure.store.operations.people.access import WRONG_MAX
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, Person, claim_one, message, only, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "chat"
HOURS_S = 7_200
SLIGHTLY_S = 1.5
FILE = Attachment(reference="ref", name="report.txt", size=5)
KEEPER = Menu(agents={"main": AgentOffer(has_memory=True)}, hold_ms=30_000)


@pytest.fixture(params=["it goes on", "it starts again"])
def set_back(
    request: pytest.FixtureRequest, clock: VirtualClock, restart: OpenStore, store: Store
) -> OpenStore:
    """Set the clock back by hours, under the running process or before the next one."""

    async def turn_it() -> Store:
        clock.jump(-HOURS_S)
        return await restart() if request.param == "it starts again" else store

    return turn_it


async def send(
    store: Store, person: Person, *files: Attachment, place: str = "room", album: str = ""
) -> Update:
    update = Update(
        address=Address(adapter=CHAT, account="bot", place=place),
        external_id=f"to {place}",
        kind=UpdateKind.MESSAGE,
        principal=person.id,
        text="look",
        attachments=files,
        album=album,
    )
    await store.inbox.accept(update, queue_max=10)
    return update


async def places_claimed(store: Store) -> list[str]:
    return [each.address.place for each in await store.turns.claim(limit=100)]


async def test_queued_turns_are_claimed_in_their_order(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    for place in ("a", "b", "c"):
        await send(store, ada, place=place)
        clock.advance(1)

    store = await set_back()
    for place in ("d", "e"):
        await send(store, ada, place=place)

    assert await store.turns.next_claim_ms() == AT_ONCE
    assert await places_claimed(store) == ["a", "b", "c", "d", "e"]


async def test_what_comes_while_the_clock_is_behind_is_served_after_what_was_there(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    # A few turns are claimed at a time, while more messages come and the clock goes back and forth.
    waiting = [f"early {nth}" for nth in range(6)]
    for place in waiting:
        await send(store, ada, place=place)
    served: list[str] = []
    for nth, jump_s in enumerate((-HOURS_S, 3 * HOURS_S, -5 * HOURS_S, HOURS_S)):
        clock.jump(jump_s)
        waiting.append(f"late {nth}")
        await send(store, ada, place=waiting[-1])
        served += [each.address.place for each in await store.turns.claim(limit=3)]

    assert served == waiting


async def test_a_first_turn_is_not_held_back_for_longer_than_before(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    person = Person(store, ada.id, place="there", menu=KEEPER)
    await person.is_answered("one", "two")
    await person.says("/new")
    await claim_one(store)  # the errand that keeps memories
    await person.says("three")

    store = await set_back()

    assert await store.turns.claim(limit=9) == []
    clock.advance(KEEPER.hold_ms / 1000)
    assert len(await store.turns.claim(limit=9)) == 1


async def test_a_hold_from_before_the_clock_was_set_back_lasts_no_longer(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    # The first turn of the new session comes after the clock was set back.
    person = Person(store, ada.id, place="there", menu=KEEPER)
    await person.is_answered("one", "two")
    await person.says("/new")
    await claim_one(store)

    store = await set_back()
    await store.inbox.accept(message(ada.id, place="there", external_id="three"), queue_max=9)

    assert await store.turns.claim(limit=9) == []
    clock.advance(KEEPER.hold_ms / 1000)
    assert len(await store.turns.claim(limit=9)) == 1


async def test_an_album_is_waited_for_as_long_as_before(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    await send(store, ada, album="one")

    store = await set_back()

    assert await store.turns.claim(limit=9) == []
    clock.advance(0.8)
    assert len(await store.turns.claim(limit=9)) == 1


async def test_an_album_behind_another_turn_is_waited_for_as_long_as_before(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await send(store, ada)
    ahead = await claim_one(store)
    clock.jump(HOURS_S)
    update = Update(
        address=ahead.address,
        external_id="more",
        kind=UpdateKind.MESSAGE,
        principal=ada.id,
        text="x",
        album="one",
    )
    await store.inbox.accept(update, queue_max=9)
    clock.jump(-HOURS_S)

    await settle(store, ahead)

    assert await store.turns.claim(limit=9) == []
    clock.advance(0.8)
    assert len(await store.turns.claim(limit=9)) == 1


async def test_a_small_difference_of_clocks_changes_no_wait(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await send(store, ada, album="one")
    clock.jump(-SLIGHTLY_S)

    clock.advance(0.8)

    assert await store.turns.claim(limit=9) == []
    clock.advance(SLIGHTLY_S)
    assert len(await store.turns.claim(limit=9)) == 1


async def say_in(store: Store, person: Person, *places: str) -> None:
    for place in places:
        await Person(store, person.id, adapter=CHAT, place=place).is_answered(
            "hi", f"in {place}", parts=(f"in {place}",)
        )


async def parts_taken(store: Store) -> list[str]:
    return [part.text for part in await store.outbox.take(adapter=CHAT, limit=100)]


async def test_parts_go_out_in_their_order(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    await say_in(store, ada, "a", "b")

    store = await set_back()
    await say_in(store, ada, "c")

    assert await store.outbox.next_due_ms() == AT_ONCE
    assert await parts_taken(store) == ["in a", "in b", "in c"]


async def test_a_part_is_tried_again_no_later_than_before(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    await say_in(store, ada, "a")
    (part,) = await store.outbox.take(adapter=CHAT, limit=9)
    await store.outbox.record(part.id, PartState.PENDING, error="busy", due_in_s=60)

    store = await set_back()

    assert await parts_taken(store) == [], "it waits anew"
    assert await store.outbox.next_due_ms() == clock.now_ms() + 60_000
    clock.advance(60)
    assert await parts_taken(store) == ["in a"]


async def test_a_part_that_was_given_back_is_tried_at_once(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await say_in(store, ada, "a")
    await store.outbox.take(adapter=CHAT, limit=9)
    await store.outbox.release(adapter=CHAT)

    clock.jump(-HOURS_S)

    assert await parts_taken(store) == ["in a"]


async def test_a_part_that_is_sent_after_all_goes_at_once(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await say_in(store, ada, "a")
    (part,) = await store.outbox.take(adapter=CHAT, limit=9)
    await store.outbox.record(part.id, PartState.FAILED, error="no")
    await store.parked.replay(part.id, force=False)

    clock.jump(-HOURS_S)

    assert await parts_taken(store) == ["in a"]


async def test_files_are_fetched_in_their_order(
    store: Store, ada: Person, set_back: OpenStore
) -> None:
    await send(store, ada, Attachment(reference="1", name="first.txt"), place="a")

    store = await set_back()
    await send(store, ada, Attachment(reference="2", name="second.txt"), place="b")

    assert await store.fetches.next_due_ms() == AT_ONCE
    taken = await store.fetches.take(adapters=[CHAT], limit=9)
    assert [each.attachment.name for each in taken] == ["first.txt", "second.txt"]


async def test_a_file_is_fetched_again_no_later_than_before(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    await send(store, ada, FILE)
    (fetch,) = await store.fetches.take(adapters=[CHAT], limit=9)
    await store.fetches.again(fetch, error="busy", due_in_s=60)

    store = await set_back()

    assert await store.fetches.take(adapters=[CHAT], limit=9) == []
    assert await store.fetches.next_due_ms() == clock.now_ms() + 60_000
    clock.advance(60)
    assert len(await store.fetches.take(adapters=[CHAT], limit=9)) == 1


async def test_a_sticker_is_waited_for_no_longer_than_before(
    store: Store, ada: Person, set_back: OpenStore, clock: VirtualClock
) -> None:
    sticker = Attachment(reference="ref", mime="image/webp", sticker=Sticker(id="s1"))
    await send(store, ada, sticker)
    (fetch,) = await store.fetches.take(adapters=[CHAT], limit=9)
    assert (await store.stickers.meet(fetch)).is_new
    picture = FetchedFile(mime="image/webp", name="", size=1, digest="0" * 64)
    await store.stickers.describe(fetch, picture, agent="")
    await claim_one(store)  # the errand, which is never settled

    store = await set_back()

    for _ in range(3):  # first its row waits again, and then for the errand
        for waiting in await store.fetches.take(adapters=[CHAT], limit=9):
            await store.stickers.meet(waiting)
        clock.advance(WAIT_MS / 1000)
    assert await places_claimed(store) == ["room"]


async def crash_after(store: Store, seconds: float, clock: VirtualClock) -> None:
    claimed = await claim_one(store)
    clock.advance(seconds)
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)


async def test_suspects_wait_for_each_other_no_longer_than_before(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    for place in ("one", "two"):
        await send(store, ada, place=place)
        await crash_after(store, 3, clock)
        await store.nodes.resume(GO_ON, limit=9)
        await crash_after(store, 3, clock)
    await store.nodes.resume(GO_ON, limit=9)
    await claim_one(store)
    assert (await store.nodes.resume(GO_ON, limit=9)).is_holding_back

    clock.jump(-HOURS_S)
    held = await store.nodes.resume(GO_ON, limit=9)

    assert held.look_again_ms is not None
    assert held.look_again_ms <= clock.now_ms() + 10_000
    clock.advance(10)
    assert only(TurnRequeued, (await store.nodes.resume(GO_ON, limit=9)).recorded)


async def test_who_asked_before_may_ask_again(store: Store, clock: VirtualClock) -> None:
    def caller(nth: int) -> PlacedArrival:
        stranger = Sender(id="41", name="Stranger")
        said = Arrival(
            external_id=f"u{nth}",
            place="dm",
            place_kind=PlaceKind.PRIVATE,
            sender=stranger,
            text="hello",
        )
        return PlacedArrival(address=Address(adapter=CHAT, account="bot", place="dm"), arrival=said)

    assert await store.access.ask(caller(1), "CODE-1")
    assert not await store.access.ask(caller(2), "CODE-2"), "too soon"

    clock.jump(-HOURS_S)

    assert await store.access.ask(caller(3), "CODE-3")
    assert await store.access.approve("CODE-3", by="ada") is not None


async def test_wrong_codes_from_before_lock_nobody_out(store: Store, clock: VirtualClock) -> None:
    for nth in range(WRONG_MAX):
        with pytest.raises(NotFound):
            await store.access.approve(f"WRONG-{nth}", by="ada")
    with pytest.raises(Rejected, match="wrong codes"):
        await store.access.approve("WRONG", by="ada")

    clock.jump(-HOURS_S)

    with pytest.raises(NotFound):
        await store.access.approve("WRONG", by="ada")


async def test_a_summary_that_failed_is_tried_again_no_later_than_before(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    for nth in range(KEEP_TURNS_MIN + 2):
        await ada.is_answered(f"question {nth}", "answer " * 50)
    session = (await ada.says("/status")).session

    async def order() -> bool:
        return bool(await store.errands.compact(session, agent="main", keep_tokens=0))

    clock.jump(HOURS_S)
    assert await order()
    await settle(store, await claim_one(store), "", outcome=Outcome.FAILED)
    assert not await order(), "not at once"

    clock.jump(-HOURS_S)

    assert await order()


async def test_resume_goes_back_to_the_session_that_was_left_last(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await ada.is_answered("first", "1")
    await ada.says("/new")
    second = (await ada.says("second")).session
    await settle(store, await claim_one(store))
    clock.jump(-HOURS_S)
    await ada.says("/new")
    await ada.is_answered("third", "3")

    assert (await ada.says("/resume")).reply.startswith(f"Back in session {second}")
