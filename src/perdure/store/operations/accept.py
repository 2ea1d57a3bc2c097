"""Accept: one transaction from a platform's update to a queued turn.

Two deliveries of one update at the same instant meet at the inbox's unique key: the second waits
for the first to commit, loses, runs again and finds it. The session row is locked (by the append)
before the queue is counted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.domain.address import Address
from perdure.domain.commands import Given, given
from perdure.domain.errors import Conflict, Rejected
from perdure.domain.events import (
    CommandTaken,
    Recorded,
    SessionOpened,
    SteerAccepted,
    TurnQueued,
)
from perdure.domain.ids import ConversationId, MessageId, SessionId, TurnId
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.recovery import CONTINUE, DROP, PERSONAL, SUSPENDED
from perdure.domain.turn import State
from perdure.domain.updates import Accepted, Effect, Update
from perdure.ports.inbox import Reception
from perdure.store.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.commands import Setting, take
from perdure.store.operations.endings import (
    MAKE_READY,
    QUEUE_TURN,
    Closing,
    Stamp,
    end_turn,
    locked,
)
from perdure.store.operations.outbox import put_unless_read
from perdure.store.operations.recovery import notice, requeue
from perdure.store.operations.turns import claim_next
from perdure.store.statement import Op, RaceLost, Row, row, rows, run

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
_TOUCH_SESSION = "UPDATE sessions SET active_at = $1 WHERE id = $2"
_OPEN_TURNS = """
    SELECT id, state, attempts, asked_at FROM turns
    WHERE session_id = $1 AND outcome IS NULL ORDER BY queued_seq"""
SUPERSEDED = Closing(Outcome.SUPERSEDED, "a newer message came")
REPLACED = Closing(Outcome.INTERRUPTED, "a newer message came")
DROPPED = Closing(Outcome.INTERRUPTED, "dropped by the user")


class Fresh(NamedTuple):
    """Ids for what this update may create, minted before the transaction."""

    update: str
    conversation: ConversationId
    session: SessionId
    turn: TurnId
    message: MessageId
    at: int


def accept_and_start(
    dialect: Dialect, update: Update, fresh: Fresh, stamp: Stamp, *, queue_max: int
) -> Op[Reception]:
    """One commit less than claiming the turn afterwards, where nothing is before it."""
    accepted = yield from accept(dialect, update, fresh, stamp, queue_max=queue_max)
    is_next = accepted.effect is Effect.QUEUED and accepted.queue_position == 0
    if accepted.is_duplicate or not is_next:
        return Reception(accepted=accepted)
    claimed = yield from claim_next(dialect, accepted.session, stamp)
    return Reception(accepted=accepted, claimed=claimed)


def accept(
    dialect: Dialect, update: Update, fresh: Fresh, stamp: Stamp, *, queue_max: int
) -> Op[Accepted]:
    address = update.address
    known = yield from row(
        _KNOWN, address.adapter, address.account, update.external_id, update.kind
    )
    if known is not None:
        return (yield from _repeated(known, update))
    conversation, session, opened = yield from _resolve(dialect, update, fresh)
    open_turns = yield from rows(_OPEN_TURNS, session)
    choice = _chosen(update, open_turns)
    command = given(update.text) if update.kind == PERSONAL else None
    if command is not None:
        setting = Setting(
            dialect, stamp, conversation, session, update.principal, fresh.message, open_turns
        )
        accepted = yield from _command(setting, command, fresh)
        session = accepted.session
    elif choice is not None:
        accepted = yield from _answer(dialect, update, fresh, stamp, choice)
    else:
        accepted = yield from _take(dialect, update, fresh, stamp, session, open_turns, queue_max)
    if opened and accepted.turn is not None:
        told = yield from notice(dialect, session, fresh.turn, SUSPENDED, stamp)
        accepted = _with(accepted, told)
    remembered = yield from row(
        _REMEMBER,
        fresh.update, address.adapter, address.account, update.external_id, update.kind,
        update.digest(), conversation, session, accepted.turn, fresh.message, fresh.at,
    )  # fmt: skip
    if remembered is None:
        raise RaceLost  # its twin committed meanwhile: run again, and find it
    yield from run(_TOUCH_CONVERSATION, fresh.at, conversation)
    yield from run(_TOUCH_SESSION, fresh.at, session)
    return msgspec.structs.replace(accepted, conversation=conversation, session=session)


def _with(accepted: Accepted, more: Sequence[Recorded]) -> Accepted:
    return msgspec.structs.replace(accepted, recorded=(*accepted.recorded, *more))


def _chosen(update: Update, open_turns: Sequence[Row]) -> tuple[TurnId, str] | None:
    """The turn we asked about and the word that answers, if this message is such an answer."""
    word = update.text.strip().lower()
    asked = [turn for turn, state, _, at in open_turns if state == State.INTERRUPTED and at]
    is_answer = word in (CONTINUE, DROP) and update.kind == PERSONAL
    return (asked[0], word) if asked and is_answer else None


def _answer(
    dialect: Dialect, update: Update, fresh: Fresh, stamp: Stamp, choice: tuple[TurnId, str]
) -> Op[Accepted]:
    """Continue or drop what was interrupted. A choice is a recorded command, not text for the
    model."""
    turn, word = choice
    found = yield from locked(turn)
    assert found is not None
    if word == CONTINUE:
        reply, effect = "Going on.", Effect.CONTINUED
        recorded = yield from requeue(dialect, turn, stamp)
    else:
        reply, effect = "Dropped. What was said so far is kept.", Effect.DROPPED
        recorded = yield from end_turn(dialect, turn, found, DROPPED, stamp)
    taken = CommandTaken(
        command=word, arguments="", by=update.principal, message=fresh.message, reply=reply
    )
    recorded += yield from journal.append(dialect, found.session, [taken], at=fresh.at)
    yield from put_unless_read(found.session, turn, fresh.message, reply, stamp)
    return _accepted(
        fresh, turn if word == CONTINUE else None, effect, recorded, command=word, reply=reply
    )


def _take(  # noqa: PLR0913, PLR0917 - everything a message may meet
    dialect: Dialect,
    update: Update,
    fresh: Fresh,
    stamp: Stamp,
    session: SessionId,
    open_turns: Sequence[Row],
    queue_max: int,
) -> Op[Accepted]:
    """Queue the message's turn, after whatever it replaces; or hand it to the turn that runs."""
    if len(open_turns) >= queue_max:
        raise Rejected(
            f"{len(open_turns)} messages already wait in this conversation; let it answer first",
            code="queue_full",
        )
    started = next((each for each in open_turns if each[2]), None)
    is_running = started is not None and started[1] in (State.RUNNING, State.WAITING)
    if update.busy is Busy.STEER and started is not None and is_running:
        return (yield from _steer(dialect, update, fresh, session, started[0]))
    closing = _closing(update, started)
    recorded: list[Recorded] = []
    if started is not None and closing is not None:
        found = yield from locked(started[0])
        assert found is not None
        recorded += yield from end_turn(dialect, started[0], found, closing, stamp)
    recorded += yield from _queue(dialect, update, fresh, session)
    ended = started[0] if started is not None and closing is not None else None
    effect = Effect.SUPERSEDED if closing is SUPERSEDED else Effect.QUEUED
    position = len(open_turns) - (1 if ended else 0)
    return _accepted(
        fresh,
        fresh.turn,
        effect,
        recorded,
        ended=(ended,) if ended else (),
        queue_position=position,
    )


def _closing(update: Update, started: Row | None) -> Closing | None:
    """What the new message does to the turn that has started: replaces it if it only waits to be
    resumed by someone, supersedes it if that is the mode, else leaves it alone."""
    if started is None:
        return None
    if started[1] == State.INTERRUPTED:
        return REPLACED
    return SUPERSEDED if update.busy is Busy.INTERRUPT else None


def _steer(
    dialect: Dialect, update: Update, fresh: Fresh, session: SessionId, turn: TurnId
) -> Op[Accepted]:
    event = SteerAccepted(
        turn=turn, message=fresh.message, text=update.text, attachments=update.attachments
    )
    recorded = yield from journal.append(dialect, session, [event], at=fresh.at)
    return _accepted(fresh, turn, Effect.STEERED, recorded)


def _queue(
    dialect: Dialect, update: Update, fresh: Fresh, session: SessionId
) -> Op[list[Recorded]]:
    event = TurnQueued(
        turn=fresh.turn,
        message=fresh.message,
        text=update.text,
        kind=update.kind,
        agent=update.agent,
        attachments=update.attachments,
        instructions=update.instructions,
        context=update.context,
        tools=update.tools,
    )
    recorded = yield from journal.append(dialect, session, [event], at=fresh.at)
    yield from run(
        QUEUE_TURN, fresh.turn, session, fresh.message, update.kind, recorded[0].seq, fresh.at
    )
    yield from run(MAKE_READY, fresh.at, session)
    return recorded


def _accepted(
    fresh: Fresh,
    turn: TurnId | None,
    effect: Effect,
    recorded: Sequence[Recorded],
    **more: Any,
) -> Accepted:
    return Accepted(
        conversation=fresh.conversation,
        session=fresh.session,
        turn=turn,
        message=fresh.message,
        effect=effect,
        recorded=tuple(recorded),
        **more,
    )


def _command(setting: Setting, command: Given, fresh: Fresh) -> Op[Accepted]:
    taken = yield from take(setting, command)
    assert taken.session is not None
    return Accepted(
        conversation=setting.conversation,
        session=taken.session,
        turn=None,
        message=fresh.message,
        effect=taken.effect,
        ended=taken.ended,
        command=command.name,
        reply=taken.reply,
        recorded=tuple(taken.recorded),
    )


def _repeated(known: Row, update: Update) -> Op[Accepted]:
    digest, conversation, session, turn, message = known
    if digest != update.digest():
        raise Conflict(
            "another message was already accepted under this id; use a new id for a new message",
            code="id_conflict",
        )
    said = yield from journal.of_message(message)
    commands = [r.event for r in said if isinstance(r.event, CommandTaken)]
    return Accepted(
        conversation=conversation,
        session=session,
        turn=turn,
        message=message,
        is_duplicate=True,
        command=commands[0].command if commands else "",
        reply=commands[0].reply if commands else "",
    )


def _resolve(
    dialect: Dialect, update: Update, fresh: Fresh
) -> Op[tuple[ConversationId, SessionId, bool]]:
    """The conversation's live session, and whether it took the place of a suspended one."""
    found = yield from _find(update.address)
    if found is None:
        opened = yield from _open(dialect, update, fresh)
        if opened:
            return fresh.conversation, fresh.session, False
        found = yield from _find(update.address)
        assert found is not None
    conversation, session = found
    locked = yield from row(_SESSION_STATE, session)
    assert locked is not None
    (state,) = locked
    if state == "open":
        return conversation, session, False
    yield from run(_OPEN_SESSION, fresh.session, conversation, update.principal, session, fresh.at)
    yield from run(_MOVE_CONVERSATION, fresh.session, conversation)
    opened_event = SessionOpened(by=update.principal, reason=state, parent=session)
    yield from journal.append(dialect, fresh.session, [opened_event], at=fresh.at)
    return conversation, fresh.session, True


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
