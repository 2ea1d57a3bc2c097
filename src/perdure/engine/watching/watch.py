"""Tells a watcher what the store holds up to now and then what is published, without a gap.

A watcher first subscribes and then reads the store, so that what becomes durable meanwhile is seen
at least once; the journal's gapless numbers and the offsets of text make it exactly once. If the
numbers do not fit (the watcher was too slow, or another node ran the turn), it reads the store
again from its position. It does the same when the conversation continues in another session: it is
told the rest of the session it watched, and every session that was the live one in between.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final

from perdure.domain.errors import NotFound, Transient
from perdure.domain.ids import CallId, ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import (
    AssistantSaid,
    Recorded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnSettled,
)
from perdure.domain.journal.open_calls import OpenCalls
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    WaitEnded,
    WorkDelegated,
)
from perdure.domain.turn.standing import SessionStanding
from perdure.domain.turn.standing import after as standing_after
from perdure.domain.turn.watching import (
    ALL_SUBS,
    Delta,
    JournalStretch,
    Position,
    Told,
    ToolNews,
    ToolProgress,
    has_seen_state,
    missed_in,
    state_of,
    told_of,
)
from perdure.engine.watching.feed import Feed, FeedItem, Published, Subscription
from perdure.engine.watching.lists import LiveLists
from perdure.ports.gateway import Ended, Grown
from perdure.ports.records.history import Archive, Conversations, ConversationView, Snapshot

JOURNAL_PAGE = 500
MOVES_PAGE = 100
# A watcher that was told nothing for so long is told that, so that its connection stays alive.
QUIET_S = 15.0
# The fractional parts of its multiples are spread evenly, however many there are.
_GOLDEN: Final = (5**0.5 - 1) / 2
LEFT = (
    "the gateway is stopping before the answer is whole; the message is kept, and is answered "
    "after the restart: repeat the call with the same Idempotency-Key to get that answer"
)


class LiveWatchers:
    """Implements `Watchers`."""

    def __init__(
        self, feed: Feed, conversations: Conversations, archive: Archive, *, is_shared: bool = False
    ) -> None:
        """Begin without watchers. `is_shared`: other nodes write to the store too, and their feeds
        are not heard here."""
        self._is_shared = is_shared
        self._numbers = count()
        self._feed = feed
        self._conversations = conversations
        self._archive = archive
        self._open: set[Subscription] = set()
        self._is_closed = False
        self._lists = LiveLists(conversations, is_shared=is_shared)
        feed.observe(self._lists.observe)

    def close(self) -> None:
        """End the streams of all watchers."""
        self._is_closed = True
        self._lists.close()
        for subscription in self._open:
            subscription.nudge()

    def lists(self, principal: PrincipalId) -> AsyncGenerator[Sequence[ConversationView], None]:
        """Tell the person's newest conversations, and then those that change."""
        return self._lists.of(principal)

    def touched(self, conversation: ConversationId) -> None:
        """Note that a conversation was put to another place in a list."""
        self._lists.touch(conversation)

    @contextmanager
    def _subscribed(
        self, session: SessionId, *conversations: ConversationId, looks_on: bool = False
    ) -> Iterator[Subscription]:
        subscription = self._feed.subscribe(session, *conversations, looks_on=looks_on)
        self._open.add(subscription)
        try:
            yield subscription
        finally:
            self._open.discard(subscription)
            self._feed.unsubscribe(subscription)

    async def conversation(
        self, conversation: ConversationId, *, after: Position | None
    ) -> AsyncGenerator[Sequence[Told], None]:
        """Tell everything in a conversation after a position. Yields an empty list if nothing
        happened for a while."""
        position = after
        calls = OpenCalls()
        while not self._is_closed:
            seen = (await self._conversations.snapshot(conversation)).view
            linked = (seen.linked,) if seen.linked else ()
            with self._subscribed(
                seen.standing.session, conversation, *linked, looks_on=True
            ) as subscription:
                # Read again after subscribing: what became durable before was not published here.
                snapshot = await self._conversations.snapshot(conversation)
                if snapshot.view.standing.session != seen.standing.session:
                    continue
                view = _ConversationWatch(snapshot, calls)
                async for told in self._catch_up(view, position):
                    position = told[-1][0]
                    yield told
                while not (subscription.is_behind or self._is_closed):
                    published = await subscription.next_published(QUIET_S)
                    told = self._heard(view, published, subscription)
                    if told:
                        position = told[-1][0]
                    if told or not published:
                        yield told

    def _heard(
        self, view: "_ConversationWatch", published: Sequence[Published], subscription: Subscription
    ) -> list[Told]:
        """Return what the published items mean, up to the first gap. At a gap the watcher falls
        behind, and reads the store."""
        told: list[Told] = []
        for each in published:
            if view.has_missed(each):
                subscription.fall_behind()
                break
            told += view.hear(each)
        return told

    async def _catch_up(
        self, view: "_ConversationWatch", seen: Position | None
    ) -> AsyncIterator[list[Told]]:
        """Yield from the store what happened since the position, then the present state and the
        running text, as far as the watcher does not know them."""
        offset = 0
        async for leg in self._way(view, seen if seen and view.has_reached(seen) else None):
            offset = leg.start.offset
            async for recorded in self._read(leg):
                news, offset = missed_in(leg, recorded, shown=offset, calls=view.calls)
                if news:
                    yield news
        now = Position(view.generation, view.seq, ALL_SUBS, offset)
        is_news = seen is None or not has_seen_state(seen, now)
        state: list[Told] = [(now, state_of(view.standing))] if is_news else []
        if present := state + view.begin_text(offset):
            yield present

    async def _way(
        self, view: "_ConversationWatch", seen: Position | None
    ) -> AsyncIterator[JournalStretch]:
        """Yield the stretches of journal from the position to the snapshot's end, through the
        sessions in between."""
        now = Position(view.generation, view.seq)
        at = seen or now
        while at.generation < view.generation:
            moves = await self._conversations.moves(
                view.id, after=at.generation, upto=view.generation, limit=MOVES_PAGE
            )
            for move in moves:
                yield JournalStretch(at, move.left, move.left_seq)
                at = Position(move.generation, move.seq)
            if not moves:
                at = now  # no move is stored, so the way is unknown: begin at the present
        yield JournalStretch(at, view.standing.session, view.seq)

    async def _read(self, leg: JournalStretch) -> AsyncIterator[Recorded]:
        """Yield the entries of a stretch, page by page. Begins with the entry that it starts in if
        the watcher may not have seen all news of that."""
        after = leg.start.seq - (leg.start.sub < ALL_SUBS)
        while after < leg.upto:
            limit = min(JOURNAL_PAGE, leg.upto - after)
            page = await self._archive.journal(leg.session, after=after, limit=limit)
            for recorded in page:
                yield recorded
            after = page[-1].seq if page else leg.upto

    async def turn(self, accepted: Accepted, *, is_fresh: bool) -> AsyncGenerator[Grown, None]:
        """Tell the growing reply of a turn, from its beginning to its end. Yields an empty `Grown`
        if nothing happened for a while, and when the turn begins or ends to wait for a person."""
        assert accepted.turn is not None
        with self._subscribed(accepted.session, accepted.conversation) as subscription:
            view = _TurnWatch(accepted.turn)
            view.is_sound = is_fresh
            was_waiting = False
            quiet_s = self._first_quiet_s()
            while view.ended is None:
                if not view.is_sound or subscription.is_behind:
                    subscription.is_behind = False
                    view.is_sound = True
                    text = await self._read_turn(view, accepted.conversation)
                elif items := await subscription.next(0 if self._is_closed else quiet_s):
                    text = "".join([view.take(item) for item in items])
                elif self._is_closed:
                    raise Transient(LEFT, code="interrupted")
                else:
                    # Nothing was published here. On a shared store another node may run the turn,
                    # so the store is read.
                    view.is_sound = not self._is_shared
                    quiet_s = QUIET_S
                    yield Grown(is_waiting=view.is_waiting)
                    continue
                has_turned = view.is_waiting != was_waiting
                if text or has_turned or view.ended:
                    was_waiting = view.is_waiting
                    yield Grown(text, view.ended, view.is_waiting)

    def _first_quiet_s(self) -> float:
        """Return how long a watcher waits for news the first time. It differs between watchers: on
        a shared store each of them reads the store afterwards, and those that came together must
        not all do so at once."""
        return QUIET_S * (1 + next(self._numbers) * _GOLDEN % 1) / 2

    async def _read_turn(self, view: "_TurnWatch", conversation: ConversationId) -> str:
        """Read a turn from the store. Returns the text that its watcher was not told yet."""
        exchange = await self._conversations.exchange(view.turn)
        if not exchange:
            raise NotFound(f"there is no turn {view.turn}")
        snapshot = await self._conversations.snapshot(conversation)
        running = snapshot.running
        is_ours = running is not None and running.turn == view.turn
        text = (running.message, running.text) if running and is_ours else None
        return view.reread(exchange, text)


class _ConversationWatch:
    """Holds what one watcher knows of a conversation's live session."""

    def __init__(self, snapshot: Snapshot, calls: OpenCalls) -> None:
        self.id = snapshot.view.id
        self.generation = snapshot.view.generation
        self.standing: SessionStanding = snapshot.view.standing
        self.seq = snapshot.last_seq
        # The watcher may come, or come back, after the message or the question that news refers to.
        calls.learn(snapshot.opened)
        self.calls = calls
        self._said = set(snapshot.said)
        self._running = snapshot.running
        self._message: MessageId | None = None
        self._length = 0

    def has_reached(self, seen: Position) -> bool:
        """Tell whether the snapshot has come as far as this position. If not, the position is from
        another copy of the database, and the watcher begins anew."""
        return (seen.generation, seen.seq) <= (self.generation, self.seq)

    def now(self) -> Position:
        """Return the watcher's position."""
        return Position(self.generation, self.seq, ALL_SUBS, self._length)

    def begin_text(self, offset: int) -> list[Told]:
        """Return the running message's text beyond what the watcher has."""
        running = self._running
        if running is None:
            return []
        self._message, self._length = running.message, len(running.text)
        rest = running.text[offset:]
        if not rest:
            return []
        delta = Delta(turn=running.turn, message=running.message, offset=offset, text=rest)
        return [(self.now(), delta)]

    def has_missed(self, published: Published) -> bool:
        """Tell whether an event before this one was not published here, so that the journal must be
        read."""
        item = published.item
        return isinstance(item, Recorded) and item.seq > self.seq + 1

    def hear(self, published: Published) -> list[Told]:
        """Return what an item means to this watcher. Watchers in the same state are told the same,
        so that is computed once and shared."""
        item = published.item
        assert item is not None, "only the beginning of a line is empty"
        stands = (
            self.generation, self.seq, self._message, self._length, self.standing,
            self._known(item),
        )  # fmt: skip
        meaning = published.meanings.get(stands)
        if meaning is None:
            told = self._take(item)
            meaning = (told, self.seq, self._message, self._length, self.standing)
            published.meanings[stands] = meaning
        else:
            told, self.seq, self._message, self._length, self.standing = meaning
            self._remember(item)
        return told

    def _known(self, item: FeedItem) -> str | bool:
        """Return what else an item's meaning depends on: whether its message is final already, or
        what is known of its call or question."""
        if isinstance(item, Delta):
            return item.message in self._said
        if isinstance(item, ToolProgress):
            return self.calls.name_of(item.call)
        match item.event:
            case ToolStarted(call=call) | ToolFinished(call=call) | WorkDelegated(call=call):
                return self.calls.name_of(call)
            case AnswerReceived(question=question):
                return self.calls.asked(question) is not None
            case _:
                return ""

    def _remember(self, item: FeedItem) -> None:
        """Apply an item's effects on this watcher that its shared meaning does not carry."""
        if isinstance(item, Recorded):
            if isinstance(item.event, AssistantSaid):
                self._said.add(item.event.message)
            self.calls.take(item.event)

    def _take(self, item: FeedItem) -> list[Told]:
        match item:
            case Delta():
                return self._take_delta(item)
            case ToolProgress(turn=turn, call=call, text=text):
                name = self.calls.name_of(call) or item.name
                news = ToolNews(turn=turn, call=call, name=name, state="progress", text=text)
                return [(self.now(), news)]
            case _:
                return self._take_fact(item)

    def _take_delta(self, delta: Delta) -> list[Told]:
        if delta.message in self._said:
            return []
        if delta.message != self._message:
            self._message, self._length = delta.message, 0
        new = delta.text[max(self._length - delta.offset, 0) :]
        if not new or delta.offset > self._length:
            return []
        told = Delta(turn=delta.turn, message=delta.message, offset=self._length, text=new)
        self._length += len(new)
        return [(self.now(), told)]

    def _take_fact(self, recorded: Recorded) -> list[Told]:
        if recorded.seq <= self.seq:
            return []
        self.seq = recorded.seq
        if isinstance(recorded.event, AssistantSaid):
            self._said.add(recorded.event.message)
            if recorded.event.message != self._message:
                self._length = 0
        told, self._length = told_of(
            recorded, generation=self.generation, shown=self._length, calls=self.calls
        )
        before, self.standing = self.standing, standing_after(self.standing, recorded.event)
        if self.standing != before:
            told.append((self.now(), state_of(self.standing)))
        return told


class _TurnWatch:
    """Holds one turn's reply as it grows: its messages in order, joined by a blank line. `is_sound`
    is false if the store must be read; `is_waiting` is true while people are asked."""

    def __init__(self, turn: TurnId) -> None:
        self.turn = turn
        self.ended: Ended | None = None
        self.is_sound = True
        self.is_waiting = False
        self._texts: dict[str, str] = {}
        self._told = 0
        self._open_calls: dict[CallId, ToolCall] = {}

    def reread(self, events: Sequence[Recorded], running: tuple[str, str] | None) -> str:
        """Replace the texts by those of the store. Returns what was not told yet."""
        self._texts = {}
        for recorded in events:
            self._take_fact(recorded)
        if running is not None and running[0] not in self._texts:
            self._texts[running[0]] = running[1]
        return self._untold()

    def take(self, item: FeedItem) -> str:
        """Apply a published item. Returns the text that is new."""
        if item.turn != self.turn:
            return ""
        if isinstance(item, ToolProgress):
            return ""
        if isinstance(item, Delta):
            return self._take_delta(item)
        self._take_fact(item)
        return self._untold()

    def _take_fact(self, recorded: Recorded) -> None:
        match recorded.event:
            case AssistantSaid(message=message, text=text, calls=calls):
                self._texts[message] = text
                self._open_calls.update({call.id: call for call in calls})
            case ToolFinished(call=call):
                self._open_calls.pop(call, None)
            case AnswerAwaited():
                self.is_waiting = True
            case WaitEnded():
                self.is_waiting = False
            case TurnSettled() as settled:
                self._end(settled)
            case _:
                pass

    def _take_delta(self, delta: Delta) -> str:
        text = self._texts.get(delta.message, "")
        if delta.offset > len(text):
            self.is_sound = False
            return ""
        new = delta.text[len(text) - delta.offset :]
        if not new:
            return ""
        self._texts[delta.message] = text + new
        if text.strip():  # the common case: one more piece of the message that grows
            self._told += len(new)
            return new
        return self._untold()

    def _untold(self) -> str:
        reply = "\n\n".join(text for text in self._texts.values() if text.strip())
        new = reply[self._told :]
        self._told = max(self._told, len(reply))
        return new

    def _end(self, settled: TurnSettled) -> None:
        self.is_waiting = False
        self.ended = Ended(
            outcome=settled.outcome,
            reason=settled.reason,
            detail=settled.detail,
            usage=settled.usage,
            calls=tuple(self._open_calls.values()),
            reach=settled.reach,
        )
