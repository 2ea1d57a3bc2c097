"""Notices when the tool calls of a turn go round.

A round is what one answer of the model calls, with the results. It is in vain if all of its calls
were made before in this turn and had the same results then. So a model that goes round in several
steps is noticed like one that makes a single call again and again, and one that waits for a result
to change is not, as soon as it changes. After some rounds in vain the model is told so once, and
after some more the turn ends.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import CallId, MediaId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    AttemptInterrupted,
    SteerTaken,
    ToolFinished,
)
from perdure.domain.outcomes import CallEnding
from perdure.domain.tools.traits import canonical

# After how many rounds in vain, one after the other, the model is told.
VAIN_TOLD: Final = 3
# After how many the turn ends.
VAIN_MAX: Final = 5
VAIN_NOTE: Final = (
    f"[Your last {VAIN_TOLD} rounds of tool calls have brought nothing new: the same calls with "
    "the same results as before. Do not make them again. Try something else, or say what you have "
    f"found and what you need. After {VAIN_MAX} such rounds this answer is ended.]"
)
VAIN: Final = (
    f"the agent made the same tool calls with the same results over and over: {VAIN_MAX} rounds in "
    "a row brought nothing new"
)


class _Made(NamedTuple):
    """Holds a call and what came of it. A file that was made before has the same id again."""

    name: str
    arguments: str
    ending: CallEnding
    result: str
    whole: MediaId | None
    files: tuple[MediaId | None, ...]


def vain_rounds(events: Sequence[AnyEvent]) -> int:
    """Return how many rounds in a row, up to the newest, were in vain."""
    counts = [count for _, count in _counts(events)]
    return counts[-1] if counts else 0


def told_in_vain(events: Sequence[AnyEvent]) -> list[int]:
    """Return the places of the events after which the model is told that it goes round."""
    return [place for place, count in _counts(events) if count == VAIN_TOLD]


def _counts(events: Sequence[AnyEvent]) -> Iterator[tuple[int, int]]:
    """Yield the place of the last result of each round, with how many in a row were in vain
    by then. A person's words and an interruption begin the count anew."""
    seen: set[_Made] = set()
    called: dict[CallId, tuple[str, str]] = {}
    made: list[_Made] = []
    count = 0
    for place, event in enumerate(events):
        match event:
            case AssistantSaid(calls=calls) if calls:
                ours = (each for each in calls if not each.is_callers and not each.is_agents)
                called = {each.id: (each.name, canonical(each.arguments)) for each in ours}
                made = []
            case ToolFinished(call=call) if call in called:
                made.append(_made(*called.pop(call), event))
                if not called:
                    count = count + 1 if seen.issuperset(made) else 0
                    seen.update(made)
                    yield place, count
            case SteerTaken() | AttemptInterrupted():
                count = 0
                yield place, count
            case _:
                pass


def _made(name: str, arguments: str, ended: ToolFinished) -> _Made:
    files = tuple(each.media for each in ended.attachments)
    return _Made(name, arguments, ended.ending, ended.result, ended.whole, files)
