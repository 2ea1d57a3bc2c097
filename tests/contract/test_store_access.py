"""Checks pairings and refusals, on both databases."""

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.delivery import PartState
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.ports.delivery.outbox import Part
from perdure.ports.people.access import PlacedArrival
from perdure.ports.records.history import Page
from perdure.store.operations.people import access
from perdure.store.operations.people.access import ASKED_MAX, CODE_MS, WAITING_MAX, WRONG_MAX
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.testkit.simulator.system import VirtualClock

CHAT = "scripted"


def caller(
    number: int, sender: str = "eve", *, thread: str = "", target: str = "", bot: str = "bot"
) -> PlacedArrival:
    said = Arrival(
        external_id=f"m{number}",
        place=f"with {sender}",
        thread=thread,
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id=sender, name="Eve"),
        text="let me in",
        target=target,
    )
    address = Address(adapter=CHAT, account=bot, place=said.place, thread=thread)
    return PlacedArrival(address=address, arrival=said)


async def told(store: Store) -> list[Part]:
    return await store.outbox.take(adapter=CHAT, limit=10)


async def is_paired(store: Store, sender: str = "eve") -> bool:
    return (await store.access.standing(caller(99, sender))).is_paired


async def test_a_code_lets_in_the_one_who_got_it(store: Store) -> None:
    assert await store.access.ask(caller(1), "ABCD2345")
    (part,) = await told(store)
    assert "ABCD2345" in part.text
    assert not await is_paired(store)

    pairing = await store.access.approve("abcd-2345", by="operator")

    assert (pairing.sender, pairing.name, pairing.state) == ("eve", "Eve", "approved")
    assert await is_paired(store)
    assert not await is_paired(store, "mallory")


async def test_a_pairing_counts_for_its_account_alone(store: Store) -> None:
    # The same id on another bot, or on another platform, may be another person.
    await store.access.ask(caller(1), "ABCD2345")
    await store.access.approve("ABCD2345", by="operator")
    other_bot = caller(2, bot="another bot")
    here = caller(3)
    elsewhere = msgspec.structs.replace(here.address, adapter="another platform")
    other_platform = PlacedArrival(address=elsewhere, arrival=here.arrival)

    standings = [await store.access.standing(each) for each in (here, other_bot, other_platform)]

    assert [each.is_paired for each in standings] == [True, False, False]


async def test_what_one_account_heard_means_nothing_to_another(store: Store, ada: Person) -> None:
    # External ids are unique within one account only.
    mine = caller(1, thread="t1")
    update = Update(
        address=mine.address, external_id="m1", kind=UpdateKind.MESSAGE, principal=ada.id, text="hi"
    )
    await store.inbox.accept(update, queue_max=9)
    await store.access.refuse(caller(7), "stranger")

    async def standing(bot: str) -> list[bool]:
        speaks_of = await store.access.standing(caller(2, target="m1", bot=bot))
        in_thread = await store.access.standing(caller(3, thread="t1", bot=bot))
        refused = await store.access.standing(caller(7, bot=bot))
        return [speaks_of.is_engaged, in_thread.is_engaged, refused.is_refused]

    assert await standing("bot") == [True, True, True]
    assert await standing("another bot") == [False, False, False]


async def test_requests_of_one_account_silence_no_other(store: Store) -> None:
    assert await store.access.ask(caller(1), "ABCD2345")
    assert not await store.access.ask(caller(2), "BCDE2345"), "she was just given one"
    assert await store.access.ask(caller(1, bot="another bot"), "CDEF2345")
    for code in ("ABCD2345", "CDEF2345"):
        await store.access.approve(code, by="operator")


async def test_the_person_is_told_and_the_code_is_forgotten(store: Store) -> None:
    await store.access.ask(caller(1), "ABCD2345")
    (asked,) = await told(store)
    await store.outbox.record(asked.id, PartState.SENT, receipt="r1")
    await store.access.approve("ABCD2345", by="operator")

    (welcomed,) = await told(store)
    assert "let in" in welcomed.text
    eve = await store.principals.ensure("scripted:eve", role="member")
    update = Update(
        address=caller(2).address,
        external_id="m2",
        kind=UpdateKind.MESSAGE,
        principal=eve.id,
        text="thank you",
    )
    accepted = await store.inbox.accept(update, queue_max=10)
    record = await store.diagnostics.record(accepted.session)
    assert record.parts[0].receipt == "r1"
    assert "ABCD2345" not in repr(record)


async def test_a_code_is_good_once_and_for_an_hour(store: Store, clock: VirtualClock) -> None:
    await store.access.ask(caller(1), "ABCD2345")
    await store.access.approve("ABCD2345", by="operator")
    with pytest.raises(NotFound, match="no request has this code"):
        await store.access.approve("ABCD2345", by="operator")

    await store.access.ask(caller(2, "bob"), "BCDE2345")
    clock.advance(CODE_MS / 1000 + 1)
    with pytest.raises(NotFound, match="hour is over"):
        await store.access.approve("BCDE2345", by="operator")
    states = {each.sender: each.state for each in await store.access.pairings()}
    assert states == {"eve": "approved", "bob": "expired"}


async def test_pairings_come_in_pages_the_latest_first(store: Store, clock: VirtualClock) -> None:
    for number in range(5):
        clock.advance(number % 2)
        await store.access.ask(caller(number, f"stranger {number}"), f"CODE{number}")

    first = await store.access.pairings(Page(limit=3))
    rest = await store.access.pairings(Page(limit=3, after=(first[-1].asked_at, first[-1].id)))

    both = [*first, *rest]
    assert [len(first), len(rest)] == [3, 2]
    assert {each.sender for each in both} == {f"stranger {number}" for number in range(5)}
    assert both == sorted(both, key=lambda each: (each.asked_at, each.id), reverse=True)
    assert both == await store.access.pairings()


async def test_a_new_code_takes_the_place_of_the_last(store: Store, clock: VirtualClock) -> None:
    await store.access.ask(caller(1), "ABCD2345")
    clock.advance(61)
    assert await store.access.ask(caller(2), "BCDE2345")
    with pytest.raises(NotFound):
        await store.access.approve("ABCD2345", by="operator")
    await store.access.approve("BCDE2345", by="operator")


async def test_asking_again_and_again_gets_silence(store: Store, clock: VirtualClock) -> None:
    given = []
    for number in range(ASKED_MAX + 3):
        given.append(await store.access.ask(caller(number), f"CODE{number}"))
        clock.advance(1 if number == 0 else 120)
    assert given == [True, False, *[True] * (ASKED_MAX - 1), *[False] * 2]


async def test_no_more_than_so_many_strangers_wait(store: Store, clock: VirtualClock) -> None:
    # Each waiting code makes it more likely that a guess fits one.
    for number in range(WAITING_MAX):
        assert await store.access.ask(caller(number, f"eve {number}"), f"CODE{number:04}")
    assert not await store.access.ask(caller(900, "one too many"), "CODE9999")

    clock.advance(CODE_MS / 1000)

    assert await store.access.ask(caller(901, "one too many"), "CODE9999")


async def test_the_same_request_again_gets_one_code(store: Store, clock: VirtualClock) -> None:
    assert await store.access.ask(caller(1), "ABCD2345")
    clock.advance(120)
    assert not await store.access.ask(caller(1), "BCDE2345")
    await store.access.approve("ABCD2345", by="operator")


async def test_a_revoked_pairing_counts_no_longer(store: Store) -> None:
    await store.access.ask(caller(1), "ABCD2345")
    pairing = await store.access.approve("ABCD2345", by="operator")
    assert await is_paired(store)

    revoked = await store.access.revoke(pairing.id, by="operator")

    assert revoked.state == "revoked"
    assert not await is_paired(store)
    with pytest.raises(NotFound, match="pair list"):
        await store.access.revoke("pair_nothing", by="operator")


async def test_refusals_of_an_account_are_bounded_and_the_oldest_give_way(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REFUSALS_MAX", 3)
    await store.access.refuse(caller(0, bot="another bot"), "stranger")
    for number in range(6):
        clock.advance(1)
        await store.access.refuse(caller(number), "stranger")

    known = [(await store.access.standing(caller(number))).is_refused for number in range(6)]

    assert known == [False] * 3 + [True] * 3
    assert (await store.access.standing(caller(0, bot="another bot"))).is_refused


async def test_what_a_stranger_said_is_kept_nowhere(store: Store) -> None:
    await store.access.refuse(caller(1), "stranger")
    await store.access.refuse(caller(1), "stranger")
    assert await told(store) == []
    assert not await store.archive.sessions(principal=None, page=Page(limit=10))


async def test_a_refusal_that_is_to_be_seen_is_said_once(store: Store) -> None:
    principal = await store.principals.ensure("eve", role="member")
    said = Person(store, principal.id, adapter=CHAT, place="room")
    await said.says("hello")
    address = Address(adapter=CHAT, account=principal.id, place="room")
    refused = PlacedArrival(address=address, arrival=caller(7).arrival)

    await store.access.refuse(refused, "queue_full", told="Not taken: the line is full.")
    await store.access.refuse(refused, "queue_full", told="Not taken: the line is full.")

    (part,) = await told(store)
    assert part.text == "Not taken: the line is full."
    await store.outbox.record(part.id, PartState.SENT, receipt="r")
    assert await told(store) == [], "nothing waits behind it"


async def test_a_thread_or_message_of_ours_is_known(store: Store) -> None:
    principal = await store.principals.ensure("eve", role="member")
    before = await store.access.standing(caller(1, thread="t1"))
    address = Address(adapter=CHAT, account="bot", place="with eve", thread="t1")
    update = Update(
        address=address,
        external_id="m1",
        kind=UpdateKind.MESSAGE,
        principal=principal.id,
        text="hi",
    )
    await store.inbox.accept(update, queue_max=10)

    engaged = [
        await store.access.standing(caller(2, thread="t1")),
        await store.access.standing(caller(3, target="m1")),
    ]
    strange = [
        await store.access.standing(caller(4, thread="t2")),
        await store.access.standing(caller(5, target="m9")),
    ]
    assert not before.is_engaged
    assert [each.is_engaged for each in engaged] == [True, True]
    assert [each.is_engaged for each in strange] == [False, False]


async def test_guessing_codes_is_stopped_for_an_hour(store: Store, clock: VirtualClock) -> None:
    await store.access.ask(caller(1), "ABCD2345")
    for number in range(WRONG_MAX):
        with pytest.raises(NotFound):
            await store.access.approve(f"GUESS{number:03}", by="operator")

    with pytest.raises(Rejected, match="wrong codes") as refused:
        await store.access.approve("ABCD2345", by="operator")

    assert refused.value.code == "too_many_codes"
    assert not await is_paired(store)
    clock.advance(CODE_MS / 1000 - 1)
    with pytest.raises(Rejected):
        await store.access.approve("ABCD2345", by="operator")
    clock.advance(1)
    await store.access.ask(caller(2), "EFGH6789")
    assert (await store.access.approve("EFGH6789", by="operator")).state == "approved"


async def test_each_change_of_a_message_is_refused_by_itself(store: Store) -> None:
    # A refused edit does not make the message itself a refused one.
    said = caller(1)
    edit = msgspec.structs.replace(said.arrival, kind=UpdateKind.EDIT, target="m0")

    await store.access.refuse(PlacedArrival(address=said.address, arrival=edit), "stranger")

    assert not (await store.access.standing(said)).is_refused


async def test_a_thread_of_a_stranger_is_none_of_ours(store: Store) -> None:
    # The place in which a code is given is not listed, and the bot takes no part in it.
    asking = caller(1, thread="t1")

    await store.access.ask(asking, "ABCD2345")

    assert not (await store.access.standing(caller(2, thread="t1"))).is_engaged


async def test_what_is_changed_from_another_place_is_not_taken_for_that_place(
    store: Store,
) -> None:
    principal = await store.principals.ensure("eve", role="member")
    await store.inbox.accept(
        Update(
            address=Address(adapter=CHAT, account="bot", place="elsewhere", thread="t1"),
            external_id="m1",
            kind=UpdateKind.MESSAGE,
            principal=principal.id,
            text="hi",
        ),
        queue_max=10,
    )

    known = await store.access.standing(caller(3, target="m1"))

    assert (known.author, known.where) == (principal.id, None)
