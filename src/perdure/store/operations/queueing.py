"""What a message becomes: a turn that waits, a turn that begins at once, a word to the one at work,
or one more piece of what was sent as one."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.domain.address import is_shared
from perdure.domain.attachments import is_unread
from perdure.domain.endings import REPLACED_MARK
from perdure.domain.errands import UNASKED
from perdure.domain.errors import Rejected
from perdure.domain.events import (
    AnyEvent,
    MessageJoined,
    Recorded,
    SteerAccepted,
    TurnQueued,
    TurnStarted,
)
from perdure.domain.ids import TurnId
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.recovery import Fate, fate
from perdure.domain.turn import State
from perdure.domain.updates import Accepted, Effect
from perdure.ports.inbox import Reception
from perdure.ports.turns import Claimed, Lease
from perdure.store.operations import attaching, errands, journal
from perdure.store.operations.endings import Closing, end_turn, locked
from perdure.store.operations.line import ALONE, Album, look_again, queue_turn
from perdure.store.operations.memories import Person, recall
from perdure.store.operations.setting import OpenTurn, Setting
from perdure.store.operations.telling import looking_back
from perdure.store.statement import Op, run

_LEASE = "UPDATE sessions SET last_seq = $1, epoch = $2, active_at = $3 WHERE id = $4"
_RUN_TURN = """
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, reason, detail, attempts,
                       node_id, queued_seq, queued_at, started_at, alive_at, attempt_at, via_id,
                       principal_id)
    VALUES ($1, $2, $3, $4, $5, 'running', '', '', 1, $6, $7, $8, $8, $8, $8, $9, $10)"""
_WAIT_LONGER = "UPDATE turns SET not_before = $1 WHERE id = $2"
# Platforms hand over an album piece by piece, within so many milliseconds; a turn takes no more
# than so many events of it.
ALBUM_MS: Final = 800
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
    has_files = any(map(is_unread, update.attachments))
    if setting.may_begin and not open_turns and not has_files and not update.album:
        return (yield from _begin(setting))
    started = next((each for each in open_turns if each.attempts), None)
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
        recorded += yield from end_turn(setting.dialect, started.id, found, closing, setting.stamp)
        ended = (started.id,)
    album = Album(update.album, setting.stamp.at + ALBUM_MS) if update.album else ALONE
    recorded += yield from queue_turn(
        setting.dialect, setting.session, _queued(setting), setting.stamp, album=album
    )
    recorded += yield from errands.bring_unsaid(
        setting.dialect, ended, setting.session, setting.stamp
    )
    effect = Effect.SUPERSEDED if closing is SUPERSEDED else Effect.QUEUED
    position = len(open_turns) - len(ended)
    return Reception(
        accepted=accepted(
            setting, setting.fresh.turn, effect, recorded, ended=ended, queue_position=position
        )
    )


def queue_full(waiting: int) -> Rejected:
    """What is being answered, or waits to be gone on with, does not wait in line."""
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
    return fate(policy, kind=turn.kind, age_ms=age_ms, is_followed=True) is Fate.MAKES_WAY


def _is_of_album(setting: Setting, turn: OpenTurn) -> bool:
    update = setting.update
    return bool(update.album) and (turn.album, turn.sender) == (update.album, update.principal)


def _joins(setting: Setting) -> Op[TurnId | None]:
    """The turn that this message was sent as one with, as long as it waits, last in the line."""
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
    )
    recorded = yield from journal.append(setting.dialect, setting.session, [event], at=stamp.at)
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
    )
    recorded = yield from journal.append(
        setting.dialect, setting.session, [event], at=setting.stamp.at
    )
    return Reception(accepted=accepted(setting, turn, Effect.STEERED, recorded))


def _begin(setting: Setting) -> Op[Reception]:
    """Nothing is before this turn, so it need not wait for anyone to claim it."""
    session, fresh, update, stamp = setting.session, setting.fresh, setting.update, setting.stamp
    place, seq = setting.place, setting.place.last_seq
    lease = Lease(session=session, turn=fresh.turn, epoch=place.epoch + 1, attempt=1)
    started = TurnStarted(turn=fresh.turn, attempt=1, parent=place.head, node=stamp.node)
    events: list[AnyEvent] = [_queued(setting), started]
    yield from run(_LEASE, seq + len(events), lease.epoch, stamp.at, session)
    recorded = yield from journal.write(session, events, after=seq, at=stamp.at)
    yield from run(
        _RUN_TURN,
        fresh.turn, session, place.head, fresh.message, update.kind, stamp.node, seq + 1, stamp.at,
        place.via, update.principal,
    )  # fmt: skip
    before = yield from looking_back(place.head, kind=update.kind)
    person = Person(
        update.principal, place.conversation, is_shared=is_shared(update.address, update.place_kind)
    )
    claimed = Claimed(
        lease=lease,
        conversation=place.conversation,
        principal=update.principal,
        address=update.address,
        is_shared=person.is_shared,
        parent=place.head,
        events=tuple(recorded),
        view=place.view,
        has_title=bool(place.title),
        prefix=before.prefix,
        memories=tuple((yield from recall(person))),
        telling=before.telling,
    )
    begun = accepted(setting, fresh.turn, Effect.QUEUED, recorded[:1])
    return Reception(accepted=begun, claimed=claimed)


def _queued(setting: Setting) -> TurnQueued:
    update = setting.update
    return TurnQueued(
        turn=setting.fresh.turn,
        message=setting.fresh.message,
        text=update.text,
        kind=update.kind,
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
