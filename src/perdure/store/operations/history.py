"""Reads. Each is one snapshot, by index, and bounded."""

from perdure.domain.address import HTTP, Address, readings
from perdure.domain.errors import NotFound
from perdure.domain.events import Recorded
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.records import SessionView, TurnView
from perdure.domain.standing import OpenTurn, Standing
from perdure.domain.transcript import Running, ended_turn
from perdure.domain.turn import State
from perdure.ports.history import ConversationView, Page, Snapshot
from perdure.store.operations import journal
from perdure.store.operations.scopes import SCOPE, SHARED, Scope
from perdure.store.statement import Op, Row, Rows, row, rows

_CONVERSATION = """
    SELECT c.id, c.adapter, c.account, c.place, c.thread, c.person, w.principal_id, w.session_id,
           c.generation + CASE WHEN c.linked_id IS NULL THEN 0 ELSE w.generation END, c.active_at,
           s.state, s.head_turn, s.title, s.last_seq, c.linked_id, w.adapter, w.account, w.place,
           w.thread, w.person
    FROM conversations c JOIN conversations w ON w.id = COALESCE(c.linked_id, c.id)
    JOIN sessions s ON s.id = w.session_id """
_BY_ID = _CONVERSATION + "WHERE c.id = $1"
_BY_NAME = (
    _CONVERSATION
    + """
    WHERE c.adapter = $1 AND c.account = $2 AND c.place = $3 AND c.thread = '' AND c.person = ''"""
)
# An adapter has one account, or a few over the years.
_BY_ADDRESS = (
    _CONVERSATION
    + f"""
    WHERE c.adapter = $1 AND c.place = $2 AND c.thread = $3 AND c.person = $4
      AND c.account IN (SELECT MIN(account) FROM conversations WHERE adapter = $1
                        UNION SELECT MAX(account) FROM conversations WHERE adapter = $1)
      AND (CAST($5 AS TEXT) IS NULL OR (c.principal_id = $5 AND NOT {SHARED}))
    ORDER BY c.active_at DESC LIMIT 1"""
)
_LISTED = (
    _CONVERSATION
    + f"""
    WHERE c.is_listed = 1 AND c.principal_id = $1 AND NOT {SHARED}
      AND (c.active_at < $2 OR (c.active_at = $2 AND c.id < $3))
    ORDER BY c.active_at DESC, c.id DESC LIMIT $4"""
)
_OPEN_TURNS = """
    SELECT id, state, attempts, reason, asked_at IS NOT NULL FROM turns
    WHERE session_id = $1 AND outcome IS NULL ORDER BY queued_seq"""
_RUNNING_TEXT = """
    SELECT p.message_id, p.text, t.started_at FROM partials p JOIN turns t ON t.id = p.turn_id
    WHERE p.turn_id = $1 AND p.attempt = t.attempts ORDER BY p.message_id, p.start"""
_AT_WORK = "SELECT id FROM turns WHERE session_id = $1 AND state IN ('running', 'waiting')"
_SAID = "SELECT message_id FROM journal WHERE turn_id = $1 AND kind = 'assistant_said'"
_CHAIN = """
    WITH RECURSIVE chain (id, parent_id, depth) AS (
        SELECT id, parent_id, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1 FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.depth + 1 < $2 AND t.id <> $3)
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain JOIN journal j ON j.turn_id = chain.id
    ORDER BY chain.depth DESC, j.seq"""
_ON_CHAIN = """
    WITH RECURSIVE chain (id, parent_id) AS (
        SELECT id, parent_id FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT id FROM chain
    WHERE id = $2 OR id IN (SELECT turn_id FROM journal WHERE message_id = $3) LIMIT 1"""
# The newest summary on the chain stands for its turn and all before it. The cross join keeps SQLite
# from reading every message there is to find that one.
_WINDOW = """
    WITH RECURSIVE chain (id, parent_id, depth, summary_id) AS (
        SELECT id, parent_id, 0, summary_id FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, chain.depth + 1, t.summary_id
        FROM chain JOIN turns t ON t.id = chain.parent_id
        WHERE chain.summary_id IS NULL AND chain.depth + 1 < $2)
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain JOIN journal j ON j.turn_id = chain.id WHERE chain.summary_id IS NULL
    UNION ALL
    SELECT j.session_id, j.seq, j.at, j.kind, j.body, chain.depth
    FROM chain CROSS JOIN journal j WHERE j.message_id = chain.summary_id
    ORDER BY 6 DESC, 2"""
_TURN_OF_MESSAGE = "SELECT turn_id FROM journal WHERE message_id = $1 AND turn_id IS NOT NULL"
_TURN_COLUMNS = """
    SELECT t.id, t.session_id, t.state, t.outcome, t.reason, t.detail, t.attempts, t.parent_id,
           t.message_id, t.queued_at, t.started_at, t.settled_at, t.fetching
    FROM turns t JOIN sessions s ON s.id = t.session_id """
# One's own is also what one's own place is linked to.
_OWN = f"""
    (CAST($2 AS TEXT) IS NULL OR EXISTS (
        SELECT 1 FROM conversations c WHERE c.id = s.conversation_id AND ({SCOPE} = $2
            OR (NOT {SHARED} AND EXISTS (SELECT 1 FROM conversations l WHERE l.linked_id = c.id
                                         AND l.principal_id = $2)))))"""
_TURN = f"{_TURN_COLUMNS} WHERE t.id = $1 AND {_OWN}"
TURNS_OF = _TURN_COLUMNS + "WHERE t.session_id = $1 ORDER BY t.queued_seq"
_SESSION_COLUMNS = """
    SELECT s.id, c.adapter, c.account, c.place, c.thread, c.person, s.state, s.title, s.parent_id,
           c.session_id, s.last_seq, s.opened_at, s.active_at, s.kind
    FROM sessions s JOIN conversations c ON c.id = s.conversation_id """
_SESSION = f"{_SESSION_COLUMNS} WHERE s.id = $1 AND {_OWN}"
_IS_OWN = f"SELECT 1 FROM sessions s WHERE s.id = $1 AND {_OWN}"
_SESSIONS = (
    _SESSION_COLUMNS
    + f"""
    WHERE (CAST($1 AS TEXT) IS NULL OR {SCOPE} = $1)
      AND (s.active_at < $2 OR (s.active_at = $2 AND s.id < $3)) AND c.is_listed >= $4
      AND (s.kind = '' OR $4 = 0)
    ORDER BY s.active_at DESC, s.id DESC LIMIT $5"""
)
_END_OF_TIME = (2**62, "")


def find(name: str, *, principal: PrincipalId, sees_all: bool) -> Op[Snapshot]:
    """A conversation of this principal's over HTTP, by its plain name; else one on a platform, by
    its address."""
    found = yield from row(_BY_NAME, HTTP, principal, name)
    adapter, colon, rest = name.partition(":")
    if found is None and colon:
        found = yield from _on_platform(adapter, rest, None if sees_all else principal)
    if found is None:
        raise NotFound(f"there is no conversation {name!r}; a first message creates it")
    return (yield from _snapshot(found))


def _on_platform(adapter: str, rest: str, principal: PrincipalId | None) -> Op[Row | None]:
    for place, thread, person in readings(rest):
        found = yield from row(_BY_ADDRESS, adapter, place, thread, person, principal)
        if found is not None:
            return found
    return None


def snapshot(conversation: ConversationId) -> Op[Snapshot]:
    found = yield from row(_BY_ID, conversation)
    if found is None:
        raise NotFound(f"there is no conversation {conversation}")
    return (yield from _snapshot(found))


def _snapshot(found: Row) -> Op[Snapshot]:
    view = yield from _view(found)
    running, said = None, ()
    if view.standing.turn is not None:
        running = yield from running_text(view.standing.turn)
        said = tuple(each[0] for each in (yield from rows(_SAID, view.standing.turn)))
    return Snapshot(view=view, last_seq=found[13], running=running, said=said)


def running_text(turn: TurnId) -> Op[Running | None]:
    """What was shown of the message that is being written, or was when its writer died."""
    pieces = yield from rows(_RUNNING_TEXT, turn)
    if not pieces:
        return None
    message, _, started_at = pieces[-1]
    text = "".join(text for each, text, _ in pieces if each == message)
    return Running(turn=turn, message=message, text=text, at=started_at)


def running(session_id: SessionId) -> Op[Running | None]:
    found = yield from row(_AT_WORK, session_id)
    return (yield from running_text(found[0])) if found else None


def list_conversations(*, principal: PrincipalId, page: Page) -> Op[list[ConversationView]]:
    at, last = page.after or _END_OF_TIME
    found = yield from rows(_LISTED, principal, at, last, page.limit)
    views: list[ConversationView] = []
    for each in found:
        views += [(yield from _view(each))]
    return views


def open_turns(session_id: SessionId) -> Op[tuple[OpenTurn, ...]]:
    """The turns of a session that are not settled, in arrival order."""
    found = yield from rows(_OPEN_TURNS, session_id)
    return tuple(
        OpenTurn(
            id=turn_id,
            state=State(state),
            attempts=attempts,
            reason=reason,
            is_asked=bool(is_asked),
        )
        for turn_id, state, attempts, reason, is_asked in found
    )


def _view(found: Row) -> Op[ConversationView]:
    (conversation, adapter, account, place, thread, person, principal, session, generation, at,
     session_state, head, title, _, linked, *target) = found  # fmt: skip
    is_suspended = session_state == "suspended"
    address = Address(adapter=adapter, account=account, place=place, thread=thread, person=person)
    turns = yield from open_turns(session)
    standing = Standing(
        session=session, head=head, open_turns=turns, is_suspended=is_suspended, title=title
    )
    return ConversationView(
        id=conversation,
        name=address.name,
        address=address,
        principal=principal,
        generation=generation,
        standing=standing,
        title=title,
        at=at,
        linked=linked,
        linked_name=_name(*target) if linked else "",
    )


def _name(adapter: str, account: str, place: str, thread: str, person: str) -> str:
    return Address(adapter=adapter, account=account, place=place, thread=thread, person=person).name


def chain(head: TurnId, *, limit: int, until: TurnId | None) -> Op[list[list[Recorded]]]:
    return _by_turn((yield from rows(_CHAIN, head, limit, until or "")))


def window(head: TurnId, *, limit: int) -> Op[list[list[Recorded]]]:
    return _by_turn((yield from rows(_WINDOW, head, limit)))


def _by_turn(found: Rows) -> list[list[Recorded]]:
    turns: dict[int, list[Recorded]] = {}
    for *columns, depth in found:
        turns.setdefault(depth, []).append(journal.read_row(tuple(columns)))
    return [journal.where_it_is(turn) for turn in turns.values()]


def turn_on_chain(head: TurnId, entry: str) -> Op[TurnId]:
    found = yield from row(_ON_CHAIN, head, ended_turn(entry), entry)
    if found is None:
        raise NotFound(f"there is no message {entry}")
    turn: TurnId = found[0]
    return turn


def turn_of_message(message: str) -> Op[TurnId]:
    found = yield from row(_TURN_OF_MESSAGE, message)
    if found is None:
        raise NotFound(f"there is no message {message}")
    turn: TurnId = found[0]
    return turn


def turn(turn_id: TurnId, *, scope: Scope | None) -> Op[TurnView]:
    found = yield from row(_TURN, turn_id, scope)
    if found is None:
        raise NotFound(f"there is no turn {turn_id}")
    return turn_view(found)


def turn_view(found: Row) -> TurnView:
    (turn_id, session, state, outcome, reason, detail, attempts, parent, message, queued_at,
     started_at, settled_at, fetching) = found  # fmt: skip
    return TurnView(
        id=turn_id,
        session=session,
        state=state,
        outcome=outcome,
        reason=reason,
        detail=detail,
        attempts=attempts,
        parent=parent,
        message=message,
        queued_at=queued_at,
        started_at=started_at,
        settled_at=settled_at,
        fetching=fetching,
    )


def is_own(session_id: SessionId, scope: Scope | None) -> Op[bool]:
    """May what happens there be seen and stopped from here? Without a scope always."""
    return scope is None or (yield from row(_IS_OWN, session_id, scope)) is not None


def session(session_id: SessionId, *, scope: Scope | None) -> Op[SessionView]:
    found = yield from row(_SESSION, session_id, scope)
    if found is None:
        raise NotFound(f"there is no session {session_id}")
    return _session_view(found)


def sessions(*, principal: PrincipalId | None, page: Page) -> Op[list[SessionView]]:
    at, last = page.after or _END_OF_TIME
    listed = int(not page.with_unlisted)
    found = yield from rows(_SESSIONS, principal, at, last, listed, page.limit)
    return [_session_view(each) for each in found]


def _session_view(found: Row) -> SessionView:
    session_id, *address, state, title, parent, live, events, opened_at, active_at, kind = found
    return SessionView(
        id=session_id,
        conversation=_name(*address),
        state=state,
        title=title,
        parent=parent,
        is_live=live == session_id,
        events=events,
        opened_at=opened_at,
        active_at=active_at,
        kind=kind,
    )
