"""Tells a chain of turns as the messages of a request."""

from collections.abc import Sequence

import msgspec

from perdure.domain.journal.events import Recorded, ToolCall, TurnQueued
from perdure.domain.journal.left_out import omissions_in, told
from perdure.domain.prompt.prompt import PromptMessage, messages_of
from perdure.domain.prompt.whereabouts import NO_TIMES, Times
from perdure.domain.tools.callers import left_open


def history_of(
    turns: Sequence[Sequence[Recorded]], *, times: Times = NO_TIMES, with_overheard: bool = True
) -> list[PromptMessage]:
    """Return the messages of a chain of turns, as the requests after it tell them.
    `with_overheard`: also what others said before each message."""
    omissions = omissions_in(turns)
    messages: list[PromptMessage] = []
    before: tuple[ToolCall, ...] = ()
    for turn in turns:
        events = told(turn, omissions)
        said = events if with_overheard else [_without_overheard(each) for each in events]
        messages += messages_of(said, times=times, before=before)
        before = left_open(events)
    return messages


def _without_overheard(recorded: Recorded) -> Recorded:
    """Return an event without what others said before the message."""
    if not isinstance(recorded.event, TurnQueued) or not recorded.event.overheard:
        return recorded
    event = msgspec.structs.replace(recorded.event, overheard=())
    return msgspec.structs.replace(recorded, event=event)


def open_after(turns: Sequence[Sequence[Recorded]]) -> tuple[ToolCall, ...]:
    """Return the calls in the history of these turns that the next message must begin to
    answer."""
    return left_open(told(turns[-1], omissions_in(turns))) if turns else ()
