"""Serves the native API of conversations and turns."""

import re
from typing import Final

from perdure.domain.address import HTTP, Address
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import MediaId, TurnId
from perdure.domain.inbound.commands import open_to
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.attachments import PICTURES
from perdure.domain.journal.events import Attachment, SenderTraits
from perdure.domain.journal.left_out import omissions_of
from perdure.domain.journal.records import TurnView
from perdure.domain.journal.spoken import with_versions
from perdure.domain.journal.transcript import (
    Entry,
    PlacedEntry,
    add_turn,
    entries_of,
    page,
    parent_of,
    placed_entries,
)
from perdure.domain.kinds import UpdateKind
from perdure.domain.reading.pictures import BYTES_MAX, needs_fitting
from perdure.domain.sayings.saying import tag_of
from perdure.domain.text import storable
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import PAGE_BYTES, ConversationView, Shelf, Snapshot
from perdure.ports.records.media import Media
from perdure.ports.records.shelves import Shelving
from perdure.web import wire
from perdure.web.audiences import as_told, audience_of
from perdure.web.endpoints import (
    WANTED,
    OperatorServices,
    PageLimit,
    endpoint,
    next_of,
    page_of,
)
from perdure.web.services import Services

NAME_MAX: Final = 200
ID_MAX: Final = 200
ATTACHMENTS_MAX: Final = 20
# Entries of one turn that are shown at most: its last ones.
ENTRIES_MAX: Final = 500
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def conversation_name(name: str) -> str:
    """Return a conversation's name as it is stored. Raises `Rejected` for an invalid one."""
    if not name or len(name) > NAME_MAX or _CONTROL.search(name):
        raise Rejected(
            f"a conversation's name has 1 to {NAME_MAX} characters and no control characters",
            code="invalid_name",
        )
    return storable(name)


def http_address(principal: Principal, name: str) -> Address:
    """Return the address of a conversation over HTTP. Two principals may use the same name for
    different conversations."""
    return Address(adapter=HTTP, account=principal.id, place=name)


def client_id(given: str) -> str:
    """Return the client's own id of a message as it is stored. Raises `Rejected` for an invalid
    one."""
    if not given or len(given) > ID_MAX or _CONTROL.search(given):
        raise Rejected(
            f"an id has 1 to {ID_MAX} characters and no control characters", code="invalid_id"
        )
    return storable(given)


def fresh_id(services: OperatorServices) -> str:
    """Make an id for a message whose client gave none."""
    return services.entropy.random_bytes(16).hex()


def external_id(name: str, given: str) -> str:
    """Return the identity of a message that came over HTTP: the client's id and the
    conversation."""
    return f"{client_id(given)}\n{name}"


def conversation_out(view: ConversationView) -> wire.ConversationOut:
    """Return a conversation as the API shows it."""
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
        agent=view.agent,
        pinned=view.is_pinned,
        archived=view.is_archived,
        hidden=view.is_hidden,
        unread=view.is_unread,
    )


@endpoint(
    "POST",
    "/api/conversations/{name}/messages",
    "Send a message; 202 means that it is stored",
    status=202,
)
async def post_message(
    services: Services, by: Principal, name: str, *, body: wire.MessageIn
) -> wire.MessageOut:
    """Accept a message. It is durable when this returns; the same id again returns the first
    answer."""
    name = conversation_name(name)
    if not body.text.strip() and not body.attachments:
        raise Rejected("a message needs `text` or `attachments`", code="empty_message")
    update = Update(
        address=await _address(services, by, name),
        external_id=external_id(name, body.id or fresh_id(services)),
        kind=UpdateKind.MESSAGE,
        principal=by.id,
        caller=by.name,
        text=storable(body.text),
        busy=services.busy,
        attachments=await _attachments(services, by, body.attachments),
        agent=services.control.resolve_agent(body.agent) if body.agent else "",
        traits=SenderTraits(language=tag_of(body.language)),
    )
    accepted = await services.door.accept(update)
    return wire.MessageOut(
        message=accepted.message,
        session=accepted.session,
        turn=accepted.turn,
        duplicate=accepted.is_duplicate,
        queued=accepted.queue_position or None,
        effect=accepted.effect,
        command=accepted.command or None,
        reply=accepted.reply or None,
        choices=accepted.choices,
    )


async def _address(services: Services, by: Principal, name: str) -> Address:
    """Return the caller's own conversation with that name, which need not exist yet. An operator
    may also name a platform's conversation by its address; the answer then appears there."""
    if ":" in name and by.is_operator:
        try:
            return (await find(services, by, name)).view.address
        except NotFound:
            pass
    return http_address(by, name)


async def _attachments(
    services: Services, by: Principal, given: list[wire.AttachmentIn]
) -> tuple[Attachment, ...]:
    if len(given) > ATTACHMENTS_MAX:
        raise Rejected(f"a message takes at most {ATTACHMENTS_MAX} attachments", code="too_many")
    return tuple([await _attachment(services, by, each) for each in given])


async def _attachment(services: Services, by: Principal, given: wire.AttachmentIn) -> Attachment:
    if (given.media is None) == (given.url is None):
        raise Rejected("an attachment has either `media` or `url`", code="invalid_attachment")
    if given.url is not None:
        if not given.url.startswith(("http://", "https://")):
            raise Rejected("an attachment's url must be http(s)", code="invalid_attachment")
        return Attachment(url=storable(given.url))
    assert given.media is not None
    media = await services.media.get(MediaId(given.media), principal=by.scope)
    return Attachment(
        media=media.id,
        mime=media.mime,
        name=media.name,
        size=media.size,
        is_unfit=await _is_unfit(services, media),
    )


async def _is_unfit(services: Services, media: Media) -> bool:
    """Tell whether an uploaded picture must be made to fit before a model is shown it. A picture
    whose bytes are gone is only named anyway."""
    if media.mime not in PICTURES or media.size > BYTES_MAX:
        return media.mime in PICTURES
    try:
        return needs_fitting(await services.media.read(media.id), media.mime)
    except NotFound:
        return False


@endpoint("GET", "/api/conversations", "List your conversations, newest first")
async def conversations(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
    shelf: str | None = None,
) -> wire.ConversationsOut:
    """List the caller's conversations: those in sight, or those on the named shelf."""
    asked = page_of(cursor, limit)
    if shelf is not None and shelf not in set(Shelf):
        raise Rejected("the shelf must be shown, pinned or archived", code="invalid_query")
    views = await services.conversations.recent(
        principal=by.id, page=asked, shelf=Shelf(shelf or Shelf.SHOWN)
    )
    return wire.ConversationsOut(
        conversations=[conversation_out(view) for view in views],
        next=next_of(views, asked, lambda each: (each.at, each.id)),
    )


@endpoint("GET", "/api/commands", "List the slash commands that you may use")
async def commands(services: OperatorServices, by: Principal) -> wire.CommandsOut:
    """List the slash commands that the caller may use."""
    return wire.CommandsOut(
        commands=[
            wire.CommandOut(name=each.name, usage=each.usage, help=each.help, aliases=each.aliases)
            for each in open_to(is_operator=by.is_operator)
        ]
    )


async def find(services: OperatorServices, by: Principal, name: str) -> Snapshot:
    """Return the conversation that the caller means by a name."""
    return await services.conversations.find(
        conversation_name(name), principal=by.id, sees_all=by.is_operator
    )


async def read_along(services: OperatorServices, by: Principal, name: str) -> Snapshot:
    """Return the conversation to which a link with this name leads: the caller's own, or, for
    operators, the one that somebody else has. Nothing is ever sent to where such a name leads."""
    try:
        return await find(services, by, name)
    except NotFound:
        if not by.is_operator:
            raise
    return await services.conversations.anybodys(conversation_name(name))


@endpoint("GET", "/api/conversations/{name}", "Read the state of a conversation")
async def conversation(
    services: OperatorServices, by: Principal, name: str
) -> wire.ConversationOut:
    """Return one conversation."""
    return conversation_out((await read_along(services, by, name)).view)


@endpoint("PATCH", "/api/conversations/{name}", "Pin, put away, hide or see a conversation")
async def shelve(
    services: Services, by: Principal, name: str, *, body: wire.ShelfIn
) -> wire.ConversationOut:
    """Put a conversation to another place in its person's list. Nothing that was said changes."""
    view = (await find(services, by, name)).view
    if view.principal != by.id:
        raise Rejected("only its person orders a conversation", code="forbidden")
    wish = Shelving(
        pinned=body.pinned, archived=body.archived, hidden=body.hidden, is_seen=body.seen
    )
    await services.shelves.shelve(view.id, wish)
    services.watchers.touched(view.id)
    return conversation_out((await find(services, by, name)).view)


@endpoint(
    "GET",
    "/api/conversations/{name}/transcript",
    "Read the messages up to the head, oldest first",
    is_long=True,
)
async def transcript(
    services: OperatorServices,
    by: Principal,
    name: str,
    *,
    limit: PageLimit = 50,
    before: str | None = None,
    notices: str | None = None,
) -> wire.TranscriptOut:
    """Return a page of the turns up to the conversation's head. `next` asks for the page before it.
    With `notices=true`, the page also holds notices and the replies to commands."""
    snapshot = await read_along(services, by, name)
    session = snapshot.view.standing.session
    if notices == WANTED:
        found = await services.archive.noticed(session, before=before, limit=limit)
        shown, has_more = list(found.entries), found.has_more
    else:
        shown, has_more = await _page(services, snapshot, before=before, limit=limit)
    audience = audience_of(by)
    turns = list(dict.fromkeys(entry.turn for entry in shown if entry.turn is not None))
    told = with_versions(shown, await services.archive.versions(turns))
    return wire.TranscriptOut(
        session=session,
        messages=[as_told(entry, audience) for entry in told],
        next=shown[0].id if has_more else None,
    )


async def _page(
    services: OperatorServices, snapshot: Snapshot, *, before: str | None, limit: int
) -> tuple[list[Entry], bool]:
    """Return the entries of a page, and whether there are more before them. If a turn has no entry
    before the given one, the page continues with its parent."""
    tip, running = await _tip(services, snapshot, before), snapshot.running
    newest = snapshot.view.standing.tip
    left_out = (await services.conversations.left_out(newest)) if newest else ()
    while tip is not None:
        chain = await services.conversations.chain(tip, limit=limit + 1)
        placed: list[PlacedEntry] = []
        for turn in chain:
            now = running if running and running.turn == turn[0].turn else None
            own = placed_entries(turn, now, omissions=omissions_of(left_out))
            add_turn(placed, own, turn)
        entries = [each.entry for each in placed]
        shown = page(entries, before=before, limit=limit, length_max=PAGE_BYTES)
        tip, before = parent_of(chain[0]) if chain else None, None
        if shown:
            return shown, shown[0] is not entries[0] or tip is not None
    return [], False


async def _tip(services: OperatorServices, snapshot: Snapshot, before: str | None) -> TurnId | None:
    """Return the turn in which a page ends. An entry that is not on this conversation's chain,
    because it belongs to another conversation or was undone, is reported as not found."""
    tip, running = snapshot.view.standing.tip, snapshot.running
    if before is None or (running is not None and running.message == before):
        return tip
    if tip is None:
        raise NotFound(f"there is no message {before}")
    return await services.conversations.turn_on_chain(tip, before)


@endpoint("GET", "/api/turns/{id}", "Read one turn")
async def turn(services: OperatorServices, by: Principal, which: str) -> TurnView:
    """Return one turn, with the details that the caller may read."""
    view = await services.archive.turn(TurnId(which), principal=by.scope)
    return as_told(view, audience_of(by))


@endpoint("GET", "/api/turns/{id}/messages", "Read what was said in one turn", is_long=True)
async def turn_messages(
    services: OperatorServices, by: Principal, which: str
) -> wire.TurnMessagesOut:
    """Return what was said in one turn, also in one that was undone or asked again since."""
    view = await services.archive.turn(TurnId(which), principal=by.scope)
    (events,) = await services.conversations.chain(view.id, limit=1)
    shown = page(entries_of(events), before=None, limit=ENTRIES_MAX, length_max=PAGE_BYTES)
    told = with_versions(shown, await services.archive.versions([view.id]))
    audience = audience_of(by)
    return wire.TurnMessagesOut(turn=view.id, messages=[as_told(each, audience) for each in told])


@endpoint("POST", "/api/turns/{id}/stop", "Stop a turn")
async def stop_turn(services: OperatorServices, by: Principal, which: str) -> TurnView:
    """Stop a turn, and return it as it is then."""
    await services.door.stop(TurnId(which), by=by.scope)
    return await turn.answer(services, by, which)


@endpoint("PATCH", "/api/turns/{id}", "Rewrite a message that waits in the queue")
async def amend_turn(
    services: OperatorServices, by: Principal, which: str, *, body: wire.AmendIn
) -> TurnView:
    """Rewrite a message that still waits in the queue. To remove it, stop its turn."""
    await services.door.amend(TurnId(which), storable(body.text), by=by.scope)
    return await turn.answer(services, by, which)
