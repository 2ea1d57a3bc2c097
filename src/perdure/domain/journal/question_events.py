"""Defines the events of questions to people, of calls that people know more about than the gateway,
and the values in them."""

import msgspec

from perdure.domain.ids import CallId, PrincipalId, QuestionId, TurnId
from perdure.domain.journal.event import Event
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import QuestionKind


class GrantOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a grant would cover if a person grants more than one call: which acts of which
    agent's tool, as it is described now, and with which arguments. An empty `pattern` covers any
    arguments. `words` say the same to people."""

    agent: str
    act: str
    definition: str
    pattern: str = ""
    words: str = ""


class AnswerAwaited(Event, frozen=True, kw_only=True):
    """Records that the turn waits for the answer to a question, and has no owner until then. A turn
    may wait for several answers at once.

    `call` is the tool call that the question is about. `kind` says whether the call may run only if
    it is approved, or whether the answer is the call's result. `choices` are words that answer it,
    and `deadline` is when the wait ends without an answer, or 0 if it never does. An approval holds
    for the call of `tool` with these `arguments` and this `digest` only, and `offer` is what may be
    granted beyond it. `is_once`:
    an approval holds for the rest of the session. `is_midway`: the call has begun already, and goes
    on with the answer; `state` is what its tool needs for that. `usage` and `cost` are those of the
    attempt's model calls, and are in the first question of a wait.
    """

    turn: TurnId
    attempt: int
    question: QuestionId
    text: str
    choices: tuple[str, ...] = ()
    call: CallId | None = None
    deadline: int = 0
    kind: QuestionKind = QuestionKind.QUESTION
    tool: str = ""
    arguments: str = ""
    digest: str = ""
    offer: GrantOffer | None = None
    is_once: bool = False
    is_midway: bool = False
    state: str = ""
    usage: Usage = Usage()
    cost: int = 0


class AnswerReceived(Event, frozen=True, kw_only=True):
    """Records that a question was answered, by whom, and for how long an approval holds. If nobody
    has answered it, `by` is None, `answer` is empty, and `reason` says why the wait is over."""

    turn: TurnId
    question: QuestionId
    answer: str = ""
    by: PrincipalId | None = None
    scope: str = ""
    reason: str = ""


class WaitEnded(Event, frozen=True, kw_only=True):
    """Records that all questions of a turn have their answers, and that it continues where it
    was."""

    turn: TurnId


class EffectMarked(Event, frozen=True, kw_only=True):
    """Records that a person has said whether a call of `tool` has happened whose fate was unknown.
    It is in the turn that tells the agent, which may be a later one than that of the call."""

    turn: TurnId
    call: CallId
    tool: str
    has_happened: bool
    by: PrincipalId
