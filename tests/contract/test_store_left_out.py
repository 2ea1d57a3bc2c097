"""Checks that what a model's server has refused is recorded with the end of its turn, and is left
out as long as that turn is on the chain, on both databases."""

from typing import Final

import msgspec

from perdure.domain.ids import MessageId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import (
    ContentLeftOut,
    LeftOut,
    Recorded,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.left_out import MESSAGE_LEFT_OUT
from perdure.domain.journal.transcript import entries_of_session
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    message,
    next_request,
    only,
    settle,
)

BAD: Final = "a bad thing"


async def refuse(store: Store, claimed: Claimed, *what: LeftOut) -> list[Recorded]:
    """Settle a turn as a model's server makes it end that has refused this."""
    own = LeftOut(turn=claimed.lease.turn, part=_message_of(claimed))
    settlement = Settlement(
        outcome=Outcome.FAILED,
        reason=StopReason.CONTENT_REFUSED,
        agent="main",
        left_out=what or (own,),
    )
    return (await store.turns.settle(claimed.lease, settlement)).recorded


def _message_of(claimed: Claimed) -> MessageId:
    return next(r.event.message for r in claimed.events if isinstance(r.event, TurnQueued))


async def is_refused(store: Store, person: Person, text: str = BAD) -> Accepted:
    """Send a message that is refused."""
    accepted = await person.says(text)
    await refuse(store, await claim_one(store))
    return accepted


async def asked(store: Store) -> str:
    """Return the request of the next turn, which is then answered."""
    claimed = await claim_one(store)
    request = await next_request(store, claimed)
    await settle(store, claimed)
    return f"{request.prefix!r} {request.messages!r}"


async def shown(store: Store, accepted: Accepted) -> list[tuple[str, str, str]]:
    """Return the entries of the session: the text, if it is left out, and why it has left."""
    turns = await store.archive.told(accepted.session, limit=50, with_left=True)
    entries = entries_of_session(turns, accepted.session, None)
    return [(each.text, each.left_out, each.left) for each in entries if each.role == "user"]


async def test_what_is_left_out_is_recorded_with_the_end_of_the_turn(
    store: Store, ada: Person
) -> None:
    accepted = await ada.says(BAD)
    recorded = await refuse(store, await claim_one(store))

    assert [type(each.event) for each in recorded] == [ContentLeftOut, TurnSettled]
    assert only(ContentLeftOut, recorded)[0].turn == accepted.turn
    await ada.says("and now?")
    request = await asked(store)
    assert BAD not in request
    assert MESSAGE_LEFT_OUT in request
    assert await shown(store, accepted) == [(BAD, "message", ""), ("and now?", "", "")]
    await assert_sound(store, accepted.session)


async def test_a_retry_brings_it_back(store: Store, ada: Person) -> None:
    accepted = await is_refused(store, ada)
    await ada.says("/retry")

    assert BAD in await asked(store)
    assert await shown(store, accepted) == [(BAD, "", "asked_again"), (BAD, "", "")]
    await assert_sound(store, accepted.session)


async def test_an_undo_brings_back_what_an_older_turn_said(store: Store, ada: Person) -> None:
    older = await ada.is_answered("an old thing", "fine")
    await ada.says("hello")
    await refuse(store, await claim_one(store), LeftOut(turn=older))
    accepted = await ada.says("and now?")
    assert "an old thing" not in await asked(store)
    chain = await store.conversations.chain(older, limit=1)
    assert not await store.conversations.left_out(older)
    assert only(ContentLeftOut, chain[0]) == []

    await ada.says("/undo 2")
    await ada.says("and then?")
    assert "an old thing" in await asked(store)
    await assert_sound(store, accepted.session)


async def test_the_transcript_says_at_an_older_message_that_a_later_turn_left_it_out(
    store: Store, ada: Person
) -> None:
    older = await ada.is_answered("an old thing", "fine")
    await ada.says("hello")
    claimed = await claim_one(store)
    await refuse(store, claimed, LeftOut(turn=older))

    left_out = await store.conversations.left_out(claimed.lease.turn)
    assert left_out == (LeftOut(turn=older),)
    (page,) = await store.archive.told(claimed.lease.session, limit=1, before=claimed.lease.turn)
    entries = entries_of_session([page], claimed.lease.session, None)
    assert next((each.text, each.left_out) for each in entries) == ("an old thing", "message")


async def test_an_edit_of_an_older_message_brings_it_back(store: Store, ada: Person) -> None:
    await is_refused(store, ada)
    await ada.says("and now?")
    assert BAD not in await asked(store)
    edit = message(ada.id, "a better thing", external_id="edit-1", kind=UpdateKind.EDIT)
    edit = msgspec.structs.replace(edit, target="home-1")
    await store.inbox.accept(edit, queue_max=9)

    accepted = await ada.says("and then?")
    request = await asked(store)
    assert "a better thing" in request
    assert MESSAGE_LEFT_OUT not in request
    assert (await shown(store, accepted))[0] == ("a better thing", "", "")
    await assert_sound(store, accepted.session)


async def test_a_branch_leaves_out_what_its_chain_does(store: Store, ada: Person) -> None:
    await is_refused(store, ada)
    await ada.says("/branch")
    await ada.says("and here?")

    request = await asked(store)
    assert BAD not in request
    assert MESSAGE_LEFT_OUT in request
