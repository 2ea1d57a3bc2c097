"""Shows parts that could not be delivered and letters that could not be taken, and lets operators
retry or drop them."""

from typing import Final

from perdure.domain.ids import PartId
from perdure.domain.journal.records import LETTER, PartView
from perdure.ports.people.principals import Principal
from perdure.ports.turns.wakes import Topic
from perdure.web import wire
from perdure.web.endpoints import OperatorServices, PageLimit, endpoint, next_of, page_of

CAREFULLY: Final = wire.ReplayIn()


@endpoint("GET", "/api/parked", "List parts that could not be delivered", is_for_operators=True)
async def parked(
    services: OperatorServices, by: Principal, *, limit: PageLimit = 50, cursor: str | None = None
) -> wire.ParkedOut:
    """List parked parts."""
    asked = page_of(cursor, limit)
    parts = await services.parked.page(asked)
    more = next_of(parts, asked, lambda each: (each.at, each.id))
    return wire.ParkedOut(parked=parts, next=more)


@endpoint("GET", "/api/parked/{id}", "Read one parked part", is_for_operators=True)
async def part(services: OperatorServices, by: Principal, which: str) -> PartView:
    """Return one parked part."""
    return await services.parked.part(PartId(which))


@endpoint(
    "POST", "/api/parked/{id}/replay", "Try to deliver a parked part again", is_for_operators=True
)
async def replay(
    services: OperatorServices, by: Principal, which: str, *, body: wire.ReplayIn = CAREFULLY
) -> PartView:
    """Try a parked part again. A letter is first handed to its adapter again."""
    asked = await services.parked.part(PartId(which))
    if asked.step == LETTER and asked.state == "parked":
        await services.control.take_again(asked.adapter, asked.text)
    replayed = await services.parked.replay(PartId(which), force=body.force)
    services.wakes.publish(Topic.OUTBOX)
    return replayed


@endpoint("DELETE", "/api/parked/{id}", "Remove a parked part from the list", is_for_operators=True)
async def drop(services: OperatorServices, by: Principal, which: str) -> PartView:
    """Remove a part from the list."""
    return await services.parked.drop(PartId(which))
