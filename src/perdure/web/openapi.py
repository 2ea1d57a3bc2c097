"""The OpenAPI document, made from the same shapes that the API encodes."""

from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from perdure.domain.watching import Delta, OutcomeNews, StateNews, ToolNews
from perdure.ports.gateway import Report
from perdure.web import wire
from perdure.web.answers import json_response


class Call(NamedTuple):
    method: str
    path: str
    summary: str
    gives: type | None
    takes: type | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    media: str = "application/json"


CALLS: Final = (
    Call("get", "/api/conversations", "Your conversations, newest first",
         wire.ConversationsOut, query=("limit", "cursor")),
    Call("get", "/api/conversations/{name}", "One conversation's state", wire.ConversationOut),
    Call("post", "/api/conversations/{name}/messages",
         "Send a message; accepted once it is durable", wire.MessageOut, wire.MessageIn, 202),
    Call("get", "/api/conversations/{name}/transcript", "What stands at the head, oldest first",
         wire.TranscriptOut, query=("limit", "cursor", "before")),
    Call("get", "/api/conversations/{name}/events",
         "Live events; resume with Last-Event-ID", None, media="text/event-stream"),
    Call("get", "/api/commands", "The slash commands you may give", wire.CommandsOut),
    Call("get", "/api/turns/{id}", "One turn", wire.TurnOut),
    Call("patch", "/api/turns/{id}", "Rewrite a message that still waits", wire.TurnOut,
         wire.AmendIn),
    Call("post", "/api/turns/{id}/stop", "Stop a turn", wire.TurnOut),
    Call("post", "/api/media", "Upload a file, as the body or in a form", wire.MediaOut,
         status=201),
    Call("get", "/api/media/{id}", "Fetch a file", None, media="application/octet-stream"),
    Call("get", "/api/sessions", "Sessions, closed ones included", wire.SessionsOut,
         query=("limit", "cursor")),
    Call("get", "/api/sessions/{id}", "One session", wire.SessionOut),
    Call("get", "/api/sessions/{id}/journal", "The raw journal", wire.JournalOut,
         query=("limit", "cursor", "after")),
    Call("get", "/api/sessions/{id}/transcript", "What was said in it, and what stands of that",
         wire.TranscriptOut, query=("limit", "cursor")),
    Call("get", "/api/search", "Full text, newest first", wire.SearchOut,
         query=("q", "limit", "cursor", "before")),
    Call("get", "/api/explain/{id}", "The whole chain of one message, turn or part",
         wire.ExplanationOut),
    Call("post", "/api/send", "Say something in a place, from elsewhere", wire.SendOut,
         wire.SendIn, 202),
    Call("get", "/api/places", "Places that are known, those active last first", wire.PlacesOut,
         query=("limit", "cursor")),
    Call("get", "/api/parked", "Parts that could not be delivered", wire.ParkedOut,
         query=("limit", "cursor")),
    Call("get", "/api/parked/{id}", "One such part", wire.PartOut),
    Call("post", "/api/parked/{id}/replay", "Send it after all", wire.PartOut, wire.ReplayIn),
    Call("delete", "/api/parked/{id}", "Take it off the list", wire.PartOut),
    Call("get", "/api/pairings", "Who asked to be let in, and who was", wire.PairingsOut,
         query=("limit", "cursor")),
    Call("post", "/api/pairings/approve", "Let in who got this code", wire.PairingOut,
         wire.ApproveIn),
    Call("delete", "/api/pairings/{id}", "Let them in no more", wire.PairingOut),
    Call("get", "/api/status", "What runs and what waits", wire.StatusOut),
    Call("get", "/api/verify", "Check everything stored against the rules", Report),
    Call("post", "/api/drain", "Finish what runs, take no more turns, exit", None, status=202,
         query=("replaced",)),
    Call("post", "/api/restart", "Drain, then start again", None, status=202),
    Call("get", "/api/tokens", "API tokens", wire.TokensOut, query=("limit", "cursor")),
    Call("post", "/api/tokens", "Make a token for a principal; shown once", wire.TokenOut,
         wire.TokenIn, 201),
    Call("delete", "/api/tokens/{id}", "Revoke a token", wire.TokenOut),
    Call("post", "/v1/chat/completions", "OpenAI-compatible chat completions", None),
    Call("post", "/v1/responses", "OpenAI-compatible responses", None),
    Call("get", "/v1/responses/{id}", "One response, finished or not", None),
    Call("get", "/v1/models", "Agents as models", None),
    Call("get", "/v1/models/{id}", "One agent as a model", None),
    Call("get", "/hooks/{adapter}/{path}", "Requests of a platform, signed its own way", None),
    Call("post", "/hooks/{adapter}/{path}", "Requests of a platform, signed its own way", None),
    Call("put", "/hooks/{adapter}/{path}", "Requests of a platform, signed its own way", None),
    Call("get", "/healthz", "Alive", None),
    Call("get", "/readyz", "Ready to run turns", None),
    Call("get", "/metrics", "Prometheus metrics", None, media="text/plain"),
)  # fmt: skip
_EVENTS: Final = (Delta, ToolNews, OutcomeNews, StateNews)
_OPEN: Final = ("/hooks/{adapter}/{path}", "/healthz", "/readyz", "/metrics")


def document(version: str) -> dict[str, Any]:
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


def _operation(call: Call) -> dict[str, Any]:
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
    body = document(version)

    async def serve(request: web.Request) -> web.Response:
        return json_response(body)

    return [web.get("/api/openapi.json", serve)]
