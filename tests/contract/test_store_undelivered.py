"""Checks that people are told, where they can read it, what could finally not be delivered."""

import pytest

from perdure.domain.address import HTTP
from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.events import NoticePosted
from perdure.ports.delivery.outbox import Part
from perdure.ports.records.history import Page
from perdure.store.operations.delivery.undelivered import AGAIN_MS
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, message, settle
from perdure.testkit.simulator.system import VirtualClock

CHAT = "chat"


class Talk:
    """Plays Eve, who talks in a group and in private places, and an operator with a home."""

    def __init__(self, store: Store, eve: Person, operator: Person) -> None:
        self.store = store
        self.eve = eve
        self.operator = operator
        self._said = 0

    async def answers(
        self, text: str, *, place: str = "room", kind: str = "group", to: PrincipalId | None = None
    ) -> Part:
        """Answer Eve or somebody else in a place. Returns the part that is now on its way."""
        self._said += 1
        update = message(
            to or self.eve.id,
            "?",
            external_id=f"e{self._said}",
            place=place,
            adapter=CHAT,
            account=self.eve.id,
            place_kind=kind,
        )
        await self.store.inbox.accept(update, queue_max=10)
        await settle(self.store, await claim_one(self.store), text, parts=(text,))
        (part,) = await self.store.outbox.take(adapter=CHAT, limit=1)
        return part

    async def told(self) -> list[tuple[str, str]]:
        """Return what the gateway has told people by itself, by conversation."""
        found = []
        for session in await self.store.archive.sessions(principal=None, page=Page(limit=100)):
            record = await self.store.diagnostics.record(session.id)
            notices = [r.event.text for r in record.events if isinstance(r.event, NoticePosted)]
            found += [(session.conversation, text) for text in notices]
        return sorted(found)


@pytest.fixture
async def talk(store: Store) -> Talk:
    eve = await store.principals.ensure("eve", role="member")
    boss = await store.principals.ensure("boss", role="operator")
    operator = Person(store, boss.id, place="office")
    await operator.says("/home")
    return Talk(store, Person(store, eve.id, adapter=CHAT, place="room"), operator)


async def test_the_person_of_a_lost_part_is_told_elsewhere_and_the_operators_at_home(
    talk: Talk,
) -> None:
    private = await talk.answers("hello", place="eve", kind="private")
    await talk.store.outbox.record(private.id, PartState.SENT, receipt="1")
    part = await talk.answers("to the group")

    recorded = await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")

    assert len(recorded) == 2
    (home, to_home), (chat, to_eve) = sorted(await talk.told(), key=lambda each: "My" in each[1])
    assert "kicked" in to_home
    assert part.id in to_home
    assert "chat:room" in to_eve
    assert "kicked" not in to_eve, "that is for the operators"
    assert home != chat
    (notice,) = await talk.store.outbox.take(adapter=CHAT, limit=10)
    assert (notice.address.place, notice.text) == ("eve", to_eve)


async def test_who_cannot_be_reached_is_not_told(talk: Talk) -> None:
    part = await talk.answers("to the group")
    await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")

    assert len(await talk.told()) == 1, "the operators"
    assert await talk.store.outbox.take(adapter=CHAT, limit=10) == []


async def test_of_what_may_have_arrived_only_the_operators_are_told(talk: Talk) -> None:
    private = await talk.answers("hello", place="eve", kind="private")
    await talk.store.outbox.record(private.id, PartState.SENT, receipt="1")
    part = await talk.answers("to the group")

    await talk.store.outbox.record(part.id, PartState.UNKNOWN, error="cut")

    ((_, text),) = await talk.told()
    assert "may not have arrived" in text


async def test_what_expires_is_told_as_well(talk: Talk, clock: VirtualClock) -> None:
    part = await talk.answers("late")
    await talk.store.outbox.record(part.id, PartState.PENDING)
    clock.advance(100)

    expired = await talk.store.outbox.expire(older_than_s=50)

    assert (expired.parts, len(expired.recorded)) == (1, 1)


async def test_of_one_conversation_people_are_told_once_in_a_while(
    talk: Talk, clock: VirtualClock
) -> None:
    for pause_s, told in ((0, 1), (AGAIN_MS / 1000 - 10, 1), (20, 2)):
        clock.advance(pause_s)
        part = await talk.answers("again")
        await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")
        assert len(await talk.told()) == told


async def test_each_person_of_a_group_is_told_of_their_own_loss(
    talk: Talk, clock: VirtualClock
) -> None:
    # The operators are told once an hour, whoever else is told meanwhile.
    bob = await talk.store.principals.ensure("bob", role="member")
    for person, place in ((talk.eve.id, "eve"), (bob.id, "bob")):
        private = await talk.answers("hello", place=place, kind="private", to=person)
        await talk.store.outbox.record(private.id, PartState.SENT, receipt=place)

    for pause_s, person, told in (
        (0, talk.eve.id, ["eve"]),
        (3000, bob.id, ["bob"]),
        (10, bob.id, []),
        (1000, talk.eve.id, ["eve"]),
    ):
        clock.advance(pause_s)
        part = await talk.answers("to the group", to=person)
        await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")
        notices = await talk.store.outbox.take(adapter=CHAT, limit=10)
        assert [each.address.place for each in notices] == told
        for notice in notices:
            await talk.store.outbox.record(notice.id, PartState.SENT, receipt=notice.id)

    at_home = [text for _, text in await talk.told() if "A message to" in text]
    assert len(at_home) == 2


async def test_who_was_not_told_of_a_doubt_is_told_of_the_next_loss(talk: Talk) -> None:
    private = await talk.answers("hello", place="eve", kind="private")
    await talk.store.outbox.record(private.id, PartState.SENT, receipt="1")
    doubtful = await talk.answers("to the group")
    await talk.store.outbox.record(doubtful.id, PartState.UNKNOWN, error="cut")

    refused = await talk.answers("to the group")
    await talk.store.outbox.record(refused.id, PartState.FAILED, error="kicked")

    (notice,) = await talk.store.outbox.take(adapter=CHAT, limit=10)
    assert notice.address.place == "eve"


async def test_what_tells_of_it_is_never_told_of(talk: Talk) -> None:
    private = await talk.answers("hello", place="eve", kind="private")
    await talk.store.outbox.record(private.id, PartState.SENT, receipt="1")
    part = await talk.answers("to the group")
    await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")
    before = await talk.told()
    (notice,) = await talk.store.outbox.take(adapter=CHAT, limit=10)

    await talk.store.outbox.record(notice.id, PartState.FAILED, error="blocked")

    assert await talk.told() == before


async def test_a_preview_or_a_withdrawn_part_is_no_loss(talk: Talk) -> None:
    part = await talk.answers("hello")
    await talk.store.outbox.record(part.id, PartState.SENT, receipt="1")
    update = message(talk.eve.id, "?", external_id="more", place="room", adapter=CHAT)
    await talk.store.inbox.accept(update, queue_max=10)
    claimed = await claim_one(talk.store)
    bubble = await talk.store.outbox.bubble(claimed.lease, 0, "so far")
    assert bubble is not None
    assert bubble.part.step is DeliveryStep.BUBBLE
    await talk.store.outbox.record(bubble.part.id, PartState.UNKNOWN, error="cut")

    assert await talk.told() == []


async def test_a_home_over_http_reads_it_there(talk: Talk) -> None:
    part = await talk.answers("hello")
    await talk.store.outbox.record(part.id, PartState.FAILED, error="kicked")

    assert await talk.store.outbox.take(adapter=HTTP, limit=10) == []
    assert len(await talk.told()) == 1


async def test_nobody_is_told_in_the_place_that_takes_nothing(talk: Talk) -> None:
    part = await talk.answers("hello", place="eve", kind="private")

    await talk.store.outbox.record(part.id, PartState.FAILED, error="blocked")

    assert await talk.store.outbox.take(adapter=CHAT, limit=10) == []
    assert len(await talk.told()) == 1, "the operators"


async def test_what_was_taken_back_while_it_was_sent_is_no_loss(talk: Talk) -> None:
    part = await talk.answers("hello", place="eve", kind="private")
    undo = message(
        talk.eve.id,
        "/undo",
        external_id="undo",
        place="eve",
        adapter=CHAT,
        account=talk.eve.id,
        place_kind="private",
    )
    await talk.store.inbox.accept(undo, queue_max=10)

    await talk.store.outbox.record(part.id, PartState.PENDING, error="429", attempt=part.attempts)

    assert await talk.told() == []
