"""Checks that notices and replies to commands stand where they were posted, once each, and that
pages of them join to the whole."""

from itertools import count

import pytest

from perdure.domain.errors import NotFound
from perdure.domain.ids import SessionId
from perdure.domain.journal.transcript import Entry
from perdure.domain.tools.todo import TEXT_MAX, TodoItem, TodoState
from perdure.ports.records.history import PAGE_BYTES
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, flush, settle

pytestmark = pytest.mark.usefixtures("everything_ends_sound")
ALL = 1000


class Talk:
    """Plays a person in a conversation, and reads its transcript with notices."""

    def __init__(self, store: Store, ada: Person) -> None:
        self.store = store
        self.ada = ada

    async def session(self) -> SessionId:
        found = await self.store.conversations.find("home", principal=self.ada.id)
        return found.view.standing.session

    async def posts(self, *states: TodoState, words: str = "sow") -> None:
        """Have a turn show a list in each of these states."""
        await self.ada.says("plan")
        claimed = await claim_one(self.store)
        for state in states:
            await self.store.todos.put(
                claimed.lease.session, claimed.lease.turn, [TodoItem(text=words, state=state)]
            )
        await settle(self.store, claimed, "planned")

    async def entries(self, *, is_whole: bool = False) -> list[Entry]:
        """Return the whole transcript."""
        page = await self.store.archive.noticed(await self.session(), limit=ALL, is_whole=is_whole)
        assert not page.has_more
        return list(page.entries)

    async def in_pages(self, limit: int, *, is_whole: bool = False) -> list[list[Entry]]:
        """Return the transcript in pages, oldest first."""
        session, pages = await self.session(), list[list[Entry]]()
        before: str | None = None
        for _ in range(ALL):
            page = await self.store.archive.noticed(
                session, before=before, limit=limit, is_whole=is_whole
            )
            assert len(page.entries) <= limit
            pages.insert(0, list(page.entries))
            if not page.has_more:
                return pages
            before = page.entries[0].id
        raise AssertionError("the pages do not end")

    async def told(self) -> list[str]:
        """Return the role and the first word of each entry."""
        return [f"{each.role}: {each.text.split(maxsplit=1)[0]}" for each in await self.entries()]

    async def is_sound(self) -> None:
        """Check that pages of every size join to the whole, and that no id occurs twice."""
        for is_whole in (False, True):
            every = await self.entries(is_whole=is_whole)
            assert len({each.id for each in every}) == len(every)
            for limit in (1, 2, 3, 5, 8):
                pages = await self.in_pages(limit, is_whole=is_whole)
                assert [each for page in pages for each in page] == every


@pytest.fixture
def talk(store: Store, ada: Person) -> Talk:
    return Talk(store, ada)


async def test_a_list_that_is_posted_again_stands_once_as_it_is_now(talk: Talk) -> None:
    await talk.posts(TodoState.OPEN, TodoState.DOING, TodoState.DONE)
    await talk.ada.is_answered("hello", "world")
    await talk.posts(TodoState.DROPPED)

    shown = [each for each in await talk.entries() if each.role == "notice"]

    assert [each.text.splitlines()[-1][2:] for each in shown] == ["☑️ sow", "✖️ sow"]
    assert await talk.told() == [
        *("user: plan", "notice: 📋", "assistant: planned"),
        *("user: hello", "assistant: world"),
        *("user: plan", "notice: 📋", "assistant: planned"),
    ]
    await talk.is_sound()


async def test_a_message_that_waited_stands_behind_the_replies_of_that_time(talk: Talk) -> None:
    await talk.ada.says("first")
    running = await claim_one(talk.store)
    await talk.ada.says("second")
    await talk.ada.says("/status")
    await flush(talk.store, running.lease, "half ")
    assert await talk.told() == ["user: first", "notice: running,", "assistant: half"]

    await settle(talk.store, running, "half done")
    await talk.ada.says("/home")
    await settle(talk.store, await claim_one(talk.store), "done")

    assert await talk.told() == [
        *("user: first", "notice: running,", "assistant: half"),
        *("notice: This", "user: second", "assistant: done"),
    ]
    await talk.is_sound()


async def test_a_reply_and_the_message_that_it_queued_have_ids_of_their_own(talk: Talk) -> None:
    await talk.ada.says("first")
    running = await claim_one(talk.store)
    await talk.ada.says("/queue second")
    await settle(talk.store, running, "done")
    await settle(talk.store, await claim_one(talk.store), "done too")
    assert await talk.told() == [
        *("user: first", "notice: Queued;", "assistant: done"),
        *("user: second", "assistant: done"),
    ]
    await talk.is_sound()


async def test_a_branch_shows_what_was_said_before_it_and_not_after(talk: Talk) -> None:
    await talk.ada.is_answered("one", "1")
    await talk.ada.says("/status")
    first = await talk.session()
    await talk.ada.says("/branch")
    second = await talk.session()
    await talk.ada.says("/branch")
    await talk.ada.is_answered("two", "2")
    third = await talk.session()
    assert len({first, second, third}) == 3
    expected = [
        *("user: one", "assistant: 1", "notice: idle,"),
        *("notice: A", "notice: A", "user: two", "assistant: 2"),
    ]
    assert await talk.told() == expected
    await talk.is_sound()

    await talk.ada.says(f"/resume {first}")
    await talk.ada.says("/home")
    await talk.is_sound()
    await talk.ada.says(f"/resume {third}")

    assert (await talk.told())[: len(expected)] == expected
    await talk.is_sound()


async def test_what_was_undone_is_gone_and_the_replies_stay(talk: Talk) -> None:
    await talk.ada.is_answered("one", "1")
    await talk.ada.is_answered("two", "2")
    await talk.ada.says("/undo")
    await talk.ada.is_answered("three", "3")
    await talk.ada.says("/retry")
    await settle(talk.store, await claim_one(talk.store), "4")
    assert await talk.told() == [
        *("user: one", "assistant: 1", "notice: Undone:"),
        *("user: three", "notice: Asking", "assistant: 4"),
    ]
    await talk.is_sound()
    whole = await talk.entries(is_whole=True)
    assert [each.left for each in whole if each.role == "user"] == [
        *("", "undone", "asked_again", ""),
    ]


async def test_pages_are_bounded_in_bytes(talk: Talk) -> None:
    items = 100
    for number in count():
        await talk.ada.says("plan")
        claimed = await claim_one(talk.store)
        await talk.store.todos.put(
            claimed.lease.session,
            claimed.lease.turn,
            [TodoItem(text=f"{n} {'x' * (TEXT_MAX - 9)}") for n in range(items)],
        )
        await settle(talk.store, claimed, "planned")
        if number * items * TEXT_MAX > 1.2 * PAGE_BYTES:
            break

    pages = await talk.in_pages(ALL)

    assert len(pages) > 1
    for page in pages:
        assert sum(len(each.text) for each in page) <= PAGE_BYTES
    every = [each for page in pages for each in page]
    assert len(every) == len({each.id for each in every}) == 3 * (number + 1)


async def test_what_is_not_here_cannot_end_a_page(talk: Talk, store: Store, ada: Person) -> None:
    await ada.is_answered("hello", "world")
    elsewhere = Person(store, ada.id, place="elsewhere")
    reply = await elsewhere.says("/status")
    for unknown in (reply.message, f"{reply.message}.reply", "msg_nothing", "trn_nothing.end"):
        with pytest.raises(NotFound):
            await store.archive.noticed(await talk.session(), before=unknown, limit=5)
