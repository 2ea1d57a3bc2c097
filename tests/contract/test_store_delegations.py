"""Checks the `Delegations` port, and what `Turns` does for work that is given away and for what is
sent elsewhere."""

from functools import partial

import pytest

from perdure.domain.errors import Fenced, NotFound, Rejected
from perdure.domain.ids import CallId
from perdure.domain.journal.events import ToolFinished, TurnSettled
from perdure.domain.journal.question_events import WaitEnded, WorkDelegated, WorkReturned
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.turn import State
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.people.places import Reachable, TurnPosting
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    message,
    said,
    settle,
    tool_call,
)
from perdure.testkit.simulator.system import VirtualClock

CALLS = (tool_call("boats"), tool_call("nets"))
TASKS = ("count the boats", "count the nets")
LIVE_MAX = 4


async def gives_away(
    store: Store, ada: Person, *, deadline: int = 0, live_max: int = LIVE_MAX
) -> Claimed:
    """Begin a turn that has given two pieces of work away."""
    await ada.says("ask around")
    claimed = await claim_one(store)
    await store.turns.append(claimed.lease, [said(claimed.lease, "Sure.", calls=CALLS)])
    orders = [
        WorkOrder(call=call.id, agent="clerk", task=task, deadline=deadline)
        for call, task in zip(CALLS, TASKS, strict=True)
    ]
    await store.turns.wait(claimed.lease, [], orders, live_max=live_max)
    return claimed


async def state_of(store: Store, claimed: Claimed) -> str:
    record = await store.diagnostics.record(claimed.lease.session)
    (turn,) = [each for each in record.turns if each.id == claimed.lease.turn]
    return turn.state


async def errands(store: Store) -> list[Claimed]:
    found = await store.turns.claim(limit=10)
    assert {each.events[0].event.kind for each in found} <= {TurnKind.DELEGATED}  # type: ignore[union-attr]
    return found


async def test_work_that_is_given_away_is_an_errand_of_the_same_person(
    store: Store, ada: Person
) -> None:
    claimed = await gives_away(store, ada)

    with pytest.raises(Fenced):
        await settle(store, claimed)
    assert await state_of(store, claimed) == State.WAITING
    found = await errands(store)
    assert sorted(each.events[0].event.text for each in found) == sorted(TASKS)  # type: ignore[union-attr]
    assert {each.principal for each in found} == {ada.id}
    assert {each.conversation for each in found} == {claimed.conversation}
    assert {each.parent for each in found} == {None}, "it is told nothing of the conversation"
    listed = await store.archive.sessions(principal=ada.id, page=Page(with_errands=True))
    parents = {each.parent for each in listed if each.kind == TurnKind.DELEGATED}
    assert parents == {claimed.lease.session}
    await assert_sound(store, claimed.lease.session)


async def test_a_turn_goes_on_after_the_last_of_its_errands(store: Store, ada: Person) -> None:
    claimed = await gives_away(store, ada)
    first, second = await errands(store)

    await settle(store, first, "three")
    assert await state_of(store, claimed) == State.WAITING
    settled = await settle(store, second, "four")

    kinds = [type(each.event) for each in settled]
    assert kinds[-2:] == [WorkReturned, WaitEnded]
    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (claimed.lease.turn, 1)
    given = [each.event for each in again.events if isinstance(each.event, WorkDelegated)]
    done = [await store.delegations.result(each.errand) for each in given]
    assert {each.text for each in done if each} == {"three", "four"}
    assert {each.outcome for each in done if each} == {Outcome.DONE}
    await assert_sound(store, claimed.lease.session)


async def test_what_a_stopped_turn_has_given_away_is_stopped(store: Store, ada: Person) -> None:
    claimed = await gives_away(store, ada)
    assert await store.delegations.unwanted(limit=10) == []

    await store.inbox.stop(claimed.lease.turn, by=ada.id)
    unwanted = await store.delegations.unwanted(limit=10)
    assert len(unwanted) == len(TASKS)
    for errand in unwanted:
        (settled,) = [
            each.event
            for each in await store.delegations.stop(errand)
            if isinstance(each.event, TurnSettled)
        ]
        assert settled.outcome is Outcome.STOPPED
        assert await store.delegations.stop(errand) == []

    assert await store.delegations.unwanted(limit=10) == []
    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, claimed.lease.session)


async def test_an_errand_that_is_late_is_waited_for_no_longer(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    deadline = clock.now_ms() + 1_000
    claimed = await gives_away(store, ada, deadline=deadline)
    (late, done) = await errands(store)
    await settle(store, done, "in time")
    assert await store.delegations.next_deadline_ms() == deadline
    assert await store.delegations.expire(limit=10) == []

    clock.advance(2)
    recorded = [each.event for each in await store.delegations.expire(limit=10)]

    (returned,) = [each for each in recorded if isinstance(each, WorkReturned)]
    assert (returned.errand, returned.reason) == (late.lease.turn, "deadline")
    assert await store.delegations.next_deadline_ms() is None
    assert await store.delegations.unwanted(limit=10) == [late.lease.turn]
    # What it says after that is no news for anybody.
    settled = await settle(store, late, "too late")
    assert not [each for each in settled if isinstance(each.event, WorkReturned)]
    assert await store.delegations.unwanted(limit=10) == []
    assert (await claim_one(store)).lease.turn == claimed.lease.turn


async def test_a_person_has_so_much_work_given_away_at_once(store: Store, ada: Person) -> None:
    with pytest.raises(Rejected, match="1 may be at once"):
        await gives_away(store, ada, live_max=1)
    assert await store.turns.claim(limit=10) == []


async def test_an_errand_that_is_stopped_by_itself_is_told_as_that(
    store: Store, ada: Person
) -> None:
    claimed = await gives_away(store, ada)
    for each in await errands(store):
        await store.inbox.stop(each.lease.turn, by=ada.id)

    again = await claim_one(store)
    assert again.lease.turn == claimed.lease.turn
    given = [each.event for each in again.events if isinstance(each.event, WorkDelegated)]
    done = [await store.delegations.result(each.errand) for each in given]
    assert {each.outcome for each in done if each} == {Outcome.STOPPED}
    assert all("ended as stopped" in each.why for each in done if each)


def posting(claimed: Claimed, to: str) -> TurnPosting:
    return TurnPosting(
        to=to,
        text="news",
        call=CallId("call_1"),
        turn=claimed.lease.turn,
        principal=claimed.principal,
        reach=Reachable(accounts={"scripted": "bot"}),
    )


async def test_an_agent_sends_for_a_member_only_where_they_take_part(
    store: Store, ada: Person, bob: Person
) -> None:
    for who, place in ((bob, "theirs"), (ada, "ours")):
        hello = message(who.id, place=place, adapter="scripted", account="bot", external_id=place)
        await store.inbox.accept(hello, queue_max=10)
        await settle(store, await claim_one(store))
    await ada.says("tell them")
    claimed = await claim_one(store)
    post = partial(store.turns.post, claimed.lease, why="the policy", queue_max=10)

    for nowhere in ("scripted:theirs", "scripted:nobody", "home"):
        with pytest.raises((Rejected, NotFound)):
            await post(posting(claimed, nowhere))
    posted = await post(posting(claimed, "scripted:ours"))
    again = await post(posting(claimed, "scripted:ours"))

    assert [type(each.event) for each in posted.recorded][-1] is ToolFinished
    assert again.recorded == posted.recorded
    assert again.accepted.turn == posted.accepted.turn
    (sent,) = await store.turns.claim(limit=10)
    assert sent.address.name == "scripted:ours"


async def test_nothing_is_sent_by_a_turn_that_was_taken_away(store: Store, ada: Person) -> None:
    await ada.says("tell them")
    claimed = await claim_one(store)
    await store.inbox.stop(claimed.lease.turn, by=ada.id)

    with pytest.raises(Fenced):
        await store.turns.post(
            claimed.lease, posting(claimed, "home"), why="the policy", queue_max=10
        )
    assert await store.turns.claim(limit=10) == []
