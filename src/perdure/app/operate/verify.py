"""Is everything stored sound? The database's own check, then every session against the rules.

Sessions are read many at a time, each batch in a short transaction of its own, and judged when that
is over: a long one would keep the write-ahead log of a running node from being copied. A session
that has changed in between is judged as it is then.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from perdure.domain.checker import violations
from perdure.domain.errors import Corrupt
from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionRecord
from perdure.ports.gateway import Report
from perdure.ports.records.audit import Audit, SessionMark
from perdure.ports.records.history import Diagnostics

# Beyond this many faults nobody reads on, and each one costs a look at a whole table.
SUSPECTS_MAX: Final = 100
LONG_S: Final = 0.5
PAUSE_S: Final = 0.2

_Tell = Callable[[int, int], None]


class VerifyVerdict(NamedTuple):
    """What a look at everything has found, and the sessions that need no other look until something
    happens in them."""

    report: Report
    sound: list[SessionMark]


async def verify(
    audit: Audit, diagnostics: Diagnostics, *, only_new: bool = False, tell: _Tell | None = None
) -> VerifyVerdict:
    """Look at everything once, or at the sessions that have changed since they were found sound.
    `tell` hears how many sessions have been looked at, and of how many: first of none."""
    verdict = await _sessions(audit, diagnostics, only_new=only_new, tell=tell)
    found = [] if only_new else [f"database: {each}" for each in await _file(audit)]
    # In a damaged file nothing is certain, also not what could be read.
    sound = [] if found else verdict.sound
    return VerifyVerdict(Report(verdict.report.sessions, found + verdict.report.violations), sound)


async def report(audit: Audit, diagnostics: Diagnostics) -> Report:
    """Look at everything once, for those who only want to read of it."""
    return (await verify(audit, diagnostics)).report


async def _file(audit: Audit) -> list[str]:
    """Let the database check its own file, table by table. While it reads a large one, the log of
    a node can only grow; in a pause behind it the node copies the log."""
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
    after: SessionId | None = None
    while batch := await audit.batch(after=after, only_new=only_new):
        yield batch
        after = batch[-1]


async def _judged(
    audit: Audit, diagnostics: Diagnostics, batch: Sequence[SessionId], *, only_new: bool
) -> VerifyVerdict:
    try:
        if only_new:  # between two new ones there may be many others
            records = [each for one in batch for each in await audit.records(one, one)]
        else:
            records = await audit.records(batch[0], batch[-1])
    except Corrupt:
        return await _one_by_one(diagnostics, batch)
    # In a thread: it takes some time, and a node has other things to do.
    return await asyncio.to_thread(_verdict, records)


def _verdict(records: Sequence[SessionRecord]) -> VerifyVerdict:
    """People count the sessions they talk in."""
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
    """Tell whether nothing can happen to its rows without an event or another epoch."""
    return not record.summaries_under_way and all(turn.outcome for turn in record.turns)


async def _one_by_one(diagnostics: Diagnostics, batch: Sequence[SessionId]) -> VerifyVerdict:
    """Find the sessions of a batch that cannot be read."""
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
    """Judge the sessions whose updates do not seem to fit, all of each as of one instant."""
    suspects = await audit.suspects()
    found: list[str] = []
    for session in suspects[:SUSPECTS_MAX]:
        verdict = await _one_by_one(diagnostics, [session])
        found += [each for each in verdict.report.violations if each not in known]
    if len(suspects) > SUSPECTS_MAX:
        found.append(f"{len(suspects) - SUSPECTS_MAX} more sessions have updates that do not fit")
    return found
