"""Checks that steering a long session costs as much as steering a short one.

A session of a million messages and one of a thousand are each in a database of their own. Both are
sent to the model from their newest summary on, as compaction leaves them. What people do to them is
timed side by side. Nothing waits for the disk, so that waiting does not hide what reading costs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import apsw

from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.codec import encode
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.session_events import Compacted, SessionOpened
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.stores import reply_id

FILE = "perdure.db"
MESSAGES = {"short": 1_000, "long": 1_000_000}
SUMMARY_EVERY = 500  # turns
SINCE_SUMMARY = 20  # turns since the newest summary, when timing begins
ROUNDS = 101
TURNS_A_ROUND = 4  # so that there is something to compact again
LIMIT = 1.5
EVENTS_A_TURN = 4
CONTEXT_TOKENS = 20_000
T = TypeVar("T")

_IN_A_HURRY = """
    PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; PRAGMA cache_size = -200000"""
_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
        session_id, generation, is_listed, created_at, active_at)
    VALUES (?, 'bench', 'bench', ?, '', '', ?, ?, 1, 1, 0, 0)"""
_SESSION = """
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, head_turn,
        kind, view, strikes, title, parent_id, opened_at, active_at)
    VALUES (?, ?, ?, 'open', ?, ?, ?, ?, '', 0, '', ?, ?, 0)"""
_TURN = """
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, outcome, reason, detail,
        attempts, queued_seq, queued_at, started_at, settled_at, alive_at, context_tokens,
        summary_id, principal_id)
    VALUES (?, ?, ?, ?, ?, 'settled', 'done', 'stop', '', 1, ?, 0, 0, 0, 0, ?, ?, ?)"""
_EVENT = """
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES (?, ?, ?, ?, ?, 0, ?)"""


async def measure(folder: Path) -> Findings:
    begun = time.perf_counter()
    for name, messages in MESSAGES.items():
        await _past(folder / name, messages // 2)
    filled_s = time.perf_counter() - begun
    async with AsyncExitStack() as stores:
        people = {name: await _person(stores, folder / name) for name in MESSAGES}
        for _ in range(ROUNDS):
            for person in people.values():
                await person.steer()
    facts = [f"{sum(MESSAGES.values()):,} messages were written in {filled_s:.1f} s"]
    gates = []
    for what, short_s in people["short"].times.items():
        long_s = people["long"].times[what]
        facts.append(f"{what}: {median(short_s) * 1e3:.2f} ms, {median(long_s) * 1e3:.2f} ms")
        gates.append(
            Gate(
                name=f"{what} after {MESSAGES['long']:,} messages against {MESSAGES['short']:,}",
                measured=median(long_s) / median(short_s),
                limit=LIMIT,
            )
        )
    return Findings(part="steering", facts=facts, gates=gates)


async def _past(folder: Path, turns: int) -> None:
    """Create a database that holds one session with this number of turns."""
    await asyncio.to_thread(folder.mkdir)
    async with _opened(folder) as store:
        principal = (await store.principals.ensure("bench", role="member")).id
    past = Past(folder.name, turns, principal)
    await asyncio.to_thread(_fill, folder / FILE, past)


async def _person(stores: AsyncExitStack, folder: Path) -> "Person":
    store = await stores.enter_async_context(_opened(folder))
    await store.nodes.join(name="bench")
    principal = (await store.principals.ensure("bench", role="member")).id
    if folder.name == "short":
        broken = violations(await store.diagnostics.record(SessionId("ses_short")))
        assert not broken, f"the rows are not as the store would have left them: {broken}"
    return Person(store, principal, folder.name)


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Store]:
    store = Store(
        SqliteDriver(folder / FILE, synchronous="OFF"),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        media=folder / "media",
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Person:
    """Steers one of the sessions, and records how long each action took."""

    def __init__(self, store: Store, principal: PrincipalId, name: str) -> None:
        self._store = store
        self._principal = principal
        self._name = name
        self._said = 0
        self.times: dict[str, list[float]] = {}

    async def steer(self) -> None:
        for _ in range(TURNS_A_ROUND):
            await self._timed("the next turn", self._turn)
        await self._timed("/undo", lambda: self._say("/undo"))
        await self._timed("/redo", lambda: self._say("/redo"))
        await self._timed("/compact", lambda: self._say("/compact"))
        (errand,) = await self._store.turns.claim(limit=2)
        settled = await self._timed("applying its summary", lambda: self._settle(errand))
        assert any(isinstance(each.event, Compacted) for each in settled)

    async def _timed(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        begun = time.perf_counter()
        result = await work()
        self.times.setdefault(what, []).append(time.perf_counter() - begun)
        return result

    async def _say(self, text: str) -> Accepted:
        self._said += 1
        update = Update(
            address=Address(adapter="bench", account="bench", place=self._name),
            external_id=f"{self._name} {self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self._principal,
            text=text,
        )
        return await self._store.inbox.accept(update, queue_max=9)

    async def _turn(self) -> None:
        await self._say("And what comes then?")
        (claimed,) = await self._store.turns.claim(limit=2)
        assert claimed.parent is not None
        told = await self._store.conversations.window(claimed.parent, limit=1_000_000)
        assert len(told) <= SINCE_SUMMARY + TURNS_A_ROUND + 1, "the window begins at a summary"
        await self._settle(claimed, parts=("Then comes what comes.",))

    async def _settle(self, claimed: Claimed, parts: tuple[str, ...] = ()) -> list[Recorded]:
        settlement = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            agent="bench",
            message=reply_id(claimed.lease),
            text="Then comes what comes.",
            parts=parts,
            context_tokens=CONTEXT_TOKENS,
        )
        return (await self._store.turns.settle(claimed.lease, settlement)).recorded


class Past(NamedTuple):
    """Describes a session as many turns with compactions leave it, and the errands that wrote its
    summaries."""

    name: str
    turns: int
    principal: PrincipalId

    @property
    def session(self) -> SessionId:
        return SessionId(f"ses_{self.name}")

    @property
    def conversation(self) -> str:
        return f"cnv_{self.name}"

    @property
    def summaries(self) -> range:
        """Return the numbers of the turns that a summary goes up to."""
        newest = self.turns - SINCE_SUMMARY
        return range(newest % SUMMARY_EVERY or SUMMARY_EVERY, newest + 1, SUMMARY_EVERY)

    def has_summary(self, number: int) -> bool:
        return number in self.summaries

    def summaries_before(self, number: int) -> int:
        first = self.summaries.start
        return 0 if number <= first else (number - first - 1) // SUMMARY_EVERY + 1

    def turn(self, number: int) -> TurnId:
        return TurnId(f"trn_{self.name}_{number:09}")

    def summary(self, number: int) -> MessageId:
        return MessageId(f"msg_{self.name}_summary_{number:09}")

    def errand(self, number: int) -> TurnId:
        return TurnId(f"trn_{self.name}_errand_{number:09}")

    def errand_session(self, number: int) -> SessionId:
        return SessionId(f"ses_{self.name}_errand_{number:09}")

    def events(self) -> Iterator[AnyEvent]:
        yield SessionOpened(by=self.principal, reason="first message")
        for number in range(1, self.turns + 1):
            turn, parent = self.turn(number), self.turn(number - 1) if number > 1 else None
            yield from _exchange(turn, parent, f"What about number {number}?", TurnKind.MESSAGE)
            if self.has_summary(number):
                yield self._compacted(number)

    def errand_events(self, number: int) -> Iterator[AnyEvent]:
        upto, kind = self.turn(number), TurnKind.SUMMARY
        yield SessionOpened(
            by=self.principal, reason="automatic", parent=self.session, head=upto, kind=kind
        )
        yield from _exchange(self.errand(number), upto, "", kind)

    def _compacted(self, number: int) -> Compacted:
        return Compacted(
            upto=self.turn(number),
            message=self.summary(number),
            summary=f"They have counted to {number}.",
            turns=SUMMARY_EVERY,
            tokens_before=CONTEXT_TOKENS,
            tokens_after=80,
            errand=self.errand(number),
        )


def _exchange(turn: TurnId, parent: TurnId | None, text: str, kind: TurnKind) -> Iterator[AnyEvent]:
    reply = MessageId(f"msg_{turn}_1")
    yield TurnQueued(turn=turn, message=MessageId(f"msg_{turn}"), text=text, kind=kind)
    yield TurnStarted(turn=turn, attempt=1, parent=parent, node=NodeId("nod_bench"))
    yield AssistantSaid(turn=turn, attempt=1, message=reply, text="It comes after the last.")
    yield TurnSettled(turn=turn, outcome=Outcome.DONE, reason="stop", agent="bench")


def _fill(path: Path, past: Past) -> None:
    database = apsw.Connection(str(path))
    database.execute(_IN_A_HURRY)
    with database:
        database.execute(
            _CONVERSATION, (past.conversation, past.name, past.principal, past.session)
        )
        database.executemany(_SESSION, _sessions(past))
        database.executemany(_TURN, _turns(past))
        database.executemany(_EVENT, _rows(past.session, past.events()))
        for number in past.summaries:
            errand = past.errand_session(number)
            database.executemany(_EVENT, _rows(errand, past.errand_events(number)))
    database.close()


Value = str | int | None


def _sessions(past: Past) -> Iterator[tuple[Value, ...]]:
    """Yield the session in which people talk, and one session for each summary that was written."""
    head, seq = past.turn(past.turns), 1 + EVENTS_A_TURN * past.turns + len(past.summaries)
    conversation, principal = past.conversation, past.principal
    yield past.session, conversation, principal, 1, seq, head, "", None, 0
    for number in past.summaries:
        session, turn, seq = past.errand_session(number), past.errand(number), 1 + EVENTS_A_TURN
        kind = TurnKind.SUMMARY.value
        yield session, conversation, principal, 1, seq, turn, kind, past.session, number


def _turns(past: Past) -> Iterator[tuple[Value, ...]]:
    by = past.principal
    for number in range(1, past.turns + 1):
        turn, parent = past.turn(number), past.turn(number - 1) if number > 1 else None
        summary = past.summary(number) if past.has_summary(number) else None
        queued_seq = 2 + EVENTS_A_TURN * (number - 1) + past.summaries_before(number)
        message = f"msg_{turn}"
        place = (queued_seq, CONTEXT_TOKENS, summary)
        yield turn, past.session, parent, message, "message", *place, by
        if summary:
            turn, session = past.errand(number), past.errand_session(number)
            message, kind = f"msg_{turn}", TurnKind.SUMMARY.value
            yield turn, session, past.turn(number), message, kind, 2, 0, None, by


def _rows(session: SessionId, events: Iterator[AnyEvent]) -> Iterator[tuple[Value, ...]]:
    for seq, event in enumerate(events, 1):
        kind, body = encode(event)
        turn, message = getattr(event, "turn", None), getattr(event, "message", None)
        yield session, seq, turn, message, kind, body
