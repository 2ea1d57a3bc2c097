"""Decides what a message becomes: a turn that waits, a turn that begins at once, a steer for the
running turn, or one more message of an album."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.domain.errors import Rejected
from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.attachments import is_unread
from perdure.domain.journal.events import (
    AnyEvent,
    MessageJoined,
    Recorded,
    SteerAccepted,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.kinds import UNASKED, TurnKind, UpdateKind
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.prompt.whereabouts import Whereabouts
from perdure.domain.tools.asking import STILL_WAITING
from perdure.domain.turn.endings import REPLACED_MARK
from perdure.domain.turn.recovery import Fate, fate
from perdure.domain.turn.turn import AT_WORK, State
from perdure.ports.turns.inbox import Reception
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import attaching, journal
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import overhearing, quotas
from perdure.store.operations.questions import effects
from perdure.store.operations.sessions import recency
from perdure.store.operations.turn_context import LockedTurn, TurnContext
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns import errands, turn_rows
from perdure.store.operations.turns.claiming import Begun, claimed
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.operations.turns.session_queue import (
    ALBUM_MS,
    COLLECT_MS_MAX,
    COLLECTED,
    look_again,
    queue_turn,
)
from perdure.store.operations.turns.turn_rows import ALONE, Album
from perdure.store.statement import Op, run

# Takes a session for the turn that begins with this message.
_LEASE = "UPDATE sessions SET last_seq = $1, epoch = $2, active_at = $3 WHERE id = $4"
# Lets a turn wait longer for the rest of its album. Once a turn has part of a platform's own album,
# it is known by that album's name, so that a late rest of it does not end the turn.
_WAIT_LONGER = """
    UPDATE turns SET not_before = $1, album = CASE WHEN $2 = '' THEN album ELSE $2 END
    WHERE id = $3"""
# Bounds the events of a turn that collects an album; more messages get a turn of their own.
ALBUM_EVENTS_MAX: Final = 100
SUPERSEDED = Closing(Outcome.SUPERSEDED, "a newer message came", mark=REPLACED_MARK)
REPLACED = Closing(Outcome.INTERRUPTED, "a newer message came", mark=REPLACED_MARK)


def take(context: TurnContext, *, may_overtake: bool = False) -> Op[Reception]:
    """Queue the message's turn, after ending the turn it replaces; or begin it at once; or hand the
    message to the running turn.

    A message is not handed to the running turn while an earlier message waits in line, because it
    would be answered first. `may_overtake` means that its author asked for that. Raises `Rejected`
    if the line is full.
    """
    open_turns, update = context.open_turns, context.update
    joins = yield from _joins(context)
    if joins is not None:
        return (yield from _join(context, joins))
    waiting = sum(not each.attempts for each in open_turns)
    if waiting >= context.queue_max:
        raise queue_full(waiting)
    started = next((each for each in open_turns if each.attempts), None)
    gives_way = started is not None and _closing(context, started) is not None
    yield from quotas.insist_on_turn(context.quota, update.principal, update, ends=int(gives_way))
    has_files = any(map(is_unread, update.attachments))
    # Beginning here saves the commit of a separate claim.
    if context.may_begin and not open_turns and not has_files and not _album_of(update):
        return (yield from _begin(context))
    is_running = started is not None and started.state in AT_WORK
    is_next = may_overtake or not any(map(_is_message_in_line, open_turns))
    # Results belong to a turn of their own: a steer has nothing but words.
    is_steer = update.busy is Busy.STEER and is_next and not has_files and not context.results
    if started is not None and is_running and is_steer and _is_their_turn(context, started):
        return (yield from _steer(context, started))
    closing = _closing(context, started)
    recorded: list[Recorded] = []
    ended: tuple[TurnId, ...] = ()
    if started is not None and closing is not None:
        found = yield from locked(started.id)
        assert found is not None
        recorded += yield from end_turn(started.id, found, closing, context.stamp)
        ended = (started.id,)
    name = _album_of(update)
    album = Album(name, context.stamp.at + _wait_ms(update)) if name else ALONE
    recorded += yield from queue_turn(
        context.session,
        (yield from _queued(context)),
        context.stamp,
        album=album,
        results=context.results,
    )
    recorded += yield from errands.bring_unsaid(ended, context.session, context.stamp)
    if closing is None and waiting == 0:
        recorded += yield from _say_who_waits(context, started)
    effect = UpdateEffect.SUPERSEDED if closing is SUPERSEDED else UpdateEffect.QUEUED
    position = len(open_turns) - len(ended)
    return Reception(
        accepted=accepted(
            context, context.fresh.turn, effect, recorded, ended=ended, queue_position=position
        )
    )


def queue_full(waiting: int) -> Rejected:
    """Return the refusal for one more message. Only turns that never started count as waiting: not
    the running one, and not an interrupted one."""
    wait = "message already waits" if waiting == 1 else "messages already wait"
    return Rejected(
        f"{waiting} {wait} in this conversation; let it answer first", code="queue_full"
    )


def _is_message_in_line(turn: LockedTurn) -> bool:
    """Tell whether this is a person's message whose turn has not begun."""
    return not turn.attempts and turn.kind not in UNASKED


def _closing(context: TurnContext, started: LockedTurn | None) -> Closing | None:
    """Return how the new message ends the started turn, or None if it waits behind it. An
    interrupted turn that only waited for the next message is replaced. An interrupted turn that
    will resume by itself is treated like a running one: it is superseded if the update says so."""
    if started is None:
        return None
    if started.state == State.INTERRUPTED and _makes_way(context, started):
        return REPLACED
    # A late message of an album must not end the turn that answers the rest of the album.
    is_other = not _is_of_album(context, started)
    is_interrupt = context.update.busy is Busy.INTERRUPT and _is_their_turn(context, started)
    return SUPERSEDED if is_interrupt and is_other else None


def _is_their_turn(context: TurnContext, turn: LockedTurn) -> bool:
    """Tell whether a message comes from the person for whom the turn is. Where several people share
    a conversation, the message of one must not end or change the answer to another."""
    return not context.update.is_shared or turn.sender == context.update.principal


def _makes_way(context: TurnContext, turn: LockedTurn) -> bool:
    """Tell whether an interrupted turn ends for this message. This is the rule that recovery uses
    too."""
    age_ms = context.stamp.at - turn.alive_at
    policy = context.menu.recovery
    return fate(policy, kind=TurnKind(turn.kind), age_ms=age_ms, is_followed=True) is Fate.MAKES_WAY


def _is_of_album(context: TurnContext, turn: LockedTurn) -> bool:
    """Tell whether this message belongs to the turn's album, and to the same sender."""
    update = context.update
    return bool(update.album) and (turn.album, turn.sender) == (update.album, update.principal)


def _album_of(update: Update) -> str:
    """Return the name of the album that a message is part of, or an empty string. Quick messages of
    one person count as one, where they are collected."""
    return update.album or (COLLECTED if _is_collected(update) else "")


def _is_collected(update: Update) -> bool:
    return update.collect_ms > 0 and update.kind is UpdateKind.MESSAGE


def _wait_ms(update: Update) -> int:
    """Return for how long more of the message's album is waited for."""
    return ALBUM_MS if update.album else min(update.collect_ms, COLLECT_MS_MAX)


def _joins(context: TurnContext) -> Op[TurnId | None]:
    """Return the turn of the album this message belongs to, while that turn waits and is last in
    line. A message that is collected also joins what else the same person has just sent: words
    before an album, or behind it."""
    newest = context.open_turns[-1] if context.open_turns else None
    if newest is None or newest.attempts or not newest.album:
        return None
    update = context.update
    is_theirs = newest.sender == update.principal
    if not is_theirs or not (_is_collected(update) or newest.album == update.album):
        return None
    events = yield from journal.of_turn(newest.id)
    return newest.id if len(events) < ALBUM_EVENTS_MAX else None


def _join(context: TurnContext, turn: TurnId) -> Op[Reception]:
    """Add the message to the waiting turn of its album, which then waits a little longer."""
    update, stamp = context.update, context.stamp
    event = MessageJoined(
        turn=turn,
        message=context.fresh.message,
        text=update.text,
        attachments=update.attachments,
        passed_on=update.passed_on,
    )
    recorded = yield from journal.append(context.session, [event], at=stamp.at)
    yield from attaching.put(event, stamp)
    yield from run(_WAIT_LONGER, stamp.at + _wait_ms(update), update.album, turn)
    yield from look_again(context.session, stamp)
    return Reception(accepted=accepted(context, turn, UpdateEffect.JOINED, recorded))


def _say_who_waits(context: TurnContext, started: LockedTurn | None) -> Op[list[Recorded]]:
    """Tell people that the turn before their message waits for an answer of theirs."""
    if started is None or started.state != State.WAITING:
        return []
    return (yield from notice(context.session, started.id, STILL_WAITING, context.stamp))


def _steer(context: TurnContext, started: LockedTurn) -> Op[Reception]:
    """Record the message for the turn at work, which takes it between two steps."""
    update, turn = context.update, started.id
    event = SteerAccepted(
        turn=turn,
        message=context.fresh.message,
        text=update.text,
        attachments=update.attachments,
        by=update.principal,
        sender=update.sender,
        via=context.place.via,
        traits=update.traits,
        passed_on=update.passed_on,
    )
    recorded = yield from journal.append(context.session, [event], at=context.stamp.at)
    recorded += yield from _say_who_waits(context, started)
    return Reception(accepted=accepted(context, turn, UpdateEffect.STEERED, recorded))


def _begin(context: TurnContext) -> Op[Reception]:
    """Begin the message's turn in this transaction: nothing is before it, so nobody needs to claim
    it. If the process dies after the commit, the reaper finds the turn as running."""
    session, fresh, update, stamp = context.session, context.fresh, context.update, context.stamp
    place, seq = context.place, context.place.last_seq
    lease = TurnLease(session=session, turn=fresh.turn, epoch=place.epoch + 1, attempt=1)
    started = TurnStarted(turn=fresh.turn, attempt=1, parent=place.head, node=stamp.node)
    queued = yield from _queued(context)
    marked = (yield from effects.tell(session, fresh.turn)) if place.marks else []
    arrived: list[AnyEvent] = [queued, *context.results]
    events = [*arrived, started, *marked]
    yield from run(_LEASE, seq + len(events), lease.epoch, stamp.at, session)
    yield from recency.list_session(session, at=stamp.at)
    recorded = yield from journal.write(session, events, after=seq, at=stamp.at)
    yield from turn_rows.begin(recorded[0], queued, started)
    begun = Begun(
        lease=lease,
        conversation=place.conversation,
        principal=update.principal,
        address=update.address,
        place_kind=update.place_kind,
        whereabouts=Whereabouts(kind=place.kind, label=place.label, person=update.caller),
        parent=place.head,
        kind=TurnKind(update.kind),
        view=place.view,
        title=place.title,
        is_listed=update.is_listed,
        events=tuple(recorded),
    )
    told = recorded[: len(arrived)]
    queued_now = accepted(context, fresh.turn, UpdateEffect.QUEUED, told)
    return Reception(accepted=queued_now, claimed=(yield from claimed(begun)))


def _queued(context: TurnContext) -> Op[TurnQueued]:
    """Return the event that records the message and its turn, with what was overheard before."""
    update = context.update
    overheard = yield from overhearing.brought(update, at=context.stamp.at)
    return TurnQueued(
        turn=context.fresh.turn,
        message=context.fresh.message,
        text=update.text,
        kind=TurnKind(update.kind),
        agent=update.agent or context.place.answering,
        attachments=update.attachments,
        instructions=update.instructions,
        context=update.context,
        tools=update.tools,
        options=update.options,
        persona=context.place.speaking_as,
        effort=context.place.effort,
        by=update.principal,
        sender=update.sender,
        via=context.place.via,
        traits=update.traits,
        continues=context.continues,
        passed_on=update.passed_on,
        overheard=overheard,
        may_be_silent=update.may_be_silent,
        deliver_to=update.deliver_to,
    )


def accepted(
    context: TurnContext,
    turn: TurnId | None,
    effect: UpdateEffect,
    recorded: Sequence[Recorded],
    **more: Any,
) -> Accepted:
    """Return what the sender is told about the message."""
    return Accepted(
        conversation=context.conversation,
        session=context.session,
        turn=turn,
        message=context.fresh.message,
        effect=effect,
        recorded=tuple(recorded),
        **more,
    )
