"""Checks that a crowd of watchers costs the publisher next to nothing, and that nothing is kept for
slow ones."""

import asyncio

from perdure.domain.ids import ConversationId, MessageId, SessionId, TurnId
from perdure.domain.turn.watching import Delta
from perdure.engine.watching.feed import (
    BACKLOG_LENGTH,
    BACKLOG_MAX,
    WOKEN_AT_ONCE,
    Feed,
    FeedItem,
    Subscription,
)

SESSION = SessionId("ses_1")
HERE = ConversationId("cnv_1")
CROWD = 10 * WOKEN_AT_ONCE


def delta(text: str) -> Delta:
    return Delta(turn=TurnId("trn_1"), message=MessageId("msg_1"), offset=0, text=text)


async def test_a_crowd_is_woken_some_at_a_time_and_those_who_follow_the_turn_first() -> None:
    feed = Feed()
    heard: list[str] = []

    async def listens(name: str, subscription: Subscription) -> list[FeedItem]:
        items = await subscription.next(30)
        heard.append(name)
        return items

    async with asyncio.TaskGroup() as group:
        crowd = [
            group.create_task(listens("onlooker", feed.subscribe(SESSION, HERE, looks_on=True)))
            for _ in range(CROWD)
        ]
        caller = group.create_task(listens("caller", feed.subscribe(SESSION)))
        await asyncio.sleep(0)
        one = delta("one")
        feed.publish(SESSION, (one,))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard[0] == "caller"
        assert len(heard) <= WOKEN_AT_ONCE, "the others come later"

    assert all(task.result()[0] is one for task in [caller, *crowd]), "one item for all"


async def test_what_comes_while_a_crowd_is_woken_reaches_all_of_it() -> None:
    feed = Feed()
    crowd = [feed.subscribe(SESSION, HERE, looks_on=True) for _ in range(CROWD)]

    async def texts(subscription: Subscription) -> str:
        heard = ""
        while len(heard) < 3:
            heard += "".join(e.text for e in await subscription.next(30) if isinstance(e, Delta))
        return heard

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(texts(each)) for each in crowd]
        for text in "abc":
            feed.publish(SESSION, (delta(text),))
            await asyncio.sleep(0)

    assert {task.result() for task in tasks} == {"abc"}


async def test_nothing_is_kept_for_a_watcher_who_is_too_far_back() -> None:
    for items in ([delta("x")] * (BACKLOG_MAX + 1), [delta("x" * (BACKLOG_LENGTH // 2 + 1))] * 2):
        feed = Feed()
        slow = feed.subscribe(SESSION, HERE, looks_on=True)
        for item in items:
            feed.publish(SESSION, (item,))

        assert slow.is_behind
        assert await slow.next(0) == []


async def test_one_item_is_told_however_long_it_is() -> None:
    feed = Feed()
    watcher = feed.subscribe(SESSION, HERE, looks_on=True)
    long = delta("x" * (BACKLOG_LENGTH * 2))

    feed.publish(SESSION, (long,))

    assert await watcher.next(0) == [long]
    assert not watcher.is_behind
