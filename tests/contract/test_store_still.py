"""Checks that a conversation is told once that its answer takes long, whatever becomes of it."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import Fenced
from perdure.domain.journal.events import NoticePosted
from perdure.domain.outcomes import Interruption
from perdure.domain.turn.recovery import Policy
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, next_request, only, settle

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
STILL = "Still at it, for 1 minute now."


@pytest.fixture
def eve(store: Store, ada: Person) -> Person:
    """Return a person on a platform."""
    return Person(store, ada.id, adapter="chat", place="42")


async def test_a_turn_tells_of_itself_once_also_in_its_next_attempt(
    store: Store, eve: Person, restart: OpenStore
) -> None:
    await eve.says("a long question")
    claimed = await claim_one(store)
    told = only(NoticePosted, await store.turns.tell_still(claimed.lease, STILL))
    assert [(each.text, each.about) for each in told] == [(STILL, claimed.lease.turn)]
    assert await store.turns.tell_still(claimed.lease, STILL) == []

    after = await restart()
    await after.nodes.reap(attempts_max=3, limit=9)
    await after.nodes.resume(Policy(freshness_ms=0), limit=9)
    again = await claim_one(after)
    assert again.lease.turn == claimed.lease.turn
    assert await after.turns.tell_still(again.lease, STILL) == []
    assert "Still at it" not in str(await next_request(after, again)), "no model is told"
    (part,) = await after.outbox.take(adapter="chat", limit=9)
    assert part.text == STILL
    await settle(after, again)


async def test_nothing_is_told_of_a_turn_that_is_over(store: Store, eve: Person) -> None:
    await eve.says("a question")
    claimed = await claim_one(store)
    await settle(store, claimed)
    with pytest.raises(Fenced):
        await store.turns.tell_still(claimed.lease, STILL)


async def test_nobody_but_the_holder_of_the_turn_tells(store: Store, eve: Person) -> None:
    await eve.says("a question")
    claimed = await claim_one(store)
    await store.turns.interrupt(claimed.lease, Interruption.RESTART, attempts_max=3)
    with pytest.raises(Fenced):
        await store.turns.tell_still(claimed.lease, STILL)
