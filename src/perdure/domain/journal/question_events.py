"""Defines the events of what turns wait for, which is answers of people and the work of other
agents, and of calls that people know more about than the gateway."""

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


class WorkDelegated(Event, frozen=True, kw_only=True):
    """Records that the turn waits for an `errand` of the agent `agent`, which does the work that
    the tool call `call` has given to it. The turn has no owner until then, and may wait for several
    at once. `deadline` is when the wait ends without a result, or 0 if it never does. `why` says
    what has allowed the call. `usage` and `cost` are those of the attempt's model calls, unless the
    first event of the wait is a question."""

    turn: TurnId
    attempt: int
    call: CallId
    errand: TurnId
    agent: str
    deadline: int = 0
    why: str = ""
    usage: Usage = Usage()
    cost: int = 0


class WorkReturned(Event, frozen=True, kw_only=True):
    """Records that the wait for an errand is over: it has ended, or `reason` says why nobody waits
    for it any more. What came of it is in the journal of the errand."""

    turn: TurnId
    call: CallId
    errand: TurnId
    reason: str = ""


class WaitEnded(Event, frozen=True, kw_only=True):
    """Records that a turn has everything that it waited for, and that it continues where it
    was."""

    turn: TurnId


WaitEvent = AnswerAwaited | AnswerReceived | WorkDelegated | WorkReturned | WaitEnded


class EffectMarked(Event, frozen=True, kw_only=True):
    """Records that a person has said whether a call of `tool` has happened whose fate was unknown.
    It is in the turn that tells the agent, which may be a later one than that of the call."""

    turn: TurnId
    call: CallId
    tool: str
    has_happened: bool
    by: PrincipalId
