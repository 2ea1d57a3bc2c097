"""Checks `/continue`: an answer that was cut off goes on, in a turn like any other."""

import pytest

from perdure.domain.journal.events import TurnQueued
from perdure.domain.outcomes import Interruption, Outcome, StopReason
from perdure.domain.prompt.prompt import Note, TextBlock
from perdure.domain.turn.recovery import Policy, Resume
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    assert_sound,
    claim_one,
    flush,
    next_request,
    only,
    reply_id,
    turn_of,
)

NOTHING = "Nothing to continue"


async def ends(
    store: Store,
    claimed: Claimed,
    text: str,
    *,
    outcome: Outcome = Outcome.DONE,
    reason: StopReason = StopReason.LENGTH,
) -> None:
    settlement = Settlement(
        outcome=outcome, reason=reason, message=reply_id(claimed.lease), text=text
    )
    await store.turns.settle(claimed.lease, settlement)


async def notes_of(store: Store, claimed: Claimed) -> list[str]:
    last = (await next_request(store, claimed)).messages[-1]
    return [block.text for block in last.blocks if isinstance(block, Note)]


async def cut(store: Store, ada: Person) -> Claimed:
    await ada.says("tell me a story")
    claimed = await claim_one(store)
    await ends(store, claimed, "Once upon a")
    return claimed


async def test_a_cut_answer_goes_on_in_a_turn_of_its_own(store: Store, ada: Person) -> None:
    first = await cut(store, ada)

    accepted = await ada.says("/continue")

    assert (accepted.command, accepted.reply) == ("continue", "Going on.")
    claimed = await claim_one(store)
    assert (claimed.lease.turn, claimed.parent) == (accepted.turn, first.lease.turn)
    request = await next_request(store, claimed)
    assert TextBlock("Continue.") in request.messages[-1].blocks
    (note,) = await notes_of(store, claimed)
    assert "where it ends" in note
    await ends(store, claimed, "time.", reason=StopReason.STOP)
    await assert_sound(store, claimed.lease.session)
    record = await store.diagnostics.record(claimed.lease.session)
    assert not any(note in str(recorded.event) for recorded in record.events)
    await ada.says("thank you")
    assert await notes_of(store, await claim_one(store)) == []


async def test_a_continued_answer_is_retried_and_undone_like_any_turn(
    store: Store, ada: Person
) -> None:
    first = await cut(store, ada)
    await ada.says("/continue")
    await ends(store, await claim_one(store), "time.", reason=StopReason.STOP)

    await ada.says("/retry")

    again = await claim_one(store)
    assert again.parent == first.lease.turn
    (queued,) = only(TurnQueued, again.events)
    assert (queued.text, queued.continues) == ("Continue.", first.lease.turn)
    assert len(await notes_of(store, again)) == 1
    await ends(store, again, "midnight", reason=StopReason.STOP)
    assert "Continue." in (await ada.says("/undo")).reply
    assert (await ada.says("/continue")).reply == "Going on."


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("All of it.", Outcome.DONE, StopReason.STOP),
        ("", Outcome.DONE, StopReason.LENGTH),
        ("", Outcome.FAILED, StopReason.PROVIDER_CUT),
        ("No.", Outcome.DONE, StopReason.CONTENT_FILTER),
    ],
)
async def test_what_was_not_cut_cannot_go_on(
    store: Store, ada: Person, text: str, outcome: Outcome, reason: StopReason
) -> None:
    assert NOTHING in (await ada.says("/continue")).reply
    await ada.says("hello")
    await ends(store, await claim_one(store), text, outcome=outcome, reason=reason)

    accepted = await ada.says("/continue")

    assert (NOTHING in accepted.reply, accepted.turn) == (True, None)
    assert await store.turns.claim(limit=9) == []


async def test_an_answer_that_failed_in_the_middle_goes_on(store: Store, ada: Person) -> None:
    await ada.says("hello")
    claimed = await claim_one(store)
    failed = StopReason.PROVIDER_CUT
    await ends(store, claimed, "Hel", outcome=Outcome.FAILED, reason=failed)

    assert (await ada.says("/continue")).reply == "Going on."


async def test_an_interrupted_answer_goes_on_itself(store: Store, ada: Person) -> None:
    accepted = await ada.says("hello")
    claimed = await claim_one(store)
    await flush(store, claimed.lease, "Hel")
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=9)
    await store.nodes.resume(Policy(resume=Resume.WAIT), limit=9)

    assert (await ada.says("/continue")).reply == "Going on."

    again = await claim_one(store)
    assert (again.lease.turn, again.lease.attempt) == (turn_of(accepted), 2)


async def test_while_an_answer_is_on_its_way_nothing_is_to_go_on(store: Store, ada: Person) -> None:
    await ada.says("hello")
    await claim_one(store)

    assert "on its way" in (await ada.says("/continue")).reply
