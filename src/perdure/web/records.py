"""Sessions, journals, search, explain, tokens, status: what operators and their scripts read."""

import base64
from collections.abc import Sequence

import msgspec
from aiohttp import web

from perdure.domain.attachments import SHOWN_TEXT_MAX
from perdure.domain.codec import encode
from perdure.domain.errors import Rejected
from perdure.domain.events import (
    AssistantSaid,
    MediaFetched,
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.records import PartView, SessionView
from perdure.domain.transcript import Running, entries_of_session
from perdure.ports.history import Archive, Explanation, Hit
from perdure.ports.principals import LONGEST, TokenView
from perdure.web import wire
from perdure.web.access import PRINCIPAL, Access, operator_of
from perdure.web.answers import CURSOR, body_of, json_response, number, place_name
from perdure.web.audiences import as_told, audience_of, event_as_told, explanation_as_told
from perdure.web.native import cursor_page, next_of, turn_out
from perdure.web.services import Services

NAME_MAX = 64
TOKEN_BYTES = 32


def event_out(recorded: Recorded) -> wire.EventOut:
    kind, body = encode(recorded.event)
    return wire.EventOut(
        seq=recorded.seq, at=recorded.at, kind=kind, body=msgspec.Raw(body.encode())
    )


def session_out(view: SessionView) -> wire.SessionOut:
    return wire.SessionOut(
        id=view.id,
        conversation=view.conversation,
        state=view.state,
        title=view.title,
        parent=view.parent,
        live=view.is_live,
        events=view.events,
        opened_at=view.opened_at,
        active_at=view.active_at,
    )


def hit_out(hit: Hit) -> wire.HitOut:
    event = hit.recorded.event
    user = TurnQueued | MessageJoined | MediaFetched | SteerTaken | TurnAmended
    assert isinstance(event, user | AssistantSaid)
    return wire.HitOut(
        conversation=hit.conversation,
        session=hit.recorded.session,
        turn=event.turn,
        message=event.message,
        role="assistant" if isinstance(event, AssistantSaid) else "user",
        text=event.text[:SHOWN_TEXT_MAX] if isinstance(event, MediaFetched) else event.text,
        at=hit.recorded.at,
    )


def part_out(part: PartView) -> wire.PartOut:
    return msgspec.convert(part, wire.PartOut, from_attributes=True)


def journal_out(
    session: SessionId, events: Sequence[Recorded], running: Running | None, *, more: str | None
) -> wire.JournalOut:
    return wire.JournalOut(
        session=session,
        events=[event_out(each) for each in events],
        next=more,
        partial=partial_out(running) if running else None,
    )


def partial_out(running: Running) -> wire.PartialOut:
    return msgspec.convert(running, wire.PartialOut, from_attributes=True)


def explanation_out(found: Explanation) -> wire.ExplanationOut:
    arrivals = [
        msgspec.convert(each, wire.ArrivalOut, from_attributes=True) for each in found.updates
    ]
    return wire.ExplanationOut(
        conversation=found.conversation,
        updates=arrivals,
        turn=turn_out(found.turn) if found.turn else None,
        events=[event_out(each) for each in found.events],
        parts=[part_out(each) for each in found.parts],
        command=found.command,
        reply=found.reply,
        refused=found.refused,
        partial=partial_out(found.partial) if found.partial else None,
        left=found.left,
    )


async def transcript_out(
    archive: Archive, session: SessionId, *, before: str | None, limit: int
) -> wire.TranscriptOut:
    """A page of what was said in a session: the newest `limit` turns, or those before one."""
    turns = await archive.told(
        session, before=TurnId(before) if before else None, limit=limit, with_left=True
    )
    running = None if before else await archive.running(session)
    more = turns[0].turn if len(turns) == limit else None
    entries = entries_of_session(turns, session, running)
    return wire.TranscriptOut(session=session, messages=entries, next=more)


def token_out(view: TokenView, *, token: str = "") -> wire.TokenOut:
    return wire.TokenOut(
        id=view.id,
        principal=view.principal,
        role=view.role,
        created_at=view.created_at,
        revoked_at=view.revoked_at,
        token=token,
    )


class RecordsApi:
    def __init__(self, services: Services, access: Access) -> None:
        self._services = services
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/sessions", self.sessions),
            web.get("/api/sessions/{id}", self.session),
            web.get("/api/sessions/{id}/journal", self.journal),
            web.get("/api/sessions/{id}/transcript", self.transcript),
            web.get("/api/search", self.search),
            web.get("/api/explain/{id}", self.explain),
            web.get("/api/status", self.status),
            web.get("/api/verify", self.verify),
            web.post("/api/drain", self.drain),
            web.post("/api/restart", self.restart),
            web.get("/api/tokens", self.tokens),
            web.post("/api/tokens", self.grant),
            web.delete("/api/tokens/{id}", self.revoke),
        ]

    async def sessions(self, request: web.Request) -> web.Response:
        asked = cursor_page(request)
        views = await self._services.archive.sessions(
            principal=request[PRINCIPAL].scope, page=asked
        )
        more = next_of(views, asked, lambda each: (each.active_at, each.id))
        return json_response(
            wire.SessionsOut(sessions=[session_out(view) for view in views], next=more)
        )

    async def _session(self, request: web.Request) -> SessionView:
        return await self._services.archive.session(
            SessionId(request.match_info["id"]), principal=request[PRINCIPAL].scope
        )

    async def session(self, request: web.Request) -> web.Response:
        return json_response(session_out(await self._session(request)))

    async def journal(self, request: web.Request) -> web.Response:
        limit = number(request, "limit", default=200, low=1, high=1000)
        place = place_name(request, "after")
        after = number(request, place, default=0, low=0, high=2**53)
        session = await self._session(request)
        stored = await self._services.archive.journal(session.id, after=after, limit=limit)
        audience = audience_of(request)
        events = [event_as_told(each, audience) for each in stored]
        more = str(events[-1].seq) if len(events) == limit else None
        running = await self._services.archive.running(session.id) if more is None else None
        return json_response(journal_out(session.id, events, running, more=more))

    async def transcript(self, request: web.Request) -> web.Response:
        limit = number(request, "limit", default=50, low=1, high=1000)
        session = await self._session(request)
        before = request.query.get(CURSOR)
        page = await transcript_out(self._services.archive, session.id, before=before, limit=limit)
        audience = audience_of(request)
        told = [as_told(entry, audience) for entry in page.messages]
        return json_response(msgspec.structs.replace(page, messages=told))

    async def search(self, request: web.Request) -> web.Response:
        query = request.query.get("q", "").strip()
        if not query:
            raise Rejected("give the words to look for as `q`", code="invalid_query")
        limit = number(request, "limit", default=20, low=1, high=200)
        place = place_name(request, "before")
        before = number(request, place, default=0, low=0, high=2**53)
        hits = await self._services.archive.search(
            query, principal=request[PRINCIPAL].scope, before=before or None, limit=limit
        )
        more = str(hits[-1].cursor) if len(hits) == limit else None
        return json_response(wire.SearchOut(hits=[hit_out(hit) for hit in hits], next=more))

    async def explain(self, request: web.Request) -> web.Response:
        found = await self._services.diagnostics.explain(
            request.match_info["id"], principal=request[PRINCIPAL].scope
        )
        return json_response(explanation_out(explanation_as_told(found, audience_of(request))))

    async def status(self, request: web.Request) -> web.Response:
        services, principal = self._services, request[PRINCIPAL]
        counts = await services.diagnostics.counts()
        control, info = services.control, services.info
        out = wire.StatusOut(
            version=info.version,
            state="draining" if control.is_draining else "serving",
            node=info.node,
            pid=info.pid,
            started_at=info.started_at,
            principal=principal.name,
            role=principal.role,
            agents=[wire.AgentOut(name=a.name, kind=a.kind) for a in control.agents()],
            turns={
                "queued": counts.queued,
                "running": counts.running,
                "interrupted": counts.interrupted,
            },
            outbox={"pending": counts.outbox_pending, "parked": counts.outbox_parked},
            adapters=[
                wire.AdapterOut(
                    name=view.name, account=view.account, health=view.health, error=view.error
                )
                for view in control.platforms()
            ],
        )
        return json_response(out)

    async def verify(self, request: web.Request) -> web.Response:
        operator_of(request)
        return json_response(await self._services.verify())

    async def drain(self, request: web.Request) -> web.Response:
        operator_of(request)
        is_replaced = request.query.get("replaced") == "true"
        self._services.control.request_drain(is_replaced=is_replaced)
        return json_response({"state": "draining"}, status=202)

    async def restart(self, request: web.Request) -> web.Response:
        operator_of(request)
        self._services.control.request_drain(then_restart=True)
        return json_response({"state": "restarting"}, status=202)

    async def tokens(self, request: web.Request) -> web.Response:
        operator_of(request)
        asked = cursor_page(request, default=LONGEST.limit)
        views = await self._services.principals.tokens(asked)
        more = next_of(views, asked, lambda each: (each.created_at, each.id))
        return json_response(wire.TokensOut(tokens=[token_out(view) for view in views], next=more))

    async def grant(self, request: web.Request) -> web.Response:
        """The token itself is shown here once and stored nowhere."""
        operator_of(request)
        body = await body_of(request, wire.TokenIn)
        name = body.name.strip()
        if not name or len(name) > NAME_MAX or not name.isprintable():
            raise Rejected(f"a name has 1 to {NAME_MAX} printable characters", code="invalid_name")
        services = self._services
        secret = services.entropy.random_bytes(TOKEN_BYTES)
        token = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        principal = await services.principals.ensure(name, role="member")
        view = await services.principals.grant(principal.id, token)
        return json_response(token_out(view, token=token), status=201)

    async def revoke(self, request: web.Request) -> web.Response:
        operator_of(request)
        view = await self._services.principals.revoke(request.match_info["id"])
        self._access.forget()
        await self._services.control.review_access()
        return json_response(token_out(view))
