"""Checks that an earlier message is answered earlier, whatever happens in between.

People write in every busy mode, and by command. Turns are claimed, take steers, end, are stopped,
crash and are given up. Whatever the order of all this is, messages are begun in the order in which
they came. There is one exception: a message that its author explicitly steered past others
(`/steer`) and that a turn has really taken may be earlier.
"""

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.databases import sqlite_on

from perdure.domain.checking.checker import violations
from perdure.domain.errors import Conflict
from perdure.domain.ids import MessageId, PrincipalId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import SteerTaken, TurnQueued
from perdure.domain.outcomes import Busy, Interruption
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, message, only, settle
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

ATTEMPTS_MAX = 2
SAY = {
    "queue": (Busy.QUEUE, ""),
    "steer": (Busy.STEER, ""),
    "interrupt": (Busy.INTERRUPT, ""),
    "/queue": (Busy.STEER, "/queue "),
    "/steer": (Busy.QUEUE, "/steer "),
}
STEPS = [*SAY, "claim", "claim", "take", "settle", "settle", "stop", "park", "resume", "kill"]


class Talk:
    """Runs one conversation of two people, on a store that is closed and opened again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock, self._entropy = VirtualClock(), SeededEntropy()
        self._people: list[PrincipalId] = []
        self._running: Claimed | None = None
        self.authors: dict[MessageId, PrincipalId] = {}
        self.told: list[MessageId] = []
        self.begun: list[MessageId] = []
        self.overtook: set[MessageId] = set()

    async def open(self) -> None:
        driver = sqlite_on(self._folder / "p.db")
        media = self._folder / "media"
        self.store = Store(driver, clock=self._clock, entropy=self._entropy, media=media)
        await self.store.open()
        await self.store.nodes.join(name="talk")
        people = [await self.store.principals.ensure(name, role="member") for name in ("a", "b")]
        self._people = [each.id for each in people]

    async def do(self, step: str) -> None:
        if step in SAY:
            await self._say(*SAY[step])
        else:
            await getattr(self, f"_{step}")()

    async def _say(self, busy: Busy, command: str) -> None:
        number = len(self.told)
        author = self._people[number % 2]
        update = self._update(f"{command}m{number}", f"u{number}", author)
        accepted = await self.store.inbox.accept(
            msgspec.structs.replace(update, busy=busy), queue_max=1000
        )
        self.told.append(accepted.message)
        self.authors[accepted.message] = author
        if command == "/steer ":
            self.overtook.add(accepted.message)
        if self._running and self._running.lease.turn in accepted.ended:
            self._running = None

    def _update(self, text: str, external_id: str, author: PrincipalId) -> Update:
        update = message(author, text, external_id=external_id)
        address = msgspec.structs.replace(update.address, adapter="chat", account="bot")
        return msgspec.structs.replace(update, address=address)

    async def _claim(self) -> None:
        if self._running is None:
            for claimed in await self.store.turns.claim(limit=1):
                self._running = claimed
                (queued,) = only(TurnQueued, claimed.events)
                assert claimed.principal == queued.by == self.authors[queued.message]
                if claimed.lease.attempt == 1:
                    self.begun.append(queued.message)

    async def _take(self) -> None:
        if self._running is not None:
            taken = only(SteerTaken, await self.store.turns.take_steers(self._running.lease))
            self.begun += [each.message for each in taken if each.message not in self.overtook]

    async def _settle(self) -> None:
        if self._running is not None:
            await settle(self.store, self._running)
            self._running = None

    async def _stop(self) -> None:
        if self._running is not None:
            await self.store.inbox.stop(self._running.lease.turn, by=None)
            self._running = None

    async def _park(self) -> None:
        if self._running is not None:
            reason = Interruption.SHUTDOWN
            await self.store.turns.interrupt(self._running.lease, reason, attempts_max=ATTEMPTS_MAX)
            self._running = None

    async def _resume(self) -> None:
        while (await self.store.nodes.resume(GO_ON, limit=9)).recorded:
            pass

    async def _kill(self) -> None:
        await self.store.close()
        self._running = None
        await self.open()
        await self.store.nodes.reap(attempts_max=ATTEMPTS_MAX, limit=9)

    async def rest(self) -> None:
        await self._settle()
        await self._resume()
        for _ in range(len(self.told) + 1):
            await self._claim()
            await self._settle()

    async def verdict(self) -> list[str]:
        sessions = await self.store.archive.sessions(principal=None, page=Page(limit=100))
        records = [await self.store.diagnostics.record(each.id) for each in sessions]
        found = [each for record in records for each in violations(record)]
        found += [f"{t.id} waits" for record in records for t in record.turns if not t.outcome]
        return found


async def play(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-order-") as folder:
        talk = Talk(Path(folder))
        await talk.open()
        try:
            for step in steps:
                await talk.do(step)
            await talk.rest()
            assert await talk.verdict() == []
            places = [talk.told.index(each) for each in talk.begun]
            assert places == sorted(places), f"{places} after {steps}"
        except Conflict:
            raise AssertionError(steps) from None
        finally:
            await talk.store.close()


@given(st.lists(st.sampled_from(STEPS), min_size=5, max_size=25))
def test_what_was_said_earlier_is_begun_earlier(steps: list[str]) -> None:
    asyncio.run(play(["queue", "claim", *steps]))


SHORTEST = {
    "a steer by command": "queue claim /steer queue settle",
    "a queue by command": "queue claim steer /queue steer settle",
    "a turn that runs already": "queue claim steer settle steer claim steer take",
    "a turn that is given up": "queue claim steer queue kill resume claim kill",
}


@pytest.mark.parametrize("name", SHORTEST)
def test_a_word_that_was_not_taken_keeps_its_place(name: str) -> None:
    # These are the shortest sequences that once made a message lose its place.
    asyncio.run(play(SHORTEST[name].split()))
