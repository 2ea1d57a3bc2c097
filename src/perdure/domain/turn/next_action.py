"""Decides what a turn needs next, from the events in its journal.

`next_action` is pure, and the runner decides nothing else: it asks what is next, does that, writes
it down, and asks again. So a turn can begin or continue at any action. A turn that was interrupted
between a tool's result and the next model call does not make the tool call again, and a turn whose
question was answered continues with the call that waited for the answer.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId
from perdure.domain.inbound.named_prompts import PromptFound, names_prompt
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    PromptExpanded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.tools.rounds import VAIN, VAIN_MAX, vain_rounds
from perdure.domain.turn.overflow import lacks_room, room_sought, too_long


class AskModel(msgspec.Struct, frozen=True):
    """Tells the runner to make one model call."""


class MakeRoom(msgspec.Struct, frozen=True):
    """Tells the runner to make the turn's request shorter, because it was longer than the model's
    window."""


class ExpandPrompt(msgspec.Struct, frozen=True):
    """Tells the runner to find out whether this message begins with the name of a prompt of a tool
    server and, if it does, to fetch the prompt's text."""

    text: str


class Summarise(msgspec.Struct, frozen=True):
    """Tells the runner to have a summary written, in as many model calls as that takes."""


class RunCalls(msgspec.Struct, frozen=True):
    """Tells the runner to run these tool calls of the model's last message, in this order."""

    calls: tuple[ToolCall, ...]


class Await(msgspec.Struct, frozen=True):
    """Tells the runner to wait until all of these questions are answered, and until other agents
    have done the work of these calls."""

    questions: tuple[AnswerAwaited, ...]
    delegated: tuple[CallId, ...] = ()


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """Tells the runner to say a text that is known without a model call, and to settle the turn
    with it."""

    text: str
    reason: StopReason


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Tells the runner to end the turn. What was said last is its answer."""

    outcome: Outcome
    reason: str
    detail: str = ""


Action = AskModel | ExpandPrompt | MakeRoom | Summarise | RunCalls | Await | Say | Settle

# The kinds of turns whose message may name a prompt.
_TYPED: Final = (TurnKind.MESSAGE, TurnKind.CALL, TurnKind.BACKGROUND)
WITHHELD: Final = "the model's server refuses to answer this: its filter has held back all of it"


class LastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how the last model call ended if its answer is not in the journal yet: the last answer
    of a turn is written in the transaction that settles the turn. `is_withheld`: the model's server
    has finished an answer and shows nothing of it."""

    reason: StopReason
    detail: str = ""
    is_withheld: bool = False


class TurnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the decision needs besides the events. `refusal` says why the turn may not begin.
    `steps_max` is how many model calls of one attempt may ask for tools. `questions` must be
    answered before the calls that they are about may run, and other agents do the work of the
    `delegated` calls. `heard` is how the last model call ended,
    if the turn ends with it. `has_others`: other agents may answer if this one's window is too
    small. `prompt` is the prompt that the message names, once it was looked for."""

    refusal: str = ""
    steps_max: int = 50
    questions: tuple[AnswerAwaited, ...] = ()
    delegated: frozenset[CallId] = frozenset()
    heard: LastAnswer | None = None
    has_others: bool = False
    prompt: PromptFound | None = None


def next_action(events: Sequence[AnyEvent], known: TurnFacts) -> Action | None:
    """Return what the turn with these events needs next, or None if it is settled."""
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
        return _ending(known.heard, events)
    if questions := open_questions(events):
        return Await(questions)
    if calls := our_open_calls(events):
        return _run_or_wait(calls, events, known)
    if open_calls(events):
        # What is left are calls of tools that the caller has brought, and runs.
        return Settle(outcome=Outcome.DONE, reason=StopReason.TOOL_CALLS)
    return _ask_or_end(queued, events, known)


def _ask_or_end(queued: TurnQueued, events: Sequence[AnyEvent], known: TurnFacts) -> Action:
    """Return the next model call and what must come before it, or how the turn ends because there
    may be none."""
    text = _named_in(queued, events)
    if text and known.prompt is None:
        return ExpandPrompt(text)
    if text and known.prompt is not None and known.prompt.problem:
        return _without_prompt(known.prompt)
    if vain_rounds(events) >= VAIN_MAX:
        reason = StopReason.CALLS_REPEATED
        return Settle(outcome=Outcome.FAILED, reason=reason, detail=VAIN)
    if steps_taken(events) >= known.steps_max:
        detail = f"the turn took more than {known.steps_max} steps"
        return Settle(outcome=Outcome.FAILED, reason=StopReason.STEPS_EXCEEDED, detail=detail)
    if lacks_room(events):
        return MakeRoom()
    sought = room_sought(events)
    if sought is not None and sought.problem and not known.has_others:
        reason = StopReason.CONTEXT_EXCEEDED
        return Settle(outcome=Outcome.FAILED, reason=reason, detail=too_long(events))
    return Summarise() if queued.kind is TurnKind.SUMMARY else AskModel()


def _named_in(queued: TurnQueued, events: Sequence[AnyEvent]) -> str:
    """Return the message of a turn if it may name a prompt that was not expanded, or an empty
    string. What somebody else has written names none, and once the model has spoken, what it was
    asked stays as it was."""
    if queued.kind not in _TYPED:
        return ""
    if any(isinstance(event, PromptExpanded | AssistantSaid) for event in events):
        return ""
    mine = [e for e in events if isinstance(e, TurnAmended) and e.message == queued.message]
    said = mine[-1] if mine else queued
    return said.text if not said.passed_on and names_prompt(said.text) else ""


def _without_prompt(found: PromptFound) -> Settle:
    """Return how a turn ends whose prompt could not be had."""
    if found.is_mistake:
        reason = StopReason.INVALID_REQUEST
        return Settle(outcome=Outcome.REFUSED, reason=reason, detail=found.problem)
    reason = StopReason.PROMPT_FAILED
    return Settle(outcome=Outcome.FAILED, reason=reason, detail=found.problem)


def _run_or_wait(
    calls: Sequence[ToolCall], events: Sequence[AnyEvent], known: TurnFacts
) -> RunCalls | Await:
    """Return the calls that need nobody else. If there are none, return the questions about the
    others and the work that they give away, so that the turn waits once."""
    answered = {event.question for event in events if isinstance(event, AnswerReceived)}
    to_ask = {each.call: each for each in known.questions if each.question not in answered}
    free = tuple(c for c in calls if c.id not in to_ask and c.id not in known.delegated)
    if free:
        return RunCalls(free)
    return Await(
        tuple(to_ask[call.id] for call in calls if call.id in to_ask),
        tuple(call.id for call in calls if call.id in known.delegated),
    )


def _ending(heard: LastAnswer, events: Sequence[AnyEvent]) -> Settle:
    """Return how the turn ends after its last model call."""
    if heard.reason is StopReason.CONTEXT_EXCEEDED:
        detail = too_long(events, detail=heard.detail)
        return Settle(outcome=Outcome.FAILED, reason=heard.reason, detail=detail)
    if heard.is_withheld and _is_for_people(events):
        reason = StopReason.CONTENT_REFUSED
        return Settle(outcome=Outcome.FAILED, reason=reason, detail=WITHHELD)
    outcome = Outcome.DONE if heard.reason.is_finish else Outcome.FAILED
    if heard.reason is StopReason.BUDGET:
        outcome = Outcome.REFUSED
    return Settle(outcome=outcome, reason=heard.reason, detail=heard.detail)


def _is_for_people(events: Sequence[AnyEvent]) -> bool:
    """Tell whether people wait for the turn. A program gets the server's finish marker instead."""
    queued = events[0]
    return isinstance(queued, TurnQueued) and queued.kind is not TurnKind.CALL


def asks_for_our_tools(reason: StopReason, calls: Sequence[ToolCall]) -> bool:
    """Tell whether an answer asks for tools that run here. Tools that the caller brought are run by
    the caller, and an answer that asks for those alone ends the turn."""
    return reason is StopReason.TOOL_CALLS and any(not call.is_callers for call in calls)


def open_calls(events: Sequence[AnyEvent]) -> tuple[ToolCall, ...]:
    """Return the calls that the model has asked for and that have no result, in their order."""
    finished = {event.call for event in events if isinstance(event, ToolFinished)}
    said = (event for event in events if isinstance(event, AssistantSaid))
    return tuple(call for each in said for call in each.calls if call.id not in finished)


def our_open_calls(events: Sequence[AnyEvent]) -> tuple[ToolCall, ...]:
    """Return the open calls that run here, in their order: not those of tools that the caller or
    the agent itself runs."""
    return tuple(call for call in open_calls(events) if not call.is_callers and not call.is_agents)


def started_calls(events: Sequence[AnyEvent]) -> set[CallId]:
    """Return the ids of the calls that have started, whether or not they have a result."""
    return {event.call for event in events if isinstance(event, ToolStarted)}


def open_questions(events: Sequence[AnyEvent]) -> tuple[AnswerAwaited, ...]:
    """Return the questions that the turn has asked and nobody has answered."""
    answered = {event.question for event in events if isinstance(event, AnswerReceived)}
    asked = [event for event in events if isinstance(event, AnswerAwaited)]
    return tuple(each for each in asked if each.question not in answered)


def steps_taken(events: Sequence[AnyEvent]) -> int:
    """Return how many model calls have asked for tools since the turn was last interrupted. A wait
    for an answer is part of a step, so the count goes on after it."""
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
