"""Checks on both databases that nobody's push service holds up the notifications of others."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.engine.watching.push_pump import PushPump
from perdure.ports.delivery.pushes import NoPushSender, Push, PushTarget
from perdure.store.operations.pushes import LOOKS_MS
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.testkit.simulator.system import VirtualClock


class Services(NoPushSender):
    """Stands for push services, of which one answers only when it is let go."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.asked_slow = 0
        self.go = asyncio.Event()

    async def send(self, push: Push, key: str) -> None:
        if push.subscription.target.endpoint.endswith("slow"):
            self.asked_slow += 1
            await self.go.wait()
        self.got.append(push.subject)


@pytest.fixture
async def started() -> AsyncIterator[Supervisor]:
    async with Supervisor() as supervisor:
        yield supervisor


def pump_of(
    store: Store, services: Services, clock: VirtualClock, supervisor: Supervisor
) -> PushPump:
    return PushPump(
        store.pushes,
        services,
        Feed(),
        clock=clock,
        bus=Bus(),
        start=supervisor.start,
        lease=NodeLease(clock, lease_s=None),
    )


async def test_a_push_service_that_hangs_holds_up_its_own_person_alone(
    store: Store, ada: Person, bob: Person, clock: VirtualClock, started: Supervisor
) -> None:
    services = Services()
    await store.pushes.key("key")
    for who, name in ((ada, "slow"), (bob, "quick")):
        target = PushTarget(endpoint=f"https://push.example/{name}", p256dh="k", auth="a")
        await store.pushes.subscribe(who.id, target)
    mine = [await Person(store, ada.id, place=f"a{n}").is_answered("hi", "yes") for n in range(3)]
    theirs = [await Person(store, bob.id, place=f"b{n}").is_answered("hi", "yes") for n in range(3)]
    clock.advance(LOOKS_MS / 1000 + 1)

    pump = pump_of(store, services, clock, started)
    running = asyncio.create_task(pump.run())
    async with asyncio.timeout(20):
        while len(services.got) < 3:
            await asyncio.sleep(0.005)
    assert set(services.got) == set(theirs)
    assert services.asked_slow == 1

    services.go.set()
    async with asyncio.timeout(20):
        while len(services.got) < 6:
            await asyncio.sleep(0.005)
    assert set(services.got) == set(theirs + mine)
    pump.stop()
    await running


async def test_a_stop_does_not_wait_for_push_services(
    store: Store, ada: Person, clock: VirtualClock, started: Supervisor
) -> None:
    services = Services()
    await store.pushes.key("key")
    target = PushTarget(endpoint="https://push.example/slow", p256dh="k", auth="a")
    await store.pushes.subscribe(ada.id, target)
    await ada.is_answered("hi", "yes")
    clock.advance(LOOKS_MS / 1000 + 1)
    pump = pump_of(store, services, clock, started)
    running = asyncio.create_task(pump.run())
    async with asyncio.timeout(20):
        while not services.asked_slow:
            await asyncio.sleep(0.005)
        pump.stop()
        await running
        await started.finished()
    assert services.got == []
    # The next process finds it.
    assert len((await store.pushes.take(limit=1, but=())).taken) == 1
