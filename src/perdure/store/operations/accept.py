"""Accept: one transaction from a platform's update to what it becomes.

Two deliveries of one update at the same instant meet at the inbox's key: the second waits for the
first to commit, loses, runs again and finds it. The conversation and the session are locked before
anything is decided.
"""

from collections.abc import Sequence

import msgspec

from perdure.domain.address import Address
from perdure.domain.commands import given
from perdure.domain.errors import Conflict
from perdure.domain.events import CommandTaken, Recorded, SessionOpened
from perdure.domain.ids import ConversationId, SessionId, TurnId
from perdure.domain.menu import Menu
from perdure.domain.outcomes import Outcome
from perdure.domain.recovery import CONTINUE, DROP, IDLE, PERSONAL, SUSPENDED
from perdure.domain.turn import State
from perdure.domain.updates import DELETE, EDIT, Accepted, Effect, Update
from perdure.ports.inbox import Reception
from perdure.store.dialect import Dialect
from perdure.store.operations import amending, errands, journal, queueing
from perdure.store.operations.commands import rotation, taking
from perdure.store.operations.endings import Closing, end_turn, locked
from perdure.store.operations.notices import notice
from perdure.store.operations.outbox import put_unless_read
from perdure.store.operations.recovery import requeue
from perdure.store.operations.sessions import make_live, open_session
from perdure.store.operations.setting import Fresh, Place, Setting, Stamp
from perdure.store.statement import Op, RaceLost, Row, row, rows, run

_KNOWN = """
    SELECT digest, conversation_id, session_id, turn_id, message_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4"""
_REMEMBER = """
    INSERT INTO inbox (external_id, adapter, account, kind, digest, conversation_id, session_id,
                       turn_id, message_id, principal_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING RETURNING message_id"""
_FIND_CONVERSATION = """
    SELECT id, session_id, agent, persona FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5
    FOR NO KEY UPDATE"""
_SESSION = """
    SELECT state, principal_id, last_seq, epoch, head_turn, view, hold_until, active_at,
           title
    FROM sessions WHERE id = $1 FOR UPDATE"""
_OPEN_CONVERSATION = """
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $10)
    ON CONFLICT (adapter, account, place, thread, person) DO NOTHING RETURNING id"""
_TOUCH_CONVERSATION = "UPDATE conversations SET active_at = $1 WHERE id = $2"
_TOUCH_SESSION = "UPDATE sessions SET active_at = $1 WHERE id = $2"
_OPEN_TURNS = """
    SELECT id, state, attempts, asked_at FROM turns
    WHERE session_id = $1 AND outcome IS NULL ORDER BY queued_seq"""
DROPPED = Closing(Outcome.INTERRUPTED, "dropped by the user")


def accept(  # noqa: PLR0913 - everything an update may meet
    dialect: Dialect,
    update: Update,
    fresh: Fresh,
    stamp: Stamp,
    *,
    menu: Menu,
    queue_max: int,
    may_begin: bool,
) -> Op[Reception]:
    """With `may_begin` a turn that nothing is before is claimed as well: one commit less."""
    address = update.address
    known = yield from row(
        _KNOWN, update.external_id, address.adapter, address.account, update.kind
    )
    if known is not None:
        return Reception(accepted=(yield from _repeated(known, update)))
    place = yield from _resolve(dialect, update, stamp)
    open_turns = yield from rows(_OPEN_TURNS, place.session)
    is_free = not place.is_successor and place.hold_until is None
    setting = Setting(
        dialect, stamp, fresh, update, place, open_turns, menu, queue_max, may_begin and is_free
    )
    if rotation.is_idle(setting):
        received = yield from _begin_anew(setting)
    else:
        received = yield from _take(setting)
    accepted = received.accepted
    if place.is_successor and accepted.turn is not None:
        about = fresh.turn if accepted.turn == fresh.turn else None
        told = yield from notice(dialect, place.session, about, SUSPENDED, stamp)
        received = Reception(accepted=_with(accepted, told))
    remembered = yield from row(
        _REMEMBER,
        update.external_id, address.adapter, address.account, update.kind, update.digest(),
        place.conversation, accepted.session, accepted.turn, fresh.message,
        update.principal, stamp.at,
    )  # fmt: skip
    if remembered is None:
        raise RaceLost  # its twin committed meanwhile: run again, and find it
    yield from run(_TOUCH_CONVERSATION, stamp.at, place.conversation)
    if received.claimed is None:
        yield from run(_TOUCH_SESSION, stamp.at, accepted.session)
    return received


def _take(setting: Setting) -> Op[Reception]:
    """A message is a command, the answer to a question of ours, or something to say."""
    update = setting.update
    if update.kind in (EDIT, DELETE):
        return Reception(accepted=(yield from amending.take(setting)))
    command = given(update.text) if update.takes_commands else None
    if command is not None:
        return (yield from taking.take(setting, command))
    choice = _chosen(update, setting.open_turns)
    if choice is not None:
        return Reception(accepted=(yield from _answer(setting, choice)))
    return (yield from queueing.take(setting))


def _begin_anew(setting: Setting) -> Op[Reception]:
    """The message goes to a new session, since nobody has said anything for as long as was
    configured, and the people are told so."""
    left, session = yield from rotation.rotate_idle(setting)
    stamp = setting.stamp
    told = yield from notice(setting.dialect, session, None, IDLE, stamp)
    place = _new(setting.conversation, session, setting.update)
    place = place._replace(
        last_seq=told[-1].seq, agent=setting.place.agent, persona=setting.place.persona
    )
    received = yield from _take(setting._replace(place=place, open_turns=(), may_begin=False))
    recorded = (*left, *told, *received.accepted.recorded)
    return Reception(accepted=msgspec.structs.replace(received.accepted, recorded=recorded))


def _with(accepted: Accepted, more: Sequence[Recorded]) -> Accepted:
    return msgspec.structs.replace(accepted, recorded=(*accepted.recorded, *more))


def _chosen(update: Update, open_turns: Sequence[Row]) -> tuple[TurnId, str] | None:
    """The turn we asked about and the word that answers, if this message is such an answer."""
    asked = [turn for turn, state, _, at in open_turns if state == State.INTERRUPTED and at]
    word = update.text.strip().lower() if asked else ""
    is_answer = word in (CONTINUE, DROP) and update.kind == PERSONAL
    return (asked[0], word) if is_answer else None


def _answer(setting: Setting, choice: tuple[TurnId, str]) -> Op[Accepted]:
    """Continue or drop what was interrupted. A choice is a recorded command, not text for the
    model."""
    turn, word = choice
    dialect, stamp, message = setting.dialect, setting.stamp, setting.fresh.message
    found = yield from locked(turn)
    assert found is not None
    if word == CONTINUE:
        reply, effect = "Going on.", Effect.CONTINUED
        recorded = yield from requeue(dialect, turn, stamp)
    else:
        reply, effect = "Dropped. What was said so far is kept.", Effect.DROPPED
        recorded = yield from end_turn(dialect, turn, found, DROPPED, stamp)
    taken = CommandTaken(
        command=word, arguments="", by=setting.update.principal, message=message, reply=reply
    )
    recorded += yield from journal.append(dialect, found.session, [taken], at=stamp.at)
    yield from put_unless_read(found.session, turn, message, reply, stamp)
    resumed = turn if word == CONTINUE else None
    return queueing.accepted(setting, resumed, effect, recorded, command=word, reply=reply)


def _repeated(known: Row, update: Update) -> Op[Accepted]:
    digest, conversation, session, turn, message = known
    if digest != update.digest():
        raise Conflict(
            "another message was already accepted under this id; use a new id for a new message",
            code="id_conflict",
        )
    said = yield from journal.of_message(message)
    taken = [r.event for r in said if isinstance(r.event, CommandTaken)]
    return Accepted(
        conversation=conversation,
        session=session,
        turn=turn,
        message=message,
        is_duplicate=True,
        command=taken[0].command if taken else "",
        reply=taken[0].reply if taken else "",
    )


def _resolve(dialect: Dialect, update: Update, stamp: Stamp) -> Op[Place]:
    """The conversation's live session; a new one where that has been suspended."""
    found = yield from _find(update.address)
    if found is None:
        place = yield from _open(dialect, update, stamp)
        if place is not None:
            return place
        found = yield from _find(update.address)
        assert found is not None
    conversation, session, agent, persona = found
    held = yield from row(_SESSION, session)
    assert held is not None
    state, principal, last_seq, epoch, head, view, hold_until, active_at, title = held
    if state == "open":
        place = Place(conversation, session, principal, last_seq, epoch, head, agent, persona)
        return place._replace(view=view, title=title, hold_until=hold_until, active_at=active_at)
    successor = SessionId(stamp.mint("ses"))
    event = SessionOpened(by=update.principal, reason=state, parent=session)
    yield from open_session(dialect, successor, conversation, event, stamp, principal=principal)
    yield from make_live(conversation, successor)
    brought = yield from errands.bring_suspended(dialect, session, successor, stamp)
    place = _new(conversation, successor, update)._replace(agent=agent, persona=persona)
    last_seq = brought[-1].seq if brought else place.last_seq
    return place._replace(last_seq=last_seq, is_successor=True)


def _new(conversation: ConversationId, session: SessionId, update: Update) -> Place:
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
    address = update.address
    conversation = ConversationId(stamp.mint("cnv"))
    session = SessionId(stamp.mint("ses"))
    opened = yield from row(
        _OPEN_CONVERSATION,
        conversation, address.adapter, address.account, address.place, address.thread,
        address.person, update.principal, session, int(update.is_listed), stamp.at,
    )  # fmt: skip
    if opened is None:
        return None
    event = SessionOpened(by=update.principal, reason="first message")
    principal = update.principal
    yield from open_session(dialect, session, conversation, event, stamp, principal=principal)
    return _new(conversation, session, update)
