"""What people are told of how a turn ended.

Why a turn failed is stored in full, with addresses and the names of settings, for those who run the
gateway. Everybody else is told in a sentence what happened and what they can do. `told` is the one
place that decides between the two; whatever leaves the gateway with a reason in it asks here.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import AssistantSaid, Recorded, TurnSettled
from perdure.domain.journal.reach import Missed, Reach
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.text import sentence


class Audience(StrEnum):
    """OPERATORS run the gateway, and read where nobody else reads along."""

    PEOPLE = "people"
    OPERATORS = "operators"

    @staticmethod
    def of(*, is_operator: bool) -> "Audience":
        return Audience.OPERATORS if is_operator else Audience.PEOPLE


_HAPPENED: Final[Mapping[str, str]] = {
    StopReason.PROVIDER_CUT: "the model broke off before it had finished",
    StopReason.PROVIDER_ERROR: "the model's server failed, or has too much to do",
    StopReason.PROVIDER_REJECTED: "the model's server refused the request",
    StopReason.PROVIDER_TIMEOUT: "the model did not answer in time",
    StopReason.PROVIDER_UNREACHABLE: "the model's server cannot be reached",
    StopReason.CONTEXT_EXCEEDED: (
        "the conversation is too long for the model; /compact shortens it, /new begins another"
    ),
    StopReason.AGENT_ERROR: "the agent failed",
    StopReason.STEPS_EXCEEDED: "it took too many steps",
    StopReason.ANSWER_EXCEEDED: "the model said more than one answer may hold",
    StopReason.TURN_TIMEOUT: "it took too long",
}
# Their details are about what the person asked for, and written for them.
_FOR_EVERYBODY: Final = (StopReason.BUDGET, StopReason.INVALID_REQUEST)
# Only those who run the gateway can do something about these.
ALARMING: Final = frozenset(
    {
        StopReason.PROVIDER_ERROR,
        StopReason.PROVIDER_REJECTED,
        StopReason.PROVIDER_TIMEOUT,
        StopReason.PROVIDER_UNREACHABLE,
        StopReason.AGENT_ERROR,
    }
)
# An agent that fails so is asked again later, or another one is asked.
_AWAY: Final = frozenset(
    {
        StopReason.PROVIDER_CUT,
        StopReason.PROVIDER_ERROR,
        StopReason.PROVIDER_TIMEOUT,
        StopReason.PROVIDER_UNREACHABLE,
    }
)
# Under the words of a turn that somebody else than its agent has ended.
STOPPED_MARK: Final = "(Stopped.)"
REPLACED_MARK: Final = "(Replaced by a newer message.)"
SILENT: Final = "(The agent has answered nothing.)"
SILENT_AT_LAST: Final = "(The agent has answered nothing more.)"
CUT: Final = "(The answer was cut at the model's length limit. /continue goes on.)"
CUT_AT_ONCE: Final = (
    "(There is no answer: the model reached its length limit before the first word. "
    "/retry asks again.)"
)
FILTERED: Final = "(The answer ends here: the model's filter has held back the rest.)"
FILTERED_AT_ONCE: Final = "(There is no answer: the model's filter has held it back.)"


def told(outcome: Outcome | None, reason: str, detail: str, audience: Audience) -> str:
    """Return what this audience may read of why a turn ended so; empty if there is nothing to
    say."""
    if audience is Audience.OPERATORS or not detail or reason in _FOR_EVERYBODY:
        return detail
    if outcome is not Outcome.FAILED:
        return "" if outcome is Outcome.DONE else detail
    return _HAPPENED.get(reason, "the agent failed")


def standing_in(settled_by: str, reach: Reach, audience: Audience) -> str:
    """Return the note under an answer that another agent gave than the one that was asked; empty
    if there was none."""
    others = [each for each in reach.missed if each.agent != settled_by]
    if not settled_by or not others:
        return ""
    return f"Answered by {settled_by}: {'; '.join(_why_not(each, audience) for each in others)}."


def reached(settled: TurnSettled, audience: Audience) -> list[str]:
    """Return a line for each thing that it took to get this turn's answer."""
    reach = settled.reach
    lines = [f"waited {reach.waited_s} s for an agent"] if reach.waited_s else []
    if settled.outcome is Outcome.DONE:
        note = standing_in(settled.agent, reach, audience)
        own = [_why_not(each, audience) for each in reach.missed if each.agent == settled.agent]
        return [*lines, *(f"{each} before it answered" for each in own), *filter(None, [note])]
    # Why the last one did not answer is the turn's own detail.
    others = [each for each in reach.missed if each.agent != settled.agent]
    return [*lines, *(_why_not(each, audience) for each in others)]


def reach_as_told(reach: Reach, audience: Audience) -> Reach:
    """Return a turn's reach with what this audience may read of why agents did not answer."""
    missed = tuple(
        msgspec.structs.replace(
            each, detail=told(Outcome.FAILED, each.reason, each.detail, audience)
        )
        for each in reach.missed
    )
    return msgspec.structs.replace(reach, missed=missed) if missed else reach


def _why_not(missed: Missed, audience: Audience) -> str:
    why = told(Outcome.FAILED, missed.reason, missed.detail, audience)
    state = "was away" if missed.reason in _AWAY else "could not answer"
    return f"{missed.agent} {state} ({why})" if why else f"{missed.agent} {state}"


def is_cut(turn: Sequence[Recorded]) -> bool:
    """Whether a turn's answer has a beginning and was cut before its end, by the model's limit or
    by a failure."""
    settled = next((r.event for r in turn if isinstance(r.event, TurnSettled)), None)
    if settled is None:
        return False
    is_short = settled.outcome is Outcome.DONE and settled.reason == StopReason.LENGTH
    has_text = any(isinstance(r.event, AssistantSaid) and r.event.text.strip() for r in turn)
    return has_text and (is_short or settled.outcome is Outcome.FAILED)


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
    """Return what people on a platform are told of a turn's end beside its text; over HTTP they see
    the outcome itself. `has_text`: something was said in this turn. `is_silent`: nothing was said
    after its last tool call."""
    match outcome:
        case Outcome.REFUSED:
            return detail
        case Outcome.FAILED:
            lead = "The answer ends here" if has_text else "There is no answer"
            why = sentence(told(outcome, reason, detail, audience) or "the agent failed")
            return f"⚠️ {lead}: {why} /retry tries again.{where_to_look(reason, turn, audience)}"
        case Outcome.DONE if reason == StopReason.LENGTH:
            return CUT if has_text else CUT_AT_ONCE
        case Outcome.DONE if reason == StopReason.CONTENT_FILTER:
            return FILTERED if has_text else FILTERED_AT_ONCE
        case Outcome.DONE if is_silent:
            return SILENT_AT_LAST if has_text else SILENT
        case _:
            return ""


def where_to_look(reason: str, turn: TurnId, audience: Audience) -> str:
    """Return the sentence, behind a space, that names the id of a failed turn; empty where all is
    said already."""
    if reason in _FOR_EVERYBODY:
        return ""
    if audience is Audience.OPERATORS:
        return f" `perdure explain {turn}` shows more."
    return f" The operator finds out why with this id: {turn}"
