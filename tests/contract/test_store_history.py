"""Checks the reading ports: what people see, what operators see, and that nobody sees what belongs
to others."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest

from perdure.domain.address import Address
from perdure.domain.delivery import PartState
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import ConversationId, SessionId, TurnId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.journal.events import (
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.transcript import entries_of, parent_of
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.ports.people.access import DeadLetter, PlacedArrival
from perdure.ports.records.history import PAGE_BYTES, Page
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    flush,
    message,
    only,
    reply_id,
    said,
    settle,
    tool_call,
    turn_of,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]


async def texts(store: Store, query: str, *, by: Person | None = None) -> list[str]:
    principal = by.id if by else None
    hits = await store.archive.search(query, principal=principal, before=None, limit=50)
    return [hit.text for hit in hits]


async def test_words_are_found_in_questions_and_answers(store: Store, ada: Person) -> None:
    await ada.is_answered("Where is the lighthouse?", "On the north cape.")
    await ada.is_answered("And the harbour?", "South of the lighthouse.")

    assert await texts(store, "lighthouse") == [
        "South of the lighthouse.",
        "Where is the lighthouse?",
    ]
    assert await texts(store, "LIGHTHOUSE north") == []
    assert await texts(store, "cape NORTH") == ["On the north cape."]
    assert await texts(store, "harbor") == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("un café crème", "cafe"),
        ("un cafe", "CAFÉ"),
        ("Straße", "strasse"),
        ("ΣΊΣΥΦΟΣ", "σισυφος"),
        ("Привет, мир", "привет"),
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "住"),
        ("안녕하세요 세계", "안녕"),
        ("snake_case_name", "case"),
        ("see example.com/path?x=1 for more", "example"),
        ("see example.com/path?x=1 for more", "path"),
        ("write to bob@example.com", "bob"),
        ("a state-of-the-art thing", "art"),
        ("version 3.14 is out", "14"),
        ("it's here", "it's"),
        ("don't panic", "don't"),
        ('she said "stop" twice', '"stop"'),
        ("plus + minus - star *", "star *"),
        ("a AND b OR c NOT d NEAR e", "near NOT"),
        ("text:scope", "text:scope"),
        ("x" * 50, "x" * 50),
        ("many   spaces\n\tand lines", "and\nspaces"),
    ],
)
async def test_what_was_written_is_found_by_its_words(
    store: Store, ada: Person, text: str, query: str
) -> None:
    await ada.is_answered(text, "-")

    assert await texts(store, query) == [text]
    assert await texts(store, query, by=ada) == [text]


@pytest.mark.parametrize("query", ["", " ", "?", '"', "*", "' OR 1=1"])
async def test_a_query_without_a_word_of_the_text_finds_nothing(
    store: Store, ada: Person, query: str
) -> None:
    await ada.says("something else")

    assert await texts(store, query) == []
    assert await texts(store, query, by=ada) == []


@pytest.mark.parametrize("query", ["q\x00z", "\x00", "\ud800"])
async def test_a_query_no_database_can_hold_is_refused_or_finds_nothing(
    store: Store, ada: Person, query: str
) -> None:
    await ada.says("something")

    with contextlib.suppress(Rejected):
        assert await texts(store, query, by=ada) == []


async def test_a_search_stays_inside_ones_own(store: Store, ada: Person, bob: Person) -> None:
    await ada.is_answered("my secret is plum", "-")
    await bob.is_answered("my secret is pear", "-")

    assert await texts(store, "secret", by=ada) == ["my secret is plum"]
    assert await texts(store, "pear", by=ada) == []
    assert await texts(store, "secret") == ["my secret is pear", "my secret is plum"]
    assert await texts(store, str(bob.id), by=ada) == []
    assert await texts(store, str(ada.id), by=ada) == [], "the id is not a word of the text"


async def test_hits_come_newest_first_in_pages(store: Store, ada: Person) -> None:
    for n in range(7):
        await ada.is_answered(f"page {n}", "-")
    found: list[str] = []
    before: int | None = None
    while hits := await store.archive.search("page", principal=ada.id, before=before, limit=3):
        found += [hit.text for hit in hits]
        before = hits[-1].cursor

    assert found == [f"page {n}" for n in reversed(range(7))]
    assert all(hit.conversation == "home" for hit in hits)


async def test_a_hit_in_a_long_text_is_the_part_around_the_words(store: Store, ada: Person) -> None:
    await ada.is_answered(f"{'before ' * 9_000}Needle{' behind' * 9_000}", "-")

    (text,) = await texts(store, "needle")

    assert len(text) < 3_000
    assert text.startswith("…")
    assert text.endswith("…")
    assert "before Needle behind" in text


class TestPagesOfBytes:
    """Reads five long messages, of which exactly two fit into a page."""

    @pytest.fixture
    async def last(self, ada: Person) -> TurnId:
        texts = [f"{number} " + "x" * (PAGE_BYTES * 4 // 10) for number in range(5)]
        return [await ada.is_answered(text, "-") for text in texts][-1]

    async def test_a_journal_is_read_in_pages_of_bytes(self, store: Store, last: TurnId) -> None:
        session = (await store.archive.turn(last, principal=None)).session
        pages: list[list[Recorded]] = []
        after = 0
        while page := await store.archive.journal(session, after=after, limit=1000):
            pages.append(page)
            after = page[-1].seq

        seqs = [recorded.seq for page in pages for recorded in page]
        assert seqs == list(range(1, len(seqs) + 1))
        assert [questions(page) for page in pages] == [["0", "1"], ["2", "3"], ["4"]]

    async def test_a_chain_is_read_in_pages_of_bytes(self, store: Store, last: TurnId) -> None:
        pages: list[list[str]] = []
        head: TurnId | None = last
        while head is not None:
            page = await store.conversations.chain(head, limit=1000)
            pages.append([word for turn in page for word in questions(turn)])
            head = parent_of(page[0])

        assert pages == [["3", "4"], ["1", "2"], ["0"]]

    async def test_a_session_is_read_in_pages_of_bytes(self, store: Store, last: TurnId) -> None:
        session = (await store.archive.turn(last, principal=None)).session
        pages: list[list[str]] = []
        before, has_more = None, True
        while has_more:
            page = await store.archive.told(session, before=before, limit=1000)
            pages.append([word for turn in page for word in questions(turn.events)])
            before, has_more = page[0].turn, page[0].has_earlier

        assert pages == [["3", "4"], ["1", "2"], ["0"]]

    async def test_a_turn_longer_than_a_page_is_a_page(self, store: Store, ada: Person) -> None:
        await ada.is_answered("first", "-")
        turn = await ada.is_answered("y" * (PAGE_BYTES * 2), "-")
        (events,) = await store.conversations.chain(turn, limit=1000)
        queued = events[0]

        (alone,) = await store.archive.journal(queued.session, after=queued.seq - 1, limit=1000)
        (told,) = await store.archive.told(queued.session, limit=1000)

        assert alone == queued
        assert told.turn == turn


def questions(events: Sequence[Recorded]) -> list[str]:
    """Return the first word of each question."""
    return [queued.text.split()[0] for queued in only(TurnQueued, events)]


async def test_partial_text_is_found_once_it_is_final(store: Store, ada: Person) -> None:
    await ada.says("q")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "unfinished symphony")
    assert await texts(store, "symphony") == []

    await settle(store, claimed, "unfinished symphony no more")

    assert await texts(store, "symphony") == ["unfinished symphony no more"]


async def test_the_chain_follows_the_parents(store: Store, ada: Person) -> None:
    turns = [await ada.is_answered(f"q{n}", f"a{n}") for n in range(4)]
    await ada.says("queued, and on no chain")

    chain = await store.conversations.chain(turns[-1], limit=100)

    entries = [(e.role, e.text) for turn in chain for e in entries_of(turn)]
    assert entries == [
        pair for n in range(4) for pair in (("user", f"q{n}"), ("assistant", f"a{n}"))
    ]
    assert [turn[0].turn for turn in chain] == turns
    newest = await store.conversations.chain(turns[-1], limit=2)
    assert [turn[0].turn for turn in newest] == turns[2:]
    until = await store.conversations.chain(turns[-1], limit=100, until=turns[1])
    for limit in (1, 2, 100):
        assert await store.conversations.chain(turns[-1], limit=limit, until=turns[-1]) == []
    assert [turn[0].turn for turn in until] == turns[2:]
    assert await store.conversations.chain(TurnId("trn_nobody"), limit=10) == []


async def test_an_entry_is_found_only_where_it_stands(
    store: Store, ada: Person, bob: Person
) -> None:
    turns = [await ada.is_answered(f"q{n}", f"a{n}") for n in range(3)]
    elsewhere = await bob.is_answered("q", "a")
    waiting = await ada.says("queued, and on no chain")

    entries = [await entries_at(store, turn) for turn in turns]
    for turn, both in zip(turns, entries, strict=True):
        assert len(both) == 2
        for entry in (*both, f"{turn}.end"):
            assert await store.conversations.turn_on_chain(turns[-1], entry) == turn
    for head, entry in (
        (turns[0], entries[-1][0]),  # later than the head, as after an undo
        (elsewhere, entries[0][0]),
        (turns[-1], f"{elsewhere}.end"),
        (turns[-1], waiting.message),
        (turns[-1], ".end"),
    ):
        with pytest.raises(NotFound, match="no message"):
            await store.conversations.turn_on_chain(head, entry)


async def entries_at(store: Store, turn: TurnId) -> list[str]:
    (events,) = await store.conversations.chain(turn, limit=1)
    return [entry.id for entry in entries_of(events)]


async def test_a_turn_stopped_before_it_ran_is_on_no_chain(store: Store, ada: Person) -> None:
    first = await ada.is_answered("one", "1")
    await store.inbox.stop(turn_of(await ada.says("never mind")), by=None)
    last = await ada.is_answered("two", "2")

    chain = await store.conversations.chain(last, limit=10)

    assert [turn[0].turn for turn in chain] == [first, last]


async def test_a_snapshot_is_of_one_instant(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)

    async def write() -> None:
        for n in range(30):
            await flush(store, claimed.lease, f"{n % 10}", start=n)
        await settle(store, claimed, "".join(f"{n % 10}" for n in range(30)))

    async def look() -> None:
        while True:
            seen = await store.conversations.snapshot(accepted.conversation)
            standing = seen.view.standing
            if standing.state == "idle":
                assert (seen.running, seen.last_seq, standing.head) == (None, 5, accepted.turn)
                return
            assert (seen.last_seq, standing.turn, standing.head) == (3, accepted.turn, None)
            if seen.running:
                assert (seen.running.text + "0123456789" * 3)[:30] == "0123456789" * 3 or (
                    ("0123456789" * 3).startswith(seen.running.text)
                )

    async with asyncio.timeout(20):
        await asyncio.gather(write(), look())


async def test_conversations_are_listed_by_when_they_were_used(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    for n in range(5):
        clock.advance(1)
        await store.inbox.accept(message(ada.id, external_id=f"l{n}", place=f"p{n}"), queue_max=9)
    await bob.says("elsewhere")
    clock.advance(1)
    await store.inbox.accept(message(ada.id, external_id="again", place="p0"), queue_max=9)
    names: list[str] = []
    page = Page(limit=2)
    while views := await store.conversations.recent(principal=ada.id, page=page):
        names += [view.name for view in views]
        page = Page(after=(views[-1].at, views[-1].id), limit=2)

    assert names == ["p0", "p4", "p3", "p2", "p1"]


async def test_lists_are_in_order_however_far_apart_things_were_said(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    # Lists are read by spans of ten minutes. Some of these messages are within such a span and some
    # are not, and some come after the clock was set back.
    said: dict[str, int] = {}
    for n, passed_s in enumerate((1, 500, 90, 9, 601, 1, 5_000, -4_700, 2)):
        clock.jump(passed_s)
        for place in (f"p{n}", "p0"):
            update = message(ada.id, external_id=f"{n}-{place}", place=place)
            await store.inbox.accept(update, queue_max=99)
            said[place] = clock.now_ms()
    newest_first = sorted(said, key=said.__getitem__, reverse=True)
    names: list[str] = []
    page = Page(limit=2)
    while views := await store.conversations.recent(principal=ada.id, page=page):
        names += [view.name for view in views]
        page = Page(after=(views[-1].at, views[-1].id), limit=2)
    places: list[str] = []
    page = Page(limit=2)
    while sessions := await store.archive.sessions(principal=None, page=page):
        places += [each.conversation for each in sessions]
        page = Page(after=(sessions[-1].active_at, sessions[-1].id), limit=2)

    assert sorted(names, key=said.__getitem__, reverse=True) == names
    assert (sorted(names), sorted(places)) == (sorted(newest_first), sorted(newest_first))
    assert sorted(places, key=said.__getitem__, reverse=True) == places


async def test_conversations_of_one_instant_are_all_listed(store: Store, ada: Person) -> None:
    for n in range(5):
        await store.inbox.accept(message(ada.id, external_id=f"{n}", place=f"p{n}"), queue_max=9)
    names: set[str] = set()
    page = Page(limit=2)
    while views := await store.conversations.recent(principal=ada.id, page=page):
        names |= {view.name for view in views}
        page = Page(after=(views[-1].at, views[-1].id), limit=2)

    assert names == {f"p{n}" for n in range(5)}


async def test_calls_without_a_conversation_are_not_listed(store: Store, ada: Person) -> None:
    unlisted = message(ada.id)
    accepted = await store.inbox.accept(
        type(unlisted)(
            address=unlisted.address,
            external_id="u",
            kind=UpdateKind.CALL,
            principal=ada.id,
            text="once",
            is_listed=False,
        ),
        queue_max=9,
    )

    assert await store.conversations.recent(principal=ada.id, page=Page()) == []
    assert await store.archive.sessions(principal=ada.id, page=Page()) == []
    assert (await store.archive.session(accepted.session, principal=ada.id)).id == (
        accepted.session
    )


async def test_what_is_another_persons_is_not_there(store: Store, ada: Person, bob: Person) -> None:
    accepted = await ada.says()
    turn = turn_of(accepted)

    for look in (
        store.conversations.find("home", principal=bob.id),
        store.archive.turn(turn, principal=bob.id),
        store.archive.session(accepted.session, principal=bob.id),
        store.diagnostics.explain(turn, principal=bob.id),
        store.diagnostics.explain(accepted.message, principal=bob.id),
        store.archive.turn(TurnId("trn_nobody"), principal=None),
        store.archive.session(SessionId("ses_nobody"), principal=None),
        store.conversations.snapshot(ConversationId("cnv_nobody")),
        store.conversations.turn_on_chain(turn, "msg_nobody"),
        store.diagnostics.explain("nothing", principal=None),
        store.diagnostics.record(SessionId("ses_nobody")),
    ):
        with pytest.raises(NotFound):
            await look

    assert await store.archive.sessions(principal=bob.id, page=Page()) == []
    assert await store.conversations.recent(principal=bob.id, page=Page()) == []


@pytest.mark.parametrize("strange", ["trn_\x00", "\ud800", "%", "'"])
async def test_a_strange_id_is_simply_not_there(store: Store, strange: str) -> None:
    looks: list[Callable[[], Awaitable[object]]] = [
        lambda: store.archive.turn(TurnId(strange), principal=None),
        lambda: store.archive.session(SessionId(strange), principal=None),
        lambda: store.diagnostics.explain(strange, principal=None),
        lambda: store.conversations.turn_on_chain(TurnId("trn_x"), strange),
    ]

    for look in looks:
        with pytest.raises(Rejected):
            await look()


async def test_sessions_are_listed_with_the_closed_ones(
    store: Store, ada: Person, restart: OpenStore, clock: VirtualClock
) -> None:
    old = await ada.says("poison")
    await claim_one(store)
    store = await restart()
    await store.nodes.reap(attempts_max=1, limit=9)
    clock.advance(1)
    new = await store.inbox.accept(message(ada.id, external_id="new"), queue_max=9)

    sessions = await store.archive.sessions(principal=ada.id, page=Page())

    assert [(s.id, s.state, s.is_live, s.parent) for s in sessions] == [
        (new.session, "open", True, old.session),
        (old.session, "suspended", False, None),
    ]


async def test_the_journal_is_read_in_pages(store: Store, ada: Person) -> None:
    for n in range(4):
        await ada.is_answered(f"q{n}", f"a{n}")
    session = (await store.conversations.find("home", principal=ada.id)).view.standing.session
    seqs: list[int] = []
    while page := await store.archive.journal(session, after=seqs[-1] if seqs else 0, limit=5):
        assert len(page) <= 5
        seqs += [recorded.seq for recorded in page]

    assert seqs == list(range(1, 18))


async def test_every_id_of_a_message_explains_it(store: Store, ada: Person) -> None:
    eve = Person(store, ada.id, adapter="chat", place="room")
    accepted = await eve.says("pay the bill")
    claimed = await claim_one(store)
    lease = claimed.lease
    call = tool_call("pay", repeat=Repeat.ONCE)
    await store.turns.append(
        lease,
        [
            said(lease, "", calls=(call,)),
            ToolStarted(turn=lease.turn, call=call.id),
            ToolFinished(turn=lease.turn, call=call.id, ending=CallEnding.RETURNED, result="paid"),
        ],
    )
    await settle(store, claimed, "", parts=("Paid.",))
    (part,) = await store.outbox.take(adapter="chat", limit=1)
    await store.outbox.record(part.id, PartState.SENT, receipt="platform-77")
    (update, *_), *_ = (await store.diagnostics.record(accepted.session)).updates

    for any_id in (
        turn_of(accepted),
        accepted.message,
        reply_id(lease),
        call.id,
        part.id,
        part.message,
        update,
        "room-1",
        f"{accepted.turn}.end",
    ):
        found = await store.diagnostics.explain(any_id, principal=ada.id)
        assert found.turn is not None, any_id
        assert found.turn.id == accepted.turn, any_id
    explained = await store.diagnostics.explain(part.id, principal=ada.id)
    assert explained.conversation == "chat:room"
    assert [(u.external_id, u.adapter) for u in explained.updates] == [("room-1", "chat")]
    assert [(p.state, p.receipt, p.attempts) for p in explained.parts] == [
        ("sent", "platform-77", 1)
    ]
    assert len(only(TurnSettled, explained.events)) == 1


async def test_a_command_is_explained_by_its_reply(store: Store, ada: Person) -> None:
    eve = Person(store, ada.id, adapter="chat", place="room")
    accepted = await eve.says("/whoami")
    (part,) = await store.outbox.take(adapter="chat", limit=1)
    await store.outbox.record(part.id, PartState.SENT, receipt="platform-77")

    for any_id in (accepted.message, part.id, "room-1"):
        found = await store.diagnostics.explain(any_id, principal=ada.id)
        assert (found.turn, found.command, found.reply) == (None, "whoami", accepted.reply)
        assert found.conversation == "chat:room"
        assert [update.external_id for update in found.updates] == ["room-1"]
        assert [(each.text, each.receipt) for each in found.parts] == [
            (accepted.reply, "platform-77")
        ]


async def test_over_http_a_clients_own_id_explains_its_command(store: Store, ada: Person) -> None:
    update = message(ada.id, "/whoami", external_id="mine\nhome")
    accepted = await store.inbox.accept(update, queue_max=9)

    found = await store.diagnostics.explain("mine", principal=ada.id)

    assert (found.command, found.reply) == ("whoami", accepted.reply)


async def test_a_call_without_a_conversation_is_explained_by_its_id_too(
    store: Store, ada: Person
) -> None:
    update = message(ada.id, external_id="mine\n", place="without a name")
    accepted = await store.inbox.accept(update, queue_max=9)

    found = await store.diagnostics.explain("mine", principal=ada.id)

    assert found.turn is not None
    assert found.turn.id == accepted.turn


async def test_a_command_that_queued_a_turn_is_explained_with_it(store: Store, ada: Person) -> None:
    await ada.is_answered("one", "fine")
    retried = await ada.says("/retry")

    found = await store.diagnostics.explain(retried.message, principal=ada.id)

    assert found.turn is not None
    assert (found.turn.id, found.command) == (retried.turn, "retry")
    assert [update.external_id for update in found.updates] == ["home-2"]


@pytest.mark.parametrize("any_id", ["with eve/1", "1"])
async def test_what_strangers_sent_is_explained_to_operators(
    store: Store, ada: Person, any_id: str
) -> None:
    said = Arrival(
        external_id="with eve/1",
        place="with eve",
        place_kind=PlaceKind.PRIVATE,
        sender=Sender(id="eve", name="Eve"),
        text="let me in",
    )
    where = Address(adapter="chat", account="bot", place="with eve")
    await store.access.refuse(PlacedArrival(address=where, arrival=said), "not allowed", told="")

    found = await store.diagnostics.explain(any_id, principal=None)

    assert (found.turn, found.refused, found.conversation) == (None, "not allowed", "chat:with eve")
    assert [update.external_id for update in found.updates] == ["with eve/1"]
    with pytest.raises(NotFound, match="nothing here has the id"):
        await store.diagnostics.explain(any_id, principal=ada.id)


async def test_what_could_not_be_read_is_explained_to_operators(store: Store, ada: Person) -> None:
    where = Address(adapter="chat", account="bot", place="")
    letter = DeadLetter(
        address=where, external_id="u9", kind="message", payload="{}", error="no sender"
    )
    await store.access.park(letter)

    found = await store.diagnostics.explain("u9", principal=None)

    (kept,) = found.parts
    assert (found.turn, kept.text, kept.error) == (None, "{}", "no sender")
    assert (await store.diagnostics.explain(kept.id, principal=None)).updates == found.updates
    with pytest.raises(NotFound):
        await store.diagnostics.explain("u9", principal=ada.id)


async def test_an_id_that_one_place_knows_needs_no_place(store: Store, ada: Person) -> None:
    ids = {"ci": ("f2", "f3"), "cd": ("f3",)}
    sent = {}
    for place, given in ids.items():
        for each in given:
            update = message(ada.id, external_id=f"{place}/{each}", place=place, adapter="webhook")
            sent[update.external_id] = await store.inbox.accept(update, queue_max=9)

    found = await store.diagnostics.explain("f2", principal=ada.id)

    assert found.turn is not None
    assert found.turn.id == sent["ci/f2"].turn
    with pytest.raises(NotFound):
        await store.diagnostics.explain("f3", principal=ada.id)


async def test_what_was_shown_is_told_before_it_is_whole(store: Store, ada: Person) -> None:
    accepted = await ada.says("tell me")
    claimed = await claim_one(store)
    assert await store.archive.running(accepted.session) is None
    await flush(store, claimed.lease, "Once upon")

    shown = await store.archive.running(accepted.session)
    explained = await store.diagnostics.explain(accepted.message, principal=ada.id)

    assert shown is not None
    assert (shown.turn, shown.text) == (accepted.turn, "Once upon")
    assert explained.partial == shown
    (*_, entry) = entries_of(explained.events, shown)
    assert (entry.role, entry.text, entry.outcome) == ("assistant", "Once upon", None)


async def test_a_senders_id_explains_the_askers_own_message(
    store: Store, ada: Person, bob: Person
) -> None:
    # Two people may use the same ids. Over HTTP the stored id also has the conversation's name
    # behind it.
    mine = await store.inbox.accept(message(ada.id, external_id="same\nhome"), queue_max=9)
    theirs = await store.inbox.accept(message(bob.id, external_id="same"), queue_max=9)
    await store.inbox.accept(message(ada.id, external_id="same-not\nhome"), queue_max=9)

    for person, accepted in ((ada, mine), (bob, theirs)):
        explained = await store.diagnostics.explain("same", principal=person.id)
        assert explained.turn is not None
        assert explained.turn.id == accepted.turn


async def test_two_people_may_name_and_number_alike(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    sent = {}
    for person in (ada, bob):
        clock.advance(1)
        update = message(person.id, external_id="1\nhome")
        sent[person.id] = await store.inbox.accept(update, queue_max=9)

    for person in (ada, bob):
        explained = await store.diagnostics.explain("1", principal=person.id)
        assert explained.turn is not None
        assert explained.turn.id == sent[person.id].turn
    newest = await store.diagnostics.explain("1", principal=None)
    assert newest.turn is not None
    assert newest.turn.id == sent[bob.id].turn


@pytest.mark.parametrize("given", ["%", "_", "a\tb", "ä", "\U0010fffe", "1/2"])
async def test_a_clients_id_may_be_anything(store: Store, ada: Person, given: str) -> None:
    accepted = await store.inbox.accept(message(ada.id, external_id=f"{given}\nhome"), queue_max=9)
    await store.inbox.accept(message(ada.id, external_id=f"{given}{given}\nhome"), queue_max=9)

    for principal in (ada.id, None):
        explained = await store.diagnostics.explain(given, principal=principal)
        assert explained.turn is not None
        assert explained.turn.id == accepted.turn


async def test_turns_and_parts_are_counted_by_state(store: Store, ada: Person, bob: Person) -> None:
    await ada.says()
    await ada.says()
    await claim_one(store)
    await Person(store, bob.id, adapter="chat").is_answered("a", "b", parts=("b", "c"))

    counts = await store.diagnostics.counts()

    assert (counts.queued, counts.running, counts.interrupted) == (1, 1, 0)
    assert (counts.outbox_pending, counts.outbox_parked) == (2, 0)


async def test_a_sound_store_has_no_complaints(store: Store, ada: Person) -> None:
    await ada.is_answered("a", "b")

    assert await store.diagnostics.integrity() == []
