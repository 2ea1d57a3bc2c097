"""Who asked to be let in, and the operator's answer."""

import msgspec
from aiohttp import web

from perdure.ports.access import PairingView
from perdure.ports.principals import LONGEST
from perdure.web import wire
from perdure.web.access import operator_of
from perdure.web.answers import body_of, json_response
from perdure.web.native import cursor_page, next_of
from perdure.web.services import Services


def pairing_out(view: PairingView) -> wire.PairingOut:
    return msgspec.convert(view, wire.PairingOut, from_attributes=True)


class PairingsApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/pairings", self.pairings),
            web.post("/api/pairings/approve", self.approve),
            web.delete("/api/pairings/{id}", self.revoke),
        ]

    async def pairings(self, request: web.Request) -> web.Response:
        operator_of(request)
        asked = cursor_page(request, default=LONGEST.limit)
        views = await self._services.access.pairings(asked)
        more = next_of(views, asked, lambda each: (each.asked_at, each.id))
        out = wire.PairingsOut(pairings=[pairing_out(view) for view in views], next=more)
        return json_response(out)

    async def approve(self, request: web.Request) -> web.Response:
        by = operator_of(request)
        body = await body_of(request, wire.ApproveIn)
        view = await self._services.access.approve(body.code, by=by.id)
        self._services.outbox_wake()  # the person is told
        return json_response(pairing_out(view))

    async def revoke(self, request: web.Request) -> web.Response:
        by = operator_of(request)
        view = await self._services.access.revoke(request.match_info["id"], by=by.id)
        await self._services.control.review_access()
        return json_response(pairing_out(view))
