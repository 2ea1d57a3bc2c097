"""Checks that people can edit and delete what they have sent, and that withdrawn text is
removed."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

import pytest

from perdure.domain.delivery import GONE, KEPT, WITHDRAWN, Capabilities, DeliveryStep, PartState
from perdure.domain.errors import Ambiguous, Conflict, Permanent, Transient
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import (
    NoticePosted,
    SteerTaken,
    TurnAmended,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.records import PartView
from perdure.domain.journal.session_events import HeadMoved
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.prompt.prompt import ModelRequest, TextBlock
from perdure.engine.delivery.handover import Handovers
from perdure.engine.delivery.outbox import OutboxPump
from perdure.engine.delivery.surfaces import Surfaces
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.outbox import Part
from perdure.ports.platform.adapter import Delete
from perdure.ports.turns.turns import Claimed
from perdure.store.operations.accepting import amending
from perdure.store.store import Store
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    message,
    next_request,
    only,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "scripted"


class Chatter:
    """Plays a person on a platform whose messages can be edited and deleted."""

    def __init__(self, store: Store, person: Person) -> None:
        self.store = store
        self.id = person.id
        self._events = 0

    async def says(self, text: str, *, busy: Busy = Busy.QUEUE) -> tuple[str, Accepted]:
        """Send a message. Returns the platform's id for it, and how it was accepted."""
        self._events += 1
        external_id = f"m{self._events}"
        return external_id, await self._send(
            self._update(UpdateKind.MESSAGE, external_id, text, busy=busy)
        )

    async def edits(self, target: str, text: str) -> Accepted:
        self._events += 1
        return await self._send(
            self._update(UpdateKind.EDIT, f"e{self._events}", text, target=target)
        )

    async def deletes(self, target: str) -> Accepted:
        self._events += 1
        return await self._send(
            self._update(UpdateKind.DELETE, f"d{self._events}", "", target=target)
        )

    async def is_answered(self, text: str, *parts: str) -> str:
        external_id, _ = await self.says(text)
        await self.answer(*(parts or (f"answer to {text}",)))
        return external_id

    async def answer(self, *parts: str) -> Claimed:
        claimed = await claim_one(self.store)
        await settle(self.store, claimed, "".join(parts), parts=parts)
        return claimed

    async def repeats(self, kind: UpdateKind, external_id: str, text: str, target: str) -> Accepted:
        return await self._send(self._update(kind, external_id, text, target=target))

    def _update(
        self,
        kind: UpdateKind,
        external_id: str,
        text: str,
        *,
        target: str = "",
        busy: Busy = Busy.QUEUE,
    ) -> Update:
        plain = message(self.id, text, external_id=external_id, adapter=CHAT, kind=kind)
        return Update(
            address=plain.address,
            external_id=external_id,
            kind=kind,
            principal=self.id,
            text=text,
            busy=busy,
            target=target,
        )

    async def _send(self, update: Update) -> Accepted:
        accepted = await self.store.inbox.accept(update, queue_max=1000)
        await assert_sound(self.store, accepted.session)
        return accepted


@pytest.fixture
async def eve(store: Store) -> Chatter:
    principal = await store.principals.ensure("eve", role="member")
    return Chatter(store, Person(store, principal.id))


def read(request: ModelRequest) -> str:
    """Return everything the model is told, as one text."""
    tail = [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
    return "\n".join([*(each.decode() for each in request.history), *tail])


def told(accepted: Accepted) -> list[str]:
    return [notice.text for notice in only(NoticePosted, accepted.recorded)]


async def transcript(store: Store, accepted: Accepted) -> list[str]:
    tip = (await store.conversations.snapshot(accepted.conversation)).view.standing.tip
    chain = await store.conversations.chain(tip, limit=100) if tip else []
    return [entry.text for turn in chain for entry in entries_of(turn)]


async def test_a_message_that_waits_reads_as_it_was_last_edited(eve: Chatter) -> None:
    m1, first = await eve.says("helo")

    accepted = await eve.edits(m1, "hello")

    assert (accepted.effect, accepted.turn, told(accepted)) == (
        UpdateEffect.AMENDED,
        first.turn,
        [],
    )
    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)) == "hello"


async def test_an_edit_that_comes_twice_changes_nothing_the_second_time(eve: Chatter) -> None:
    m1, _ = await eve.says("helo")
    first = await eve.repeats(UpdateKind.EDIT, "e1", "hello", m1)
    await eve.edits(m1, "hello!")

    again = await eve.repeats(UpdateKind.EDIT, "e1", "hello", m1)

    assert (again.is_duplicate, again.message, again.recorded) == (True, first.message, ())
    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)) == "hello!"
    with pytest.raises(Conflict):
        await eve.repeats(UpdateKind.EDIT, "e1", "another", m1)


async def test_an_edit_of_what_runs_stops_it_and_asks_again(eve: Chatter) -> None:
    m1, first = await eve.says("cats")
    await claim_one(eve.store)
    _, waiting = await eve.says("and then")

    accepted = await eve.edits(m1, "dogs")

    assert (accepted.effect, accepted.ended) == (UpdateEffect.AMENDED, (first.turn,))
    assert [e.outcome for e in only(TurnSettled, accepted.recorded)] == [Outcome.STOPPED]
    claimed = await claim_one(eve.store)
    assert claimed.lease.turn == accepted.turn != waiting.turn, "it keeps its place in the line"
    assert read(await next_request(eve.store, claimed)) == "dogs"


async def test_an_edit_of_the_last_message_takes_its_answer_back(eve: Chatter) -> None:
    await eve.is_answered("one")
    m2 = await eve.is_answered("two")

    accepted = await eve.edits(m2, "three")

    assert [e.reason for e in only(HeadMoved, accepted.recorded)] == ["edit"]
    claimed = await claim_one(eve.store)
    request = read(await next_request(eve.store, claimed))
    assert "answer to one" in request
    assert "two" not in request
    assert request.endswith("three")


async def test_the_last_message_can_be_edited_again_and_again(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    accepted = await eve.edits(m1, "two")
    for text in ("three", "four", "five"):
        accepted = await eve.edits(m1, text)
        assert (await eve.answer(f"answer to {text}")).lease.turn == accepted.turn

    assert await transcript(eve.store, accepted) == ["five", "answer to five"]


async def test_a_message_that_is_to_be_asked_again_can_be_edited(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    _, retried = await eve.says("/retry")

    accepted = await eve.edits(m1, "two")

    assert accepted.turn == retried.turn
    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)) == "two"


async def test_an_edit_of_an_older_message_keeps_the_answer_and_says_so(eve: Chatter) -> None:
    m1 = await eve.is_answered("one", "the answer")
    await eve.says("two")
    view = (await eve.answer("another answer")).view

    accepted = await eve.edits(m1, "uno")

    assert (accepted.effect, told(accepted)) == (UpdateEffect.AMENDED, [amending.CHANGED])
    assert only(HeadMoved, accepted.recorded) == []
    await eve.says("three")
    claimed = await claim_one(eve.store)
    assert claimed.view != view, "what was remembered of the history holds no longer"
    request = read(await next_request(eve.store, claimed))
    assert "uno" in request
    assert "'one'" not in request
    assert "the answer" in request


async def test_an_older_message_is_edited_while_another_is_answered(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    await eve.says("two")
    claimed = await claim_one(eve.store)

    accepted = await eve.edits(m1, "uno")

    assert accepted.ended == ()
    await settle(eve.store, claimed, "answer to two")
    await assert_sound(eve.store, accepted.session)
    assert await transcript(eve.store, accepted) == [
        "uno",
        "answer to one",
        "two",
        "answer to two",
    ]


async def test_a_message_of_a_session_that_was_left_is_edited_there(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    _, left = await eve.says("/new")
    old = (await eve.store.archive.session(left.session, principal=None)).parent
    assert old is not None

    accepted = await eve.edits(m1, "uno")

    assert (accepted.session, accepted.turn) == (left.session, None)
    amended = only(TurnAmended, (await eve.store.diagnostics.record(old)).events)
    assert [each.text for each in amended] == ["uno"]
    assert told(accepted) == [amending.CHANGED]
    await assert_sound(eve.store, old)


async def test_a_branch_and_where_it_came_from_share_the_new_words(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    await eve.is_answered("two")
    await eve.says("/branch")
    await eve.is_answered("elsewhere")
    await eve.edits(m1, "uno")
    _, here = await eve.says("/resume")

    assert (await transcript(eve.store, here))[0] == "uno"
    await eve.says("three")
    claimed = await claim_one(eve.store)
    assert claimed.view, "the session that was left must not tell what it remembers either"


async def test_in_a_branch_the_last_message_is_asked_again_there(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")
    _, branch = await eve.says("/branch")

    accepted = await eve.edits(m1, "uno")

    assert accepted.session == branch.session
    claimed = await eve.answer("answer to uno")
    assert claimed.lease.turn == accepted.turn
    assert await transcript(eve.store, accepted) == ["uno", "answer to uno"]


async def test_what_is_waiting_to_be_passed_on_is_passed_on_as_edited(eve: Chatter) -> None:
    await eve.says("go")
    claimed = await claim_one(eve.store)
    m2, steered = await eve.says("nroth", busy=Busy.STEER)
    assert steered.effect is UpdateEffect.STEERED

    accepted = await eve.edits(m2, "north")

    taken = only(SteerTaken, await eve.store.turns.take_steers(claimed.lease))
    assert [each.text for each in taken] == ["north"]
    assert (accepted.effect, accepted.ended, told(accepted)) == (UpdateEffect.AMENDED, (), [])


async def test_what_was_never_passed_on_becomes_a_turn_as_edited(eve: Chatter) -> None:
    await eve.says("go")
    claimed = await claim_one(eve.store)
    m2, _ = await eve.says("nroth", busy=Busy.STEER)
    await eve.edits(m2, "north")

    freed = only(TurnQueued, await settle(eve.store, claimed, "gone"))

    assert [each.text for each in freed] == ["north"]
    accepted = await eve.edits(m2, "south")
    assert accepted.turn == freed[0].turn
    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)).endswith("south")


async def test_what_was_passed_on_already_changes_in_the_history_only(eve: Chatter) -> None:
    await eve.says("go")
    claimed = await claim_one(eve.store)
    m2, _ = await eve.says("north", busy=Busy.STEER)
    await eve.store.turns.take_steers(claimed.lease)

    accepted = await eve.edits(m2, "south")

    assert (accepted.ended, told(accepted)) == ((), [amending.CHANGED])
    await settle(eve.store, claimed, "gone")
    assert await transcript(eve.store, accepted) == ["go", "south", "gone"]


async def test_asking_again_keeps_what_was_passed_on_to_the_turn(eve: Chatter) -> None:
    m1, _ = await eve.says("go")
    claimed = await claim_one(eve.store)
    m2, _ = await eve.says("north", busy=Busy.STEER)
    await eve.store.turns.take_steers(claimed.lease)

    await eve.edits(m1, "walk")
    await eve.edits(m2, "south")

    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)) == "walk\n\nsouth"


async def test_an_edit_that_changes_no_word_changes_nothing(eve: Chatter) -> None:
    m1 = await eve.is_answered("one")

    accepted = await eve.edits(m1, "one")

    assert (accepted.effect, accepted.recorded) == (UpdateEffect.IGNORED, ())
    assert await eve.store.turns.claim(limit=1) == []


@pytest.mark.parametrize("change", [UpdateKind.EDIT, UpdateKind.DELETE])
async def test_nobody_changes_what_never_came(eve: Chatter, change: UpdateKind) -> None:
    accepted = await eve.repeats(change, "x1", "anything", "never")

    assert (accepted.effect, accepted.turn) == (UpdateEffect.IGNORED, None)
    assert told(accepted) == [amending.UNKNOWN]
    assert (await eve.repeats(change, "x1", "anything", "never")).is_duplicate


@pytest.mark.parametrize("change", [UpdateKind.EDIT, UpdateKind.DELETE])
async def test_nobody_changes_what_another_has_said(eve: Chatter, change: UpdateKind) -> None:
    m1, first = await eve.says("mine")
    mallory = await eve.store.principals.ensure("mallory", role="operator")
    update = Update(
        address=message(eve.id, adapter=CHAT).address,
        external_id="x1",
        kind=change,
        principal=mallory.id,
        text="yours",
        target=m1,
    )

    accepted = await eve.store.inbox.accept(update, queue_max=10)

    assert told(accepted) == [amending.FOREIGN]
    claimed = await claim_one(eve.store)
    assert claimed.lease.turn == first.turn
    assert read(await next_request(eve.store, claimed)) == "mine"


@pytest.mark.parametrize("command", ["/status", "/queue milk", "/background milk"])
async def test_a_command_is_not_changed_afterwards(eve: Chatter, command: str) -> None:
    m1, taken = await eve.says(command)

    assert told(await eve.edits(m1, "/stop all")) == [amending.COMMAND]
    assert told(await eve.deletes(m1)) == [amending.COMMAND]

    if taken.turn is not None:
        turn = await eve.store.archive.turn(taken.turn, principal=None)
        assert turn.outcome is None


@pytest.mark.parametrize(
    ("text", "why"), [("/stop", amending.NOT_A_COMMAND), (" ", amending.BLANK)]
)
async def test_an_edit_is_words(eve: Chatter, text: str, why: str) -> None:
    m1, first = await eve.says("one")

    accepted = await eve.edits(m1, text)

    assert (told(accepted), accepted.turn) == ([why], first.turn)
    claimed = await claim_one(eve.store)
    assert read(await next_request(eve.store, claimed)) == "one"


async def test_an_edited_message_is_found_by_its_new_words(eve: Chatter) -> None:
    m1 = await eve.is_answered("aardvark")
    await eve.is_answered("two")
    for words in ("badger", "civet"):
        await eve.edits(m1, words)
        hits = await eve.store.archive.search(words, principal=eve.id, before=None, limit=10)
        assert [hit.text for hit in hits] == [words]


async def test_a_deleted_message_that_waits_is_never_answered(eve: Chatter) -> None:
    await eve.says("one")
    m2, second = await eve.says("two")
    _, third = await eve.says("three")
    running = await claim_one(eve.store)

    accepted = await eve.deletes(m2)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.CANCELLED, (second.turn,))
    turn = await eve.store.archive.turn(turn_of(second), principal=None)
    assert (turn.outcome, turn.reason) == ("stopped", "deleted by its author")
    await settle(eve.store, running, "answer to one")
    claimed = await claim_one(eve.store)
    assert claimed.lease.turn == third.turn
    assert "two" not in read(await next_request(eve.store, claimed))


async def test_a_deletion_that_comes_twice_is_taken_once(eve: Chatter) -> None:
    m1, first = await eve.says("one")
    await eve.repeats(UpdateKind.DELETE, "d1", "", m1)

    again = await eve.repeats(UpdateKind.DELETE, "d1", "", m1)

    assert (again.is_duplicate, again.turn, again.recorded) == (True, first.turn, ())
    assert told(await eve.deletes(m1)) == [amending.NEVER_RUNS]


async def test_what_has_begun_is_not_deleted_and_its_author_is_told(eve: Chatter) -> None:
    m1, first = await eve.says("one")
    claimed = await claim_one(eve.store)

    while_running = await eve.deletes(m1)
    await settle(eve.store, claimed, "answer to one")
    afterwards = await eve.deletes(m1)

    assert (while_running.ended, told(while_running)) == ((), [amending.RUNS])
    assert (afterwards.turn, told(afterwards)) == (first.turn, [amending.RAN])
    assert await transcript(eve.store, afterwards) == ["one", "answer to one"]


async def take(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=10)
    return part


async def send(store: Store, part: Part) -> str:
    receipt = f"seen-{part.text}" if part.step is not DeliveryStep.DELETE else GONE
    await store.outbox.record(part.id, PartState.SENT, receipt=receipt)
    return receipt


async def left_to_do(store: Store) -> list[tuple[DeliveryStep, str]]:
    """Return the steps that a pump would still perform, in order."""
    steps = []
    while taken := await store.outbox.take(adapter=CHAT, limit=10):
        (part,) = taken
        await send(store, part)
        steps.append((part.step, part.receipt or part.text))
    return steps


async def parts_of(store: Store, accepted: Accepted) -> list[PartView]:
    return list((await store.diagnostics.record(accepted.session)).parts)


async def test_what_an_undone_turn_has_sent_is_deleted_and_the_rest_not_sent(eve: Chatter) -> None:
    await eve.is_answered("one", "a", "b", "c")
    receipts = [await send(eve.store, await take(eve.store)) for _ in range(2)]

    _, undone = await eve.says("/undo")

    assert await left_to_do(eve.store) == [
        *((DeliveryStep.DELETE, receipt) for receipt in receipts),
        (DeliveryStep.POST, undone.reply),
    ]
    withdrawn = [part for part in await parts_of(eve.store, undone) if part.error == WITHDRAWN]
    assert [(part.text, part.state) for part in withdrawn] == [("c", "expired")]
    assert (await eve.store.diagnostics.counts()).outbox_parked == 0
    assert await eve.store.diagnostics.parked(limit=10) == []
    await assert_sound(eve.store, undone.session)


async def test_what_is_on_its_way_is_deleted_by_the_receipt_it_gets(eve: Chatter) -> None:
    await eve.is_answered("one", "a")
    on_its_way = await take(eve.store)
    _, undone = await eve.says("/undo")
    assert await eve.store.outbox.take(adapter=CHAT, limit=10) == [], "the deletion waits for it"

    receipt = await send(eve.store, on_its_way)

    assert await left_to_do(eve.store) == [
        (DeliveryStep.DELETE, receipt),
        (DeliveryStep.POST, undone.reply),
    ]


async def fails(store: Store, part: Part) -> None:
    await store.outbox.record(part.id, PartState.PENDING, error="429", due_in_s=0)


async def is_given_back(store: Store, part: Part) -> None:
    assert await store.outbox.release(adapter=CHAT) == 1


async def is_reconciled(store: Store, part: Part) -> None:
    await store.outbox.record(part.id, PartState.UNKNOWN, error="who knows")
    await store.outbox.record(part.id, PartState.PENDING)


@pytest.mark.parametrize("comes_back", [fails, is_given_back, is_reconciled])
async def test_what_was_withdrawn_on_its_way_is_not_tried_again(
    eve: Chatter, comes_back: Callable[[Store, Part], Awaitable[None]]
) -> None:
    await eve.is_answered("one", "a", "b")
    on_its_way = await take(eve.store)
    _, undone = await eve.says("/undo")

    await comes_back(eve.store, on_its_way)

    assert await left_to_do(eve.store) == [
        (DeliveryStep.DELETE, ""),
        (DeliveryStep.POST, undone.reply),
    ]
    parts = [part for part in await parts_of(eve.store, undone) if part.text in ("a", "b")]
    assert [(part.state, part.error) for part in parts] == [("expired", WITHDRAWN)] * 2


async def test_nothing_is_deleted_twice(eve: Chatter) -> None:
    await eve.is_answered("one", "a")
    receipt = await send(eve.store, await take(eve.store))
    await eve.says("/undo")
    await eve.says("/redo")
    await eve.says("/undo")

    steps = await left_to_do(eve.store)

    assert [text for step, text in steps if step is DeliveryStep.DELETE] == [receipt]


@pytest.mark.parametrize("again", ["/retry", "an edit"])
async def test_an_answer_that_is_given_anew_replaces_the_old_one(eve: Chatter, again: str) -> None:
    m1 = await eve.is_answered("one", "a")
    receipt = await send(eve.store, await take(eve.store))

    accepted = await (eve.edits(m1, "uno") if again == "an edit" else _say(eve, again))
    await eve.answer("b")

    steps = await left_to_do(eve.store)
    assert steps[0] == (DeliveryStep.DELETE, receipt)
    assert steps[-1] == (DeliveryStep.POST, "b")
    await assert_sound(eve.store, accepted.session)


async def _say(eve: Chatter, text: str) -> Accepted:
    return (await eve.says(text))[1]


async def test_over_http_there_is_nothing_to_delete(store: Store, ada: Person) -> None:
    await ada.is_answered("one", "a")
    undone = await ada.says("/undo")

    assert await parts_of(store, undone) == []


KEY = Capabilities(takes_key=True, can_delete=True)


def outbox_pump(store: Store, platform: ScriptedPlatform, clock: VirtualClock) -> OutboxPump:
    """Make an outbox pump that works alone: no preview runs, and every step waits until its part is
    sent."""

    def start(work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        raise AssertionError(f"{name} was started")

    bus, lease = Bus(), NodeLease(clock, lease_s=store.nodes.lease_s)
    return OutboxPump(
        store.outbox,
        Surfaces({CHAT: platform}, store.pacing, clock=clock),
        media=store.media,
        handovers=Handovers(),
        feed=Feed(),
        clock=clock,
        start=start,
        expire_s=86_400,
        bus=bus,
        lease=lease,
    )


class Outside:
    """Runs the real pump, with a platform that shows what it is sent."""

    def __init__(self, store: Store, clock: VirtualClock, can: Capabilities) -> None:
        self.platform = ScriptedPlatform(capabilities=can)
        self._clock = clock
        self.pump = outbox_pump(store, self.platform, clock)

    async def rest(self) -> None:
        for _ in range(20):
            await self.pump.step()
            self._clock.advance(400)

    @property
    def visible(self) -> list[str]:
        return [shown.text for shown in self.platform.visible]


async def deletions(store: Store, accepted: Accepted) -> list[tuple[str, str]]:
    parts = await parts_of(store, accepted)
    return [(part.state, part.receipt) for part in parts if part.step == DeliveryStep.DELETE]


async def test_bubbles_of_an_undone_turn_go_away(eve: Chatter, clock: VirtualClock) -> None:
    outside = Outside(eve.store, clock, KEY)
    await eve.is_answered("one", "a", "b")
    await outside.rest()
    assert outside.visible == ["a", "b"]

    _, undone = await eve.says("/undo")
    await outside.rest()

    assert outside.visible == [undone.reply]
    assert await deletions(eve.store, undone) == [("sent", GONE)] * 2


async def test_where_nothing_can_be_deleted_it_stays(eve: Chatter, clock: VirtualClock) -> None:
    outside = Outside(eve.store, clock, Capabilities(takes_key=True))
    await eve.is_answered("one", "a")
    await outside.rest()

    _, undone = await eve.says("/undo")
    await outside.rest()

    assert outside.visible == ["a", undone.reply]
    assert await deletions(eve.store, undone) == [("sent", KEPT)]


FAILURES: Mapping[str, tuple[Sequence[Transient | Permanent | Ambiguous], str]] = {
    "not yet": ([Transient("429", retry_after_s=7), Transient("503")], GONE),
    "maybe": ([Ambiguous("timed out"), Ambiguous("timed out")], GONE),
    "never": ([Permanent("too old")], KEPT),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_deletion_is_repeated_until_it_has_worked_or_never_will(
    eve: Chatter, clock: VirtualClock, failure: str
) -> None:
    failures, receipt = FAILURES[failure]
    outside = Outside(eve.store, clock, KEY)
    await eve.is_answered("one", "a")
    await outside.rest()
    outside.platform.failures = list(failures)

    _, undone = await eve.says("/undo")
    await outside.rest()

    assert outside.visible == (["a"] if receipt is KEPT else []) + [undone.reply]
    assert await deletions(eve.store, undone) == [("sent", receipt)]


async def test_a_deletion_that_a_death_interrupted_is_repeated(
    eve: Chatter, clock: VirtualClock, restart: OpenStore
) -> None:
    outside = Outside(eve.store, clock, Capabilities(can_delete=True))
    await eve.is_answered("one", "a")
    await outside.rest()
    _, undone = await eve.says("/undo")
    deletion = await take(eve.store)
    await outside.platform.perform(Delete(address=deletion.address, receipt=deletion.receipt))

    store = await restart()
    again = Outside(store, clock, outside.platform.can)
    again.platform.shown = outside.platform.shown
    await again.pump.recover()
    await again.rest()

    assert again.visible == [undone.reply]
    assert await deletions(store, undone) == [("sent", GONE)]
