"""Checks that the author of a message stays its author, whatever happens to the message, on both
databases.

The author pays for the turn, is the person whose memories it gets, is named to the model in a
group, and is answered in the place where the message was written.
"""

import re
from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Interruption, Outcome
from perdure.domain.people.budgets import Amount, Budget, DailyBudgets
from perdure.domain.turn.recovery import Policy, Resume
from perdure.ports.turns.budgets import Reservation
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, Person, claim_one, only, settle

CLUB = Address(adapter="scripted", account="bot", place="club")
ASK = Policy(resume=Resume.ASK, freshness_ms=0)
OpenStore = Callable[[], Awaitable[Store]]
_CODE = re.compile(r"The code is ([0-9A-Z]{8}),")


pytestmark = pytest.mark.usefixtures("everything_ends_sound")


class Speaker:
    """Plays a person who writes in one place."""

    def __init__(
        self, store: Store, who: PrincipalId, address: Address, *, kind: str, sender: str = ""
    ) -> None:
        self._store = store
        self.who = who
        self.address = address
        self.sender = sender
        self._kind = kind
        self._said = 0

    async def says(self, text: str, *, busy: Busy = Busy.QUEUE, album: str = "") -> Accepted:
        update = self.update(text, busy=busy, album=album)
        return await self._store.inbox.accept(update, queue_max=100)

    def update(self, text: str, *, busy: Busy = Busy.QUEUE, album: str = "") -> Update:
        self._said += 1
        return Update(
            address=self.address,
            external_id=f"{self.address.place}/{self.who}/{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self.who,
            text=text,
            busy=busy,
            sender=self.sender,
            place_kind=self._kind,
            album=album,
        )


@pytest.fixture
def opener(store: Store, ada: Person) -> Speaker:
    """Return the person who wrote first in the group, so that the group's session belongs to
    her."""
    return Speaker(store, ada.id, CLUB, kind="group", sender="Ada (ada)")


@pytest.fixture
def other(store: Store, bob: Person) -> Speaker:
    """Return another member of the group."""
    return Speaker(store, bob.id, CLUB, kind="group", sender="Bob (bob)")


async def claimed_with(store: Store, text: str) -> Claimed:
    """Claim and settle turns until the one with these words is claimed."""
    for _ in range(5):
        claimed = await claim_one(store)
        if only(TurnQueued, claimed.events)[0].text == text:
            return claimed
        await settle(store, claimed)
    raise AssertionError(f"no turn says {text!r}")


def assert_is_of(speaker: Speaker, claimed: Claimed) -> None:
    queued = only(TurnQueued, claimed.events)[0]
    assert (queued.by, queued.sender) == (speaker.who, speaker.sender)
    assert (claimed.principal, claimed.address) == (speaker.who, speaker.address)


async def spent_today(store: Store, claimed: Claimed, person: PrincipalId) -> int:
    """Return what a person has spent today. A reservation beyond the budget is refused, and the
    refusal says what was spent."""
    wanted = Reservation(
        lease=claimed.lease,
        principal=person,
        conversation=claimed.conversation,
        agent="main",
        amount=Amount(tokens=1_000_000),
    )
    limits = DailyBudgets(person=Budget(tokens=1))
    refused = await store.budgets.reserve(wanted, limits=limits)
    assert refused is not None
    return refused.spent


async def _settle(store: Store, running: Claimed, opener: Speaker) -> None:
    await settle(store, running)


async def _stop(store: Store, running: Claimed, opener: Speaker) -> None:
    await store.inbox.stop(running.lease.turn, by=None)


async def _stop_by_command(store: Store, running: Claimed, opener: Speaker) -> None:
    await opener.says("/stop")


async def _supersede(store: Store, running: Claimed, opener: Speaker) -> None:
    await opener.says("newer", busy=Busy.INTERRUPT)


async def _make_way(store: Store, running: Claimed, opener: Speaker) -> None:
    await store.turns.interrupt(running.lease, Interruption.SHUTDOWN, attempts_max=3)
    await store.nodes.resume(ASK, limit=10)


async def _give_up(store: Store, running: Claimed, opener: Speaker) -> None:
    await store.turns.interrupt(running.lease, Interruption.CRASH, attempts_max=1)


@pytest.mark.parametrize("end", [_settle, _stop, _stop_by_command, _supersede, _make_way, _give_up])
async def test_a_steering_message_that_was_not_taken_stays_its_authors(
    store: Store,
    opener: Speaker,
    other: Speaker,
    end: Callable[[Store, Claimed, Speaker], Awaitable[None]],
) -> None:
    # Another person has opened the group, so nothing about the author can be taken from the group's
    # session. People steer only their own turns.
    await opener.says("hello")
    await settle(store, await claim_one(store))
    await other.says("work")
    running = await claim_one(store)
    steered = await other.says("this way", busy=Busy.STEER)
    assert steered.effect is UpdateEffect.STEERED

    await end(store, running, other)

    freed = await claimed_with(store, "this way")
    assert_is_of(other, freed)
    usage = Usage(input_tokens=70, output_tokens=7, model_calls=1)
    settlement = Settlement(outcome=Outcome.DONE, reason="stop", agent="main", usage=usage)
    await store.turns.settle(freed.lease, settlement)
    await opener.says("who has paid?")
    asking = await claimed_with(store, "who has paid?")
    assert await spent_today(store, asking, other.who) == 77
    assert await spent_today(store, asking, opener.who) == 0


async def test_a_turn_that_begins_at_once_is_the_same_as_one_that_is_claimed(
    store: Store, opener: Speaker, other: Speaker
) -> None:
    # Another person has opened the group, so nothing about the author can be taken from the group's
    # session.
    remembered = "the club meets on Fridays"
    await opener.says(f"/remember {remembered}")
    await opener.says("first")
    await settle(store, await claim_one(store))
    await other.says("claimed")
    claimed = await claim_one(store)
    usage = Usage(input_tokens=10, model_calls=1)
    paid = Settlement(outcome=Outcome.DONE, reason="stop", agent="main", usage=usage)
    await store.turns.settle(claimed.lease, paid)

    begun = (await store.inbox.accept_and_start(other.update("begun"), queue_max=9)).claimed

    assert begun is not None
    assert_is_of(other, begun)
    for field in ("principal", "conversation", "address", "is_shared", "view", "has_title"):
        assert getattr(begun, field) == getattr(claimed, field), field
    assert [each.text for each in begun.memories] == [each.text for each in claimed.memories]
    await store.turns.settle(begun.lease, paid)
    await opener.says("who has paid?")
    asking = await claim_one(store)
    assert await spent_today(store, asking, other.who) == 20
    assert await spent_today(store, asking, opener.who) == 0


async def test_a_waiting_message_stays_its_authors_where_it_moves_to(
    store: Store, opener: Speaker, other: Speaker
) -> None:
    await opener.says("deadly")
    running = await claim_one(store)
    await other.says("harmless")

    await _give_up(store, running, opener)

    moved = await claim_one(store)
    assert moved.lease.session != running.lease.session
    assert_is_of(other, moved)


async def test_a_turn_that_goes_on_after_a_crash_stays_its_authors(
    store: Store, opener: Speaker, other: Speaker, restart: OpenStore
) -> None:
    await opener.says("first")
    await settle(store, await claim_one(store))
    await other.says("second")
    await claim_one(store)

    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)
    await store.nodes.resume(GO_ON, limit=10)

    assert_is_of(other, await claim_one(store))


async def test_what_somebody_else_asks_again_stays_its_authors(
    store: Store, opener: Speaker, other: Speaker
) -> None:
    await opener.says("first")
    await settle(store, await claim_one(store))

    await other.says("/retry")

    assert_is_of(opener, await claimed_with(store, "first"))


async def test_only_ones_own_turn_is_stopped(store: Store, ada: Person, bob: Person) -> None:
    await ada.says("work")
    turn = (await claim_one(store)).lease.turn

    with pytest.raises(NotFound):
        await store.inbox.stop(turn, by=bob.id)

    await store.inbox.stop(turn, by=ada.id)


async def test_an_album_in_a_group_takes_no_piece_of_somebody_else(
    store: Store, opener: Speaker, other: Speaker
) -> None:
    first = await opener.says("mine", album="42")
    second = await other.says("his", album="42")

    assert first.turn != second.turn
    assert second.effect is UpdateEffect.QUEUED


async def test_a_steering_message_is_answered_where_it_was_written(
    store: Store, ada: Person, bob: Person
) -> None:
    # Two places of one person are linked, and the turn was begun in the other one.
    phone = Speaker(store, ada.id, _at("phone"), kind="private")
    tablet = Speaker(store, bob.id, _at("tablet"), kind="private")
    code = _CODE.match((await phone.says("/link")).reply)
    assert code is not None
    assert (await tablet.says(f"/link {code[1]}")).reply.startswith("Linked.")
    for begun_at, steered_at in ((phone, tablet), (tablet, phone)):
        await begun_at.says("work")
        running = await claim_one(store)
        assert running.address == begun_at.address
        text = f"this way from {steered_at.address.place}"
        assert (await steered_at.says(text, busy=Busy.STEER)).effect is UpdateEffect.STEERED

        await settle(store, running)

        freed = await claimed_with(store, text)
        assert (freed.address, freed.principal) == (steered_at.address, ada.id)
        await settle(store, freed)


def _at(place: str) -> Address:
    return Address(adapter="scripted", account="bot", place=place)
