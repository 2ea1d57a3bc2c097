"""Checks who comes next when more waits than there is room for: turns and files are shared by
person."""

import pytest

from perdure.domain.address import Address
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment
from perdure.domain.kinds import UpdateKind
from perdure.domain.people.sharing import FairShares
from perdure.store.operations.turns.claiming import WINDOW
from perdure.store.store import Store

FILE = Attachment(reference="ref-1", name="report.txt", size=5)


@pytest.fixture
async def people(store: Store) -> dict[str, PrincipalId]:
    names = ("ada", "bob", "cyd")
    return {name: (await store.principals.ensure(name, role="member")).id for name in names}


async def say(store: Store, who: PrincipalId, place: str, *files: Attachment) -> Accepted:
    update = Update(
        address=Address(adapter="chat", account="bot", place=place),
        external_id=place,
        kind=UpdateKind.MESSAGE,
        principal=who,
        text=place,
        attachments=files,
    )
    return await store.inbox.accept(update, queue_max=9)


async def claim(store: Store, limit: int, shares: FairShares) -> list[str]:
    claimed = await store.turns.claim(limit=limit, shares=shares)
    return [each.address.place for each in claimed]


async def test_turns_are_claimed_for_who_has_the_fewest(
    store: Store, people: dict[str, PrincipalId]
) -> None:
    for number in range(WINDOW + 10):
        await say(store, people["ada"], f"ada {number}")
    for name in ("bob", "cyd"):
        for number in range(3):
            await say(store, people[name], f"{name} {number}")
    busy = FairShares(in_use={people["ada"]: 3, people["cyd"]: 1}, most=5)

    assert await claim(store, 2, busy) == ["bob 0", "cyd 0"]
    assert await claim(store, 3, FairShares()) == ["ada 0", "bob 1", "cyd 1"]
    full = FairShares(in_use={people["ada"]: 5}, most=5)
    assert await claim(store, 9, full) == ["bob 2", "cyd 2"], "others have what they wait for"
    assert await store.turns.next_claim_ms(shares=full) is None
    assert await store.turns.next_claim_ms() == 0
    await say(store, people["bob"], "bob 3")
    assert await claim(store, 2, FairShares(in_use={people["ada"]: 1})) == ["bob 3", "ada 1"]


async def test_who_waits_alone_is_claimed_in_order(
    store: Store, people: dict[str, PrincipalId]
) -> None:
    names = ["ada", "bob", "cyd", "ada", "ada", "bob"]
    for number, name in enumerate(names):
        await say(store, people[name], f"{number}")

    assert await claim(store, 9, FairShares()) == ["0", "1", "2", "3", "5", "4"]


async def test_files_are_taken_for_who_has_the_fewest(
    store: Store, people: dict[str, PrincipalId]
) -> None:
    for number in range(20):
        await say(store, people["ada"], f"ada {number}", *[FILE] * 5)
    bob = await say(store, people["bob"], "bob", FILE, FILE)
    cyd = await say(store, people["cyd"], "cyd", Attachment(url="http://files.test/a.txt"))
    shares = FairShares(in_use={people["ada"]: 8}, most=8)

    taken = await store.fetches.take(adapters=["", "chat"], limit=9, shares=shares)

    assert [each.turn for each in taken] == [cyd.turn, bob.turn, bob.turn]
    assert await store.fetches.take(adapters=["", "chat"], limit=9, shares=shares) == []
    more = await store.fetches.take(adapters=["", "chat"], limit=9, shares=FairShares(most=8))
    assert [each.index for each in more] == [0, 1, 2, 3, 4, 0, 1, 2]
