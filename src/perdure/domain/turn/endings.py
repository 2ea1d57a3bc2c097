"""Writes what people are told about how a turn ended.

The reason for a failure is stored in full, with addresses and the names of settings, for the
operators of the gateway. Everybody else is told in one sentence what happened and what they can do.
`told` is the one place that decides between the two, and every text with a reason that leaves the
gateway is made with it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import AssistantSaid, Recorded, TurnSettled
from perdure.domain.journal.model.reach import Missed, Reach
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.sayings.saying import as_sentence, in_one_line, worded
from perdure.domain.text import sentence


class Audience(StrEnum):
    """Says who reads a text. OPERATORS run the gateway, and read where nobody else reads along."""

    PEOPLE = "people"
    OPERATORS = "operators"

    @staticmethod
    def of(*, is_operator: bool) -> "Audience":
        """Return the audience that a person belongs to."""
        return Audience.OPERATORS if is_operator else Audience.PEOPLE


_HAPPENED: Final[Mapping[str, str]] = {
    StopReason.PROVIDER_CUT: worded("the model broke off before it had finished"),
    StopReason.PROVIDER_ERROR: worded("the model's server failed, or has too much to do"),
    StopReason.PROVIDER_REJECTED: worded("the model's server refused the request"),
    StopReason.PROVIDER_TIMEOUT: worded("the model did not answer in time"),
    StopReason.PROVIDER_UNREACHABLE: worded("the model's server cannot be reached"),
    StopReason.CONTEXT_EXCEEDED: worded(
        "the conversation is too long for the model; /compact shortens it, /new begins another"
    ),
    StopReason.PROMPT_FAILED: worded(
        "the server that has this prompt could not be asked for its text"
    ),
    StopReason.AGENT_ERROR: worded("the agent failed"),
    StopReason.STEPS_EXCEEDED: worded("it took too many steps"),
    StopReason.CALLS_REPEATED: worded("it made the same tool calls over and over, and got nowhere"),
    StopReason.ANSWER_EXCEEDED: worded("the model said more than one answer may hold"),
    StopReason.TURN_TIMEOUT: worded("it took too long"),
}
_FAILED: Final = _HAPPENED[StopReason.AGENT_ERROR]
# The details of these reasons are about the person's own request, and written for that person.
_FOR_EVERYBODY: Final = (StopReason.BUDGET, StopReason.CONTENT_REFUSED, StopReason.INVALID_REQUEST)
# Reasons about which only the operators of the gateway can do something.
ALARMING: Final = frozenset(
    {
        StopReason.PROVIDER_ERROR,
        StopReason.PROVIDER_REJECTED,
        StopReason.PROVIDER_TIMEOUT,
        StopReason.PROVIDER_UNREACHABLE,
        StopReason.AGENT_ERROR,
    }
)
# After these reasons the agent is asked again later, or another agent is asked.
_AWAY: Final = frozenset(
    {
        StopReason.PROVIDER_CUT,
        StopReason.PROVIDER_ERROR,
        StopReason.PROVIDER_TIMEOUT,
        StopReason.PROVIDER_UNREACHABLE,
    }
)
# The lines below the text of a turn that a person ended, by a stop or by a newer message.
STOPPED_MARK: Final = worded("(Stopped.)")
REPLACED_MARK: Final = worded("(Replaced by a newer message.)")
SILENT: Final = worded("(The agent has answered nothing.)")
SILENT_AT_LAST: Final = worded("(The agent has answered nothing more.)")
CUT: Final = worded("(The answer was cut at the model's length limit. /continue goes on.)")
CUT_AT_ONCE: Final = worded(
    "(There is no answer: the model reached its length limit before the first word. "
    "/retry asks again.)"
)
FILTERED: Final = worded("(The answer ends here: the model's filter has held back the rest.)")
FILTERED_AT_ONCE: Final = worded("(There is no answer: the model's filter has held it back.)")


# What these say already tells people what to do.
_SAY_WHAT_TO_DO: Final = (StopReason.CONTEXT_EXCEEDED, StopReason.CONTENT_REFUSED)
_SHORT: Final[Mapping[str, str]] = {
    StopReason.LENGTH: "The answer was cut at the model's length limit. /continue goes on.",
    StopReason.CONTENT_FILTER: "The model's filter has held back the rest.",
}
_ENDED: Final[Mapping[Outcome, str]] = {
    Outcome.SUPERSEDED: "A newer message took its place.",
    Outcome.INTERRUPTED: "The gateway ended in the middle of the answer. /retry asks again.",
    Outcome.SUSPENDED: (
        "It was interrupted too often and is given up. The next message begins a new session; "
        "/resume goes back."
    ),
}


def visible_reason(outcome: Outcome | None, reason: str, detail: str, audience: Audience) -> str:
    """Return as plain text what this audience may read about why a turn ended, or an empty string
    if there is nothing to say."""
    return str(worded_reason(outcome, reason, detail, audience))


def worded_reason(outcome: Outcome | None, reason: str, detail: str, audience: Audience) -> str:
    """Return why a turn ended as `visible_reason` does, in a form that can be put into the language
    of its reader."""
    words, _, own_words = detail.partition("\n")
    if reason == StopReason.CONTEXT_EXCEEDED and own_words:
        # What was too long is written for everybody; the server's own words stand on the next line.
        return f"{words}. {own_words}" if audience is Audience.OPERATORS else words
    if audience is Audience.OPERATORS or not detail or reason in _FOR_EVERYBODY:
        return detail
    if outcome is not Outcome.FAILED:
        return "" if outcome is Outcome.DONE else detail
    return _HAPPENED.get(reason, _FAILED)


def standing_in(settled_by: str, reach: Reach, audience: Audience) -> str:
    """Return the note below an answer that was not given by the agent that was asked first. It is
    empty if that agent answered."""
    others = [each for each in reach.missed if each.agent != settled_by]
    if not settled_by or not others:
        return ""
    return f"Answered by {settled_by}: {'; '.join(_why_not(each, audience) for each in others)}."


def reached(settled: TurnSettled, audience: Audience) -> list[str]:
    """Return a line for each thing that it took to get a turn's answer."""
    reach = settled.reach
    lines = [f"waited {reach.waited_s} s for an agent"] if reach.waited_s else []
    if settled.outcome is Outcome.DONE:
        note = standing_in(settled.agent, reach, audience)
        own = [_why_not(each, audience) for each in reach.missed if each.agent == settled.agent]
        return [*lines, *(f"{each} before it answered" for each in own), *filter(None, [note])]
    # The turn's own detail says already why the last agent did not answer.
    others = [each for each in reach.missed if each.agent != settled.agent]
    return [*lines, *(_why_not(each, audience) for each in others)]


def reach_as_told(reach: Reach, audience: Audience) -> Reach:
    """Return a turn's reach with what this audience may read about why agents did not answer."""
    missed = tuple(
        msgspec.structs.replace(
            each, detail=visible_reason(Outcome.FAILED, each.reason, each.detail, audience)
        )
        for each in reach.missed
    )
    return msgspec.structs.replace(reach, missed=missed) if missed else reach


def _why_not(missed: Missed, audience: Audience) -> str:
    """Return why an agent did not answer, as a clause that begins with its name."""
    why = visible_reason(Outcome.FAILED, missed.reason, missed.detail, audience)
    state = "was away" if missed.reason in _AWAY else "could not answer"
    return f"{missed.agent} {state} ({why})" if why else f"{missed.agent} {state}"


def is_cut(turn: Sequence[Recorded]) -> bool:
    """Tell whether a turn's answer has a beginning and was cut before its end, by the model's limit
    or by a failure."""
    settled = next((r.event for r in turn if isinstance(r.event, TurnSettled)), None)
    if settled is None:
        return False
    is_short = settled.outcome is Outcome.DONE and settled.reason == StopReason.LENGTH
    has_text = any(isinstance(r.event, AssistantSaid) and r.event.text.strip() for r in turn)
    return has_text and (is_short or settled.outcome is Outcome.FAILED)


def offered_after(outcome: Outcome, reason: str, *, has_text: bool) -> tuple[str, ...]:
    """Return the commands that are offered as buttons under an answer: to continue it, if it
    reached the model's limit."""
    is_short = outcome is Outcome.DONE and reason == StopReason.LENGTH
    return ("/continue",) if is_short and has_text else ()


def in_a_sentence(outcome: Outcome, reason: str, detail: str) -> str:
    """Return how a turn ended, in words for everybody: what happened, and what to do. It is empty
    if there is nothing to say besides the answer."""
    match outcome:
        case Outcome.REFUSED:
            return detail
        case Outcome.FAILED:
            told = visible_reason(outcome, reason, detail, Audience.PEOPLE)
            words = told or _HAPPENED.get(reason, _FAILED)
            why = sentence(words[:1].upper() + words[1:])
            return why if reason in _SAY_WHAT_TO_DO else f"{why} /retry asks again."
        case Outcome.DONE:
            return _SHORT.get(reason, "")
        case Outcome.STOPPED:
            return sentence(f"It was stopped: {detail}") if detail else "It was stopped."
        case _:
            return _ENDED[outcome]


def ending_text(  # noqa: PLR0913 - all that the words depend on
    outcome: Outcome,
    reason: str,
    detail: str,
    *,
    turn: TurnId,
    audience: Audience,
    has_text: bool,
    is_silent: bool,
) -> str:
    """Return what people on a platform are told about a turn's end besides its text. Over HTTP they
    see the outcome itself. `has_text`: something was said in this turn. `is_silent`: nothing was
    said after its last tool call."""
    match outcome:
        case Outcome.REFUSED:
            return detail
        case Outcome.FAILED:
            why = as_sentence(worded_reason(outcome, reason, detail, audience) or _FAILED)
            told = worded("⚠️ There is no answer: {why}", why=why)
            if has_text:
                told = worded("⚠️ The answer ends here: {why}", why=why)
            # A refusal says by itself what to do.
            is_clear = reason == StopReason.CONTENT_REFUSED
            again = "" if is_clear else worded("/retry tries again.")
            return in_one_line(told, again, where_to_look(reason, turn, audience))
        case Outcome.DONE if reason == StopReason.LENGTH:
            return CUT if has_text else CUT_AT_ONCE
        case Outcome.DONE if reason == StopReason.CONTENT_FILTER:
            return FILTERED if has_text else FILTERED_AT_ONCE
        case Outcome.DONE if is_silent:
            return SILENT_AT_LAST if has_text else SILENT
        case _:
            return ""


def where_to_look(reason: str, turn: TurnId, audience: Audience) -> str:
    """Return a sentence that names the id of a failed turn. It is empty if the person has been told
    everything."""
    if reason in _FOR_EVERYBODY:
        return ""
    if audience is Audience.OPERATORS:
        return worded("`perdure explain {turn}` shows more.", turn=turn)
    return worded("The operator finds out why with this id: {turn}", turn=turn)
