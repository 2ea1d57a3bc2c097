"""Builds the OpenAPI document from the same types that the API encodes."""

from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from perdure.domain.turn.watching import Delta, OutcomeNews, QuestionNews, StateNews, ToolNews
from perdure.ports.gateway import Report
from perdure.web import wire
from perdure.web.endpoints import CURSOR, OLDER_CURSORS, Endpoint
from perdure.web.http.answers import json_response
from perdure.web.routes import ENDPOINTS
from perdure.web.services import Services


class _Operation(NamedTuple):
    method: str
    path: str
    summary: str
    gives: type | None
    takes: type | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    media: str = "application/json"


def _call(endpoint: Endpoint[Services, Any, Any]) -> _Operation:
    names = [each.name for each in endpoint.query]
    if not OLDER_CURSORS.isdisjoint(names):
        names.append(CURSOR)
    # A plain dictionary only confirms that something was done, so it has no schema.
    gives = endpoint.gives if hasattr(endpoint.gives, "__struct_fields__") else None
    return _Operation(
        endpoint.method.lower(),
        endpoint.path,
        endpoint.summary,
        gives,
        None if endpoint.takes is None else endpoint.takes.annotation,
        endpoint.status,
        tuple(names),
    )


# The endpoints, and the routes that are more than one JSON request with one JSON answer.
CALLS: Final = (
    *(_call(each) for each in ENDPOINTS),
    _Operation("get", "/api/events",
               "Conversations that have changed, as they change, as server-sent events",
               wire.ConversationsOut, media="text/event-stream"),
    _Operation("get", "/api/conversations/{name}/events",
         "Live events; resume with Last-Event-ID", None, media="text/event-stream"),
    _Operation("post", "/api/media", "Upload a file, as the body or in a form", wire.MediaOut,
         status=201),
    _Operation("get", "/api/media/{id}", "Fetch a file", None, media="application/octet-stream"),
    _Operation("get", "/api/verify", "Check everything stored against the rules", Report),
    _Operation("post", "/v1/chat/completions", "OpenAI-compatible chat completions", None),
    _Operation("post", "/v1/responses", "OpenAI-compatible responses", None),
    _Operation("get", "/v1/responses/{id}", "One response, finished or not", None),
    _Operation("get", "/v1/models", "Agents as models", None),
    _Operation("get", "/v1/models/{id}", "One agent as a model", None),
    *(
        _Operation(method, "/hooks/{adapter}/{path}", "Requests that a platform signs", None)
        for method in ("get", "post", "put")
    ),
    _Operation("get", "/healthz", "Alive", wire.HealthOut),
    _Operation("get", "/readyz", "A message would be accepted now", None),
    _Operation("get", "/metrics", "Prometheus metrics", None, media="text/plain"),
)  # fmt: skip
_EVENTS: Final = (Delta, ToolNews, QuestionNews, OutcomeNews, StateNews)
_OPEN: Final = ("/hooks/{adapter}/{path}", "/healthz", "/readyz", "/metrics")


def document(version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    shapes = [s for call in CALLS for s in (call.gives, call.takes) if s is not None]
    known = list(dict.fromkeys([*shapes, *_EVENTS, wire.ErrorOut]))
    _, components = msgspec.json.schema_components(
        known, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: _Operation) -> dict[str, Any]:
    names = [part[1:-1] for part in call.path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ] + [{"name": name, "in": "query", "schema": {"type": "string"}} for name in call.query]
    schema = _ref(call.gives) if call.gives else {}
    operation: dict[str, Any] = {
        "summary": call.summary,
        "parameters": parameters,
        "responses": {
            str(call.status): {
                "description": call.summary,
                "content": {call.media: {"schema": schema}},
            },
            "default": {
                "description": "An error that says what to do",
                "content": {"application/json": {"schema": _ref(wire.ErrorOut)}},
            },
        },
    }
    if call.takes is not None:
        content = {"application/json": {"schema": _ref(call.takes)}}
        operation["requestBody"] = {"required": True, "content": content}
    if call.path in _OPEN:
        operation["security"] = []
    return operation


def _ref(shape: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}


def routes(version: str) -> list[web.RouteDef]:
    """Return the route of the document, which is built once, when somebody asks for it."""
    built = cache(partial(document, version))

    async def serve(request: web.Request) -> web.Response:
        return json_response(built())

    return [web.get("/api/openapi.json", serve)]
