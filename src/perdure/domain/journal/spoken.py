"""Reads what people said in a turn: its message, what was sent as one with it, and steers.

It also tells which other versions of a turn there are: other wordings, and other answers.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from perdure.domain.content.forwards import ForwardedText, one_below_the_other
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import (
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.transcript import Entry
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


class TurnVersions(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the turns with other wordings of a turn's message, one for each wording, and those with
    other answers to it; each with that turn in its place. Empty if there is only one."""

    wordings: tuple[TurnId, ...] = ()
    answers: tuple[TurnId, ...] = ()


NO_VERSIONS: Final = TurnVersions()


def with_versions(entries: Sequence[Entry], versions: Mapping[TurnId, TurnVersions]) -> list[Entry]:
    """Return the entries with the versions of their turns: other wordings at a person's message,
    other answers at the last entry of a turn."""
    last = {entry.turn: entry.id for entry in entries if entry.role == "assistant"}
    told = []
    for entry in entries:
        known = versions.get(entry.turn) if entry.turn is not None else None
        if known is None:
            told.append(entry)
        elif entry.role == "user":
            told.append(msgspec.structs.replace(entry, versions=known.wordings))
        elif last.get(entry.turn) == entry.id:
            told.append(msgspec.structs.replace(entry, answers=known.answers))
        else:
            told.append(entry)
    return told
