"""Checks that a node which was away for longer than its lease does nothing before it has asked
again."""

import asyncio

import pytest

from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.testkit.simulator.system import VirtualClock

LEASE_S = 15.0


def may_act(lease: Lease | NodeLease) -> bool:
    return lease.may_act


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def node(clock: VirtualClock) -> NodeLease:
    lease = NodeLease(clock, lease_s=LEASE_S)
    lease.renew(lease.now())
    return lease


def test_what_was_taken_may_be_acted_on_for_a_while(clock: VirtualClock, node: NodeLease) -> None:
    taken = node.take()
    clock.advance(4)
    assert may_act(taken)

    clock.advance(2)

    assert not may_act(taken)
    assert may_act(node.take()), "the node itself was renewed a moment ago"


def test_what_was_taken_is_over_well_before_the_lease_of_its_node(clock: VirtualClock) -> None:
    # The worst case: the last heartbeat was as long ago as possible when something was taken.
    node = NodeLease(clock, lease_s=LEASE_S)
    node.renew(node.now())
    clock.advance(4.9)
    taken, passed_s = node.take(), 4.9
    while may_act(taken):
        clock.advance(0.1)
        passed_s += 0.1

    assert passed_s <= LEASE_S - 5


def test_a_machine_that_slept_holds_nothing(clock: VirtualClock, node: NodeLease) -> None:
    # While a machine sleeps, only the wall clock goes on.
    taken = node.take()

    clock.jump(60)

    assert not may_act(taken)
    assert not may_act(node)


def test_a_heartbeat_renews_the_lease_from_before_its_write(
    clock: VirtualClock, node: NodeLease
) -> None:
    began = node.now()
    clock.advance(9)
    node.renew(began)
    assert may_act(node)

    clock.advance(2)
    assert not may_act(node)

    node.renew(node.now())
    assert may_act(node)


def test_what_was_taken_before_the_lease_was_lost_stays_lost(node: NodeLease) -> None:
    taken = node.take()

    node.lose()
    assert not may_act(node)
    node.renew(node.now())

    assert may_act(node)
    assert not may_act(taken)


async def test_whoever_must_wait_goes_on_with_the_next_heartbeat(
    clock: VirtualClock, node: NodeLease
) -> None:
    clock.advance(60)
    waiting = asyncio.ensure_future(node.held())
    done, _ = await asyncio.wait({waiting}, timeout=0.01)
    assert not done

    node.renew(node.now())

    async with asyncio.timeout(5):
        await waiting


async def test_where_the_store_has_one_owner_no_lease_runs_out(clock: VirtualClock) -> None:
    node = NodeLease(clock, lease_s=None)
    node.renew(node.now())
    taken = node.take()

    clock.advance(3_600)
    clock.jump(3_600)

    assert may_act(taken)
    async with asyncio.timeout(5):
        await node.held()
