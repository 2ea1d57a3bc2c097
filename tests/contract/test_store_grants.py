"""Checks that what a person has granted is found for the calls that it covers, and for no others,
however much they have granted."""

from functools import partial

import msgspec
import pytest

from perdure.domain.ids import GrantId, NodeId, QuestionId, SessionId
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.tools.grants import Grant, Scope, covers
from perdure.ports.records.history import Page
from perdure.store.operations.questions import grants
from perdure.store.operations.questions.grants import NewGrant
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.testkit.simulator.system import VirtualClock

HERE, ELSEWHERE = SessionId("ses_here"), SessionId("ses_elsewhere")
OFFER = GrantOffer(
    agent="main", act="mcp.a_b.send", definition="v1", pattern="path:x", words="mail"
)
# More than any list of grants that is read at once.
MANY = 1_100


async def grant(
    store: Store,
    person: Person,
    *offers: GrantOffer,
    scope: Scope = Scope.FOREVER,
    session: SessionId = HERE,
    until: int = 0,
) -> None:
    def put_all(stamp: Stamp) -> Op[None]:
        for offer in offers:
            new = NewGrant(person.id, offer, scope, session, until, QuestionId("qst_1"))
            yield from grants.put(new, stamp)

    stamp = store._mint.stamp(NodeId("nod_1"))
    await store._driver.write(partial(put_all, stamp))


async def found_for(store: Store, person: Person, offer: GrantOffer = OFFER) -> Grant | None:
    return await store.grants.covering(person.id, offer=offer, session=HERE)


def other(n: int) -> GrantOffer:
    """Return an offer that is about something else than `OFFER`."""
    return msgspec.structs.replace(OFFER, pattern=f"path:{n}", words=f"mail {n}")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pattern": ""},
        {"act": "mcp.a_b"},
        {"act": "mcp"},
        {"act": "mcp.a_b.send.more"},
        {"act": "mcp.a_"},
        {"act": "mcp.axb"},
        {"act": "mcp.%"},
        {"act": "mail"},
        {"agent": "other"},
        {"definition": "v2"},
        {"pattern": "path:y"},
        {"pattern": "%"},
    ],
    ids=str,
)
async def test_a_grant_is_found_for_exactly_the_calls_that_it_covers(
    store: Store, ada: Person, clock: VirtualClock, change: dict[str, str]
) -> None:
    offer = msgspec.structs.replace(OFFER, **change)

    await grant(store, ada, offer)

    found = await found_for(store, ada)
    made = Grant(id=grant_id(found), offer=offer, scope=Scope.FOREVER)
    is_covered = covers(made, OFFER, session=HERE, now_ms=clock.now_ms())
    assert found == (made if is_covered else None)


def grant_id(found: Grant | None) -> GrantId:
    return GrantId("grt_none") if found is None else found.id


async def test_a_grant_is_found_in_its_session_and_until_its_time_is_over(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    await grant(store, ada, OFFER, scope=Scope.SESSION, session=ELSEWHERE)
    await grant(store, ada, OFFER, scope=Scope.TIME, until=clock.now_ms())
    await grant(store, bob, OFFER)
    assert await found_for(store, ada) is None

    await grant(store, ada, OFFER, scope=Scope.SESSION)

    found = await found_for(store, ada)
    assert found is not None
    assert (found.scope, found.session) == (Scope.SESSION, HERE)


async def test_a_grant_is_found_however_many_there_are(store: Store, ada: Person) -> None:
    await grant(store, ada, *map(other, range(MANY)), OFFER, *map(other, range(MANY)))

    found = await found_for(store, ada)

    assert found is not None
    assert found.offer == OFFER
    nothing = msgspec.structs.replace(OFFER, pattern="path:nobody")
    assert await found_for(store, ada, nothing) is None


async def test_the_newest_grants_are_listed_and_every_one_can_be_taken_back(
    store: Store, ada: Person, bob: Person, clock: VirtualClock
) -> None:
    await grant(store, ada, OFFER)
    oldest = await found_for(store, ada)
    assert oldest is not None
    for n in range(25):
        clock.advance(1)
        await grant(store, ada, other(n))

    listed = (await ada.says("/grants")).reply.splitlines()
    words = [line.partition(": ")[2] for line in listed]

    assert words[:20] == [f"mail {n} (forever)" for n in range(24, 4, -1)]
    assert "GET /api/grants" in listed[20]
    for name in (oldest.id[-3:], "%%%%%%", "grt_"):
        assert "You have no grant" in (await ada.says(f"/grants revoke {name}")).reply
    assert "You have no grant" in (await bob.says(f"/grants revoke {oldest.id[-6:]}")).reply
    taken = (await ada.says(f"/grants revoke {oldest.id[-6:].upper()}")).reply
    assert taken == "Taken back: mail. You will be asked again."
    assert await found_for(store, ada) is None
    assert len(await store.grants.page(Page(limit=100), principal=ada.id)) == 25
