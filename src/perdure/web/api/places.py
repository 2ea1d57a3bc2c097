"""Sends messages to a place from outside, and lists the known places."""

from perdure.domain.errors import Rejected
from perdure.domain.text import storable
from perdure.ports.people.places import OutgoingMessage
from perdure.ports.people.principals import Principal
from perdure.web import wire
from perdure.web.api.native import client_id, fresh_id
from perdure.web.endpoints import OperatorServices, PageLimit, endpoint, next_of, page_of


@endpoint("POST", "/api/send", "Send a message to a place", status=202)
async def send(services: OperatorServices, by: Principal, *, body: wire.SendIn) -> wire.SendOut:
    """Send a message to a place. It is durable when this returns; the same id again is the same
    message."""
    if not body.text.strip():
        raise Rejected("there is nothing to send; give a `text`", code="empty_message")
    sending = OutgoingMessage(
        to=storable(body.to.strip()),
        text=storable(body.text),
        external_id=client_id(body.id or fresh_id(services)),
        by=by,
        accounts={view.name: view.account for view in services.control.platforms()},
        forms=services.forms,
    )
    sent = await services.door.send(sending)
    return wire.SendOut(
        message=sent.accepted.message,
        turn=sent.accepted.turn,
        conversation=sent.address,
        session=sent.accepted.session,
        duplicate=sent.accepted.is_duplicate,
    )


@endpoint("GET", "/api/places", "List the places that a message can be sent to, last active first")
async def places(
    services: OperatorServices, by: Principal, *, limit: PageLimit = 50, cursor: str | None = None
) -> wire.PlacesOut:
    """List the places that the caller may see."""
    asked = page_of(cursor, limit)
    views = await services.places.known(principal=by.scope, page=asked)
    more = next_of(views, asked, lambda each: (each.active_at, each.id))
    return wire.PlacesOut(places=views, next=more)
