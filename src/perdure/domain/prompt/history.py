"""Tells a chain of turns as the messages of a request."""

from collections.abc import Sequence

from perdure.domain.journal.events import Recorded
from perdure.domain.journal.left_out import omissions_in, told
from perdure.domain.prompt.prompt import PromptMessage, messages_of
from perdure.domain.prompt.whereabouts import NO_TIMES, Times


def history_of(
    turns: Sequence[Sequence[Recorded]], *, times: Times = NO_TIMES
) -> list[PromptMessage]:
    """Return the messages of a chain of turns, as the requests after it tell them."""
    omissions = omissions_in(turns)
    return [
        message for events in turns for message in messages_of(told(events, omissions), times=times)
    ]
