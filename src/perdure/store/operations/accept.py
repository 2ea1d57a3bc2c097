"""Accept: one transaction from a platform's update to a queued turn.

Two deliveries of one update at the same instant meet at the inbox's unique key: the second waits
for the first to commit, loses, runs again and finds it. The session row is locked (by the append)
before the queue is counted.
"""

from typing import NamedTuple

from perdure.domain.address import Address
from perdure.domain.errors import Conflict, Rejected
from perdure.domain.events import SessionOpened, TurnQueued
from perdure.domain.ids import ConversationId, MessageId, SessionId, TurnId
from perdure.domain.updates import Accepted, Update
from perdure.store.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.statement import Op, RaceLost, Row, row, run

_KNOWN = """
    SELECT digest, conversation_id, session_id, turn_id, message_id FROM inbox
    WHERE adapter = $1 AND account = $2 AND external_id = $3 AND kind = $4"""
_REMEMBER = """
    INSERT INTO inbox (id, adapter, account, external_id, kind, digest, conversation_id,
                       session_id, turn_id, message_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (adapter, account, external_id, kind) DO NOTHING RETURNING id"""
_FIND_CONVERSATION = """
    SELECT id, session_id FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5
    FOR UPDATE"""
_SESSION_STATE = "SELECT state FROM sessions WHERE id = $1 FOR UPDATE"
_OPEN_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $10)
    ON CONFLICT (adapter, account, place, thread, person) DO NOTHING RETURNING id"""
_OPEN_SESSION = """
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, strikes,
                          title, parent_id, opened_at, active_at)
    VALUES ($1, $2, $3, 'open', 0, 0, 0, '', $4, $5, $5)"""
_MOVE_CONVERSATION = """
    UPDATE conversations SET session_id = $1, generation = generation + 1 WHERE id = $2"""
_TOUCH_CONVERSATION = "UPDATE conversations SET active_at = $1 WHERE id = $2"
_COUNT_AHEAD = """
    SELECT count(*) FROM turns WHERE session_id = $1 AND outcome IS NULL"""
_QUEUE_TURN = """
    INSERT INTO turns (id, session_id, message_id, state, reason, detail, attempts, queued_seq,
                       queued_at)
    VALUES ($1, $2, $3, 'queued', '', '', 0, $4, $5)"""
MAKE_READY = """
    UPDATE sessions SET ready_at = $1
    WHERE id = $2 AND ready_at IS NULL AND state = 'open'
      AND EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                  AND t.outcome IS NULL AND t.state = 'queued')
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                      AND t.outcome IS NULL AND t.state <> 'queued')"""


class Fresh(NamedTuple):
    """Ids for what this update may create, minted before the transaction."""

    update: str
    conversation: ConversationId
    session: SessionId
    turn: TurnId
    message: MessageId
    at: int


def accept(dialect: Dialect, update: Update, fresh: Fresh, *, queue_max: int) -> Op[Accepted]:
    address = update.address
    known = yield from row(
        _KNOWN, address.adapter, address.account, update.external_id, update.kind
    )
    if known is not None:
        return _repeated(known, update)
    conversation, session = yield from _resolve(dialect, update, fresh)
    remembered = yield from row(
        _REMEMBER,
        fresh.update, address.adapter, address.account, update.external_id, update.kind,
        update.digest(), conversation, session, fresh.turn, fresh.message, fresh.at,
    )  # fmt: skip
    if remembered is None:
        raise RaceLost  # its twin committed meanwhile: run again, and find it
    event = TurnQueued(
        turn=fresh.turn,
        message=fresh.message,
        text=update.text,
        agent=update.agent,
        attachments=update.attachments,
        instructions=update.instructions,
        context=update.context,
        tools=update.tools,
    )
    (recorded,) = yield from journal.append(dialect, session, [event], at=fresh.at)
    ahead = yield from row(_COUNT_AHEAD, session)
    assert ahead is not None
    if ahead[0] >= queue_max:
        raise Rejected(
            f"{ahead[0]} messages already wait in this conversation; let it answer first",
            code="queue_full",
        )
    yield from run(_QUEUE_TURN, fresh.turn, session, fresh.message, recorded.seq, fresh.at)
    yield from run(MAKE_READY, fresh.at, session)
    yield from run(_TOUCH_CONVERSATION, fresh.at, conversation)
    return Accepted(
        conversation=conversation,
        session=session,
        turn=fresh.turn,
        message=fresh.message,
        queue_position=ahead[0],
        recorded=(recorded,),
    )


def _repeated(known: Row, update: Update) -> Accepted:
    digest, conversation, session, turn, message = known
    if digest != update.digest():
        raise Conflict(
            "another message was already accepted under this id; use a new id for a new message",
            code="id_conflict",
        )
    return Accepted(
        conversation=conversation, session=session, turn=turn, message=message, is_duplicate=True
    )


def _resolve(
    dialect: Dialect, update: Update, fresh: Fresh
) -> Op[tuple[ConversationId, SessionId]]:
    """The conversation's live session. A suspended one makes room for a fresh one."""
    found = yield from _find(update.address)
    if found is None:
        opened = yield from _open(dialect, update, fresh)
        if opened:
            return fresh.conversation, fresh.session
        found = yield from _find(update.address)
        assert found is not None
    conversation, session = found
    locked = yield from row(_SESSION_STATE, session)
    assert locked is not None
    (state,) = locked
    if state == "open":
        return conversation, session
    yield from run(_OPEN_SESSION, fresh.session, conversation, update.principal, session, fresh.at)
    yield from run(_MOVE_CONVERSATION, fresh.session, conversation)
    opened_event = SessionOpened(by=update.principal, reason=state, parent=session)
    yield from journal.append(dialect, fresh.session, [opened_event], at=fresh.at)
    return conversation, fresh.session


def _find(address: Address) -> Op[Row | None]:
    return (
        yield from row(
            _FIND_CONVERSATION,
            address.adapter, address.account, address.place, address.thread, address.person,
        )
    )  # fmt: skip


def _open(dialect: Dialect, update: Update, fresh: Fresh) -> Op[bool]:
    address = update.address
    opened = yield from row(
        _OPEN_CONVERSATION,
        fresh.conversation, address.adapter, address.account, address.place, address.thread,
        address.person, update.principal, fresh.session, int(update.is_listed), fresh.at,
    )  # fmt: skip
    if opened is None:
        return False
    yield from run(
        _OPEN_SESSION, fresh.session, fresh.conversation, update.principal, None, fresh.at
    )
    event = SessionOpened(by=update.principal, reason="first message")
    yield from journal.append(dialect, fresh.session, [event], at=fresh.at)
    return True
