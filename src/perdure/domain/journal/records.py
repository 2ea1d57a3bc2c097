"""Stored rows as values: what the history port shows and the checker judges."""

from typing import Final, Literal

import msgspec

from perdure.domain.ids import MediaId, MessageId, SessionId, TurnId
from perdure.domain.journal.events import Recorded

# Why a turn that has begun does not stand any more.
UNDONE: Final = "undone"
ASKED_AGAIN: Final = "asked_again"


class ToldTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as it is told of a session, with its events. `left` says why it does not stand there
    any more, and is empty where it does; `has_earlier`, whether the session has turns before it.
    Of a turn that is too long for a page these are its last entries, or the last before some place,
    from the number `begins_at` on; entries before that are there only to tell them by."""

    turn: TurnId
    events: tuple[Recorded, ...]
    left: str = ""
    has_earlier: bool = False
    begins_at: int = 0


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    id: TurnId
    session: SessionId
    state: str
    outcome: str | None
    reason: str
    detail: str
    attempts: int
    parent: TurnId | None
    message: MessageId
    queued_at: int
    started_at: int | None
    settled_at: int | None
    fetching: int = 0


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` names the errand that it was opened for; it is empty where people talk."""

    id: SessionId
    conversation: str
    state: str
    title: str
    parent: SessionId | None
    is_live: bool = msgspec.field(name="live")
    events: int
    opened_at: int
    active_at: int
    kind: str = ""


# The step of what came in and could not be taken, among parts that could not go out.
LETTER: Final = "letter"


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is when its state changed last. `is_replayed`: a person had it sent after all."""

    id: str
    message: str
    turn: TurnId | None
    part: int
    adapter: str
    state: str
    attempts: int
    receipt: str
    error: str
    text: str
    step: str = "post"
    address: str = ""
    at: int = 0
    choices: tuple[str, ...] = ()
    media: MediaId | None = None
    is_replayed: bool = False


class AnswerSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a message so far. Of a failed one the text says why, after what there is."""

    state: Literal["pending", "done", "failed"]
    text: str = ""


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that stands for a turn and all before it, and the event that made it, wherever
    that was."""

    turn: TurnId
    id: MessageId
    made: Recorded | None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything stored of one session, for the checker. Its turns stand as they do in line;
    `fetches` counts the files that are still to come, by turn; `summaries_under_way` counts the
    errands that write one for it; `told` is, by turn, the newest of its interruptions that the
    model has been told of."""

    session: SessionView
    epoch: int
    head: TurnId | None
    ready_at: int | None
    strikes: int
    turns: tuple[TurnView, ...]
    events: tuple[Recorded, ...]
    partials: tuple[TurnId, ...]
    parts: tuple[PartView, ...]
    updates: tuple[tuple[str, TurnId | None, MessageId], ...]
    summaries: tuple[SummaryView, ...] = ()
    summaries_under_way: int = 0
    fetches: tuple[tuple[TurnId, int], ...] = ()
    told: tuple[tuple[TurnId, int], ...] = ()
