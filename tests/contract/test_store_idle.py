"""Checks that the next message leaves a session in which nobody wrote for the configured time."""

from perdure.domain.journal.events import NoticePosted, TurnQueued
from perdure.domain.journal.session_events import SessionClosed
from perdure.domain.people.menu import Menu
from perdure.domain.turn.recovery import IDLE
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, message, settle
from perdure.testkit.simulator.system import VirtualClock

HOUR = Menu(idle_reset_ms=3_600_000)


async def _talked(store: Store, ada: Person) -> str:
    accepted = await store.inbox.accept(message(ada.id, "one", external_id="1"), queue_max=9)
    (claimed,) = await store.turns.claim(limit=1)
    await settle(store, claimed, "answered")
    return accepted.session


async def test_a_message_after_a_long_silence_begins_anew_and_says_so(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    old = await _talked(store, ada)
    clock.advance(3_601)
    update = message(ada.id, "two", external_id="2")
    accepted = await store.inbox.accept(update, queue_max=9, menu=HOUR)
    again = await store.inbox.accept(update, queue_max=9, menu=HOUR)

    assert accepted.session != old
    assert (again.session, again.turn, again.is_duplicate) == (
        accepted.session,
        accepted.turn,
        True,
    )
    facts = [recorded.event for recorded in accepted.recorded]
    assert [type(fact) for fact in facts if not isinstance(fact, SessionClosed)] == [
        NoticePosted,
        TurnQueued,
    ]
    (told,) = [each for each in accepted.recorded if isinstance(each.event, NoticePosted)]
    assert isinstance(told.event, NoticePosted)
    assert (told.event.text, told.session) == (IDLE, accepted.session), "nobody reads the old one"
    closed = await store.archive.session(old, principal=ada.id)  # type: ignore[arg-type]
    assert closed.state == "closed"
    back = await store.inbox.accept(message(ada.id, "/resume", external_id="3"), queue_max=9)
    assert back.session == old


async def test_a_short_silence_a_command_and_no_configuration_change_nothing(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    old = await _talked(store, ada)
    clock.advance(3_500)
    status = message(ada.id, "/status", external_id="2")
    assert (await store.inbox.accept(status, queue_max=9, menu=HOUR)).session == old
    clock.advance(99_999)
    asked = message(ada.id, "/status", external_id="3")
    assert (await store.inbox.accept(asked, queue_max=9, menu=HOUR)).session == old
    clock.advance(99_999)
    plain = message(ada.id, "two", external_id="4")
    assert (await store.inbox.accept(plain, queue_max=9)).session == old


async def test_on_a_platform_the_notice_is_sent_before_the_answer(
    store: Store, ada: Person, clock: VirtualClock
) -> None:
    first = message(ada.id, "one", external_id="1", adapter="chat")
    await store.inbox.accept(first, queue_max=9)
    (claimed,) = await store.turns.claim(limit=1)
    await settle(store, claimed, "answered")
    clock.advance(3_601)
    update = message(ada.id, "two", external_id="2", adapter="chat")
    accepted = await store.inbox.accept(update, queue_max=9, menu=HOUR)

    (part,) = await store.outbox.take(adapter="chat", limit=9)
    assert part.text == IDLE
    (claimed,) = await store.turns.claim(limit=9)
    assert claimed.lease.turn == accepted.turn
