"""Checks what the store knows of a turn's person when the turn begins, and how a person's work is
ended."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.address import HTTP, Address
from perdure.domain.errors import Fenced
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import SenderTraits, TurnQueued, TurnSettled
from perdure.domain.journal.session_events import HeadMoved
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.people.access import ACCESS_ENDED, Speaker
from perdure.ports.people.access import PlacedArrival
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.turns.turns import Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    assert_sound,
    claim_one,
    flush,
    only,
    reply_id,
    settle,
    turn_of,
)

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "scripted"
WHY = f"{ACCESS_ENDED}: for a test"
STAFF = SenderTraits(roles=("staff",), is_bot=True)


class Spot:
    """Plays one person of a platform in one of its places."""

    def __init__(self, store: Store, who: PrincipalId, *, place: str = "room") -> None:
        self._store = store
        self._who = who
        self.address = Address(adapter=CHAT, account="bot", place=place)
        self._said = 0

    async def says(self, text: str, *, busy: Busy = Busy.QUEUE, kind: str = "private") -> Accepted:
        self._said += 1
        update = Update(
            address=self.address,
            external_id=f"{self._who}-{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self._who,
            text=text,
            busy=busy,
            place_kind=kind,
            traits=STAFF,
        )
        return await self._store.inbox.accept(update, queue_max=9)


@pytest.fixture
async def eve(store: Store) -> Spot:
    return Spot(store, (await store.principals.ensure(f"{CHAT}:eve", role="member")).id)


async def pair(store: Store, eve: Spot, *, account: str = "bot", sender: str = "eve") -> str:
    where = Address(adapter=CHAT, account=account, place=eve.address.place)
    arrival = Arrival(
        external_id=f"{account}-{sender}",
        place=where.place,
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id=sender),
    )
    await store.access.ask(PlacedArrival(address=where, arrival=arrival), f"CODE{account}{sender}")
    return (await store.access.approve(f"CODE{account}{sender}", by="root")).id


async def the_speaker(store: Store) -> Speaker:
    """Return the speaker of the only waiting turn. It must be the same in the list of unfinished
    turns and in the claim."""
    (seen,) = await store.turns.unfinished(after=None, limit=9)
    claimed = await claim_one(store)
    assert seen.turn == claimed.lease.turn
    assert seen.speaker == claimed.speaker
    return seen.speaker


async def test_a_token_counts_until_it_is_revoked(store: Store, ada: Person) -> None:
    await store.principals.grant(ada.id, "t1")
    await ada.says("hello")
    speaker = await the_speaker(store)
    assert speaker == Speaker(
        name="ada", adapter=HTTP, place="home", has_token=True, is_paired=False
    )

    await store.principals.revoke("ada")
    (seen,) = await store.turns.unfinished(after=None, limit=9)
    assert not seen.speaker.has_token


async def test_another_token_of_theirs_still_counts(store: Store, ada: Person) -> None:
    first = await store.principals.grant(ada.id, "t1")
    await store.principals.grant(ada.id, "t2")
    await store.principals.revoke(first.id)
    await ada.says("hello")
    assert (await the_speaker(store)).has_token


async def test_a_pairing_counts_for_its_person_and_account_until_it_is_revoked(
    store: Store, eve: Spot
) -> None:
    await pair(store, eve, account="another bot")
    await pair(store, eve, sender="mallory")
    accepted = await eve.says("hello")
    assert await the_speaker(store) == Speaker(
        name="scripted:eve",
        adapter=CHAT,
        place="room",
        has_token=False,
        is_paired=False,
        traits=STAFF,
    )

    pairing = await pair(store, eve)
    (seen,) = await store.turns.unfinished(after=None, limit=9)
    assert (seen.turn, seen.speaker.is_paired) == (accepted.turn, True)
    await store.access.revoke(pairing, by="root")
    (seen,) = await store.turns.unfinished(after=None, limit=9)
    assert not seen.speaker.is_paired


async def test_the_speaker_in_a_linked_place_is_the_person_of_that_place(
    store: Store, ada: Person, eve: Spot
) -> None:
    await ada.is_answered("hello", "yes")
    code = (await ada.says("/link")).reply.split()[3].strip(",.")
    await eve.says(f"/link {code}")
    await eve.says("hello from elsewhere")
    claimed = await claim_one(store)
    assert claimed.principal == ada.id
    assert claimed.speaker is not None
    assert (claimed.speaker.name, claimed.speaker.adapter) == ("scripted:eve", CHAT)


async def test_what_is_sent_is_its_senders_also_into_a_linked_place(
    store: Store, ada: Person, eve: Spot
) -> None:
    await ada.is_answered("hello", "yes")
    code = (await ada.says("/link")).reply.split()[3].strip(",.")
    await eve.says(f"/link {code}")
    root = await store.principals.ensure("root", role="operator")
    sending = OutgoingMessage(
        to=f"{CHAT}:room", text="news", external_id="s1", by=root, accounts={CHAT: "bot"}
    )
    await store.places.send(sending, queue_max=9)
    claimed = await claim_one(store)
    assert claimed.speaker is not None
    assert claimed.speaker.name == "root"


async def test_what_the_platform_told_of_them_stays_with_their_words(
    store: Store, eve: Spot
) -> None:
    # Covers a steer that becomes a turn, a turn that is asked again, and an errand.
    await eve.says("first")
    first = await claim_one(store)
    await eve.says("be quick", busy=Busy.STEER)
    await settle(store, first)
    freed = await claim_one(store)
    await settle(store, freed)
    await eve.says("/retry")
    again = await claim_one(store)
    await settle(store, again)
    await eve.says("/background think")
    errand = await claim_one(store)
    await settle(store, errand)
    result = await claim_one(store)
    for claimed in (first, freed, again, errand, result):
        assert claimed.speaker is not None
        assert claimed.speaker.traits == STAFF
    assert errand.events[0].event.kind == TurnKind.BACKGROUND  # type: ignore[union-attr]


async def test_errands_of_a_group_are_for_whoever_led_to_them(store: Store, eve: Spot) -> None:
    bob = await store.principals.ensure(f"{CHAT}:bob", role="member")
    beside = Spot(store, bob.id)
    led = None
    for number, spot in enumerate((eve, eve, eve, eve, beside), 1):
        await spot.says("hello", kind="group")
        lease = led = (await claim_one(store)).lease
        answer = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            message=reply_id(lease),
            text="yes",
            context_tokens=1_000 * number,
        )
        await store.turns.settle(lease, answer)

    assert led is not None
    await store.errands.entitle(led.session, at=led.turn, agent="main")
    await store.errands.compact(led.session, keep_tokens=0, agent="main")

    errands = await store.turns.claim(limit=9)
    assert len(errands) == 2
    assert {each.principal for each in errands} == {bob.id}
    assert {each.speaker.name for each in errands if each.speaker} == {"scripted:bob"}


async def test_unfinished_turns_come_in_pages(store: Store, ada: Person) -> None:
    turns = {turn_of(await ada.says(f"{number}")) for number in range(5)}
    await settle(store, await claim_one(store))
    seen: list[TurnId] = []
    while page := await store.turns.unfinished(after=seen[-1] if seen else None, limit=3):
        seen += [each.turn for each in page]
    assert sorted(seen) == seen
    assert len(seen) == 4
    assert set(seen) < turns


async def test_what_waits_is_refused_and_what_runs_is_stopped(store: Store, ada: Person) -> None:
    running, waiting = await ada.says("one"), await ada.says("two")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "a word")

    for accepted, outcome in ((waiting, Outcome.REFUSED), (running, Outcome.STOPPED)):
        (settled,) = only(TurnSettled, await store.turns.turn_away(turn_of(accepted), WHY))
        assert (settled.outcome, settled.reason) == (outcome, WHY)
        assert await store.turns.turn_away(turn_of(accepted), WHY) == []
    with pytest.raises(Fenced):
        await settle(store, claimed, "a word and more")
    assert await store.turns.claim(limit=9) == []
    await assert_sound(store, running.session)


async def test_an_interrupted_turn_is_refused_and_keeps_what_was_said(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says("hello")
    await flush(store, (await claim_one(store)).lease, "half an")
    store = await restart()
    await store.nodes.reap(attempts_max=9, limit=9)

    recorded = await store.turns.turn_away(turn_of(accepted), WHY)

    assert [event.outcome for event in only(TurnSettled, recorded)] == [Outcome.REFUSED]
    assert only(HeadMoved, recorded) == []
    view = await store.conversations.snapshot(accepted.conversation)
    assert view.view.standing.head == accepted.turn
    assert (await store.nodes.resume(GO_ON, limit=9)).recorded == []
    await assert_sound(store, accepted.session)


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_a_refused_turn_in_which_nothing_was_said_leaves_the_chain(
    store: Store, ada: Person, restart: OpenStore, *, is_claimed: bool
) -> None:
    # The turn is refused by its runner, or while it waits interrupted.
    first = await ada.is_answered("hello", "yes")
    accepted = await ada.says("secret")
    claimed = await claim_one(store)
    if is_claimed:
        settlement = Settlement(outcome=Outcome.REFUSED, reason=WHY)
        await store.turns.settle(claimed.lease, settlement)
    else:
        store = await restart()
        await store.nodes.reap(attempts_max=9, limit=9)
        await store.turns.turn_away(turn_of(accepted), WHY)

    view = await store.conversations.snapshot(accepted.conversation)
    assert view.view.standing.head == first
    await assert_sound(store, accepted.session)


async def test_a_refused_errand_brings_nothing_back(store: Store, eve: Spot) -> None:
    await eve.says("hello")
    await settle(store, await claim_one(store))
    accepted = await eve.says("/background think")
    while await store.outbox.take(adapter=CHAT, limit=9):
        pass

    recorded = await store.turns.turn_away(turn_of(accepted), WHY)

    assert only(TurnQueued, recorded) == []
    assert await store.turns.claim(limit=9) == []
