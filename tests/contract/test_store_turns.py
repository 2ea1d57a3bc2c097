"""Checks the `Turns` and `Nodes` ports: each turn runs once at a time, is fenced, and outlives its
owner."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle, islice

import pytest

from perdure.domain.address import HTTP
from perdure.domain.errors import Fenced
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    NoticePosted,
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.model.reach import Missed, Reach
from perdure.domain.journal.session_events import SessionOpened
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, Repeat
from perdure.domain.turn.recovery import given_up_text
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
    assert_sound,
    claim_one,
    flush,
    message,
    next_request,
    only,
    piece,
    reply_id,
    said,
    settle,
    tool_call,
    turn_of,
)

OpenStore = Callable[[], Awaitable[Store]]
OpenStores = Callable[[], Awaitable[list[Store]]]


async def turn_events(store: Store, session: SessionId, turn: TurnId) -> list[Recorded]:
    record = await store.diagnostics.record(session)
    return [recorded for recorded in record.events if recorded.turn == turn]


async def crowd(store: Store, ada: Person, size: int) -> set[SessionId]:
    """Send one message in each of many conversations."""
    accepted = [
        await store.inbox.accept(
            message(ada.id, external_id=f"c{n}", place=f"room-{n}"), queue_max=9
        )
        for n in range(size)
    ]
    return {each.session for each in accepted}


async def test_a_claim_brings_all_a_runner_needs(store: Store, ada: Person) -> None:
    accepted = await ada.says("what is new?")

    claimed = await claim_one(store)

    assert claimed.lease.turn == accepted.turn
    assert claimed.lease.attempt == 1
    assert claimed.conversation == accepted.conversation
    assert claimed.principal == ada.id
    assert claimed.address.place == "home"
    assert claimed.parent is None
    assert [type(recorded.event) for recorded in claimed.events] == [TurnQueued, TurnStarted]
    (started,) = only(TurnStarted, claimed.events)
    assert started.node == store.node


async def test_an_empty_store_has_nothing_to_claim(store: Store) -> None:
    assert await store.turns.claim(limit=10) == []


async def test_a_claim_takes_no_more_than_asked(store: Store, ada: Person) -> None:
    await crowd(store, ada, 5)

    assert len(await store.turns.claim(limit=2)) == 2
    assert len(await store.turns.claim(limit=10)) == 3


async def test_eight_claimers_get_each_turn_once(peers: list[Store], ada: Person) -> None:
    sessions = await crowd(peers[0], ada, 40)

    rounds = await asyncio.gather(*(each.turns.claim(limit=7) for each in islice(cycle(peers), 8)))
    rounds.append(await peers[0].turns.claim(limit=100))

    claimed = [each.lease.session for taken in rounds for each in taken]
    assert len(claimed) == len(set(claimed)) == 40
    assert set(claimed) == sessions
    await assert_sound(peers[0], *sessions)


async def test_claimers_of_one_session_do_not_overtake(peers: list[Store], ada: Person) -> None:
    accepted = [await ada.says(f"m{n}") for n in range(6)]
    ran = []
    for _ in accepted:
        taken = await asyncio.gather(
            *(each.turns.claim(limit=5) for each in islice(cycle(peers), 8))
        )
        (claimed,) = [each for some in taken for each in some]
        ran.append(claimed.lease.turn)
        await settle(peers[0], claimed)

    assert ran == [each.turn for each in accepted]


async def test_each_claim_has_a_higher_epoch(store: Store, ada: Person) -> None:
    epochs = []
    for _ in range(3):
        await ada.says()
        claimed = await claim_one(store)
        epochs.append(claimed.lease.epoch)
        await settle(store, claimed)

    assert epochs == sorted(set(epochs))


async def test_nothing_begins_beside_a_turn_that_runs(store: Store, ada: Person) -> None:
    await ada.says("one")
    running = await claim_one(store)

    received = await store.inbox.accept_and_start(message(ada.id, "two"), queue_max=9)

    assert received.claimed is None
    assert received.accepted.turn != running.lease.turn


async def test_the_head_is_the_parent_of_the_next_turn(store: Store, ada: Person) -> None:
    first = await ada.is_answered("one", "1")
    await ada.says("two")

    claimed = await claim_one(store)

    assert claimed.parent == first
    assert len((await next_request(store, claimed)).messages) == 2


async def test_flushed_text_can_be_seen_and_grows(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    lease = (await claim_one(store)).lease

    for start, text in [(0, "Good "), (5, "morn"), (9, "ing")]:
        assert await flush(store, lease, text, start=start) == []

    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.running is not None
    assert snapshot.running.text == "Good morning"
    assert snapshot.running.message == reply_id(lease)
    assert (await store.diagnostics.record(accepted.session)).partials == (lease.turn,)


async def test_one_flush_may_carry_many_turns_and_names_the_stale(
    store: Store, ada: Person
) -> None:
    await crowd(store, ada, 6)
    leases = [each.lease for each in await store.turns.claim(limit=10)]
    stopped = leases[::2]
    for lease in stopped:
        await store.inbox.stop(lease.turn, by=None)

    stale = await store.turns.flush([piece(lease, "text") for lease in leases])

    assert stale == stopped


async def test_a_stale_lease_is_named_beside_a_fresh_one_of_its_turn(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says()
    old = (await claim_one(store)).lease
    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)
    await store.nodes.resume(GO_ON, limit=10)
    new = (await claim_one(store)).lease

    stale = await store.turns.flush([piece(old, "old"), piece(new, "new")])

    assert stale == [old]
    recorded = await store.inbox.stop(turn_of(accepted), by=None)
    assert [e.text for e in only(AssistantSaid, recorded)] == ["new"]


async def test_an_empty_flush_is_nothing(store: Store) -> None:
    assert await store.turns.flush([]) == []


async def test_a_final_message_takes_the_place_of_its_partials(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    lease = (await claim_one(store)).lease
    await flush(store, lease, "Let me ")

    recorded = await store.turns.append(
        lease, [said(lease, "Let me see.", calls=(tool_call("look"),))]
    )

    assert [each.seq for each in recorded] == [4]
    record = await store.diagnostics.record(accepted.session)
    assert record.partials == ()
    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.running is None
    assert snapshot.said == (reply_id(lease),)


async def test_an_append_may_carry_the_first_piece(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says()
    await claim_one(store)
    store = await restart()
    (interrupted,) = await store.nodes.reap(attempts_max=3, limit=10)
    await store.nodes.resume(GO_ON, limit=10)
    lease = (await claim_one(store)).lease
    told = InterruptionAcknowledged(turn=lease.turn, interruption=interrupted.seq)

    await store.turns.append(lease, [told], piece=piece(lease, "Again: "))

    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.running is not None
    assert snapshot.running.text == "Again: "
    await assert_sound(store, accepted.session)


async def test_settle_ends_the_turn_and_moves_everything_with_it(store: Store, ada: Person) -> None:
    first, second = await ada.says("one"), await ada.says("two")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "Hel")

    recorded = await settle(store, claimed, "Hello", parts=("Hel", "lo"))

    assert [type(each.event) for each in recorded] == [AssistantSaid, TurnSettled]
    record = await store.diagnostics.record(first.session)
    assert record.head == first.turn
    assert record.partials == ()
    assert record.ready_at is not None, "the next message can run"
    assert [(part.part, part.text, part.state) for part in record.parts] == [
        (0, "Hel", "pending"),
        (1, "lo", "pending"),
    ]
    view = await store.archive.turn(claimed.lease.turn, principal=None)
    assert (view.state, view.outcome, view.attempts) == ("settled", "done", 1)
    assert (await claim_one(store)).lease.turn == second.turn
    await assert_sound(store, first.session)


@pytest.mark.parametrize("adapter", [HTTP, "scripted"])
async def test_people_are_told_of_a_turn_that_goes_on(
    store: Store, ada: Person, adapter: str
) -> None:
    person = Person(store, ada.id, adapter=adapter)
    accepted = await person.says()
    claimed = await claim_one(store)

    (told,) = await store.turns.tell(claimed.lease, "still being tried")

    assert isinstance(told.event, NoticePosted)
    assert (told.event.about, told.event.text) == (accepted.turn, "still being tried")
    parts = [part.text for part in await store.outbox.take(adapter="scripted", limit=9)]
    assert parts == ([] if adapter == HTTP else ["still being tried"])
    await settle(store, claimed)
    with pytest.raises(Fenced):
        await store.turns.tell(claimed.lease, "too late")
    await person.says("more")
    request = await next_request(store, await claim_one(store))
    assert "still being tried" not in repr(request)
    await assert_sound(store, accepted.session)


async def test_a_settlement_keeps_what_it_took(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    missed = Missed(agent="main", reason="provider_unreachable", detail="nothing answers")
    reach = Reach(missed=(missed,), waited_s=7, status=429, retry_after_s=5)
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        agent="spare",
        message=reply_id(claimed.lease),
        text="fine",
        reach=reach,
        note="Answered by spare.",
    )

    await store.turns.settle(claimed.lease, settlement)

    record = await store.diagnostics.record(accepted.session)
    assert [event.reach for event in only(TurnSettled, record.events)] == [reach]
    (notice,) = only(NoticePosted, record.events)
    assert (notice.text, notice.about) == ("Answered by spare.", accepted.turn)
    await assert_sound(store, accepted.session)


async def test_a_settled_turn_takes_nothing_more(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await settle(store, claimed, "done", parts=("done",))
    before = await store.diagnostics.record(accepted.session)

    assert await flush(store, claimed.lease, "late") == [claimed.lease]
    with pytest.raises(Fenced):
        await store.turns.append(claimed.lease, [said(claimed.lease, "late")])
    with pytest.raises(Fenced):
        await settle(store, claimed, "again", parts=("again",))
    with pytest.raises(Fenced):
        await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)

    assert await store.diagnostics.record(accepted.session) == before


async def test_a_turn_may_end_without_a_word(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    silent = Settlement(outcome=Outcome.FAILED, reason="provider_error", detail="500")

    (recorded,) = (await store.turns.settle(claimed.lease, silent)).recorded

    assert isinstance(recorded.event, TurnSettled)
    assert recorded.event.detail == "500"
    await ada.says("next")
    await next_request(store, await claim_one(store))
    await assert_sound(store, accepted.session)


async def test_a_failed_turn_leaves_no_call_open(store: Store, ada: Person) -> None:
    # The time of a turn may run out while a tool works, and the next request must still be valid.
    accepted = await ada.says()
    lease = (await claim_one(store)).lease
    calls = (tool_call("slow"), tool_call("next", repeat=Repeat.PURE))
    await store.turns.append(
        lease,
        [said(lease, "", calls=calls), ToolStarted(turn=lease.turn, call=calls[0].id)],
    )

    recorded = (
        await store.turns.settle(lease, Settlement(outcome=Outcome.FAILED, reason="turn_timeout"))
    ).recorded

    assert [(e.call, e.ending) for e in only(ToolFinished, recorded)] == [
        (calls[0].id, CallEnding.UNKNOWN),
        (calls[1].id, CallEnding.INTERRUPTED),
    ]
    await ada.says("still there?")
    await next_request(store, await claim_one(store))
    await assert_sound(store, accepted.session)


async def test_a_callers_own_calls_stay_the_callers(store: Store, ada: Person) -> None:
    await ada.says()
    claimed = await claim_one(store)
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="tool_calls",
        message=reply_id(claimed.lease),
        calls=(tool_call("theirs"),),
    )

    recorded = (await store.turns.settle(claimed.lease, settlement)).recorded

    assert only(ToolFinished, recorded) == []
    assert [said.calls for said in only(AssistantSaid, recorded)] == [settlement.calls]


async def test_text_that_was_shown_is_never_dropped_by_a_settlement(
    store: Store, ada: Person
) -> None:
    # If a runner ends a turn without naming its message, the text that people have read must be
    # kept.
    accepted = await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "This was read by someone.")

    await store.turns.settle(
        claimed.lease, Settlement(outcome=Outcome.FAILED, reason="agent_error")
    )

    record = await store.diagnostics.record(accepted.session)
    assert [s.text for s in only(AssistantSaid, record.events)] == ["This was read by someone."]


async def test_a_settlement_that_says_something_else_keeps_what_was_shown(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    shown = piece(claimed.lease, "This was read by someone.")
    await store.turns.flush([shown])

    await store.turns.settle(
        claimed.lease,
        Settlement(outcome=Outcome.DONE, reason="stop", message=shown.message, text="Not this."),
    )

    record = await store.diagnostics.record(accepted.session)
    assert [s.text for s in only(AssistantSaid, record.events)] == ["This was read by someone."]


async def test_two_settlements_at_once_are_one(peers: list[Store], ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(peers[0])

    results = await asyncio.gather(
        *(settle(each, claimed, "once", parts=("once",)) for each in islice(cycle(peers), 6)),
        return_exceptions=True,
    )

    assert sum(isinstance(result, list) for result in results) == 1
    assert sum(isinstance(result, Fenced) for result in results) == 5
    await assert_sound(peers[0], accepted.session)


async def test_writers_of_one_session_leave_no_gap(peers: list[Store], ada: Person) -> None:
    # The runner's events and the arriving messages share one sequence of numbers.
    accepted = await ada.says()
    lease = (await claim_one(peers[0])).lease
    calls = tuple(tool_call(f"t{n}", repeat=Repeat.PURE) for n in range(16))
    await peers[0].turns.append(lease, [said(lease, "", calls=calls)])

    await asyncio.gather(
        *(
            each.turns.append(lease, [ToolStarted(turn=lease.turn, call=call.id)])
            for each, call in zip(cycle(peers), calls, strict=False)
        ),
        *(
            each.inbox.accept(message(ada.id, external_id=f"x{n}"), queue_max=99)
            for n, each in enumerate(islice(cycle(peers), 16))
        ),
    )

    record = await peers[0].diagnostics.record(accepted.session)
    assert len(record.events) == 4 + 32
    await assert_sound(peers[0], accepted.session)


async def test_interrupt_parks_the_turn_with_its_text(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "half")

    recorded = await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=1)

    assert [type(each.event) for each in recorded] == [AssistantSaid, AttemptInterrupted]
    (kept,) = only(AssistantSaid, recorded)
    assert (kept.text, kept.is_interrupted) == ("half", True)
    record = await store.diagnostics.record(accepted.session)
    assert record.strikes == 0, "a planned stop is nobody's fault"
    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.view.standing.state == "resume_pending"
    assert snapshot.view.standing.resume_reason == "shutdown"
    assert await flush(store, claimed.lease, "late") == [claimed.lease]
    await assert_sound(store, accepted.session)


async def test_blank_text_is_no_message(store: Store, ada: Person) -> None:
    await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, " \n")

    recorded = await store.turns.interrupt(claimed.lease, Interruption.RESTART, attempts_max=3)

    assert only(AssistantSaid, recorded) == []


async def test_a_living_node_is_not_reaped(peers: list[Store], ada: Person) -> None:
    await ada.says()
    claimed = await claim_one(peers[0])

    assert await peers[0].nodes.beat()
    # No node ends its own turns here, so it is the other one that shows whether the lease counts.
    for each in peers:
        assert await each.nodes.reap(attempts_max=3, limit=10) == []
    await settle(peers[0], claimed)


async def test_a_dead_nodes_turn_is_ended_resumed_and_finished(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says("a long story")
    waiting = await ada.says("and then?")
    old = await claim_one(store)
    calls = (tool_call("pay"), tool_call("look", repeat=Repeat.PURE))
    await store.turns.append(
        old.lease,
        [said(old.lease, "Once", calls=calls), ToolStarted(turn=old.lease.turn, call=calls[0].id)],
    )
    store = await restart()

    ended = await store.nodes.reap(attempts_max=3, limit=10)

    assert [(e.call, e.ending) for e in only(ToolFinished, ended)] == [
        (calls[0].id, CallEnding.UNKNOWN),
    ], "what never started is still to be run"
    (interrupted,) = only(AttemptInterrupted, ended)
    assert (interrupted.reason, interrupted.attempt) == (Interruption.CRASH, 1)
    assert interrupted.tail, "it names the results it left behind"
    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.view.standing.state == "resume_pending"
    assert await store.turns.claim(limit=10) == [], "the next message waits"
    await assert_sound(store, accepted.session)

    (requeued,) = only(TurnRequeued, (await store.nodes.resume(GO_ON, limit=10)).recorded)
    assert requeued.turn == accepted.turn
    again = await claim_one(store)
    assert again.lease.turn == accepted.turn
    assert again.lease.attempt == 2
    assert again.lease.epoch > old.lease.epoch
    with pytest.raises(Fenced):
        await settle(store, old, "from the grave")
    await settle(store, again, "upon a time")
    closed = only(ToolFinished, await turn_events(store, accepted.session, again.lease.turn))
    assert [(e.call, e.ending) for e in closed] == [
        (calls[0].id, CallEnding.UNKNOWN),
        (calls[1].id, CallEnding.INTERRUPTED),
    ]
    assert (await claim_one(store)).lease.turn == waiting.turn
    await assert_sound(store, accepted.session)


async def test_the_text_of_each_attempt_is_kept(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says()
    for n in range(2):
        claimed = await claim_one(store)
        await flush(store, claimed.lease, f"attempt {n} ")
        await flush(store, claimed.lease, "began", start=10)
        store = await restart()
        await store.nodes.reap(attempts_max=9, limit=10)
        await store.nodes.resume(GO_ON, limit=10)
    claimed = await claim_one(store)
    await settle(store, claimed, "finished")

    record = await store.diagnostics.record(accepted.session)
    assert [s.text for s in only(AssistantSaid, record.events)] == [
        "attempt 0 began",
        "attempt 1 began",
        "finished",
    ]
    await assert_sound(store, accepted.session)


async def test_reap_and_resume_take_no_more_than_asked(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    sessions = await crowd(store, ada, 5)
    await store.turns.claim(limit=10)
    store = await restart()

    ended = [await store.nodes.reap(attempts_max=3, limit=2) for _ in range(4)]
    resumed = [(await store.nodes.resume(GO_ON, limit=3)).recorded for _ in range(3)]

    assert [len(only(AttemptInterrupted, some)) for some in ended] == [2, 2, 1, 0]
    assert [len(only(TurnRequeued, some)) for some in resumed] == [3, 2, 0]
    assert len(await store.turns.claim(limit=10)) == 5
    await assert_sound(store, *sessions)


async def test_many_reapers_end_an_attempt_once(
    store: Store, ada: Person, restart_peers: OpenStores
) -> None:
    sessions = await crowd(store, ada, 10)
    await store.turns.claim(limit=10)
    reapers = await restart_peers()

    ended = await asyncio.gather(
        *(each.nodes.reap(attempts_max=2, limit=50) for each in islice(cycle(reapers), 6))
    )

    assert len([e for some in ended for e in only(AttemptInterrupted, some)]) == 10
    resumed = await asyncio.gather(
        *(each.nodes.resume(GO_ON, limit=50) for each in islice(cycle(reapers), 6))
    )
    assert len([e for some in resumed for e in only(TurnRequeued, some.recorded)]) == 10
    await assert_sound(reapers[0], *sessions)


async def crash(store: Store, restart: OpenStore, *, attempts_max: int) -> tuple[Store, Claimed]:
    """Claim the next turn and kill the process. The next one cleans up."""
    claimed = await claim_one(store)
    store = await restart()
    await store.nodes.reap(attempts_max=attempts_max, limit=10)
    await store.nodes.resume(GO_ON, limit=10)
    return store, claimed


async def test_three_crashes_suspend_the_session_and_the_next_message_starts_clean(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    poison = await ada.says("poison")
    for _ in range(3):
        store, _ = await crash(store, restart, attempts_max=3)

    assert await store.turns.claim(limit=10) == []
    old = await store.diagnostics.record(poison.session)
    assert old.session.state == "suspended"
    assert [(turn.id, turn.outcome) for turn in old.turns] == [(poison.turn, "suspended")]
    assert [event.text for event in only(NoticePosted, old.events)] == [
        given_up_text(3, goes_on=False)
    ]
    snapshot = await store.conversations.snapshot(poison.conversation)
    assert snapshot.view.standing.state == "suspended"
    await assert_sound(store, poison.session)

    fresh = await store.inbox.accept(message(ada.id, "hello?", external_id="n"), queue_max=9)

    assert fresh.conversation == poison.conversation
    assert fresh.session != poison.session
    record = await store.diagnostics.record(fresh.session)
    (opened,) = only(SessionOpened, record.events)
    assert (opened.parent, opened.reason) == (poison.session, "suspended")
    assert record.session.parent == poison.session
    after = await store.conversations.snapshot(poison.conversation)
    assert after.view.generation == snapshot.view.generation + 1
    claimed = await claim_one(store)
    assert (claimed.lease.turn, claimed.parent) == (fresh.turn, None)
    await settle(store, claimed)
    assert not (await store.archive.session(poison.session, principal=ada.id)).is_live
    await assert_sound(store, fresh.session, poison.session)


async def test_a_burst_after_a_suspension_opens_one_session(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    await ada.says("poison")
    store, _ = await crash(store, restart, attempts_max=1)

    accepted = await asyncio.gather(
        *(store.inbox.accept(message(ada.id, external_id=f"b{n}"), queue_max=99) for n in range(10))
    )

    (session,) = {each.session for each in accepted}
    await assert_sound(store, session)


async def test_an_answer_forgives_earlier_crashes(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says()
    for _ in range(2):
        store, _ = await crash(store, restart, attempts_max=3)
    await settle(store, await claim_one(store))
    assert (await store.diagnostics.record(accepted.session)).strikes == 0

    await store.inbox.accept(message(ada.id, external_id="next"), queue_max=9)
    for _ in range(2):
        store, _ = await crash(store, restart, attempts_max=3)

    assert (await claim_one(store)).lease.attempt == 3


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
async def test_a_failure_forgives_nothing(
    store: Store, ada: Person, restart: OpenStore, outcome: Outcome
) -> None:
    accepted = await ada.says()
    store, _ = await crash(store, restart, attempts_max=3)

    await settle(store, await claim_one(store), outcome=outcome)

    assert (await store.diagnostics.record(accepted.session)).strikes == 1


async def test_a_drain_that_ran_out_of_time_counts(store: Store, ada: Person) -> None:
    await ada.says()
    claimed = await claim_one(store)

    recorded = await store.turns.interrupt(
        claimed.lease, Interruption.DRAIN_TIMEOUT, attempts_max=1
    )

    assert [e.outcome for e in only(TurnSettled, recorded)] == [Outcome.SUSPENDED]


async def test_a_node_that_left_owns_nothing(
    store: Store, ada: Person, open_store: OpenStore
) -> None:
    await ada.says()
    await claim_one(store)
    await store.nodes.leave()
    await store.turns.flush([], beats=True)
    assert not await store.nodes.beat(), "who left does not come back"

    other = await open_store()

    assert len(only(AttemptInterrupted, await other.nodes.reap(attempts_max=3, limit=9))) == 1


async def test_unfinished_text_of_two_messages_stays_two_messages(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says()
    lease = (await claim_one(store)).lease
    for name in ("msg_a", "msg_b"):
        await store.turns.flush([piece(lease, f"text of {name}", of=MessageId(name))])

    recorded = await store.inbox.stop(turn_of(accepted), by=None)

    assert [(s.message, s.text) for s in only(AssistantSaid, recorded)] == [
        ("msg_a", "text of msg_a"),
        ("msg_b", "text of msg_b"),
    ]


async def test_a_claim_whose_answer_was_lost_is_put_back(peers: list[Store], ada: Person) -> None:
    sessions = await crowd(peers[0], ada, 3)
    known, lost = await peers[0].turns.claim(limit=2)
    others = await peers[-1].turns.claim(limit=1)

    ended = await peers[0].nodes.reclaim(
        known=[known.lease.turn, *(each.lease.turn for each in others)], attempts_max=3
    )

    assert [e.turn for e in only(AttemptInterrupted, ended)] == [lost.lease.turn]
    for living in (known, *others):
        assert await flush(peers[0], living.lease, "going on") == []
    assert await flush(peers[0], lost.lease, "late") == [lost.lease]
    await peers[0].nodes.resume(GO_ON, limit=9)
    assert (await claim_one(peers[0])).lease.turn == lost.lease.turn
    await assert_sound(peers[0], *sessions)
