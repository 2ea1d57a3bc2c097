"""Opens conversations and sessions, and makes a session the live one."""

from perdure.domain.address import Address
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import SessionOpened
from perdure.store.operations import journal
from perdure.store.operations.sessions import moves
from perdure.store.operations.sessions.recency import span_of
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, one, run

# Opens a session. It takes over its parent's view.
_OPEN = """
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, strikes,
                          title, parent_id, head_turn, kind, opened_at, active_at, view,
                          active_span)
    VALUES ($1, $2, $3, 'open', 0, 0, 0, '', $4, $5, $6, $7, $7,
            COALESCE((SELECT p.view FROM sessions p WHERE p.id = $4), ''), $8)"""
# Opens a conversation, unless there is one at this address.
_OPEN_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at, kind,
                               label, active_span)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $10, $11, $12, $13)
    ON CONFLICT (adapter, account, place, thread, person) DO NOTHING RETURNING id"""
# Finds who owns a session.
_OWNER = "SELECT principal_id FROM sessions WHERE id = $1"
# Makes a session the live one. The generation of a conversation that is linked elsewhere stays: its
# watchers do not see its own sessions.
_MOVE = """
    UPDATE conversations SET session_id = $1,
        generation = generation + CASE WHEN linked_id IS NULL THEN 1 ELSE 0 END
    WHERE id = $2"""


def open_conversation(  # noqa: PLR0913 - all that is known of a place
    conversation: ConversationId,
    session: SessionId,
    address: Address,
    stamp: Stamp,
    *,
    principal: PrincipalId,
    kind: str,
    label: str = "",
    is_listed: bool = False,
) -> Op[bool]:
    """Open a conversation. Returns False if there is one at this address already. The caller must
    open its session in the same transaction."""
    return (
        yield from exists(
            _OPEN_CONVERSATION,
            conversation, address.adapter, address.account, address.place, address.thread,
            address.person, principal, session, int(is_listed), stamp.at, kind, label,
            span_of(stamp.at),
        )
    )  # fmt: skip


def open_session(
    session: SessionId,
    conversation: ConversationId,
    event: SessionOpened,
    stamp: Stamp,
    *,
    principal: PrincipalId,
) -> Op[list[Recorded]]:
    """Open a session whose journal begins with this event."""
    yield from run(
        _OPEN, session, conversation, principal, event.parent, event.head, event.kind, stamp.at,
        span_of(stamp.at),
    )  # fmt: skip
    return (yield from journal.append(session, [event], at=stamp.at))


def open_successor(
    suspended: SessionId, conversation: ConversationId, stamp: Stamp, *, by: PrincipalId
) -> Op[Recorded]:
    """Open a session in place of a suspended one. The caller makes it live, after moving what has
    to be moved."""
    successor = SessionId(stamp.mint("ses"))
    opened = SessionOpened(by=by, reason="suspended", parent=suspended)
    owner = yield from one(PrincipalId, _OWNER, suspended)
    assert owner is not None
    (recorded,) = yield from open_session(successor, conversation, opened, stamp, principal=owner)
    return recorded


def make_live(conversation: ConversationId, session: SessionId) -> Op[None]:
    """Send what people say from now on to this session. Call it last: nothing may be written to the
    session that is left, and watchers do not see what is already in this one."""
    yield from moves.rotated(conversation, session)
    yield from run(_MOVE, session, conversation)
