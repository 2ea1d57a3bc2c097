"""Checks on both databases how people order their conversations, and that their clients hear of it
live."""

import asyncio
from contextlib import aclosing

import pytest

from perdure.domain.ids import ConversationId
from perdure.domain.people.menu import PLAIN
from perdure.engine.watching.feed import Feed
from perdure.engine.watching.lists import LiveLists
from perdure.ports.records.history import ConversationView, Hit, Page, Shelf
from perdure.ports.records.shelves import Shelving
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, message, settle
from perdure.testkit.simulator.system import VirtualClock

SOON_S = 20


async def say(store: Store, person: Person, place: str, number: int = 1) -> ConversationId:
    update = message(person.id, "hello", external_id=f"{place}-{number}", place=place)
    return (await store.inbox.accept(update, queue_max=10, menu=PLAIN)).conversation


async def names(store: Store, person: Person, shelf: Shelf = Shelf.SHOWN) -> list[str]:
    found = await store.conversations.recent(principal=person.id, page=Page(), shelf=shelf)
    return [view.name for view in found]


async def view(store: Store, conversation: ConversationId) -> ConversationView:
    return (await store.conversations.snapshot(conversation)).view


@pytest.fixture
async def garden(store: Store, ada: Person) -> ConversationId:
    return await say(store, ada, "garden")


async def test_a_conversation_is_pinned_put_away_and_hidden_until_somebody_writes(
    store: Store, ada: Person, clock: VirtualClock, garden: ConversationId
) -> None:
    clock.advance(1)
    await say(store, ada, "work")
    await store.shelves.shelve(garden, Shelving(pinned=True))
    assert await names(store, ada, Shelf.PINNED) == ["garden"]
    assert await names(store, ada) == ["work", "garden"]

    await store.shelves.shelve(garden, Shelving(archived=True))
    assert await names(store, ada) == ["work"]
    assert await names(store, ada, Shelf.PINNED) == []
    assert await names(store, ada, Shelf.ARCHIVED) == ["garden"]
    assert (await view(store, garden)).is_pinned

    await store.shelves.shelve(garden, Shelving(hidden=True))
    assert await names(store, ada, Shelf.ARCHIVED) == []
    clock.advance(1)
    await say(store, ada, "garden", 2)
    assert await names(store, ada) == ["garden", "work"]
    await store.shelves.shelve(garden, Shelving(pinned=False, hidden=False))
    assert await names(store, ada, Shelf.PINNED) == []


async def test_an_answer_is_unread_until_it_was_seen(
    store: Store, ada: Person, clock: VirtualClock, garden: ConversationId
) -> None:
    assert not (await view(store, garden)).is_unread
    clock.advance(5)
    await settle(store, await claim_one(store))
    assert (await view(store, garden)).is_unread
    clock.advance(5)
    await store.shelves.shelve(garden, Shelving(is_seen=True))
    assert not (await view(store, garden)).is_unread

    clock.advance(5)
    await say(store, ada, "garden", 2)
    await settle(store, await claim_one(store))
    assert (await view(store, garden)).is_unread


async def test_sessions_of_a_conversation_are_listed_newest_first(
    store: Store, ada: Person, clock: VirtualClock, garden: ConversationId
) -> None:
    for number in range(3):
        clock.advance(10)
        update = message(ada.id, f"/new part {number}", external_id=f"new-{number}", place="garden")
        await store.inbox.accept(update, queue_max=10, menu=PLAIN)
    await say(store, ada, "work")

    found = await store.archive.sessions_of(garden, limit=10)
    assert [each.title for each in found] == ["part 2", "part 1", "part 0", ""]
    assert [each.is_live for each in found] == [True, False, False, False]
    rest = await store.archive.sessions_of(garden, limit=10, after=found[1].opened_at)
    assert [each.title for each in rest] == ["part 0", ""]


async def test_clients_hear_live_of_what_changes_and_of_nothing_else(
    store: Store, ada: Person, bob: Person, garden: ConversationId
) -> None:
    feed = Feed()
    lists = LiveLists(store.conversations, is_shared=False)
    feed.observe(lists.observe)
    async with asyncio.timeout(SOON_S), aclosing(lists.of(ada.id)) as stream:
        assert [each.name for each in await anext(stream)] == ["garden"]

        others = message(bob.id, "hello", external_id="b1", place="theirs")
        feed.publish_recorded((await store.inbox.accept(others, queue_max=10, menu=PLAIN)).recorded)
        mine = message(ada.id, "hello", external_id="a9", place="work")
        feed.publish_recorded((await store.inbox.accept(mine, queue_max=10, menu=PLAIN)).recorded)
        assert [each.name for each in await anext(stream)] == ["work"]

        await store.shelves.shelve(garden, Shelving(pinned=True))
        lists.touch(garden)
        (pinned,) = await anext(stream)
        assert (pinned.name, pinned.is_pinned) == ("garden", True)
        # What was not changed is not told again: the next news is the next change.
        lists.touch(garden)
        feed.publish_recorded(await settle(store, (await store.turns.claim(limit=1))[0]))
        (answered,) = await anext(stream)
        assert answered.is_unread

        lists.close()
        assert [each async for each in stream] == []


async def found(store: Store, person: Person | None, words: str, **more: bool) -> list[Hit]:
    who = None if person is None else person.id
    return await store.archive.search(words, principal=who, before=None, limit=9, **more)


async def test_what_a_person_deleted_is_neither_found_nor_listed_until_somebody_writes_there(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    kept = await say(store, ada, "garden")
    gone = await say(store, ada, "work")
    for _ in range(2):
        await settle(store, await claim_one(store), "plums are blue")
    await store.shelves.shelve(kept, Shelving(archived=True))
    await store.shelves.shelve(gone, Shelving(hidden=True))

    hits = await found(store, ada, "plums")
    assert [(hit.conversation, hit.archived) for hit in hits] == [("garden", True)]
    sessions = await store.archive.sessions(principal=ada.id, page=Page())
    assert [each.conversation for each in sessions] == ["garden"]

    # Operators see it if they ask for it.
    assert [hit.conversation for hit in await found(store, None, "plums")] == ["garden"]
    everything = await found(store, None, "plums", with_hidden=True)
    assert {(hit.conversation, hit.hidden, hit.person) for hit in everything} == {
        ("garden", False, "ada"),
        ("work", True, "ada"),
    }
    listed = await store.archive.sessions(principal=None, page=Page(with_hidden=True))
    assert {each.conversation for each in listed} == {"garden", "work"}

    clock.advance(1)
    await say(store, ada, "work", 2)
    assert {hit.conversation for hit in await found(store, ada, "plums")} == {"garden", "work"}


async def test_pages_of_a_search_skip_what_was_deleted_and_lose_nothing_else(
    store: Store, ada: Person
) -> None:
    for number in range(6):
        conversation = await say(store, ada, f"place-{number}")
        await settle(store, await claim_one(store), "plums")
        if number % 2:
            await store.shelves.shelve(conversation, Shelving(hidden=True))
    names: list[str] = []
    before: int | None = None
    while page := await store.archive.search("plums", principal=ada.id, before=before, limit=2):
        names += [hit.conversation for hit in page]
        before = page[-1].cursor
    assert names == ["place-4", "place-2", "place-0"]
