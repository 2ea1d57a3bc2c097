"""Tells watchers in this process what has just become durable.

Nothing here is truth: a watcher that misses something (too slow, other node) reads the store from
its position again. Publishing happens after the commit, in the order of the commits of one writer.

What is published in a session is kept once, however many watch it: each item leads to the one
behind it, and each watcher knows the last one it has taken. So an item is gone when all have taken
it. Whoever is too far back is told that it is behind, and keeps nothing. Many watchers are woken
some at a time, and the work of others goes on in between: a crowd hears of a turn a little later,
and does not hold it up.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from perdure.domain.ids import ConversationId, MessageId, SessionId
from perdure.domain.journal.events import Recorded, SessionOpened
from perdure.domain.turn.standing import SessionStanding
from perdure.domain.turn.watching import Delta, Told

FeedItem = Recorded | Delta
# What is told of an item, and where its watcher stands then.
Meaning: TypeAlias = tuple[list[Told], int, MessageId | None, int, SessionStanding]
BACKLOG_MAX = 1_000
# Characters of text. One item may have more.
BACKLOG_LENGTH = 1_000_000
WOKEN_AT_ONCE = 50
REST_MAX_S = 0.02


class Published:
    """An item, and the way to the one behind it. `number` and `length` count all up to this one.
    `meanings` is for watchers to share what they make of it."""

    __slots__ = ("behind", "item", "length", "meanings", "number")

    def __init__(self, item: FeedItem | None, *, number: int = 0, length: int = 0) -> None:
        self.item = item
        self.number = number
        self.length = length
        self.behind: Published | None = None
        self.meanings: dict[Hashable, Meaning] = {}

    def is_far_behind(self, last: "Published") -> bool:
        """Whether more lies between than is kept for anybody."""
        if self.behind is None or self.behind is last:
            return False
        return last.number - self.number > BACKLOG_MAX or last.length - self.length > BACKLOG_LENGTH


class Subscription:
    """One watcher's place. `is_behind`: items were dropped, read the store again."""

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
        """Look whether something came."""
        if self._taken.is_far_behind(self._line.last):
            self.fall_behind()
        elif self._taken.behind is not None:
            self._tell()

    def nudge(self) -> None:
        """Let the watcher look up, though nothing came."""
        self._tell()

    def fall_behind(self) -> None:
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
        """Everything since the last call; waits for an item, or for falling behind. Empty when
        nothing came for a while."""
        return [each.item for each in await self.next_published(timeout_s) if each.item is not None]

    async def next_published(self, timeout_s: float) -> list[Published]:
        """The same, as it was published to all."""
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
        """A bare timer: quiet is no failure here, and every turn waits a few times."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class _Line:
    """What is published in one session, and who watches it. Who follows a turn is told before
    those who look on."""

    def __init__(self) -> None:
        self.last = Published(None)
        self.followers: dict[Subscription, None] = {}
        self.onlookers: dict[Subscription, None] = {}
        self._waking: Iterator[Subscription] | None = None
        self._is_longer = False

    def put(self, items: Sequence[FeedItem]) -> None:
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
            # Behind those who were woken just now.
            loop.call_soon(self._rest, loop.time())
            return
        self._waking = None
        if self._is_longer:
            self._begin_waking()

    def _rest(self, since_s: float) -> None:
        """Leave others as much time as the last ones took."""
        loop = asyncio.get_running_loop()
        loop.call_later(min(loop.time() - since_s, REST_MAX_S), self._wake_some)


class Feed:
    """`observers` see every fact that this process made durable."""

    def __init__(self, *observers: Callable[[Recorded], None]) -> None:
        self._observers = observers
        self._lines: dict[SessionId, _Line] = {}
        self._by_conversation: dict[ConversationId, set[Subscription]] = {}

    def subscribe(
        self, session: SessionId, *conversations: ConversationId, looks_on: bool = False
    ) -> Subscription:
        """To what happens in the session, as long as each of the conversations goes on in it. Who
        only `looks_on` may hear of it a little later."""
        line = self._lines.setdefault(session, _Line())
        subscription = Subscription(line, session, conversations)
        (line.onlookers if looks_on else line.followers)[subscription] = None
        for conversation in conversations:
            self._by_conversation.setdefault(conversation, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        line = self._lines.get(subscription.session)
        if line is not None:
            line.followers.pop(subscription, None)
            line.onlookers.pop(subscription, None)
            if not line.followers and not line.onlookers:
                del self._lines[subscription.session]
        for conversation in subscription.conversations:
            _discard(self._by_conversation, conversation, subscription)

    def publish(self, session: SessionId, items: Sequence[FeedItem]) -> None:
        for observe in self._observers:
            for item in items:
                if isinstance(item, Recorded):
                    observe(item)
        line = self._lines.get(session)
        if line is not None:
            line.put(items)

    def publish_recorded(self, recorded: Iterable[Recorded]) -> None:
        for each in recorded:
            self.publish(each.session, (each,))
            match each.event:
                case SessionOpened(parent=left, kind="") if left is not None:
                    self._left(left)

    def _left(self, session: SessionId) -> None:
        """Its conversation goes on in another session: whoever watches that must look again."""
        line = self._lines.get(session)
        for subscription in chain(line.followers, line.onlookers) if line else ():
            if subscription.conversations:
                subscription.fall_behind()

    def moved(self, conversation: ConversationId, session: SessionId) -> None:
        """The conversation's live session is this one: watchers of another must look again."""
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
    """The characters of an item that may be many."""
    if isinstance(item, Delta):
        return len(item.text)
    event = item.event
    return len(getattr(event, "text", "")) + len(getattr(event, "result", ""))
