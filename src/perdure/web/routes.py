"""Serves the endpoints over HTTP."""

from collections.abc import Callable
from functools import partial
from inspect import Parameter
from types import ModuleType
from typing import Any, Final

import msgspec
from aiohttp import web

from perdure.web.access import PRINCIPAL, TokenCheck, operator_of
from perdure.web.api import contexts, native, places, pushes
from perdure.web.endpoints import BODY, CURSOR, OLDER_CURSORS, Endpoint
from perdure.web.http.answers import IDEMPOTENCY_KEY, Handler, body_of, json_response, number
from perdure.web.long_reads import one_of_few
from perdure.web.ops import (
    agents,
    approvals,
    jobs,
    node,
    pairings,
    parked,
    records,
    servers,
    tokens,
)
from perdure.web.services import Services

MODULES: Final = (
    native,
    contexts,
    records,
    places,
    pushes,
    approvals,
    jobs,
    agents,
    servers,
    parked,
    pairings,
    tokens,
    node,
)
Read = Callable[[web.Request], object]


def _endpoints(module: ModuleType) -> list[Endpoint[Services, Any, Any]]:
    return [each for each in vars(module).values() if isinstance(each, Endpoint)]


ENDPOINTS: Final = tuple(each for module in MODULES for each in _endpoints(module))


def routes(services: Services, access: TokenCheck) -> list[web.RouteDef]:
    """Return a route for each endpoint."""
    return [
        web.route(each.method, each.path, _served(each, services, access)) for each in ENDPOINTS
    ]


def _served(
    endpoint: Endpoint[Services, ..., object], services: Services, access: TokenCheck
) -> Handler:
    """Return the handler that reads an endpoint's parameters, calls it, and sends its answer."""
    readers = {each.name: _reader(each) for each in endpoint.query}
    body = endpoint.takes

    async def serve(request: web.Request) -> web.StreamResponse:
        by = operator_of(request) if endpoint.is_for_operators else request[PRINCIPAL]
        given = {name: read(request) for name, read in readers.items()}
        if body is not None:
            given[BODY] = await _body(request, body)
        end_revoked = partial(access.revoked, by=request)
        answer = await endpoint.answer(
            msgspec.structs.replace(services, end_revoked=end_revoked),
            by,
            *request.match_info.values(),
            **given,
        )
        return json_response(answer, status=endpoint.status)

    return one_of_few(serve) if endpoint.is_long else serve


def _reader(parameter: Parameter) -> Read:
    """Return a function that reads one query parameter. A number's bounds are part of its type."""
    name, default = parameter.name, parameter.default
    bounds = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)

    def read(request: web.Request) -> object:
        given = CURSOR if name in OLDER_CURSORS and CURSOR in request.query else name
        if bounds is None:
            return request.query.get(given, default)
        return number(request, given, default=default, low=bounds.ge, high=bounds.le)

    return read


async def _body(request: web.Request, parameter: Parameter) -> object:
    """Return the request's body. It may be missing if the parameter has a default, and its `id` may
    come as the header `Idempotency-Key` instead."""
    if parameter.default is not Parameter.empty and not request.can_read_body:
        return parameter.default
    body: msgspec.Struct = await body_of(request, parameter.annotation)
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key and getattr(body, "id", key) in (None, ""):
        return msgspec.structs.replace(body, id=key)
    return body
