"""Tells watchers in this process what has just become durable.

The feed is only there for speed: a watcher that misses something, because it is too slow or because
another node wrote it, reads the store again from its position. Publishing happens after the commit,
in the order of the commits of one writer.

What is published in a session is kept once, however many watch it: each item links to the next, and
each watcher links to the last item it has taken. So an item is freed when all have taken it. A
watcher that is too far back is told so, and keeps no items. Many watchers are woken in portions,
and other work runs in between: so a crowd hears of a turn a little later, and does not slow it
down.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from perdure.domain.ids import ConversationId, MessageId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import SessionOpened
from perdure.domain.turn.standing import SessionStanding
from perdure.domain.turn.watching import Delta, Told, ToolProgress

FeedItem = Recorded | Delta | ToolProgress
# What a watcher is told of an item, and the watcher's state afterwards: the seq, the running
# message, how much of that was shown, and the session's standing.
Meaning: TypeAlias = tuple[list[Told], int, MessageId | None, int, SessionStanding]
# How far back a watcher may be: in items, and in characters of text. One item may have more.
BACKLOG_MAX = 1_000
BACKLOG_LENGTH = 1_000_000
# How many watchers one portion wakes, and the longest pause between two portions.
WOKEN_AT_ONCE = 50
REST_MAX_S = 0.02


class Published:
    """Holds an item and the link to the next one (`behind`). `number` and `length` count all items
    up to this one and their characters. `meanings` is where watchers share what the item means."""

    __slots__ = ("behind", "item", "length", "meanings", "number")

    def __init__(self, item: FeedItem | None, *, number: int = 0, length: int = 0) -> None:
        self.item = item
        self.number = number
        self.length = length
        self.behind: Published | None = None
        self.meanings: dict[Hashable, Meaning] = {}

    def is_far_behind(self, last: "Published") -> bool:
        """Tell whether more was published between this item and `last` than a watcher may miss."""
        if self.behind is None or self.behind is last:
            return False
        return last.number - self.number > BACKLOG_MAX or last.length - self.length > BACKLOG_LENGTH


class Subscription:
    """Holds the position of one watcher in the feed. `is_behind`: items were dropped, and the
    watcher must read the store again."""

    def __init__(
        self, line: "_Line", session: SessionId, conversations: Sequence[ConversationId]
    ) -> None:
        self.conversations = conversations
        self.session = session
        self.is_behind = False
        self._line = line
        self._taken = line.last
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    def look(self) -> None:
        """Wake the watcher if something was published, or if it is too far back."""
        if self._taken.is_far_behind(self._line.last):
            self.fall_behind()
        elif self._taken.behind is not None:
            self._tell()

    def nudge(self) -> None:
        """Wake the watcher although nothing was published."""
        self._tell()

    def fall_behind(self) -> None:
        """Drop all items that were not taken, and make the watcher read the store again."""
        self._taken = self._line.last
        self.is_behind = True
        self._tell()

    def _tell(self) -> None:
        self._has_news = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, timeout_s: float) -> list[FeedItem]:
        """Return all items since the last call. Waits for an item, a nudge or falling behind;
        returns an empty list if nothing came within `timeout_s`."""
        return [each.item for each in await self.next_published(timeout_s) if each.item is not None]

    async def next_published(self, timeout_s: float) -> list[Published]:
        """Return the same as `next`, as the objects that all watchers share."""
        if not self._has_news and self._taken.behind is None:
            await self._wait(timeout_s)
        self._has_news = False
        if self._taken.is_far_behind(self._line.last):
            self._taken = self._line.last
            self.is_behind = True
        items = []
        while (behind := self._taken.behind) is not None:
            items.append(behind)
            self._taken = behind
        return items

    async def _wait(self, timeout_s: float) -> None:
        """Wait until woken, at most `timeout_s`. A plain timer is cheaper than a time limit that
        raises, and every turn waits here a few times."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class _Line:
    """Holds what is published in one session, and its watchers. Followers of a turn are woken
    before onlookers."""

    def __init__(self) -> None:
        self.last = Published(None)
        self.followers: dict[Subscription, None] = {}
        self.onlookers: dict[Subscription, None] = {}
        self._waking: Iterator[Subscription] | None = None
        self._is_longer = False

    def put(self, items: Sequence[FeedItem]) -> None:
        """Append items, and wake the watchers."""
        for item in items:
            last = self.last
            self.last = last.behind = Published(
                item, number=last.number + 1, length=last.length + _length(item)
            )
        if self._waking is None:
            self._begin_waking()
        else:
            self._is_longer = True

    def _begin_waking(self) -> None:
        self._is_longer = False
        self._waking = iter([*self.followers, *self.onlookers])
        self._wake_some()

    def _wake_some(self) -> None:
        assert self._waking is not None
        some = list(islice(self._waking, WOKEN_AT_ONCE))
        for subscription in some:
            subscription.look()
        if len(some) == WOKEN_AT_ONCE:
            loop = asyncio.get_running_loop()
            # Runs after the watchers that were woken just now.
            loop.call_soon(self._rest, loop.time())
            return
        self._waking = None
        if self._is_longer:
            self._begin_waking()

    def _rest(self, since_s: float) -> None:
        """Leave other work as much time as the last portion took, then wake the next portion."""
        loop = asyncio.get_running_loop()
        loop.call_later(min(loop.time() - since_s, REST_MAX_S), self._wake_some)


class Feed:
    """Publishes to the subscriptions of each session. `observers` are called with every event that
    this process made durable."""

    def __init__(self, *observers: Callable[[Recorded], None]) -> None:
        self._observers = list(observers)
        self._lines: dict[SessionId, _Line] = {}
        self._by_conversation: dict[ConversationId, set[Subscription]] = {}

    def observe(self, observer: Callable[[Recorded], None]) -> None:
        """Call this too with every event that this process makes durable."""
        self._observers.append(observer)

    def subscribe(
        self, session: SessionId, *conversations: ConversationId, looks_on: bool = False
    ) -> Subscription:
        """Subscribe to a session, while it is the live session of each of these conversations: when
        one moves on, the watcher falls behind. One that only `looks_on` may be woken a little
        later."""
        line = self._lines.setdefault(session, _Line())
        subscription = Subscription(line, session, conversations)
        (line.onlookers if looks_on else line.followers)[subscription] = None
        for conversation in conversations:
            self._by_conversation.setdefault(conversation, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        line = self._lines.get(subscription.session)
        if line is not None:
            line.followers.pop(subscription, None)
            line.onlookers.pop(subscription, None)
            if not line.followers and not line.onlookers:
                del self._lines[subscription.session]
        for conversation in subscription.conversations:
            _discard(self._by_conversation, conversation, subscription)

    def publish(self, session: SessionId, items: Sequence[FeedItem]) -> None:
        """Tell the observers and the session's watchers. Call it only after the commit."""
        for observe in self._observers:
            for item in items:
                if isinstance(item, Recorded):
                    observe(item)
        line = self._lines.get(session)
        if line is not None:
            line.put(items)

    def publish_recorded(self, recorded: Iterable[Recorded]) -> None:
        """Publish events in their sessions. If one opens a session that continues another, the
        watchers of the other must look again."""
        for each in recorded:
            self.publish(each.session, (each,))
            match each.event:
                case SessionOpened(parent=left, kind="") if left is not None:
                    self._left(left)

    def _left(self, session: SessionId) -> None:
        """Make the watchers of this session look again: its conversation continues in another
        one."""
        line = self._lines.get(session)
        for subscription in chain(line.followers, line.onlookers) if line else ():
            if subscription.conversations:
                subscription.fall_behind()

    def moved(self, conversation: ConversationId, session: SessionId) -> None:
        """Note that this is the conversation's live session. Watchers of another one must look
        again."""
        for subscription in self._by_conversation.get(conversation, ()):
            if subscription.session != session:
                subscription.fall_behind()


K = TypeVar("K")


def _discard(groups: dict[K, set[Subscription]], key: K, value: Subscription) -> None:
    group = groups.get(key, set())
    group.discard(value)
    if not group:
        groups.pop(key, None)


def _length(item: FeedItem) -> int:
    """Return how many characters an item's text or result has."""
    if isinstance(item, Delta):
        return len(item.text)
    if isinstance(item, ToolProgress):
        return len(item.text)
    event = item.event
    return len(getattr(event, "text", "")) + len(getattr(event, "result", ""))
