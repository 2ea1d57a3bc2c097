"""What an interruption leaves behind, and what the model is told of it.

Results that close a cut call are facts and stand in the journal. The guidance around them is a
note: it is built for one request and stored nowhere.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    InterruptionAcknowledged,
    Recorded,
    ToolFinished,
)
from perdure.domain.outcomes import Ending, Interruption
from perdure.domain.prompt import Note

_CLOSING: Final = {
    Ending.UNKNOWN: (
        "The call was cut short and its effect is unknown: it may or may not have happened. "
        "Do not repeat it without asking the person."
    ),
    Ending.INTERRUPTED: "The call was interrupted before it returned. It is safe to call again.",
}
_WHY: Final = {
    Interruption.CRASH: "The gateway stopped unexpectedly",
    Interruption.DRAIN_TIMEOUT: "The gateway was restarted while you were still working",
    Interruption.SHUTDOWN: "The gateway was shut down",
    Interruption.RESTART: "The gateway was restarted",
}


def closing_text(ending: Ending) -> str:
    """The result that stands for a call that never returned."""
    return _CLOSING[ending]


def tail_key(events: Iterable[AnyEvent]) -> str:
    """A stable name of the trailing batch of tool results, empty if the turn does not end so."""
    tail: list[str] = []
    for event in events:
        match event:
            case ToolFinished(call=call, ending=ending, result=result):
                tail += [call, ending, result]
            case AssistantSaid():
                tail = []
            case _:
                pass
    return hashlib.sha256("\0".join(tail).encode()).hexdigest()[:16] if tail else ""


def open_interruption(turn: Sequence[Recorded]) -> Recorded | None:
    """The newest interruption of this turn that the model has not been told of."""
    told = {
        recorded.event.interruption
        for recorded in turn
        if isinstance(recorded.event, InterruptionAcknowledged)
    }
    interruptions = [r for r in turn if isinstance(r.event, AttemptInterrupted)]
    newest = interruptions[-1] if interruptions else None
    return newest if newest and newest.seq not in told else None


def recovery_note(turn: Sequence[Recorded], interruption: Recorded) -> Note:
    """Tell the model, once, what happened and where it stands."""
    event = interruption.event
    assert isinstance(event, AttemptInterrupted)
    before = [recorded.event for recorded in turn if recorded.seq < interruption.seq]
    has_text = any(isinstance(e, AssistantSaid) and e.is_interrupted for e in before)
    endings = [e.ending for e in before if isinstance(e, ToolFinished)]
    lines = [f"[{_WHY[event.reason]} and this turn is being continued.]"]
    if has_text:
        lines.append("The text above was already shown: continue from where it ends.")
    if endings:
        lines.append("The tool results above are already there: do not make those calls again.")
    if Ending.UNKNOWN in endings:
        lines.append("A call marked as unknown may have happened: ask the person first.")
    return Note(" ".join(lines))
