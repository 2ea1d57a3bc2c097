"""Checks that after a turn is given up, the waiting turns move to another session, and with each
turn everything that names it."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.app.operate import verify
from perdure.domain.address import Address
from perdure.domain.delivery import HEARD
from perdure.domain.ids import SessionId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import Attachment
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, only, problems_of, settle

CHAT = "chat"
FILE = Attachment(reference="ref-1", name="report.txt", size=5)
Change = Callable[["Chat"], Awaitable[Accepted]]


class Chat:
    """Plays a person on a platform, and keeps their updates in order, so that they can be sent
    again."""

    def __init__(self, store: Store, person: Person) -> None:
        self.store = store
        self._person = person
        self.sent: list[Update] = []

    async def send(
        self,
        text: str,
        *,
        kind: UpdateKind = UpdateKind.MESSAGE,
        target: str = "",
        album: str = "",
        busy: Busy = Busy.QUEUE,
        files: tuple[Attachment, ...] = (),
    ) -> Accepted:
        update = Update(
            address=Address(adapter=CHAT, account="bot", place="room"),
            external_id=f"{kind}/{len(self.sent)}",
            kind=kind,
            principal=self._person.id,
            text=text,
            busy=busy,
            attachments=files,
            target=target,
            place_kind="private",
            album=album,
        )
        self.sent.append(update)
        return await self.store.inbox.accept(update, queue_max=9)

    async def change(self, kind: UpdateKind, text: str = "") -> Accepted:
        """Edit or delete the last message."""
        last = [update.external_id for update in self.sent if not update.target][-1]
        return await self.send(text, kind=kind, target=last)

    async def repeat(self) -> Accepted:
        return await self.store.inbox.accept(self.sent[-1], queue_max=9)

    async def given_up(self) -> SessionId:
        """Give up the turn at work. Returns the session that replaces the suspended one."""
        await self.store.nodes.reclaim(known=(), attempts_max=1)
        found = await self.store.conversations.snapshot((await self.repeat()).conversation)
        return found.view.standing.session

    async def session_of_last(self) -> SessionId:
        return (await self.repeat()).session


@pytest.fixture
def chat(store: Store, ada: Person) -> Chat:
    return Chat(store, ada)


async def assert_verified(store: Store) -> None:
    """Check that `perdure verify` finds nothing, and that a look at each single session finds the
    same."""
    assert (await verify.report(store.audit, store.diagnostics)).violations == []
    for session in await store.audit.batch(after=None, only_new=False):
        assert await problems_of(store, session) == []


async def edited(chat: Chat) -> Accepted:
    await chat.send("behind")
    return await chat.change(UpdateKind.EDIT, "rather this")


async def edited_without_a_change(chat: Chat) -> Accepted:
    await chat.send("behind")
    return await chat.change(UpdateKind.EDIT, "behind")


async def edited_to_a_command(chat: Chat) -> Accepted:
    await chat.send("behind")
    return await chat.change(UpdateKind.EDIT, "/stop")


async def edited_album(chat: Chat) -> Accepted:
    await chat.send("look", album="holidays")
    await chat.send("and look", album="holidays")
    return await chat.change(UpdateKind.EDIT, "rather this")


async def kept_album(chat: Chat) -> Accepted:
    # A piece of an album cannot be removed alone.
    await chat.send("look", album="holidays")
    await chat.send("and look", album="holidays")
    return await chat.change(UpdateKind.DELETE)


async def queued_and_edited(chat: Chat) -> Accepted:
    await chat.send("behind", busy=Busy.STEER, files=(FILE,))
    return await chat.change(UpdateKind.EDIT, "rather this")


CHANGES = [
    edited,
    edited_without_a_change,
    edited_to_a_command,
    edited_album,
    kept_album,
    queued_and_edited,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_change_is_where_the_turn_is_that_it_speaks_of(chat: Chat, change: Change) -> None:
    # This must hold however often the turn moves.
    await chat.send("poison")
    await chat.send("poison too")
    await claim_one(chat.store)
    changed = await change(chat)

    first = await chat.given_up()
    await assert_verified(chat.store)
    assert await chat.session_of_last() == first
    await claim_one(chat.store)
    second = await chat.given_up()
    await assert_verified(chat.store)

    again = await chat.repeat()
    assert (again.turn, again.session, again.is_duplicate) == (changed.turn, second, True)


@pytest.mark.parametrize("word", ["/queue behind", "/steer behind"])
async def test_a_command_that_said_something_moves_with_what_it_said(chat: Chat, word: str) -> None:
    first = await chat.send("poison")
    if word.startswith("/steer"):
        await claim_one(chat.store)
    said = await chat.send(word)
    if word.startswith("/queue"):
        await claim_one(chat.store)

    live = await chat.given_up()

    await assert_verified(chat.store)
    again = await chat.repeat()
    assert (again.session, again.reply, again.effect) == (live, said.reply, said.effect)
    record = await chat.store.diagnostics.record(first.session)
    assert only(CommandTaken, record.events), "it was given there"
    served = await claim_one(chat.store)
    assert served.lease.turn == again.turn
    await settle(chat.store, served)


async def test_what_was_told_of_a_turn_that_waits_moves_with_it(chat: Chat) -> None:
    # It moves with a notice of a lost file and with the mark on the message.
    await chat.send("poison")
    await claim_one(chat.store)
    behind = await chat.send("read this", files=(FILE, FILE))
    lost, _ = await chat.store.fetches.take(adapters=(CHAT,), limit=9)
    await chat.store.fetches.lost(lost, "it is gone")

    live = await chat.given_up()

    await assert_verified(chat.store)
    parts = (await chat.store.diagnostics.record(live)).parts
    about = [part.text for part in parts if part.turn == behind.turn]
    marks = [part.message for part in parts if part.text == HEARD]
    assert (len(about), marks) == (1, [behind.message])
    assert "report.txt" in about[0]


async def test_words_that_were_never_passed_on_move_with_their_mark(chat: Chat) -> None:
    await chat.send("poison")
    await claim_one(chat.store)
    steered = await chat.send("north", busy=Busy.STEER)
    assert steered.effect is UpdateEffect.STEERED
    await chat.change(UpdateKind.EDIT, "south")

    live = await chat.given_up()

    await assert_verified(chat.store)
    parts = (await chat.store.diagnostics.record(live)).parts
    assert [part.message for part in parts if part.text == HEARD] == [steered.message]
    freed = await claim_one(chat.store)
    assert freed.lease.session == live
