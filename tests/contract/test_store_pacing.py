"""Checks the `Pacing` port: what a new process must know about the requests of the one before
it."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.delivery import PartState
from perdure.ports.delivery.pacing import Pacing
from perdure.store.store import Store
from perdure.testkit.contract.pacing import RememberedPacing
from perdure.testkit.simulator.stores import Person, claim_one, settle
from perdure.testkit.simulator.system import VirtualClock

CHAT = "chat"


@pytest.fixture(params=["stored", "remembered"])
def pacing(request: pytest.FixtureRequest, store: Store, clock: VirtualClock) -> Pacing:
    return store.pacing if request.param == "stored" else RememberedPacing(clock)


async def holds(pacing: Pacing) -> dict[str, float]:
    known = await pacing.lately(adapter=CHAT, within_s=60)
    return {hold.place: hold.left_s for hold in known.holds}


async def test_a_wait_is_known_until_it_is_over(pacing: Pacing, clock: VirtualClock) -> None:
    await pacing.hold(adapter=CHAT, place="room", wait_s=30)
    await pacing.hold(adapter=CHAT, place="", wait_s=5)
    await pacing.hold(adapter="another", place="room", wait_s=100)
    assert await holds(pacing) == {"room": 30, "": 5}

    clock.advance(10)

    assert await holds(pacing) == {"room": 20}


async def test_a_shorter_wait_does_not_end_a_longer_one(pacing: Pacing) -> None:
    for wait_s in (5, 30, 2):
        await pacing.hold(adapter=CHAT, place="room", wait_s=wait_s)

    assert await holds(pacing) == {"room": 30}


async def test_a_wait_survives_a_restart_and_a_clock_that_is_set_back(
    store: Store, clock: VirtualClock, restart: Callable[[], Awaitable[Store]]
) -> None:
    await store.pacing.hold(adapter=CHAT, place="room", wait_s=30)
    clock.jump(-86_400)

    reborn = await restart()

    assert await holds(reborn.pacing) == {"room": 30}


@pytest.fixture
async def eve(store: Store) -> Person:
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT, place="room")


async def test_calls_are_those_of_the_last_while(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    for text, pause_s in (("old", 61), ("new", 20)):
        await eve.is_answered("?", text, parts=(text,))
        (part,) = await store.outbox.take(adapter=CHAT, limit=1)
        await store.outbox.record(part.id, PartState.SENT, receipt=text)
        clock.advance(pause_s)
    await eve.is_answered("?", "waits", parts=("waits",))

    known = await store.pacing.lately(adapter=CHAT, within_s=60)

    assert [(call.address.place, call.ago_s) for call in known.calls] == [("room", 20)]
    assert known.growing == ()


async def test_bubbles_of_turns_that_are_not_over_may_have_grown(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.says("go on")
    claimed = await claim_one(store)
    assert await store.outbox.bubble(claimed.lease, 0, "so far") is not None
    clock.advance(300)

    known = await store.pacing.lately(adapter=CHAT, within_s=60)
    assert [(each.address.place, each.ago_s) for each in known.growing] == [("room", 300)]

    await settle(store, claimed, "done", parts=("done",))
    assert (await store.pacing.lately(adapter=CHAT, within_s=60)).growing == ()
