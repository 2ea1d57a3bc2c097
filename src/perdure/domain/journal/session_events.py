"""Defines the events of a session itself: its life, its commands, its head, its summaries, and how
room was made in a model's window."""

from perdure.domain.ids import MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.event import Event


class SessionOpened(Event, frozen=True, kw_only=True):
    """Records that a session began. `head` is the turn it begins at, which belongs to `parent` and
    is shared, not copied. `kind` names the errand that the session was opened for, and is empty
    where people talk."""

    by: PrincipalId
    reason: str
    parent: SessionId | None = None
    head: TurnId | None = None
    kind: str = ""


class SessionClosed(Event, frozen=True, kw_only=True):
    """Records that the conversation continued in another session. This one stays readable and can
    be resumed."""

    by: PrincipalId
    reason: str
    successor: SessionId


class SessionResumed(Event, frozen=True, kw_only=True):
    """Records that this session became the live one again. Its strikes are cleared."""

    by: PrincipalId


class CommandTaken(Event, frozen=True, kw_only=True):
    """Records a command and its reply. `turn` is the turn that the command queued or was about;
    `choices` are commands that were offered with the reply."""

    command: str
    arguments: str
    by: PrincipalId
    message: MessageId
    reply: str
    turn: TurnId | None = None
    choices: tuple[str, ...] = ()


class HeadMoved(Event, frozen=True, kw_only=True):
    """Records that another turn became the session's head. `redo` are the heads to go back to, the
    next one last; they are forgotten when the next turn starts."""

    by: PrincipalId
    reason: str
    head: TurnId | None
    redo: tuple[TurnId, ...] = ()


class TitleSet(Event, frozen=True, kw_only=True):
    """Records a title. `by` is None if it was found from the first exchange."""

    title: str
    by: PrincipalId | None = None


class Compacted(Event, frozen=True, kw_only=True):
    """Records that for the model `summary` represents everything up to and including the turn
    `upto`, as long as that turn is on the chain. The turns themselves are not changed."""

    upto: TurnId
    message: MessageId
    summary: str
    turns: int
    tokens_before: int
    tokens_after: int
    errand: TurnId
    cost: int = 0


class CompactionFailed(Event, frozen=True, kw_only=True):
    """Records that a summary could not be made or taken, and why."""

    errand: TurnId
    reason: str


class CompactionDropped(Event, frozen=True, kw_only=True):
    """Records that the summary of the message `compaction` represents no turns any more."""

    by: PrincipalId
    upto: TurnId
    compaction: MessageId


class WindowExceeded(Event, frozen=True, kw_only=True):
    """Records that the server of `model` refused a request because it was longer than the model's
    window. `tokens` is about how long it was, and `window` the size that the refusal named, or 0.
    `is_summary`: it was a request for a summary, which the turn needed."""

    turn: TurnId
    agent: str
    model: str
    tokens: int
    window: int = 0
    is_summary: bool = False


class RoomSought(Event, frozen=True, kw_only=True):
    """Records what came of making the turn's request shorter. `compaction` is the summary that
    replaces older turns from now on, if one was made. `problem` says why there is no room, for
    everybody, and `detail` for operators; if both are empty, the request is made once more."""

    turn: TurnId
    compaction: MessageId | None = None
    problem: str = ""
    detail: str = ""
