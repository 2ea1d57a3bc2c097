"""Serves sessions, journals, search and explanations, for operators and their scripts."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.codec import encode
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.records import SessionView, ToldTurn
from perdure.domain.journal.transcript import entries_of_session
from perdure.ports.people.principals import Principal
from perdure.web import wire
from perdure.web.api.native import read_along
from perdure.web.audiences import as_told, audience_of, event_as_told, explanation_as_told
from perdure.web.endpoints import (
    WANTED,
    OperatorServices,
    PageLimit,
    endpoint,
    moment_of,
    next_of,
    page_of,
    require_operator,
)
from perdure.web.ops.requests import request_out, turn_asked


def event_out(recorded: Recorded) -> wire.EventOut:
    """Return an event as the API shows it."""
    kind, body = encode(recorded.event)
    return wire.EventOut(
        seq=recorded.seq, at=recorded.at, kind=kind, body=msgspec.Raw(body.encode())
    )


@endpoint("GET", "/api/sessions", "List sessions, closed ones too, newest first")
async def sessions(  # noqa: PLR0913 - what a list may be asked for
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
    conversation: str | None = None,
    hidden: str | None = None,
    errands: str | None = None,
) -> wire.SessionsOut:
    """List sessions that the caller may see, or those of one of their conversations. With
    `hidden=true`, which is only for operators, also those that people have deleted; with
    `errands=true` also those of work beside conversations, each with its `parent`."""
    if conversation is not None:
        return await _sessions_of(services, by, conversation, limit=limit, cursor=cursor)
    asked = msgspec.structs.replace(
        page_of(cursor, limit),
        with_hidden=_wants_hidden(by, hidden),
        with_errands=errands == WANTED,
    )
    views = await services.archive.sessions(principal=by.scope, page=asked)
    more = next_of(views, asked, lambda each: (each.active_at, each.id))
    return wire.SessionsOut(sessions=views, next=more)


async def _sessions_of(
    services: OperatorServices, by: Principal, name: str, *, limit: int, cursor: str | None
) -> wire.SessionsOut:
    """List the sessions of a conversation of the caller, the last read_along first."""
    found = (await read_along(services, by, name)).view
    after = None if cursor is None else moment_of(cursor)
    views = await services.archive.sessions_of(found.linked or found.id, limit=limit, after=after)
    more = str(views[-1].opened_at) if len(views) == limit else None
    return wire.SessionsOut(sessions=views, next=more)


def _wants_hidden(by: Principal, hidden: str | None) -> bool:
    """Tell whether the caller wants to see what people have hidden. Raises `Rejected` unless the
    caller may."""
    if hidden != WANTED:
        return False
    require_operator(by)
    return True


@endpoint("GET", "/api/sessions/{id}", "Read one session")
async def session(services: OperatorServices, by: Principal, which: str) -> SessionView:
    """Return one session."""
    return await services.archive.session(SessionId(which), principal=by.scope)


@endpoint("GET", "/api/sessions/{id}/journal", "Read the raw journal of a session", is_long=True)
async def journal(
    services: OperatorServices,
    by: Principal,
    which: str,
    *,
    limit: PageLimit = 200,
    after: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0,
) -> wire.JournalOut:
    """Return a page of a session's events. The last page also holds the text of the running
    turn."""
    archive, audience = services.archive, audience_of(by)
    found = await archive.session(SessionId(which), principal=by.scope)
    stored = await archive.journal(found.id, after=after, limit=limit)
    more = str(stored[-1].seq) if stored and stored[-1].seq < found.events else None
    return wire.JournalOut(
        session=found.id,
        events=[event_out(event_as_told(each, audience)) for each in stored],
        next=more,
        partial=await archive.running(found.id) if more is None else None,
    )


@endpoint(
    "GET",
    "/api/sessions/{id}/transcript",
    "Read every message of a session, and whether it still stands at the head",
    is_long=True,
)
async def transcript(
    services: OperatorServices,
    by: Principal,
    which: str,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
    notices: str | None = None,
) -> wire.TranscriptOut:
    """Return a page of what was said: the newest `limit` turns, or those before the cursor. A turn
    that is too long for one page is split over several. With `notices=true`, the page also holds
    the session's notices and the replies to commands, and `limit` counts entries."""
    archive, audience = services.archive, audience_of(by)
    found = await archive.session(SessionId(which), principal=by.scope)
    if notices == WANTED:
        page = await archive.noticed(found.id, before=cursor, limit=limit, is_whole=True)
        return wire.TranscriptOut(
            session=found.id,
            messages=[as_told(entry, audience) for entry in page.entries],
            next=page.entries[0].id if page.has_more else None,
        )
    turn, _, seq = (cursor or "").partition(":")
    turns = await archive.told(
        found.id,
        before=TurnId(turn) if turn else None,
        before_seq=moment_of(seq) if seq else 0,
        limit=limit,
        with_left=True,
    )
    running = None if cursor else await archive.running(found.id)
    entries = entries_of_session(turns, found.id, running)
    return wire.TranscriptOut(
        session=found.id,
        messages=[as_told(entry, audience) for entry in entries],
        next=_before(turns),
    )


def _before(turns: Sequence[ToldTurn]) -> str | None:
    """Return the cursor of the page before these turns, or None."""
    if not turns:
        return None
    first = turns[0]
    if first.begins_at:
        return f"{first.turn}:{first.begins_at}"
    return first.turn if first.has_earlier else None


@endpoint("GET", "/api/search", "Search messages by their words, newest first", is_long=True)
async def search(
    services: OperatorServices,
    by: Principal,
    *,
    q: str = "",
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20,
    before: str | None = None,
    hidden: str | None = None,
) -> wire.SearchOut:
    """Search the text of messages that the caller may see. With `hidden=true`, which is only for
    operators, also what people have deleted."""
    query = q.strip()
    if not query:
        raise Rejected("give the words to look for as `q`", code="invalid_query")
    place = None if before is None else moment_of(before) or None
    hits = await services.archive.search(
        query,
        principal=by.scope,
        before=place,
        limit=limit,
        with_hidden=_wants_hidden(by, hidden),
    )
    more = str(hits[-1].cursor) if len(hits) == limit else None
    return wire.SearchOut(hits=hits, next=more)


@endpoint(
    "GET",
    "/api/explain/{id}",
    "Read everything stored about a message, turn, part or update",
    is_long=True,
)
async def explain(
    services: OperatorServices, by: Principal, any_id: str, *, request: str | None = None
) -> wire.ExplanationOut:
    """Return everything stored about an id. With `request=true`, which is only for operators, the
    answer also holds what the model was asked."""
    with_request = request == WANTED
    if with_request:
        require_operator(by)
    found = await services.diagnostics.explain(any_id, principal=by.scope)
    told = explanation_as_told(found, audience_of(by))
    events = [event_out(each) for each in told.events]
    explained = wire.ExplanationOut(**msgspec.structs.asdict(told) | {"events": events})
    if with_request:
        asked = await services.diagnostics.asked(turn_asked(found))
        explained.request = request_out(asked, await services.encoded_again(asked))
    return explained


@endpoint(
    "POST", "/api/verify", "Record sessions that a check has found sound", is_for_operators=True
)
async def note_sound(
    services: OperatorServices, by: Principal, *, body: wire.SoundIn
) -> dict[str, int]:
    """Record the sessions that the command line has checked itself, so that `verify --new` skips
    them."""
    await services.audit.note(body.sound)
    return {"noted": len(body.sound)}
