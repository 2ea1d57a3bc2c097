"""Where conversations live: found by their address, opened, and followed to where they go on."""

from perdure.domain.address import GROUP, Address
from perdure.domain.events import SessionOpened
from perdure.domain.ids import ConversationId, SessionId
from perdure.domain.updates import Update
from perdure.store.dialect import Dialect
from perdure.store.operations.sessions import (
    make_live,
    open_conversation,
    open_session,
    open_successor,
)
from perdure.store.operations.setting import Place, Stamp
from perdure.store.statement import Op, Row, row, run

_FIND_CONVERSATION = """
    SELECT id, session_id, agent, persona, principal_id, linked_id, kind FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5
    FOR NO KEY UPDATE"""
_CONVERSATION = """
    SELECT id, session_id, agent, persona, principal_id, linked_id, kind FROM conversations
    WHERE id = $1 FOR NO KEY UPDATE"""
_SESSION = """
    SELECT state, principal_id, last_seq, epoch, head_turn, view, hold_until, active_at,
           title
    FROM sessions WHERE id = $1 FOR UPDATE"""
_ADOPT = "UPDATE conversations SET kind = $1, principal_id = $2 WHERE id = $3"
_ADOPT_SESSIONS = "UPDATE sessions SET principal_id = $1 WHERE conversation_id = $2"


def resolve(dialect: Dialect, update: Update, stamp: Stamp) -> Op[Place]:
    """The conversation's live session; a new one where that has been suspended."""
    found = yield from _find(update.address)
    if found is None:
        place = yield from _open(dialect, update, stamp)
        if place is not None:
            return place
        found = yield from _find(update.address)
        assert found is not None
    if update.place_kind and not found[6]:
        yield from _adopt(ConversationId(found[0]), update)
    via = None
    # A link is for the one who made it: once others read along there it does not count.
    if found[5] is not None and update.place_kind != GROUP:
        via = ConversationId(found[0])
        found = yield from row(_CONVERSATION, found[5])
        assert found is not None
    conversation, session, agent, persona, owner, *_ = found
    held = yield from row(_SESSION, session)
    assert held is not None
    state, principal, last_seq, epoch, head, view, hold_until, active_at, title = held
    if state == "open":
        place = Place(conversation, session, principal, last_seq, epoch, head, agent, persona)
        place = place._replace(view=view, title=title, hold_until=hold_until, active_at=active_at)
        return place._replace(via=via, principal=owner if via else principal)
    by = update.principal
    opened = yield from open_successor(dialect, session, conversation, stamp, by=by)
    yield from make_live(conversation, opened.session)
    place = new(conversation, opened.session, update)._replace(agent=agent, persona=persona)
    return place._replace(is_successor=True, via=via, principal=owner if via else place.principal)


def _adopt(conversation: ConversationId, update: Update) -> Op[None]:
    """A place that was opened by what somebody sent there belongs to who first speaks in it."""
    yield from run(_ADOPT, update.place_kind, update.principal, conversation)
    yield from run(_ADOPT_SESSIONS, update.principal, conversation)


def new(conversation: ConversationId, session: SessionId, update: Update) -> Place:
    """A session that holds nothing yet but that it was opened."""
    return Place(conversation, session, update.principal, last_seq=1, epoch=0, head=None)


def _find(address: Address) -> Op[Row | None]:
    return (
        yield from row(
            _FIND_CONVERSATION,
            address.adapter, address.account, address.place, address.thread, address.person,
        )
    )  # fmt: skip


def _open(dialect: Dialect, update: Update, stamp: Stamp) -> Op[Place | None]:
    """A conversation and its first session, unless somebody was faster."""
    conversation = ConversationId(stamp.mint("cnv"))
    session = SessionId(stamp.mint("ses"))
    principal = update.principal
    is_opened = yield from open_conversation(
        conversation,
        session,
        update.address,
        stamp,
        principal=principal,
        kind=update.place_kind,
        label=update.label,
        is_listed=update.is_listed,
    )
    if not is_opened:
        return None
    event = SessionOpened(by=principal, reason="first message")
    yield from open_session(dialect, session, conversation, event, stamp, principal=principal)
    return new(conversation, session, update)
