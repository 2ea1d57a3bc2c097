"""The native API: conversations and turns."""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from aiohttp import web

from perdure.domain.address import HTTP, Address
from perdure.domain.commands import open_to
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.events import Attachment
from perdure.domain.ids import MediaId, PrincipalId, TurnId
from perdure.domain.records import TurnView
from perdure.domain.text import storable
from perdure.domain.transcript import Entry, entries_of, page
from perdure.domain.updates import Update
from perdure.ports.history import ConversationView, Page, Snapshot
from perdure.ports.principals import Principal
from perdure.web import wire
from perdure.web.access import PRINCIPAL
from perdure.web.answers import (
    CURSOR,
    IDEMPOTENCY_KEY,
    body_of,
    json_response,
    number,
    place_name,
)
from perdure.web.audiences import as_told, audience_of
from perdure.web.services import Services

T = TypeVar("T")
NAME_MAX: Final = 200
ID_MAX: Final = 200
ATTACHMENTS_MAX: Final = 20
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# In milliseconds; more than either database holds is nothing that was ever handed out.
_MOMENT: Final = re.compile(r"[0-9]{1,18}")


def conversation_name(name: str) -> str:
    if not name or len(name) > NAME_MAX or _CONTROL.search(name):
        raise Rejected(
            f"a conversation's name has 1 to {NAME_MAX} characters and no control characters",
            code="invalid_name",
        )
    return storable(name)


def http_address(principal: Principal, name: str) -> Address:
    """Each principal has its own conversations, also under the same name."""
    return Address(adapter=HTTP, account=principal.id, place=name)


def client_id(given: str) -> str:
    """The client's own id of a message."""
    if not given or len(given) > ID_MAX or _CONTROL.search(given):
        raise Rejected(
            f"an id has 1 to {ID_MAX} characters and no control characters", code="invalid_id"
        )
    return storable(given)


def external_id(name: str, given: str) -> str:
    """Over HTTP a message is known by its conversation and the client's own id."""
    return f"{client_id(given)}\n{name}"


def cursor_page(request: web.Request, *, default: int = 50) -> Page:
    limit = number(request, "limit", default=default, low=1, high=1000)
    cursor = request.query.get(CURSOR)
    if cursor is None:
        return Page(limit=limit)
    at, _, last = cursor.partition(":")
    if not _MOMENT.fullmatch(at):
        raise Rejected("`cursor` must be the `next` of an earlier page", code="invalid_query")
    return Page(after=(int(at), storable(last)), limit=limit)


def next_of(views: Sequence[T], asked: Page, place: Callable[[T], tuple[int, str]]) -> str | None:
    """The cursor behind a page, if there may be more: where its last one stands."""
    if len(views) < asked.limit:
        return None
    at, last = place(views[-1])
    return f"{at}:{last}"


def conversation_out(view: ConversationView) -> wire.ConversationOut:
    standing = view.standing
    return wire.ConversationOut(
        name=view.name,
        session=standing.session,
        state=standing.state,
        queued=standing.queued,
        turn=standing.turn,
        head=standing.head,
        at=view.at,
        title=view.title,
        resume_reason=standing.resume_reason,
        linked=view.linked_name,
    )


def turn_out(turn: TurnView) -> wire.TurnOut:
    return wire.TurnOut(
        id=turn.id,
        session=turn.session,
        state=turn.state,
        outcome=turn.outcome,
        reason=turn.reason,
        detail=turn.detail,
        attempts=turn.attempts,
        parent=turn.parent,
        message=turn.message,
        queued_at=turn.queued_at,
        started_at=turn.started_at,
        settled_at=turn.settled_at,
    )


class NativeApi:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/conversations", self.list_conversations),
            web.get("/api/conversations/{name}", self.get_conversation),
            web.post("/api/conversations/{name}/messages", self.post_message),
            web.get("/api/conversations/{name}/transcript", self.get_transcript),
            web.get("/api/commands", self.list_commands),
            web.get("/api/turns/{id}", self.get_turn),
            web.patch("/api/turns/{id}", self.amend_turn),
            web.post("/api/turns/{id}/stop", self.stop_turn),
        ]

    async def post_message(self, request: web.Request) -> web.Response:
        principal = request[PRINCIPAL]
        name = conversation_name(request.match_info["name"])
        body = await body_of(request, wire.MessageIn)
        given = body.id or request.headers.get(IDEMPOTENCY_KEY)
        if not body.text.strip() and not body.attachments:
            raise Rejected("a message needs `text` or `attachments`", code="empty_message")
        update = Update(
            address=await self._address(principal, name),
            external_id=external_id(name, given or self._fresh_id()),
            kind="message",
            principal=principal.id,
            text=storable(body.text),
            busy=self._services.busy,
            attachments=await self._attachments(body.attachments, principal),
            agent=self._services.control.resolve_agent(body.agent) if body.agent else "",
        )
        accepted = await self._services.door.accept(update)
        out = wire.MessageOut(
            message=accepted.message,
            session=accepted.session,
            turn=accepted.turn,
            duplicate=accepted.is_duplicate,
            queued=accepted.queue_position or None,
            effect=accepted.effect,
            command=accepted.command or None,
            reply=accepted.reply or None,
        )
        return json_response(out, status=202)

    async def _address(self, principal: Principal, name: str) -> Address:
        """One's own conversation of that name, which need not be there yet. Operators may speak in
        one on a platform, by its address; what is answered then is answered there."""
        if ":" in name and principal.is_operator:
            try:
                found = await self._services.conversations.find(
                    name, principal=principal.id, sees_all=True
                )
            except NotFound:
                return http_address(principal, name)
            return found.view.address
        return http_address(principal, name)

    def _fresh_id(self) -> str:
        return self._services.entropy.random_bytes(16).hex()

    async def _attachments(
        self, given: list[wire.AttachmentIn], principal: Principal
    ) -> tuple[Attachment, ...]:
        if len(given) > ATTACHMENTS_MAX:
            raise Rejected(
                f"a message takes at most {ATTACHMENTS_MAX} attachments", code="too_many"
            )
        return tuple([await self._attachment(each, principal.scope) for each in given])

    async def _attachment(self, given: wire.AttachmentIn, scope: PrincipalId | None) -> Attachment:
        if (given.media is None) == (given.url is None):
            raise Rejected("an attachment has either `media` or `url`", code="invalid_attachment")
        if given.url is not None:
            if not given.url.startswith(("http://", "https://")):
                raise Rejected("an attachment's url must be http(s)", code="invalid_attachment")
            return Attachment(url=storable(given.url))
        assert given.media is not None
        media = await self._services.media.get(MediaId(given.media), principal=scope)
        return Attachment(media=media.id, mime=media.mime, name=media.name, size=media.size)

    async def list_conversations(self, request: web.Request) -> web.Response:
        asked = cursor_page(request)
        views = await self._services.conversations.recent(
            principal=request[PRINCIPAL].id, page=asked
        )
        out = wire.ConversationsOut(
            conversations=[conversation_out(view) for view in views],
            next=next_of(views, asked, lambda each: (each.at, each.id)),
        )
        return json_response(out)

    async def list_commands(self, request: web.Request) -> web.Response:
        commands = [
            wire.CommandOut(name=each.name, usage=each.usage, help=each.help, aliases=each.aliases)
            for each in open_to(is_operator=request[PRINCIPAL].is_operator)
        ]
        return json_response(wire.CommandsOut(commands=commands))

    async def find(self, request: web.Request) -> Snapshot:
        name = conversation_name(request.match_info["name"])
        principal = request[PRINCIPAL]
        return await self._services.conversations.find(
            name, principal=principal.id, sees_all=principal.is_operator
        )

    async def get_conversation(self, request: web.Request) -> web.Response:
        return json_response(conversation_out((await self.find(request)).view))

    async def get_transcript(self, request: web.Request) -> web.Response:
        limit = number(request, "limit", default=50, low=1, high=1000)
        before = request.query.get(place_name(request, "before"))
        snapshot = await self.find(request)
        entries = await self._entries(snapshot, limit=limit, before=before)
        shown = page(entries, before=before, limit=limit)
        more = shown[0].id if shown and len(shown) == limit else None
        audience = audience_of(request)
        out = wire.TranscriptOut(
            session=snapshot.view.standing.session,
            messages=[as_told(entry, audience) for entry in shown],
            next=more,
        )
        return json_response(out)

    async def _entries(self, snapshot: Snapshot, *, limit: int, before: str | None) -> list[Entry]:
        tip = await self._tip(snapshot, before)
        if tip is None:
            return []
        chain = await self._services.conversations.chain(tip, limit=limit + 1)
        running = snapshot.running
        return [
            entry
            for turn in chain
            for entry in entries_of(
                turn, running if running and running.turn == turn[0].turn else None
            )
        ]

    async def _tip(self, snapshot: Snapshot, before: str | None) -> TurnId | None:
        """The turn a page ends in. An entry that does not stand here, because it is another
        conversation's or was undone, is not told from none at all."""
        tip, running = snapshot.view.standing.tip, snapshot.running
        if before is None or (running is not None and running.message == before):
            return tip
        if tip is None:
            raise NotFound(f"there is no message {before}")
        return await self._services.conversations.turn_on_chain(tip, before)

    async def get_turn(self, request: web.Request) -> web.Response:
        turn = await self._services.archive.turn(
            TurnId(request.match_info["id"]), principal=request[PRINCIPAL].scope
        )
        return json_response(turn_out(as_told(turn, audience_of(request))))

    async def stop_turn(self, request: web.Request) -> web.Response:
        turn = TurnId(request.match_info["id"])
        scope = request[PRINCIPAL].scope
        await self._services.door.stop(turn, by=scope)
        view = await self._services.archive.turn(turn, principal=scope)
        return json_response(turn_out(as_told(view, audience_of(request))))

    async def amend_turn(self, request: web.Request) -> web.Response:
        """Rewrite a message that still waits in the queue; stopping its turn removes it."""
        turn, scope = TurnId(request.match_info["id"]), request[PRINCIPAL].scope
        body = await body_of(request, wire.AmendIn)
        await self._services.door.amend(turn, storable(body.text), by=scope)
        view = await self._services.archive.turn(turn, principal=scope)
        return json_response(turn_out(as_told(view, audience_of(request))))
