"""Stored rows as values: what the history port shows and the checker judges."""

import msgspec

from perdure.domain.events import Recorded
from perdure.domain.ids import MessageId, SessionId, TurnId


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


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` names the errand that it was opened for; it is empty where people talk."""

    id: SessionId
    conversation: str
    state: str
    title: str
    parent: SessionId | None
    is_live: bool
    events: int
    opened_at: int
    active_at: int
    kind: str = ""


class PartView(msgspec.Struct, frozen=True, kw_only=True):
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


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that stands for a turn and all before it, and the event that made it, wherever
    that was."""

    turn: TurnId
    id: MessageId
    made: Recorded | None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything stored of one session, for the checker. `summaries_under_way` counts the errands
    that write one for it."""

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
