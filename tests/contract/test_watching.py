"""Who watches has every text whole, from wherever the connection broke, and is let go at the end.

Watchers of every kind are kept at every step of a turn's life: one for each thing ever told, which
was its last before it lost the connection. All of them look again after the next step.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
import pytest

from perdure.domain.errors import Transient
from perdure.domain.ids import ConversationId, MessageId
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.transcript import Entry
from perdure.domain.watching import Delta, News, Position, StateNews
from perdure.engine.feed import Feed
from perdure.engine.watch import Watchers
from perdure.ports.turns import Settlement
from perdure.store.store import Store
from perdure.testkit.stores import (
    Person,
    claim_one,
    flush,
    piece,
    said,
    settle,
    tool_call,
    turn_of,
)

T = TypeVar("T")
BEGINNING = Position(0, 0)
SECOND = MessageId("msg_second")


class Reader(msgspec.Struct):
    """One who joins deltas, and has seen everything up to a position."""

    at: Position
    texts: dict[MessageId, str]

    @property
    def kept(self) -> list[str]:
        """Blanks alone become no message."""
        return [text for text in self.texts.values() if text.strip()]

    def after(self, at: Position, news: News) -> "Reader":
        texts = dict(self.texts)
        match news:
            case Delta(message=message, offset=offset, text=text):
                assert offset == len(texts.get(message, "")), "a gap, or something twice"
                texts[message] = texts.get(message, "") + text
            case Entry(role="assistant", id=message, text=text):
                assert texts.get(MessageId(message), "") == text, "a message before its text"
            case _:
                pass
        assert at >= self.at
        return Reader(at, texts)


class Crowd:
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

    @property
    def newest(self) -> Reader:
        return self._readers[max(self._readers)]


async def told(
    store: Store, conversation: ConversationId, after: Position
) -> AsyncIterator[tuple[Position, News]]:
    """What there is to tell now, and no more."""
    watchers = Watchers(Feed(), store.conversations, store.archive)
    async for each in watchers.conversation(conversation, after=after):
        watchers.close()
        if each is not None:
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
    await flush(store, lease, " ")  # nothing that stays
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


async def test_whoever_waits_for_a_turn_is_told_when_the_node_leaves(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "half")
    watchers = Watchers(Feed(), store.conversations, store.archive)
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
    """What waited goes on elsewhere, and nobody does anything in the conversation for it to."""
    accepted = await ada.says("deadly")
    claimed = await claim_one(store)
    await ada.says("I wait")
    feed = Feed()
    watchers = Watchers(feed, store.conversations, store.archive)
    watching = watchers.conversation(accepted.conversation, after=None)
    _, before = await anext(watching) or (None, None)
    given_up = await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    feed.publish_recorded(given_up)

    assert isinstance(before, StateNews)
    assert before.session == accepted.session
    told = [each[1] async for each in islice(watching, 3) if each is not None]
    notice, waiting, state = told
    assert isinstance(notice, Entry)
    assert (notice.role, notice.turn) == ("notice", accepted.turn)
    assert isinstance(waiting, Entry)
    assert waiting.text == "I wait"
    assert isinstance(state, StateNews)
    assert (state.session != accepted.session, state.queued) == (True, 1)


async def islice(each: AsyncIterator[T], count: int) -> AsyncIterator[T]:
    for _ in range(count):
        yield await anext(each)
