"""Checks what was said in a session and which of it stands: everybody who shows it reads the
same."""

import pytest

from perdure.app.config.loading import Config
from perdure.app.operate.offline import store_answers
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.records import ASKED_AGAIN, UNDONE
from perdure.domain.journal.transcript import Entry, entries_of_session
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, flush, settle
from perdure.web.ops import records

MANY = 100


class Talk:
    """Plays a person in a conversation, and reads what a session says of it."""

    def __init__(self, store: Store, ada: Person) -> None:
        self.store = store
        self.ada = ada

    async def session(self) -> SessionId:
        found = await self.store.conversations.find("home", principal=self.ada.id)
        return found.view.standing.session

    async def exchange(self, *questions: str) -> list[TurnId]:
        return [await self.ada.is_answered(each, f"on {each}") for each in questions]

    async def answer(self) -> TurnId:
        claimed = await claim_one(self.store)
        await settle(self.store, claimed, "again")
        return claimed.lease.turn

    async def told(self, session: SessionId | None = None) -> list[tuple[TurnId, str]]:
        found = await self.store.archive.told(
            session or await self.session(), limit=MANY, with_left=True
        )
        return [(turn.turn, turn.left) for turn in found]

    async def is_one_reading(self) -> None:
        """Check that everybody reads the same: the chain that a model is told, the transcript of
        the conversation, and the session as a whole without the turns that were left."""
        found = await self.store.conversations.find("home", principal=self.ada.id)
        standing = found.view.standing
        told = await self.store.archive.told(standing.session, limit=MANY)
        chain = (
            await self.store.conversations.chain(standing.tip, limit=MANY) if standing.tip else []
        )
        assert [list(turn.events) for turn in told] == chain
        marked = await self.told()
        assert [turn for turn, left in marked if not left] == [turn.turn for turn in told]
        for turn, left in marked:
            assert (await self.store.diagnostics.explain(turn, principal=None)).left == left

    async def entries(self) -> list[Entry]:
        session = await self.session()
        turns = await self.store.archive.told(session, limit=MANY, with_left=True)
        return entries_of_session(turns, session, await self.store.archive.running(session))


@pytest.fixture
def talk(store: Store, ada: Person) -> Talk:
    return Talk(store, ada)


async def test_what_was_undone_is_there_and_marked(talk: Talk) -> None:
    one, two, three = await talk.exchange("one", "two", "three")
    await talk.ada.says("/undo 2")
    assert await talk.told() == [(one, ""), (two, UNDONE), (three, UNDONE)]
    await talk.is_one_reading()

    (four,) = await talk.exchange("four")
    assert await talk.told() == [(one, ""), (two, UNDONE), (three, UNDONE), (four, "")]
    assert [(entry.text, entry.left) for entry in await talk.entries()][2:] == [
        ("two", UNDONE),
        ("on two", UNDONE),
        ("three", UNDONE),
        ("on three", UNDONE),
        ("four", ""),
        ("on four", ""),
    ]
    await talk.is_one_reading()


async def test_what_was_brought_back_stands_again(talk: Talk) -> None:
    one, two = await talk.exchange("one", "two")
    await talk.ada.says("/undo")
    await talk.ada.says("/redo")
    assert await talk.told() == [(one, ""), (two, "")]
    await talk.is_one_reading()


async def test_what_was_asked_again_stands_before_its_successor(talk: Talk) -> None:
    one, two = await talk.exchange("one", "two")
    await talk.ada.says("/retry")
    again = await talk.answer()
    assert await talk.told() == [(one, ""), (two, ASKED_AGAIN), (again, "")]
    await talk.is_one_reading()


async def test_a_branch_has_the_turns_it_shares(talk: Talk) -> None:
    one, two = await talk.exchange("one", "two")
    left = await talk.session()
    await talk.ada.says("/branch")
    (three,) = await talk.exchange("three")
    branch = await talk.session()
    assert branch != left
    assert await talk.told() == [(one, ""), (two, ""), (three, "")]
    assert [entry.session for entry in await talk.entries()] == [left] * 4 + [""] * 2
    await talk.is_one_reading()

    await talk.ada.says("/undo 2")
    # A shared turn that was undone in the branch is not part of the branch, but stands where it was
    # said.
    assert await talk.told() == [(one, ""), (three, UNDONE)]
    assert await talk.told(left) == [(one, ""), (two, "")]
    assert (await talk.store.diagnostics.explain(two, principal=None)).left == ""


async def test_what_runs_stands_with_what_was_shown_of_it(talk: Talk) -> None:
    (one,) = await talk.exchange("one")
    await talk.ada.says("two")
    claimed = await claim_one(talk.store)
    await flush(talk.store, claimed.lease, "half an ans")
    await talk.ada.says("three, which waits")
    assert await talk.told() == [(one, ""), (claimed.lease.turn, "")]
    assert [entry.text for entry in await talk.entries()] == [
        "one",
        "on one",
        "two",
        "half an ans",
    ]
    await talk.is_one_reading()


async def test_pages_go_back_without_gap_or_repetition(talk: Talk) -> None:
    await talk.exchange(*"abc")
    await talk.ada.says("/branch")
    await talk.exchange(*"def")
    await talk.ada.says("/undo")
    session, before = await talk.session(), None
    answers = await store_answers(talk.store, Config())
    seen: list[Entry] = []
    while True:
        page = await answers.ask(records.transcript, session, cursor=before, limit=2)
        seen = [*page.messages, *seen]
        before = page.next
        if before is None:
            break
    assert seen == await talk.entries()
    assert [entry.text for entry in seen if entry.role == "user"] == list("abcdef")
    assert await talk.store.archive.told(session, before=TurnId("trn_nobody"), limit=2) == []


async def test_a_session_in_which_nothing_has_begun_tells_nothing(talk: Talk) -> None:
    await talk.ada.says("hello")
    assert await talk.told() == []
    assert await talk.store.archive.told(SessionId("ses_nobody"), limit=9) == []
