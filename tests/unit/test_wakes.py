"""Checks wake-ups by topic: none is lost, and each is heard by everybody who waits for its
topic."""

import asyncio

from perdure.domain.address import Address
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.ports.turns.wakes import Topic, WakeKey

HERE = Address(adapter="scripted", account="bot", place="here")
THERE = Address(adapter="scripted", account="bot", place="there")


async def test_what_is_published_while_the_waiter_looks_is_seen_by_its_next_wait() -> None:
    bus = Bus()
    waiter = bus.waiter(Topic.OUTBOX)

    waiter.begin()
    bus.publish(Topic.OUTBOX)

    assert await happens_within(waiter, within_s=0)


async def test_a_wake_up_is_over_once_the_waiter_looks_again() -> None:
    bus = Bus()
    waiter = bus.waiter(Topic.OUTBOX)
    bus.publish(Topic.OUTBOX)
    bus.publish(Topic.OUTBOX)

    waiter.begin()

    assert not await happens_within(waiter, within_s=0)


async def test_whoever_waits_is_woken_by_each_of_its_topics_and_by_no_other() -> None:
    bus = Bus()
    waiter = bus.waiter(Topic.TURNS, Topic.FETCHES)

    bus.publish(Topic.OUTBOX)
    assert not waiter.is_woken
    for topic in (Topic.TURNS, Topic.FETCHES):
        waiter.begin()
        waiting = asyncio.ensure_future(waiter.wait())
        bus.publish(topic)
        assert await waiting


async def test_one_publication_wakes_everybody_who_waits() -> None:
    bus = Bus()
    waiters = [bus.waiter(Topic.TURNS) for _ in range(3)]

    bus.publish(Topic.TURNS)

    assert all(waiter.is_woken for waiter in waiters)


def test_a_key_is_heard_by_those_who_wait_for_it_and_by_those_who_wait_for_all() -> None:
    bus, here, all_of_them = Bus(), list[WakeKey](), list[WakeKey]()
    bus.listen(Topic.LINES, here.append, key=HERE)
    bus.listen(Topic.LINES, all_of_them.append)

    bus.publish(Topic.LINES, HERE)
    bus.publish(Topic.LINES, THERE)

    assert here == [HERE]
    assert all_of_them == [HERE, THERE]


def test_whoever_leaves_while_it_is_told_is_not_told_again_and_keeps_nobody_from_hearing() -> None:
    bus, heard = Bus(), list[str]()

    def once(_: WakeKey) -> None:
        heard.append("once")
        bus.stop_listening(Topic.LINES, once, key=HERE)

    bus.listen(Topic.LINES, once, key=HERE)
    bus.listen(Topic.LINES, lambda _: heard.append("always"), key=HERE)
    bus.publish(Topic.LINES, HERE)
    bus.publish(Topic.LINES, HERE)
    bus.stop_listening(Topic.LINES, once, key=HERE)

    assert heard == ["once", "always", "always"]
