"""Measures what a start costs after a crash: finding the interrupted turns, and resuming them.

Finding is measured among a million sessions, whose rows are written straight into the file. For
resuming, a gateway is killed while a thousand real turns wait for the model, and timed until the
model has received all of them again.
"""

import asyncio
import time
from pathlib import Path
from statistics import median

import aiohttp
import apsw

from bench.flight import _allow_files
from bench.processes import _furnish, environment
from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.turn.recovery import Policy
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.models.model_script import hang
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.process import GatewayProcess

SESSIONS = 1_000_000
TRIES = 21
TURNS = 1_000
STARTS = 3
NUMBERS = f"""
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT {SESSIONS})
"""
MILLION = (
    f"""INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
            session_id, generation, is_listed, created_at, active_at)
        {NUMBERS} SELECT 'cnv_' || n, 'http', 'bench', 'room' || n, '', '', $1, 'ses_' || n, 1, 1,
            n, n FROM numbers""",
    f"""INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, head_turn,
            kind, strikes, title, opened_at, active_at)
        {NUMBERS} SELECT 'ses_' || n, 'cnv_' || n, $1, 'open', 2, 4, 'trn_' || n, '', 0, '', n, n
        FROM numbers""",
    f"""INSERT INTO turns (id, session_id, message_id, kind, state, outcome, reason, detail,
            attempts, queued_seq, queued_at, started_at, settled_at, alive_at, principal_id)
        {NUMBERS} SELECT 'trn_' || n, 'ses_' || n, 'msg_' || n, 'message', 'settled', 'done',
            'stop', '', 1, 2, n, n, n, n, $1 FROM numbers""",
)


async def measure(folder: Path) -> Findings:
    finding_ms = await _finding_ms(folder / "million")
    # Each start has a home of its own: turns that crashed twice would be resumed one by one.
    starts = [await _resuming_s(folder / f"home-{number}") for number in range(STARTS)]
    resumed_s = median(last_s for _, last_s in starts)
    range_ms = f"{min(finding_ms):.2f} to {max(finding_ms):.2f} ms"
    facts = [
        f"looking for interrupted turns among {SESSIONS:,} sessions took {range_ms}",
        *(
            f"{TURNS:,} turns: ready after {ready_s:.2f} s, all at the model after {last_s:.2f} s"
            for ready_s, last_s in starts
        ),
    ]
    gates = [
        Gate(
            name=f"finding interrupted turns among {SESSIONS:,} sessions",
            measured=median(finding_ms),
            limit=5,
            unit="ms",
        ),
        Gate(
            name=f"{TURNS:,} interrupted turns resumed after the start of the process",
            measured=resumed_s,
            limit=3,
            unit="s",
        ),
    ]
    return Findings(part="recovery", facts=facts, gates=gates)


async def _finding_ms(folder: Path) -> list[float]:
    """Measure both searches that a start makes before it resumes anything, on a newly opened
    file."""
    await _fill(folder)
    times_ms = []
    for _ in range(TRIES):
        store = await _opened(folder)
        await store.nodes.join(name="bench")
        begun = time.perf_counter()
        ended = await store.nodes.reap(attempts_max=3, limit=200)
        resumed = await store.nodes.resume(Policy(), limit=200)
        times_ms.append((time.perf_counter() - begun) * 1e3)
        await store.close()
        assert not ended, "nobody left anything behind"
        assert not resumed.recorded, "nobody left anything behind"
    return times_ms


async def _opened(folder: Path) -> Store:
    store = Store(
        SqliteDriver(folder / "perdure.db"),
        clock=SystemClock(),
        entropy=SystemEntropy(),
        media=folder / "media",
    )
    await store.open()
    return store


async def _fill(folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir)
    store = await _opened(folder)
    principal = (await store.principals.ensure("bench", role="member")).id
    await store.close()
    await asyncio.to_thread(_fill_rows, folder / "perdure.db", principal)


def _fill_rows(path: Path, principal: str) -> None:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA synchronous = OFF")
    with database:
        for statement in MILLION:
            database.execute(statement, (principal,))
    database.close()


async def _resuming_s(home: Path) -> tuple[float, float]:
    """Return the seconds from the start of the process until it is ready, and until the last model
    call has begun."""
    _allow_files()
    async with ModelServer(lambda _: hang("before_headers"), requests_max=0) as server:
        _furnish(home, server.url, "")
        gateway = GatewayProcess(home, environ=environment(), clock=SystemClock())
        try:
            await gateway.start()
            await _say_everywhere(gateway.url, gateway.token)
            await server.wait_for_requests(TURNS)
            await gateway.kill()
            begun = time.perf_counter()
            await gateway.start()
            ready_s = time.perf_counter() - begun
            await server.wait_for_requests(2 * TURNS)
            return ready_s, time.perf_counter() - begun
        finally:
            await gateway.kill()


async def _say_everywhere(url: str, token: str) -> None:
    connector = aiohttp.TCPConnector(limit=50)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def say(number: int) -> None:
            path = f"{url}/api/conversations/room-{number}/messages"
            async with session.post(path, json={"text": "hello"}) as response:
                assert response.status == 202, await response.text()

        await asyncio.gather(*(say(number) for number in range(TURNS)))
