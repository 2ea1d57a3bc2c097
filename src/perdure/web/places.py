"""Sending to a place from elsewhere, and which places there are."""

from aiohttp import web

from perdure.domain.errors import Rejected
from perdure.domain.text import storable
from perdure.ports.gateway import PlatformView
from perdure.ports.places import PlaceView, Sending, Sent
from perdure.web import wire
from perdure.web.access import PRINCIPAL
from perdure.web.answers import IDEMPOTENCY_KEY, body_of, json_response
from perdure.web.native import client_id, cursor_page, next_of
from perdure.web.services import Services


def place_out(view: PlaceView) -> wire.PlaceOut:
    return wire.PlaceOut(
        adapter=view.adapter,
        address=view.address,
        label=view.label,
        kind=view.kind,
        active_at=view.at,
        linked=view.linked,
    )


def sent_out(sent: Sent) -> wire.SendOut:
    accepted = sent.accepted
    return wire.SendOut(
        message=accepted.message,
        turn=accepted.turn,
        conversation=sent.address,
        session=accepted.session,
        duplicate=accepted.is_duplicate,
    )


def sayable(text: str) -> str:
    if not text.strip():
        raise Rejected("there is nothing to send; give a `text`", code="empty_message")
    return storable(text)


def accounts_of(platforms: list[PlatformView]) -> dict[str, str]:
    return {view.name: view.account for view in platforms}


class PlacesApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/api/send", self.send), web.get("/api/places", self.places)]

    async def send(self, request: web.Request) -> web.Response:
        """202 once it is durable; the id makes a repeat the same message."""
        services = self._services
        body = await body_of(request, wire.SendIn)
        given = body.id or request.headers.get(IDEMPOTENCY_KEY)
        sending = Sending(
            to=storable(body.to.strip()),
            text=sayable(body.text),
            external_id=client_id(given or services.entropy.random_bytes(16).hex()),
            by=request[PRINCIPAL],
            accounts=accounts_of(services.control.platforms()),
            forms=services.forms,
        )
        return json_response(sent_out(await services.door.send(sending)), status=202)

    async def places(self, request: web.Request) -> web.Response:
        asked = cursor_page(request)
        views = await self._services.places.known(principal=request[PRINCIPAL].scope, page=asked)
        more = next_of(views, asked, lambda each: (each.at, each.id))
        return json_response(wire.PlacesOut(places=[place_out(view) for view in views], next=more))
