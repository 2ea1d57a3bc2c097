"""Checks that a watcher gets every text whole, from wherever the connection broke and in whatever
session the conversation went on, and is released at the end.

Watchers are kept for every step of a turn's life: one for each item ever told, which was the last
one it got before it lost the connection. All of them look again after the next step.
"""

from collections.abc import AsyncIterator

import msgspec
import pytest

from perdure.domain.errors import Transient
from perdure.domain.ids import ConversationId, MessageId, SessionId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import ToolFinished, ToolStarted
from perdure.domain.journal.transcript import Entry
from perdure.domain.outcomes import CallEnding, Interruption, Outcome
from perdure.domain.tools.asking import ALLOW
from perdure.domain.turn.watching import (
    Delta,
    News,
    OutcomeNews,
    Position,
    QuestionNews,
    StateNews,
    ToolNews,
)
from perdure.engine.watching import watch
from perdure.engine.watching.feed import Feed, Subscription
from perdure.engine.watching.watch import LiveWatchers
from perdure.ports.turns.questions import QuestionReply
from perdure.ports.turns.turns import Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    claim_one,
    flush,
    piece,
    question_about,
    said,
    settle,
    tool_call,
    turn_of,
)
from perdure.testkit.simulator.watching import one_by_one

BEGINNING = Position(1, 0)
SECOND = MessageId("msg_second")


class Reader(msgspec.Struct):
    """Joins deltas into texts, as a client that has seen everything up to a position."""

    at: Position
    texts: dict[MessageId, str]
    heard: tuple[str, ...] = ()

    @property
    def kept(self) -> list[str]:
        """Return the texts that become messages: not those of white space alone."""
        return [text for text in self.texts.values() if text.strip()]

    def after(self, at: Position, news: News) -> "Reader":
        texts, heard = dict(self.texts), self.heard
        match news:
            case Delta(message=message, offset=offset, text=text):
                assert offset == len(texts.get(message, "")), "a gap, or something twice"
                texts[message] = texts.get(message, "") + text
            case Entry(role="assistant", id=message, text=text):
                assert texts.get(MessageId(message), "") == text, "a message before its text"
                heard = (*heard, text)
            case Entry(text=text):
                heard = (*heard, text)
            case OutcomeNews(outcome=outcome):
                heard = (*heard, outcome)
            case _:
                pass
        assert at > self.at, "out of order, or something twice"
        return Reader(at, texts, heard)


class Crowd:
    """Keeps one watcher for each position, and checks that all who get there saw the same."""

    def __init__(self, store: Store, conversation: ConversationId) -> None:
        self._store = store
        self._conversation = conversation
        self._readers = {BEGINNING: Reader(BEGINNING, {})}

    async def looks(self) -> None:
        for reader in list(self._readers.values()):
            seen = reader
            async for at, news in told(self._store, self._conversation, reader.at):
                seen = seen.after(at, news)
                known = self._readers.setdefault(seen.at, seen)
                assert known.kept == seen.kept, "one position, two different pasts"
                assert known.heard == seen.heard, "one position, two different pasts"

    @property
    def newest(self) -> Reader:
        return self._readers[max(self._readers)]


class HushedFeed(Feed):
    """Tells each waiting watcher at once that nothing will come."""

    def subscribe(
        self, session: SessionId, *conversations: ConversationId, looks_on: bool = False
    ) -> Subscription:
        subscription = super().subscribe(session, *conversations, looks_on=looks_on)
        subscription.nudge()
        return subscription


async def told(
    store: Store, conversation: ConversationId, after: Position
) -> AsyncIterator[tuple[Position, News]]:
    """Yield what there is to tell now, and then end."""
    watchers = LiveWatchers(HushedFeed(), store.conversations, store.archive)
    async for each in one_by_one(watchers.conversation(conversation, after=after)):
        if each is None:
            watchers.close()
        else:
            yield each


async def steps(store: Store, ada: Person) -> AsyncIterator[None]:
    yield
    lease = (await claim_one(store)).lease
    yield
    await flush(store, lease, "first ")
    yield
    waiting = await ada.says("I wait")
    yield
    await flush(store, lease, "words", start=6)
    yield
    call = tool_call("look")
    await store.turns.append(lease, [said(lease, "first words, and more", calls=(call,))])
    yield
    await store.turns.flush([piece(lease, "then ", of=SECOND)])
    yield
    await store.inbox.stop(turn_of(waiting), by=ada.id)
    yield
    await store.turns.flush([piece(lease, "others", start=5, of=SECOND)])
    yield
    ending = Settlement(
        outcome=Outcome.DONE, reason="stop", message=SECOND, text="then others come"
    )
    await store.turns.settle(lease, ending)
    yield
    await ada.says("again")
    lease = (await claim_one(store)).lease
    await flush(store, lease, " ")  # white space, which does not become a message
    yield
    await store.inbox.stop(lease.turn, by=ada.id)
    yield
    await ada.says("once more")
    lease = (await claim_one(store)).lease
    await flush(store, lease, "not ")
    yield
    await store.turns.interrupt(lease, Interruption.SHUTDOWN, attempts_max=3)
    yield
    await ada.says("/stop")
    await ada.says("and once more")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "at ")
    yield
    await settle(store, claimed, "at last")
    yield


async def test_deltas_join_to_the_text_wherever_the_connection_broke(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says("speak")
    crowd = Crowd(store, accepted.conversation)
    async for _ in steps(store, ada):
        await crowd.looks()

    assert crowd.newest.kept == ["first words, and more", "then others come", "not ", "at last"]


async def travels(store: Store, ada: Person) -> AsyncIterator[None]:
    """Lead a conversation through every way in which it can go on."""
    lease = (await claim_one(store)).lease
    await flush(store, lease, "cut ")
    yield
    await flush(store, lease, "off", start=4)
    await ada.says("/new")
    yield
    await ada.is_answered("then?", "then this")
    yield
    await ada.is_answered("and?", "and that")
    await ada.says("/undo")
    await ada.says("/branch aside")
    yield
    await ada.says("how far?")
    lease = (await claim_one(store)).lease
    await flush(store, lease, "so far")
    yield
    await ada.says("/resume")
    await ada.says("poison")
    yield
    for n in range(2):
        lease = (await claim_one(store)).lease
        await flush(store, lease, f"try {n}")
        if n:
            yield
            await ada.says("I wait")
        await store.turns.interrupt(lease, Interruption.CRASH, attempts_max=2)
        yield
        await store.nodes.resume(GO_ON, limit=9)
    await settle(store, await claim_one(store), "served")
    yield
    await ada.says("poison again")
    lease = (await claim_one(store)).lease
    await store.turns.interrupt(lease, Interruption.CRASH, attempts_max=1)
    yield
    await ada.says("/status")
    await ada.says("/new")
    await ada.says("/resume")
    yield


HEARD = [
    "speak", "cut off", "stopped", "A new session. 1 turn was stopped. /resume goes back.",
    "then?", "then this", "done", "and?", "and that", "done", "Undone:",
    "A branch from here. /resume goes back.", "how far?", "so far", "stopped",
    "Back in session", "poison", "try 0", "I wait", "try 1", "suspended",
    "An answer here was interrupted 2 times", "served", "done", "poison again", "suspended",
    "An answer here was interrupted", "idle, 0 waiting",
    "A new session. /resume goes back.", "Back in session",
]  # fmt: skip


async def test_the_way_through_the_sessions_is_the_same_from_everywhere(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says("speak")
    crowd = Crowd(store, accepted.conversation)
    async for _ in travels(store, ada):
        await crowd.looks()

    heard = crowd.newest.heard
    assert len(heard) == len(HEARD), heard
    for text, beginning in zip(heard, HEARD, strict=True):
        assert text.startswith(beginning)


async def test_a_long_way_is_walked_page_by_page(
    store: Store, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOVES_PAGE", 2)
    monkeypatch.setattr(watch, "JOURNAL_PAGE", 2)
    accepted = await ada.says("/status")
    for n in range(7):
        await ada.says(f"/new number {n}")

    news = [each async for _, each in told(store, accepted.conversation, BEGINNING)]

    notices = [each.text for each in news if isinstance(each, Entry)]
    assert [text.split(".")[0] for text in notices[1:]] == [
        f"A new session about number {n}" for n in range(7)
    ]
    assert isinstance(news[-1], StateNews)


class Watching:
    """Watches a conversation while the gateway tells this process what it has made durable."""

    def __init__(self, store: Store) -> None:
        self.feed = Feed()
        self._watchers = LiveWatchers(self.feed, store.conversations, store.archive)

    async def begin(self, conversation: ConversationId, after: Position | None = None) -> News:
        self._told = one_by_one(self._watchers.conversation(conversation, after=after))
        return await self.next()

    async def next(self) -> News:
        told = await anext(self._told)
        assert told is not None
        self.at, news = told
        return news

    async def until_state(self) -> list[News]:
        news = [await self.next()]
        while not isinstance(news[-1], StateNews):
            news.append(await self.next())
        return news

    def publish(self, accepted: Accepted) -> None:
        """Publish what was accepted, as the door does."""
        self.feed.publish_recorded(accepted.recorded)
        self.feed.moved(accepted.conversation, accepted.session)


@pytest.mark.parametrize("command", ["/new", "/branch aside", "/resume"])
async def test_whoever_watches_hears_the_end_of_what_a_command_left(
    store: Store, ada: Person, command: str
) -> None:
    first = await ada.says("/status")
    await ada.says("/new")
    asked = await ada.says("speak")
    await flush(store, (await claim_one(store)).lease, "half an ")
    watching = Watching(store)
    await watching.begin(first.conversation)
    assert isinstance(await watching.next(), Delta)

    watching.publish(moved := await ada.says(command))

    said, outcome, notice, state = await watching.until_state()
    assert isinstance(said, Entry)
    assert (said.turn, said.text) == (asked.turn, "half an ")
    assert isinstance(outcome, OutcomeNews)
    assert (outcome.turn, outcome.outcome) == (asked.turn, "stopped")
    assert isinstance(notice, Entry)
    assert notice.id == moved.message
    assert isinstance(state, StateNews)
    assert state.session == moved.session


async def test_what_is_resumed_is_not_told_again(store: Store, ada: Person) -> None:
    head = await ada.is_answered("one", "answer one")
    await ada.is_answered("two", "answer two")
    first = await ada.says("/undo")
    await ada.says("/new")
    watching = Watching(store)
    await watching.begin(first.conversation)

    watching.publish(await ada.says("/resume"))
    notice, state = await watching.until_state()
    watching.publish(next_one := await ada.says("three"))

    assert isinstance(notice, Entry)
    assert notice.text.startswith(f"Back in session {first.session}")
    assert isinstance(state, StateNews)
    assert (state.session, state.head) == (first.session, head)
    said = await watching.next()
    assert isinstance(said, Entry)
    assert said.id == next_one.message


async def test_a_state_that_was_seen_is_not_told_again(store: Store, ada: Person) -> None:
    asked = await ada.says("speak")
    await flush(store, (await claim_one(store)).lease, "half")
    watching = Watching(store)
    assert isinstance(await watching.begin(asked.conversation), StateNews)
    behind_state = told(store, asked.conversation, watching.at)
    assert isinstance(await watching.next(), Delta)
    behind_text = told(store, asked.conversation, watching.at)

    assert [type(each) async for _, each in behind_state] == [Delta]
    assert [each async for _, each in behind_text] == []


async def test_whoever_comes_while_a_person_is_asked_hears_what_the_answer_is_about(
    store: Store, ada: Person
) -> None:
    asked = await ada.says("pay the bill")
    lease, call = (await claim_one(store)).lease, tool_call("pay")
    await store.turns.append(lease, [said(lease, "Sure.", calls=(call,))])
    about = question_about(lease, call, deadline=2**50)
    await store.turns.wait(lease, [about])
    watching = Watching(store)
    assert isinstance(await watching.begin(asked.conversation), StateNews)
    came = watching.at

    reply = QuestionReply(question=about.question, answer=ALLOW, by=ada.id)
    watching.feed.publish_recorded((await store.questions.answer(reply)).recorded)
    lease = (await claim_one(store)).lease
    begun = ToolStarted(turn=lease.turn, call=call.id)
    ended = ToolFinished(turn=lease.turn, call=call.id, ending=CallEnding.FAILED, result="no")
    watching.feed.publish_recorded(await store.turns.append(lease, [begun, ended]))

    live: list[News] = []
    while sum(isinstance(each, ToolNews) for each in live) < 2:
        live.append(await watching.next())
    missed = [each async for _, each in told(store, asked.conversation, came)]
    for news in (live, missed):
        (closed,) = [each for each in news if isinstance(each, QuestionNews)]
        assert (closed.state, closed.tool, closed.args) == ("allowed", "pay", call.arguments)
        assert (closed.kind, closed.deadline) == ("approval", about.deadline)
        calls = [each for each in news if isinstance(each, ToolNews)]
        assert [(each.name, each.state, each.ended) for each in calls] == [
            ("pay", "started", ""),
            ("pay", "finished", "failed"),
        ]


async def test_whoever_waits_for_a_turn_is_told_when_the_node_leaves(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "half")
    watchers = LiveWatchers(Feed(), store.conversations, store.archive)
    heard = watchers.turn(accepted, is_fresh=False)

    assert (await anext(heard)).text == "half"
    watchers.close()
    with pytest.raises(Transient) as caught:
        await anext(heard)
    assert caught.value.code == "interrupted"
    await settle(store, claimed, "half and half")
    late = [grown async for grown in watchers.turn(accepted, is_fresh=False)]
    assert [(grown.text, grown.ended is not None) for grown in late] == [("half and half", True)]


async def test_whoever_watches_goes_along_when_a_turn_is_given_up(
    store: Store, ada: Person
) -> None:
    # The waiting message goes on in another session, although nobody does anything in the
    # conversation.
    accepted = await ada.says("deadly")
    claimed = await claim_one(store)
    await ada.says("I wait")
    watching = Watching(store)
    before = await watching.begin(accepted.conversation)
    given_up = await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    watching.feed.publish_recorded(given_up)

    assert isinstance(before, StateNews)
    assert before.session == accepted.session
    outcome, notice, state = await watching.until_state()
    assert isinstance(outcome, OutcomeNews)
    assert (outcome.turn, outcome.outcome) == (accepted.turn, "suspended")
    assert isinstance(notice, Entry)
    assert (notice.role, notice.turn) == ("notice", accepted.turn)
    assert isinstance(state, StateNews)
    assert (state.session != accepted.session, state.queued) == (True, 1)


async def test_whoever_watches_goes_along_with_words_that_were_never_taken(
    store: Store, ada: Person
) -> None:
    # Nothing waited. The steer to the turn that is given up becomes a turn in another session.
    accepted = await ada.says("deadly")
    claimed = await claim_one(store)
    await ada.says("/steer rather this")
    watching = Watching(store)
    await watching.begin(accepted.conversation)
    given_up = await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    watching.feed.publish_recorded(given_up)

    *_, said, state = await watching.until_state()
    assert isinstance(said, Entry)
    assert (said.role, said.text) == ("user", "rather this")
    assert isinstance(state, StateNews)
    assert (state.session != accepted.session, state.queued) == (True, 1)


async def test_whoever_watches_goes_along_to_what_was_done_in_the_background(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says("deadly")
    claimed = await claim_one(store)
    await ada.says("/background look it up")
    errand = await claim_one(store)
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)
    watching = Watching(store)
    await watching.begin(accepted.conversation)

    watching.feed.publish_recorded(await settle(store, errand, "found"))

    *_, state = await watching.until_state()
    assert isinstance(state, StateNews)
    assert (state.session != accepted.session, state.queued) == (True, 1)
