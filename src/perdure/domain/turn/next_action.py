"""Decides what a turn needs next, from what its journal holds.

`next_action` is pure, and the runner has no other branch: it folds the turn's events, asks what is
next, does that, writes it down, and asks again. So a turn can begin or go on at any action. One
that was interrupted between a tool's result and the next model call does not make the call again,
and one whose answer has come goes on with the call that waited for it.
"""

from collections.abc import Sequence

import msgspec

from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId
from perdure.domain.journal.events import (
    AnswerAwaited,
    AnswerReceived,
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.outcomes import Outcome, StopReason


class AskModel(msgspec.Struct, frozen=True):
    """Make one model call."""


class RunCalls(msgspec.Struct, frozen=True):
    """Run these tool calls of the model's last message, in this order."""

    calls: tuple[ToolCall, ...]


class AwaitAnswer(msgspec.Struct, frozen=True):
    """Wait until somebody has answered this question."""

    question: AnswerAwaited


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """Say a text that is known without a model call, and settle the turn with it."""

    text: str
    reason: StopReason


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """End the turn, with whatever was said last."""

    outcome: Outcome
    reason: str
    detail: str = ""


Action = AskModel | RunCalls | AwaitAnswer | Say | Settle


class LastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how the last model call ended, where its answer is not journalled yet: the last answer
    of a turn is written in the transaction that settles the turn."""

    reason: StopReason
    detail: str = ""


class TurnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the decision needs beside the events. `refusal` is why the turn may not begin;
    `steps_max` is how many model calls of one attempt may ask for tools; `questions` are to be
    answered before the calls that they are about may run; `heard` is the end of the model call that
    was made last, if the turn ends with it."""

    refusal: str = ""
    steps_max: int = 50
    questions: tuple[AnswerAwaited, ...] = ()
    heard: LastAnswer | None = None


def next_action(events: Sequence[AnyEvent], known: TurnFacts) -> Action | None:
    """Return what the turn with these events needs next; None if it is settled."""
    queued = events[0] if events else None
    if not isinstance(queued, TurnQueued):
        raise Corrupt("a turn begins with its message; run `perdure verify`")
    if any(isinstance(event, TurnSettled) for event in events):
        return None
    if known.refusal:
        return Settle(outcome=Outcome.REFUSED, reason=known.refusal)
    if queued.answer:
        return Say(text=queued.answer, reason=StopReason(queued.finish or StopReason.STOP))
    if known.heard is not None:
        return _ending(known.heard)
    if question := open_question(events):
        return AwaitAnswer(question)
    if calls := open_calls(events):
        return _run_or_ask(calls, events, known.questions)
    if steps_taken(events) >= known.steps_max:
        detail = f"the turn took more than {known.steps_max} steps"
        return Settle(outcome=Outcome.FAILED, reason=StopReason.STEPS_EXCEEDED, detail=detail)
    return AskModel()


def _run_or_ask(
    calls: Sequence[ToolCall], events: Sequence[AnyEvent], questions: Sequence[AnswerAwaited]
) -> RunCalls | AwaitAnswer:
    """Return the calls up to the first that somebody must be asked about, or that question."""
    answered = {event.question for event in events if isinstance(event, AnswerReceived)}
    to_ask = {each.call: each for each in questions if each.question not in answered}
    free: list[ToolCall] = []
    for call in calls:
        if call.id in to_ask:
            return RunCalls(tuple(free)) if free else AwaitAnswer(to_ask[call.id])
        free.append(call)
    return RunCalls(tuple(free))


def _ending(heard: LastAnswer) -> Settle:
    outcome = Outcome.DONE if heard.reason.is_finish else Outcome.FAILED
    if heard.reason is StopReason.BUDGET:
        outcome = Outcome.REFUSED
    return Settle(outcome=outcome, reason=heard.reason, detail=heard.detail)


def asks_for_our_tools(queued: TurnQueued, reason: StopReason, calls: Sequence[ToolCall]) -> bool:
    """Tell whether an answer asks for tools that run here. The tools that a caller has brought are
    the caller's to run: such an answer ends the turn."""
    return reason is StopReason.TOOL_CALLS and bool(calls) and not queued.tools


def open_calls(events: Sequence[AnyEvent]) -> tuple[ToolCall, ...]:
    """Return the calls that the model has asked for and that have no result, in their order."""
    finished = {event.call for event in events if isinstance(event, ToolFinished)}
    said = (event for event in events if isinstance(event, AssistantSaid))
    return tuple(call for each in said for call in each.calls if call.id not in finished)


def started_calls(events: Sequence[AnyEvent]) -> set[CallId]:
    """Return the ids of the calls that were begun, whether or not they have a result."""
    return {event.call for event in events if isinstance(event, ToolStarted)}


def open_question(events: Sequence[AnyEvent]) -> AnswerAwaited | None:
    """Return the question that the turn has asked and nobody has answered."""
    answered = {event.question for event in events if isinstance(event, AnswerReceived)}
    asked = [event for event in events if isinstance(event, AnswerAwaited)]
    return next((each for each in asked if each.question not in answered), None)


def steps_taken(events: Sequence[AnyEvent]) -> int:
    """Return how many model calls have asked for tools since the turn was last interrupted. A wait
    for an answer is part of a step, so it does not begin the count anew."""
    steps = 0
    for event in events:
        match event:
            case AssistantSaid(calls=calls) if calls:
                steps += 1
            case AttemptInterrupted():
                steps = 0
            case _:
                pass
    return steps
