"""Checks the `ContextRoom` port: windows that servers have named are kept, and a running turn's
summary is applied under its lease, together with the record of what came of it."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import Fenced
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import (
    Compacted,
    CompactionFailed,
    RoomSought,
    WindowExceeded,
)
from perdure.domain.outcomes import Outcome
from perdure.domain.prompt.compaction import background
from perdure.domain.prompt.prompt import TextBlock, messages_of
from perdure.ports.turns.room import LearnedWindow, RoomMade
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, assert_sound, claim_one, only, reply_id

OpenStore = Callable[[], Awaitable[Store]]


async def talked(store: Store, ada: Person, *sizes: int) -> list[TurnId]:
    """Run exchanges after which the model reads so many tokens. Returns the turns."""
    turns = []
    for number, tokens in enumerate(sizes):
        await ada.says(f"question {number}")
        lease = (await claim_one(store)).lease
        settlement = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            message=reply_id(lease),
            text=f"answer {number}",
            context_tokens=tokens,
        )
        await store.turns.settle(lease, settlement)
        turns.append(lease.turn)
    return turns


async def asking(store: Store, ada: Person, text: str = "and now?") -> Claimed:
    """Begin a turn whose request was refused because it is too long."""
    await ada.says(text)
    claimed = await claim_one(store)
    await store.turns.append(claimed.lease, [exceeded(claimed, window=2000)])
    return claimed


def exceeded(claimed: Claimed, *, window: int, model: str = "small") -> WindowExceeded:
    return WindowExceeded(
        turn=claimed.lease.turn, agent="main", model=model, tokens=3000, window=window
    )


async def told(store: Store, claimed: Claimed) -> list[str]:
    """Return what the model is told before a turn."""
    assert claimed.parent is not None
    window = await store.conversations.window(claimed.parent, limit=100)
    blocks = [b for turn in window for each in messages_of(turn) for b in each.blocks]
    return [block.text for block in blocks if isinstance(block, TextBlock)]


async def test_a_named_window_is_known_from_then_on(
    store: Store, ada: Person, restart: OpenStore
) -> None:
    claimed = await asking(store, ada)
    await store.turns.append(claimed.lease, [exceeded(claimed, window=0)])
    await store.turns.append(claimed.lease, [exceeded(claimed, window=4000, model="large")])
    small = LearnedWindow(agent="main", model="small", tokens=2000)
    large = LearnedWindow(agent="main", model="large", tokens=4000)

    assert await store.room.learned() == [large, small]
    again = await restart()
    assert await again.room.learned() == [large, small]


async def test_the_newest_refusal_is_right(store: Store, ada: Person) -> None:
    claimed = await asking(store, ada)

    await store.turns.append(claimed.lease, [exceeded(claimed, window=8000)])

    assert [each.tokens for each in await store.room.learned()] == [8000]


async def test_a_late_refusal_teaches_nothing(store: Store, ada: Person) -> None:
    await ada.says("one")
    claimed = await claim_one(store)
    await ada.says("/stop")

    with pytest.raises(Fenced):
        await store.turns.append(claimed.lease, [exceeded(claimed, window=2000)])

    assert await store.room.learned() == []


async def test_a_summary_is_applied_under_the_lease(store: Store, ada: Person) -> None:
    turns = await talked(store, ada, 300, 600, 900)
    claimed = await asking(store, ada)

    recorded = await store.room.make(
        claimed.lease, RoomMade(upto=turns[1], summary="They talked.", cost=7)
    )

    (compacted,) = only(Compacted, recorded)
    assert (compacted.upto, compacted.errand, compacted.cost) == (turns[1], claimed.lease.turn, 7)
    assert recorded[-1].event == RoomSought(turn=claimed.lease.turn, compaction=compacted.message)
    assert await told(store, claimed) == [background("They talked."), "question 2", "answer 2"]
    await assert_sound(store, claimed.lease.session)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (RoomMade(summary=""), "empty"),
        (RoomMade(summary="long " * 900), "not shorter"),
        (RoomMade(problem="the model failed", detail="http://host"), "the model failed"),
    ],
    ids=["empty", "longer", "failed"],
)
async def test_a_summary_that_fails_changes_nothing(
    store: Store, ada: Person, made: RoomMade, why: str
) -> None:
    turns = await talked(store, ada, 300, 600)
    claimed = await asking(store, ada)
    before = await told(store, claimed)

    recorded = await store.room.make(
        claimed.lease,
        RoomMade(upto=turns[1], summary=made.summary, problem=made.problem, detail=made.detail),
    )

    (failed,) = only(CompactionFailed, recorded)
    assert why in failed.reason
    last = recorded[-1].event
    assert last == RoomSought(turn=claimed.lease.turn, problem=failed.reason, detail=made.detail)
    assert await told(store, claimed) == before


async def test_a_late_summary_is_refused_as_a_whole(store: Store, ada: Person) -> None:
    turns = await talked(store, ada, 300, 600)
    claimed = await asking(store, ada)
    before = await told(store, claimed)
    await ada.says("/stop")

    with pytest.raises(Fenced):
        await store.room.make(claimed.lease, RoomMade(upto=turns[1], summary="They talked."))

    assert await told(store, claimed) == before


async def test_that_there_is_no_room_is_recorded(store: Store, ada: Person) -> None:
    claimed = await asking(store, ada)

    recorded: list[Recorded] = await store.room.make(claimed.lease, RoomMade(problem="no turns"))

    assert [each.event for each in recorded] == [
        RoomSought(turn=claimed.lease.turn, problem="no turns")
    ]
