"""Tells people which other versions of a message there are: other wordings, and other answers."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.transcript import Entry


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
