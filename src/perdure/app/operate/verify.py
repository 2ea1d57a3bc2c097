"""Checks everything that is stored: the database's own check of its file, then every session
against the rules.

Sessions are read in batches, each in a short transaction, and judged after it: a long transaction
would keep a running node from shortening its write-ahead log. A session that changes in between is
judged as it is when it is read.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import Corrupt
from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionRecord
from perdure.ports.gateway import Report
from perdure.ports.records.audit import Audit, SessionMark
from perdure.ports.records.history import Diagnostics

# Bounds the sessions that are examined one by one. Nobody reads more faults than this, and each
# costs a scan of a whole table.
SUSPECTS_MAX: Final = 100
# After a check of a table that took longer than `LONG_S`, the node gets a pause to copy its log.
LONG_S: Final = 0.5
PAUSE_S: Final = 0.2

_Tell = Callable[[int, int], None]


class VerifyVerdict(NamedTuple):
    """Holds what was found, and the sessions that are sound and need no other check until they
    change."""

    report: Report
    sound: list[SessionMark]


async def verify_store(
    audit: Audit, diagnostics: Diagnostics, *, only_new: bool = False, tell: _Tell | None = None
) -> VerifyVerdict:
    """Check everything, or only the sessions that changed since they were found sound. `tell` is
    called with the number of sessions checked and the total, first with zero."""
    verdict = await _sessions(audit, diagnostics, only_new=only_new, tell=tell)
    found = [] if only_new else [f"database: {each}" for each in await _file(audit)]
    # In a damaged file nothing is certain, not even what could be read.
    sound = [] if found else verdict.sound
    return VerifyVerdict(Report(verdict.report.sessions, found + verdict.report.violations), sound)


async def report(audit: Audit, diagnostics: Diagnostics) -> Report:
    """Check everything once. Returns only the report."""
    return (await verify_store(audit, diagnostics)).report


async def _file(audit: Audit) -> list[str]:
    """Let the database check its own file, table by table. While it reads a large table, the node's
    write-ahead log can only grow. During the pause after it, the node copies the log."""
    found: list[str] = []
    try:
        tables = await audit.tables()
    except Corrupt as error:
        return [error.message]
    for table in tables:
        begun_s = time.monotonic()
        found += await audit.integrity(table)
        if time.monotonic() - begun_s > LONG_S:
            await asyncio.sleep(PAUSE_S)
    return found


async def _sessions(
    audit: Audit, diagnostics: Diagnostics, *, only_new: bool, tell: _Tell | None
) -> VerifyVerdict:
    """Check the sessions batch by batch."""
    total = await audit.count(only_new=only_new)
    if tell is not None:
        tell(0, total)
    looked_at, talks = 0, 0
    found: list[str] = []
    sound: list[SessionMark] = []
    async for batch in _batches(audit, only_new=only_new):
        judged = await _judged(audit, diagnostics, batch, only_new=only_new)
        looked_at += len(batch)
        talks += judged.report.sessions
        found += judged.report.violations
        sound += judged.sound
        if tell is not None:
            tell(looked_at, max(total, looked_at))
    if not only_new:
        found += await _updates(audit, diagnostics, known=frozenset(found))
    return VerifyVerdict(Report(talks, found), sound)


async def _batches(audit: Audit, *, only_new: bool) -> AsyncIterator[list[SessionId]]:
    """Yield the ids of all sessions, a batch at a time."""
    after: SessionId | None = None
    while batch := await audit.batch(after=after, only_new=only_new):
        yield batch
        after = batch[-1]


async def _judged(
    audit: Audit, diagnostics: Diagnostics, batch: Sequence[SessionId], *, only_new: bool
) -> VerifyVerdict:
    """Read a batch and judge it. If it cannot be read, each of its sessions is read alone."""
    try:
        if only_new:  # a range would also contain sessions that have not changed
            records = [each for one in batch for each in await audit.records(one, one)]
        else:
            records = await audit.records(batch[0], batch[-1])
    except Corrupt:
        return await _one_by_one(diagnostics, batch)
    # Judging takes some time, and in a node the event loop has other work. So it runs in a thread.
    return await asyncio.to_thread(_verdict, records)


def _verdict(records: Sequence[SessionRecord]) -> VerifyVerdict:
    """Judge sessions. Errands are judged too, but not counted: people count the sessions they talk
    in."""
    from perdure.domain.checking.checker import violations  # noqa: PLC0415 - few nodes are asked

    found: list[str] = []
    sound: list[SessionMark] = []
    for record in records:
        broken = violations(record)
        found += broken
        if not broken and _is_at_rest(record):
            session = record.session
            sound.append(SessionMark(session.id, session.events, record.epoch))
    return VerifyVerdict(Report(sum(not record.session.kind for record in records), found), sound)


def _is_at_rest(record: SessionRecord) -> bool:
    """Tell whether the session's rows can change only together with a new event or a new epoch."""
    return not record.summaries_under_way and all(turn.outcome for turn in record.turns)


async def _one_by_one(diagnostics: Diagnostics, batch: Sequence[SessionId]) -> VerifyVerdict:
    """Read and judge each session alone, to find those that cannot be read."""
    verdicts = []
    for session in batch:
        try:
            record = await diagnostics.record(session)
        except Corrupt as error:
            verdicts.append(VerifyVerdict(Report(1, [f"{session}: {error.message}"]), []))
        else:
            verdicts.append(_verdict([record]))
    found = [each for verdict in verdicts for each in verdict.report.violations]
    count = sum(verdict.report.sessions for verdict in verdicts)
    return VerifyVerdict(
        Report(count, found), [each for verdict in verdicts for each in verdict.sound]
    )


async def _updates(audit: Audit, diagnostics: Diagnostics, known: frozenset[str]) -> list[str]:
    """Judge again the sessions whose updates do not seem to fit. All rows of each are read at one
    instant, so changes in between cause no false alarm."""
    suspects = await audit.suspects()
    found: list[str] = []
    for session in suspects[:SUSPECTS_MAX]:
        verdict = await _one_by_one(diagnostics, [session])
        found += [each for each in verdict.report.violations if each not in known]
    if len(suspects) > SUSPECTS_MAX:
        found.append(f"{len(suspects) - SUSPECTS_MAX} more sessions have updates that do not fit")
    return found
