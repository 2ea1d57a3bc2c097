"""Parts that could not be delivered, and letters that could not be taken: read, tried again,
dropped. For operators."""

from aiohttp import web

from perdure.domain.ids import PartId
from perdure.domain.records import LETTER
from perdure.web import wire
from perdure.web.access import operator_of
from perdure.web.answers import body_of, json_response
from perdure.web.native import cursor_page, next_of
from perdure.web.records import part_out
from perdure.web.services import Services


class ParkedApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/parked", self.parked),
            web.get("/api/parked/{id}", self.part),
            web.post("/api/parked/{id}/replay", self.replay),
            web.delete("/api/parked/{id}", self.drop),
        ]

    async def parked(self, request: web.Request) -> web.Response:
        operator_of(request)
        asked = cursor_page(request)
        parts = await self._services.parked.page(asked)
        more = next_of(parts, asked, lambda each: (each.at, each.id))
        out = wire.ParkedOut(parked=[part_out(part) for part in parts], next=more)
        return json_response(out)

    async def part(self, request: web.Request) -> web.Response:
        operator_of(request)
        return json_response(part_out(await self._services.parked.part(_named(request))))

    async def replay(self, request: web.Request) -> web.Response:
        operator_of(request)
        has_body = request.can_read_body
        body = await body_of(request, wire.ReplayIn) if has_body else wire.ReplayIn()
        asked = await self._services.parked.part(_named(request))
        if asked.step == LETTER and asked.state == "parked":
            await self._services.control.take_again(asked.adapter, asked.text)
        part = await self._services.parked.replay(PartId(asked.id), force=body.force)
        self._services.outbox_wake()
        return json_response(part_out(part))

    async def drop(self, request: web.Request) -> web.Response:
        operator_of(request)
        return json_response(part_out(await self._services.parked.drop(_named(request))))


def _named(request: web.Request) -> PartId:
    return PartId(request.match_info["id"])
