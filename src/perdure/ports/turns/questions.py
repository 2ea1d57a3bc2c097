"""Defines the ports of what agents ask people: questions and their answers, grants, and calls whose
fate is unknown."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.ids import CallId, GrantId, PrincipalId, QuestionId, SessionId, TurnId
from perdure.domain.journal.events import Recorded, ToolCall
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.journal.records import EffectView, QuestionView
from perdure.domain.outcomes import CallEnding
from perdure.domain.tools.grants import Grant, Scope
from perdure.ports.records.history import Page


class QuestionReply(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an answer to a question. For an approval, `answer` is `allow` or `deny`, and `scope`
    says for how long an allowance holds: with `TIME`, for `for_ms`."""

    question: QuestionId
    answer: str
    by: PrincipalId
    scope: Scope = Scope.CALL
    for_ms: int = 0


class QuestionTaken(msgspec.Struct, frozen=True, kw_only=True):
    """Says that an answer was taken, in words for whoever gave it."""

    session: SessionId
    turn: TurnId
    told: str
    recorded: list[Recorded]


class GrantView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a grant. `covers` says in words which calls it allows."""

    id: GrantId
    person: str
    agent: str
    tool: str
    covers: str
    scope: str
    granted_at: int
    session: str = ""
    until: int = 0


class Questions(Protocol):
    """Keeps what agents ask people, and takes the answers.

    Guarantees: exactly one answer to each question counts, on whichever node it is given. A turn
    goes on when all its questions have their answers. `principal` limits what is found to one
    person's; None finds everybody's.
    Requires: a question was asked by `Turns.wait`.
    Raises: `NotFound`; `Rejected` if the answer is none, or if this person may not give it;
    `Conflict` with the code `already_answered` if another answer came first; `Transient`,
    `Ambiguous`.
    After a crash: questions stay open until their deadline.
    """

    async def answer(self, reply: QuestionReply) -> QuestionTaken:
        """Take an answer. Only the person of the turn and operators may give one."""

    async def expire(self, *, limit: int) -> list[Recorded]:
        """End the wait for questions whose deadline has passed. Returns what was appended."""

    async def void(self, turn: TurnId, *, attempt: int) -> list[Recorded]:
        """End the wait for the questions of a turn whose agent was lost. Does nothing if the turn
        does not wait any more, or waits for what a later attempt has asked. Returns what was
        appended."""

    async def next_deadline_ms(self) -> int | None:
        """Return when the next deadline passes, or None if no question has one."""

    async def page(
        self, page: Page, *, principal: PrincipalId | None, is_pending: bool = True
    ) -> list[QuestionView]:
        """Return questions, oldest first."""

    async def of_turns(
        self, turns: Sequence[TurnId], *, principal: PrincipalId | None
    ) -> list[QuestionView]:
        """Return all questions of these turns, in the order of the turns and oldest first."""

    async def one(self, question: QuestionId, *, principal: PrincipalId | None) -> QuestionView:
        """Return one question."""


class Grants(Protocol):
    """Keeps what people have granted agents beyond one call.

    Guarantees: a grant that was revoked, or whose time is over, is not found any more. One that is
    in force is found, however many there are.
    Requires: nothing.
    Raises: `NotFound`; `Transient`, `Ambiguous`.
    After a crash: nothing is lost.
    """

    async def covering(
        self, principal: PrincipalId, *, offer: GrantOffer, session: SessionId
    ) -> Grant | None:
        """Return a grant of a person that covers what is offered in a session, or None."""

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[GrantView]:
        """Return grants in force, oldest first."""

    async def revoke(self, grant: GrantId, *, principal: PrincipalId | None) -> GrantView:
        """End a grant."""


class Effects(Protocol):
    """Keeps the calls whose fate is unknown.

    Guarantees: a call is added in the transaction that ends it as unknown.
    Requires: nothing.
    Raises: `NotFound`; `Conflict` if the call was marked otherwise before; `Transient`,
    `Ambiguous`.
    After a crash: nothing is lost.
    """

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[EffectView]:
        """Return calls whose fate is or was unknown, oldest first."""

    async def of_turns(
        self, turns: Sequence[TurnId], *, principal: PrincipalId | None
    ) -> list[EffectView]:
        """Return those calls of these turns, in the order of the turns and oldest first."""

    async def mark(
        self, call: CallId, *, has_happened: bool, by: PrincipalId, principal: PrincipalId | None
    ) -> EffectView:
        """Record that a person knows whether a call has happened. Its agent is told in the
        session's next turn."""

    async def late(self, turn: TurnId, call: ToolCall, ending: CallEnding, result: str) -> None:
        """Keep the result of a call that came after its turn had left it."""
