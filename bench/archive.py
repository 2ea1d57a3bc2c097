"""Writes a large database, as years of conversations leave it, straight into the file.

Each conversation has one session of ten exchanges. Every second conversation is on a platform, so
its replies went through the outbox. The rows are the same as the store itself would have written:
the bench has the checker verify them.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.delivery import REPLY
from perdure.domain.ids import MessageId, NodeId, PrincipalId, TurnId
from perdure.domain.journal.codec import encode
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.session_events import SessionOpened
from perdure.domain.outcomes import Outcome
from perdure.store.drivers.dialect import words_of
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store

FILE = "perdure.db"
TURNS_A_SESSION = 10
EVENTS_A_TURN = 4
EVENTS_A_SESSION = 1 + EVENTS_A_TURN * TURNS_A_SESSION
TEXT = (
    "It rained in the night, and the path along the river was under water by the morning. We went "
    "back over the hill instead, which took until noon, and there was nobody at the mill when we "
    "came. How do we get word to the others that number {} is late?"
)
ID_DIGITS = 26  # as long as the store's own
Value = str | int | None

_IN_A_HURRY = """
    PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; PRAGMA cache_size = -400000"""
_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
        session_id, generation, is_listed, created_at, active_at)
    VALUES (?, ?, 'bench', ?, '', '', ?, ?, 1, 1, ?, ?)"""
_SESSION = """
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, head_turn,
        kind, view, strikes, title, opened_at, active_at)
    VALUES (?, ?, ?, 'open', ?, ?, ?, '', '', 0, '', ?, ?)"""
_TURN = """
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, outcome, reason, detail,
        attempts, queued_seq, queued_at, started_at, settled_at, alive_at, context_tokens,
        principal_id)
    VALUES (?, ?, ?, ?, 'message', 'settled', 'done', 'stop', '', 1, ?, ?, ?, ?, ?, 2000, ?)"""
_EVENT = """
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = """
    INSERT INTO inbox (external_id, adapter, account, kind, digest, conversation_id, session_id,
        turn_id, message_id, principal_id, at)
    VALUES (?, ?, 'bench', 'message', ?, ?, ?, ?, ?, ?, ?)"""
_PART = """
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, turn_id, adapter,
        place_in_line, step, text, state, attempts, due_at, receipt, error, created_at, changed_at)
    VALUES (?, ?, 0, ?, ?, ?, 'bench', ?, 'post', ?, 'sent', 1, ?, 'r', '', ?, ?)"""
_SEARCHABLE = "INSERT INTO searchable (session_id, seq, message_id, role) VALUES (?, ?, ?, ?)"
_WORDS = "INSERT INTO search_index (rowid, scope, text) VALUES (?, ?, ?)"


async def fill(folder: Path, sessions: int) -> None:
    """Create a database with this number of sessions in a folder that does not exist yet."""
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True)
    store = Store(
        SqliteDriver(folder / FILE),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        media=folder / "media",
    )
    await store.open()
    principal = (await store.principals.ensure("bench", role="member")).id
    await store.close()
    await asyncio.to_thread(_fill_rows, folder / FILE, sessions, principal)


def _fill_rows(path: Path, count: int, principal: PrincipalId) -> None:
    talks = [Talk(number, principal) for number in range(1, count + 1)]
    with_parts = [talk for talk in talks if talk.is_on_platform]
    database = apsw.Connection(str(path))
    database.execute(_IN_A_HURRY)
    with database:
        database.executemany(_CONVERSATION, (talk.conversation_row() for talk in talks))
        database.executemany(_SESSION, (talk.session_row() for talk in talks))
        database.executemany(_TURN, (row for talk in talks for row in talk.turn_rows()))
        database.executemany(_EVENT, (row for talk in talks for row in talk.event_rows()))
        database.executemany(_UPDATE, (row for talk in talks for row in talk.update_rows()))
        database.executemany(_PART, (row for talk in with_parts for row in talk.part_rows()))
        database.executemany(_SEARCHABLE, (row for talk in talks for row in talk.searchable()))
        words = words_of(TEXT)
        scope = principal.replace("_", "")
        number_of = range(1, 2 * TURNS_A_SESSION * count + 1)
        database.executemany(_WORDS, ((number, scope, f"{words} {number}") for number in number_of))
    database.execute("PRAGMA journal_mode = WAL")
    database.close()


class Talk(NamedTuple):
    """Holds one conversation with its session, and makes the rows of both."""

    number: int
    principal: PrincipalId

    @property
    def is_on_platform(self) -> bool:
        return self.number % 2 == 0

    def id(self, prefix: str, number: int = 0) -> str:
        return f"{prefix}_{self.number * 100 + number:0{ID_DIGITS}}"

    def turn(self, number: int) -> TurnId:
        return TurnId(self.id("trn", number))

    def events(self) -> Iterator[AnyEvent]:
        yield SessionOpened(by=self.principal, reason="first message")
        for number in range(1, TURNS_A_SESSION + 1):
            turn = self.turn(number)
            yield TurnQueued(turn=turn, message=self.message(number), text=self.text(number))
            parent = self.turn(number - 1) if number > 1 else None
            yield TurnStarted(turn=turn, attempt=1, parent=parent, node=NodeId("nod_bench"))
            yield AssistantSaid(
                turn=turn, attempt=1, message=self.reply(number), text=self.text(number)
            )
            usage = Usage(input_tokens=2000, output_tokens=70, model_calls=1)
            yield TurnSettled(
                turn=turn, outcome=Outcome.DONE, reason="stop", agent="bench", usage=usage
            )

    def text(self, number: int) -> str:
        return TEXT.format(self.number * 100 + number)

    def message(self, number: int) -> MessageId:
        return MessageId(self.id("msg", number))

    def reply(self, number: int) -> MessageId:
        return MessageId(self.id("msg", number + 50))

    def conversation_row(self) -> tuple[Value, ...]:
        adapter = "bench" if self.is_on_platform else "http"
        at = (self.number, self.number)
        return self.id("cnv"), adapter, f"room-{self.number}", self.principal, self.id("ses"), *at

    def session_row(self) -> tuple[Value, ...]:
        head = self.turn(TURNS_A_SESSION)
        numbers = (2 * TURNS_A_SESSION, EVENTS_A_SESSION)
        at = (self.number, self.number)
        return self.id("ses"), self.id("cnv"), self.principal, *numbers, head, *at

    def turn_rows(self) -> Iterator[tuple[Value, ...]]:
        for number in range(1, TURNS_A_SESSION + 1):
            parent = self.turn(number - 1) if number > 1 else None
            queued_seq = 2 + EVENTS_A_TURN * (number - 1)
            at = (self.number,) * 4
            message = self.message(number)
            ids = (self.turn(number), self.id("ses"), parent, message)
            yield *ids, queued_seq, *at, self.principal

    def event_rows(self) -> Iterator[tuple[Value, ...]]:
        for seq, event in enumerate(self.events(), 1):
            kind, body = encode(event)
            turn, message = getattr(event, "turn", None), getattr(event, "message", None)
            yield self.id("ses"), seq, turn, message, kind, self.number, body

    def update_rows(self) -> Iterator[tuple[Value, ...]]:
        adapter = "bench" if self.is_on_platform else "http"
        for number in range(1, TURNS_A_SESSION + 1):
            external = f"{self.number * 7919 % 1_000_003}-{number}"  # in no order, as in life
            where = (self.id("cnv"), self.id("ses"))
            said = (self.turn(number), self.message(number), self.principal, self.number)
            yield external, adapter, "0" * 64, *where, *said

    def part_rows(self) -> Iterator[tuple[Value, ...]]:
        for number in range(1, TURNS_A_SESSION + 1):
            turn = self.turn(number)
            ids = (self.id("prt", number), f"{turn}{REPLY}", self.id("cnv"), self.id("ses"), turn)
            yield *ids, number, self.text(number), self.number, self.number, self.number

    def searchable(self) -> Iterator[tuple[Value, ...]]:
        for number in range(1, TURNS_A_SESSION + 1):
            first = 2 + EVENTS_A_TURN * (number - 1)
            yield self.id("ses"), first, self.message(number), "user"
            yield self.id("ses"), first + 2, self.reply(number), "assistant"
