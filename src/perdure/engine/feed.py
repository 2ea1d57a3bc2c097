"""Tells watchers in this process what has just become durable.

Nothing here is truth: a watcher that misses something (too slow, other node) reads the store from
its position again. Publishing happens after the commit, in the order of the commits of one writer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from perdure.domain.events import Recorded, SessionOpened
from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.watching import Delta

Item = Recorded | Delta
BACKLOG_MAX = 1_000


class Subscription:
    """One watcher's queue. `is_behind`: items were dropped, read the store again."""

    def __init__(self, session: SessionId, conversations: Sequence[ConversationId]) -> None:
        self.conversations = conversations
        self.session = session
        self.is_behind = False
        self._items: deque[Item] = deque()
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        if len(self._items) >= BACKLOG_MAX:
            self.fall_behind()
            return
        self._items.append(item)
        self._tell()

    def nudge(self) -> None:
        """Let the watcher look up, though nothing came."""
        self._tell()

    def fall_behind(self) -> None:
        self._items.clear()
        self.is_behind = True
        self._tell()

    def _tell(self) -> None:
        self._has_news = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, timeout_s: float) -> list[Item]:
        """Everything since the last call; waits for an item, or for falling behind. Empty when
        nothing came for a while."""
        if not self._has_news:
            await self._wait(timeout_s)
        self._has_news = False
        items = list(self._items)
        self._items.clear()
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


class Feed:
    """`observers` see every fact that this process made durable."""

    def __init__(self, *observers: Callable[[Recorded], None]) -> None:
        self._observers = observers
        self._by_session: dict[SessionId, set[Subscription]] = {}
        self._by_conversation: dict[ConversationId, set[Subscription]] = {}

    def subscribe(self, session: SessionId, *conversations: ConversationId) -> Subscription:
        """To what happens in the session, as long as each of the conversations goes on in it."""
        subscription = Subscription(session, conversations)
        self._by_session.setdefault(session, set()).add(subscription)
        for conversation in conversations:
            self._by_conversation.setdefault(conversation, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        _discard(self._by_session, subscription.session, subscription)
        for conversation in subscription.conversations:
            _discard(self._by_conversation, conversation, subscription)

    def publish(self, session: SessionId, items: Sequence[Item]) -> None:
        for observe in self._observers:
            for item in items:
                if isinstance(item, Recorded):
                    observe(item)
        for subscription in self._by_session.get(session, ()):
            for item in items:
                subscription.put(item)

    def publish_recorded(self, recorded: Iterable[Recorded]) -> None:
        for each in recorded:
            self.publish(each.session, (each,))
            match each.event:
                case SessionOpened(parent=left, kind="") if left is not None:
                    self._left(left)

    def _left(self, session: SessionId) -> None:
        """Its conversation goes on in another session: whoever watches that must look again."""
        for subscription in self._by_session.get(session, ()):
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
