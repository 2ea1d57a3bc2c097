"""Checks the `Inbox` port: an accepted message is stored once, in order, and can be stopped in any
state."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle, islice

import msgspec
import pytest

from perdure.domain.errors import Conflict, Fenced, NotFound, Rejected
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import (
    AssistantSaid,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding, Interruption, Outcome, Repeat
from perdure.domain.text import storable
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
    said,
    settle,
    tool_call,
    turn_of,
)

OpenStore = Callable[[], Awaitable[Store]]


async def test_a_message_is_stored_with_everything_it_needs(store: Store, ada: Person) -> None:
    accepted = await ada.says("good morning")

    assert not accepted.is_duplicate
    assert accepted.queue_position == 0
    (queued,) = only(TurnQueued, accepted.recorded)
    assert (queued.turn, queued.message, queued.text) == (
        accepted.turn,
        accepted.message,
        "good morning",
    )
    snapshot = await store.conversations.find("home", principal=ada.id)
    assert snapshot.view.id == accepted.conversation
    assert snapshot.view.standing.session == accepted.session
    assert snapshot.view.standing.state == "running"
    await assert_sound(store, accepted.session)


async def test_the_same_message_five_times_is_one_turn(store: Store, ada: Person) -> None:
    first = await store.inbox.accept(message(ada.id), queue_max=10)
    repeats = [await store.inbox.accept(message(ada.id), queue_max=10) for _ in range(4)]

    assert all(repeat.is_duplicate for repeat in repeats)
    assert {(r.turn, r.message, r.session, r.conversation) for r in [first, *repeats]} == {
        (first.turn, first.message, first.session, first.conversation)
    }
    record = await store.diagnostics.record(first.session)
    assert len(record.turns) == len(record.updates) == 1


async def test_the_same_message_after_a_restart_is_one_turn(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    first = await store.inbox.accept(message(ada.id), queue_max=10)

    again = await (await restart()).inbox.accept(message(ada.id), queue_max=10)

    assert again.is_duplicate
    assert again.turn == first.turn


async def test_ten_deliveries_at_once_are_one_turn(peers: list[Store], ada: Person) -> None:
    results = await asyncio.gather(
        *(each.inbox.accept(message(ada.id), queue_max=100) for each in islice(cycle(peers), 10))
    )

    assert len({result.turn for result in results}) == 1
    assert sum(not result.is_duplicate for result in results) == 1
    record = await peers[0].diagnostics.record(results[0].session)
    assert len(only(TurnQueued, record.events)) == 1
    await assert_sound(peers[0], results[0].session)


async def test_a_repeat_after_the_answer_still_finds_the_first(store: Store, ada: Person) -> None:
    first = await store.inbox.accept(message(ada.id), queue_max=10)
    await settle(store, await claim_one(store))

    again = await store.inbox.accept(message(ada.id), queue_max=10)

    assert (again.turn, again.is_duplicate) == (first.turn, True)
    assert await store.turns.claim(limit=10) == []


async def test_another_body_under_a_known_id_is_refused(store: Store, ada: Person) -> None:
    first = await store.inbox.accept(message(ada.id, "one"), queue_max=10)

    with pytest.raises(Conflict) as refused:
        await store.inbox.accept(message(ada.id, "two"), queue_max=10)

    assert refused.value.code == "id_conflict"
    record = await store.diagnostics.record(first.session)
    assert [queued.text for queued in only(TurnQueued, record.events)] == ["one"]


@pytest.mark.parametrize(
    "change",
    [
        {"agent": "other"},
        {"instructions": "be brief"},
        {"context": "[]"},
        {"tools": "[]"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_every_part_of_a_body_counts(
    store: Store, ada: Person, change: dict[str, str]
) -> None:
    call = message(ada.id, kind=UpdateKind.CALL)
    await store.inbox.accept(call, queue_max=10)

    with pytest.raises(Conflict, match="new id"):
        await store.inbox.accept(msgspec.structs.replace(call, **change), queue_max=10)


async def test_what_the_settings_of_a_place_say_is_no_part_of_a_message(
    store: Store, ada: Person
) -> None:
    # A platform offers a message again after an operator has changed the place's instructions.
    first = await store.inbox.accept(message(ada.id), queue_max=10)
    told = msgspec.structs.replace(message(ada.id), instructions="be brief")
    again = await store.inbox.accept(told, queue_max=10)
    assert (again.is_duplicate, again.turn) == (True, first.turn)


async def test_the_same_id_elsewhere_is_another_message(
    store: Store, ada: Person, bob: Person
) -> None:
    updates = [
        message(ada.id),
        message(bob.id),
        message(ada.id, kind=UpdateKind.EDIT),
        message(ada.id, adapter="chat"),
    ]

    accepted = [await store.inbox.accept(update, queue_max=10) for update in updates]

    assert len({each.turn for each in accepted}) == 4
    assert not any(each.is_duplicate for each in accepted)


async def test_a_full_queue_refuses_and_keeps_nothing(store: Store, ada: Person) -> None:
    for _ in range(2):
        await ada.says(queue_max=3)
    accepted = await ada.says(queue_max=3)

    with pytest.raises(Rejected) as refused:
        await ada.says("one too many", queue_max=3)

    assert refused.value.code == "queue_full"
    record = await store.diagnostics.record(accepted.session)
    assert len(record.updates) == len(record.turns) == 3
    assert await store.archive.search("many", principal=None, before=None, limit=10) == []
    await assert_sound(store, accepted.session)


async def test_what_is_being_answered_does_not_wait(store: Store, ada: Person) -> None:
    await ada.says("running")
    claimed = await claim_one(store)
    for _ in range(3):
        await ada.says(queue_max=3)

    with pytest.raises(Rejected, match=r"^3 messages already wait"):
        await ada.says("one too many", queue_max=3)

    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)
    with pytest.raises(Rejected, match=r"^3 messages already wait"):
        await ada.says("still one too many", queue_max=3)
    await store.nodes.resume(GO_ON, limit=9)
    await settle(store, await claim_one(store))
    await claim_one(store)
    assert (await ada.says(queue_max=3)).queue_position == 3


async def test_a_refused_message_may_be_sent_again_later(store: Store, ada: Person) -> None:
    await ada.says()
    late = message(ada.id, "late", external_id="late")
    with pytest.raises(Rejected):
        await store.inbox.accept(late, queue_max=1)
    await settle(store, await claim_one(store))

    accepted = await store.inbox.accept(late, queue_max=1)

    assert not accepted.is_duplicate


async def test_a_full_queue_still_knows_its_repeats(store: Store, ada: Person) -> None:
    first = await store.inbox.accept(message(ada.id), queue_max=1)

    again = await store.inbox.accept(message(ada.id), queue_max=1)

    assert (again.turn, again.is_duplicate) == (first.turn, True)


async def test_a_burst_while_busy_keeps_its_order(store: Store, ada: Person) -> None:
    accepted = [await ada.says(f"message {n}") for n in range(20)]

    assert [each.queue_position for each in accepted] == list(range(20))
    answered = []
    for _ in range(20):
        claimed = await claim_one(store)
        answered.append(claimed.lease.turn)
        assert await store.turns.claim(limit=10) == [], "one turn at a time"
        await settle(store, claimed)
    assert answered == [each.turn for each in accepted]
    await assert_sound(store, accepted[0].session)


async def test_thirty_two_writers_leave_no_gap(peers: list[Store], ada: Person) -> None:
    accepted = await asyncio.gather(
        *(
            each.inbox.accept(message(ada.id, f"m{n}", external_id=f"id-{n}"), queue_max=100)
            for n, each in enumerate(islice(cycle(peers), 32))
        )
    )

    (session,) = {each.session for each in accepted}
    assert sorted(each.queue_position for each in accepted) == list(range(32))
    record = await peers[0].diagnostics.record(session)
    assert [recorded.seq for recorded in record.events] == list(range(1, 34))
    await assert_sound(peers[0], session)


async def test_what_no_database_holds_is_replaced_at_the_edge(store: Store, ada: Person) -> None:
    text = storable("nul \x00, half a pair \ud83d, a pair \ud83d\ude00, plain 😀 é")

    accepted = await ada.says(text)

    claimed = await claim_one(store)
    (queued,) = only(TurnQueued, claimed.events)
    assert queued.text == text == "nul �, half a pair �, a pair 😀, plain 😀 é"
    assert await flush(store, claimed.lease, text) == []
    snapshot = await store.conversations.snapshot(accepted.conversation)
    assert snapshot.running is not None
    assert snapshot.running.text == text


async def test_a_very_long_message_is_kept_whole(store: Store, ada: Person) -> None:
    text = "wörter " * 150_000

    await ada.says(text)

    claimed = await claim_one(store)
    (queued,) = only(TurnQueued, claimed.events)
    assert queued.text == text


async def test_a_turn_that_is_stopped_before_it_ran_never_runs(store: Store, ada: Person) -> None:
    accepted = await ada.says()

    recorded = await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert [settled.outcome for settled in only(TurnSettled, recorded)] == [Outcome.STOPPED]
    assert await store.turns.claim(limit=10) == []
    assert (await store.diagnostics.record(accepted.session)).head is None
    await assert_sound(store, accepted.session)


async def test_stop_keeps_what_was_shown(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "so far ")
    await flush(store, claimed.lease, "so good", start=7)

    recorded = await store.inbox.stop(turn_of(accepted), by=ada.id)

    (final,) = only(AssistantSaid, recorded)
    assert (final.text, final.is_interrupted) == ("so far so good", False)
    record = await store.diagnostics.record(accepted.session)
    assert record.head == accepted.turn
    assert record.partials == ()
    await assert_sound(store, accepted.session)


async def test_nothing_late_is_written_after_a_stop(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    await store.inbox.stop(turn_of(accepted), by=ada.id)
    before = await store.diagnostics.record(accepted.session)

    assert await flush(store, claimed.lease, "late") == [claimed.lease]
    with pytest.raises(Fenced):
        await store.turns.append(claimed.lease, [said(claimed.lease, "late")])
    with pytest.raises(Fenced):
        await settle(store, claimed, "late", parts=("late",))

    assert await store.diagnostics.record(accepted.session) == before


async def test_stop_closes_calls_by_what_may_have_happened(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    claimed = await claim_one(store)
    calls = (
        tool_call("pay"),
        tool_call("look", repeat=Repeat.PURE),
        tool_call("mail"),
        tool_call("done"),
    )
    lease = claimed.lease
    await store.turns.append(lease, [said(lease, "working", calls=calls)])
    started = [ToolStarted(turn=lease.turn, call=calls[n].id) for n in (0, 1, 3)]
    returned = ToolFinished(
        turn=lease.turn, call=calls[3].id, ending=CallEnding.RETURNED, result="ok"
    )
    await store.turns.append(lease, [*started, returned])

    recorded = await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert {(e.call, e.ending) for e in only(ToolFinished, recorded)} == {
        (calls[0].id, CallEnding.UNKNOWN),
        (calls[1].id, CallEnding.INTERRUPTED),
        (calls[2].id, CallEnding.INTERRUPTED),
    }
    await ada.says("next")
    await next_request(store, await claim_one(store))
    await assert_sound(store, accepted.session)


async def test_a_stopped_interrupted_turn_is_not_resumed(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says("first")
    await ada.says("second")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "half")
    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)

    await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert (await store.nodes.resume(GO_ON, limit=10)).recorded == []
    following = await claim_one(store)
    assert following.parent == accepted.turn
    await assert_sound(store, accepted.session)


async def test_a_stopped_turn_that_waits_to_be_resumed_is_not_claimed(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    accepted = await ada.says()
    await claim_one(store)
    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=10)
    await store.nodes.resume(GO_ON, limit=10)

    await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert await store.turns.claim(limit=10) == []
    await assert_sound(store, accepted.session)


async def test_stopping_a_queued_turn_leaves_the_running_one_alone(
    store: Store, ada: Person
) -> None:
    await ada.says("first")
    second = await ada.says("second")
    claimed = await claim_one(store)

    await store.inbox.stop(turn_of(second), by=ada.id)

    assert await flush(store, claimed.lease, "still ") == []
    await store.turns.append(claimed.lease, [said(claimed.lease, "still here")])
    await settle(store, claimed, "")
    await assert_sound(store, second.session)


async def test_stop_lets_the_next_message_run(store: Store, ada: Person) -> None:
    first, second = await ada.says("first"), await ada.says("second")
    await claim_one(store)

    await store.inbox.stop(turn_of(first), by=ada.id)

    assert (await claim_one(store)).lease.turn == second.turn


async def test_a_settled_turn_cannot_be_stopped(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    await settle(store, await claim_one(store))
    before = await store.diagnostics.record(accepted.session)

    with pytest.raises(Conflict, match="finished"):
        await store.inbox.stop(turn_of(accepted), by=ada.id)

    assert await store.diagnostics.record(accepted.session) == before


async def test_only_its_owner_and_operators_stop_a_turn(
    store: Store, ada: Person, bob: Person
) -> None:
    accepted = await ada.says()

    with pytest.raises(NotFound):
        await store.inbox.stop(turn_of(accepted), by=bob.id)
    with pytest.raises(NotFound):
        await store.inbox.stop(TurnId("trn_nobody"), by=None)

    await store.inbox.stop(turn_of(accepted), by=None)
    assert (await store.archive.turn(turn_of(accepted), principal=None)).outcome == "stopped"


@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
async def test_of_many_stops_at_once_one_wins(
    peers: list[Store], ada: Person, running: bool
) -> None:
    accepted = await ada.says()
    if running:
        claimed = await claim_one(peers[0])
        await flush(peers[0], claimed.lease, "half")

    results = await asyncio.gather(
        *(each.inbox.stop(turn_of(accepted), by=ada.id) for each in islice(cycle(peers), 8)),
        return_exceptions=True,
    )

    assert sum(isinstance(result, list) for result in results) == 1
    assert all(isinstance(result, list | Conflict) for result in results), results
    await assert_sound(peers[0], accepted.session)


async def test_of_a_stop_and_a_settle_at_once_one_wins(peers: list[Store], ada: Person) -> None:
    sessions = set()
    for _ in range(20):
        accepted = await ada.says()
        sessions.add(accepted.session)
        claimed = await claim_one(peers[0])
        await flush(peers[0], claimed.lease, "half")
        results = await asyncio.gather(
            peers[-1].inbox.stop(turn_of(accepted), by=ada.id),
            settle(peers[0], claimed, "half and half"),
            return_exceptions=True,
        )
        assert sum(isinstance(result, list) for result in results) == 1, results
        assert sum(isinstance(result, Conflict) for result in results) == 1, results
    await assert_sound(peers[0], *sessions)


async def test_overlapping_pieces_are_told_apart_by_their_start(store: Store, ada: Person) -> None:
    # A piece of unknown fate is written again, by then with more text behind it.
    accepted = await ada.says()
    lease = (await claim_one(store)).lease
    await store.turns.flush([piece(lease, "Hello ")])
    await store.turns.flush([piece(lease, "wor", start=6)])

    await store.turns.flush([piece(lease, "world", start=6)])

    recorded = await store.inbox.stop(turn_of(accepted), by=None)
    assert [e.text for e in only(AssistantSaid, recorded)] == ["Hello world"]


async def test_a_piece_may_be_written_twice_at_once(store: Store, ada: Person) -> None:
    accepted = await ada.says()
    lease = (await claim_one(store)).lease

    lost = await store.turns.flush([piece(lease, "Hel"), piece(lease, "Hello")])
    lost += await store.turns.flush([piece(lease, "Hello")])

    assert lost == []
    recorded = await store.inbox.stop(turn_of(accepted), by=None)
    assert [e.text for e in only(AssistantSaid, recorded)] == ["Hello"]


async def test_a_late_copy_of_a_piece_takes_no_words_away(store: Store, ada: Person) -> None:
    # A connection was lost, and its write is committed after the one that came behind it.
    accepted = await ada.says()
    lease = (await claim_one(store)).lease
    await store.turns.flush([piece(lease, "Hello ")])
    await store.turns.flush([piece(lease, "world", start=6)])

    await store.turns.flush([piece(lease, "wor", start=6)])

    recorded = await store.inbox.stop(turn_of(accepted), by=None)
    assert [e.text for e in only(AssistantSaid, recorded)] == ["Hello world"]
