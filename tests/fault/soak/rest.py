"""Checks what must be true of the stored rows once nobody writes any more."""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import msgspec
from tests.fault.soak.persistent_client import Acknowledged

from perdure.testkit.processes.process import GatewayProcess

VERIFY_S = 300.0

# Rows of unfinished work. At rest there are none.
UNDER_WAY = {
    "turns": "SELECT count(*) FROM turns WHERE state <> 'settled'",
    "parts": "SELECT count(*) FROM outbox WHERE state IN ('pending', 'attempting')",
    "fetches": "SELECT count(*) FROM fetches WHERE state IN ('pending', 'attempting')",
    "partials": "SELECT count(*) FROM partials",
    "reservations": "SELECT count(*) FROM reservations",
    "held sessions": "SELECT count(*) FROM sessions WHERE hold_until IS NOT NULL",
}
KEPT = {
    "sessions": "SELECT count(*) FROM sessions",
    "turns": "SELECT count(*) FROM turns",
    "events": "SELECT count(*) FROM journal",
    "letters": "SELECT count(*) FROM letters",
    "not yet in the index": "SELECT count(*) FROM unindexed",
}


class Database(Protocol):
    """Reads a gateway's database from outside, while the gateway runs or after it has ended."""

    async def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    async def size_mb(self) -> float: ...


class SqliteFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        address = f"file:{self._path}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as connection:
            return connection.execute(sql).fetchall()

    async def size_mb(self) -> float:
        beside = self._path.parent.glob(self._path.name + "*")
        return sum(path.stat().st_size for path in beside) / 1e6


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = url

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self._url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def size_mb(self) -> float:
        ((size,),) = await self.rows("SELECT pg_database_size(current_database())")
        return float(size) / 1e6


async def verify(gateway: GatewayProcess) -> str:
    """Run `perdure verify` on the home of a gateway, which may be running. Returns what it found
    broken."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "--home", str(gateway.home), "verify"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(VERIFY_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"verify did not end in {VERIFY_S:g} s"
    text = out.decode().strip()
    return "" if process.returncode == 0 and text.endswith("all sound") else text


async def counted(database: Database, queries: dict[str, str]) -> dict[str, int]:
    return {name: int((await database.rows(sql))[0][0]) for name, sql in queries.items()}


async def outcomes(database: Database) -> dict[str, int]:
    """Count the turns by how they ended."""
    sql = "SELECT outcome, count(*) FROM turns GROUP BY outcome ORDER BY 2 DESC"
    return {str(outcome): int(number) for outcome, number in await database.rows(sql)}


async def answer_times_s(database: Database) -> list[float]:
    """Return how long after its message each turn ended, the shortest time first."""
    sql = "SELECT settled_at - queued_at FROM turns WHERE settled_at IS NOT NULL ORDER BY 1"
    return [took_ms / 1000 for (took_ms,) in await database.rows(sql)]


async def part_states(database: Database) -> dict[str, int]:
    sql = "SELECT state, count(*) FROM outbox GROUP BY state ORDER BY 2 DESC"
    return {str(state): int(number) for state, number in await database.rows(sql)}


async def troubles(database: Database) -> int:
    """Count what operators may want to read about: turns that did not end well, and attempts that
    were cut short."""
    turns = await database.rows(
        "SELECT count(*) FROM turns WHERE outcome NOT IN ('done', 'stopped', 'superseded')"
    )
    attempts = await database.rows(
        "SELECT count(*) FROM journal WHERE kind = 'attempt_interrupted'"
    )
    return int(turns[0][0]) + int(attempts[0][0])


class Posted(msgspec.Struct, frozen=True):
    """Holds what the outbox says of a platform: the receipts of all messages, the receipts of
    messages that were not deleted again, and how many more messages may have arrived without a
    receipt."""

    receipts: set[str]
    standing: set[str]
    unknown: int


async def read_posted(database: Database) -> Posted:
    sent = "SELECT receipt FROM outbox WHERE step = 'post' AND state = 'sent'"
    taken_away = "SELECT target FROM outbox WHERE step = 'delete' AND target IS NOT NULL"
    receipts = await database.rows(sent)
    standing = await database.rows(f"{sent} AND id NOT IN ({taken_away})")
    unknown = await database.rows("SELECT count(*) FROM outbox WHERE state = 'unknown'")
    return Posted(
        {receipt for (receipt,) in receipts},
        {receipt for (receipt,) in standing},
        int(unknown[0][0]),
    )


class Stored(msgspec.Struct, frozen=True):
    """Holds the rows that acknowledgements are compared with."""

    inbox: dict[tuple[str, str, str], tuple[str, str | None]]
    settled: set[str]
    begun: dict[str, set[str]]
    said: dict[str, str]


async def read_stored(database: Database) -> Stored:
    """Read what came in, how it ended, and what was answered.

    `begun` holds for each message the turns that asked it, and those it was handed to. A turn that
    asks the same message again, as a retry does, has an `origin` and is left out.
    """
    inbox = {
        (adapter, external_id, kind): (message, turn)
        for adapter, external_id, kind, message, turn in await database.rows(
            "SELECT adapter, external_id, kind, message_id, turn_id FROM inbox"
        )
    }
    begun: dict[str, set[str]] = {}
    said: dict[str, str] = {}
    for kind, body in await database.rows(
        "SELECT kind, body FROM journal WHERE kind IN ('turn_queued', 'steer_taken',"
        " 'message_joined', 'assistant_said')"
    ):
        event = msgspec.json.decode(body)
        if kind == "assistant_said":
            said[event["message"]] = event["text"]
        elif not event.get("origin"):
            begun.setdefault(event["message"], set()).add(event["turn"])
    settled = await database.rows("SELECT id FROM turns WHERE state = 'settled'")
    return Stored(inbox, {turn for (turn,) in settled}, begun, said)


def broken_promises(acknowledged: Sequence[Acknowledged], stored: Stored) -> list[str]:
    """Name each acknowledged message that is lost, was taken twice, or has no settled turn."""
    found: list[str] = []
    for each in acknowledged:
        rows = [
            stored.inbox[key]
            for kind in ("message", "call")
            if (key := ("http", each.external_id, kind)) in stored.inbox
        ]
        if len(rows) != 1:
            found.append(f"{each} has {len(rows)} rows in the inbox")
            continue
        message, turn = rows[0]
        if each.message not in ("", message) or (each.turn != turn and not each.is_steer):
            found.append(f"{each} became {rows[0]}")
        if turn and turn not in stored.settled:
            found.append(f"{each} has no settled turn: {turn}")
    for message, turns in stored.begun.items():
        if len(turns) != 1:
            found.append(f"{message} was asked in {len(turns)} turns: {turns}")
    return found
