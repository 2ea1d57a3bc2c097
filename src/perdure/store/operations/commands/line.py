"""Commands about what runs and what waits."""

from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.inbound.commands import Given
from perdure.domain.inbound.updates import Effect
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Busy
from perdure.domain.turn.endings import is_cut
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.commands.given import (
    Taken,
    end,
    end_all,
    freed_in,
    ids,
)
from perdure.store.operations.people import quotas
from perdure.store.operations.setting import Setting
from perdure.store.operations.turns import errands, queueing
from perdure.store.operations.turns.recovery import requeue
from perdure.store.operations.turns.turns import STOPPED
from perdure.store.statement import Op, many

# Finds the errands of a conversation that people may stop.
_ERRANDS = """
    SELECT t.id FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.conversation_id = $1 AND s.kind IN ('background', 'summary') AND t.outcome IS NULL
    ORDER BY s.opened_at DESC, s.id DESC"""

# What a turn that goes on with a cut answer says for its person.
GO_ON: Final = "Continue."
NOT_CUT: Final = "Nothing to continue: the last answer here was not cut. /retry asks again."
# Commands whose words are a message.
SAYING: Final = ("queue", "steer")
# Which is meant first.
_RANK: Final = {State.RUNNING: 0, State.WAITING: 0, State.INTERRUPTED: 1, State.QUEUED: 2}


def stop(setting: Setting, given: Given) -> Op[Taken]:
    """Stop the turn at work, else the interrupted one, else the oldest that waits, else the newest
    errand; others stay."""
    if given.arguments and given.arguments.lower() != "all":
        return Taken("/stop stops what is running here, /stop all also what waits.")
    here = sorted(setting.open_turns, key=lambda turn: _RANK[State(turn.state)])
    beside = yield from many(TurnId, _ERRANDS, setting.conversation)
    turns = (*ids(here), *beside)
    if not turns:
        return Taken("Nothing is running here.")
    if given.arguments:
        recorded, ended = yield from end_all(setting, turns, cut=STOPPED)
        what = "Stopped." if len(ended) == 1 else f"Stopped {len(ended)} turns."
        return Taken(what, recorded, ended)
    recorded = yield from end(setting, turns[:1], cut=STOPPED)
    left = max(len(here) - 1, 0) + len(freed_in(recorded))
    waits = f" {left} more {'message waits' if left == 1 else 'messages wait'}." if left else ""
    return Taken("Stopped." + waits, recorded, turns[:1])


def queue(setting: Setting, given: Given) -> Op[Taken]:
    return (yield from _say(setting, given, Busy.QUEUE))


def steer(setting: Setting, given: Given) -> Op[Taken]:
    return (yield from _say(setting, given, Busy.STEER))


def _say(setting: Setting, given: Given, busy: Busy) -> Op[Taken]:
    """Take the words as a message, in the way that was asked for."""
    said = setting.saying(given.arguments, busy)
    received = yield from queueing.take(said, may_overtake=busy is Busy.STEER)
    accepted = received.accepted
    if accepted.effect is Effect.STEERED:
        reply = "Passed on."
    elif accepted.queue_position:
        reply = f"Queued; {accepted.queue_position} before it."
    else:
        reply = "Nothing is before it: answering now."
    return Taken(
        reply,
        list(accepted.recorded),
        accepted.ended,
        turn=accepted.turn,
        effect=accepted.effect,
        claimed=received.claimed,
    )


def go_on(setting: Setting, given: Given) -> Op[Taken]:
    """Continue an answer that was cut: an interrupted turn itself, else by a turn of its own that
    asks the model to go on. That turn is like any other, and can be retried and undone."""
    if setting.open_turns:
        return (yield from _resume_first(setting))
    head = setting.place.head
    events = (yield from journal.of_turn(head)) if head else []
    if head is None or not is_cut(events):
        return Taken(NOT_CUT)
    asking = setting.saying(GO_ON, Busy.QUEUE)._replace(continues=head)
    received = yield from queueing.take(asking)
    accepted = received.accepted
    return Taken(
        "Going on.",
        list(accepted.recorded),
        accepted.ended,
        turn=accepted.turn,
        effect=accepted.effect,
        claimed=received.claimed,
    )


def _resume_first(setting: Setting) -> Op[Taken]:
    first = setting.open_turns[0]
    if first.state != State.INTERRUPTED:
        return Taken("An answer is on its way here. Say /continue when it is there, and cut.")
    recorded = yield from requeue(first.id, setting.stamp)
    return Taken("Going on.", recorded, turn=first.id)


def background(setting: Setting, given: Given) -> Op[Taken]:
    """Send an errand that knows the conversation up to here, and not what is being answered right
    now."""
    update = setting.update
    yield from quotas.insist_on_turn(setting.quota, update.principal, update)
    place = setting.place
    order = errands.Order(
        TurnKind.BACKGROUND,
        setting.session,
        setting.conversation,
        setting.update.principal,
        place.head,
        setting.fresh.message,
        text=given.arguments,
        agent=place.agent,
        persona=place.persona,
        attachments=setting.update.attachments,
        reason="command",
        traits=setting.update.traits,
    )
    recorded = yield from errands.begin(order, setting.stamp)
    queued = recorded[-1].event
    assert isinstance(queued, TurnQueued)
    is_running = any(turn.state == State.RUNNING for turn in setting.open_turns)
    beside = " beside what is running" if is_running else ""
    reply = f"Working on it in the background{beside}. The result comes here."
    return Taken(reply, recorded, turn=queued.turn)
