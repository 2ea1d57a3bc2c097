"""Checks that an update which kills process after process is put aside, and that this care costs
nothing while no process dies."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.domain.people.access import Terms
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.inlet import CARE_S, TRIES_MAX, AccountInlet, Care
from perdure.engine.people.quotas import RequestGate
from perdure.ports.records.history import Page
from perdure.store.store import Store
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

POISON = b'{"text": "poison"}'


class Life:
    """Runs one process on the same database."""

    def __init__(self, folder: Path, clock: VirtualClock, entropy: SeededEntropy) -> None:
        self.clock = clock
        self._folder, self._entropy = folder, entropy

    async def begin(self) -> AccountInlet:
        driver = sqlite_on(self._folder / "perdure.db")
        store = self.store = Store(
            driver, clock=self.clock, entropy=self._entropy, media=self._folder
        )
        await store.open()
        self.is_after_death = await store.nodes.join(name="sim")
        care = Care(store.handling, self.clock, is_after_death=self.is_after_death)
        return AccountInlet(
            "scripted",
            terms=Terms,
            door=None,  # type: ignore[arg-type]
            access=store.access,
            overhearing=store.overhearing,
            places=store.places,
            accounts=dict,
            principals=store.principals,
            entropy=self._entropy,
            gate=RequestGate(self.clock),
            heard=lambda: None,
            typing=lambda _: None,
            wakes=Bus(),
            care=care,
        )

    async def die(self) -> None:
        """End without writing anything more."""
        await self.store.close()

    async def end(self) -> None:
        await self.store.nodes.leave(restart_session=None)
        await self.store.close()


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path, VirtualClock(), SeededEntropy())


ABANDONED: list[AbstractAsyncContextManager[bool]] = []


async def reads(handling: AbstractAsyncContextManager[bool]) -> bool:
    """Begin to handle an update and do not end, as a process that dies."""
    ABANDONED.append(handling)  # the garbage collector would end it
    return await handling.__aenter__()


async def breaks(handling: AbstractAsyncContextManager[bool]) -> None:
    async with handling as may_read:
        assert may_read
        raise ValueError("a bug")


async def test_what_three_processes_died_over_is_put_aside(life: Life) -> None:
    for _ in range(TRIES_MAX):
        inlet = await life.begin()
        async with inlet.handling("harmless", b"{}") as may_read:
            assert may_read
        assert await reads(inlet.handling("m1", POISON))
        await life.die()

    inlet = await life.begin()
    assert not await reads(inlet.handling("m1", POISON))

    (letter,) = await life.store.parked.page(Page())
    assert letter.text == POISON.decode()
    assert "died" in letter.error
    await life.end()


async def test_who_lives_on_is_not_blamed(life: Life) -> None:
    await life.begin()
    await life.die()
    for _ in range(2 * TRIES_MAX):
        inlet = await life.begin()
        with pytest.raises(ValueError, match="a bug"):
            await breaks(inlet.handling("m1", POISON))
        await life.die()


async def test_nothing_is_written_where_nobody_has_died(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    await life.begin()
    await life.end()
    inlet = await life.begin()
    assert not life.is_after_death
    monkeypatch.delattr("perdure.store.operations.delivery.handling.begin")

    async with inlet.handling("m1", POISON) as may_read:
        assert may_read
    await life.end()


async def test_care_ends_after_a_while(life: Life) -> None:
    await life.begin()
    await life.die()
    inlet = await life.begin()
    assert await reads(inlet.handling("m1", POISON))
    life.clock.advance(CARE_S)

    for _ in range(2 * TRIES_MAX):
        assert await reads(inlet.handling("m1", POISON))
    await life.end()
