"""What a message becomes: a turn that waits, a turn that begins at once, or a word to the one at
work."""

from collections.abc import Sequence
from typing import Any

from perdure.domain.errors import Rejected
from perdure.domain.events import AnyEvent, Recorded, SteerAccepted, TurnQueued, TurnStarted
from perdure.domain.ids import TurnId
from perdure.domain.outcomes import Busy, Outcome
from perdure.domain.turn import State
from perdure.domain.updates import Accepted, Effect
from perdure.ports.inbox import Reception
from perdure.ports.turns import Claimed, Lease
from perdure.store.operations import errands, journal
from perdure.store.operations.endings import Closing, end_turn, locked
from perdure.store.operations.line import queue_turn
from perdure.store.operations.memories import Person, recall
from perdure.store.operations.setting import Setting
from perdure.store.operations.turns import looking_back
from perdure.store.statement import Op, Row, run

_LEASE = "UPDATE sessions SET last_seq = $1, epoch = $2, active_at = $3 WHERE id = $4"
_RUN_TURN = """
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, reason, detail, attempts,
                       node_id, queued_seq, queued_at, started_at, alive_at)
    VALUES ($1, $2, $3, $4, $5, 'running', '', '', 1, $6, $7, $8, $8, $8)"""
SUPERSEDED = Closing(Outcome.SUPERSEDED, "a newer message came")
REPLACED = Closing(Outcome.INTERRUPTED, "a newer message came")


def take(setting: Setting) -> Op[Reception]:
    """Queue the message's turn, after whatever it replaces; or hand it to the turn that runs."""
    open_turns, update = setting.open_turns, setting.update
    if len(open_turns) >= setting.queue_max:
        raise Rejected(
            f"{len(open_turns)} messages already wait in this conversation; let it answer first",
            code="queue_full",
        )
    if setting.may_begin and not open_turns:
        return (yield from _begin(setting))
    started = next((each for each in open_turns if each[2]), None)
    is_running = started is not None and started[1] in (State.RUNNING, State.WAITING)
    if update.busy is Busy.STEER and started is not None and is_running:
        return (yield from _steer(setting, started[0]))
    closing = _closing(setting, started)
    recorded: list[Recorded] = []
    ended: tuple[TurnId, ...] = ()
    if started is not None and closing is not None:
        found = yield from locked(started[0])
        assert found is not None
        recorded += yield from end_turn(setting.dialect, started[0], found, closing, setting.stamp)
        ended = (started[0],)
    recorded += yield from queue_turn(
        setting.dialect, setting.session, _queued(setting), setting.stamp
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


def _closing(setting: Setting, started: Row | None) -> Closing | None:
    """What the new message does to the turn that has started: replaces it if it only waits to be
    resumed by someone, supersedes it if that is the mode, else leaves it alone."""
    if started is None:
        return None
    if started[1] == State.INTERRUPTED:
        return REPLACED
    return SUPERSEDED if setting.update.busy is Busy.INTERRUPT else None


def _steer(setting: Setting, turn: TurnId) -> Op[Reception]:
    update = setting.update
    event = SteerAccepted(
        turn=turn,
        message=setting.fresh.message,
        text=update.text,
        attachments=update.attachments,
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
    )  # fmt: skip
    before = yield from looking_back(place.head)
    claimed = Claimed(
        lease=lease,
        conversation=place.conversation,
        principal=place.principal,
        address=update.address,
        parent=place.head,
        events=tuple(recorded),
        view=place.view,
        has_title=bool(place.title),
        prefix=before.prefix,
        memories=tuple((yield from recall(Person(place.principal, place.conversation)))),
        before=before.interrupted,
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
        persona=setting.place.persona,
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
