"""Checks the `Stickers` port: a sticker is described once, and no turn waits long for its
description."""

import asyncio

import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.content.stickers import AGAIN_MS, WAIT_MS, Sticker
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.attachments import in_words
from perdure.domain.journal.events import Attachment, StickerDescribed, TurnQueued
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.prompt.prompt import MediaBlock
from perdure.ports.records.media import Fetch, FetchedFile, Late
from perdure.ports.records.stickers import Met
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    next_request,
    only,
    settle,
)
from perdure.testkit.simulator.system import VirtualClock

CHAT = "chat"
CAT = Attachment(
    reference="r1", mime="image/webp", sticker=Sticker(id="cat", emoji="🙂", set_name="Cats")
)
PICTURE = FetchedFile(mime="image/webp", name="sticker 🙂", size=9, digest="d" * 64)
TOLD = "[sticker: A cat waves; emoji 🙂, set Cats]"
UNTOLD = "[sticker; emoji 🙂, set Cats]"


async def send(
    store: Store, person: Person, attachment: Attachment = CAT, *, update: str, place: str = "room"
) -> Accepted:
    return await store.inbox.accept(
        Update(
            address=Address(adapter=CHAT, account="bot", place=place),
            external_id=update,
            kind=UpdateKind.MESSAGE,
            principal=person.id,
            text="",
            attachments=(attachment,),
            agent="seer",
        ),
        queue_max=10,
    )


async def take(store: Store) -> Fetch:
    (fetch,) = await store.fetches.take(adapters=[CHAT], limit=10)
    return fetch


async def described(store: Store, fetch: Fetch) -> Claimed:
    """Return the errand that describes the sticker, at work."""
    met = await store.stickers.meet(fetch)
    assert (met.is_new, met.agent) == (True, "seer")
    await store.stickers.describe(fetch, PICTURE, agent=met.agent)
    return await claim_one(store)


def told(claimed: Claimed) -> list[str]:
    """Return what the model is told of the turn's stickers."""
    blocks = [b for entry in entries_of(claimed.events) for b in entry.attachments]
    return [in_words(each) for each in blocks]


async def test_a_new_sticker_is_described_and_the_turn_is_told(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, update="u1")
    assert await store.turns.claim(limit=10) == [], "it waits"
    fetch = await take(store)
    errand = await described(store, fetch)

    (queued,) = only(TurnQueued, errand.events)
    assert (queued.kind, queued.agent, errand.principal) == (TurnKind.STICKER, "seer", ada.id)
    assert errand.parent is None, "it looks back at nothing"
    request = await next_request(store, errand)
    (block,) = [b for m in request.messages for b in m.blocks if isinstance(b, MediaBlock)]
    assert block.attachment.mime == "image/webp"
    assert await store.fetches.take(adapters=[CHAT], limit=10) == [], "it still waits"
    await settle(store, errand, "A cat waves.")

    met = await store.stickers.meet(await take(store))
    (event,) = only(StickerDescribed, met.recorded)
    assert event.words == "A cat waves"
    turn = await claim_one(store)
    assert turn.lease.turn == accepted.turn
    assert told(turn) == [TOLD]
    await settle(store, turn)
    await assert_sound(store, accepted.session, errand.lease.session)


async def test_a_known_sticker_is_told_at_once_and_to_everybody(
    store: Store, ada: Person, bob: Person
) -> None:
    await send(store, ada, update="u1")
    await settle(store, await described(store, await take(store)), "A cat waves.")
    await store.stickers.meet(await take(store))
    await settle(store, await claim_one(store))

    accepted = await send(store, bob, update="u2", place="elsewhere")

    (queued,) = only(TurnQueued, accepted.recorded)
    assert queued.attachments[0].text == "A cat waves"
    turn = await claim_one(store)
    assert told(turn) == [TOLD]
    await settle(store, turn)
    assert await store.fetches.take(adapters=[CHAT], limit=10) == []
    repeat = await send(store, bob, update="u2", place="elsewhere")
    assert (repeat.is_duplicate, repeat.turn) == (True, accepted.turn)


async def test_two_who_meet_a_sticker_at_once_send_one_errand(
    peers: list[Store], ada: Person
) -> None:
    one, two = peers[0], peers[-1]
    await send(one, ada, update="u1", place="here")
    await send(one, ada, update="u2", place="there")
    (first,) = await one.fetches.take(adapters=[CHAT], limit=1)
    (second,) = await two.fetches.take(adapters=[CHAT], limit=1)
    assert (await one.stickers.meet(first)).is_new
    assert (await two.stickers.meet(second)).is_new
    sent = await asyncio.gather(
        one.stickers.describe(first, PICTURE, agent="seer"),
        two.stickers.describe(second, PICTURE, agent="seer"),
    )
    orders = [each for recorded in sent for each in only(TurnQueued, recorded)]
    assert len(orders) == 1
    errand = await claim_one(one)
    waiting = await one.fetches.take(adapters=[CHAT], limit=10)
    for fetch in waiting:
        assert not (await one.stickers.meet(fetch)).is_new
    await settle(one, errand, "A cat waves.")

    again = await one.fetches.take(adapters=[CHAT], limit=10)
    recorded = [r for fetch in again for r in (await one.stickers.meet(fetch)).recorded]
    assert [each.words for each in only(StickerDescribed, recorded)] == ["A cat waves"] * 2


async def test_a_turn_waits_for_a_description_only_so_long(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    # A later description is used for the next turn. What this turn was told does not change.
    await send(store, ada, update="u1")
    errand = await described(store, await take(store))
    clock.advance(WAIT_MS / 1000)

    met = await store.stickers.meet(await take(store))

    assert [each.words for each in only(StickerDescribed, met.recorded)] == [""]
    turn = await claim_one(store)
    assert told(turn) == [UNTOLD]
    await settle(store, errand, "A cat waves.")
    assert told(turn) == [UNTOLD]
    await settle(store, turn)
    await send(store, ada, update="u2")
    assert told(await claim_one(store)) == [TOLD]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
async def test_a_failed_description_is_left_alone_for_a_while(
    store: Store, ada: Person, clock: VirtualClock, outcome: Outcome
) -> None:
    await send(store, ada, update="u1")
    errand = await described(store, await take(store))
    await settle(store, errand, outcome=outcome)
    assert not (await store.stickers.meet(await take(store))).is_new
    turn = await claim_one(store)
    assert told(turn) == [UNTOLD]
    await settle(store, turn)

    await send(store, ada, update="u2")
    assert not (await store.stickers.meet(await take(store))).is_new
    await settle(store, await claim_one(store))

    clock.advance(AGAIN_MS / 1000)
    await send(store, ada, update="u3")
    again = await described(store, await take(store))
    await settle(store, again, "A cat waves.")
    await store.stickers.meet(await take(store))
    assert told(await claim_one(store)) == [TOLD]


async def test_who_saw_nothing_has_described_nothing(store: Store, ada: Person) -> None:
    await send(store, ada, update="u1")
    await settle(store, await described(store, await take(store)), "Nothing.")
    await store.stickers.meet(await take(store))
    assert told(await claim_one(store)) == [UNTOLD]


async def test_a_sticker_nobody_can_look_at_is_told_by_name(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, update="u1")
    fetch = await take(store)
    assert (await store.stickers.meet(fetch)).is_new
    first = await store.stickers.pass_by(fetch)
    again = await store.stickers.pass_by(fetch)

    assert len(only(StickerDescribed, first)) == 1
    assert again == [], "said again after a lost answer"
    assert told(await claim_one(store)) == [UNTOLD]
    await send(store, ada, update="u2")
    assert (await store.stickers.meet(await take(store))).is_new, "another agent may see"
    await assert_sound(store, accepted.session)


async def test_a_sticker_that_is_late_is_missed_by_nobody(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, update="u1")
    (waiting,) = await store.fetches.waiting()

    recorded = await store.fetches.expire([Late(fetch=waiting.fetch)])

    assert [type(each.event) for each in recorded] == [StickerDescribed], "and nobody is told"
    assert (await claim_one(store)).lease.turn == accepted.turn


async def test_a_turn_that_was_stopped_meanwhile_is_told_nothing(store: Store, ada: Person) -> None:
    accepted = await send(store, ada, update="u1")
    fetch = await take(store)
    errand = await described(store, fetch)
    assert accepted.turn is not None
    await store.inbox.stop(accepted.turn, by=ada.id)
    await settle(store, errand, "A cat waves.")

    assert await store.fetches.take(adapters=[CHAT], limit=10) == []
    assert await store.stickers.meet(fetch) == Met()
    await send(store, ada, update="u2")
    assert told(await claim_one(store)) == [TOLD]
    await assert_sound(store, accepted.session)


async def test_stickers_of_two_platforms_are_two(store: Store, ada: Person) -> None:
    await send(store, ada, update="u1")
    await settle(store, await described(store, await take(store)), "A cat waves.")
    await store.stickers.meet(await take(store))
    await settle(store, await claim_one(store))
    other = msgspec.structs.replace(CAT, reference="r2")
    await store.inbox.accept(
        Update(
            address=Address(adapter="other", account="bot", place="room"),
            external_id="u1",
            kind=UpdateKind.MESSAGE,
            principal=ada.id,
            text="",
            attachments=(other,),
        ),
        queue_max=10,
    )
    (fetch,) = await store.fetches.take(adapters=["other"], limit=10)
    assert (await store.stickers.meet(fetch)).is_new
