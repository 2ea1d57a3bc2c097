"""What a watcher of a conversation is told, and where it can go on after a lost connection.

A position names the last thing seen: the journal entry, how many of its events, and how far into
the message being written. Positions sort as text. Replaying the journal from a position gives the
same events as having watched, except that states in between are skipped: only the present one
matters. A conversation that went on in another session is followed there: the watcher hears the
one that was left to its end, and of the next one what is written from then on. The deltas of a
message joined are its text: what a message says beyond those that were told comes as one more,
before the message.
"""

from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import (
    AssistantSaid,
    CommandTaken,
    MessageJoined,
    NoticePosted,
    Recorded,
    SteerAccepted,
    ToolFinished,
    ToolStarted,
    TurnAmended,
    TurnQueued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.transcript import Entry, assistant_entry, call_state, user_entry
from perdure.domain.kinds import TurnKind
from perdure.domain.turn.standing import SessionStanding

ALL_SUBS: Final = 99
# What was being written is over, or a new message begins. A turn that is settled is not among
# them: it may have waited behind the one that speaks.
_ENDERS: Final = (AssistantSaid, TurnStarted)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the running message, from `offset` (in code points) on. Already durable."""

    turn: TurnId
    message: MessageId
    offset: int
    text: str


class ToolNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    turn: TurnId
    call: str
    name: str
    state: str
    result: str | None = None


class OutcomeNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    turn: TurnId
    outcome: str
    reason: str = ""
    detail: str = ""


class StateNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: str
    session: str
    head: TurnId | None
    turn: TurnId | None
    queued: int
    resume_reason: str = ""
    choices: tuple[str, ...] = ()
    title: str = ""


News = Entry | Delta | ToolNews | OutcomeNews | StateNews
NAMES: Final[dict[type[News], str]] = {
    Entry: "message",
    Delta: "delta",
    ToolNews: "tool",
    OutcomeNews: "outcome",
    StateNews: "state",
}


class Position(msgspec.Struct, frozen=True, order=True):
    generation: int
    seq: int
    sub: int = ALL_SUBS
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.generation:06d}-{self.seq:010d}-{self.sub:02d}-{self.offset:09d}"


Told = tuple[Position, News]


class Move(msgspec.Struct, frozen=True):
    """Another session became the live one. The one that was `left` has news up to `left_seq`, the
    new one behind `seq`."""

    generation: int
    left: SessionId
    left_seq: int
    session: SessionId
    seq: int


class JournalStretch(msgspec.Struct, frozen=True):
    """A stretch of one journal, written while its session was the live one: behind `start`, and up
    to the entry `upto`."""

    start: Position
    session: SessionId
    upto: int


def position(text: str) -> Position:
    """Read a `Last-Event-ID`."""
    try:
        generation, seq, sub, offset = (int(part) for part in text.split("-"))
    except ValueError as error:
        raise Rejected(f"{text!r} is not an event id of this server") from error
    return Position(generation, seq, sub, offset)


def news_of(recorded: Recorded, calls: dict[str, str]) -> list[News]:
    """What one journalled fact means to a watcher. `calls` remembers the names of open calls."""
    match recorded.event:
        case TurnQueued() | MessageJoined() | SteerAccepted() as spoken:
            is_sent = isinstance(spoken, TurnQueued) and spoken.kind == TurnKind.SENT
            return [] if is_sent else [user_entry(spoken, recorded.at)]
        case TurnAmended() as amended:
            return [
                Entry(
                    id=amended.message,
                    role="user",
                    text=amended.text,
                    turn=amended.turn,
                    at=recorded.at,
                )
            ]
        case AssistantSaid() as said:
            calls.update({call.id: call.name for call in said.calls})
            return [assistant_entry(said, recorded.at)]
        case ToolStarted(turn=turn, call=call):
            return [ToolNews(turn=turn, call=call, name=calls.get(call, ""), state="started")]
        case ToolFinished(turn=turn, call=call, ending=ending, result=result):
            name = calls.pop(call, "")
            state = call_state(ending)
            return [ToolNews(turn=turn, call=call, name=name, state=state, result=result)]
        case TurnSettled() as settled:
            return [
                OutcomeNews(
                    turn=settled.turn,
                    outcome=settled.outcome,
                    reason=settled.reason,
                    detail=settled.detail,
                )
            ]
        case CommandTaken(message=message, reply=text) | NoticePosted(message=message, text=text):
            choices = getattr(recorded.event, "choices", ())
            return [
                Entry(
                    id=message,
                    role="notice",
                    text=text,
                    turn=getattr(recorded.event, "about", None),
                    at=recorded.at,
                    choices=choices,
                )
            ]
        case _:
            return []


def state_of(standing: SessionStanding) -> StateNews:
    return StateNews(
        state=standing.state,
        session=standing.session,
        head=standing.head,
        turn=standing.turn,
        queued=standing.queued,
        resume_reason=standing.resume_reason,
        choices=standing.choices,
        title=standing.title,
    )


def told_of(
    recorded: Recorded, *, generation: int, shown: int, calls: dict[str, str]
) -> tuple[list[Told], int]:
    """One fact's news with their positions, for a watcher who was shown so much of the message
    being written; and how much of such a message is shown afterwards."""
    event, seq = recorded.event, recorded.seq
    after = 0 if isinstance(event, _ENDERS) else shown
    told: list[Told] = []
    if isinstance(event, AssistantSaid) and event.text[shown:]:
        rest = Delta(turn=event.turn, message=event.message, offset=shown, text=event.text[shown:])
        told.append((Position(generation, seq, 0, len(event.text)), rest))
    news = enumerate(news_of(recorded, calls), start=1)
    told += [(Position(generation, seq, sub, after), each) for sub, each in news]
    return told, after


def missed_in(
    leg: JournalStretch, recorded: Recorded, *, shown: int, calls: dict[str, str]
) -> tuple[list[Told], int]:
    """The same for a watcher who stands at the leg's start. Of the entry that this is in, some news
    may be unseen."""
    start = leg.start
    told, after = told_of(recorded, generation=start.generation, shown=shown, calls=calls)
    unseen = [(at, news) for at, news in told if (at.seq, at.sub) > (start.seq, start.sub)]
    # The position's offset already tells of what comes after its entry; unless the entry's message
    # itself is still to be told.
    is_told = recorded.seq == start.seq and start.sub > 0
    return unseen, shown if is_told else after


def has_seen_state(seen: Position, now: Position) -> bool:
    """States are told after everything else of an entry, and before what is said next."""
    return (seen.generation, seen.seq, seen.sub) == (now.generation, now.seq, ALL_SUBS)
