"""Checks how much one member may have: counted exactly, in the transactions that store it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from tests.untyped_rows import row

from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import MediaId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment, MediaLost
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.people.quotas import OverQuota, Quota, QuotaKind
from perdure.ports.records.media import FetchedFile, Media
from perdure.store.operations.people.quotas import _HELD
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock

Limited = Callable[[Quota], Awaitable[Store]]
DAY_S = 86_400
FILE = Attachment(reference="ref-1", name="report.txt", size=5)


async def upload(store: Store, person: Person, data: bytes) -> Media:
    return await store.media.put(data, mime="text/plain", name="a.txt", principal=person.id)


async def say(
    store: Store,
    person: Person,
    text: str,
    *attachments: Attachment,
    place: str = "room",
    busy: Busy = Busy.QUEUE,
) -> Accepted:
    update = Update(
        address=Address(adapter="chat", account="bot", place=place),
        external_id=f"{place} {text}",
        kind=UpdateKind.MESSAGE,
        principal=person.id,
        text=text,
        attachments=attachments,
        busy=busy,
    )
    return await store.inbox.accept(update, queue_max=100)


async def held(store: Store, person: Person) -> tuple[int, int]:
    found = await store._driver.read(partial(row, _HELD, person.id))
    return (found[0], found[1]) if found else (0, 0)


async def refused(store: Store, person: Person, text: str, **more: str) -> OverQuota:
    with pytest.raises(OverQuota) as caught:
        await say(store, person, text, **more)  # type: ignore[arg-type]
    return caught.value


async def test_turns_at_once_are_bounded_over_all_conversations(
    limited: Limited, ada: Person, bob: Person
) -> None:
    store = await limited(Quota(turns=3))
    for number in range(3):
        await say(store, ada, f"{number}", place=f"room {number}")

    error = await refused(store, ada, "more", place="another room")

    assert (error.kind, error.code) == (QuotaKind.TURNS, "rate_limit_exceeded")
    assert error.retry_after_s
    assert (await say(store, ada, "0", place="room 0")).is_duplicate, "a repeat is no new turn"
    assert (await say(store, ada, "/stop", place="room 1")).command, "commands are always taken"
    await say(store, ada, "more", place="another room")
    await refused(store, ada, "still more", place="another room")
    await refused(store, ada, "/background look around", place="another room")
    await say(store, bob, "hello", place="his room")
    await settle(store, await claim_one(store), "done")
    await say(store, ada, "still more", place="another room")


async def test_a_message_that_replaces_a_turn_needs_no_more_room(
    limited: Limited, ada: Person
) -> None:
    store = await limited(Quota(turns=1))
    await say(store, ada, "one")
    await claim_one(store)
    await say(store, ada, "two", busy=Busy.INTERRUPT)
    await refused(store, ada, "three")


async def test_operators_have_no_quotas(limited: Limited) -> None:
    store = await limited(Quota(bytes=1, files=1, turns=1, requests_per_minute=1))
    boss = Person(store, (await store.principals.ensure("boss", role="operator")).id)
    for number in range(3):
        await upload(store, boss, b"data %d" % number)
        await say(store, boss, f"{number}", place=f"room {number}")


async def test_bytes_are_counted_exactly_and_bounded(
    store: Store, limited: Limited, ada: Person
) -> None:
    media = await upload(store, ada, b"x" * 60)
    await upload(store, ada, b"x" * 60)
    assert await held(store, ada) == (60, 1), "the same file is stored once"
    await say(store, ada, "grüße", Attachment(media=media.id, mime="text/plain", name="a.txt"))
    assert await held(store, ada) == (67, 0), "a message has named it"
    store = await limited(Quota(bytes=70))

    error = await refused(store, ada, "four")

    assert (error.kind, error.code) == (QuotaKind.BYTES, "insufficient_quota")
    assert error.retry_after_s is None
    with pytest.raises(OverQuota):
        await upload(store, ada, b"four")
    assert await held(store, ada) == (67, 0), "nothing was stored"
    await say(store, ada, "3!!")
    assert await held(store, ada) == (70, 0)


async def test_a_fetched_file_beyond_the_quota_is_given_up_and_told(
    limited: Limited, ada: Person
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * 50

    store = await limited(Quota(bytes=40))
    await say(store, ada, "read", FILE)
    (fetch,) = await store.fetches.take(adapters=["chat"], limit=9)
    kept = await store.media.keep(pieces(), bytes_max=99)
    found = FetchedFile(mime="text/plain", name="a.txt", size=kept.size, digest=kept.digest)

    recorded = await store.fetches.done(fetch, found)

    (lost,) = [each.event for each in recorded if isinstance(each.event, MediaLost)]
    assert "40 bytes" in lost.reason
    assert await held(store, ada) == (4, 0)
    await claim_one(store)


async def test_files_that_no_message_names_are_bounded_and_removed_after_a_day(
    limited: Limited, ada: Person, clock: VirtualClock
) -> None:
    store = await limited(Quota(files=2))
    first, second = await upload(store, ada, b"one"), await upload(store, ada, b"two")

    with pytest.raises(OverQuota) as caught:
        await upload(store, ada, b"three")

    assert caught.value.kind is QuotaKind.FILES
    await say(store, ada, "look", Attachment(media=first.id, mime="text/plain", name="a.txt"))
    third = await upload(store, ada, b"three")
    clock.advance(DAY_S + 1)
    assert await store.media.remove_loose() == 2
    assert await held(store, ada) == (len("one") + len("look"), 0)
    assert await store.media.get(first.id, principal=ada.id) == first
    for gone in (second, third):
        with pytest.raises(NotFound):
            await store.media.get(gone.id, principal=ada.id)
    with pytest.raises(NotFound, match="upload it again"):
        await say(store, ada, "too late", Attachment(media=MediaId(second.id), name="a.txt"))


async def test_a_request_for_the_background_takes_room(limited: Limited, ada: Person) -> None:
    store = await limited(Quota(turns=1))
    await say(store, ada, "/background dig")

    await refused(store, ada, "one", place="another")


async def test_a_replacing_message_needs_room_where_more_waits_than_is_allowed(
    limited: Limited, ada: Person
) -> None:
    # The quota was lowered meanwhile.
    store = await limited(Quota(turns=3))
    for place in ("a", "b", "c"):
        await say(store, ada, "one", place=place)
    await store.turns.claim(limit=1)
    store = await limited(Quota(turns=1))

    with pytest.raises(OverQuota):
        await say(store, ada, "two", place="a", busy=Busy.INTERRUPT)
