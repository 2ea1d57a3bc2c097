"""Describes the standing of a conversation: what its state is called, and how events change it."""

import msgspec

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AttemptInterrupted,
    NoticePosted,
    TurnEvent,
    TurnMoved,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    WaitEnded,
    WorkDelegated,
    WorkReturned,
)
from perdure.domain.journal.session_events import HeadMoved, SessionOpened, SessionResumed, TitleSet
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.recovery import CONTINUE, DROP
from perdure.domain.turn.turn import AT_WORK, State, state_after


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a turn that is not settled. `reason` says why its last attempt ended. `is_asked`: the
    people were asked what is to be done with it."""

    id: TurnId
    state: State = State.QUEUED
    attempts: int = 0
    reason: str = ""
    is_asked: bool = False

    @property
    def is_resuming(self) -> bool:
        """Tell whether the turn is to continue after an interruption. A turn whose question was
        answered is queued as well, but was not interrupted."""
        was_cut = self.attempts > 0 and bool(self.reason)
        return self.state is State.INTERRUPTED or (self.state is State.QUEUED and was_cut)


class SessionStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a session's events make of it. `open_turns` are in the order of arrival; at most
    one of them has started."""

    session: SessionId
    head: TurnId | None = None
    open_turns: tuple[OpenTurn, ...] = ()
    is_suspended: bool = False
    title: str = ""

    @property
    def current(self) -> OpenTurn | None:
        """Return the turn that the state is about: the one at work, else the one to be resumed,
        else the next in line. None if no turn is open."""
        at_work = [t for t in self.open_turns if t.state in AT_WORK]
        resuming = [t for t in self.open_turns if t.is_resuming]
        return next(iter([*at_work, *resuming, *self.open_turns]), None)

    @property
    def state(self) -> str:
        """Return the name of the state, by this precedence: suspended, running or waiting,
        resume_pending, running (a queued turn that only waits for a slot), idle."""
        if self.is_suspended:
            return "suspended"
        current = self.current
        if current is None:
            return "idle"
        if current.is_resuming:
            return "resume_pending"
        return "waiting" if current.state is State.WAITING else "running"

    @property
    def turn(self) -> TurnId | None:
        return self.current.id if self.current else None

    @property
    def queued(self) -> int:
        return sum(1 for turn in self.open_turns if turn.state is State.QUEUED)

    @property
    def resume_reason(self) -> str:
        current = self.current
        return current.reason if current and current.is_resuming else ""

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that answer the question which the conversation waits with, if there is
        one."""
        current = self.current
        is_open = current and current.is_asked and current.state is State.INTERRUPTED
        return (CONTINUE, DROP) if is_open else ()

    @property
    def tip(self) -> TurnId | None:
        """Return the newest turn that a transcript shows: the one that has started, else the
        head."""
        started = [turn.id for turn in self.open_turns if turn.attempts]
        return started[0] if started else self.head


def after(standing: SessionStanding, event: AnyEvent) -> SessionStanding:
    """Return the standing after this event."""
    match event:
        case TurnQueued(turn=turn):
            turns = (*standing.open_turns, OpenTurn(id=turn))
            return msgspec.structs.replace(standing, open_turns=turns)
        case TurnStarted(attempt=attempt):
            return _stepped(standing, event, attempts=attempt, reason="")
        case AttemptInterrupted(reason=reason):
            return _stepped(standing, event, reason=reason, is_asked=False)
        case (
            TurnRequeued()
            | AnswerAwaited()
            | AnswerReceived()
            | WorkDelegated()
            | WorkReturned()
            | WaitEnded()
        ):
            return _stepped(standing, event)
        case NoticePosted(about=turn, choices=choices, question=None) if turn and choices:
            return _changed(standing, turn, is_asked=True)
        case TurnMoved(turn=turn):
            return msgspec.structs.replace(standing, open_turns=_others(standing, turn))
        case TurnSettled(turn=turn, outcome=outcome):
            return _settled(standing, turn, outcome)
        case _:
            return msgspec.structs.replace(standing, **_session_change(event))


def _session_change(event: AnyEvent) -> dict[str, object]:
    """Return the fields that an event changes besides the turns."""
    match event:
        case SessionOpened(head=head) | HeadMoved(head=head):
            return {"head": head}
        case TitleSet(title=title):
            return {"title": title}
        case SessionResumed():
            return {"is_suspended": False}
        case _:
            return {}


def _stepped(standing: SessionStanding, event: TurnEvent, **changes: object) -> SessionStanding:
    """Return the standing with the turn of this event in the state that `LEGAL` gives, and with
    these changes."""
    states = [each.state for each in standing.open_turns if each.id == event.turn]
    after = {"state": state_after(states[0], event)} if states else {}
    return _changed(standing, event.turn, **changes, **after)


def _changed(standing: SessionStanding, turn: TurnId, **changes: object) -> SessionStanding:
    """Return the standing with these changes to one turn."""
    turns = tuple(
        msgspec.structs.replace(each, **changes) if each.id == turn else each
        for each in standing.open_turns
    )
    return msgspec.structs.replace(standing, open_turns=turns)


def _others(standing: SessionStanding, turn: TurnId) -> tuple[OpenTurn, ...]:
    """Return the open turns without this one."""
    return tuple(each for each in standing.open_turns if each.id != turn)


def _settled(standing: SessionStanding, turn: TurnId, outcome: Outcome) -> SessionStanding:
    """Return the standing after a turn was settled. A turn that had started becomes the head; one
    that never started leaves no trace on the chain."""
    ended = next((each for each in standing.open_turns if each.id == turn), None)
    return msgspec.structs.replace(
        standing,
        open_turns=_others(standing, turn),
        head=turn if ended and ended.attempts else standing.head,
        is_suspended=standing.is_suspended or outcome is Outcome.SUSPENDED,
    )
