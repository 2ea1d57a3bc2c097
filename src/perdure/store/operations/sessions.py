"""Sessions of a conversation: opened, closed, and made the live one."""

from perdure.domain.address import Address
from perdure.domain.events import Recorded, SessionOpened
from perdure.domain.ids import ConversationId, PrincipalId, SessionId
from perdure.store.dialect import Dialect
from perdure.store.operations import journal, moves
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, run

_OPEN = """
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, strikes,
                          title, parent_id, head_turn, kind, opened_at, active_at, view)
    VALUES ($1, $2, $3, 'open', 0, 0, 0, '', $4, $5, $6, $7, $7,
            COALESCE((SELECT p.view FROM sessions p WHERE p.id = $4), ''))"""
_OPEN_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at, kind,
                               label)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $10, $11, $12)
    ON CONFLICT (adapter, account, place, thread, person) DO NOTHING RETURNING id"""
_OWNER = "SELECT principal_id FROM sessions WHERE id = $1"
# Watchers of a place that is linked elsewhere do not see its own sessions.
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
    """Unless somebody was faster. Its session is the caller's to open."""
    opened = yield from row(
        _OPEN_CONVERSATION,
        conversation, address.adapter, address.account, address.place, address.thread,
        address.person, principal, session, int(is_listed), stamp.at, kind, label,
    )  # fmt: skip
    return opened is not None


def open_session(
    dialect: Dialect,
    session: SessionId,
    conversation: ConversationId,
    event: SessionOpened,
    stamp: Stamp,
    *,
    principal: PrincipalId,
) -> Op[list[Recorded]]:
    yield from run(
        _OPEN, session, conversation, principal, event.parent, event.head, event.kind, stamp.at
    )
    return (yield from journal.append(dialect, session, [event], at=stamp.at))


def open_successor(
    dialect: Dialect,
    suspended: SessionId,
    conversation: ConversationId,
    stamp: Stamp,
    *,
    by: PrincipalId,
) -> Op[Recorded]:
    """Open a session in the place of one that was suspended. To make it the live one is left to
    the caller, who may have something to carry over first."""
    successor = SessionId(stamp.mint("ses"))
    opened = SessionOpened(by=by, reason="suspended", parent=suspended)
    owner = yield from row(_OWNER, suspended)
    assert owner is not None
    (recorded,) = yield from open_session(
        dialect, successor, conversation, opened, stamp, principal=owner[0]
    )
    return recorded


def make_live(conversation: ConversationId, session: SessionId) -> Op[None]:
    """What people say from now on goes to this session. Nothing more is to be written to the one
    that is left, and what is in this one already is old."""
    yield from moves.rotated(conversation, session)
    yield from run(_MOVE, session, conversation)
