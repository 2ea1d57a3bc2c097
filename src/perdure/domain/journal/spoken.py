"""Reads what people said in a turn: its message, what was sent as one with it, and steers."""

from perdure.domain.content.forwards import ForwardedText, one_below_the_other
from perdure.domain.journal.events import (
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.kinds import TurnKind


def said_in(turn: list[Recorded]) -> ForwardedText:
    """Return what the person said in a turn, as it is now; or what was sent there from
    elsewhere."""
    amended = {r.event.message: r.event for r in turn if isinstance(r.event, TurnAmended)}
    return one_below_the_other(
        _words(amended.get(each.message, each)) for each in spoken_events(turn)
    )


def _words(spoken: TurnQueued | MessageJoined | SteerTaken | TurnAmended) -> ForwardedText:
    """Return the words of one event."""
    if isinstance(spoken, TurnQueued) and spoken.kind == TurnKind.SENT:
        return ForwardedText(spoken.answer)
    return ForwardedText(spoken.text, spoken.passed_on)


def spoken_events(turn: list[Recorded]) -> list[TurnQueued | MessageJoined | SteerTaken]:
    """Return the events of a turn in which a person says something."""
    return [r.event for r in turn if isinstance(r.event, TurnQueued | MessageJoined | SteerTaken)]
