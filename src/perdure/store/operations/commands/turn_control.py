"""Handles commands about turns that run or wait."""

from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.inbound.commands import Given
from perdure.domain.inbound.updates import UpdateEffect
from perdure.domain.journal.events import TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Busy
from perdure.domain.sayings.saying import in_one_line, worded
from perdure.domain.turn.endings import is_cut
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.commands.command_result import (
    CommandResult,
    end,
    end_all,
    freed_in,
    ids,
)
from perdure.store.operations.people import quotas
from perdure.store.operations.people.open_groups import in_order
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turns import errands, queueing
from perdure.store.operations.turns.recovery import requeue
from perdure.store.operations.turns.turns import STOPPED
from perdure.store.statement import Op, many, sql_list

_STOPPABLE: Final = sql_list((TurnKind.BACKGROUND, TurnKind.SUMMARY, TurnKind.SCHEDULED))
# Finds the unfinished errands of a conversation that people may stop.
_ERRANDS = f"""
    SELECT t.id FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.conversation_id = $1 AND s.kind IN {_STOPPABLE}
      AND t.outcome IS NULL
    ORDER BY s.opened_at DESC, s.id DESC"""

# The words, in the person's name, of a turn that continues a cut-off answer.
GO_ON: Final = "Continue."
NOT_CUT: Final = worded("Nothing to continue: the last answer here was not cut. /retry asks again.")
# Commands whose arguments are a message.
SAYING: Final = ("queue", "steer")


def stop(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Stop the turn at work; otherwise the interrupted one, the oldest waiting one, or the newest
    errand. With `all`, stop everything."""
    if given.arguments and given.arguments.lower() != "all":
        return CommandResult(worded("/stop stops what is running here, /stop all also what waits."))
    here = in_order(context.open_turns)
    beside = yield from many(TurnId, _ERRANDS, context.conversation)
    turns = (*ids(here), *beside)
    if not turns:
        return CommandResult(worded("Nothing is running here."))
    if given.arguments:
        recorded, ended = yield from end_all(context, turns, cut=STOPPED)
        count = len(ended)
        what = worded("Stopped.") if count == 1 else worded("Stopped {count} turns.", count=count)
        return CommandResult(what, recorded, ended)
    recorded = yield from end(context, turns[:1], cut=STOPPED)
    left = max(len(here) - 1, 0) + len(freed_in(recorded))
    waits = worded("{count} more messages wait.", count=left) if left else ""
    if left == 1:
        waits = worded("1 more message waits.")
    return CommandResult(in_one_line(worded("Stopped."), waits), recorded, turns[:1])


def queue(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Take the words as a message that waits in line."""
    return (yield from _say(context, given, Busy.QUEUE))


def steer(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Take the words as a message to the running turn."""
    return (yield from _say(context, given, Busy.STEER))


def _say(context: TurnContext, given: Given, busy: Busy) -> Op[CommandResult]:
    """Take the words as a message, treated as the command says."""
    said = context.saying(given.arguments, busy)
    received = yield from queueing.take(said, may_overtake=busy is Busy.STEER)
    accepted = received.accepted
    if accepted.effect is UpdateEffect.STEERED:
        reply = worded("Passed on.")
    elif accepted.queue_position:
        reply = worded("Queued; {count} before it.", count=accepted.queue_position)
    else:
        reply = worded("Nothing is before it: answering now.")
    return CommandResult(
        reply,
        list(accepted.recorded),
        accepted.ended,
        turn=accepted.turn,
        effect=accepted.effect,
        claimed=received.claimed,
    )


def go_on(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Continue a cut-off answer: an interrupted turn itself, or a new turn that asks the model to
    continue. That turn is like any other, and can be retried and undone."""
    if context.open_turns:
        return (yield from _resume_first(context))
    head = context.place.head
    events = (yield from journal.of_turn(head)) if head else []
    if head is None or not is_cut(events):
        return CommandResult(NOT_CUT)
    asking = context.saying(GO_ON, Busy.QUEUE)._replace(continues=head)
    received = yield from queueing.take(asking)
    accepted = received.accepted
    return CommandResult(
        worded("Going on."),
        list(accepted.recorded),
        accepted.ended,
        turn=accepted.turn,
        effect=accepted.effect,
        claimed=received.claimed,
    )


def _resume_first(context: TurnContext) -> Op[CommandResult]:
    """Put the interrupted turn back in line; refuse if the first unfinished turn is not
    interrupted."""
    first = context.open_turns[0]
    if first.state != State.INTERRUPTED:
        return CommandResult(
            worded("An answer is on its way here. Say /continue when it is there, and cut.")
        )
    recorded = yield from requeue(first.id, context.stamp)
    return CommandResult(worded("Going on."), recorded, turn=first.id)


def background(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Order an errand that knows the conversation up to here, but not the answer being written
    now."""
    update = context.update
    yield from quotas.insist_on_turn(context.quota, update.principal, update)
    place = context.place
    order = errands.Order(
        TurnKind.BACKGROUND,
        context.session,
        context.conversation,
        context.update.principal,
        place.head,
        context.fresh.message,
        text=given.arguments,
        agent=place.answering,
        persona=place.speaking_as,
        effort=place.effort,
        attachments=context.update.attachments,
        reason="command",
        traits=context.update.traits,
    )
    recorded = yield from errands.begin(order, context.stamp)
    queued = recorded[-1].event
    assert isinstance(queued, TurnQueued)
    is_running = any(turn.state == State.RUNNING for turn in context.open_turns)
    reply = worded("Working on it in the background. The result comes here.")
    if is_running:
        reply = worded(
            "Working on it in the background beside what is running. The result comes here."
        )
    return CommandResult(reply, recorded, turn=queued.turn)
