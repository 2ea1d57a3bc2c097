"""Tells a chain of turns as the messages of a request."""

from collections.abc import Sequence

from perdure.domain.journal.events import Recorded, ToolCall
from perdure.domain.journal.left_out import omissions_in, told
from perdure.domain.prompt.prompt import PromptMessage, messages_of
from perdure.domain.prompt.whereabouts import NO_TIMES, Times
from perdure.domain.tools.callers import left_open


def history_of(
    turns: Sequence[Sequence[Recorded]], *, times: Times = NO_TIMES
) -> list[PromptMessage]:
    """Return the messages of a chain of turns, as the requests after it tell them."""
    omissions = omissions_in(turns)
    messages: list[PromptMessage] = []
    before: tuple[ToolCall, ...] = ()
    for turn in turns:
        events = told(turn, omissions)
        messages += messages_of(events, times=times, before=before)
        before = left_open(events)
    return messages


def open_after(turns: Sequence[Sequence[Recorded]]) -> tuple[ToolCall, ...]:
    """Return the calls in the history of these turns that the next message must begin to
    answer."""
    return left_open(told(turns[-1], omissions_in(turns))) if turns else ()
