"""Checks that a free slot goes to the person with the fewest, and that each person's own order is
kept."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.ids import PrincipalId
from perdure.domain.people.sharing import FairShares, fairly, most_of
from perdure.ports.system.slots import Slots

ADA, BOB = PrincipalId("ada"), PrincipalId("bob")
PEOPLE = st.sampled_from([PrincipalId(name) for name in "abcd"])


@given(
    waiting=st.lists(PEOPLE, max_size=30),
    in_use=st.dictionaries(PEOPLE, st.integers(0, 5)),
    most=st.integers(1, 6),
    limit=st.integers(0, 10),
)
def test_each_slot_goes_to_whoever_has_the_fewest(
    waiting: list[PrincipalId], in_use: dict[PrincipalId, int], most: int, limit: int
) -> None:
    numbered = list(enumerate(waiting))
    shares = FairShares(in_use=in_use, most=most)
    chosen = fairly(numbered, by=lambda each: each[1], shares=shares, limit=limit)

    has, left = Counter(in_use), list(numbered)
    for number, who in chosen:
        others = {other for _, other in left if has[other] < most}
        assert has[who] == min(has[other] for other in others)
        assert number == min(n for n, other in left if other == who), "in their own order"
        has[who] += 1
        left.remove((number, who))
    if len(chosen) < limit:
        assert all(has[who] >= most for _, who in left)


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (4, 3), (16, 15), (10_000, 9_375)])
def test_a_slot_is_kept_for_others_where_there_are_several(slots: int, most: int) -> None:
    assert most_of(slots) == most


async def test_a_slot_that_is_free_goes_to_who_has_fewer_also_where_somebody_gave_up() -> None:
    slots, held, gate = Slots(3, most=2), list[str](), asyncio.Event()

    async def hold(who: PrincipalId) -> None:
        async with slots.slot(who):
            held.append(who)
            await gate.wait()

    async with asyncio.TaskGroup() as tasks:
        ada = [tasks.create_task(hold(ADA)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert held == [ADA, ADA], "the third is kept for others"
        bob = [tasks.create_task(hold(BOB)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert held == [ADA, ADA, BOB]
        ada[2].cancel()
        ada[0].cancel()
        await asyncio.wait({ada[0], ada[2]})
        await asyncio.sleep(0)
        assert held == [ADA, ADA, BOB, ADA], "each has one, and Ada came first"
        ada[1].cancel()
        await asyncio.wait({ada[1]})
        await asyncio.sleep(0)
        assert held[4:] == [ADA], "again"
        assert not bob[1].done()
        gate.set()
    assert held[5:] == [BOB]
    assert not slots._in_use


def test_who_has_all_that_one_person_may_have_is_full() -> None:
    shares = FairShares(in_use={BOB: 2, ADA: 3, PrincipalId("cyd"): 4}, most=3)

    assert shares.full == (ADA, "cyd")
