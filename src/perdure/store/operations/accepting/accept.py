"""Accepts an update: one transaction from what came in to what it becomes.

The inbox row, the turn or command, and all other effects are committed together. If the process
dies before the commit, nothing has happened and the platform delivers the update again; if it dies
after, the repeated update finds its inbox row and gets the same answer. If one update is delivered
twice at the same instant, both meet at the key of the inbox: the second waits for the first to
commit, loses, runs again and finds it. The conversation and the session are locked before anything
is decided.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.delivery import HEARD, DeliveryStep
from perdure.domain.errors import Conflict
from perdure.domain.ids import ConversationId, MessageId, SessionId, TurnId
from perdure.domain.inbound.commands import RESTART
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import AnyEvent, MessageJoined, Recorded, SteerAccepted
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.people.menu import Menu
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.turn.recovery import CONTINUE, DROP, IDLE, SUSPENDED
from perdure.domain.turn.turn import State
from perdure.ports.turns.inbox import Reception
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal, stickers
from perdure.store.operations.accepting import amending, repeats, responding, results
from perdure.store.operations.commands import dispatch, rotation
from perdure.store.operations.commands.turn_control import SAYING
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.delivery.outbox import DeliveryLine, PartText, put, put_unless_read
from perdure.store.operations.people import quotas
from perdure.store.operations.sessions import places, recency
from perdure.store.operations.turn_context import Fresh, LockedTurn, Stamp, TurnContext
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns import queueing
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.operations.turns.recovery import requeue
from perdure.store.statement import Op, RaceLost, exists, many, one

# Finds an update that was accepted before.
_KNOWN = """
    SELECT digest, conversation_id, session_id, turn_id, message_id FROM inbox
    WHERE external_id = $1 AND adapter = $2 AND account = $3 AND kind = $4"""
# Records that an update was accepted, unless the same update was accepted meanwhile.
_REMEMBER = """
    INSERT INTO inbox (external_id, adapter, account, kind, digest, conversation_id, session_id,
                       turn_id, message_id, principal_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (external_id, adapter, account, kind) DO NOTHING RETURNING message_id"""
# Reads the unfinished turns of a session, in the order of its line.
_OPEN_TURNS = """
    SELECT id, state, attempts, asked_at, kind, alive_at, album, principal_id FROM turns
    WHERE session_id = $1 AND outcome IS NULL ORDER BY queued_seq"""
# Tells whether a turn has ended another one, which was then settled at the instant the turn was
# queued.
_SUPERSEDED = """
    SELECT 1 FROM turns t JOIN turns ended ON ended.session_id = t.session_id
      AND ended.settled_at = t.queued_at WHERE t.id = $1 AND ended.outcome = $2"""
_CHOSEN: Final = {
    CONTINUE: UpdateEffect.CONTINUED,
    DROP: UpdateEffect.DROPPED,
    responding.ANSWER: UpdateEffect.ANSWERED,
}
DROPPED = Closing(Outcome.INTERRUPTED, "dropped by the user")


class _Known(NamedTuple):
    digest: str
    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: MessageId


def accept(  # noqa: PLR0913 - everything an update may meet
    dialect: Dialect,
    update: Update,
    fresh: Fresh,
    stamp: Stamp,
    *,
    menu: Menu,
    queue_max: int,
    may_begin: bool,
    quota: Quota = NO_QUOTA,
) -> Op[Reception]:
    """Accept an update, or return what came of it before. With `may_begin`, a turn that nothing is
    before is also claimed here, which saves a commit."""
    known = yield from recalled(update)
    if known is not None:
        return Reception(accepted=known)
    place = yield from places.resolve(update, stamp)
    place = place._replace(place_agent=update.place_agent, place_persona=update.place_persona)
    if place.via is not None:
        # The person who linked the two conversations is the same person in both.
        update = msgspec.structs.replace(update, principal=place.principal)
    worded = yield from stickers.with_words(update)
    open_turns = yield from many(LockedTurn, _OPEN_TURNS, place.session)
    is_free = not place.is_successor and place.hold_until is None
    context = TurnContext(
        dialect, stamp, fresh, worded, place, open_turns, menu, queue_max, may_begin and is_free
    )._replace(quota=quota)
    repeated = yield from repeats.repeated(context, update)
    if repeated is not None:
        return Reception(accepted=repeated)
    if update.results:
        context = yield from results.with_results(context)
    if rotation.is_idle(context):
        received = yield from _begin_anew(context)
    else:
        received = yield from _take(context)
    accepted = received.accepted
    yield from _mark(context, accepted)
    if place.is_successor and accepted.turn is not None:
        about = fresh.turn if accepted.turn == fresh.turn else None
        told = yield from notice(place.session, about, SUSPENDED, stamp)
        received = Reception(accepted=_with(accepted, told))
    received = _after(place.opened, received)
    # Last: if the same update was accepted meanwhile, this raises `RaceLost`, and everything above
    # is undone.
    yield from remember(update, received.accepted, stamp)
    yield from quotas.count_message(update.principal, update)
    yield from _touch(context, received)
    return received


def _touch(context: TurnContext, received: Reception) -> Op[None]:
    """Put the conversation and its session at the top of the lists of what was used last."""
    place, update, at = context.place, context.update, context.stamp.at
    yield from recency.touch_conversation(
        place.via or place.conversation,
        at=at,
        is_listed=update.is_listed,
        label=update.label,
        kind=update.place_kind,
        language=update.traits.language,
    )
    if received.claimed is None:
        yield from recency.touch_session(received.accepted.session, at=at)


def _mark(context: TurnContext, accepted: Accepted) -> Op[None]:
    """Mark a message as heard, with a reaction: while another answer is being written, nothing else
    tells people on a platform that their message arrived."""
    waits = accepted.effect is UpdateEffect.QUEUED and accepted.queue_position > 0
    is_heard = waits or accepted.effect is UpdateEffect.STEERED
    if not context.update.place_kind or accepted.command or not is_heard:
        return
    conversation = context.place.via or context.conversation
    line = DeliveryLine(conversation, accepted.session, None, context.fresh.message)
    yield from put(line, [PartText(HEARD, DeliveryStep.REACT)], context.stamp)


def _take(context: TurnContext) -> Op[Reception]:
    """Treat an update as an edit or deletion, a command, the answer to a question, or a
    message."""
    update = context.update
    if update.kind in (UpdateKind.EDIT, UpdateKind.DELETE):
        return Reception(accepted=(yield from amending.take(context)))
    command = context.agent.command_in(update.text) if update.takes_commands else None
    if command is not None:
        return (yield from dispatch.take(context, command))
    answered = yield from responding.respond(context)
    if answered is not None:
        return Reception(accepted=answered)
    choice = _chosen(update, context.open_turns)
    if choice is not None:
        return Reception(accepted=(yield from _answer(context, choice)))
    return (yield from queueing.take(context))


def _begin_anew(context: TurnContext) -> Op[Reception]:
    """Take the message in a new session, because the last one was idle for the configured time, and
    tell the people."""
    left, session = yield from rotation.rotate_idle(context)
    stamp = context.stamp
    told = yield from notice(session, None, IDLE, stamp)
    place = places.new(context.conversation, session, context.update)
    before = context.place
    place = place._replace(
        last_seq=told[-1].seq,
        agent=before.agent,
        persona=before.persona,
        effort=before.effort,
        language=before.language,
        place_agent=before.place_agent,
        place_persona=before.place_persona,
        via=before.via,
        label=before.label,
        kind=before.kind,
    )
    received = yield from _take(context._replace(place=place, open_turns=(), may_begin=False))
    recorded = (*left, *told, *received.accepted.recorded)
    return Reception(accepted=msgspec.structs.replace(received.accepted, recorded=recorded))


def _with(accepted: Accepted, more: Sequence[Recorded]) -> Accepted:
    """Return the acceptance with more recorded events."""
    return msgspec.structs.replace(accepted, recorded=(*accepted.recorded, *more))


def _after(opened: Sequence[Recorded], received: Reception) -> Reception:
    """Return what was accepted, with the event that has opened its session, if one was opened."""
    if not opened:
        return received
    recorded = (*opened, *received.accepted.recorded)
    accepted = msgspec.structs.replace(received.accepted, recorded=recorded)
    return msgspec.structs.replace(received, accepted=accepted)


def _chosen(update: Update, open_turns: Sequence[LockedTurn]) -> tuple[TurnId, str] | None:
    """Return the turn we asked about and the chosen word, if this message answers our question."""
    asked = [turn.id for turn in open_turns if turn.state == State.INTERRUPTED and turn.asked_at]
    word = update.text.strip().lower() if asked else ""
    # A forwarded text is not the sender's own answer to our question.
    may_answer = update.kind is UpdateKind.MESSAGE and not update.is_forwarded
    is_answer = word in (CONTINUE, DROP) and may_answer
    return (asked[0], word) if is_answer else None


def _answer(context: TurnContext, choice: tuple[TurnId, str]) -> Op[Accepted]:
    """Continue or drop the interrupted turn. The choice is recorded as a command, not as text for
    the model."""
    turn, word = choice
    stamp, message = context.stamp, context.fresh.message
    found = yield from locked(turn)
    assert found is not None
    if word == CONTINUE:
        reply, effect = "Going on.", UpdateEffect.CONTINUED
        recorded = yield from requeue(turn, stamp)
    else:
        reply, effect = "Dropped. What was said so far is kept.", UpdateEffect.DROPPED
        recorded = yield from end_turn(turn, found, DROPPED, stamp)
    taken = CommandTaken(
        command=word, arguments="", by=context.update.principal, message=message, reply=reply
    )
    recorded += yield from journal.append(found.session, [taken], at=stamp.at)
    yield from put_unless_read(found.session, turn, message, PartText(reply), stamp)
    resumed = turn if word == CONTINUE else None
    return queueing.accepted(context, resumed, effect, recorded, command=word, reply=reply)


def remember(update: Update, accepted: Accepted, stamp: Stamp) -> Op[None]:
    """Record what an update became, under its identity. Raises `RaceLost` if its twin was committed
    meanwhile."""
    address = update.address
    is_first = yield from exists(
        _REMEMBER,
        update.external_id, address.adapter, address.account, update.kind, update.digest(),
        accepted.conversation, accepted.session, accepted.turn, accepted.message,
        update.principal, stamp.at,
    )  # fmt: skip
    if not is_first:
        raise RaceLost  # the same update was committed meanwhile: run again, and find it


def recalled(update: Update) -> Op[Accepted | None]:
    """Return what came of an update that was accepted before, or None if it is new. Raises
    `Conflict` if another text was accepted under the same identity."""
    address = update.address
    known = yield from one(
        _Known, _KNOWN, update.external_id, address.adapter, address.account, update.kind
    )
    if known is None:
        return None
    if known.digest != update.digest():
        raise Conflict(
            "another message was already accepted under this id; use a new id for a new message",
            code="id_conflict",
        )
    said = [recorded.event for recorded in (yield from journal.of_message(known.message))]
    taken = next((event for event in said if isinstance(event, CommandTaken)), None)
    return Accepted(
        conversation=known.conversation,
        session=known.session,
        turn=known.turn,
        message=known.message,
        is_duplicate=True,
        effect=(yield from _effect(said, taken, known.turn)),
        command=taken.command if taken else "",
        reply=taken.reply if taken else "",
        choices=taken.choices if taken else (),
    )


def _effect(
    said: Sequence[AnyEvent], taken: CommandTaken | None, turn: TurnId | None
) -> Op[UpdateEffect]:
    """Return what accepting the update did, as the journal tells it."""
    if taken is not None and (turn is None or taken.command not in SAYING):
        is_restart = taken.command == RESTART and (yield from dispatch.was_followed(taken))
        return (
            UpdateEffect.RESTARTING
            if is_restart
            else _CHOSEN.get(taken.command, UpdateEffect.COMMANDED)
        )
    if any(isinstance(event, SteerAccepted) for event in said):
        return UpdateEffect.STEERED
    if any(isinstance(event, MessageJoined) for event in said):
        return UpdateEffect.JOINED
    has_ended_one = yield from exists(_SUPERSEDED, turn, Outcome.SUPERSEDED)
    return UpdateEffect.SUPERSEDED if has_ended_one else UpdateEffect.QUEUED
