"""Checks that a turn which ends its host is found among many that do not, soon, and that nobody
else is given up for it."""

from collections import Counter
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.domain.checking.checker import violations
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, Person, admitted, settle
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

TICK_S = 0.25
LASTS_S = 8.0
START_S = 1.0
CULPRIT = "culprit"


class Host:
    """Runs turns that take a while each, in one process after the other. The turn of the culprit
    ends the process when it has run for so long."""

    def __init__(self, folder: Path, *, kills_after_s: float | None, limit: int = 200) -> None:
        self.clock = VirtualClock()
        self.deaths = 0
        self.ended_s: list[float] = []
        self._folder = folder
        self._limit = limit
        self._kills_after_s = kills_after_s
        self._running: dict[str, tuple[Claimed, float]] = {}

    async def open(self) -> Store:
        driver = sqlite_on(self._folder / "p.db")
        entropy = SeededEntropy(self.deaths)
        self.store = Store(driver, clock=self.clock, entropy=entropy, media=self._folder / "media")
        await self.store.open()
        await self.store.nodes.join(name="host")
        return self.store

    async def die(self) -> None:
        self.deaths += 1
        self._running.clear()
        await self.store.close()
        self.clock.advance(START_S)
        await self.open()
        while await self.store.nodes.reap(attempts_max=3, limit=self._limit):
            pass

    async def play(self, seconds: float) -> None:
        """Let time pass until all turns have ended, or for so long."""
        ends_at = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < ends_at:
            await self._take_up()
            self.clock.advance(TICK_S)
            await self.store.nodes.beat()
            if self._is_deadly():
                await self.die()
            for place, (claimed, began) in tuple(self._running.items()):
                if self.clock.monotonic_s() - began >= LASTS_S:
                    await settle(self.store, claimed)
                    self.ended_s.append(self.clock.monotonic_s())
                    del self._running[place]
            if not self._running and not await self._take_up():
                return

    async def _take_up(self) -> bool:
        while (await self.store.nodes.resume(GO_ON, limit=200)).recorded:
            pass
        claimed = await self.store.turns.claim(limit=200)
        now = self.clock.monotonic_s()
        self._running |= {each.address.place: (each, now) for each in claimed}
        return bool(claimed)

    def _is_deadly(self) -> bool:
        """Tell whether the culprit ends the process now. It does so as long as it lives."""
        _, began = self._running.get(CULPRIT, (None, None))
        if began is None or self._kills_after_s is None:
            return False
        return self.clock.monotonic_s() - began >= self._kills_after_s

    async def outcomes(self) -> Counter[str]:
        sessions = await self.store.archive.sessions(principal=None, page=Page(limit=500))
        records = [await self.store.diagnostics.record(session.id) for session in sessions]
        assert [violations(record) for record in records] == [[] for _ in records]
        return Counter(str(turn.outcome) for record in records for turn in record.turns)


async def crowd(host: Host, innocent: int, *, culprit_at: int | None) -> None:
    """Let this many people write at nearly the same moment, and the culprit after so many of
    them."""
    store = await host.open()
    ada = await admitted(store, "ada")
    places = [f"p{n}" for n in range(innocent)]
    if culprit_at is not None:
        places.insert(culprit_at, CULPRIT)
    for place in places:
        await Person(store, ada, place=place).says()
        host.clock.advance(0.001)


# A crash for each halving of a hundred, besides the two that make suspects and the last one. Where
# turns live shortly, they are tried alone, and there are hardly more than three.
@pytest.mark.parametrize("culprit_at", [0, 50, 100])
@pytest.mark.parametrize(
    ("kills_after_s", "deaths", "within_s"),
    [(TICK_S, 5, 100), (1.0, 6, 110), (5.0, 9, 220)],
    ids=["at once", "after a second", "after five seconds"],
)
async def test_a_culprit_among_a_hundred_is_given_up_alone(
    tmp_path: Path, kills_after_s: float, deaths: int, within_s: float, culprit_at: int
) -> None:
    host = Host(tmp_path, kills_after_s=kills_after_s)
    await crowd(host, 100, culprit_at=culprit_at)
    await host.play(1000)

    assert await host.outcomes() == Counter(done=100, suspended=1)
    assert 3 <= host.deaths <= deaths
    assert max(host.ended_s) < within_s
    await host.store.close()


async def test_two_crashes_for_no_reason_delay_a_hundred_turns_little(tmp_path: Path) -> None:
    # One at a time, the last of them would begin after more than five minutes.
    host = Host(tmp_path, kills_after_s=None)
    await crowd(host, 100, culprit_at=None)
    for _ in range(2):
        await host.play(4.0)
        await host.die()
    await host.play(1000)

    assert await host.outcomes() == Counter(done=100)
    assert max(host.ended_s) < 80
    await host.store.close()


@pytest.mark.parametrize("limit", [200, 13])
async def test_those_on_trial_together_are_judged_together(tmp_path: Path, limit: int) -> None:
    # The host dies for no reason while several are on trial. None of them is given up, also if
    # the dead attempts are ended in small batches.
    host = Host(tmp_path, kills_after_s=None, limit=limit)
    await crowd(host, 30, culprit_at=None)
    for _ in range(3):
        await host.play(4.0)
        await host.die()
    await host.play(1000)

    assert await host.outcomes() == Counter(done=30)
    await host.store.close()
