"""Reads conversations, sessions and turns. Each read is one snapshot, uses an index, and is
bounded."""

from typing import Final, NamedTuple

from perdure.domain.address import HTTP, readings
from perdure.domain.errors import NotFound
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.codec import decode
from perdure.domain.journal.open_calls import OpeningEvent
from perdure.domain.journal.records import SessionView, TurnView
from perdure.domain.journal.transcript import RunningText
from perdure.domain.renewals import renewal_of
from perdure.domain.turn.standing import OpenTurn, SessionStanding
from perdure.domain.turn.turn import AT_WORK, State
from perdure.ports.records.history import ConversationView, Page, Shelf, Snapshot
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.sessions import relocating
from perdure.store.operations.sessions.recency import follows, newest_first
from perdure.store.operations.sessions.scopes import SCOPE, SHARED, SearchScope
from perdure.store.statement import Op, exists, many, one, sql_list

# Reads conversations, each with the one it continues in; the caller appends which.
_CONVERSATION = f"""
    SELECT c.id, {ADDRESS}, w.principal_id, w.session_id,
           c.generation + CASE WHEN c.linked_id IS NULL THEN 0 ELSE w.generation END, c.active_at,
           s.state, s.head_turn, s.title, s.last_seq, c.linked_id, w.adapter, w.account, w.place,
           w.thread, w.person, w.agent, c.pinned_at, c.archived_at, c.hidden_at, c.seen_at,
           h.settled_at
    FROM conversations c JOIN conversations w ON w.id = COALESCE(c.linked_id, c.id)
    JOIN sessions s ON s.id = w.session_id
    LEFT JOIN turns h ON h.id = s.head_turn """
# Reads a conversation by its id.
_BY_ID = _CONVERSATION + "WHERE c.id = $1"
# Reads a conversation over HTTP by its plain name.
_BY_NAME = (
    _CONVERSATION
    + """
    WHERE c.adapter = $1 AND c.account = $2 AND c.place = $3 AND c.thread = '' AND c.person = ''"""
)
# Reads a conversation on a platform by its address. An adapter has one account, or a few over the
# years, so only the first and the last in order are tried.
_BY_ADDRESS = (
    _CONVERSATION
    + f"""
    WHERE c.adapter = $1 AND c.place = $2 AND c.thread = $3 AND c.person = $4
      AND c.account IN (SELECT MIN(account) FROM conversations WHERE adapter = $1
                        UNION SELECT MAX(account) FROM conversations WHERE adapter = $1)
      AND (CAST($5 AS TEXT) IS NULL OR (c.principal_id = $5 AND NOT {SHARED}))
    ORDER BY c.active_at DESC LIMIT 1"""
)
# Reads a page of the conversations of a principal on a shelf, newest first. Those on the small
# shelves are found by indexes of their own.
_LISTS = {
    shelf: _CONVERSATION
    + f"""
    WHERE c.is_listed = 1 AND c.principal_id = $1 AND NOT {SHARED} AND c.hidden_at IS NULL
      AND {there} AND {follows("c", "$2", "$3")}
    ORDER BY {newest_first("c")} LIMIT $4"""
    for shelf, there in {
        Shelf.SHOWN: "c.archived_at IS NULL",
        Shelf.PINNED: "c.pinned_at IS NOT NULL AND c.archived_at IS NULL",
        Shelf.ARCHIVED: "c.archived_at IS NOT NULL",
    }.items()
}
_LISTED = _LISTS[Shelf.SHOWN]
# Reads the unsettled turns of a session, in the order of its line.
_OPEN_TURNS = """
    SELECT id, state, attempts, reason, asked_at IS NOT NULL FROM turns
    WHERE session_id = $1 AND outcome IS NULL ORDER BY queued_seq"""
# Reads what was shown of the messages of a turn that are not final.
_RUNNING_TEXT = """
    SELECT p.message_id, p.text, t.started_at FROM partials p JOIN turns t ON t.id = p.turn_id
    WHERE p.turn_id = $1 AND p.attempt = t.attempts ORDER BY p.message_id, p.start"""
# Finds the turn of a session that is at work.
_AT_WORK = f"SELECT id FROM turns WHERE session_id = $1 AND state IN {sql_list(AT_WORK)}"
# Reads the final messages of a turn, and its questions.
_OPENED = """
    SELECT kind, body FROM journal
    WHERE turn_id = $1 AND kind IN ('assistant_said', 'answer_awaited') ORDER BY seq"""
# Finds the turn that a message belongs to.
_TURN_OF_MESSAGE = "SELECT turn_id FROM journal WHERE message_id = $1 AND turn_id IS NOT NULL"
# The columns of a `TurnRow`.
TURN_COLUMNS = """
    t.id, t.session_id, t.state, t.outcome, t.reason, t.detail, t.attempts, t.parent_id,
    t.message_id, t.queued_at, t.started_at, t.settled_at, t.fetching"""
# Reads turns; the caller appends which.
_TURNS = f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.id = t.session_id "
# A condition: session `s` may be seen from the scope $2, or without a scope. A conversation to
# which one's own place is linked counts as one's own.
_OWN = f"""
    (CAST($2 AS TEXT) IS NULL OR EXISTS (
        SELECT 1 FROM conversations c WHERE c.id = s.conversation_id AND ({SCOPE} = $2
            OR (NOT {SHARED} AND EXISTS (SELECT 1 FROM conversations l WHERE l.linked_id = c.id
                                         AND l.principal_id = $2)))))"""
# Reads a turn that may be seen.
_TURN = f"{_TURNS} WHERE t.id = $1 AND {_OWN}"
# Reads the turns of a session, in the order of its line.
_TURNS_OF = _TURNS + "WHERE t.session_id = $1 ORDER BY t.queued_seq"
# The columns of a `SessionRow`.
SESSION_COLUMNS = f"""
    s.id, {ADDRESS}, s.state, s.title, s.parent_id,
    c.session_id, s.last_seq, s.opened_at, s.active_at, s.kind"""
# The tables that the columns of a `SessionRow` come from.
FROM_SESSIONS = "FROM sessions s JOIN conversations c ON c.id = s.conversation_id"
# Reads sessions; the caller appends which.
_SELECT_SESSIONS = f"SELECT {SESSION_COLUMNS} {FROM_SESSIONS} "
# Reads a session that may be seen.
_SESSION = f"{_SELECT_SESSIONS} WHERE s.id = $1 AND {_OWN}"
# Finds a session if it may be seen.
_IS_OWN = f"SELECT 1 FROM sessions s WHERE s.id = $1 AND {_OWN}"
# Reads a page of the sessions, newest first.
_SESSIONS = (
    _SELECT_SESSIONS
    + f"""
    WHERE (CAST($1 AS TEXT) IS NULL OR {SCOPE} = $1)
      AND {follows("s", "$2", "$3")} AND c.is_listed >= $4
      AND (s.kind = '' OR $5 = 1) AND (c.hidden_at IS NULL OR CAST($6 AS BIGINT) = 1)
    ORDER BY {newest_first("s")} LIMIT $7"""
)
# Reads the sessions of a conversation in which people talked, the last opened first.
_SESSIONS_OF = (
    _SELECT_SESSIONS
    + """
    WHERE s.conversation_id = $1 AND s.kind = '' AND s.opened_at < $2
    ORDER BY s.opened_at DESC, s.id DESC LIMIT $3"""
)
_END_OF_TIME: Final = (2**62, "")


class _Conversation(NamedTuple):
    """Holds the columns of `_CONVERSATION`. If it is linked to another, everything from `principal`
    to `last_seq` except `active_at` belongs to the other one, whose address and agent come
    last."""

    id: ConversationId
    adapter: str
    account: str
    place: str
    thread: str
    person: str
    principal: PrincipalId
    session: SessionId
    generation: int
    active_at: int
    state: str
    head: TurnId | None
    title: str
    last_seq: int
    linked: ConversationId | None
    linked_adapter: str
    linked_account: str
    linked_place: str
    linked_thread: str
    linked_person: str
    agent: str
    pinned_at: int | None
    archived_at: int | None
    hidden_at: int | None
    seen_at: int
    settled_at: int | None


class _OpenTurn(NamedTuple):
    """Holds a turn that is not settled."""

    id: TurnId
    state: str
    attempts: int
    reason: str
    is_asked: bool | int


class _Shown(NamedTuple):
    """Holds a piece of a shown message, and when its turn began."""

    message: MessageId
    text: str
    started_at: int


class TurnRow(NamedTuple):
    """Holds the columns with which a turn is shown."""

    id: TurnId
    session: SessionId
    state: str
    outcome: str | None
    reason: str
    detail: str
    attempts: int
    parent: TurnId | None
    message: MessageId
    queued_at: int
    started_at: int | None
    settled_at: int | None
    fetching: int


class SessionRow(NamedTuple):
    """Holds the columns with which a session is shown. `live` is the conversation's live
    session."""

    id: SessionId
    adapter: str
    account: str
    place: str
    thread: str
    person: str
    state: str
    title: str
    parent: SessionId | None
    live: SessionId
    last_seq: int
    opened_at: int
    active_at: int
    kind: str


def find(name: str, *, principal: PrincipalId, sees_all: bool) -> Op[Snapshot]:
    """Return a conversation of this principal over HTTP, by its plain name; otherwise one on a
    platform, by its address. Raises `NotFound`."""
    found = yield from one(_Conversation, _BY_NAME, HTTP, principal, name)
    adapter, colon, rest = name.partition(":")
    if found is None and colon:
        found = yield from _on_platform(adapter, rest, None if sees_all else principal)
    if found is None:
        raise NotFound(f"there is no conversation {name!r}; a first message creates it")
    return (yield from _snapshot(found))


def _on_platform(
    adapter: str, rest: str, principal: PrincipalId | None
) -> Op[_Conversation | None]:
    """Return the first conversation that a name without its adapter can mean, or None."""
    for place, thread, person in readings(rest):
        address = (adapter, place, thread, person)
        found = yield from one(_Conversation, _BY_ADDRESS, *address, principal)
        if found is not None:
            return found
    for place, thread, person in readings(rest):
        moved = yield from relocating.place_now(adapter, place)
        if moved is not None:
            address = (adapter, moved, thread, person)
            return (yield from one(_Conversation, _BY_ADDRESS, *address, principal))
    return None


def snapshot(conversation: ConversationId) -> Op[Snapshot]:
    """Return a conversation as it is at one instant. Raises `NotFound`."""
    found = yield from one(_Conversation, _BY_ID, conversation)
    if found is None:
        raise NotFound(f"there is no conversation {conversation}")
    return (yield from _snapshot(found))


def _snapshot(found: _Conversation) -> Op[Snapshot]:
    """Return a conversation with the text that is being written in it."""
    view = yield from _view(found)
    running: RunningText | None = None
    opened: list[OpeningEvent] = []
    if view.standing.turn is not None:
        running = yield from running_text(view.standing.turn)
        opened = yield from many(_opening, _OPENED, view.standing.turn)
    return Snapshot(view=view, last_seq=found.last_seq, running=running, opened=tuple(opened))


def _opening(kind: str, body: str) -> OpeningEvent:
    event = decode(kind, body)
    assert isinstance(event, OpeningEvent), kind
    return event


def running_text(turn: TurnId) -> Op[RunningText | None]:
    """Return what was shown of the message that is being written, or was being written when the
    process died; None if nothing was."""
    pieces = yield from many(_Shown, _RUNNING_TEXT, turn)
    if not pieces:
        return None
    last = pieces[-1]
    text = "".join(each.text for each in pieces if each.message == last.message)
    return RunningText(turn=turn, message=last.message, text=text, at=last.started_at)


def running(session_id: SessionId) -> Op[RunningText | None]:
    """Return what was shown of the message that is being written in a session."""
    turn_id = yield from one(TurnId, _AT_WORK, session_id)
    return (yield from running_text(turn_id)) if turn_id else None


def list_conversations(
    *, principal: PrincipalId, page: Page, shelf: Shelf = Shelf.SHOWN
) -> Op[list[ConversationView]]:
    """Return a page of the conversations of a principal on a shelf, newest first."""
    at, last = page.after or _END_OF_TIME
    found = yield from many(_Conversation, _LISTS[shelf], principal, at, last, page.limit)
    views: list[ConversationView] = []
    for each in found:
        views += [(yield from _view(each))]
    return views


def open_turns(session_id: SessionId) -> Op[tuple[OpenTurn, ...]]:
    """Return the unsettled turns of a session, in the order of arrival."""
    return tuple(
        OpenTurn(
            id=each.id,
            state=State(each.state),
            attempts=each.attempts,
            reason=each.reason,
            is_asked=bool(each.is_asked),
        )
        for each in (yield from many(_OpenTurn, _OPEN_TURNS, session_id))
    )


def _view(found: _Conversation) -> Op[ConversationView]:
    """Return a conversation as a person sees it."""
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    standing = SessionStanding(
        session=found.session,
        head=found.head,
        open_turns=(yield from open_turns(found.session)),
        is_suspended=found.state == "suspended",
        title=found.title,
    )
    return ConversationView(
        id=found.id,
        name=address.name,
        address=address,
        principal=found.principal,
        generation=found.generation,
        standing=standing,
        title=found.title,
        at=found.active_at,
        linked=found.linked,
        linked_name=_linked_name(found),
        agent=found.agent,
        is_pinned=found.pinned_at is not None,
        is_archived=found.archived_at is not None,
        is_hidden=found.hidden_at is not None,
        is_unread=(found.settled_at or 0) > found.seen_at,
    )


def _linked_name(found: _Conversation) -> str:
    """Return the name of the conversation that this one is linked to, or an empty string."""
    if not found.linked:
        return ""
    return address_of(
        found.linked_adapter,
        found.linked_account,
        found.linked_place,
        found.linked_thread,
        found.linked_person,
    ).name


def turn_of_message(message: str) -> Op[TurnId]:
    """Return the turn that a message belongs to. Raises `NotFound`."""
    found = yield from one(TurnId, _TURN_OF_MESSAGE, message)
    if found is None:
        raise NotFound(f"there is no message {message}")
    return found


def turn(turn_id: TurnId, *, scope: SearchScope | None) -> Op[TurnView]:
    """Return a turn that may be seen from a scope. Raises `NotFound`, also for one that may not be
    seen."""
    found = yield from one(TurnRow, _TURN, turn_id, scope)
    if found is None:
        raise NotFound(f"there is no turn {turn_id}")
    return turn_view(found)


def turns_of(session_id: SessionId) -> Op[list[TurnView]]:
    """Return the turns of a session, in the order of its line."""
    return [turn_view(each) for each in (yield from many(TurnRow, _TURNS_OF, session_id))]


def turn_view(found: TurnRow) -> TurnView:
    """Return the turn that a row holds."""
    return TurnView(
        id=found.id,
        session=found.session,
        state=found.state,
        outcome=found.outcome,
        reason=found.reason,
        detail=found.detail,
        attempts=found.attempts,
        parent=found.parent,
        message=found.message,
        queued_at=found.queued_at,
        started_at=found.started_at,
        settled_at=found.settled_at,
        fetching=found.fetching,
        renews_at=renewal_of(found.reason, found.settled_at or 0),
    )


def is_own(session_id: SessionId, scope: SearchScope | None) -> Op[bool]:
    """Tell whether a session may be seen, and its turns stopped, from a scope. Without a scope it
    always may."""
    return scope is None or (yield from exists(_IS_OWN, session_id, scope))


def session(session_id: SessionId, *, scope: SearchScope | None) -> Op[SessionView]:
    """Return a session that may be seen from a scope. Raises `NotFound`, also for one that may not
    be seen."""
    found = yield from one(SessionRow, _SESSION, session_id, scope)
    if found is None:
        raise NotFound(f"there is no session {session_id}")
    return session_view(found)


def sessions(*, principal: PrincipalId | None, page: Page) -> Op[list[SessionView]]:
    """Return a page of the sessions of a principal, or of everybody; newest first."""
    at, last = page.after or _END_OF_TIME
    listed = int(not page.with_unlisted)
    more = [int(page.with_unlisted or each) for each in (page.with_errands, page.with_hidden)]
    found = yield from many(SessionRow, _SESSIONS, principal, at, last, listed, *more, page.limit)
    return [session_view(each) for each in found]


def sessions_of(
    conversation: ConversationId, *, limit: int, after: int | None
) -> Op[list[SessionView]]:
    """Return a page of the sessions in which people talked in a conversation."""
    before = _END_OF_TIME[0] if after is None else after
    found = yield from many(SessionRow, _SESSIONS_OF, conversation, before, limit)
    return [session_view(each) for each in found]


def session_view(found: SessionRow) -> SessionView:
    """Return the session that a row holds."""
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    return SessionView(
        id=found.id,
        conversation=address.name,
        state=found.state,
        title=found.title,
        parent=found.parent,
        is_live=found.live == found.id,
        events=found.last_seq,
        opened_at=found.opened_at,
        active_at=found.active_at,
        kind=found.kind,
    )
