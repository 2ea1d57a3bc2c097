"""Checks sending to places, and the directory of places, on both databases."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import pytest

from perdure.domain.address import Address, AddressForm
from perdure.domain.delivery import PartState
from perdure.domain.errors import Conflict, NotFound, Rejected, Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.transcript import entries_of
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.outcomes import Interruption, Outcome
from perdure.domain.prompt.prompt import FROM_ELSEWHERE, Role, TextBlock, messages_of
from perdure.domain.turn.recovery import Policy
from perdure.ports.delivery.outbox import Part
from perdure.ports.people.places import OutgoingMessage, SentMessage
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Page
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    next_request,
    only,
    reply_id,
    settle,
)
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
CHAT = "scripted"
CONFIGURED: Mapping[str, str] = {CHAT: "bot"}
TEXT = "The backup is done."


@pytest.fixture
async def root(store: Store) -> Principal:
    return await store.principals.ensure("root", role="operator")


async def send(
    store: Store,
    by: Principal,
    to: str,
    text: str = TEXT,
    *,
    own_id: str = "s1",
    accounts: Mapping[str, str] = CONFIGURED,
    queue_max: int = 10,
    forms: Mapping[str, AddressForm] = MappingProxyType({}),
) -> SentMessage:
    sending = OutgoingMessage(
        to=to, text=text, external_id=own_id, by=by, accounts=accounts, forms=forms
    )
    return await store.places.send(sending, queue_max=queue_max)


async def say(
    store: Store,
    who: PrincipalId,
    text: str,
    *,
    own_id: str,
    place: str = "ada",
    thread: str = "",
    kind: str = "private",
    account: str = "bot",
) -> Accepted:
    address = Address(adapter=CHAT, account=account, place=place, thread=thread)
    update = Update(
        address=address,
        external_id=own_id,
        kind=UpdateKind.MESSAGE,
        principal=who,
        text=text,
        place_kind=kind,
    )
    return await store.inbox.accept(update, queue_max=100)


def queued(claimed: Claimed) -> TurnQueued:
    return only(TurnQueued, claimed.events)[0]


async def is_said(store: Store, claimed: Claimed) -> None:
    """Settle a turn that needs no model, as a runner does."""
    text = queued(claimed).answer
    settlement = Settlement(
        outcome=Outcome.DONE,
        reason="stop",
        message=reply_id(claimed.lease),
        text=text,
        parts=(text,),
        origin=TurnKind.SENT,
    )
    await store.turns.settle(claimed.lease, settlement)


async def take_one(store: Store) -> Part:
    (part,) = await store.outbox.take(adapter=CHAT, limit=10)
    await store.outbox.record(part.id, PartState.SENT, receipt="r")
    return part


async def addresses(store: Store, principal: PrincipalId | None = None) -> list[str]:
    found = await store.places.known(principal=principal, page=Page())
    return [view.address for view in found]


async def test_a_sent_message_is_a_turn_in_the_places_line_and_goes_out_by_the_outbox(
    store: Store, root: Principal
) -> None:
    sent = await send(store, root, "scripted:ada")

    assert sent.address == "scripted:ada"
    claimed = await claim_one(store)
    assert claimed.lease.turn == sent.accepted.turn
    assert (queued(claimed).kind, queued(claimed).answer) == (TurnKind.SENT, TEXT)
    assert claimed.address == Address(adapter=CHAT, account="bot", place="ada")
    await is_said(store, claimed)
    part = await take_one(store)
    assert (part.text, part.reply_to) == (TEXT, "")
    await assert_sound(store, sent.accepted.session)


async def test_people_see_it_said_and_the_model_by_whom(store: Store, root: Principal) -> None:
    sent = await send(store, root, "scripted:ada")
    await is_said(store, await claim_one(store))
    ada = await store.principals.ensure("scripted:ada", role="member")

    await say(store, ada.id, "which one?", own_id="m1")

    claimed = await claim_one(store)
    assert claimed.parent is not None
    assert claimed.parent == sent.accepted.turn
    (chain,) = await store.conversations.chain(claimed.parent, limit=10)
    (entry,) = entries_of(chain)
    assert (entry.role, entry.text, entry.origin) == ("assistant", TEXT, "sent")
    assert [(m.role, m.blocks) for m in messages_of(chain)] == [
        (Role.USER, (TextBlock(FROM_ELSEWHERE),)),
        (Role.ASSISTANT, (TextBlock(TEXT),)),
    ]
    await next_request(store, claimed)


async def test_the_same_id_sends_once_also_after_a_restart(
    store: Store, root: Principal, restart: OpenStore
) -> None:
    first = await send(store, root, "scripted:ada")
    store = await restart()

    again = await send(store, root, "scripted:ada")

    assert again.accepted.is_duplicate
    assert (again.accepted.turn, again.address) == (first.accepted.turn, first.address)
    with pytest.raises(Conflict) as other_text:
        await send(store, root, "scripted:ada", "Something else.")
    with pytest.raises(Conflict) as other_place:
        await send(store, root, "scripted:bob")
    assert other_text.value.code == other_place.value.code == "id_conflict"
    assert await addresses(store) == ["scripted:ada"]
    assert len(await store.turns.claim(limit=10)) == 1


async def test_a_sent_message_waits_for_what_was_asked_before(
    store: Store, root: Principal
) -> None:
    ada = await store.principals.ensure("scripted:ada", role="member")
    asked = await say(store, ada.id, "hello", own_id="m1")
    running = await claim_one(store)

    sent = await send(store, root, "scripted:ada")

    assert sent.accepted.session == asked.session
    assert await store.turns.claim(limit=10) == []
    await settle(store, running, "hello")
    assert (await claim_one(store)).lease.turn == sent.accepted.turn


async def test_a_full_line_refuses_and_opens_nothing(store: Store, root: Principal) -> None:
    await send(store, root, "scripted:ada", own_id="s1", queue_max=1)

    with pytest.raises(Rejected) as refused:
        await send(store, root, "scripted:ada", own_id="s2", queue_max=1)

    assert refused.value.code == "queue_full"
    await claim_one(store)
    await send(store, root, "scripted:ada", own_id="s2", queue_max=1)


async def test_a_new_session_says_what_was_not_said_yet(store: Store, root: Principal) -> None:
    ada = await store.principals.ensure("scripted:ada", role="member")
    await say(store, ada.id, "hello", own_id="m1")
    await settle(store, await claim_one(store), "hello")
    sent = await send(store, root, "scripted:ada")

    reset = await say(store, ada.id, "/new", own_id="m2")

    claimed = await claim_one(store)
    assert claimed.lease.session == reset.session != sent.accepted.session
    assert (queued(claimed).kind, queued(claimed).answer) == (TurnKind.SENT, TEXT)


async def test_a_suspended_session_does_not_swallow_a_sent_message(
    store: Store, root: Principal
) -> None:
    ada = await store.principals.ensure("scripted:ada", role="member")
    asked = await say(store, ada.id, "deadly", own_id="m1")
    sent = await send(store, root, "scripted:ada")
    claimed = await claim_one(store)
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=1)
    assert (await store.nodes.resume(Policy(), limit=10)).recorded == []
    again = await send(store, root, "scripted:ada")
    assert (again.accepted.turn, again.address) == (sent.accepted.turn, sent.address)

    later = await send(store, root, "scripted:ada", "And the restore.", own_id="s2")

    assert later.accepted.session not in (asked.session, sent.accepted.session)
    first = await claim_one(store)
    assert queued(first).answer == TEXT, "what was suspended with it comes first"
    await is_said(store, first)
    assert queued(await claim_one(store)).answer == "And the restore."


async def test_undo_takes_a_sent_message_back_and_retry_does_not_ask_it(
    store: Store, root: Principal
) -> None:
    ada = await store.principals.ensure("scripted:ada", role="member")
    await send(store, root, "scripted:ada")
    await is_said(store, await claim_one(store))

    retried = await say(store, ada.id, "/retry", own_id="m1")
    undone = await say(store, ada.id, "/undo", own_id="m2")

    assert "sent from elsewhere" in retried.reply
    assert retried.turn is None
    assert undone.reply == f"Undone:\n\n{TEXT}"
    await assert_sound(store, undone.session)


async def test_a_platform_that_is_not_configured_is_named_with_those_that_are(
    store: Store, root: Principal
) -> None:
    with pytest.raises(Rejected, match="no platform 'telegramm' here; configured are: matrix, scr"):
        await send(store, root, "telegramm:1", accounts={CHAT: "bot", "matrix": "@bot:h"})
    with pytest.raises(NotFound, match="no conversation 'nowhere'"):
        await send(store, root, "nowhere")
    with pytest.raises(Rejected, match="scripted:PLACE"):
        await send(store, root, "scripted:")

    assert await addresses(store) == []


async def test_colons_belong_to_the_place_unless_a_conversation_is_known(
    store: Store, root: Principal
) -> None:
    # Matrix has colons in the ids of its rooms.
    ada = await store.principals.ensure("scripted:ada", role="member")
    room = Address(adapter=CHAT, account="bot", place="!room:host")

    await send(store, root, "scripted:!room:host", own_id="s1")
    assert (await claim_one(store)).address == room

    await say(store, ada.id, "hi", own_id="m1", place="club", thread="7")
    known = await send(store, root, "scripted:club:7", own_id="s2")
    assert known.accepted.session == (await claim_one(store)).lease.session

    await send(store, root, "scripted:club:8", own_id="s3")
    opened = await claim_one(store)
    assert (opened.address.place, opened.address.thread) == ("club", "8")


async def test_an_account_nobody_knows_is_waited_for(store: Store, root: Principal) -> None:
    unknown = {CHAT: ""}
    with pytest.raises(Transient, match="not connected yet"):
        await send(store, root, "scripted:ada", accounts=unknown)

    ada = await store.principals.ensure("scripted:ada", role="member")
    await say(store, ada.id, "hi", own_id="m1")
    await settle(store, await claim_one(store))
    await send(store, root, "scripted:bob", accounts=unknown)
    assert (await claim_one(store)).address.account == "bot"

    await say(store, ada.id, "hi", own_id="m2", account="another bot")
    with pytest.raises(Transient, match="not connected yet"):
        await send(store, root, "scripted:cleo", accounts=unknown, own_id="s2")


async def test_who_speaks_first_has_the_conversation(store: Store, root: Principal) -> None:
    sent = await send(store, root, "scripted:room", own_id="s1")
    await is_said(store, await claim_one(store))
    ada = await store.principals.ensure("scripted:ada", role="member")
    assert await addresses(store, ada.id) == []

    answered = await say(store, ada.id, "thanks", own_id="m1", place="room")

    assert answered.session == sent.accepted.session
    assert await addresses(store, ada.id) == ["scripted:room"]
    (session,) = await store.archive.sessions(principal=ada.id, page=Page())
    assert session.id == sent.accepted.session


async def test_home_is_ones_own_or_the_operators_only_one(store: Store, root: Principal) -> None:
    with pytest.raises(NotFound, match="say /home"):
        await send(store, root, "home")

    boss = await store.principals.ensure("scripted:boss", role="operator")
    await say(store, boss.id, "/home", own_id="m1", place="boss")
    sent = await send(store, root, "home")
    assert sent.address == "scripted:boss"

    other = await store.principals.ensure("scripted:other", role="operator")
    await say(store, other.id, "/home", own_id="m2", place="other")
    with pytest.raises(Rejected, match="more than one home"):
        await send(store, root, "home", own_id="s2")
    assert (await send(store, other, "home", own_id="s3")).address == "scripted:other"
    with pytest.raises(Rejected, match="no platform 'scripted'"):
        await send(store, other, "home", own_id="s4", accounts={})


async def test_members_send_to_their_own_home_alone(store: Store, root: Principal) -> None:
    ada = await store.principals.ensure("scripted:ada", role="member")
    boss = await store.principals.ensure("scripted:boss", role="operator")
    await say(store, boss.id, "/home", own_id="m0", place="boss")
    for to in ("scripted:ada", "scripted:boss", "nowhere"):
        with pytest.raises(Rejected) as refused:
            await send(store, ada, to)
        assert refused.value.code == "forbidden"
    with pytest.raises(NotFound):
        await send(store, ada, "home")

    await say(store, ada.id, "/home", own_id="m1")

    assert (await send(store, ada, "home")).address == "scripted:ada"


async def test_a_conversation_over_http_is_reached_by_its_name(
    store: Store, root: Principal, ada: Person
) -> None:
    await Person(store, ada.id, place="diary").says("dear diary")
    mine = Person(store, root.id, place="notes")
    asked = await mine.says("hello")

    sent = await send(store, root, "notes")

    assert (sent.accepted.session, sent.address) == (asked.session, "notes")
    with pytest.raises(NotFound):
        await send(store, root, "diary", own_id="s2")


async def test_the_directory_is_everybodys_or_ones_own_in_pages(
    store: Store, clock: VirtualClock, ada: Person, bob: Person
) -> None:
    for number in range(5):
        clock.advance(1)
        who = ada if number % 2 else bob
        place = f"place-{number}"
        await say(store, who.id, "hi", own_id=f"m{number}", place=place, kind="group")

    first = await store.places.known(principal=None, page=Page(limit=3))
    rest = await store.places.known(
        principal=None, page=Page(limit=3, after=(first[-1].active_at, first[-1].id))
    )

    assert [view.address for view in [*first, *rest]] == [
        f"scripted:place-{number}" for number in (4, 3, 2, 1, 0)
    ]
    assert {view.kind for view in first} == {"group"}
    assert await addresses(store, ada.id) == ["scripted:place-3", "scripted:place-1"]


async def test_the_answer_to_a_command_names_the_message_it_answers(
    store: Store, ada: Person
) -> None:
    await say(store, ada.id, "/status", own_id="m7")

    assert (await take_one(store)).reply_to == "m7"


async def test_what_came_of_an_update_can_be_asked(store: Store, ada: Person) -> None:
    assert await store.archive.answer("m1", adapter=CHAT) is None
    await say(store, ada.id, "hello", own_id="m1")
    pending = await store.archive.answer("m1", adapter=CHAT)
    await settle(store, await claim_one(store), "hello yourself")
    done = await store.archive.answer("m1", adapter=CHAT)
    await say(store, ada.id, "again", own_id="m2")
    await settle(store, await claim_one(store), "half", outcome=Outcome.FAILED)
    failed = await store.archive.answer("m2", adapter=CHAT)
    await say(store, ada.id, "/whoami", own_id="m3")
    command = await store.archive.answer("m3", adapter=CHAT)

    assert pending is not None
    assert (pending.state, pending.text) == ("pending", "")
    assert done is not None
    assert (done.state, done.text) == ("done", "hello yourself")
    assert failed is not None
    assert (failed.state, failed.text) == ("failed", "half\n\nstop")
    assert command is not None
    assert (command.state, command.text) == ("done", "You are ada (member).")
    assert await store.archive.answer("m1", adapter="another") is None


NUMBERS = {
    CHAT: AddressForm(pattern="[0-9]+", example="123", thread="topic[0-9]*", person="[0-9]+")
}


@pytest.mark.parametrize("accounts", [{CHAT: "bot"}, {CHAT: ""}], ids=["connected", "not yet"])
async def test_an_impossible_address_is_refused_at_once(
    store: Store, root: Principal, accounts: Mapping[str, str]
) -> None:
    for to in (f"{CHAT}:Ada", f"{CHAT}:", f"{CHAT}:12 34"):
        with pytest.raises(Rejected) as refused:
            await send(store, root, to, accounts=accounts, forms=NUMBERS)
        assert refused.value.code == "impossible_address"
    assert await store.places.known(principal=None, page=Page()) == []


async def test_a_thread_of_a_known_place_is_no_impossible_address(
    store: Store, root: Principal
) -> None:
    await send(store, root, f"{CHAT}:12", own_id="one", forms=NUMBERS)

    sent = await send(store, root, f"{CHAT}:12:topic", own_id="two", forms=NUMBERS)

    assert sent.address == f"{CHAT}:12:topic"


@pytest.mark.parametrize("rest", ["12:Ada", "12:topic:Ada", "12:topic7:3", "12:3"])
async def test_what_cannot_be_a_thread_of_a_known_place_is_refused(
    store: Store, root: Principal, rest: str
) -> None:
    await send(store, root, f"{CHAT}:12", own_id="one", forms=NUMBERS)

    with pytest.raises(Rejected, match="looks like scripted:123") as refused:
        await send(store, root, f"{CHAT}:{rest}", own_id="two", forms=NUMBERS)

    assert refused.value.code == "impossible_address"
    assert [each.address for each in await store.places.known(principal=None, page=Page())] == [
        f"{CHAT}:12"
    ]


@pytest.mark.parametrize("rest", ["12:Ada", "12:topic:Ada"])
async def test_an_impossible_thread_is_refused_before_the_account_is_known(
    store: Store, root: Principal, rest: str
) -> None:
    with pytest.raises(Rejected) as refused:
        await send(store, root, f"{CHAT}:{rest}", accounts={CHAT: ""}, forms=NUMBERS)

    assert refused.value.code == "impossible_address"


async def test_without_a_home_the_missing_operator_is_named(store: Store, root: Principal) -> None:
    with pytest.raises(NotFound, match="operators"):
        await send(store, root, "home")
    ada = await store.principals.ensure(f"{CHAT}:42", role="member")
    await say(store, ada.id, "/home", own_id="m1")

    with pytest.raises(NotFound) as missing:
        await send(store, root, "home")

    assert f"add '42' to `operators` of [adapters.{CHAT}]" in missing.value.message


async def test_an_operator_by_configuration_counts_without_another_word(
    store: Store, root: Principal
) -> None:
    ada = await store.principals.ensure(f"{CHAT}:42", role="member")
    await say(store, ada.id, "/home", own_id="m1")

    await store.principals.platforms_operators({f"{CHAT}:42", f"{CHAT}:43"})

    assert (await send(store, root, "home")).address == f"{CHAT}:ada"
    assert await store.operators.is_operator(ada.id)
    assert await store.operators.is_operator(root.id)
    unseen = await store.principals.ensure(f"{CHAT}:43", role="member")
    assert not unseen.is_operator


async def test_who_is_no_operator_by_configuration_any_more_stops_being_one_at_once(
    store: Store, root: Principal
) -> None:
    ada = await store.principals.appoint(f"{CHAT}:42", role="operator")

    await store.principals.platforms_operators(())

    assert not await store.operators.is_operator(ada.id)
    assert await store.operators.is_operator(root.id)
