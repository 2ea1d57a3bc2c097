"""Holds stored rows as values, which the history port returns and the checker judges."""

from typing import Final, Literal

import msgspec

from perdure.domain.ids import (
    CallId,
    MediaId,
    MessageId,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.events import LeftOut, Recorded

# Why a turn that has begun is not on its session's chain any more.
UNDONE: Final = "undone"
ASKED_AGAIN: Final = "asked_again"


class ToldTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a turn of a session with its events. `left` says why the turn is not on the session's
    chain any more, and is empty if it is. `has_earlier` tells whether the session has turns before
    it. If the turn is too long for a page, `events` are only its last ones, or the last before some
    place, from the number `begins_at` on; events before that number are included only because the
    others cannot be shown without them. `left_out` is what turns on the session's chain leave
    out of the requests after them."""

    turn: TurnId
    events: tuple[Recorded, ...]
    left: str = ""
    has_earlier: bool = False
    begins_at: int = 0
    left_out: tuple[LeftOut, ...] = ()


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a turn. `fetching` counts its files that are still to come; `ending` says in a sentence
    how it ended, and `renews_at` when the budget renews that has refused it."""

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
    ending: str = ""
    renews_at: int = 0


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a session. `kind` names the errand that it was opened for, and is empty where people
    talk."""

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


# The `step` of a message that came in and could not be accepted; it is listed with parked parts.
LETTER: Final = "letter"


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a part of a reply. `at` is when its state last changed. `is_replayed`: a person had it
    sent after all."""

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
    """Holds what came of a message so far. If it failed, the text ends with the reason."""

    state: Literal["pending", "done", "failed"]
    text: str = ""


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a summary that represents a turn and all turns before it. `made` is the event that made
    it, in whichever journal that is."""

    turn: TurnId
    id: MessageId
    made: Recorded | None


class QuestionView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a question. `arguments` are the JSON text of the `call` that it is about, and
    `grants` says in words what may be allowed beyond that call."""

    id: QuestionId
    kind: str
    turn: TurnId
    call: str
    conversation: str
    tool: str
    arguments: str
    text: str
    choices: tuple[str, ...]
    deadline: int
    asked_at: int
    state: str
    answer: str = ""
    scope: str = ""
    answered_by: str = ""
    answered_at: int | None = None
    grants: str = ""


class EffectView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a call whose fate was unknown when it was cut short. `late_result` is what the tool
    returned after all, once the turn was over."""

    call: CallId
    turn: TurnId
    session: SessionId
    tool: str
    arguments: str
    at: int
    state: str
    late_result: str = ""
    marked_by: str = ""
    marked_at: int | None = None


class QuestionRecord(msgspec.Struct, frozen=True):
    """Holds the row of a question that an agent has asked, and how it ended. `message` is that of
    the notice by which it was asked."""

    id: QuestionId
    turn: TurnId
    kind: str
    call: str
    deadline: int
    message: MessageId
    state: str
    answer: str
    scope: str
    by: PrincipalId | None


class DelegationRecord(msgspec.Struct, frozen=True):
    """Holds the row of work that a turn has given to another agent. `is_live`: the errand is not
    over."""

    errand: TurnId
    turn: TurnId
    call: CallId
    deadline: int
    state: str
    is_live: int


class EffectRecord(msgspec.Struct, frozen=True):
    """Holds the row of a call whose fate was unknown. `told` is the turn in which the agent was
    told what a person has found out."""

    call: CallId
    turn: TurnId
    tool: str
    state: str
    told: TurnId | None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that is stored about one session, for the checker. `turns` are in the order
    of the line; `fetches` counts the files that are still to come, by turn; `summaries_under_way`
    counts the errands that are writing a summary for it; `told` is, by turn, the number of its
    newest interruption that the model was told of; `questions`, `effects` and `delegations` are in
    the order of their ids."""

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
    questions: tuple[QuestionRecord, ...] = ()
    effects: tuple[EffectRecord, ...] = ()
    delegations: tuple[DelegationRecord, ...] = ()
