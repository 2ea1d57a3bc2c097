"""Reads the tools that a program brings with its call, and the results of its own tool calls.

The agent's own calls run here first. Calls of the caller's tools end the turn, and the caller sends
their results with its next message. They are events of the turn of that message, so what is told of
a call depends on the turn that follows: another turn may follow as well, after an undo or because
somebody else has written first. A request tells every call with a result, whichever turn follows
it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId
from perdure.domain.journal.events import (
    AssistantSaid,
    Recorded,
    ToolCall,
    ToolFinished,
    TurnSettled,
)
from perdure.domain.outcomes import Outcome, StopReason

# What the model is told of a call whose result the caller has not sent with its next message.
NO_RESULT: Final = "The program that runs this tool has sent no result of the call."


class CallerResult(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the result of a call that the caller has made, in the caller's words."""

    call: CallId
    text: str


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Tool(msgspec.Struct, frozen=True):
    function: _Named = _Named()


@lru_cache(maxsize=256)
def names_in(tools: str) -> frozenset[str]:
    """Return the names of the tools in JSON text of OpenAI's format. What is no tool has none."""
    if not tools:
        return frozenset()
    try:
        found = msgspec.json.decode(tools, type=tuple[_Tool, ...])
    except msgspec.MsgspecError:
        return frozenset()
    return frozenset(each.function.name for each in found if each.function.name)


def merged_tools(own: str, callers: str) -> str:
    """Return the agent's own tools and after them the caller's, as JSON text in OpenAI's format. If
    both have a tool of one name, it is the caller's. Each tool is written as it came, so the text
    is the same whenever both are."""
    if not own or not callers:
        return own or callers
    taken = names_in(callers)
    kept = [
        tool
        for tool in msgspec.json.decode(own, type=list[msgspec.Raw])
        if msgspec.json.decode(tool, type=_Tool).function.name not in taken
    ]
    brought = msgspec.json.decode(callers, type=list[msgspec.Raw])
    if not kept:
        return callers
    return f"[{b','.join(map(bytes, [*kept, *brought])).decode()}]"


def left_open(turn: Iterable[Recorded]) -> tuple[ToolCall, ...]:
    """Return the calls that a settled turn has left to its caller, in their order."""
    calls: dict[CallId, ToolCall] = {}
    is_left = False
    for recorded in turn:
        match recorded.event:
            case AssistantSaid(calls=asked):
                calls.update({call.id: call for call in asked})
            case ToolFinished(call=call):
                calls.pop(call, None)
            case TurnSettled(outcome=outcome, reason=reason):
                is_left = is_left_to_caller(outcome, reason)
            case _:
                pass
    return tuple(calls.values()) if is_left else ()


def is_left_to_caller(outcome: Outcome, reason: str) -> bool:
    """Tell whether a turn that has ended in this way leaves its open calls to the caller."""
    return outcome is Outcome.DONE and reason == StopReason.TOOL_CALLS


def results_in(turn: Iterable[Recorded]) -> tuple[ToolFinished, ...]:
    """Return the results that the caller has sent with the message of a turn."""
    events = (recorded.event for recorded in turn)
    return tuple(e for e in events if isinstance(e, ToolFinished) and e.is_callers)


def late_result_text(result: ToolFinished) -> str:
    """Return how the model is told a result that cannot stand behind its call any more: the call
    has been given another result, or is not told itself."""
    name = f" of {result.name}" if result.name else ""
    return f"[The result of an earlier call{name}, which came late:]\n{result.result}"


def fitting_results(
    sent: Sequence[CallerResult],
    chain: Sequence[Sequence[Recorded]],
    waiting: Sequence[Sequence[Recorded]] = (),
    *,
    has_words: bool,
) -> list[tuple[CallerResult, ToolCall]]:
    """Return the results of a message that are new, each with its call. Raises `Rejected` for a
    result that belongs to no call.

    `chain` are the turns before the message, oldest first, and `waiting` those that have not ended.
    A program that repeats its whole history sends results once more, so those that were taken
    before are left out if the message has words of its own. Without words there is nothing else in
    it, and the message is refused, unless the turn that took the result has failed: then the result
    may be sent again.
    """
    known = {call.id: call for turn in chain for call in left_open(turn)}
    ended = [turn for turn in chain if is_answered(turn)]
    taken = {result.call for turn in (*ended, *waiting) for result in results_in(turn)}
    fitting = []
    for each in sent:
        call = known.get(each.call)
        if call is None:
            raise _misplaced(each.call, "no call of that id was left to you in this conversation")
        if each.call not in taken:
            fitting.append((each, call))
        elif not has_words:
            raise _misplaced(each.call, "that call has been answered before")
    return fitting


def check_repeats(sent: Iterable[CallerResult]) -> None:
    """Raise `Rejected` if a message has two results of one call."""
    twice = [call for call, times in Counter(each.call for each in sent).items() if times > 1]
    if twice:
        raise _misplaced(twice[0], "the call is answered twice in this request")


def is_answered(turn: Sequence[Recorded]) -> bool:
    """Tell whether a turn has ended with an answer."""
    settled = (r.event for r in turn if isinstance(r.event, TurnSettled))
    return any(each.outcome is Outcome.DONE for each in settled)


def _misplaced(call: str, why: str) -> Rejected:
    return Rejected(
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message "
        f"with 'tool_calls'. `tool_call_id` {call!r}: {why}",
        code="invalid_messages",
    )
