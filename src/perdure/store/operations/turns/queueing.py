"""What a message becomes: a turn that waits, a turn that begins at once, a word to the one at work,
or one more piece of what was sent as one."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.domain.errors import Rejected
from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Accepted, Effect
from perdure.domain.journal.attachments import is_unread
from perdure.domain.journal.events import (
    AnyEvent,
    MessageJoined,
    Recorded,
    SteerAccepted,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.kinds import UNASKED, TurnKind
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.turn.endings import REPLACED_MARK
from perdure.domain.turn.recovery import Fate, fate
from perdure.domain.turn.turn import State
from perdure.ports.turns.inbox import Reception
from perdure.ports.turns.turns import Lease
from perdure.store.operations import attaching, journal
from perdure.store.operations.people import quotas
from perdure.store.operations.sessions import recency
from perdure.store.operations.setting import OpenTurn, Setting
from perdure.store.operations.turns import errands, turn_rows
from perdure.store.operations.turns.claiming import Begun, claimed
from perdure.store.operations.turns.endings import Closing, end_turn, locked
from perdure.store.operations.turns.line import ALBUM_MS, look_again, queue_turn
from perdure.store.operations.turns.turn_rows import ALONE, Album
from perdure.store.statement import Op, run

# Takes a session for whoever begins its turn with the message.
_LEASE = "UPDATE sessions SET last_seq = $1, epoch = $2, active_at = $3 WHERE id = $4"
# Lets a turn wait for more of what was sent as one with it.
_WAIT_LONGER = "UPDATE turns SET not_before = $1 WHERE id = $2"
# A turn takes no more than so many events of an album.
ALBUM_EVENTS_MAX: Final = 100
SUPERSEDED = Closing(Outcome.SUPERSEDED, "a newer message came", mark=REPLACED_MARK)
REPLACED = Closing(Outcome.INTERRUPTED, "a newer message came", mark=REPLACED_MARK)


def take(setting: Setting, *, may_overtake: bool = False) -> Op[Reception]:
    """Queue the message's turn, after whatever it replaces; or hand it to the turn that runs.

    A message is not handed to the turn that runs while an earlier one waits in line: it would be
    answered first. `may_overtake`: its author has asked for just that."""
    open_turns, update = setting.open_turns, setting.update
    joins = yield from _joins(setting)
    if joins is not None:
        return (yield from _join(setting, joins))
    waiting = sum(not each.attempts for each in open_turns)
    if waiting >= setting.queue_max:
        raise queue_full(waiting)
    started = next((each for each in open_turns if each.attempts), None)
    gives_way = started is not None and _closing(setting, started) is not None
    yield from quotas.insist_on_turn(setting.quota, update.principal, update, ends=int(gives_way))
    has_files = any(map(is_unread, update.attachments))
    if setting.may_begin and not open_turns and not has_files and not update.album:
        return (yield from _begin(setting))
    is_running = started is not None and started.state in (State.RUNNING, State.WAITING)
    is_next = may_overtake or not any(map(_is_message_in_line, open_turns))
    is_steer = update.busy is Busy.STEER and is_next and not has_files
    if started is not None and is_running and is_steer:
        return (yield from _steer(setting, started.id))
    closing = _closing(setting, started)
    recorded: list[Recorded] = []
    ended: tuple[TurnId, ...] = ()
    if started is not None and closing is not None:
        found = yield from locked(started.id)
        assert found is not None
        recorded += yield from end_turn(started.id, found, closing, setting.stamp)
        ended = (started.id,)
    album = Album(update.album, setting.stamp.at + ALBUM_MS) if update.album else ALONE
    recorded += yield from queue_turn(setting.session, _queued(setting), setting.stamp, album=album)
    recorded += yield from errands.bring_unsaid(ended, setting.session, setting.stamp)
    effect = Effect.SUPERSEDED if closing is SUPERSEDED else Effect.QUEUED
    position = len(open_turns) - len(ended)
    return Reception(
        accepted=accepted(
            setting, setting.fresh.turn, effect, recorded, ended=ended, queue_position=position
        )
    )


def queue_full(waiting: int) -> Rejected:
    """Return the refusal of one message more. What is being answered, or waits to be gone on with,
    does not wait in line."""
    wait = "message already waits" if waiting == 1 else "messages already wait"
    return Rejected(
        f"{waiting} {wait} in this conversation; let it answer first", code="queue_full"
    )


def _is_message_in_line(turn: OpenTurn) -> bool:
    return not turn.attempts and turn.kind not in UNASKED


def _closing(setting: Setting, started: OpenTurn | None) -> Closing | None:
    """Return how the new message ends the turn that has started, or None if it waits behind it. An
    interrupted turn that only waited for the next message is replaced; one that goes on by itself
    is like one that runs: it is superseded if that is the mode."""
    if started is None:
        return None
    if started.state == State.INTERRUPTED and _makes_way(setting, started):
        return REPLACED
    # What came too late to join is no reason to end what it belongs to.
    is_other = not _is_of_album(setting, started)
    return SUPERSEDED if setting.update.busy is Busy.INTERRUPT and is_other else None


def _makes_way(setting: Setting, turn: OpenTurn) -> bool:
    """Decide by the same rule as a start does, where this message would wait behind the turn."""
    age_ms = setting.stamp.at - turn.alive_at
    policy = setting.menu.recovery
    return fate(policy, kind=TurnKind(turn.kind), age_ms=age_ms, is_followed=True) is Fate.MAKES_WAY


def _is_of_album(setting: Setting, turn: OpenTurn) -> bool:
    update = setting.update
    return bool(update.album) and (turn.album, turn.sender) == (update.album, update.principal)


def _joins(setting: Setting) -> Op[TurnId | None]:
    """Return the turn that this message was sent as one with, as long as it waits, last in the
    line."""
    newest = setting.open_turns[-1] if setting.open_turns else None
    if newest is None or newest.attempts or not _is_of_album(setting, newest):
        return None
    events = yield from journal.of_turn(newest.id)
    return newest.id if len(events) < ALBUM_EVENTS_MAX else None


def _join(setting: Setting, turn: TurnId) -> Op[Reception]:
    update, stamp = setting.update, setting.stamp
    event = MessageJoined(
        turn=turn,
        message=setting.fresh.message,
        text=update.text,
        attachments=update.attachments,
        passed_on=update.passed_on,
    )
    recorded = yield from journal.append(setting.session, [event], at=stamp.at)
    yield from attaching.put(event, stamp)
    yield from run(_WAIT_LONGER, stamp.at + ALBUM_MS, turn)
    yield from look_again(setting.session, stamp)
    return Reception(accepted=accepted(setting, turn, Effect.JOINED, recorded))


def _steer(setting: Setting, turn: TurnId) -> Op[Reception]:
    update = setting.update
    event = SteerAccepted(
        turn=turn,
        message=setting.fresh.message,
        text=update.text,
        attachments=update.attachments,
        by=update.principal,
        sender=update.sender,
        via=setting.place.via,
        traits=update.traits,
        passed_on=update.passed_on,
    )
    recorded = yield from journal.append(setting.session, [event], at=setting.stamp.at)
    return Reception(accepted=accepted(setting, turn, Effect.STEERED, recorded))


def _begin(setting: Setting) -> Op[Reception]:
    """Begin the message's turn: nothing is before it, so it need not wait for anyone to claim
    it."""
    session, fresh, update, stamp = setting.session, setting.fresh, setting.update, setting.stamp
    place, seq = setting.place, setting.place.last_seq
    lease = Lease(session=session, turn=fresh.turn, epoch=place.epoch + 1, attempt=1)
    started = TurnStarted(turn=fresh.turn, attempt=1, parent=place.head, node=stamp.node)
    queued = _queued(setting)
    events: list[AnyEvent] = [queued, started]
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
        parent=place.head,
        kind=TurnKind(update.kind),
        view=place.view,
        title=place.title,
        is_listed=update.is_listed,
        events=tuple(recorded),
    )
    queued_now = accepted(setting, fresh.turn, Effect.QUEUED, recorded[:1])
    return Reception(accepted=queued_now, claimed=(yield from claimed(begun)))


def _queued(setting: Setting) -> TurnQueued:
    update = setting.update
    return TurnQueued(
        turn=setting.fresh.turn,
        message=setting.fresh.message,
        text=update.text,
        kind=TurnKind(update.kind),
        agent=update.agent or setting.place.agent,
        attachments=update.attachments,
        instructions=update.instructions,
        context=update.context,
        tools=update.tools,
        options=update.options,
        persona=setting.place.persona,
        by=update.principal,
        sender=update.sender,
        via=setting.place.via,
        traits=update.traits,
        continues=setting.continues,
        passed_on=update.passed_on,
    )


def accepted(
    setting: Setting,
    turn: TurnId | None,
    effect: Effect,
    recorded: Sequence[Recorded],
    **more: Any,
) -> Accepted:
    return Accepted(
        conversation=setting.conversation,
        session=setting.session,
        turn=turn,
        message=setting.fresh.message,
        effect=effect,
        recorded=tuple(recorded),
        **more,
    )
