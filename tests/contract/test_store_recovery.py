"""Checks what becomes of interrupted turns, and of messages that come while a turn is under way.

Whatever a test does, every session must be sound when it ends.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.content.forwards import Passage
from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.errors import Conflict, Fenced, NotFound, Rejected
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, UpdateEffect
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    AttemptInterrupted,
    NoticePosted,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnMoved,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.records import PartView, SessionRecord, TurnView
from perdure.domain.journal.session_events import CommandTaken, SessionOpened
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, CallEnding, Interruption, NodeRequest, Outcome, Repeat
from perdure.domain.people.menu import Menu
from perdure.domain.prompt.prompt import TextBlock
from perdure.domain.turn.announcing import Drain, UnderWay, shutdown_text, too_old_text
from perdure.domain.turn.recovery import (
    HEARTBEAT_MS,
    Policy,
    Resume,
    acknowledgements,
    given_up_text,
)
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    GO_ON,
    Person,
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
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
WAIT = Policy(resume=Resume.WAIT, freshness_ms=0)
ASK = Policy(resume=Resume.ASK, freshness_ms=0)
STALE = Policy(freshness_ms=1_000)
PLANNED = [Interruption.SHUTDOWN, Interruption.RESTART]
COUNTED = [Interruption.CRASH, Interruption.DRAIN_TIMEOUT]


class Alive(Protocol):
    """Names the processes that are running, newest last."""

    alive: list[Store]


@pytest.fixture(autouse=True)
async def _everything_is_sound(store: Store, lives: Alive) -> AsyncIterator[None]:
    yield
    now = lives.alive[-1]
    sessions = await now.archive.sessions(principal=None, page=Page(limit=1000))
    records = [await now.diagnostics.record(session.id) for session in sessions]
    assert [problem for record in records for problem in violations(record)] == []


class Sender:
    """Sends messages of any mode and kind, each under an id of its own."""

    def __init__(self, store: Store, person: Person, *, adapter: str = "http") -> None:
        self._store = store
        self._person = person
        self._adapter = adapter
        self.sent = 0

    async def __call__(
        self,
        text: str = "hello",
        *,
        busy: Busy = Busy.QUEUE,
        place: str = "home",
        kind: UpdateKind = UpdateKind.MESSAGE,
        attachments: tuple[Attachment, ...] = (),
        target: str = "",
        policy: Policy = GO_ON,
    ) -> Accepted:
        self.sent += 1
        update = message(
            self._person.id,
            text,
            external_id=f"s-{self.sent}",
            place=place,
            adapter=self._adapter,
            kind=kind,
        )
        update = msgspec.structs.replace(update, busy=busy, attachments=attachments, target=target)
        return await self._store.inbox.accept(update, queue_max=1000, menu=Menu(recovery=policy))


@pytest.fixture
def send(store: Store, ada: Person) -> Sender:
    return Sender(store, ada)


@pytest.fixture
def post(store: Store, ada: Person) -> Sender:
    """Return a sender on a platform whose replies go through the outbox."""
    return Sender(store, ada, adapter="chat")


async def cut(
    store: Store, reason: Interruption = Interruption.SHUTDOWN, *, attempts_max: int = 3
) -> Claimed:
    """Begin the next turn and end its attempt before the turn is done."""
    claimed = await claim_one(store)
    await store.turns.interrupt(claimed.lease, reason, attempts_max=attempts_max)
    return claimed


async def cut_after_message(
    store: Store, send: Sender, text: str = "work", *, place: str = "home"
) -> Claimed:
    await send(text, place=place)
    return await cut(store)


async def record_of(store: Store, session: SessionId) -> SessionRecord:
    return await store.diagnostics.record(session)


async def turn_row(store: Store, session: SessionId, turn: TurnId) -> TurnView:
    record = await record_of(store, session)
    return next(each for each in record.turns if each.id == turn)


async def notices(store: Store, session: SessionId) -> list[NoticePosted]:
    return only(NoticePosted, (await record_of(store, session)).events)


async def parts(store: Store, session: SessionId) -> Sequence[PartView]:
    return (await record_of(store, session)).parts


async def strikes(store: Store, session: SessionId) -> int:
    return (await record_of(store, session)).strikes


async def resumed(store: Store, policy: Policy = GO_ON) -> list[TurnId]:
    """Return the turns that resume by themselves under this policy."""
    result = await store.nodes.resume(policy, limit=100)
    return [event.turn for event in only(TurnRequeued, result.recorded)]


async def texts_waiting(store: Store, session: SessionId) -> list[str]:
    """Return the texts of the queued turns, in the order in which they would run."""
    record = await record_of(store, session)
    waiting = [turn.id for turn in record.turns if turn.state == "queued"]
    queued = {event.turn: event.text for event in only(TurnQueued, record.events)}
    return [queued[turn] for turn in waiting]


async def test_continue_runs_the_turn_again_and_invents_no_message(
    store: Store, send: Sender
) -> None:
    first = await cut_after_message(store, send)

    assert await resumed(store) == [first.lease.turn]
    assert await resumed(store) == []

    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (first.lease.turn, 2)
    record = await record_of(store, first.lease.session)
    assert len(only(TurnQueued, record.events)) == 1
    assert only(NoticePosted, record.events) == []


async def test_wait_leaves_the_turn_to_the_next_message(store: Store, send: Sender) -> None:
    first = await cut_after_message(store, send)

    for _ in range(3):
        result = await store.nodes.resume(WAIT, limit=100)
        assert (result.recorded, result.is_holding_back) == ([], False)

    assert await store.turns.claim(limit=9) == []
    row = await turn_row(store, first.lease.session, first.lease.turn)
    assert (row.state, row.outcome, row.reason) == ("interrupted", None, "shutdown")


async def test_the_next_message_replaces_and_is_told_of_it(store: Store, send: Sender) -> None:
    await send("work")
    first = await claim_one(store)
    await flush(store, first.lease, "half an ans")
    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3)

    accepted = await send("what else?", policy=WAIT)

    assert accepted.session == first.lease.session
    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, (first.lease.turn,))
    assert accepted.queue_position == 0
    row = await turn_row(store, accepted.session, first.lease.turn)
    assert (row.state, row.outcome) == ("settled", "interrupted")
    second = await claim_one(store)
    assert second.parent == first.lease.turn
    (interruption,) = only(AttemptInterrupted, second.telling.interruptions)
    assert interruption.reason is Interruption.SHUTDOWN
    request = await next_request(store, second)
    words = [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
    assert words[-2:] == ["half an ans", "what else?"]


async def test_what_the_model_was_told_is_not_told_again(store: Store, send: Sender) -> None:
    await cut_after_message(store, send)
    await send("what else?", policy=WAIT)
    second = await claim_one(store)
    told = acknowledgements(second.lease.turn, second.telling.interruptions)
    assert len(told) == 1
    await store.turns.append(second.lease, told)
    await store.turns.interrupt(second.lease, Interruption.SHUTDOWN, attempts_max=3)
    await send("and now?", policy=WAIT)

    third = await claim_one(store)

    (left,) = third.telling.interruptions
    assert left.turn == second.lease.turn


async def test_the_policy_ask_asks_once(store: Store, send: Sender) -> None:
    first = await cut_after_message(store, send)

    for _ in range(3):
        assert await resumed(store, ASK) == []

    (question,) = await notices(store, first.lease.session)
    assert question.about == first.lease.turn
    assert question.choices == ("continue", "drop")
    assert await parts(store, first.lease.session) == (), "over HTTP clients read the journal"
    assert await store.turns.claim(limit=9) == []


async def test_ask_sends_one_part_where_messages_are_pushed(store: Store, post: Sender) -> None:
    first = await cut_after_message(store, post)

    for _ in range(3):
        await resumed(store, ASK)

    (question,) = await notices(store, first.lease.session)
    (part,) = await parts(store, first.lease.session)
    assert part.message == question.message
    assert part.text == question.text
    assert part.choices == ("continue", "drop")


async def test_a_restart_does_not_ask_again(store: Store, send: Sender, restart: OpenStore) -> None:
    first = await cut_after_message(store, send)
    await resumed(store, ASK)

    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=100)
    await resumed(store, ASK)

    assert len(await notices(store, first.lease.session)) == 1


async def test_every_interruption_is_asked_about(store: Store, send: Sender) -> None:
    # The answer to one question does not answer the next.
    first = await cut_after_message(store, send)
    for asked in (1, 2, 3):
        await resumed(store, ASK)
        assert len(await notices(store, first.lease.session)) == asked
        assert (await send("continue")).effect is UpdateEffect.CONTINUED
        await cut(store)


async def test_a_question_that_was_answered_takes_no_more_answers(
    store: Store, send: Sender
) -> None:
    await cut_after_message(store, send)
    await resumed(store, ASK)
    await send("continue")
    await cut(store)

    accepted = await send("continue")

    assert accepted.effect is UpdateEffect.QUEUED, "nobody has asked about this interruption yet"


@pytest.mark.parametrize("resume", list(Resume))
async def test_calls_always_go_on(
    store: Store, send: Sender, clock: VirtualClock, resume: Resume
) -> None:
    await send("compute", kind=UpdateKind.CALL)
    first = await cut(store)
    clock.advance(1_000_000)

    went_on = await resumed(store, Policy(resume=resume, freshness_ms=1_000))

    assert went_on == [first.lease.turn]
    assert await notices(store, first.lease.session) == []


@pytest.mark.parametrize(
    ("freshness_s", "age_s", "goes_on"),
    [(60, 0, True), (60, 60, True), (60, 61, False), (0, 10_000_000, True)],
)
@pytest.mark.parametrize("resume", [Resume.CONTINUE, Resume.ASK])
async def test_only_what_is_fresh_is_taken_up(
    store: Store,
    send: Sender,
    clock: VirtualClock,
    resume: Resume,
    freshness_s: int,
    age_s: int,
    goes_on: bool,
) -> None:
    first = await cut_after_message(store, send)
    clock.advance(age_s)

    await resumed(store, Policy(resume=resume, freshness_ms=freshness_s * 1000))

    record = await record_of(store, first.lease.session)
    questions = [each for each in only(NoticePosted, record.events) if each.choices]
    taken_up = only(TurnRequeued, record.events) if resume is Resume.CONTINUE else questions
    assert len(taken_up) == int(goes_on)
    assert (record.turns[0].state == "queued") == (goes_on and resume is Resume.CONTINUE)


async def test_what_is_stale_is_kept_for_the_next_message(
    store: Store, send: Sender, clock: VirtualClock
) -> None:
    first = await cut_after_message(store, send)
    clock.advance(3_600)
    assert await resumed(store, STALE) == []

    accepted = await send("hello again", policy=STALE)

    assert (accepted.session, accepted.ended) == (first.lease.session, (first.lease.turn,))


@pytest.mark.parametrize("policy", [WAIT, ASK, STALE], ids=["wait", "ask", "stale"])
async def test_what_waits_behind_an_interrupted_turn_is_its_next_message(
    store: Store, send: Sender, clock: VirtualClock, restart: OpenStore, policy: Policy
) -> None:
    # The next message was accepted while the turn ran, so nobody needs to write again.
    await send("work")
    first = await claim_one(store)
    await flush(store, first.lease, "half an ans")
    behind = await send("what else?")
    last = await send("and then?")
    clock.advance(3_600)
    store = await restart()
    await store.nodes.reap(attempts_max=3, limit=100)

    result = await store.nodes.resume(policy, limit=100)

    (settled,) = only(TurnSettled, result.recorded)
    assert (settled.turn, settled.outcome) == (first.lease.turn, Outcome.INTERRUPTED)
    assert await notices(store, first.lease.session) == []
    assert (await store.nodes.resume(policy, limit=100)).recorded == []
    second = await claim_one(store)
    assert (second.lease.turn, second.parent) == (behind.turn, first.lease.turn)
    assert len(second.telling.interruptions) == 1
    request = await next_request(store, second)
    words = [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
    assert words[-2:] == ["half an ans", "what else?"]
    await settle(store, second)
    assert (await claim_one(store)).lease.turn == last.turn


async def test_what_goes_on_goes_on_before_what_waits_behind_it(store: Store, send: Sender) -> None:
    await send("work")
    first = await claim_one(store)
    await send("what else?")
    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3)

    assert await resumed(store) == [first.lease.turn]

    assert (await claim_one(store)).lease.turn == first.lease.turn


async def test_a_message_that_waits_for_its_files_is_the_next_one_too(
    store: Store, send: Sender
) -> None:
    await send("work")
    first = await claim_one(store)
    await send("look", attachments=(Attachment(reference="r", name="a.txt", size=3),))
    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3)

    await resumed(store, WAIT)

    row = await turn_row(store, first.lease.session, first.lease.turn)
    assert row.outcome == "interrupted"
    assert await store.turns.claim(limit=9) == [], "its file is still to come"


async def test_nobody_is_asked_about_what_more_than_one_step_settles(
    store: Store, send: Sender
) -> None:
    for place in ("one", "two", "three"):
        await send("work", place=place)
    running = await store.turns.claim(limit=9)
    for place in ("one", "two", "three"):
        await send("what else?", place=place)
    for each in running:
        await store.turns.interrupt(each.lease, Interruption.SHUTDOWN, attempts_max=3)

    for _ in range(3):
        await store.nodes.resume(ASK, limit=1)

    for each in running:
        assert await notices(store, each.lease.session) == []
    assert len(await store.turns.claim(limit=9)) == 3


@pytest.mark.parametrize(("last", "ago_s"), [("event", 50), ("beat", 50), ("neither", 100)])
async def test_age_is_counted_from_the_last_sign_of_life(
    store: Store,
    send: Sender,
    clock: VirtualClock,
    restart: OpenStore,
    last: str,
    ago_s: int,
) -> None:
    # A turn that worked for an hour without an event was alive as long as its node was.
    await send("work")
    claimed = await claim_one(store)
    clock.advance(50)
    if last == "event":
        await store.turns.append(claimed.lease, [said(claimed.lease, "so far")])
    if last == "beat":
        assert await store.nodes.beat()
    clock.advance(50)

    store = await restart()
    ended = await store.nodes.reap(attempts_max=3, limit=100)

    (interruption,) = only(AttemptInterrupted, ended)
    assert interruption.alive_at == clock.now_ms() - ago_s * 1000
    assert await resumed(store, Policy(freshness_ms=(ago_s - 1) * 1000)) == []
    assert await resumed(store, Policy(freshness_ms=ago_s * 1000)) == [claimed.lease.turn]


@pytest.mark.parametrize("word", ["continue", "Continue", " CONTINUE\n"])
async def test_the_word_continue_goes_on(store: Store, post: Sender, word: str) -> None:
    first = await cut_after_message(store, post)
    await resumed(store, ASK)

    accepted = await post(word)

    assert accepted.effect is UpdateEffect.CONTINUED
    assert (accepted.turn, accepted.command) == (first.lease.turn, "continue")
    assert [type(recorded.event) for recorded in accepted.recorded] == [TurnRequeued, CommandTaken]
    record = await record_of(store, first.lease.session)
    assert len(only(TurnQueued, record.events)) == 1
    assert len(record.turns) == 1
    assert [part.text for part in record.parts[1:]] == [accepted.reply]
    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (first.lease.turn, 2)
    await settle(store, again)


@pytest.mark.parametrize("word", ["continue", "drop", "/stop"])
async def test_a_forwarded_word_answers_nothing_and_orders_nothing(
    store: Store, ada: Person, word: str
) -> None:
    # Another person wrote the word, and nobody asked them.
    await ada.says("work")
    first = await claim_one(store)
    await flush(store, first.lease, "half")
    await store.turns.interrupt(first.lease, Interruption.CRASH, attempts_max=3)
    await resumed(store, ASK)

    update = message(ada.id, word, external_id="forwarded")
    passed_on = msgspec.structs.replace(update, passed_on=(Passage(0, len(word)),))
    accepted = await store.inbox.accept(passed_on, queue_max=10)

    assert (accepted.effect, accepted.command) == (UpdateEffect.QUEUED, "")
    assert accepted.turn not in (None, first.lease.turn)


@pytest.mark.parametrize("word", ["drop", "Drop", "DROP "])
async def test_the_word_drop_settles(store: Store, send: Sender, word: str) -> None:
    await send("work")
    first = await claim_one(store)
    await flush(store, first.lease, "half")
    await store.turns.interrupt(first.lease, Interruption.CRASH, attempts_max=3)
    await resumed(store, ASK)

    accepted = await send(word)

    assert (accepted.effect, accepted.turn) == (UpdateEffect.DROPPED, None)
    record = await record_of(store, first.lease.session)
    assert [turn.outcome for turn in record.turns] == ["interrupted"]
    assert record.head == first.lease.turn
    assert [said.text for said in only(AssistantSaid, record.events)] == ["half"]
    assert [taken.command for taken in only(CommandTaken, record.events)] == ["drop"]
    assert await store.turns.claim(limit=9) == []
    assert await resumed(store, ASK) == []
    await send("something else")
    assert (await claim_one(store)).parent == first.lease.turn


async def test_an_answer_that_comes_twice_is_taken_once(store: Store, ada: Person) -> None:
    await ada.says("work")
    await cut(store)
    await resumed(store, ASK)
    answer = message(ada.id, "continue", external_id="answer")

    first = await store.inbox.accept(answer, queue_max=9)
    again = await store.inbox.accept(answer, queue_max=9)

    assert (again.is_duplicate, again.turn, again.message) == (True, first.turn, first.message)
    record = await record_of(store, first.session)
    assert len(only(CommandTaken, record.events)) == len(only(TurnRequeued, record.events)) == 1


@pytest.mark.parametrize("word", ["continue", "drop"])
async def test_the_words_are_text_where_nobody_asked(store: Store, send: Sender, word: str) -> None:
    first = await cut_after_message(store, send)
    await resumed(store, WAIT)

    accepted = await send(word, policy=WAIT)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, (first.lease.turn,))
    assert await texts_waiting(store, accepted.session) == [word]


async def test_any_other_text_replaces_what_was_asked_about(store: Store, send: Sender) -> None:
    first = await cut_after_message(store, send)
    await resumed(store, ASK)

    accepted = await send("continue with the other one", policy=ASK)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, (first.lease.turn,))
    assert await texts_waiting(store, accepted.session) == ["continue with the other one"]


@pytest.mark.parametrize("busy", [Busy.QUEUE, Busy.STEER])
@pytest.mark.parametrize("reason", list(Interruption))
async def test_a_message_waits_behind_a_turn_that_goes_on_by_itself(
    store: Store, send: Sender, reason: Interruption, busy: Busy
) -> None:
    # The interrupted turn is answered next, as if it ran, however long it is held back.
    await send("work")
    first = await cut(store, reason)

    accepted = await send("and then?", busy=busy)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, ())
    assert accepted.queue_position == 1
    assert await store.turns.claim(limit=9) == []
    assert await resumed(store) == [first.lease.turn]
    assert await in_order(store, accepted.session) == ["work", "and then?"]
    outcomes = [turn.outcome for turn in (await record_of(store, accepted.session)).turns]
    assert outcomes == ["done", "done"]


async def test_a_newer_message_supersedes_an_interrupted_turn_where_messages_interrupt(
    store: Store, send: Sender
) -> None:
    first = await cut_after_message(store, send)

    accepted = await send("rather this", busy=Busy.INTERRUPT)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.SUPERSEDED, (first.lease.turn,))
    row = await turn_row(store, accepted.session, first.lease.turn)
    assert (row.outcome, row.reason) == ("superseded", "a newer message came")


@pytest.mark.parametrize("policy", [GO_ON, WAIT, ASK, STALE], ids=["on", "wait", "ask", "stale"])
async def test_a_call_goes_on_whatever_comes_after_it(
    store: Store, send: Sender, clock: VirtualClock, policy: Policy
) -> None:
    # The caller of a call repeats it under its key, and waits for the answer.
    call = await send("compute", kind=UpdateKind.CALL)
    first = await cut(store)
    clock.advance(3_600)

    accepted = await send("and then?", policy=policy)

    assert accepted.ended == ()
    assert await resumed(store, policy) == [first.lease.turn]
    await settle(store, await claim_one(store), "42")
    row = await turn_row(store, call.session, turn_of(call))
    assert (row.state, row.outcome) == ("settled", "done")


async def suspects(
    store: Store, send: Sender, places: Sequence[str], clock: VirtualClock, lived_s: float = 0
) -> dict[str, Claimed]:
    """Make conversations whose turns crashed twice, the first time after this many seconds. Returns
    the interrupted turns by place."""
    found = {}
    for place in places:
        await send("poison?", place=place)
        claimed = await claim_one(store)
        clock.advance(lived_s)
        await store.nodes.beat()
        await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=3)
        await resumed(store)
        found[place] = await cut(store, Interruption.CRASH)
    return found


@pytest.mark.parametrize("busy", [Busy.QUEUE, Busy.STEER])
async def test_a_message_waits_behind_a_turn_that_is_held_back(
    store: Store, send: Sender, clock: VirtualClock, busy: Busy
) -> None:
    # The turn crashed twice and waits for another suspect. Then the turn and the message are both
    # answered, in order.
    held = await suspects(store, send, ["s0", "s1"], clock, lived_s=2)
    (first,) = await resumed(store)
    other = await claim_one(store)
    place = next(place for place, each in held.items() if each.lease.turn != first)

    accepted = await send("and then?", place=place, busy=busy)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, ())
    assert (await store.nodes.resume(GO_ON, limit=9)).is_holding_back
    await settle(store, other)
    assert await resumed(store) == [held[place].lease.turn]
    assert await in_order(store, accepted.session) == ["poison?", "and then?"]
    outcomes = [turn.outcome for turn in (await record_of(store, accepted.session)).turns]
    assert outcomes == ["done", "done"]


@pytest.mark.parametrize(("lived_s", "alone_s"), [(0, 0), (2, 2), (3_000, 60)])
async def test_a_suspect_is_alone_until_it_has_lived_longer_than_ever_before(
    store: Store, send: Sender, clock: VirtualClock, lived_s: float, alone_s: float
) -> None:
    # Then the next suspect begins: many of them must not have to wait until each of the others
    # ends.
    await suspects(store, send, ["s0", "s1"], clock, lived_s)
    assert len(await resumed(store)) == 1
    assert (await store.nodes.resume(GO_ON, limit=9)).look_again_ms is None  # it has not begun
    first = await claim_one(store)
    began = clock.now_ms()

    clock.advance(alone_s)
    held = await store.nodes.resume(GO_ON, limit=9)
    assert (held.recorded, held.is_holding_back) == ([], True)
    assert held.look_again_ms == began + alone_s * 1000 + 1
    clock.advance(0.001)
    following = await store.nodes.resume(GO_ON, limit=9)

    (next_one,) = only(TurnRequeued, following.recorded)
    assert next_one.turn != first.lease.turn
    assert (following.is_holding_back, following.look_again_ms) == (False, None)


@pytest.mark.parametrize("is_carried", [False, True], ids=["alone", "with text"])
async def test_a_node_counts_as_dead_since_its_last_heartbeat(
    store: Store, send: Sender, clock: VirtualClock, restart: OpenStore, *, is_carried: bool
) -> None:
    # The time in which the node was down, however long, must not count as time that the turn has
    # lived.
    for place in ("s0", "s1"):
        await send(place=place)
    for _ in range(2):
        claimed = await store.turns.claim(limit=9)
        assert len(claimed) == 2
        clock.advance(2)
        if is_carried:
            await store.turns.flush([piece(claimed[0].lease, "So ")], beats=True)
        else:
            await store.nodes.beat()
        clock.advance(1_000)
        store = await restart()
        await store.nodes.reap(attempts_max=3, limit=9)
        while (await store.nodes.resume(GO_ON, limit=9)).recorded:
            pass
    await claim_one(store)

    held = await store.nodes.resume(GO_ON, limit=9)

    assert held.look_again_ms == clock.now_ms() + 2_000 + HEARTBEAT_MS + 1


async def test_a_turn_that_made_room_for_the_next_suspect_is_not_given_up_for_it(
    store: Store, send: Sender, clock: VirtualClock, restart: OpenStore
) -> None:
    # The first turn had lived longer than ever before; the node died while the second was on trial.
    await suspects(store, send, ["s0", "s1"], clock)
    await resumed(store)
    proved = await claim_one(store)
    clock.advance(1)
    await resumed(store)
    on_trial = await claim_one(store)
    store = await restart()

    await store.nodes.reap(attempts_max=3, limit=9)

    states = [
        (await turn_row(store, each.lease.session, each.lease.turn)).state
        for each in (proved, on_trial)
    ]
    assert states == ["interrupted", "settled"]
    assert await resumed(store) == [proved.lease.turn]
    await settle(store, await claim_one(store))


async def test_suspects_go_on_last_and_one_at_a_time(
    store: Store, send: Sender, clock: VirtualClock
) -> None:
    suspected = await suspects(store, send, ["s0", "s1"], clock)
    turns = {claimed.lease.turn for claimed in suspected.values()}
    bystanders = set()
    for n in range(3):
        await send(place=f"b{n}")
        bystanders.add((await cut(store, Interruption.CRASH)).lease.turn)

    first = await store.nodes.resume(GO_ON, limit=100)
    assert {event.turn for event in only(TurnRequeued, first.recorded)} == bystanders
    assert first.is_holding_back

    alone = await store.nodes.resume(GO_ON, limit=100)
    (one,) = only(TurnRequeued, alone.recorded)
    assert one.turn in turns
    assert alone.is_holding_back
    assert (await store.nodes.resume(GO_ON, limit=100)).recorded == []

    running = await store.turns.claim(limit=100)
    for claimed in sorted(running, key=lambda each: each.lease.turn == one.turn):
        assert (await store.nodes.resume(GO_ON, limit=100)).recorded == []
        await settle(store, claimed)
    last = await store.nodes.resume(GO_ON, limit=100)
    assert {event.turn for event in only(TurnRequeued, last.recorded)} == turns - {one.turn}
    assert not last.is_holding_back


async def test_the_culprit_falls_alone(store: Store, send: Sender, restart: OpenStore) -> None:
    # One of five conversations kills its host whenever it runs. The others must be answered.
    await send("poison", place="culprit")
    for n in range(4):
        await send(place=f"b{n}")
    for _ in range(12):
        claimed = await store.turns.claim(limit=100)
        culprit = [each for each in claimed if each.address.place == "culprit"]
        if culprit or not claimed:  # what runs beside it is interrupted too
            store = await restart()
        else:
            for each in claimed:
                await settle(store, each)
        await store.nodes.reap(attempts_max=3, limit=100)
        while (await store.nodes.resume(GO_ON, limit=100)).recorded:
            pass

    sessions = await store.archive.sessions(principal=None, page=Page(limit=100))
    records = [await record_of(store, session.id) for session in sessions]
    outcomes = sorted(str(turn.outcome) for record in records for turn in record.turns)
    assert outcomes == ["done"] * 4 + ["suspended"]


@pytest.mark.parametrize("reason", COUNTED)
@pytest.mark.parametrize("attempts_max", [1, 2, 3])
async def test_the_last_allowed_interruption_suspends_the_turn_alone(
    store: Store, send: Sender, reason: Interruption, attempts_max: int
) -> None:
    # The turns behind it are served: the same turns, in their order, in the session that replaces
    # the suspended one.
    first = await send("poison")
    behind = [await send(f"behind {n}") for n in range(2)]
    for n in range(1, attempts_max + 1):
        claimed = await claim_one(store)
        await flush(store, claimed.lease, f"try {n}")
        recorded = await store.turns.interrupt(claimed.lease, reason, attempts_max=attempts_max)
        assert bool(only(TurnSettled, recorded)) == (n == attempts_max)
        await resumed(store)

    record = await record_of(store, first.session)
    assert (record.session.state, record.head) == ("suspended", first.turn)
    assert [(turn.id, turn.outcome) for turn in record.turns] == [(first.turn, "suspended")]
    said = [event.text for event in only(AssistantSaid, record.events)]
    assert said == [f"try {n}" for n in range(1, attempts_max + 1)]
    successor = (await store.conversations.snapshot(first.conversation)).view.standing.session
    moved = [(event.turn, event.to) for event in only(TurnMoved, record.events)]
    assert moved == [(each.turn, successor) for each in behind]
    following = await record_of(store, successor)
    opened, (told,) = following.events[0].event, only(NoticePosted, following.events)
    assert isinstance(opened, SessionOpened)
    assert (opened.reason, opened.parent) == ("suspended", first.session)
    assert told.text == given_up_text(attempts_max, goes_on=True)
    for each in behind:
        claimed = await claim_one(store)
        assert (claimed.lease.turn, claimed.lease.attempt) == (each.turn, 1)
        await settle(store, claimed)
    assert await store.turns.claim(limit=9) == []


async def test_messages_that_come_while_a_turn_is_given_up_are_served(
    store: Store, send: Sender
) -> None:
    await send("poison")
    claimed = await claim_one(store)
    waiting = [await send("behind")]

    await asyncio.gather(
        *(send(f"meanwhile {n}") for n in range(5)),
        store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1),
        *(send(f"later {n}") for n in range(5)),
    )

    served = []
    while next_one := await store.turns.claim(limit=9):
        (each,) = next_one
        served.append(each.lease.turn)
        await settle(store, each)
    assert (served[0], len(set(served)), len(served)) == (waiting[0].turn, 11, 11)


async def test_a_turn_that_moved_is_the_same_for_everybody(
    store: Store, send: Sender, ada: Person
) -> None:
    await send("poison")
    await claim_one(store)
    behind = await send("/queue behind")
    turn = turn_of(behind)
    await store.inbox.amend(turn, "rather this", by=None)
    await store.nodes.reclaim(known=(), attempts_max=1)
    live = (await store.conversations.snapshot(behind.conversation)).view.standing.session

    send.sent -= 1
    again = await send("/queue behind")
    explained = await store.diagnostics.explain(behind.message, principal=ada.id)
    view = await store.archive.turn(turn, principal=ada.id)
    (events,) = await store.conversations.chain(turn, limit=9)

    assert (again.turn, again.message, again.is_duplicate) == (turn, behind.message, True)
    assert (again.session, again.reply) == (live, behind.reply)
    assert (view.session, explained.turn) == (live, view)
    assert len(explained.updates) == 1
    assert {recorded.session for recorded in (*events, *explained.events)} == {live}
    assert [event.text for event in only(TurnAmended, events)] == ["rather this"]
    await store.inbox.stop(turn, by=ada.id)
    assert (await store.archive.turn(turn, principal=ada.id)).outcome == "stopped"


async def test_an_edit_finds_its_message_where_it_has_moved(
    store: Store, post: Sender, ada: Person
) -> None:
    await post("poison")
    await claim_one(store)
    behind = await post("behind")
    await store.nodes.reclaim(known=(), attempts_max=1)

    edited = await post("rather this", kind=UpdateKind.EDIT, target="s-2")

    assert edited.effect is UpdateEffect.AMENDED
    claimed = await claim_one(store)
    assert claimed.lease.turn == behind.turn
    assert [event.text for event in only(TurnAmended, claimed.events)] == ["rather this"]


async def test_a_moved_turn_moves_again(store: Store, send: Sender) -> None:
    await send("poison")
    await claim_one(store)
    await send("poison too")
    last = await send("fine")
    await store.nodes.reclaim(known=(), attempts_max=1)
    await claim_one(store)
    await store.nodes.reclaim(known=(), attempts_max=1)
    claimed = await claim_one(store)

    assert claimed.lease.turn == last.turn
    (events,) = await store.conversations.chain(claimed.lease.turn, limit=9)
    assert [type(recorded.event) for recorded in events] == [TurnQueued, TurnStarted]


async def test_what_nobody_took_of_a_suspended_turn_is_asked_by_itself(
    store: Store, send: Sender
) -> None:
    first = await send("poison")
    claimed = await claim_one(store)
    steered = await send("rather this", busy=Busy.STEER)
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    freed = await claim_one(store)

    assert freed.lease.session != first.session
    (queued,) = only(TurnQueued, freed.events)
    assert (queued.text, queued.message) == ("rather this", steered.message)
    await settle(store, freed)


async def test_a_suspended_turns_words_are_sent_to_a_platform_and_said_to_be_all(
    store: Store, post: Sender
) -> None:
    # The final text replaces the shown text. No later transaction would send it.
    accepted = await post("poison")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "So far so good, and more.")
    for index in range(2):
        shown = await store.outbox.bubble(claimed.lease, index, "So far")
        assert shown is not None
        await store.outbox.record(shown.part.id, PartState.SENT, receipt=f"r{index}")
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    record = await record_of(store, accepted.session)

    reply, gone = record.parts[2:]
    told = given_up_text(1, goes_on=False)
    assert (reply.step, reply.text) == ("edit", f"So far so good, and more.\n\n⚠️ {told}")
    assert gone.step == "delete"
    assert [event.text for event in only(NoticePosted, record.events)] == [told]


async def test_what_went_ahead_is_not_sent_again(store: Store, post: Sender) -> None:
    accepted = await post("poison")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "One.\n\nTwo.\n\nThr")
    await store.outbox.go_ahead(claimed.lease, ["One.", "Two."])
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)

    parts = (await record_of(store, accepted.session)).parts

    assert [part.text for part in parts[:2]] == ["One.", "Two."]
    assert [part.text.partition("\n")[0] for part in parts[2:]] == ["Thr"]


@pytest.mark.parametrize("reason", PLANNED)
async def test_planned_endings_do_not_count(
    store: Store, send: Sender, reason: Interruption
) -> None:
    await send("long work")
    for attempt in range(1, 6):
        claimed = await cut(store, reason)
        assert claimed.lease.attempt == attempt
        assert await resumed(store) == [claimed.lease.turn]

    claimed = await claim_one(store)
    assert await strikes(store, claimed.lease.session) == 0
    await settle(store, claimed)


@pytest.mark.parametrize(
    ("outcome", "left"), [(Outcome.DONE, 0), (Outcome.FAILED, 2), (Outcome.STOPPED, 2)]
)
async def test_only_a_turn_that_is_done_clears_the_count(
    store: Store, send: Sender, clock: VirtualClock, outcome: Outcome, left: int
) -> None:
    found = await suspects(store, send, ["home"], clock)
    session = found["home"].lease.session
    await resumed(store)
    claimed = await claim_one(store)

    if outcome is Outcome.STOPPED:
        await store.inbox.stop(claimed.lease.turn, by=None)
    else:
        await settle(store, claimed, outcome=outcome)

    assert await strikes(store, session) == left


async def suspend(store: Store, send: Sender) -> Accepted:
    accepted = await send("poison")
    await cut(store, Interruption.CRASH, attempts_max=1)
    return accepted


@pytest.mark.parametrize("policy", [GO_ON, ASK, WAIT])
async def test_suspended_wins_over_every_policy(store: Store, send: Sender, policy: Policy) -> None:
    suspended = await suspend(store, send)

    result = await store.nodes.resume(policy, limit=100)

    assert (result.recorded, result.is_holding_back) == ([], False)
    (told,) = await notices(store, suspended.session)
    assert told.choices == ()


async def test_after_a_suspension_the_next_message_begins_anew_and_says_so(
    store: Store, post: Sender
) -> None:
    old = await suspend(store, post)

    fresh = await post("are you there?")
    more = await post("well?")

    assert fresh.session != old.session
    assert fresh.conversation == old.conversation
    assert more.session == fresh.session
    record = await record_of(store, fresh.session)
    (opened,) = only(SessionOpened, record.events)
    assert (opened.reason, opened.parent) == ("suspended", old.session)
    (told,) = only(NoticePosted, record.events)
    assert "/resume" in told.text
    assert [part.text for part in record.parts] == [told.text]
    assert (await record_of(store, old.session)).session.state == "suspended"
    claimed = await claim_one(store)
    assert (claimed.lease.turn, claimed.parent) == (fresh.turn, None)
    await settle(store, claimed, parts=("fine",))


async def test_a_newer_message_supersedes(store: Store, send: Sender) -> None:
    await send("long story")
    running = await claim_one(store)
    once, safe = tool_call("pay"), tool_call("look", repeat=Repeat.PURE)
    await store.turns.append(
        running.lease,
        [
            said(running.lease, "Let me pay.", calls=(once, safe)),
            ToolStarted(turn=running.lease.turn, call=once.id),
            ToolStarted(turn=running.lease.turn, call=safe.id),
        ],
    )

    accepted = await send("stop that", busy=Busy.INTERRUPT)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.SUPERSEDED, (running.lease.turn,))
    record = await record_of(store, accepted.session)
    assert [(turn.state, turn.outcome) for turn in record.turns] == [
        ("settled", "superseded"),
        ("queued", None),
    ]
    endings = {event.call: event.ending for event in only(ToolFinished, record.events)}
    assert endings == {once.id: CallEnding.UNKNOWN, safe.id: CallEnding.INTERRUPTED}
    assert record.strikes == 0
    with pytest.raises(Fenced):
        await store.turns.append(running.lease, [said(running.lease, "late")])
    with pytest.raises(Fenced):
        await settle(store, running, "late")
    assert await flush(store, running.lease, "late") == [running.lease]
    claimed = await claim_one(store)
    assert (claimed.lease.turn, claimed.parent) == (accepted.turn, running.lease.turn)
    await next_request(store, claimed)


async def test_text_that_was_shown_outlives_what_supersedes_it(store: Store, send: Sender) -> None:
    await send("long story")
    running = await claim_one(store)
    await flush(store, running.lease, "Once upon ")
    await flush(store, running.lease, "a time", start=10)

    accepted = await send("stop that", busy=Busy.INTERRUPT)

    (kept,) = only(AssistantSaid, accepted.recorded)
    assert (kept.text, kept.turn) == ("Once upon a time", running.lease.turn)


async def test_a_message_that_only_waits_is_not_superseded(store: Store, send: Sender) -> None:
    await send("one")

    accepted = await send("two", busy=Busy.INTERRUPT)

    assert (accepted.effect, accepted.ended) == (UpdateEffect.QUEUED, ())
    assert await texts_waiting(store, accepted.session) == ["one", "two"]


async def test_a_steer_stands_in_the_history_where_it_was_taken(store: Store, send: Sender) -> None:
    await send("look around")
    running = await claim_one(store)
    media = await store.media.put(
        b"north", mime="image/png", name="north.png", principal=running.principal
    )
    picture = Attachment(media=media.id, mime="image/png", name="north.png")
    call = tool_call("look")
    await store.turns.append(running.lease, [said(running.lease, "", calls=(call,))])

    first = await send("to the north", busy=Busy.STEER, attachments=(picture,))
    second = await send("quickly", busy=Busy.STEER)

    assert (first.effect, first.turn) == (UpdateEffect.STEERED, running.lease.turn)
    (accepted,) = only(SteerAccepted, first.recorded)
    assert (accepted.text, accepted.attachments) == ("to the north", (picture,))
    done = ToolFinished(
        turn=running.lease.turn, call=call.id, ending=CallEnding.RETURNED, result="trees"
    )
    await store.turns.append(running.lease, [done])
    taken = only(SteerTaken, await store.turns.take_steers(running.lease))
    assert [each.message for each in taken] == [first.message, second.message]
    assert taken[0].attachments == (picture,)
    assert await store.turns.take_steers(running.lease) == []
    recorded = await settle(store, running, "")
    assert only(TurnQueued, recorded) == []
    record = await record_of(store, first.session)
    assert [turn.outcome for turn in record.turns] == ["done"]


async def test_a_steer_of_a_quiet_conversation_is_a_message(store: Store, send: Sender) -> None:
    accepted = await send("hello", busy=Busy.STEER)

    assert accepted.effect is UpdateEffect.QUEUED
    assert await texts_waiting(store, accepted.session) == ["hello"]


async def test_a_stale_runner_takes_no_steers(store: Store, send: Sender) -> None:
    await send("work")
    running = await claim_one(store)
    await send("this way", busy=Busy.STEER)
    await store.inbox.stop(running.lease.turn, by=None)

    with pytest.raises(Fenced):
        await store.turns.take_steers(running.lease)


async def test_a_steer_that_was_not_taken_is_answered_at_its_place(
    store: Store, send: Sender
) -> None:
    # It is answered before the messages that came after it, wherever it waits and however the turn
    # ends.
    first = await send("first")
    running = await claim_one(store)
    await send("second", busy=Busy.STEER)
    await send("third")
    last = await send("fourth", busy=Busy.STEER)

    await settle(store, running)

    assert last.effect is UpdateEffect.QUEUED
    waiting = ["second", "third", "fourth"]
    assert await texts_waiting(store, first.session) == waiting
    for text in waiting:
        claimed = await claim_one(store)
        assert only(TurnQueued, claimed.events)[0].text == text
        await settle(store, claimed)


async def test_a_steer_to_a_turn_that_is_given_up_keeps_its_place(
    store: Store, send: Sender
) -> None:
    # It keeps its place in the session that takes over, ahead of all messages that came later.
    await send("poison")
    running = await claim_one(store)
    for n in range(9):
        await send(f"taken {n}", busy=Busy.STEER)
    await store.turns.take_steers(running.lease)
    await send("second", busy=Busy.STEER)
    await send("third")
    await store.turns.interrupt(running.lease, Interruption.CRASH, attempts_max=1)
    later = await send("fourth")

    assert await texts_waiting(store, later.session) == ["second", "third", "fourth"]


async def test_a_steer_waits_through_an_interruption(store: Store, send: Sender) -> None:
    await send("work")
    running = await claim_one(store)
    steer = await send("this way", busy=Busy.STEER)
    await store.turns.interrupt(running.lease, Interruption.CRASH, attempts_max=3)
    await resumed(store)

    again = await claim_one(store)

    taken = only(SteerTaken, await store.turns.take_steers(again.lease))
    assert [each.message for each in taken] == [steer.message]
    await settle(store, again)


async def _settle(store: Store, send: Sender, running: Claimed) -> None:
    await settle(store, running)


async def _stop(store: Store, send: Sender, running: Claimed) -> None:
    await store.inbox.stop(running.lease.turn, by=None)


async def _supersede(store: Store, send: Sender, running: Claimed) -> None:
    await send("newer", busy=Busy.INTERRUPT)


async def _replace(store: Store, send: Sender, running: Claimed) -> None:
    await store.turns.interrupt(running.lease, Interruption.SHUTDOWN, attempts_max=3)
    await send("newer", policy=WAIT)


async def _make_way(store: Store, send: Sender, running: Claimed) -> None:
    await store.turns.interrupt(running.lease, Interruption.SHUTDOWN, attempts_max=3)
    await resumed(store, ASK)


@pytest.mark.parametrize(
    ("end", "after"),
    [(_settle, []), (_stop, []), (_supersede, ["newer"]), (_replace, ["newer"]), (_make_way, [])],
)
async def test_steers_that_nobody_took_become_turns(
    store: Store,
    ada: Person,
    send: Sender,
    end: Callable[[Store, Sender, Claimed], Awaitable[None]],
    after: list[str],
) -> None:
    await send("work")
    running = await claim_one(store)
    taken = await send("taken", busy=Busy.STEER)
    await store.turns.take_steers(running.lease)
    update = msgspec.structs.replace(message(ada.id, "one", external_id="steer"), busy=Busy.STEER)
    steered = await store.inbox.accept(update, queue_max=9)
    await send("two", busy=Busy.STEER)

    await end(store, send, running)

    assert await texts_waiting(store, taken.session) == ["one", "two", *after]
    again = await store.inbox.accept(update, queue_max=9)
    record = await record_of(store, taken.session)
    (own,) = [event for event in only(TurnQueued, record.events) if event.text == "one"]
    assert own.message == steered.message == again.message
    assert (again.is_duplicate, again.turn) == (True, own.turn)
    for text in ["one", "two", *after]:
        claimed = await claim_one(store)
        assert only(TurnQueued, claimed.events)[0].text == text
        await settle(store, claimed)


async def test_a_waiting_message_can_be_rewritten(store: Store, ada: Person, send: Sender) -> None:
    await send("first")
    waiting = turn_of(await send("wrong"))

    recorded = await store.inbox.amend(waiting, "right", by=ada.id)

    assert [event.text for event in only(TurnAmended, recorded)] == ["right"]
    await settle(store, await claim_one(store))
    request = await next_request(store, await claim_one(store))
    words = [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
    assert words[-1] == "right"
    assert "wrong" not in words


async def test_only_waiting_messages_can_be_rewritten(
    store: Store, ada: Person, bob: Person, send: Sender
) -> None:
    turn = turn_of(await send("hello"))
    with pytest.raises(NotFound):
        await store.inbox.amend(turn, "not mine", by=bob.id)
    with pytest.raises(Rejected) as empty:
        await store.inbox.amend(turn, "  ", by=ada.id)
    assert empty.value.code == "empty_message"

    async def must_be_refused() -> None:
        with pytest.raises(Conflict) as refused:
            await store.inbox.amend(turn, "too late", by=ada.id)
        assert refused.value.code == "already_begun"

    claimed = await claim_one(store)
    await must_be_refused()
    await store.turns.interrupt(claimed.lease, Interruption.SHUTDOWN, attempts_max=3)
    await must_be_refused()
    await resumed(store)
    await must_be_refused()
    await settle(store, await claim_one(store))
    await must_be_refused()


async def test_an_announcement_reaches_whoever_we_work_for(
    peers: list[Store], store: Store, send: Sender, post: Sender
) -> None:
    # Waiting turns, and turns of another node, are not announced to. Each announcement says what
    # becomes of its turn.
    await send("read", place="over-http")
    await post("pushed", place="on-chat")
    await send("a program's", place="program", kind=UpdateKind.CALL)
    assert len(await store.turns.claim(limit=3)) == 3
    await post("waits behind", place="on-chat")
    await send("waits", place="waiting")
    elsewhere = peers[-1] if len(peers) > 1 else None
    if elsewhere is not None:
        await elsewhere.turns.claim(limit=1)

    policy, drain = Policy(resume=Resume.ASK), Drain()
    recorded = await store.nodes.announce(policy, drain)

    told = {each.session for each in recorded}
    turns = [UnderWay(), UnderWay(is_followed=True), UnderWay(kind=TurnKind.CALL)]
    texts = [shutdown_text(policy, drain, turn) for turn in turns]
    assert sorted(each.text for each in only(NoticePosted, recorded)) == sorted(texts)
    records = [await record_of(store, session) for session in told]
    sent = [part for record in records for part in record.parts if part.step == DeliveryStep.POST]
    assert [(part.adapter, part.text) for part in sent] == [("chat", texts[1])]


async def test_the_last_interruption_is_announced_as_such(store: Store, send: Sender) -> None:
    # The interruption that follows is then really the last one.
    await send("work")
    policy, drain = Policy(attempts_max=2), Drain(asked=NodeRequest.RESTART)
    texts: list[str] = []
    recorded: list[Recorded] = []
    for _ in range(2):
        claimed = await claim_one(store)
        texts += [
            each.text for each in only(NoticePosted, await store.nodes.announce(policy, drain))
        ]
        recorded = await store.turns.interrupt(
            claimed.lease,
            Interruption.DRAIN_TIMEOUT,
            attempts_max=policy.attempts_max,
            asked=drain.asked,
        )
        await resumed(store, policy)

    assert ["given up" in text for text in texts] == [False, True]
    assert [each.outcome for each in only(TurnSettled, recorded)] == [Outcome.SUSPENDED]
    (cut_short,) = only(AttemptInterrupted, recorded)
    assert (cut_short.reason, cut_short.asked) == (Interruption.DRAIN_TIMEOUT, NodeRequest.RESTART)


@pytest.mark.parametrize("resume", list(Resume))
async def test_what_has_become_too_old_to_go_on_is_told_once(
    store: Store, post: Sender, clock: VirtualClock, restart: OpenStore, resume: Resume
) -> None:
    # People had been told that the turn would go on, or that they would be asked about it.
    first = await cut_after_message(store, post)
    clock.advance(3_601)
    policy = Policy(resume=resume)
    for _ in range(3):
        assert await resumed(store, policy) == []
        store = await restart()

    told = await notices(store, first.lease.session)
    expected = too_old_text(policy, Interruption.SHUTDOWN, NodeRequest.NOTHING)
    assert [each.text for each in told] == [expected] * (resume is not Resume.WAIT)
    assert [each.choices for each in told] == [()] * len(told)
    sent = [part.text for part in await parts(store, first.lease.session)]
    assert sent == [each.text for each in told]


async def test_a_turn_that_is_too_old_is_not_told_of_where_somebody_has_written_since(
    store: Store, send: Sender, clock: VirtualClock
) -> None:
    await send("work")
    first = await claim_one(store)
    await send("and then?")
    await store.turns.interrupt(first.lease, Interruption.SHUTDOWN, attempts_max=3)
    clock.advance(3_601)

    await resumed(store, Policy())

    assert await notices(store, first.lease.session) == []
    assert await texts_waiting(store, first.lease.session) == ["and then?"]


async def in_order(store: Store, session: SessionId) -> list[str]:
    """Run the turns that are left. Returns the users' texts in the order in which their turns
    began."""
    while claimed := await store.turns.claim(limit=1):
        await settle(store, claimed[0])
    texts: list[str] = []
    events: Sequence[Recorded] = (await record_of(store, session)).events
    started = [each.turn for each in events if isinstance(each.event, TurnStarted)]
    for turn in dict.fromkeys(started):
        texts += [
            each.event.text
            for each in events
            if each.turn == turn and isinstance(each.event, TurnQueued | SteerTaken)
        ]
    return texts


@pytest.mark.parametrize("busy", list(Busy))
async def test_a_burst_of_n_gives_n_in_order(store: Store, send: Sender, busy: Busy) -> None:
    accepted = await send("first")
    running = await claim_one(store)
    texts = [f"m{n}" for n in range(12)]
    for text in texts:
        await send(text, busy=busy)
    if busy is Busy.STEER:
        await store.turns.take_steers(running.lease)
    if busy is not Busy.INTERRUPT:
        await settle(store, running)

    assert await in_order(store, accepted.session) == ["first", *texts]


@pytest.mark.parametrize("busy", list(Busy))
async def test_a_burst_at_once_gives_each_its_place(
    peers: list[Store], ada: Person, busy: Busy
) -> None:
    store = peers[0]
    accepted = await ada.says("first")
    running = await claim_one(store)
    updates = [
        msgspec.structs.replace(message(ada.id, f"m{n}", external_id=f"b-{n}"), busy=busy)
        for n in range(12)
    ]
    await asyncio.gather(
        *(
            peers[n % len(peers)].inbox.accept(update, queue_max=100)
            for n, update in enumerate([*updates, *updates])
        )
    )
    if busy is not Busy.INTERRUPT:
        await settle(store, running)

    found = await in_order(store, accepted.session)
    assert found[0] == "first"
    assert sorted(found[1:]) == sorted(update.text for update in updates)


async def test_words_that_a_turn_has_taken_are_no_next_message(store: Store, send: Sender) -> None:
    # So its people are asked, and it does not make way.
    await send("work")
    running = await claim_one(store)
    await send("this way", busy=Busy.STEER)
    await store.turns.take_steers(running.lease)
    await store.turns.interrupt(running.lease, Interruption.SHUTDOWN, attempts_max=3)

    asked = (await store.nodes.resume(ASK, limit=9)).recorded

    assert [each.choices for each in only(NoticePosted, asked)] == [("continue", "drop")]


async def test_a_result_is_no_next_message(store: Store, send: Sender) -> None:
    await send("/background count")
    errand = await claim_one(store)
    await send("work")
    running = await claim_one(store)
    await settle(store, errand, "seven")
    await store.turns.interrupt(running.lease, Interruption.SHUTDOWN, attempts_max=3)

    asked = (await store.nodes.resume(ASK, limit=9)).recorded

    assert [each.choices for each in only(NoticePosted, asked)] == [("continue", "drop")]


async def test_nobody_is_told_of_an_errand_when_the_gateway_stops(
    store: Store, send: Sender
) -> None:
    await send("/background count")
    await claim_one(store)

    assert await store.nodes.announce(Policy(), Drain()) == []
