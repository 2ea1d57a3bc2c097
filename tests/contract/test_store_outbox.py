"""Checks the `Outbox` port: parts leave in order, each is tried by one owner, and none is
forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle, islice

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.delivery import LEGAL, DeliveryStep, PartState
from perdure.domain.errors import Conflict, Fenced, NotFound
from perdure.domain.ids import PartId
from perdure.domain.waits import AT_ONCE
from perdure.ports.delivery.outbox import Part
from perdure.store.operations.delivery.notices import notice
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, assert_sound, claim_one, message, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "chat"


@pytest.fixture
async def eve(store: Store) -> Person:
    """Return a person on a platform that replies are sent to."""
    principal = await store.principals.ensure("eve", role="member")
    return Person(store, principal.id, adapter=CHAT, place="room")


async def take_one(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=1)
    return part


async def state_of(store: Store, part: PartId) -> str:
    explained = await store.diagnostics.explain(part, principal=None)
    return next(each.state for each in explained.parts if each.id == part)


async def test_a_part_says_where_it_goes(store: Store, eve: Person) -> None:
    turn = await eve.is_answered("hi", "hello", parts=("hello",))

    part = await take_one(store)

    assert (part.turn, part.index, part.text, part.attempts) == (turn, 0, "hello", 1)
    assert (part.address.adapter, part.address.place) == (CHAT, "room")


async def test_parts_leave_one_by_one_in_order(store: Store, eve: Person) -> None:
    await eve.is_answered("1", "abc", parts=("a", "b", "c"))
    await eve.is_answered("2", "d", parts=("d",))
    sent = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        assert await store.outbox.take(adapter=CHAT, limit=10) == [], "the next one waits"
        await store.outbox.record(part.id, PartState.SENT, receipt=f"r{part.text}")
        sent.append(part.text)

    assert sent == ["a", "b", "c", "d"]
    assert (await store.diagnostics.counts()).outbox_pending == 0


async def test_a_part_knows_where_the_one_before_it_arrived(store: Store, eve: Person) -> None:
    # A platform may have opened a thread for the first part, and the next ones belong there.
    await eve.is_answered("1", "abc", parts=("a", "b", "c"))
    await eve.is_answered("2", "d", parts=("d",))
    known = []
    for state in (PartState.SENT, PartState.FAILED, PartState.SENT, PartState.SENT):
        part = await take_one(store)
        known.append((part.text, part.after))
        receipt = f"r{part.text}" if state is PartState.SENT else ""
        await store.outbox.record(part.id, state, receipt=receipt)

    assert known == [("a", ""), ("b", "ra"), ("c", "ra"), ("d", "")]


async def test_conversations_do_not_wait_for_each_other(store: Store, eve: Person) -> None:
    other = Person(store, eve.id, adapter=CHAT, place="elsewhere")
    await eve.is_answered("1", "a", parts=("a",))
    await other.is_answered("2", "b", parts=("b",))

    taken = await store.outbox.take(adapter=CHAT, limit=10)

    assert {part.text for part in taken} == {"a", "b"}


async def test_each_part_is_taken_once(peers: list[Store], eve: Person) -> None:
    for n in range(12):
        person = Person(peers[0], eve.id, adapter=CHAT, place=f"p{n}")
        await person.is_answered("?", "!", parts=("!", "?"))

    taken = await asyncio.gather(
        *(each.outbox.take(adapter=CHAT, limit=5) for each in islice(cycle(peers), 8))
    )
    taken.append(await peers[0].outbox.take(adapter=CHAT, limit=50))

    ids = [part.id for some in taken for part in some]
    assert len(ids) == len(set(ids)) == 12
    assert {part.index for some in taken for part in some} == {0}


async def test_an_adapter_gets_its_own_parts_only(store: Store, eve: Person) -> None:
    await eve.is_answered("hi", "hello", parts=("hello",))

    assert await store.outbox.take(adapter="another", limit=10) == []


async def test_a_definite_failure_waits_for_its_time(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "ab", parts=("a", "b"))
    part = await take_one(store)

    await store.outbox.record(part.id, PartState.PENDING, error="429", due_in_s=5)

    assert await store.outbox.take(adapter=CHAT, limit=10) == [], "the later part waits too"
    assert await store.outbox.next_due_ms() is not None
    clock.advance(4.9)
    assert await store.outbox.take(adapter=CHAT, limit=10) == []
    clock.advance(0.1)
    again = await take_one(store)
    assert (again.id, again.attempts) == (part.id, 2)


async def test_the_next_due_time_is_the_earliest(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    assert await store.outbox.next_due_ms() is None
    await eve.is_answered("hi", "a", parts=("a",))
    assert await store.outbox.next_due_ms() == AT_ONCE

    part = await take_one(store)
    assert await store.outbox.next_due_ms() is None
    await store.outbox.record(part.id, PartState.PENDING, due_in_s=2.5)

    assert await store.outbox.next_due_ms() == clock.now_ms() + 2500


@pytest.mark.parametrize("end", [PartState.UNKNOWN, PartState.FAILED])
async def test_a_part_that_will_not_arrive_is_shown_and_holds_nobody_up(
    store: Store, eve: Person, end: PartState
) -> None:
    await eve.is_answered("hi", "ab", parts=("a", "b"))
    part = await take_one(store)

    await store.outbox.record(part.id, end, error="gone")

    (parked,) = await store.diagnostics.parked(limit=10)
    assert (parked.id, parked.state, parked.error) == (part.id, end, "gone")
    assert (await take_one(store)).text == "b"
    assert (await store.diagnostics.counts()).outbox_parked == 1


async def reach(store: Store, part: PartId, state: PartState) -> None:
    """Bring a part that is being attempted into a state."""
    if state is PartState.EXPIRED:
        await store.outbox.record(part, PartState.PENDING)
        await store.outbox.expire(older_than_s=-1)
    elif state is not PartState.ATTEMPTING:
        await store.outbox.record(part, state, receipt=f"r {part}")


@pytest.mark.parametrize("before", PartState)
async def test_a_part_moves_only_along_its_states(
    store: Store, eve: Person, before: PartState
) -> None:
    for after in set(PartState) - {before}:
        person = Person(store, eve.id, adapter=CHAT, place=after)
        await person.is_answered("hi", "a", parts=("a",))
        part = (await take_one(store)).id
        await reach(store, part, before)
        if after in LEGAL[before]:
            await store.outbox.record(part, after, receipt=f"r {part}")
            assert await state_of(store, part) == after
        else:
            with pytest.raises(Conflict):
                await store.outbox.record(part, after, receipt=f"r {part}")
            assert await state_of(store, part) == before
        await lay_to_rest(store, part)


async def lay_to_rest(store: Store, part: PartId) -> None:
    if await state_of(store, part) == PartState.PENDING:
        await take_one(store)
    if await state_of(store, part) == PartState.ATTEMPTING:
        await store.outbox.record(part, PartState.FAILED)


async def test_sent_needs_a_receipt(store: Store, eve: Person) -> None:
    await eve.is_answered("hi", "a", parts=("a",))
    part = await take_one(store)

    with pytest.raises(Conflict):
        await store.outbox.record(part.id, PartState.SENT)

    assert await state_of(store, part.id) == "attempting"


async def test_the_state_of_an_unknown_part_cannot_be_recorded(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.outbox.record(PartId("prt_nobody"), PartState.SENT, receipt="r")


async def test_a_receipt_may_be_said_again_and_not_changed(peers: list[Store], eve: Person) -> None:
    turn = await eve.is_answered("hi", "a", parts=("a",))
    part = await take_one(peers[0])

    await asyncio.gather(
        *(
            each.outbox.record(part.id, PartState.SENT, receipt="first")
            for each in islice(cycle(peers), 4)
        )
    )
    with pytest.raises(Conflict):
        await peers[-1].outbox.record(part.id, PartState.SENT, receipt="second")

    explained = await peers[0].diagnostics.explain(turn, principal=None)
    assert [each.receipt for each in explained.parts] == ["first"]


async def test_what_was_taken_by_mistake_is_given_back(peers: list[Store], eve: Person) -> None:
    # The answer of `take` was lost, so the node sent nothing and gives back what it may have taken.
    await eve.is_answered("hi", "a", parts=("a",))
    part = await take_one(peers[0])

    assert await peers[0].outbox.release(adapter="another") == 0
    assert await peers[0].outbox.release(adapter=CHAT) == 1

    assert (await take_one(peers[-1])).id == part.id
    assert await peers[0].outbox.release(adapter=CHAT) == (1 if len(peers) == 1 else 0), (
        "a node gives back only what it holds itself"
    )


async def test_what_a_dead_owner_left_is_found(
    store: Store, eve: Person, restart: OpenStore
) -> None:
    await eve.is_answered("hi", "ab", parts=("a", "b"))
    part = await take_one(store)
    assert await store.outbox.stranded(adapter=CHAT) == [], "its owner lives"

    store = await restart()

    assert await store.outbox.stranded(adapter="another") == []
    (stranded,) = await store.outbox.stranded(adapter=CHAT)
    assert (stranded.id, stranded.attempts) == (part.id, 1)
    assert await store.outbox.take(adapter=CHAT, limit=10) == [], "it is never blindly resent"
    await store.outbox.record(stranded.id, PartState.UNKNOWN, error="owner died")
    assert await store.outbox.stranded(adapter=CHAT) == []
    assert (await take_one(store)).text == "b"


async def test_old_parts_expire_and_are_shown(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "old", parts=("old",))
    clock.advance(100)
    other = Person(store, eve.id, adapter=CHAT, place="elsewhere")
    await other.is_answered("hi", "new", parts=("new",))

    assert (await store.outbox.expire(older_than_s=50)).parts == 1

    assert [part.text for part in await store.diagnostics.parked(limit=10)] == ["old"]
    assert [part.text for part in await store.outbox.take(adapter=CHAT, limit=10)] == ["new"]
    assert (await store.outbox.expire(older_than_s=50)).parts == 0


async def test_an_expired_part_says_that_it_is_not_tried_any_more(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "tried", parts=("tried",))
    part = await take_one(store)
    failure = "sendMessage: Telegram failed (500: oops); it is tried again later"
    await store.outbox.record(part.id, PartState.PENDING, error=failure)
    other = Person(store, eve.id, adapter=CHAT, place="elsewhere")
    await other.is_answered("hi", "never tried", parts=("never tried",))
    clock.advance(100)

    assert (await store.outbox.expire(older_than_s=50)).parts == 2

    errors = {each.text: each.error for each in await store.diagnostics.parked(limit=10)}
    assert errors["tried"].endswith("the last try said: sendMessage: Telegram failed (500: oops)")
    assert all("expire_s" in error for error in errors.values())
    assert all("tried again" not in error for error in errors.values())


async def test_a_part_under_way_does_not_expire(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "a", parts=("a",))
    await take_one(store)
    clock.advance(1000)

    assert (await store.outbox.expire(older_than_s=1)).parts == 0


async def test_a_parked_part_can_be_sent_after_all(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("hi", "a", parts=("a",))
    clock.advance(10)
    await store.outbox.expire(older_than_s=5)
    (parked,) = await store.diagnostics.parked(limit=1)

    await store.outbox.record(PartId(parked.id), PartState.PENDING)

    assert (await take_one(store)).id == parked.id


async def test_a_reply_whose_settlement_was_refused_leaves_no_part(
    store: Store, eve: Person
) -> None:
    accepted = await store.inbox.accept(message(eve.id, adapter=CHAT), queue_max=9)
    claimed = await claim_one(store)
    assert accepted.turn is not None
    await store.inbox.stop(accepted.turn, by=None)

    with pytest.raises(Conflict):
        await settle(store, claimed, "late", parts=("late",))

    assert await store.outbox.take(adapter=CHAT, limit=10) == []


async def test_what_is_on_its_way_is_not_given_back(store: Store, eve: Person) -> None:
    other = Person(store, eve.id, adapter=CHAT, place="elsewhere")
    await eve.is_answered("hi", "a", parts=("a",))
    under_way = await take_one(store)
    await other.is_answered("hi", "b", parts=("b",))
    unknown = await take_one(store)

    assert await store.outbox.release(adapter=CHAT, keep=(under_way.id,)) == 1

    assert await state_of(store, under_way.id) == "attempting"
    assert (await take_one(store)).id == unknown.id


async def test_a_try_that_was_given_up_has_no_say(store: Store, eve: Person) -> None:
    # The platform answers the first try only when the next one is under way already.
    await eve.is_answered("hi", "a", parts=("a",))
    late = await take_one(store)
    await store.outbox.release(adapter=CHAT)
    again = await take_one(store)
    assert (again.id, again.attempts) == (late.id, late.attempts + 1)

    for state in (PartState.SENT, PartState.PENDING, PartState.UNKNOWN):
        with pytest.raises(Conflict):
            await store.outbox.record(late.id, state, receipt="late", attempt=late.attempts)
    with pytest.raises(Conflict):
        await store.outbox.divide(late.id, ("a", "b"), attempt=late.attempts)
    with pytest.raises(Conflict):
        await store.outbox.post_instead(late.id, error="gone", attempt=late.attempts)

    assert await state_of(store, again.id) == "attempting"
    await store.outbox.record(again.id, PartState.SENT, receipt="r", attempt=again.attempts)
    assert await state_of(store, again.id) == "sent"


async def test_what_is_divided_stays_whole_and_keeps_its_buttons_for_the_end(
    store: Store, eve: Person
) -> None:
    accepted = await eve.says("hi")
    put = partial(
        notice,
        accepted.session,
        None,
        "one two three",
        store._mint.stamp(store.node),
        choices=("yes", "no"),
    )
    await store._driver.write(put)
    whole = await take_one(store)
    assert whole.choices == ("yes", "no")

    await store.outbox.divide(whole.id, ("one", "two", "three"), attempt=whole.attempts)

    pieces = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        await store.outbox.record(part.id, PartState.SENT, receipt=part.text)
        pieces.append((part.text, part.choices))
    assert pieces == [("one", ()), ("two", ()), ("three", ("yes", "no"))]


async def test_a_part_that_is_divided_again_after_a_lost_answer_stays_as_it_is(
    store: Store, eve: Person
) -> None:
    accepted = await eve.says("hi")
    put = partial(
        notice,
        accepted.session,
        None,
        "one two three",
        store._mint.stamp(store.node),
        choices=("yes", "no"),
    )
    await store._driver.write(put)
    whole = await take_one(store)
    texts = ("one", "two", "three")

    await store.outbox.divide(whole.id, texts, attempt=whole.attempts)
    await store.outbox.divide(whole.id, texts, attempt=whole.attempts)

    pieces = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        with pytest.raises(Conflict):
            await store.outbox.divide(whole.id, texts, attempt=whole.attempts)
        await store.outbox.record(part.id, PartState.SENT, receipt=part.text)
        pieces.append((part.text, part.choices))
    assert pieces == [("one", ()), ("two", ()), ("three", ("yes", "no"))]


async def test_what_is_divided_stands_before_what_came_after_it(store: Store, eve: Person) -> None:
    # This is a stopped answer longer than one message, with the words that follow it.
    accepted = await eve.says("hi")
    for text in ("one two three", "Stopped."):
        put = partial(
            notice,
            accepted.session,
            None,
            text,
            store._mint.stamp(store.node),
        )
        await store._driver.write(put)
    whole = await take_one(store)
    await store.outbox.divide(whole.id, ("one", "two", "three"), attempt=whole.attempts)

    pieces = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        await store.outbox.record(part.id, PartState.SENT, receipt=part.text)
        pieces.append(part.text)
    assert pieces == ["one", "two", "three", "Stopped."]


async def test_an_undo_while_the_final_edit_fails_takes_the_bubble_away(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    # The edit never gets a receipt, but the message that it was to edit has one.
    await eve.says("hi")
    claimed = await claim_one(store)
    bubble = await store.outbox.bubble(claimed.lease, 0, "so far")
    assert bubble is not None
    await store.outbox.record(bubble.part.id, PartState.SENT, receipt="the bubble")
    await settle(store, claimed, "final", parts=("final",))
    edit = await take_one(store)
    assert (edit.step, edit.receipt) == (DeliveryStep.EDIT, "the bubble")

    await eve.says("/undo")
    await store.outbox.record(edit.id, PartState.PENDING, error="429", attempt=edit.attempts)

    assert await state_of(store, edit.id) == "expired", "nobody wants its words any more"
    clock.advance(5)
    deletion = await take_one(store)
    assert (deletion.step, deletion.receipt) == (DeliveryStep.DELETE, "the bubble")


async def deliver(store: Store) -> list[str]:
    """Send everything that is due. Returns the steps in their order."""
    sent: list[str] = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        await store.outbox.record(part.id, PartState.SENT, receipt=f"r{len(sent)}")
        sent.append(f"{part.step} {part.text}".strip())
    return sent


async def test_what_goes_ahead_is_not_said_again(store: Store, eve: Person) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    await store.outbox.go_ahead(claimed.lease, ("one",))
    assert await deliver(store) == ["post one"]

    await store.outbox.go_ahead(claimed.lease, ("one", "two"))
    await store.outbox.go_ahead(claimed.lease, ("one", "two"))
    await settle(store, claimed, "one two three", parts=("one", "two", "three"))

    assert await deliver(store) == ["post two", "post three"]
    await assert_sound(store, claimed.lease.session)


async def test_an_answer_may_have_gone_ahead_whole(store: Store, eve: Person) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    await store.outbox.go_ahead(claimed.lease, ("one", "two"))
    await settle(store, claimed, "one two", parts=("one", "two"))

    assert await deliver(store) == ["post one", "post two"]
    await assert_sound(store, claimed.lease.session)


async def test_final_words_that_differ_from_what_went_ahead_are_said(
    store: Store, eve: Person
) -> None:
    # This should never happen, but if it does, no text may be lost.
    await eve.says("hi")
    claimed = await claim_one(store)
    await store.outbox.go_ahead(claimed.lease, ("one", "too"))
    await settle(store, claimed, "one two three", parts=("one", "two", "three"))

    assert await deliver(store) == ["post one", "post too", "post two", "post three"]


async def test_nothing_goes_ahead_of_a_turn_that_is_over(store: Store, eve: Person) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    await settle(store, claimed, "done", parts=("done",))

    with pytest.raises(Fenced):
        await store.outbox.go_ahead(claimed.lease, ("late",))
    assert await deliver(store) == ["post done"]


async def test_an_undo_takes_back_what_went_ahead(store: Store, eve: Person) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    await store.outbox.go_ahead(claimed.lease, ("one",))
    assert await deliver(store) == ["post one"]
    await store.outbox.go_ahead(claimed.lease, ("one", "two"))

    await eve.says("/undo")

    sent = await deliver(store)
    assert "delete" in sent
    assert "post two" not in sent


async def test_what_is_given_back_was_never_tried(
    store: Store, eve: Person, clock: VirtualClock
) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    part = await take_one(store)

    for _ in range(2):
        await store.outbox.defer(part.id, due_in_s=2, attempt=part.attempts)

    assert await store.outbox.take(adapter=CHAT, limit=1) == []
    clock.advance(2)
    again = await take_one(store)
    assert (again.id, again.attempts) == (part.id, 1)
    await store.outbox.record(again.id, PartState.SENT, receipt="r", attempt=1)
    with pytest.raises(Conflict):
        await store.outbox.defer(part.id, due_in_s=2, attempt=1)


async def test_what_is_given_back_after_it_was_withdrawn_expires(store: Store, eve: Person) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    part = await take_one(store)
    await eve.says("/undo")

    await store.outbox.defer(part.id, due_in_s=0, attempt=part.attempts)

    assert await state_of(store, part.id) == "expired"


CODE = "```py\none\ntwo\n```"


@pytest.mark.parametrize(
    ("parts", "is_sound"),
    [
        ((CODE,), True),
        (("```py\none\n```", "```py\ntwo\n```"), True),
        ((f"{CODE}\n\n_main · 0.2 s_",), True),
        (("```py\none\n```",), False),
        (("```py\ntwo\none\n```",), False),
    ],
    ids=["as it is", "in two frames", "with a footer", "half of it", "in another order"],
)
async def test_parts_may_tell_more_than_the_text_and_never_less(
    store: Store, eve: Person, parts: tuple[str, ...], is_sound: bool
) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    await settle(store, claimed, CODE, parts=parts)

    found = violations(await store.diagnostics.record(claimed.lease.session))

    assert (found == []) == is_sound


async def test_a_try_that_was_given_up_gives_nothing_back(store: Store, eve: Person) -> None:
    await eve.is_answered("1", "a", parts=("a",))
    old = await take_one(store)
    await store.outbox.record(old.id, PartState.PENDING, attempt=old.attempts)
    now = await take_one(store)

    with pytest.raises(Conflict):
        await store.outbox.defer(old.id, due_in_s=0, attempt=old.attempts)
    with pytest.raises(Conflict):
        await store.outbox.doubt(old.id, error="cut", due_in_s=0, attempt=old.attempts)

    assert (now.attempts, await state_of(store, now.id)) == (2, "attempting")


async def test_a_bubble_is_not_given_back_to_the_line(store: Store, eve: Person) -> None:
    # Its preview has it, and the pump would post it a second time.
    await eve.says("hi")
    claimed = await claim_one(store)
    bubble = await store.outbox.bubble(claimed.lease, 0, "so far")
    assert bubble is not None

    assert await store.outbox.release(adapter=CHAT) == 0

    assert await state_of(store, bubble.part.id) == "attempting"


@pytest.mark.parametrize("fate", [PartState.UNKNOWN, PartState.FAILED])
async def test_final_words_are_posted_where_their_bubble_is_not_known_to_be(
    store: Store, eve: Person, fate: PartState
) -> None:
    await eve.says("hi")
    claimed = await claim_one(store)
    bubble = await store.outbox.bubble(claimed.lease, 0, "so far")
    assert bubble is not None
    await settle(store, claimed, "final", parts=("final",))
    await store.outbox.record(bubble.part.id, fate, error="cut")

    final = await take_one(store)

    assert (final.step, final.text, final.receipt) == (DeliveryStep.POST, "final", "")
