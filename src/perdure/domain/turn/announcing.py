"""Writes what people are told about an answer that is cut short when a gateway ends: before it
ends, and afterwards.

People rely on what they are told. So each text says what the recovery policy will do, and under
which condition.
"""

from typing import Final

import msgspec

from perdure.domain.ids import SessionId
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Interruption, NodeRequest, Outcome
from perdure.domain.sayings.saying import worded
from perdure.domain.turn.endings import Audience, worded_reason
from perdure.domain.turn.recovery import Policy, Resume, why

_LEAD: Final = {
    NodeRequest.RESTART: worded("The gateway is about to restart."),
    NodeRequest.STOP: worded("The gateway is about to stop."),
    NodeRequest.NOTHING: worded("The gateway is about to stop."),
}
_NEXT_MESSAGE: Final = worded("your next message goes on from here")
_SAID_SINCE: Final = worded("what was said since is answered")
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the node was asked for, and how long turns have to finish. An interruption after
    that time counts towards the limit; with a time of 0 it does not. `tells_homes`: the operators'
    homes are told too, except the session `asked_in`, in which the restart was asked for."""

    asked: NodeRequest = NodeRequest.STOP
    timeout_s: float = 30
    tells_homes: bool = False
    asked_in: SessionId | None = None


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a turn that runs when a drain begins. `strikes`: how often its session was
    interrupted in a row. `is_followed`: a newer message waits behind it."""

    kind: TurnKind = TurnKind.MESSAGE
    strikes: int = 0
    is_followed: bool = False


def shutdown_text(policy: Policy, drain: Drain, turn: UnderWay) -> str:
    """Return what the people of an active conversation are told when a drain begins."""
    lead = _LEAD[drain.asked]
    if drain.timeout_s and turn.strikes + 1 >= policy.attempts_max:
        wait = _span(int(drain.timeout_s * 1000))
        return worded(
            "{lead} An answer that is not finished in {wait} is given up then, because it was "
            "interrupted too often. What was said so far is kept: /resume goes back to it, and "
            "/retry then asks again.",
            lead=lead,
            wait=wait,
        )
    return worded(
        "{lead} An answer that does not finish in time is kept as it is; {afterwards}.",
        lead=lead,
        afterwards=_afterwards(policy, turn),
    )


def _afterwards(policy: Policy, turn: UnderWay) -> str:
    """Return the second half of the sentence. It distinguishes the same cases as `fate`."""
    then = _SAID_SINCE if turn.is_followed else _NEXT_MESSAGE
    is_on_its_own = turn.kind != TurnKind.MESSAGE or policy.resume is Resume.CONTINUE
    if not is_on_its_own and (policy.resume is Resume.WAIT or turn.is_followed):
        return worded("what was said since is answered afterwards") if turn.is_followed else then
    goes_on = (
        worded("it goes on by itself afterwards")
        if is_on_its_own
        else worded("you will be asked afterwards whether it should go on, unless you write before")
    )
    if turn.kind != TurnKind.MESSAGE or not policy.freshness_ms:
        return goes_on
    return worded(
        "if the gateway is back within {span}, {goes_on}; if it is back later, {then}",
        span=_span(policy.freshness_ms),
        goes_on=goes_on,
        then=then,
    )


def away_text(reason: str, detail: str, patience_s: float) -> str:
    """Return what people are told when a turn has waited for a while for a model that does not
    answer."""
    why = worded_reason(Outcome.FAILED, reason, detail, Audience.PEOPLE)
    span = _span(int(patience_s * 1000))
    return worded(
        "There is no answer yet: {why}. The model is still being tried, for {span} in all. /stop "
        "ends the wait.",
        why=why,
        span=span,
    )


def too_old_text(policy: Policy, reason: Interruption, asked: NodeRequest) -> str:
    """Return what people are told of an answer that was to continue, or to be asked about, and has
    become too old for it."""
    return worded(
        "{why}, and an answer here was cut short. That was more than {span} ago, so it does not go "
        "on by itself: your next message goes on from here, and /retry asks again.",
        why=why(reason, asked),
        span=_span(policy.freshness_ms),
    )


def _span(milliseconds: int) -> str:
    """Return a length of time in words."""
    if milliseconds % _HOUR_MS == 0:
        count = milliseconds // _HOUR_MS
        return worded("an hour") if count == 1 else worded("{count} hours", count=count)
    if milliseconds % _MINUTE_MS == 0:
        count = milliseconds // _MINUTE_MS
        return worded("a minute") if count == 1 else worded("{count} minutes", count=count)
    if milliseconds == 1000:
        return worded("a second")
    return worded("{count:g} seconds", count=milliseconds / 1000)
