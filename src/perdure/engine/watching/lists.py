"""Tells a person's clients which of their conversations have changed, as it happens.

A watcher knows the conversations that it was told of, and the sessions that are live in them. An
event in one of these sessions marks that conversation; an event by the person in any other session
makes the watcher read its list again. What it is told is read from the store, a moment later, so
that a burst of events is one read.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from perdure.domain.errors import NotFound
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.ports.records.history import Conversations, ConversationView, Page

PAGE: Final = Page(limit=50)
# How long events are collected before the store is read.
REST_S: Final = 0.2
QUIET_S: Final = 15.0
# How many conversations one watcher knows at most; of the others it learns when they are active.
KNOWN_MAX: Final = 500


class _ListWatch:
    """Holds what one watcher knows, and what may have changed since."""

    def __init__(self, principal: PrincipalId) -> None:
        self.principal = principal
        self.known: dict[ConversationId, ConversationView] = {}
        self.sessions: dict[SessionId, ConversationId] = {}
        self.changed: set[ConversationId] = set()
        self.is_behind = True
        self.woken = asyncio.Event()

    def hear(self, recorded: Recorded) -> None:
        """Note that an event may be about a conversation of this person."""
        conversation = self.sessions.get(recorded.session)
        if conversation is not None:
            self.changed.add(conversation)
        elif getattr(recorded.event, "by", None) == self.principal:
            self.is_behind = True
        else:
            return
        self.woken.set()

    def learn(self, views: Sequence[ConversationView]) -> list[ConversationView]:
        """Return those that are not as they were known."""
        news = [view for view in views if self.known.get(view.id) != view]
        for view in news:
            before = self.known.pop(view.id, None)
            if before is not None:
                self.sessions.pop(before.standing.session, None)
            self.known[view.id] = view
            self.sessions[view.standing.session] = view.id
        while len(self.known) > KNOWN_MAX:
            forgotten = self.known.pop(next(iter(self.known)))
            self.sessions.pop(forgotten.standing.session, None)
        return news


class LiveLists:
    """Tells watchers which conversations of a person have changed."""

    def __init__(self, conversations: Conversations, *, is_shared: bool) -> None:
        """Begin without watchers. `is_shared`: other nodes write to the store too, so the list is
        read again now and then."""
        self._conversations = conversations
        self._is_shared = is_shared
        self._watches: set[_ListWatch] = set()
        self._is_closed = False

    def observe(self, recorded: Recorded) -> None:
        """Note an event that has become durable."""
        for watch in self._watches:
            watch.hear(recorded)

    def touch(self, conversation: ConversationId) -> None:
        """Note that a conversation was put to another place in a list."""
        for watch in self._watches:
            if conversation in watch.known:
                watch.changed.add(conversation)
                watch.woken.set()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for watch in self._watches:
            watch.woken.set()

    async def of(self, principal: PrincipalId) -> AsyncGenerator[Sequence[ConversationView], None]:
        """Tell the person's newest conversations, and then those that change. Yields an empty list
        if nothing happened for a while."""
        with self._watching(principal) as watch:
            while not self._is_closed:
                watch.woken.clear()
                news = watch.learn(await self._read(watch))
                if news:
                    yield news
                if not await self._is_woken(watch):
                    watch.is_behind = self._is_shared
                    yield []

    async def _read(self, watch: _ListWatch) -> list[ConversationView]:
        """Read what may have changed."""
        changed, watch.changed = watch.changed, set()
        is_behind, watch.is_behind = watch.is_behind, False
        views = []
        if is_behind:
            views = await self._conversations.recent(principal=watch.principal, page=PAGE)
        for conversation in changed - {view.id for view in views}:
            try:
                views.append((await self._conversations.snapshot(conversation)).view)
            except NotFound:
                continue
        return views

    async def _is_woken(self, watch: _ListWatch) -> bool:
        """Wait for something that may be news, and for what comes with it."""
        try:
            async with asyncio.timeout(QUIET_S):
                await watch.woken.wait()
        except TimeoutError:
            return False
        if not self._is_closed:
            await self._rest()
        return True

    async def _rest(self) -> None:
        """Leave time for what comes together with the event that woke the watcher."""
        loop = asyncio.get_running_loop()
        rested = loop.create_future()
        timer = loop.call_later(REST_S, rested.set_result, None)
        try:
            await rested
        finally:
            timer.cancel()

    @contextmanager
    def _watching(self, principal: PrincipalId) -> Iterator[_ListWatch]:
        watch = _ListWatch(principal)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
