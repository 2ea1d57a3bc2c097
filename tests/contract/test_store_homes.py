"""Checks that the operators' homes are told when the node ends and when it is back, once each and
not again and again."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.ids import SessionId
from perdure.domain.journal.events import NoticePosted
from perdure.domain.outcomes import NodeRequest
from perdure.domain.people.notices import AGAIN_MS
from perdure.domain.turn.announcing import Drain
from perdure.domain.turn.recovery import BACK, Policy
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, next_request, only, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
GO_ON = Policy(freshness_ms=0)
LATER_S = AGAIN_MS / 1000


@pytest.fixture
async def root(store: Store) -> Person:
    """Return an operator at home on a platform."""
    person = await store.principals.ensure("root", role="operator")
    root = Person(store, person.id, adapter="chat", place="42")
    await root.says("/home")
    return root


async def ends(
    store: Store, asked: NodeRequest = NodeRequest.STOP, asked_in: SessionId | None = None
) -> list[str]:
    """Tell people that the node ends, and let it leave. Returns what they were told."""
    drain = Drain(asked=asked, tells_homes=True, asked_in=asked_in)
    told = only(NoticePosted, await store.nodes.announce(GO_ON, drain))
    await store.nodes.leave(asked=asked, restart_session=asked_in)
    return [each.text for each in told]


async def is_back(store: Store) -> list[str]:
    return [each.text for each in only(NoticePosted, await store.nodes.greet(tells_homes=True))]


async def waiting(store: Store) -> list[str]:
    """Take what waits to be sent, and return its text."""
    found = []
    while parts := await store.outbox.take(adapter="chat", limit=9):
        found += [each.text for each in parts]
        for each in parts:
            await store.outbox.record(each.id, "sent", receipt=each.id, attempt=each.attempts)  # type: ignore[arg-type]
    return found


async def test_a_first_start_tells_nobody(store: Store, root: Person) -> None:
    assert await is_back(store) == []


async def test_a_member_at_home_is_told_nothing(store: Store, ada: Person) -> None:
    await ada.says("/home")
    assert await ends(store) == []


@pytest.mark.parametrize(
    ("asked", "lead", "back"),
    [
        (NodeRequest.STOP, "The gateway stops now.", "The gateway is back."),
        (NodeRequest.RESTART, "The gateway restarts now.", "The gateway is back after a restart."),
    ],
    ids=["stop", "restart"],
)
async def test_the_home_hears_of_the_end_and_of_the_return(
    store: Store, root: Person, open_store: OpenStore, asked: NodeRequest, lead: str, back: str
) -> None:
    await waiting(store)
    told = await ends(store, asked)
    assert [each.startswith(lead) for each in told] == [True]
    assert await waiting(store) == told

    after = await open_store()
    assert await is_back(after) == [back]
    assert await is_back(after) == [], "once"
    assert await waiting(after) == [back]


async def test_a_crash_is_told_with_the_answers_that_go_on(
    store: Store, root: Person, restart: OpenStore, ada: Person
) -> None:
    for person in (root, ada):
        await person.says("a long question")
    assert len(await store.turns.claim(limit=9)) == 2

    after = await restart()
    await after.nodes.reap(attempts_max=3, limit=9)
    await after.nodes.resume(GO_ON, limit=9)
    expected = "The gateway is back after a crash. 2 answers that were cut short go on."
    assert await is_back(after) == [expected]
    for each in await after.turns.claim(limit=9):
        assert "is back" not in str(await next_request(after, each)), "no model is told"
        await settle(after, each)


async def test_a_node_that_starts_again_and_again_tells_of_one_return(
    store: Store, root: Person, restart: OpenStore, clock: VirtualClock
) -> None:
    told = []
    for _ in range(5):
        told += await is_back(await restart())
        clock.advance(60)
    assert told == ["The gateway is back after a crash."]
    clock.advance(LATER_S)
    assert len(await is_back(await restart())) == 1, "ten minutes later again"


async def test_a_loop_of_restarts_tells_of_one_end_and_always_of_the_return_from_it(
    store: Store, root: Person, open_store: OpenStore, clock: VirtualClock
) -> None:
    node, told = store, list[str]()
    for _ in range(4):
        clock.advance(60)
        told += await ends(node, NodeRequest.RESTART)
        node = await open_store()
        told += await is_back(node)
    assert [each.split(".")[0] for each in told] == [
        "The gateway restarts now",
        "The gateway is back after a restart",
    ]

    clock.advance(LATER_S)
    told = await ends(node)
    clock.advance(1)
    assert len(told) == len(await is_back(await open_store())) == 1


async def test_what_was_not_sent_before_the_return_is_withdrawn(
    store: Store, root: Person, open_store: OpenStore
) -> None:
    await waiting(store)
    assert len(await ends(store)) == 1
    after = await open_store()
    assert await is_back(after) == await waiting(after) == ["The gateway is back."]


async def test_who_asked_for_the_restart_at_home_hears_of_it_once(
    store: Store, root: Person, open_store: OpenStore
) -> None:
    session = (await root.says("/status")).session
    assert await ends(store, NodeRequest.RESTART, asked_in=session) == []
    after = await open_store()
    assert await is_back(after) == [BACK]


async def test_a_home_in_which_a_turn_runs_hears_what_becomes_of_it_and_nothing_else(
    store: Store, root: Person
) -> None:
    await root.says("a long question")
    claimed = await claim_one(store)
    (told,) = await ends(store)
    assert "An answer that does not finish in time" in told
    await settle(store, claimed)


async def test_the_return_from_an_end_that_was_told_is_told_however_soon(
    store: Store, root: Person, restart: OpenStore, open_store: OpenStore, clock: VirtualClock
) -> None:
    after = await restart()
    assert await is_back(after) == ["The gateway is back after a crash."]
    clock.advance(60)
    assert len(await ends(after)) == 1
    clock.advance(60)
    assert await is_back(await open_store()) == ["The gateway is back."]
