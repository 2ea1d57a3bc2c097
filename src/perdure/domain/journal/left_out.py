"""Leaves out of requests what a model's server has refused to take.

A refusal is recorded on the turn that failed by it, with what the requests after it leave out:
pictures, messages, tool results, or whole turns. It holds as long as that turn is on the chain. So
a retry, which puts the failed turn beside the chain, brings everything back, and so does an edit of
the message itself: only edits that were known when it was refused are covered.

The journal stays as it is. `told` returns a turn's events as the model is told them, with a fixed
line in the place of what is left out, so that the roles alternate as they did before.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from perdure.domain.journal.attachments import FileEnds, as_fetched, places_of
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    ContentLeftOut,
    LeftOut,
    MediaFetched,
    MediaLost,
    MessageJoined,
    PromptExpanded,
    Recorded,
    SteerTaken,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.session_events import Compacted

MESSAGE_LEFT_OUT: Final = "[What stood here was left out: the model's server refuses to take it.]"
RESULT_LEFT_OUT: Final = "The result was left out: the model's server refuses to take it."
PICTURE_LEFT_OUT: Final = "left out, because the model's server refuses to take it"

# What is left out, each with the number of the last edit that it covers: turns, messages and
# results by their ids, and attachments by the message and their number in it.
Omissions = Mapping[tuple[str, int | None], int]
NO_OMISSIONS: Final[Omissions] = MappingProxyType({})

Spoken = TurnQueued | MessageJoined | SteerTaken


def key_of(what: LeftOut) -> tuple[str, int | None]:
    """Return the key under which `Omissions` hold something."""
    return what.part or what.turn or "", what.index


def omissions_in(turns: Iterable[Iterable[Recorded]]) -> Omissions:
    """Return what the requests after these turns leave out."""
    return omissions_of(
        each
        for events in turns
        for recorded in events
        if isinstance(recorded.event, ContentLeftOut)
        for each in recorded.event.what
    )


def omissions_of(what: Iterable[LeftOut]) -> Omissions:
    """Return what is left out, in a form in which it is found. Later refusals come last."""
    return {key_of(each): each.amended for each in what} or NO_OMISSIONS


def leaves_something_out(turn: Iterable[Recorded]) -> bool:
    """Tell whether the requests after this turn leave something out because of it."""
    return any(isinstance(recorded.event, ContentLeftOut) for recorded in turn)


def last_edits(turn: Iterable[Recorded]) -> dict[str, int]:
    """Return the number of each message's last edit, and under the turn's id that of the last edit
    of any of its messages."""
    edits: dict[str, int] = {}
    for recorded in turn:
        if isinstance(recorded.event, TurnAmended):
            edits |= {recorded.event.message: recorded.seq, recorded.event.turn: recorded.seq}
    return edits


class Omitted:
    """Tells what of one turn is left out."""

    def __init__(self, turn: Iterable[Recorded], omissions: Omissions) -> None:
        self._edits = last_edits(turn)
        self._omissions = omissions

    def turn(self, recorded: Recorded) -> bool:
        """Tell whether the turn of this event is left out as a whole."""
        return self._is_out(recorded.turn or "")

    def part(self, recorded: Recorded) -> bool:
        """Tell whether the message or result of this event is left out, alone or with its turn."""
        return self.turn(recorded) or self._is_out(_part_of(recorded.event))

    def picture(self, message: str, index: int) -> bool:
        """Tell whether this attachment of a message is left out."""
        return self._is_out(message, index)

    def says(self, recorded: Recorded) -> str:
        """Return a word for what people read as one entry: `message` if requests leave out all of
        it, `pictures` if they leave out some of its files, or nothing."""
        event = recorded.event
        if self.part(recorded):
            return "message"
        count = len(event.attachments) if isinstance(event, Spoken) else 0
        is_cut = any(self.picture(_part_of(event), index) for index in range(count))
        return "pictures" if is_cut else ""

    def _is_out(self, name: str, index: int | None = None) -> bool:
        covered = self._omissions.get((name, index)) if name else None
        return covered is not None and self._edits.get(name, 0) <= covered


def told(turn: Sequence[Recorded], omissions: Omissions) -> Sequence[Recorded]:
    """Return a turn's events as the requests after it tell them."""
    if not omissions:
        return turn
    omitted, places = Omitted(turn, omissions), places_of(turn)
    kept = (_told(recorded, omitted, places) for recorded in turn)
    return [recorded for recorded in kept if recorded is not None]


def _told(recorded: Recorded, omitted: Omitted, places: FileEnds) -> Recorded | None:
    """Return one event as it is told, or None if nothing takes its place."""
    event: AnyEvent = recorded.event
    is_out = omitted.part(recorded)
    match event:
        case TurnQueued() | MessageJoined() | SteerTaken() if is_out:
            line = MESSAGE_LEFT_OUT
            event = msgspec.structs.replace(event, text=line, attachments=(), passed_on=())
        case TurnQueued() | MessageJoined() | SteerTaken():
            event = _without_pictures(event, omitted, places)
        case Compacted() if is_out:
            event = msgspec.structs.replace(event, summary=MESSAGE_LEFT_OUT)
        case ToolFinished() if is_out and not omitted.turn(recorded):
            event = msgspec.structs.replace(event, result=RESULT_LEFT_OUT, whole=None, size=0)
        case AssistantSaid() | ToolStarted() | ToolFinished() | TurnAmended() if is_out:
            return None
        case PromptExpanded() if is_out:  # it goes with the message that names the prompt
            return None
        case MediaFetched(message=message, index=index) | MediaLost(message=message, index=index):
            return None if omitted.picture(message, index) else recorded
        case _:
            return recorded
    return msgspec.structs.replace(recorded, event=event)


def _without_pictures(event: Spoken, omitted: Omitted, places: FileEnds) -> Spoken:
    """Return a message in which a reason stands in the place of each file that is left out."""
    files = as_fetched(event, places)
    kept = tuple(
        _left_out(each) if omitted.picture(event.message, index) else each
        for index, each in enumerate(files)
    )
    return event if kept == files else msgspec.structs.replace(event, attachments=kept)


def _left_out(attachment: Attachment) -> Attachment:
    return Attachment(mime=attachment.mime, name=attachment.name, problem=PICTURE_LEFT_OUT)


def _part_of(event: AnyEvent) -> str:
    """Return the id under which an event's message or result is left out."""
    if isinstance(event, ToolFinished):
        return event.call
    return str(getattr(event, "message", ""))
