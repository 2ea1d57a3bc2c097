"""Decides what a turn needs whose request was longer than the model's window, and says what was too
long if nothing helps.

The first refusal of a turn is recorded, and room is sought once: older turns are summarised, and
the request is made again. What came of it is recorded too, so the next attempt does not begin
anew.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import MessageId
from perdure.domain.journal.events import (
    AnyEvent,
    MediaFetched,
    MessageJoined,
    PromptExpanded,
    SteerTaken,
    ToolFinished,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.journal.session_events import RoomSought, WindowExceeded
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.text import sentence
from perdure.domain.turn.errands import plain_line

# A text that takes this share of the window by itself is what is too long.
_TOO_LONG_SHARE: Final = 0.5
_EXCERPT: Final = 60
NOTHING_OLDER: Final = (
    "there is nothing older to leave out, and the agent's instructions and tools take room too"
)
_EVEN_SO: Final = "even with its older part summarised"
_ANOTHER: Final = "/new begins another, /agent chooses another agent"


class _Piece(NamedTuple):
    """Holds a text of the turn: what it is called, and how many tokens it has."""

    name: str
    advice: str
    tokens: int


def refusal_of(events: Sequence[AnyEvent]) -> WindowExceeded | None:
    """Return the newest refusal of the turn's own request because of its length, or None."""
    refused = [each for each in events if isinstance(each, WindowExceeded) and not each.is_summary]
    return refused[-1] if refused else None


def room_sought(events: Sequence[AnyEvent]) -> RoomSought | None:
    """Return what came of seeking room for this turn, or None if that was not done."""
    return next((each for each in events if isinstance(each, RoomSought)), None)


def lacks_room(events: Sequence[AnyEvent]) -> bool:
    """Tell whether room must be sought before the model is asked again."""
    return refusal_of(events) is not None and room_sought(events) is None


def limit_of(refused: WindowExceeded) -> int:
    """Return how many tokens the next request may have. If the window was not named, this is half
    of what was refused, which is used for this turn only."""
    return refused.window or refused.tokens // 2


def too_long(events: Sequence[AnyEvent], *, detail: str = "") -> str:
    """Say what was too long for the model. The first line is for everybody, and the next one, with
    the server's own words in `detail`, is for operators."""
    refused, sought = refusal_of(events), room_sought(events)
    window = f", whose window has {refused.window:,} tokens" if refused and refused.window else ""
    longest = max(_pieces(events), key=lambda each: each.tokens)
    if refused and longest.tokens > limit_of(refused) * _TOO_LONG_SHARE:
        words = (
            f"{longest.name} is too long for the model{window}: it has about"
            f" {longest.tokens:,}; {longest.advice}"
        )
    elif sought is not None and sought.problem:
        words = f"the conversation is too long for the model{window}: {sought.problem}; {_ANOTHER}"
    else:
        even_so = f"{_EVEN_SO}, " if sought is not None and sought.compaction else ""
        words = f"{even_so}the conversation is too long for the model{window}; {_ANOTHER}"
    said = detail or (sought.detail if sought else "")
    return f"{words}\n{sentence(' '.join(said.split()) or 'the server gave no reason')}"


def _pieces(events: Sequence[AnyEvent]) -> Iterator[_Piece]:
    """Yield the texts that the turn itself has in its request."""
    amended: dict[MessageId, str] = {
        each.message: each.text for each in events if isinstance(each, TurnAmended)
    }
    for event in events:
        match event:
            case TurnQueued() | MessageJoined() | SteerTaken():
                text = amended.get(event.message, event.text)
                advice = "send it in smaller parts, or choose another agent with /agent"
                yield _Piece(f"the message “{_excerpt(text)}”", advice, tokens_of(text))
            case MediaFetched(name=name, text=text):
                advice = "send a smaller part of it, or choose another agent with /agent"
                yield _Piece(f"the file “{_excerpt(name)}”", advice, tokens_of(text))
            case PromptExpanded(name=name, text=text):
                advice = "say it in words of your own, or choose another agent with /agent"
                yield _Piece(f"the prompt {name}", advice, tokens_of(text))
            case ToolFinished(result=result):
                advice = "ask for less at once, or choose another agent with /agent"
                yield _Piece(
                    f"the result “{_excerpt(result)}” of a tool", advice, tokens_of(result)
                )
            case _:
                pass


def without_excerpt(words: str) -> str:
    """Return what `too_long` says without the words of people and of tools, for a log."""
    first, line_end, rest = words.partition("\n")
    before, opening, quoted = first.partition("“")
    _, closing, after = quoted.rpartition("”")
    return f"{before}{opening}…{closing}{after}{line_end}{rest}" if closing else words


def _excerpt(text: str) -> str:
    line = plain_line(text[: 4 * _EXCERPT])
    return line if len(line) <= _EXCERPT else f"{line[: _EXCERPT - 1]}…"
