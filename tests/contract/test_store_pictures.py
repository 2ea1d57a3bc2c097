"""Checks how pictures that were made to fit are kept: beside the picture that somebody has sent,
made once whoever sends it, counted, and swept with it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from tests.untyped_rows import row

from perdure.domain.address import Address
from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.attachments import shown_attachments
from perdure.domain.journal.events import Attachment, MediaFetched, MediaLost
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.quotas import Quota
from perdure.domain.prompt.prompt import MediaBlock, messages_of
from perdure.domain.reading.texts import FileReading
from perdure.ports.records.media import SHARDS, Fetch, FetchedFile, FittedPicture
from perdure.store.operations.people.quotas import _HELD
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, assert_sound, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock

Limited = Callable[[Quota], Awaitable[Store]]
PHOTO = Attachment(reference="ref-1", name="a.heic")
LARGE, SMALL = b"a large photograph", b"small"


async def send(store: Store, person: Person, update: str, attachment: Attachment) -> Accepted:
    address = Address(adapter="chat", account="bot", place="room")
    return await store.inbox.accept(
        Update(
            address=address,
            external_id=update,
            kind=UpdateKind.MESSAGE,
            principal=person.id,
            text=update,
            attachments=(attachment,),
        ),
        queue_max=10,
    )


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def brought(store: Store, fetch: Fetch) -> MediaFetched | MediaLost:
    """Bring a photograph that was made smaller to its turn."""
    kept = await store.media.keep(pieces(LARGE), bytes_max=100)
    small = await store.media.keep(pieces(SMALL), bytes_max=100)
    found = FetchedFile(
        mime="image/heic",
        name="a.heic",
        size=kept.size,
        digest=kept.digest,
        fitted=FittedPicture(digest=small.digest, size=small.size),
    )
    events = [each.event for each in await store.fetches.done(fetch, found)]
    (event,) = [each for each in events if isinstance(each, MediaFetched | MediaLost)]
    return event


async def taken(store: Store) -> Fetch:
    (fetch,) = await store.fetches.take(adapters=["", "chat"], limit=10)
    return fetch


async def told(store: Store, turn: TurnId | None) -> Attachment:
    assert turn is not None
    (events,) = await store.conversations.chain(turn, limit=1)
    blocks = [block for message in messages_of(events) for block in message.blocks]
    (file,) = [block.attachment for block in blocks if isinstance(block, MediaBlock)]
    return file


async def test_a_turn_is_told_what_its_picture_was_made_into(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, "u1", PHOTO)
    event = await brought(store, await taken(store))

    assert isinstance(event, MediaFetched)
    file = await told(store, accepted.turn)
    assert file.media == event.media
    assert await store.media.read(event.media) == LARGE, "people get what was sent"
    assert await store.media.read_kept(file.shown) == SMALL
    assert [each.shown for each in shown_attachments([file])] == [""], "it is for models only"
    await assert_sound(store, accepted.session)


async def test_the_same_picture_is_made_smaller_once_whoever_sends_it(
    store: Store, ada: Person, bob: Person
) -> None:
    await send(store, ada, "u1", PHOTO)
    first = await brought(store, await taken(store))
    assert isinstance(first, MediaFetched)
    kept = await store.media.keep(pieces(LARGE), bytes_max=100)

    known = await store.media.fitted(kept.digest)

    assert known == FittedPicture(digest=first.shown, size=len(SMALL))
    assert await store.media.fitted(first.shown) is None
    await send(store, bob, "u2", PHOTO)
    again = await brought(store, await taken(store))
    assert isinstance(again, MediaFetched)
    assert (again.shown, again.media != first.media) == (first.shown, True)


async def test_an_uploaded_picture_that_does_not_fit_is_waited_for(
    store: Store, ada: Person
) -> None:
    picture = await store.media.put(LARGE, mime="image/png", name="a.png", principal=ada.id)
    unfit = Attachment(media=picture.id, mime="image/png", name="a.png", is_unfit=True)
    accepted = await send(store, ada, "u1", unfit)
    fetch = await taken(store)
    assert fetch.attachment.media == picture.id

    small = await store.media.keep(pieces(SMALL), bytes_max=100)
    fitted = FittedPicture(digest=small.digest, size=small.size)
    found = FetchedFile(mime="image/png", name="a.png", size=picture.size, fitted=fitted)
    await store.fetches.done(fetch, found)

    file = await told(store, accepted.turn)
    assert (file.media, file.shown, file.is_unfit) == (picture.id, small.digest, False)
    assert await store.media.fitted(picture.digest) == fitted
    await settle(store, await claim_one(store))
    repeated = await store.inbox.accept(
        Update(
            address=Address(adapter="chat", account="bot", place="room"),
            external_id="u2",
            kind=UpdateKind.MESSAGE,
            principal=ada.id,
            text="/retry",
        ),
        queue_max=10,
    )
    assert await store.fetches.take(adapters=["", "chat"], limit=10) == [], "it is ready already"
    assert (await told(store, repeated.turn)).shown == small.digest


async def test_a_picture_that_could_not_be_made_to_fit_is_named_only(
    store: Store, ada: Person
) -> None:
    accepted = await send(store, ada, "u1", PHOTO)
    kept = await store.media.keep(pieces(LARGE), bytes_max=100)
    damaged = FileReading(problem="the picture is damaged")
    found = FetchedFile(
        mime="image/heic", name="a.heic", size=kept.size, digest=kept.digest, reading=damaged
    )
    await store.fetches.done(await taken(store), found)

    file = await told(store, accepted.turn)
    assert (file.shown, file.problem) == ("", "the picture is damaged")


async def test_what_models_are_shown_is_swept_only_with_its_picture(
    store: Store, ada: Person, clock: VirtualClock, tmp_path: Path
) -> None:
    await send(store, ada, "u1", PHOTO)
    event = await brought(store, await taken(store))
    assert isinstance(event, MediaFetched)
    for path in (tmp_path / "media").rglob("*"):
        os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    clock.advance(90_000)

    assert sum([await store.media.sweep(shard) for shard in range(SHARDS)]) == 0
    assert await store.media.read_kept(event.shown) == SMALL


@pytest.mark.parametrize("is_enough", [True, False])
async def test_both_pictures_count_towards_what_their_owner_may_store(
    limited: Limited, ada: Person, *, is_enough: bool
) -> None:
    both = len(LARGE) + len(SMALL)
    store = await limited(Quota(bytes=both + len("u1") - (not is_enough)))
    await send(store, ada, "u1", PHOTO)

    event = await brought(store, await taken(store))

    assert isinstance(event, MediaFetched if is_enough else MediaLost)
    held = await store._driver.read(partial(row, _HELD, ada.id))
    assert held is not None
    assert held[0] == len("u1") + (both if is_enough else 0)
