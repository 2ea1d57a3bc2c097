"""Decides what later requests leave out after a model's server has refused one for its content.

What is refused is what the server has not taken before. That is first of all what is new in the
request: the person's message, and behind tool calls also their results. If the next turns are
refused too, the cause must be older, and more is left out: the turns that this agent has never
answered, and in the end everything. So no refused word can block a conversation for good.

A server that refuses a request without saying why may mean its settings. Then nothing is left out
at the first time, except pictures: they are what such servers most often cannot take.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

import msgspec

from perdure.domain.journal.attachments import as_fetched, places_of
from perdure.domain.journal.events import (
    AssistantSaid,
    Attachment,
    ContentLeftOut,
    LeftOut,
    MessageJoined,
    Recorded,
    SteerTaken,
    ToolFinished,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.left_out import (
    Omissions,
    Spoken,
    key_of,
    last_edits,
    omissions_in,
)
from perdure.domain.journal.session_events import Compacted
from perdure.domain.kinds import UNASKED
from perdure.domain.outcomes import Outcome, Refused, StopReason

# With these statuses a server says that the request itself is wrong, but not what of it.
UNEXPLAINED: Final = frozenset({400, 415, 422})
# The reasons for which turns end that leave something out.
REFUSING: Final = (
    StopReason.CONTENT_REFUSED,
    StopReason.CONTENT_FILTER,
    StopReason.PROVIDER_REJECTED,
)
# After so many refusals in a row, what this agent has never answered is left out too.
_UNANSWERED_AFTER: Final = 1
# After so many refusals in a row, all there is is left out.
_ALL_AFTER: Final = 3

Turn = Sequence[Recorded]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a refusal of a request by an agent's server. `is_about_content`: by the server's words,
    what was asked is the cause; `refused` says what of it, if they tell. Otherwise there is only
    the `status`. `has_vision`: pictures were shown to the agent, not described in words."""

    agent: str
    is_about_content: bool
    refused: Refused | None = None
    status: int = 0
    has_vision: bool = True

    @property
    def is_unexplained(self) -> bool:
        """Tell whether the server did not say what it refused."""
        return not self.is_about_content and self.status in UNEXPLAINED


def left_out_after(refusal: Refusal, turn: Turn, chain: Sequence[Turn]) -> tuple[LeftOut, ...]:
    """Return what the requests after this turn leave out. `chain` holds the turns before it, as
    they were told."""
    known = omissions_in(chain)
    if refusal.has_vision and refusal.refused is not Refused.MESSAGE:
        pictures = _new(_pictures(turn), known)
        if not pictures and refusal.refused is Refused.PICTURE:
            pictures = _new((each for older in chain for each in _pictures(older)), known)
        if pictures:
            return pictures
    in_a_row = _refused_in_a_row(chain, refusal.agent)
    is_explained = refusal.is_about_content and refusal.refused is not Refused.PICTURE
    if not is_explained and not in_a_row:
        return ()
    return (*_own(turn), *_new(_older(chain, refusal.agent, in_a_row), known))


def what_to_do(what: Sequence[LeftOut]) -> str:
    """Return a clause for people about what is left out, and how it comes back."""
    if not what:
        return "/retry sends it again, and /agent chooses another agent"
    if any(not each.part for each in what):
        subject, it = "the message and older ones", "them"
    elif any(each.index is None for each in what):
        subject, it = "the message", "it"
    elif len(what) == 1:
        subject, it = "the picture", "it"
    else:
        subject, it = "the pictures", "them"
    return (
        f"from now on {subject} will be left out; /retry sends {it} again, an edit brings {it} "
        "back, and /agent chooses another agent"
    )


def _new(what: Iterable[LeftOut], known: Omissions) -> tuple[LeftOut, ...]:
    """Return what is not left out already."""
    return tuple(each for each in what if known.get(key_of(each), -1) < each.amended)


def _pictures(turn: Turn) -> Iterator[LeftOut]:
    """Yield the pictures that people have sent in a turn."""
    places, edits = places_of(turn), last_edits(turn)
    for recorded in turn:
        if isinstance(recorded.event, Spoken):
            said = recorded.event
            for index, attachment in enumerate(as_fetched(said, places)):
                if is_shown_picture(attachment):
                    amended = edits.get(said.message, 0)
                    yield LeftOut(turn=said.turn, part=said.message, index=index, amended=amended)


def is_shown_picture(attachment: Attachment) -> bool:
    """Tell whether an agent that can see is shown this file."""
    return attachment.media is not None and attachment.mime.startswith("image/")


def _own(turn: Turn) -> Iterator[LeftOut]:
    """Yield the messages of a turn, and the results that no answer has followed yet."""
    edits = last_edits(turn)
    said = max((r.seq for r in turn if isinstance(r.event, AssistantSaid)), default=0)
    for recorded in turn:
        match recorded.event:
            case TurnQueued(kind=kind) if kind in UNASKED:
                pass
            case TurnQueued() | MessageJoined() | SteerTaken() as event:
                amended = edits.get(event.message, 0)
                yield LeftOut(turn=event.turn, part=event.message, amended=amended)
            case ToolFinished() as event if recorded.seq > said:
                yield LeftOut(turn=event.turn, part=event.call)
            case _:
                pass


def _older(chain: Sequence[Turn], agent: str, in_a_row: int) -> Iterator[LeftOut]:
    """Yield the turns before that may be the cause, after so many refusals in a row."""
    if in_a_row < _UNANSWERED_AFTER:
        return
    newest_first = reversed(chain)
    suspects = (
        newest_first
        if in_a_row >= _ALL_AFTER
        else takewhile(lambda turn: not _is_answered(turn, agent), newest_first)
    )
    for turn in suspects:
        summary = next((r.event for r in turn if isinstance(r.event, Compacted)), None)
        if summary is not None:
            yield LeftOut(part=summary.message)
        elif turn and turn[0].turn:
            amended = last_edits(turn).get(turn[0].turn, 0)
            yield LeftOut(turn=turn[0].turn, amended=amended)


def _refused_in_a_row(chain: Sequence[Turn], agent: str) -> int:
    """Return how many of the newest turns this agent's server has refused."""
    return sum(1 for _ in takewhile(lambda turn: _is_refused(turn, agent), reversed(chain)))


def _settled(turn: Turn) -> TurnSettled | None:
    return next((r.event for r in turn if isinstance(r.event, TurnSettled)), None)


def _is_refused(turn: Turn, agent: str) -> bool:
    settled = _settled(turn)
    if settled is None or settled.agent != agent:
        return False
    status = settled.reach.status if settled.reason == StopReason.PROVIDER_REJECTED else 0
    has_left_out = any(isinstance(recorded.event, ContentLeftOut) for recorded in turn)
    return has_left_out or settled.reason == StopReason.CONTENT_REFUSED or status in UNEXPLAINED


def _is_answered(turn: Turn, agent: str) -> bool:
    """Tell whether this agent has answered the turn, so that its server has taken all before."""
    settled, queued = _settled(turn), turn[0].event if turn else None
    if settled is None or not isinstance(queued, TurnQueued) or queued.kind in UNASKED:
        return False
    is_done = settled.outcome is Outcome.DONE and settled.reason != StopReason.CONTENT_FILTER
    return is_done and settled.agent == agent
