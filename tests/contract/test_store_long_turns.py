"""Checks that a turn longer than a page is read in pieces, and shown as if it were read at once."""

from perdure.domain.ids import CallId, MessageId, SessionId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    SteerAccepted,
    ToolCall,
    ToolFinished,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.in_short import SHOWN_MAX
from perdure.domain.journal.records import ToldTurn
from perdure.domain.journal.transcript import Entry, entries_of, entries_of_session
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding
from perdure.ports.records.history import PAGE_BYTES
from perdure.ports.turns.turns import TurnLease
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, message, only, settle, turn_of

LONG = "x" * (PAGE_BYTES // 2)
STEPS = 5


def step(lease: TurnLease, number: int) -> list[AnyEvent]:
    """Make a step with two calls, of which each result fills more than half a page."""
    calls = tuple(
        ToolCall(id=CallId(f"call_{number}_{nth}"), name=f"look{nth}", arguments=f'"{LONG}"')
        for nth in range(2)
    )
    said = AssistantSaid(
        turn=lease.turn,
        attempt=lease.attempt,
        message=MessageId(f"msg_step_{number}"),
        text=f"step {number}",
        calls=calls,
    )
    found = [
        ToolFinished(turn=lease.turn, call=call.id, ending=CallEnding.RETURNED, result=LONG)
        for call in calls
    ]
    return [said, *found]


async def long_turn(store: Store, ada: Person, *, text: str = LONG) -> tuple[SessionId, TurnId]:
    accepted = await store.inbox.accept(message(ada.id, text, external_id="long"), queue_max=10)
    claimed = await claim_one(store)
    for number in range(STEPS):
        await store.turns.append(claimed.lease, step(claimed.lease, number))
    for number in range(2):
        steer = SteerAccepted(
            turn=claimed.lease.turn, message=MessageId(f"msg_steer_{number}"), text=LONG
        )
        await store.turns.append(claimed.lease, [steer])
    await store.turns.take_steers(claimed.lease)
    await settle(store, claimed, "the end")
    return accepted.session, turn_of(accepted)


async def pages_of(store: Store, session: SessionId) -> list[ToldTurn]:
    """Return all turns and pieces of turns, newest first."""
    found: list[ToldTurn] = []
    page = await store.archive.told(session, limit=100)
    while page:
        found += reversed(page)
        first = page[0]
        if not (first.begins_at or first.has_earlier):
            break
        page = await store.archive.told(
            session, before=first.turn, before_seq=first.begins_at, limit=100
        )
    return found


def told_as_one(pages: list[ToldTurn], session: SessionId) -> list[Entry]:
    return [
        entry for page in reversed(pages) for entry in entries_of_session([page], session, None)
    ]


async def test_the_pieces_of_a_turn_tell_what_it_tells_as_a_whole(
    store: Store, ada: Person
) -> None:
    await ada.says("before")
    await settle(store, await claim_one(store))
    session, turn = await long_turn(store, ada)
    await ada.says("behind")
    await settle(store, await claim_one(store))

    pages = await pages_of(store, session)

    assert len([page for page in pages if page.turn == turn]) > STEPS
    own = [page for page in pages if page.turn == turn]
    (whole,) = await store.conversations.chain(turn, limit=1)
    assert told_as_one(own, session) == entries_of(whole)
    assert [entry.text for entry in told_as_one(pages, session)][:2] == ["before", "fine"]
    for page in pages:
        size = sum(len(each.text) for each in told_as_one([page], session))
        assert size <= PAGE_BYTES + len(LONG)


async def test_the_last_words_of_a_message_are_told_in_its_piece(store: Store, ada: Person) -> None:
    session, turn = await long_turn(store, ada)
    plain = message(ada.id, external_id="long")
    await store.inbox.accept(
        Update(
            address=plain.address,
            external_id="edit",
            kind=UpdateKind.EDIT,
            principal=ada.id,
            text="other words",
            target="long",
        ),
        queue_max=10,
    )
    again = await claim_one(store)
    await settle(store, again, "again")

    told = await store.archive.told(session, limit=100, with_left=True)
    assert told[-1].turn == again.lease.turn
    entries: list[Entry] = []
    page = await store.archive.told(session, before=again.lease.turn, limit=9, with_left=True)
    while page:
        entries = entries_of_session(page, session, None) + entries
        assert {each.left for each in page} == {"asked_again"}
        begins_at = page[0].begins_at
        page = (
            await store.archive.told(
                session, before=turn, before_seq=begins_at, limit=9, with_left=True
            )
            if begins_at
            else []
        )
    assert entries[0].text == "other words"
    assert entries[-1].text == "the end"


async def test_a_place_that_nobody_was_given_is_empty(store: Store, ada: Person) -> None:
    session, turn = await long_turn(store, ada)
    assert await store.archive.told(session, before=turn, before_seq=1, limit=9) == []
    strange = TurnId("trn_nobody")
    assert await store.archive.told(session, before=strange, before_seq=9, limit=9) == []


async def test_a_long_turn_is_explained_in_short(store: Store, ada: Person) -> None:
    _, turn = await long_turn(store, ada, text="asked")
    (whole,) = await store.conversations.chain(turn, limit=1)

    found = (await store.diagnostics.explain(turn, principal=None)).events

    assert [each.key for each in found] == [each.key for each in whole]
    (asked,) = only(TurnQueued, found)
    assert asked == only(TurnQueued, whole)[0], "what is short stays as it is"
    for result in only(ToolFinished, found):
        assert result.result.startswith(LONG[:SHOWN_MAX] + "…")
        assert f"{len(LONG):,} characters" in result.result
    said = only(AssistantSaid, found)[0]
    assert said.calls[0].name == "look0"
    assert len(said.calls[0].arguments) < SHOWN_MAX + 200


async def test_what_a_long_turn_said_is_found(store: Store, ada: Person) -> None:
    await long_turn(store, ada, text="asked")

    async def found(words: str) -> list[str]:
        hits = await store.archive.search(words, principal=ada.id, before=None, limit=20)
        return [f"{hit.role} {hit.text[:6].strip()}" for hit in hits]

    assert await found("asked") == ["user asked"]
    assert await found("step") == [f"assistant step {number}" for number in reversed(range(STEPS))]
    assert await found("the end") == ["assistant the en"]


async def test_what_was_asked_and_answered_is_read_without_the_rest(
    store: Store, ada: Person
) -> None:
    _, turn = await long_turn(store, ada)

    found = await store.conversations.exchange(turn)

    kinds: list[type[AnyEvent]] = [TurnQueued, AssistantSaid, TurnSettled]
    (whole,) = await store.conversations.chain(turn, limit=1)
    assert _only(found, kinds) == _only(whole, kinds)
    assert not only(ToolFinished, found)
    assert await store.conversations.exchange(TurnId("trn_nobody")) == []


def _only(turn: list[Recorded], kinds: list[type[AnyEvent]]) -> list[Recorded]:
    return [each for each in turn if type(each.event) in kinds]
