"""Lists people who asked for access, and lets the operator approve or revoke it."""

from perdure.ports.people.access import PairingView
from perdure.ports.people.principals import LONGEST, Principal
from perdure.ports.turns.wakes import Topic
from perdure.web import wire
from perdure.web.endpoints import OperatorServices, PageLimit, endpoint, next_of, page_of


@endpoint(
    "GET",
    "/api/pairings",
    "List people who have access, and people who ask for it",
    is_for_operators=True,
)
async def pairings(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = LONGEST.limit,
    cursor: str | None = None,
) -> wire.PairingsOut:
    """List pairings, approved or not."""
    asked = page_of(cursor, limit)
    views = await services.access.pairings(asked)
    more = next_of(views, asked, lambda each: (each.asked_at, each.id))
    return wire.PairingsOut(pairings=views, next=more)


@endpoint(
    "POST",
    "/api/pairings/approve",
    "Give access to the person who got this code",
    is_for_operators=True,
)
async def approve(
    services: OperatorServices, by: Principal, *, body: wire.ApproveIn
) -> PairingView:
    """Give access to the person who got this code."""
    view = await services.access.approve(body.code, by=by.id)
    services.wakes.publish(Topic.OUTBOX)  # the person's notice waits there
    return view


@endpoint("DELETE", "/api/pairings/{id}", "Revoke a person's access", is_for_operators=True)
async def revoke(services: OperatorServices, by: Principal, pairing: str) -> PairingView:
    """Revoke a person's access, and end what they may no longer do."""
    view = await services.access.revoke(pairing, by=by.id)
    await services.control.review_access()
    return view
