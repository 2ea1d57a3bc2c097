"""Checks the ports of what agents ask people: one answer counts, whoever gives it and however late,
and people see on the platform what became of the question."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import GrantId, QuestionId, SessionId, TurnId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.inbound.updates import Accepted, UpdateEffect
from perdure.domain.journal.events import (
    NoticePosted,
    ToolCall,
    ToolFinished,
)
from perdure.domain.journal.question_events import AnswerReceived, GrantOffer, WaitEnded
from perdure.domain.outcomes import Busy, CallEnding
from perdure.domain.tools.asking import ALLOW, ALLOW_CALL, ALLOW_SESSION, DENY, DENY_CALL
from perdure.domain.tools.grants import (
    Scope,
    covers,
)
from perdure.domain.turn.next_action import RunCalls, TurnFacts, next_action
from perdure.ports.delivery.outbox import Part
from perdure.ports.records.history import Page
from perdure.ports.turns.questions import QuestionReply, QuestionTaken
from perdure.ports.turns.turns import Claimed
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    inquiry_by,
    message,
    only,
    question_about,
    said,
    settle,
    tool_call,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
pytestmark = pytest.mark.usefixtures("everything_ends_sound")
CHAT = "chat"
PAY, MAIL = tool_call("pay"), tool_call("mail")
QST_PAY, QST_MAIL = QuestionId("qst_pay"), QuestionId("qst_mail")
OFFER = GrantOffer(agent="main", act="pay", definition="v1", words="pay with any arguments")
HOUR_MS = 3_600_000
LATE = "This came too late: the question's time is over, so it was not done."
CANARY = "canary-5518"
FIRST = Page(limit=100)


@pytest.fixture
async def eve(store: Store) -> Person:
    principal = await store.principals.ensure("eve", role="operator")
    return Person(store, principal.id)


@pytest.fixture
def chat(store: Store, ada: Person) -> Person:
    """Return Ada, who writes on a platform."""
    return Person(store, ada.id, adapter=CHAT, place="ada")


async def asks(
    store: Store,
    person: Person,
    *calls: ToolCall,
    deadline: int = 0,
    offer: GrantOffer | None = None,
    is_once: bool = False,
) -> Claimed:
    """Begin a turn, and let it wait until all of these calls are allowed or denied. The question
    about `pay` has the id `qst_pay`."""
    calls = calls or (PAY,)
    await person.says("pay the bill")
    claimed = await claim_one(store)
    lease = claimed.lease
    await store.turns.append(lease, [said(lease, "Sure.", calls=calls)])
    questions = [
        question_about(
            lease,
            call,
            question=call.id.replace("call", "qst"),
            deadline=deadline,
            offer=offer,
            is_once=is_once,
        )
        for call in calls
    ]
    await store.turns.wait(lease, questions)
    return claimed


async def inquires(store: Store, person: Person, text: str, *choices: str) -> Claimed:
    """Begin a turn whose agent asks a question of its own, under the id `qst_ask`."""
    await person.says("plan the trip")
    claimed = await claim_one(store)
    lease, call = claimed.lease, tool_call("ask")
    await store.turns.append(lease, [said(lease, "", calls=(call,))])
    asked = inquiry_by(lease, call, text, *choices, question="qst_ask")
    await store.turns.wait(lease, [asked])
    return claimed


async def answers(
    store: Store,
    by: Person,
    answer: str = ALLOW,
    *,
    question: QuestionId = QST_PAY,
    scope: Scope = Scope.CALL,
    for_ms: int = 0,
) -> QuestionTaken:
    reply = QuestionReply(question=question, answer=answer, by=by.id, scope=scope, for_ms=for_ms)
    return await store.questions.answer(reply)


async def state_of(store: Store, question: QuestionId = QST_PAY) -> str:
    return (await store.questions.one(question, principal=None)).state


async def taken(store: Store) -> Part:
    """Take the one part that is due."""
    parts = await store.outbox.take(adapter=CHAT, limit=10)
    assert len(parts) == 1, [(part.step, part.text) for part in parts]
    return parts[0]


async def delivered(store: Store, receipt: str) -> Part:
    """Send the one part that is due."""
    part = await taken(store)
    await store.outbox.record(part.id, PartState.SENT, receipt=receipt)
    return part


async def endings_of(store: Store, claimed: Claimed) -> list[tuple[str, CallEnding]]:
    record = await store.diagnostics.record(claimed.lease.session)
    return [(event.call, event.ending) for event in only(ToolFinished, record.events)]


# What people see.


async def test_a_question_goes_out_with_its_choices_and_its_id(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat, offer=OFFER)

    part = await taken(store)

    assert (part.step, part.text) == (DeliveryStep.POST, "May I call pay?")
    assert part.choices == (ALLOW_CALL, ALLOW_SESSION, DENY_CALL)
    assert (part.question, part.turn) == (QST_PAY, claimed.lease.turn)
    assert not part.is_of_turn, "it is a notice and no part of the reply"
    record = await store.diagnostics.record(claimed.lease.session)
    (notice,) = only(NoticePosted, record.events)
    assert (notice.message, notice.question) == (part.message, QST_PAY)


async def test_over_http_the_question_is_read_and_not_sent(store: Store, ada: Person) -> None:
    await asks(store, ada, offer=OFFER)

    assert (await store.diagnostics.counts()).outbox_pending == 0
    (view,) = await store.questions.page(FIRST, principal=ada.id)
    assert (view.id, view.kind, view.state, view.tool) == (QST_PAY, "approval", "pending", "pay")
    assert (view.text, view.arguments) == ("May I call pay?", PAY.arguments)
    assert view.grants == OFFER.words


async def test_the_answer_takes_the_buttons_away_and_says_who_gave_it(
    store: Store, chat: Person
) -> None:
    await asks(store, chat)
    await delivered(store, "r1")

    told = (await answers(store, chat)).told

    edit = await taken(store)
    assert (edit.step, edit.receipt) == (DeliveryStep.EDIT, "r1")
    assert edit.text == "May I call pay?\n\n✅ Allowed by ada."
    assert (edit.choices, edit.question) == ((), None)
    assert told == "✅ Allowed by ada."


async def test_what_was_asked_but_not_sent_yet_is_withdrawn(store: Store, chat: Person) -> None:
    # The answer came from elsewhere: from the page, or from an operator.
    await asks(store, chat)

    await answers(store, chat, DENY)

    assert await store.outbox.take(adapter=CHAT, limit=10) == []
    assert await state_of(store) == "denied"


async def test_a_question_on_its_way_is_edited_once_it_has_arrived(
    store: Store, chat: Person
) -> None:
    await asks(store, chat)
    sending = await taken(store)

    await answers(store, chat, DENY)

    assert await store.outbox.take(adapter=CHAT, limit=10) == [], "the question is still under way"
    await store.outbox.record(sending.id, PartState.SENT, receipt="r1")
    edit = await taken(store)
    assert (edit.receipt, edit.choices) == ("r1", ())
    assert edit.text.endswith("⛔ Denied by ada.")


async def test_a_question_that_may_have_been_shown_before_its_next_try_is_edited_after_it(
    store: Store, chat: Person, clock: VirtualClock
) -> None:
    # It waits to be sent again because the answer of the first try was lost. People may see it.
    await asks(store, chat)
    sending = await taken(store)
    await store.outbox.record(sending.id, PartState.PENDING, error="who knows", due_in_s=1)

    await answers(store, chat, DENY)

    clock.advance(1)
    again = await delivered(store, "r1")
    assert (again.id, again.attempts) == (sending.id, 2)
    edit = await taken(store)
    assert (edit.step, edit.receipt, edit.choices) == (DeliveryStep.EDIT, "r1", ())


async def test_a_question_that_was_given_back_unsent_is_withdrawn(
    store: Store, chat: Person, clock: VirtualClock
) -> None:
    await asks(store, chat)
    sending = await taken(store)
    await store.outbox.defer(sending.id, due_in_s=1, attempt=sending.attempts)

    await answers(store, chat, DENY)

    clock.advance(1)
    assert await store.outbox.take(adapter=CHAT, limit=10) == []


async def test_the_last_piece_of_a_long_question_has_the_buttons(
    store: Store, chat: Person
) -> None:
    await asks(store, chat, offer=OFFER)
    whole = await taken(store)
    await store.outbox.divide(whole.id, ["May I ", "call pay?"])

    first, last = await delivered(store, "r1"), await delivered(store, "r2")

    assert (first.choices, first.question) == ((), None)
    assert (last.choices, last.question) == (whole.choices, QST_PAY)
    await answers(store, chat)
    edit = await taken(store)
    assert (edit.receipt, edit.text) == ("r2", "call pay?\n\n✅ Allowed by ada.")


@pytest.mark.parametrize("state", [PartState.FAILED, PartState.EXPIRED])
async def test_what_cannot_be_delivered_is_denied_and_told(
    store: Store, chat: Person, state: PartState, clock: VirtualClock
) -> None:
    claimed = await asks(store, chat)
    if state is PartState.FAILED:
        part = await taken(store)
        recorded = await store.outbox.record(part.id, PartState.FAILED, error="blocked")
    else:
        clock.advance(100_000)
        recorded = (await store.outbox.expire(older_than_s=86_400)).recorded

    (received,) = only(AnswerReceived, recorded)
    assert (received.by, received.reason) == (None, "undeliverable")
    assert only(WaitEnded, recorded) != []
    assert await state_of(store) == "undeliverable"
    with pytest.raises(Conflict, match="closed"):
        await answers(store, chat)
    assert (await claim_one(store)).lease.turn == claimed.lease.turn


async def test_the_questions_of_a_lost_agent_are_void_together(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat, PAY, MAIL)
    lease = claimed.lease
    for receipt in ("r1", "r2"):
        await delivered(store, receipt)
    assert await store.questions.void(lease.turn, attempt=lease.attempt + 1) == []

    recorded = await store.questions.void(lease.turn, attempt=lease.attempt)

    received = only(AnswerReceived, recorded)
    assert [(each.by, each.reason) for each in received] == [(None, "agent_lost")] * 2
    assert len(only(WaitEnded, recorded)) == 1
    edits = [await delivered(store, "edited") for _ in range(2)]
    assert {(each.step, each.receipt) for each in edits} == {
        (DeliveryStep.EDIT, "r1"),
        (DeliveryStep.EDIT, "r2"),
    }
    assert all("the agent's program that asked has ended" in each.text for each in edits)
    assert not any(each.choices for each in edits)
    for question in (QST_PAY, QST_MAIL):
        assert await state_of(store, question) == "withdrawn"
        with pytest.raises(Conflict, match="the agent's program that asked has ended") as late:
            await answers(store, chat, question=question)
        assert late.value.code == "already_answered"
    # The turn goes on, and a second loss of the same agent changes nothing.
    assert (await claim_one(store)).lease.turn == lease.turn
    assert await store.questions.void(lease.turn, attempt=lease.attempt) == []


async def test_an_answer_and_the_loss_of_the_agent_at_once_give_one_verdict(
    store: Store, ada: Person
) -> None:
    claimed = await asks(store, ada)
    lease = claimed.lease
    voiding = store.questions.void(lease.turn, attempt=lease.attempt)
    results = await asyncio.gather(voiding, answers(store, ada), return_exceptions=True)
    record = await store.diagnostics.record(lease.session)
    (received,) = only(AnswerReceived, record.events)
    is_void = received.by is None
    assert isinstance(results[1], Conflict) is is_void
    assert (results[0] == []) is not is_void
    assert await state_of(store) == ("withdrawn" if is_void else "allowed")


# Who may answer, and when.


async def test_only_the_one_who_is_asked_and_operators_may_answer(
    store: Store, ada: Person, bob: Person, eve: Person
) -> None:
    claimed = await asks(store, ada)
    before = await store.diagnostics.record(claimed.lease.session)

    for answer in (ALLOW, DENY, "maybe"):
        with pytest.raises(Rejected) as refused:
            await answers(store, bob, answer)
        assert refused.value.code == "not_yours"
        assert PAY.name not in refused.value.message, "it says nothing of the question"
    assert await store.diagnostics.record(claimed.lease.session) == before

    assert (await answers(store, eve)).told == "✅ Allowed by eve."
    (received,) = only(
        AnswerReceived, (await store.diagnostics.record(claimed.lease.session)).events
    )
    assert received.by == eve.id


async def test_of_many_answers_on_many_nodes_one_counts(
    peers: list[Store], ada: Person, eve: Person
) -> None:
    claimed = await asks(peers[0], ada)

    given = await asyncio.gather(
        *(
            answers(store, who, answer)
            for store in peers
            for who, answer in ((ada, ALLOW), (eve, DENY), (ada, DENY))
        ),
        return_exceptions=True,
    )

    (winner,) = [each for each in given if isinstance(each, QuestionTaken)]
    refused = [each for each in given if isinstance(each, Conflict)]
    assert len(refused) == len(given) - 1
    record = await peers[0].diagnostics.record(claimed.lease.session)
    (received,) = only(AnswerReceived, record.events)
    assert len(only(WaitEnded, record.events)) == 1
    name = "ada" if received.by == ada.id else "eve"
    assert winner.told.endswith(f"by {name}.")
    for each in refused:
        assert (each.code, each.message) == (
            "already_answered",
            f"already answered: {name} said {received.answer}",
        )


async def test_an_answer_after_the_turn_was_stopped_is_told_so(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat)
    await delivered(store, "r1")

    recorded = await store.inbox.stop(claimed.lease.turn, by=chat.id)

    assert [(e.call, e.ending) for e in only(ToolFinished, recorded)] == [
        (PAY.id, CallEnding.DENIED)
    ]
    assert await state_of(store) == "withdrawn"
    edit = await taken(store)
    assert (edit.step, edit.receipt, edit.choices) == (DeliveryStep.EDIT, "r1", ())
    assert edit.text.endswith("⏹️ This is not needed any more: the turn has ended.")
    with pytest.raises(Conflict, match="not needed any more") as refused:
        await answers(store, chat)
    assert refused.value.code == "already_answered"


async def test_a_newer_message_withdraws_the_question_and_denies_the_call(
    store: Store, chat: Person
) -> None:
    claimed = await asks(store, chat, PAY, MAIL)

    update = message(chat.id, "never mind", external_id="newer", adapter=CHAT, place="ada")
    update = msgspec.structs.replace(update, busy=Busy.INTERRUPT)
    accepted = await store.inbox.accept(update, queue_max=9)

    assert accepted.ended == (claimed.lease.turn,)
    assert await endings_of(store, claimed) == [
        (PAY.id, CallEnding.DENIED),
        (MAIL.id, CallEnding.DENIED),
    ]
    assert [await state_of(store, each) for each in (QST_PAY, QST_MAIL)] == ["withdrawn"] * 2
    assert (await taken(store)).text.startswith("Sure."), "nobody is asked any more"
    assert (await claim_one(store)).lease.turn == accepted.turn


async def test_a_message_behind_a_question_waits_and_does_not_end_it(
    store: Store, chat: Person
) -> None:
    claimed = await asks(store, chat)

    behind = await chat.says("and the weather?")

    assert behind.effect is UpdateEffect.QUEUED
    assert await store.turns.claim(limit=10) == []
    assert await state_of(store) == "pending"
    await answers(store, chat)
    first = await claim_one(store)
    assert first.lease.turn == claimed.lease.turn
    await settle_with_results(store, first)
    assert (await claim_one(store)).lease.turn == behind.turn


async def settle_with_results(store: Store, claimed: Claimed) -> None:
    """Let the calls of a turn return, and settle it."""
    action = next_action([each.event for each in claimed.events], TurnFacts())
    assert isinstance(action, RunCalls)
    for call in action.calls:
        done = ToolFinished(
            turn=claimed.lease.turn, call=call.id, ending=CallEnding.RETURNED, result="done"
        )
        await store.turns.append(claimed.lease, [done])
    lease = msgspec.structs.replace(claimed.lease, attempt=claimed.lease.attempt + 100)
    await settle(store, msgspec.structs.replace(claimed, lease=lease), "Paid.")


# Deadlines.


async def test_an_answer_one_instant_before_the_deadline_counts(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    await asks(store, ada, deadline=clock.now_ms() + 1_000)

    clock.advance(0.999)

    assert (await answers(store, ada)).told == "✅ Allowed by ada."
    clock.advance(0.001)
    assert await store.questions.expire(limit=10) == []
    assert await state_of(store) == "allowed"


async def test_an_answer_at_the_deadline_is_too_late_for_everybody_alike(
    store: Store, chat: Person, clock: VirtualClock
) -> None:
    # Nobody has noticed that the time is over before the answer comes. Whoever answers, the agent
    # and the people in the chat are told the same.
    claimed = await asks(store, chat, deadline=clock.now_ms() + 1_000)
    await delivered(store, "r1")
    clock.advance(1)

    late = await answers(store, chat)

    assert late.told == LATE
    (received,) = only(AnswerReceived, late.recorded)
    assert (received.answer, received.by, received.reason) == ("", None, "deadline")
    assert (await taken(store)).text.endswith("⌛ Nobody answered in time, so it was not done.")
    assert await state_of(store) == "expired"
    assert await store.questions.expire(limit=10) == []
    assert (await claim_one(store)).lease.turn == claimed.lease.turn
    with pytest.raises(Conflict, match="Nobody answered in time"):
        await answers(store, chat)


async def test_the_deadline_and_an_answer_at_once_give_one_verdict(
    peers: list[Store], ada: Person, clock: VirtualClock
) -> None:
    claimed = await asks(peers[0], ada, deadline=clock.now_ms() + 1_000)
    clock.advance(1)

    said_so, *expired = await asyncio.gather(
        answers(peers[-1], ada),
        *(store.questions.expire(limit=10) for store in peers),
        return_exceptions=True,
    )

    record = await peers[0].diagnostics.record(claimed.lease.session)
    (received,) = only(AnswerReceived, record.events)
    assert (received.by, received.reason) == (None, "deadline")
    assert len(only(WaitEnded, record.events)) == 1
    if isinstance(said_so, QuestionTaken):
        assert said_so.told == LATE
        assert expired == [[] for _ in peers]
    else:
        assert isinstance(said_so, Conflict)
        assert "Nobody answered in time" in said_so.message


async def test_the_next_deadline_is_that_of_an_open_question(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    now = clock.now_ms()
    assert await store.questions.next_deadline_ms() is None
    await asks(store, ada, deadline=now + 2_000)
    await asks(store, bob, MAIL, deadline=now + 1_000)
    await inquires(store, Person(store, ada.id, place="work"), "When?")

    assert await store.questions.next_deadline_ms() == now + 1_000
    await answers(store, bob, DENY, question=QST_MAIL)
    assert await store.questions.next_deadline_ms() == now + 2_000
    clock.advance(2)
    (received,) = only(AnswerReceived, await store.questions.expire(limit=10))
    assert received.question == QST_PAY
    assert await store.questions.next_deadline_ms() is None, "the last one has no deadline"


async def test_deadlines_pass_in_their_order_and_not_all_at_once(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    now = clock.now_ms()
    calls = [tool_call(f"c{n}") for n in range(4)]
    for n, call in enumerate(calls):
        person = Person(store, ada.id, place=f"room {n}")
        await asks(store, person, call, deadline=now + 1_000 * (4 - n))
    clock.advance(10)

    first = only(AnswerReceived, await store.questions.expire(limit=3))
    rest = only(AnswerReceived, await store.questions.expire(limit=3))

    assert [each.question for each in (*first, *rest)] == ["qst_c3", "qst_c2", "qst_c1", "qst_c0"]
    assert await store.questions.expire(limit=3) == []


# Several questions of one turn.


async def test_a_turn_goes_on_after_the_last_of_its_answers(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat, PAY, MAIL)
    assert [(await delivered(store, each)).question for each in ("r1", "r2")] == [
        QST_PAY,
        QST_MAIL,
    ]

    first = await answers(store, chat, DENY, question=QST_MAIL)

    assert only(WaitEnded, first.recorded) == []
    assert await store.turns.claim(limit=10) == []
    assert (await taken(store)).receipt == "r2", "each question has an end of its own"
    last = await answers(store, chat, question=QST_PAY)
    assert len(only(WaitEnded, last.recorded)) == 1
    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (claimed.lease.turn, 1)
    assert next_action([each.event for each in again.events], TurnFacts()) == RunCalls((PAY, MAIL))


async def test_the_last_two_answers_at_once_put_the_turn_back_once(
    peers: list[Store], ada: Person, eve: Person
) -> None:
    claimed = await asks(peers[0], ada, PAY, MAIL)

    await asyncio.gather(
        answers(peers[0], ada, question=QST_PAY), answers(peers[-1], eve, question=QST_MAIL)
    )

    record = await peers[0].diagnostics.record(claimed.lease.session)
    assert len(only(AnswerReceived, record.events)) == 2
    assert len(only(WaitEnded, record.events)) == 1
    assert (await claim_one(peers[0])).lease.turn == claimed.lease.turn


async def test_one_question_may_expire_while_another_was_answered(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    claimed = await asks(store, ada, PAY, MAIL, deadline=clock.now_ms() + 1_000)
    await answers(store, ada)
    clock.advance(1)

    recorded = await store.questions.expire(limit=10)

    assert [each.question for each in only(AnswerReceived, recorded)] == [QST_MAIL]
    assert len(only(WaitEnded, recorded)) == 1
    assert [await state_of(store, each) for each in (QST_PAY, QST_MAIL)] == ["allowed", "expired"]
    assert (await claim_one(store)).lease.turn == claimed.lease.turn


# Grants.


async def in_force(store: Store, person: Person, session: str, *, agent: str = "main") -> list[str]:
    """Return the scope of the grant that covers what was offered in a session, if there is one."""
    offer = msgspec.structs.replace(OFFER, agent=agent)
    found = await store.grants.covering(person.id, offer=offer, session=SessionId(session))
    return [] if found is None else [found.scope]


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.FOREVER, Scope.TIME])
async def test_an_answer_may_grant_more_than_one_call(
    store: Store, ada: Person, bob: Person, scope: Scope, clock: VirtualClock
) -> None:
    session = (await asks(store, ada, offer=OFFER)).lease.session

    told = (await answers(store, ada, scope=scope, for_ms=HOUR_MS)).told

    assert OFFER.words in told
    granted = await store.grants.covering(ada.id, offer=OFFER, session=session)
    assert granted is not None
    assert (granted.offer, granted.scope) == (OFFER, scope)
    assert covers(granted, OFFER, session=session, now_ms=clock.now_ms())
    changed = msgspec.structs.replace(OFFER, definition="v2")
    assert not covers(granted, changed, session=session, now_ms=clock.now_ms())
    elsewhere = [Scope.FOREVER, Scope.TIME]
    assert bool(await in_force(store, ada, "ses_other")) is (scope in elsewhere)
    assert await in_force(store, bob, session) == [], "nobody grants for others"
    assert await in_force(store, ada, session, agent="other") == []
    clock.advance(HOUR_MS / 1000)
    still = [] if scope is Scope.TIME else [scope]
    assert await in_force(store, ada, session) == still
    assert [view.scope for view in await store.grants.page(FIRST, principal=ada.id)] == still


async def test_an_operator_who_answers_grants_in_the_name_of_the_person(
    store: Store, ada: Person, eve: Person
) -> None:
    session = (await asks(store, ada, offer=OFFER)).lease.session

    await answers(store, eve, scope=Scope.FOREVER)

    assert await in_force(store, ada, session) == [Scope.FOREVER]
    assert await in_force(store, eve, session) == []


async def test_a_grant_ends_when_it_is_revoked(store: Store, ada: Person, bob: Person) -> None:
    session = (await asks(store, ada, offer=OFFER)).lease.session
    await answers(store, ada, scope=Scope.FOREVER)
    (view,) = await store.grants.page(FIRST, principal=ada.id)
    assert (view.person, view.agent, view.tool, view.covers) == ("ada", "main", "pay", OFFER.words)

    with pytest.raises(NotFound):
        await store.grants.revoke(view.id, principal=bob.id)
    assert await in_force(store, ada, session) == [Scope.FOREVER]
    assert await store.grants.revoke(view.id, principal=ada.id) == view
    assert await in_force(store, ada, session) == []
    assert await store.grants.page(FIRST, principal=None) == []
    with pytest.raises(NotFound):
        await store.grants.revoke(view.id, principal=None)


async def test_one_call_and_a_denial_grant_nothing(store: Store, ada: Person, bob: Person) -> None:
    one = (await asks(store, ada, offer=OFFER)).lease.session
    other = (await asks(store, bob, MAIL, offer=OFFER)).lease.session
    await answers(store, ada)
    await answers(store, bob, DENY, question=QST_MAIL, scope=Scope.FOREVER)

    assert await in_force(store, ada, one) == []
    assert await in_force(store, bob, other) == []
    assert (await store.questions.one(QST_MAIL, principal=None)).scope == ""


async def test_what_is_asked_once_in_a_session_is_granted_for_the_session(
    store: Store, ada: Person
) -> None:
    session = (await asks(store, ada, offer=OFFER, is_once=True)).lease.session

    await answers(store, ada)

    assert await in_force(store, ada, session) == [Scope.SESSION]
    assert await in_force(store, ada, "ses_other") == []


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.FOREVER, Scope.TIME])
async def test_what_cannot_be_granted_stays_open_for_a_narrower_answer(
    store: Store, ada: Person, scope: Scope
) -> None:
    await asks(store, ada)

    with pytest.raises(Rejected) as refused:
        await answers(store, ada, scope=scope, for_ms=HOUR_MS)

    assert refused.value.code == "no_grant"
    assert await state_of(store) == "pending"
    assert await store.grants.page(FIRST, principal=None) == []
    assert (await answers(store, ada)).told == "✅ Allowed by ada."


# Questions of the agent's own.


async def test_an_inquiry_is_answered_in_words(store: Store, ada: Person) -> None:
    claimed = await inquires(store, ada, "Which day?")

    for nothing in ("", "  \n"):
        with pytest.raises(Rejected) as refused:
            await answers(store, ada, nothing, question=QuestionId("qst_ask"))
        assert refused.value.code == "no_answer"
    told = (await answers(store, ada, "Friday", question=QuestionId("qst_ask"))).told

    assert told == "✔️ ada: Friday"
    view = await store.questions.one(QuestionId("qst_ask"), principal=ada.id)
    assert (view.state, view.answer, view.answered_by) == ("answered", "Friday", "ada")
    assert (await claim_one(store)).lease.turn == claimed.lease.turn


# Answers from a chat.


async def presses(
    store: Store, who: Person, choice: int, *, question: str = QST_PAY, update: str = "press"
) -> Accepted:
    """Let somebody press a button under a question."""
    pressed = msgspec.structs.replace(
        message(who.id, "", external_id=update, adapter=CHAT, place="ada"),
        press=Press(question=QuestionId(question), choice=choice),
    )
    return await store.inbox.accept(pressed, queue_max=9)


async def writes(
    store: Store, who: Person, text: str, *, update: str = "words", reply_to: str = ""
) -> Accepted:
    written = message(who.id, text, external_id=update, adapter=CHAT, place="ada")
    written = msgspec.structs.replace(written, reply_to=reply_to)
    return await store.inbox.accept(written, queue_max=9)


async def test_the_press_of_a_button_answers(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat, offer=OFFER)

    pressed = await presses(store, chat, 1)

    assert (pressed.effect, pressed.turn) == (UpdateEffect.ANSWERED, claimed.lease.turn)
    assert await state_of(store) == "allowed"
    assert await in_force(store, chat, claimed.lease.session) == [Scope.SESSION]
    assert await store.outbox.take(adapter=CHAT, limit=10) == [], "the question itself tells it"


async def test_the_same_press_twice_answers_once(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat)

    first, again = await presses(store, chat, 0), await presses(store, chat, 0)

    assert (first.is_duplicate, again.is_duplicate) == (False, True)
    assert first.turn == again.turn == claimed.lease.turn
    record = await store.diagnostics.record(claimed.lease.session)
    assert len(only(AnswerReceived, record.events)) == 1


async def test_a_second_press_is_told_who_was_faster(store: Store, chat: Person) -> None:
    await asks(store, chat)
    await delivered(store, "r1")
    await presses(store, chat, 0)
    await delivered(store, "r1")

    second = await presses(store, chat, 1, update="another")

    assert second.turn is None
    assert second.reply == "Not taken: already answered: ada said allow."
    assert (await taken(store)).text == second.reply
    assert await state_of(store) == "allowed"


async def test_a_stranger_who_presses_changes_nothing_and_is_told_so(
    store: Store, chat: Person, bob: Person
) -> None:
    await asks(store, chat)
    await delivered(store, "r1")

    pressed = await presses(store, bob, 0)

    assert (pressed.effect, pressed.turn) == (UpdateEffect.ANSWERED, None)
    assert "somebody else" in pressed.reply
    assert await state_of(store) == "pending"
    assert await store.turns.claim(limit=10) == []


@pytest.mark.parametrize(
    ("question", "choice"), [("qst_none", 0), (QST_PAY, 2), (QST_PAY, -1), (QST_PAY, 10**6)]
)
async def test_a_button_that_was_never_offered_answers_nothing(
    store: Store, chat: Person, question: str, choice: int
) -> None:
    await asks(store, chat)

    pressed = await presses(store, chat, choice, question=question)

    assert pressed.turn is None
    assert "does not exist" in pressed.reply
    assert await state_of(store) == "pending"


async def test_an_old_button_does_not_answer_a_newer_question(store: Store, chat: Person) -> None:
    claimed = await asks(store, chat)
    await store.inbox.stop(claimed.lease.turn, by=chat.id)
    await asks(store, chat, MAIL)

    pressed = await presses(store, chat, 0)

    assert pressed.turn is None
    assert await state_of(store, QST_MAIL) == "pending"
    assert await state_of(store) == "withdrawn"


@pytest.mark.parametrize("words", ["yes", "Allow", "allow", "/", "ok, do it", "1"])
async def test_plain_words_never_approve(store: Store, chat: Person, words: str) -> None:
    await asks(store, chat)
    await delivered(store, "r1")

    written = await writes(store, chat, words)

    assert written.effect is UpdateEffect.QUEUED
    assert await state_of(store) == "pending"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("yes", "allowed"),
        ("Allow.", "allowed"),
        ("no", "denied"),
        ("yes please", "pending"),
        ("denied", "pending"),
        ("not yes", "pending"),
    ],
)
async def test_a_reply_to_the_question_counts_if_it_is_a_known_word(
    store: Store, chat: Person, words: str, state: str
) -> None:
    await asks(store, chat)
    await delivered(store, "r1")

    written = await writes(store, chat, words, reply_to="r1")

    assert await state_of(store) == state
    is_answer = written.effect is UpdateEffect.ANSWERED
    assert is_answer is (state != "pending")


@pytest.mark.parametrize("words", ["/approve", "/approve session", "/approve qst_pay", "yes"])
async def test_what_was_not_shown_whole_is_not_allowed_where_it_was_asked(
    store: Store, chat: Person, eve: Person, words: str
) -> None:
    await chat.says("pay the bill")
    lease = (await claim_one(store)).lease
    await store.turns.append(lease, [said(lease, "Sure.", calls=(PAY,))])
    asked = question_about(lease, PAY, question=QST_PAY)
    await store.turns.wait(lease, [msgspec.structs.replace(asked, choices=(DENY_CALL,))])
    await delivered(store, "r1")

    refused = await writes(store, chat, words, reply_to="r1")

    assert refused.reply.startswith("Not taken: this is too long to be shown here")
    assert await state_of(store) == "pending"
    await answers(store, eve)
    assert await state_of(store) == "allowed", "who has read it on the page may allow it"


async def test_a_reply_to_something_else_answers_nothing(store: Store, chat: Person) -> None:
    await asks(store, chat)
    await delivered(store, "r1")

    await writes(store, chat, "yes", reply_to="r7")

    assert await state_of(store) == "pending"


async def test_plain_words_answer_the_only_inquiry_and_name_a_choice_by_number(
    store: Store, chat: Person
) -> None:
    await inquires(store, chat, "Which day?", "Friday", "Saturday")

    other = await writes(store, chat, "next week", update="w1")
    chosen = await writes(store, chat, "2", update="w2")

    assert other.effect is UpdateEffect.QUEUED, "it is none of the choices"
    assert chosen.effect is UpdateEffect.ANSWERED
    view = await store.questions.one(QuestionId("qst_ask"), principal=None)
    assert (view.state, view.answer) == ("answered", "Saturday")


async def test_others_in_the_room_do_not_answer_an_inquiry(
    store: Store, chat: Person, bob: Person
) -> None:
    await inquires(store, chat, "Which day?")

    his = await writes(store, bob, "Friday", update="w1")
    hers = await writes(store, chat, "Saturday", update="w2")

    assert (his.effect, hers.effect) == (UpdateEffect.QUEUED, UpdateEffect.ANSWERED)
    view = await store.questions.one(QuestionId("qst_ask"), principal=None)
    assert view.answer == "Saturday"


# What others may see.


async def test_nothing_of_another_person_is_found(
    store: Store, ada: Person, bob: Person, eve: Person
) -> None:
    secret = msgspec.structs.replace(PAY, arguments=f'{{"to": "{CANARY}"}}')
    offer = msgspec.structs.replace(OFFER, words=f"pay {CANARY}", pattern=CANARY)
    claimed = await asks(store, ada, secret, offer=offer)
    found: list[object] = [await store.questions.page(FIRST, principal=bob.id)]
    with pytest.raises(NotFound) as unseen:
        await store.questions.one(QST_PAY, principal=bob.id)
    with pytest.raises(NotFound) as unknown:
        await store.questions.one(QuestionId("qst_x"), principal=bob.id)
    assert unseen.value.message.replace(QST_PAY, "qst_x") == unknown.value.message
    assert len(await store.questions.page(FIRST, principal=eve.id)) == 0, "eve asks as herself"
    assert len(await store.questions.page(FIRST, principal=None)) == 1

    await answers(store, ada, scope=Scope.FOREVER)

    (granted,) = await store.grants.page(FIRST, principal=ada.id)
    found += [
        await store.questions.page(FIRST, principal=bob.id, is_pending=False),
        await store.grants.page(FIRST, principal=bob.id),
        await store.grants.covering(bob.id, offer=offer, session=claimed.lease.session),
    ]
    refusals = []
    for grant in (granted.id, GrantId("grt_x")):
        with pytest.raises(NotFound) as refused:
            await store.grants.revoke(grant, principal=bob.id)
        refusals.append(refused.value.message.replace(grant, ""))
    assert refusals[0] == refusals[1]
    assert CANARY not in repr([found, refusals])
    assert found == [[], [], [], None]
    assert len(await store.grants.page(FIRST, principal=ada.id)) == 1


async def test_questions_are_read_page_by_page(store: Store, ada: Person) -> None:
    for n in range(5):
        await asks(store, Person(store, ada.id, place=f"room {n}"), tool_call(f"c{n}"))

    seen: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        page = await store.questions.page(Page(limit=2, after=after), principal=ada.id)
        if not page:
            break
        seen += [view.id for view in page]
        after = (page[-1].asked_at, page[-1].id)

    assert seen == [f"qst_c{n}" for n in range(5)]


async def test_an_answered_question_is_found_in_the_history_only(store: Store, ada: Person) -> None:
    turn: TurnId = (await asks(store, ada)).lease.turn
    await answers(store, ada)

    assert await store.questions.page(FIRST, principal=ada.id) == []
    (view,) = await store.questions.page(FIRST, principal=ada.id, is_pending=False)
    assert (view.turn, view.answer, view.answered_by) == (turn, ALLOW, "ada")


async def test_no_death_loses_a_question_or_its_answer(
    store: Store, chat: Person, restart: OpenStore
) -> None:
    claimed = await asks(store, chat, PAY, MAIL)
    store = await restart()
    assert await state_of(store) == "pending"
    assert [part.question for part in await store.outbox.take(adapter=CHAT, limit=1)] == [QST_PAY]
    await answers(store, chat)

    store = await restart()

    assert await state_of(store) == "allowed"
    await answers(store, chat, question=QST_MAIL)
    assert (await claim_one(store)).lease.turn == claimed.lease.turn
