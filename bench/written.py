"""Measures how much is written to the disk for one turn, and for what.

A commit writes whole pages to the log, however little of them has changed, and a checkpoint writes
each of those pages once more into the database. So the bytes follow from two numbers: how often a
turn commits, and how many tables and indexes each commit touches. The kernel counts what it sends
to the disk; the log tells which pages were written.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from bench.load import Client, client
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate
from bench.wal import BLOCK_BYTES, Commit, Tail

CONVERSATIONS = 200
SEED_TURNS = 3
WORDS = 60  # with the question about half a kilobyte of text
ALONE = 25
ALONE_ROUNDS = 24  # enough for a few checkpoints
AT_ONCE = 16
AT_ONCE_ROUNDS = 40
SLOW_ROUNDS = 8
SLOW_DELAY_MS = 50
LOOK_EVERY_S = 0.25
REST_S = 1.0  # until earlier writes are finished
# Tells what a commit was for, by a table that it wrote to. The first table that matches decides.
PURPOSES = {
    "searchable": "settling, and indexing what waited",
    "unindexed": "settling",
    "inbox": "accepting",
    "partials": "keeping text while it grows",
    "nodes": "a heartbeat",
}
FILE = "perdure.db"

Round = Callable[[], Awaitable[object]]


class Written(msgspec.Struct):
    """Holds what some turns have written. `commits` holds only commits of rounds in which the whole
    log was read: it was not restarted meanwhile."""

    name: str
    turns: int = 0
    kernel_bytes: int = 0
    page_bytes: int = 0
    seen_turns: int = 0
    commits: list[Commit] = msgspec.field(default_factory=list)

    @property
    def kb(self) -> float:
        """Return the kilobytes per turn, as the kernel counts. It counts none for a file system in
        memory: then the bytes of the log are returned."""
        log_bytes = sum(each.blocks for each in self.commits) * BLOCK_BYTES
        per_turn = self.kernel_bytes / self.turns or log_bytes / self.seen_turns
        return per_turn / 1000

    @property
    def facts(self) -> list[str]:
        by_purpose: dict[str, list[Commit]] = {}
        for each in self.commits:
            by_purpose.setdefault(_purpose(each), []).append(each)
        pages = Counter(owner for each in self.commits for owner in each.owners)
        owners = ", ".join(f"{name} {self._share(count)}" for name, count in pages.most_common())
        return [
            f"{self.name}: {self.kb:.1f} KB per turn in pages of {self.page_bytes:,} bytes",
            *(self._told(purpose, found) for purpose, found in by_purpose.items()),
            f"{self.name}, pages per turn: {owners}",
        ]

    def _told(self, purpose: str, commits: Sequence[Commit]) -> str:
        pages = sum(len(each.owners) for each in commits)
        return (
            f"{self.name}, {purpose}: {self._share(len(commits))} commits per turn, "
            f"{pages / len(commits):.1f} pages each"
        )

    def _share(self, count: int) -> str:
        return f"{count / self.seen_turns:.2f}"


def _purpose(commit: Commit) -> str:
    found = (purpose for table, purpose in PURPOSES.items() if table in commit.owners)
    return next(found, "anything else")


async def measure(folder: Path) -> Findings:
    alone, together = await _fast(folder / "fast")
    slow = await _slow(folder / "slow")
    facts = [fact for each in (alone, together, slow) for fact in each.facts]
    gates = [
        Gate(
            name=f"written to disk per turn, {each.name}", measured=each.kb, limit=limit, unit="KB"
        )
        for each, limit in ((alone, 83), (together, 42), (slow, 172))
    ]
    return Findings(part="written", facts=facts, gates=gates)


async def _fast(home: Path) -> tuple[Written, Written]:
    chance = random.Random(1)
    async with (
        running("model", "--words", str(WORDS)) as model,
        perdure(home, model_url=model.url) as ours,
        client() as load,
    ):
        names = await _seed(load, ours)
        alone = await _written(
            "alone",
            ours,
            home / FILE,
            [lambda: load.lap(ours, chance.choices(names, k=ALONE), 1)] * ALONE_ROUNDS,
            turns=ALONE,
        )
        together = await _written(
            f"{AT_ONCE} at once",
            ours,
            home / FILE,
            [lambda: load.together(ours, chance.sample(names, AT_ONCE))] * AT_ONCE_ROUNDS,
            turns=AT_ONCE,
        )
    return alone, together


async def _slow(home: Path) -> Written:
    async with (
        running("model", "--words", str(WORDS), "--delay-ms", str(SLOW_DELAY_MS)) as model,
        perdure(home, model_url=model.url) as ours,
        client() as load,
    ):
        names = await _seed(load, ours)
        rounds = [lambda: load.turn(ours, names[7])] * SLOW_ROUNDS
        return await _written("streamed slowly", ours, home / FILE, rounds, turns=1)


async def _seed(load: Client, program: Program) -> list[str]:
    names = [f"conversation-{number}" for number in range(CONVERSATIONS)]
    for _ in range(SEED_TURNS):
        await load.together(program, names)
    return names


async def _written(
    name: str, program: Program, database: Path, rounds: Sequence[Round], *, turns: int
) -> Written:
    """Run the rounds, each of this number of turns, one after the other."""
    await asyncio.sleep(REST_S)
    written = Written(name)
    tail = Tail(database)
    await asyncio.to_thread(tail.news)
    before_bytes = program.written_bytes()
    for each in rounds:
        commits = await _watched(tail, each)
        written.turns += turns
        if commits is not None:
            written.seen_turns += turns
            written.commits += commits
    written.kernel_bytes = program.written_bytes() - before_bytes
    written.page_bytes = tail.page_bytes
    return written


async def _watched(tail: Tail, run: Round) -> list[Commit] | None:
    """Return what was committed during a round, or None if a part of it was missed. The log is read
    repeatedly, because a page may belong to another table soon after."""
    commits: list[Commit] = []
    is_whole = True
    task = asyncio.ensure_future(run())
    while True:
        await asyncio.wait({task}, timeout=LOOK_EVERY_S)
        is_over = task.done()
        news = await asyncio.to_thread(tail.news)
        is_whole = is_whole and news is not None
        commits += news or []
        if is_over:
            await task
            return commits if is_whole else None
