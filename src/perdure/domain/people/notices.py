"""Writes what the gateway tells people about itself, and decides when it does.

The home conversations of operators are told that the node ends and that it is back. A conversation
is told that long work goes on. No model reads any of this.
"""

from typing import Final

import msgspec

from perdure.domain.ids import MessageId, TurnId
from perdure.domain.outcomes import NodeRequest
from perdure.domain.sayings.saying import in_one_line, worded

# The shortest time between two notices of the same kind to the homes. A node that starts again and
# again is not told of each time.
AGAIN_MS: Final = 600_000
_ENDS: Final = {
    NodeRequest.RESTART: worded("The gateway restarts now. Messages are answered when it is back."),
    NodeRequest.STOP: worded("The gateway stops now. Messages are answered when it is back."),
    NodeRequest.NOTHING: worded("The gateway stops now."),
}
_BACK: Final = {
    NodeRequest.RESTART: worded("The gateway is back after a restart."),
    NodeRequest.STOP: worded("The gateway is back."),
    NodeRequest.NOTHING: worded("The gateway is back after a crash."),
}


class NoticeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Says what is told: to the homes that the node ends (`stopping`) and is back (`back`), and to
    a conversation that nothing was shown of its answer for `still_at_work_s`; 0 means never."""

    stopping: bool = True
    back: bool = True
    still_at_work_s: float = 0


class HomesTold(msgspec.Struct, frozen=True, kw_only=True):
    """Holds when the homes were told last that a node ends, and that one is back; 0 for never.
    `is_end_last`: the last that they were told is that a node ends."""

    stopping_at: int = 0
    back_at: int = 0
    is_end_last: bool = False


def is_stopping_told(told: HomesTold, *, now: int) -> bool:
    """Tell whether the homes hear that the node ends."""
    return _is_long_ago(told.stopping_at, now)


def is_back_told(told: HomesTold, *, now: int) -> bool:
    """Tell whether the homes hear that the node is back. If the last that they heard is that it
    ends, they always do."""
    return told.is_end_last or _is_long_ago(told.back_at, now)


def _is_long_ago(at: int, now: int) -> bool:
    """Tell whether an instant is far from now. One far in the future was written by a wrong
    clock."""
    return abs(now - at) >= AGAIN_MS


def stopping_text(asked: NodeRequest) -> str:
    """Return what the homes are told when the node begins to end."""
    return _ENDS[asked]


def back_text(left_for: NodeRequest, *, resumed: int) -> str:
    """Return what the homes are told when the node is back. `left_for` is what the node before was
    asked for when it left, or nothing if it died. `resumed` turns go on that were cut short."""
    if not resumed:
        return _BACK[left_for]
    goes_on = worded("{count:,} answers that were cut short go on.", count=resumed)
    if resumed == 1:
        goes_on = worded("1 answer that was cut short goes on.")
    return in_one_line(_BACK[left_for], goes_on)


def still_text(tools: tuple[str, ...], seconds: float) -> str:
    """Return what a conversation is told whose answer takes long. The tools are at work and, of
    several, the first one for so long; without one it is the answer."""
    span = _span(seconds)
    if not tools:
        return worded("Still at it, for {span} now.", span=span)
    if len(tools) == 1:
        return worded("Still at it: running {tool} for {span}.", tool=tools[0], span=span)
    return worded(
        "Still at it: running {tools} and {last}, for {span}.",
        tools=", ".join(tools[:-1]),
        last=tools[-1],
        span=span,
    )


def still_message(turn: TurnId) -> MessageId:
    """Return the id of the notice that a turn is still at work. There is one for each turn, so it
    is posted once."""
    return MessageId(f"still.{turn}")


def _span(seconds: float) -> str:
    """Return a length of time in words, rounded down."""
    if (count := int(seconds // 3_600)) > 0:
        return worded("1 hour") if count == 1 else worded("{count} hours", count=count)
    if (count := int(seconds // 60)) > 0:
        return worded("1 minute") if count == 1 else worded("{count} minutes", count=count)
    count = int(seconds)
    return worded("1 second") if count == 1 else worded("{count} seconds", count=count)
