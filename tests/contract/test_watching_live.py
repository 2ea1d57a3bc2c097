"""Checks that a watcher misses nothing that happens while it reads the store, and leaves nothing
behind when it goes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from perdure.domain.errors import Transient
from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.turn.watching import Delta, StateNews
from perdure.engine.watching.feed import Feed, FeedItem, Subscription
from perdure.engine.watching.watch import QUIET_S, LiveWatchers
from perdure.ports.gateway import Grown
from perdure.ports.records.history import Archive, Conversations
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, flush, reply_id, settle
from perdure.testkit.simulator.watching import one_by_one

SOON_S = 3
Then = Callable[[], Awaitable[None]]


class Reads:
    """Counts the reads of the store. Directly after read number `at`, before its reader gets the
    result, `then` happens."""

    def __init__(self, at: int, then: Then) -> None:
        self._left = at
        self._then = then

    async def after(self, reading: Awaitable[object]) -> object:
        found = await reading
        self._left -= 1
        if self._left == 0:
            await self._then()
        return found

    @property
    def has_happened(self) -> bool:
        return self._left <= 0


class QuietFeed(Feed):
    """Makes waits a thousand times shorter, and records how long they would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float] = []

    def subscribe(
        self, session: SessionId, *conversations: ConversationId, looks_on: bool = False
    ) -> Subscription:
        subscription = super().subscribe(session, *conversations, looks_on=looks_on)
        wait = subscription.next

        async def hurried(timeout_s: float) -> list[FeedItem]:
            self.waits_s.append(timeout_s)
            return await wait(timeout_s / 1000)

        subscription.next = hurried  # type: ignore[method-assign]
        return subscription


class Watched:
    """Wraps a port of the store and counts its reads."""

    def __init__(self, inner: object, reads: Reads) -> None:
        self._inner = inner
        self._reads = reads

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        read = getattr(self._inner, name)
        return lambda *given, **named: self._reads.after(read(*given, **named))


class Scene:
    """Plays a turn of which a watcher has seen the first word, and the process that runs it."""

    def __init__(self, store: Store, ada: Person) -> None:
        self.store = store
        self.ada = ada
        self.feed = Feed()

    async def begin(self) -> Accepted:
        self.asked = await self.ada.says("speak")
        self.claimed = await claim_one(self.store)
        await flush(self.store, self.claimed.lease, "one ")
        return self.asked

    async def goes_on(self) -> None:
        """Show the next word as the scribe does: first make it durable, then tell it."""
        lease = self.claimed.lease
        await flush(self.store, lease, "two", start=4)
        delta = Delta(turn=lease.turn, message=reply_id(lease), offset=4, text="two")
        self.feed.publish(lease.session, (delta,))

    async def ends(self) -> None:
        self.feed.publish_recorded(await settle(self.store, self.claimed, "one two"))

    async def moves(self) -> None:
        moved = await self.ada.says("/new")
        self.feed.publish_recorded(moved.recorded)
        self.feed.moved(moved.conversation, moved.session)

    def watchers(self, reads: Reads | None = None, *, is_shared: bool = False) -> LiveWatchers:
        conversations, archive = self.store.conversations, self.store.archive
        if reads is None:
            return LiveWatchers(self.feed, conversations, archive, is_shared=is_shared)
        return LiveWatchers(
            self.feed,
            cast("Conversations", Watched(conversations, reads)),
            cast("Archive", Watched(archive, reads)),
            is_shared=is_shared,
        )


@pytest.fixture
async def scene(store: Store, ada: Person) -> Scene:
    scene = Scene(store, ada)
    await scene.begin()
    return scene


async def heard(
    watchers: LiveWatchers, accepted: Accepted, is_enough: Callable[[str, list[object]], bool]
) -> str:
    """Watch the conversation until `is_enough`. Returns the text that was heard."""
    text, news = "", list[object]()
    async with (
        asyncio.timeout(SOON_S),
        aclosing(one_by_one(watchers.conversation(accepted.conversation, after=None))) as stream,
    ):
        async for told in stream:
            assert told is not None, "something happened, and was not told"
            news.append(told[1])
            if isinstance(told[1], Delta):
                assert told[1].offset == len(text), "a gap, or something twice"
                text += told[1].text
            if is_enough(text, news):
                break
    return text


@pytest.mark.parametrize("read", [1, 2])
async def test_text_that_comes_while_a_watcher_looks_is_told(scene: Scene, read: int) -> None:
    reads = Reads(read, scene.goes_on)

    text = await heard(scene.watchers(reads), scene.asked, lambda text, _: text == "one two")

    assert reads.has_happened
    assert text == "one two"


@pytest.mark.parametrize("read", [1, 2])
async def test_an_end_that_comes_while_a_watcher_looks_is_told(scene: Scene, read: int) -> None:
    # A watcher that read before the end is told of it; one that reads after the end finds it in the
    # store.
    reads = Reads(read, scene.ends)

    def is_over(_: str, news: list[object]) -> bool:
        states = [each for each in news if isinstance(each, StateNews)]
        return bool(states) and states[-1].state == "idle"

    await heard(scene.watchers(reads), scene.asked, is_over)

    assert reads.has_happened


@pytest.mark.parametrize("read", [1, 2])
async def test_a_move_that_comes_while_a_watcher_looks_is_followed(scene: Scene, read: int) -> None:
    reads = Reads(read, scene.moves)

    def has_moved(_: str, news: list[object]) -> bool:
        return any(
            isinstance(each, StateNews) and each.session != scene.asked.session for each in news
        )

    await heard(scene.watchers(reads), scene.asked, has_moved)

    assert reads.has_happened


@pytest.mark.parametrize("happens", ["goes_on", "ends"])
@pytest.mark.parametrize("read", [1, 2])
async def test_whoever_waits_for_a_turn_misses_nothing_while_it_looks(
    scene: Scene, read: int, happens: str
) -> None:
    reads = Reads(read, getattr(scene, happens))
    text = ""
    async with (
        asyncio.timeout(SOON_S),
        aclosing(scene.watchers(reads).turn(scene.asked, is_fresh=False)) as stream,
    ):
        async for grown in stream:
            text += grown.text
            if grown.ended is not None or (happens == "goes_on" and text == "one two"):
                break

    assert reads.has_happened
    assert text == "one two"


async def test_a_new_turn_is_heard_from_its_first_word_on(scene: Scene) -> None:
    # Nothing is read from the store for a newly accepted turn: the subscription alone must bring
    # everything.
    await scene.ends()
    asked = await scene.ada.says("again")
    watching = scene.watchers().turn(asked, is_fresh=True)
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)  # let it subscribe
    scene.claimed = await claim_one(scene.store)
    lease = scene.claimed.lease
    await flush(scene.store, lease, "one ")
    delta = Delta(turn=lease.turn, message=reply_id(lease), offset=0, text="one ")
    scene.feed.publish(lease.session, (delta,))
    async with asyncio.timeout(SOON_S):
        assert (await first).text == "one "
        await scene.ends()
        assert (await anext(watching)).text == "two"
    await watching.aclose()


def kept_by(scene: Scene, watchers: LiveWatchers) -> list[Any]:
    """Return what is still held for watchers."""
    return [*scene.feed._lines, *scene.feed._by_conversation, *watchers._open]


async def _leaves_after_a_word(scene: Scene, watchers: LiveWatchers) -> None:
    async with aclosing(
        one_by_one(watchers.conversation(scene.asked.conversation, after=None))
    ) as stream:
        await anext(stream)
        assert kept_by(scene, watchers)


async def _leaves_while_it_waits(scene: Scene, watchers: LiveWatchers) -> None:
    stream = one_by_one(watchers.conversation(scene.asked.conversation, after=None))
    await anext(stream)
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _follows_to_another_session(scene: Scene, watchers: LiveWatchers) -> None:
    async with (
        asyncio.timeout(SOON_S),
        aclosing(one_by_one(watchers.conversation(scene.asked.conversation, after=None))) as stream,
    ):
        await anext(stream)
        await scene.moves()
        there = None
        while there is None:
            told = await anext(stream)
            there = told[1].session if told and isinstance(told[1], StateNews) else None
        assert there != scene.asked.session
        assert list(scene.feed._lines) == [there], "the one that was left is let go"


async def _hears_a_turn_to_its_end(scene: Scene, watchers: LiveWatchers) -> None:
    await scene.ends()
    assert [each async for each in watchers.turn(scene.asked, is_fresh=False)]


async def _leaves_a_turn(scene: Scene, watchers: LiveWatchers) -> None:
    async with aclosing(watchers.turn(scene.asked, is_fresh=False)) as stream:
        await anext(stream)


async def _is_told_that_the_node_leaves(scene: Scene, watchers: LiveWatchers) -> None:
    stream = watchers.turn(scene.asked, is_fresh=False)
    await anext(stream)
    watchers.close()
    with pytest.raises(Transient):
        await anext(stream)


@pytest.mark.parametrize(
    "watch",
    [
        _leaves_after_a_word,
        _leaves_while_it_waits,
        _follows_to_another_session,
        _hears_a_turn_to_its_end,
        _leaves_a_turn,
        _is_told_that_the_node_leaves,
    ],
)
async def test_nothing_is_kept_for_one_who_has_gone(
    scene: Scene, watch: Callable[[Scene, LiveWatchers], Awaitable[None]]
) -> None:
    watchers = scene.watchers()

    await watch(scene, watchers)

    assert kept_by(scene, watchers) == []


async def test_others_are_still_told_when_one_has_gone(scene: Scene) -> None:
    watchers = scene.watchers()
    stays = one_by_one(watchers.conversation(scene.asked.conversation, after=None))
    await anext(stays)
    await anext(stays)
    await _leaves_after_a_word(scene, watchers)

    await scene.goes_on()

    async with asyncio.timeout(SOON_S):
        told = await anext(stays)
    assert told is not None
    assert isinstance(told[1], Delta)
    await stays.aclose()


async def waited(scene: Scene, watchers: LiveWatchers, times: int) -> None:
    """Wait for the turn's end until nothing has come this many times."""
    quiet = 0
    async with (
        asyncio.timeout(SOON_S),
        aclosing(watchers.turn(scene.asked, is_fresh=True)) as stream,
    ):
        async for grown in stream:
            quiet += grown == Grown()
            if quiet == times:
                return


@pytest.mark.parametrize("is_shared", [False, True])
async def test_whoever_waits_reads_the_store_again_only_where_others_write_to_it(
    scene: Scene, *, is_shared: bool
) -> None:
    scene.feed = QuietFeed()
    reads = Reads(1, lambda: asyncio.sleep(0))

    await waited(scene, scene.watchers(reads, is_shared=is_shared), 3)

    assert reads.has_happened is is_shared


async def test_those_who_began_to_wait_together_do_not_look_up_together(scene: Scene) -> None:
    scene.feed = quiet = QuietFeed()
    watchers = scene.watchers(is_shared=True)
    for _ in range(100):
        await waited(scene, watchers, 1)

    firsts = sorted(quiet.waits_s)
    assert firsts[-1] <= QUIET_S
    # The waits are spread evenly: about as many in each tenth of the time.
    tenths = [int(10 * (wait_s / QUIET_S * 2 - 1)) for wait_s in firsts]
    assert all(8 <= tenths.count(tenth) <= 12 for tenth in range(10)), tenths


async def test_what_many_hear_live_is_made_once(scene: Scene) -> None:
    watchers = scene.watchers()
    streams = [
        one_by_one(watchers.conversation(scene.asked.conversation, after=None)) for _ in range(3)
    ]
    heard: list[list[object]] = [[] for _ in streams]
    async with asyncio.timeout(SOON_S):
        for stream, news in zip(streams, heard, strict=True):
            while not any(isinstance(each[1], Delta) for each in news):  # type: ignore[index]
                news.append(await anext(stream))
        for news in heard:
            news.clear()
        next_words = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        await scene.goes_on()
        for news, word in zip(heard, next_words, strict=True):
            news.append(await word)
        await scene.ends()
        for stream, news in zip(streams, heard, strict=True):
            news += [await anext(stream) for _ in range(3)]
            await stream.aclose()

    first, *others = heard
    for other in others:
        assert [id(each) for each in other] == [id(each) for each in first]
