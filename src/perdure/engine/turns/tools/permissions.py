"""Finds out which tool calls of a turn may run, and what people must be asked first.

The decision itself is pure (`domain/tools/policy.py`). Here it gets what it needs: the traits of
the call, the policy of the agent, and what the person has granted. What was asked and answered is
in the turn's journal, so a later attempt comes to the same verdict.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, QuestionId
from perdure.domain.journal.events import (
    AnyEvent,
    Attachment,
    ToolCall,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, QuestionKind
from perdure.domain.tools.asking import (
    ALLOW,
    approval_choices,
    approval_text,
    inquiry_text,
    refused_text,
)
from perdure.domain.tools.policy import Decision, Do, decision_about
from perdure.domain.tools.traits import CallTraits, Outlook, frozen_digest
from perdure.domain.turn.next_action import our_open_calls
from perdure.domain.turn.recovery import may_have_happened
from perdure.engine.foundation.persist import persist
from perdure.engine.models.roster import Backend
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.tools.delegated_work import DelegatedWork, returned_for
from perdure.engine.turns.tools.postings import Postings
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.turns.tools import ToolCaller, ToolQuestion, ToolReply, ToolResult
from perdure.ports.turns.turns import Claimed

_MINUTE_MS: Final = 60_000
# How often one call may ask a person before it ends.
MIDWAY_MAX: Final = 10
# How many questions a turn asks at once. More of them are a flood that nobody reads, and nobody
# should allow what they have not read.
AT_ONCE_MAX: Final = 10


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Lets a call run. `why` says what has allowed it. With a `digest`, only the call that a person
    was asked about may run. With a `reply` the call has begun already, and goes on."""

    why: str
    digest: str = ""
    reply: ToolReply | None = None


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a call without running it. `text` is what the model reads."""

    text: str
    ending: CallEnding = CallEnding.DENIED


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a call with what a person has answered."""

    text: str


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a call with what another agent has done, and with the files that it has made."""

    result: ToolResult
    files: tuple[Attachment, ...]


class Delegate(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the turn wait until another agent has done the work of the call."""

    order: WorkOrder


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a call as unknown, because an equal one may have happened in this turn."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the turn wait until a person has answered."""

    question: AnswerAwaited


Verdict = Run | Refuse | Answer | Returned | Delegate | Unknown | Ask


class Permissions:
    """Holds the verdicts about one attempt's tool calls."""

    def __init__(self, services: RunnerServices, claimed: Claimed, ledger: Ledger) -> None:
        self._services = services
        self._claimed = claimed
        self._ledger = ledger
        self._postings = Postings(services, claimed, ledger)
        self._work = DelegatedWork(services, ledger)
        self._verdicts: dict[CallId, Verdict] = {}

    def of(self, call: ToolCall) -> Verdict:
        """Return the verdict about a call that `questions` has looked at."""
        return self._verdicts[call.id]

    async def questions(self, backend: Backend) -> tuple[AnswerAwaited, ...]:
        """Decide about the open calls of the turn, and return what people must be asked."""
        events = self._ledger.facts
        for call in our_open_calls(events):
            if call.id not in self._verdicts:
                self._verdicts[call.id] = await self._decide(backend, call, events)
        self._bound()
        verdicts = [self._verdicts[call.id] for call in our_open_calls(events)]
        return tuple(each.question for each in verdicts if isinstance(each, Ask))

    @property
    def work(self) -> tuple[WorkOrder, ...]:
        """Return what the open calls give to other agents. Call `questions` first."""
        verdicts = [self._verdicts[call.id] for call in our_open_calls(self._ledger.facts)]
        return tuple(each.order for each in verdicts if isinstance(each, Delegate))

    def refuse_work(self, why: str) -> None:
        """Refuse the calls that give work to other agents, because too much is under way."""
        for order in self.work:
            self._verdicts[order.call] = Refuse(
                text=f"The work was not given away: {why}.", ending=CallEnding.FAILED
            )

    def _bound(self) -> None:
        """Refuse the calls about which too many people's answers would be needed at once. A call
        that has begun and asks midway comes first, because it cannot simply be made again."""
        asks = [
            (call, verdict.question)
            for call in our_open_calls(self._ledger.facts)
            if isinstance(verdict := self._verdicts[call.id], Ask)
        ]
        asks.sort(key=lambda each: not each[1].is_midway)
        for call, question in asks[AT_ONCE_MAX:]:
            self._verdicts[call.id] = Refuse(text=refused_text("too_many", kind=question.kind))
        most = self._services.limits.delegating.at_once
        for order in self.work[most:]:
            text = f"The work was not given away: {most} pieces at once are the most. Call again."
            self._verdicts[order.call] = Refuse(text=text, ending=CallEnding.FAILED)

    def ask_midway(self, call: ToolCall, question: ToolQuestion) -> bool:
        """Let the turn wait for what a call asks that has begun already. Returns False if nobody
        can be asked, if the call has asked too often, or if too many calls ask at once."""
        asked = [e for e in self._ledger.facts if isinstance(e, AnswerAwaited) and e.is_midway]
        if not self._can_ask or sum(each.call == call.id for each in asked) >= MIDWAY_MAX:
            return False
        asks = [each.question for each in self._verdicts.values() if isinstance(each, Ask)]
        if sum(each.is_midway for each in asks) >= AT_ONCE_MAX:
            return False
        awaited = self._awaited(
            call, QuestionKind.QUESTION, question.text, choices=question.choices
        )
        midway = msgspec.structs.replace(awaited, is_midway=True, state=question.state)
        self._verdicts[call.id] = Ask(question=midway)
        return True

    async def is_as_asked(self, backend: Backend, call: ToolCall, digest: str) -> bool:
        """Tell whether a call is still the one that a person has approved: the tool, and what the
        call works on, have not changed."""
        traits = backend.tools.traits(call.name, call.arguments)
        outlook = await self._outlook(backend, call, traits)
        return frozen_digest(call.name, call.arguments, traits, outlook) == digest

    async def _outlook(self, backend: Backend, call: ToolCall, traits: CallTraits) -> Outlook:
        """Return what a call would do if it ran now."""
        if traits.posting is not None:
            return await self._postings.outlook(call, traits.posting)
        return await backend.tools.outlook(call, self.caller())

    def caller(self) -> ToolCaller:
        """Return for whom the turn's tools run."""
        return ToolCaller(
            principal=self._claimed.principal,
            conversation=self._claimed.conversation,
            session=self._ledger.session,
            turn=self._ledger.turn,
            is_shared=self._claimed.is_shared,
            can_ask=self._can_ask,
        )

    @property
    def _can_ask(self) -> bool:
        """Tell whether a person can be asked: not in a call that is a conversation of its own, and
        not in an errand, whose session nobody reads."""
        kind = self._ledger.queued.kind
        return kind in (TurnKind.MESSAGE, TurnKind.CALL) and self._claimed.is_listed

    async def _decide(
        self, backend: Backend, call: ToolCall, events: Sequence[AnyEvent]
    ) -> Verdict:
        returned = returned_for(call, events)
        if returned is not None:
            result, files = await self._work.result(returned)
            return Returned(result=result, files=files)
        verdict = await self._permitted(backend, call, events)
        delegation = backend.tools.traits(call.name, call.arguments).delegation
        if delegation is None or not isinstance(verdict, Run):
            return verdict
        if verdict.digest and not await self.is_as_asked(backend, call, verdict.digest):
            return Refuse(text=refused_text("changed", kind=QuestionKind.APPROVAL))
        try:
            return Delegate(order=self._work.order(call, delegation, why=verdict.why))
        except Rejected as error:
            return Refuse(text=error.message, ending=CallEnding.FAILED)

    async def _permitted(
        self, backend: Backend, call: ToolCall, events: Sequence[AnyEvent]
    ) -> Verdict:
        """Decide whether a call may run."""
        asked = _asked_about(call, events)
        if asked is not None:
            verdict = _answered(asked, _answers_in(events))
            is_approved = isinstance(verdict, Run) and verdict.digest
            return (await self._denied(backend, call) if is_approved else None) or verdict
        traits = await self._traits(backend, call)
        if traits.problem:
            # It is not run, because nobody was asked about it: if the tool judged otherwise when it
            # is called, it would do what nobody has allowed.
            return Refuse(text=traits.problem, ending=CallEnding.FAILED)
        if traits.inquiry is not None:
            return self._inquire(call, traits)
        decision = await self._policy(backend, call, traits)
        is_repeated = may_have_happened(call, events)
        if is_repeated and decision.do is Do.ALLOW:
            return Unknown()
        match decision.do:
            case Do.ALLOW:
                return Run(why=decision.why)
            case Do.DENY:
                return _denial(decision.why)
            case Do.ASK if self._can_ask:
                return await self._question(
                    backend, call, traits, decision, is_repeated=is_repeated
                )
            case Do.ASK:
                return Refuse(text=refused_text("nobody", kind=QuestionKind.APPROVAL))

    async def _traits(self, backend: Backend, call: ToolCall) -> CallTraits:
        """Return what is known of a call before it runs. Rules and grants about a text for another
        conversation are about its whole address, also if the call gives it another name."""
        traits = backend.tools.traits(call.name, call.arguments)
        if traits.posting is None:
            return traits
        ahead = await self._postings.outlook(call, traits.posting)
        names = tuple(dict.fromkeys((ahead.operands, *traits.paths)))
        return msgspec.structs.replace(
            traits, paths=() if ahead.problem else names, problem=ahead.problem
        )

    async def _denied(self, backend: Backend, call: ToolCall) -> Refuse | None:
        """Return the refusal of a call that a rule denies by now, although a person has allowed it,
        or None. The rule may have been added while the question was open."""
        decision = decision_about(
            await self._traits(backend, call),
            backend.policy,
            arguments=call.arguments,
            session=self._ledger.session,
            now_ms=self._services.clock.now_ms(),
        )
        return _denial(decision.why) if decision.do is Do.DENY else None

    async def _policy(self, backend: Backend, call: ToolCall, traits: CallTraits) -> Decision:
        """Return what the policy says of a call. Grants are read only if they may change that."""
        ask = partial(
            decision_about,
            traits,
            backend.policy,
            arguments=call.arguments,
            session=self._ledger.session,
            now_ms=self._services.clock.now_ms(),
        )
        decision = ask()
        if decision.do is not Do.ASK or decision.offer is None:
            return decision
        read = partial(
            self._services.grants.covering,
            self._claimed.principal,
            offer=decision.offer,
            session=self._ledger.session,
        )
        grant = await persist(read, clock=self._services.clock)
        return decision if grant is None else ask((grant,))

    def _inquire(self, call: ToolCall, traits: CallTraits) -> Verdict:
        """Return the question that the agent asks by this call."""
        assert traits.inquiry is not None
        if not self._can_ask:
            return Refuse(text=refused_text("nobody", kind=QuestionKind.QUESTION))
        asked, choices = traits.inquiry.text, traits.inquiry.choices
        return Ask(question=self._awaited(call, QuestionKind.QUESTION, asked, choices=choices))

    def _awaited(
        self, call: ToolCall, kind: QuestionKind, asked: str, *, choices: tuple[str, ...]
    ) -> AnswerAwaited:
        """Return the event by which a question of an agent or of a tool is asked."""
        return AnswerAwaited(
            turn=self._ledger.turn,
            attempt=self._ledger.attempt,
            question=self._new_id(),
            text=inquiry_text(asked, choices, minutes=self._minutes),
            choices=choices,
            call=call.id,
            deadline=self._deadline,
            kind=kind,
            tool=call.name,
            arguments=call.arguments,
        )

    async def _question(
        self,
        backend: Backend,
        call: ToolCall,
        traits: CallTraits,
        decision: Decision,
        *,
        is_repeated: bool,
    ) -> Ask | Refuse:
        """Return the question whether a call may run. A call that cannot work is refused at once:
        if it ran, it could work by then, and nobody would have been asked."""
        outlook = await self._outlook(backend, call, traits)
        if outlook.problem:
            return Refuse(text=f"The call was not run: {outlook.problem}")
        question, offer = self._new_id(), decision.offer
        text = approval_text(
            question,
            tool=traits.act,
            arguments=call.arguments,
            preview=outlook.preview,
            grant=offer.words if offer else "",
            minutes=self._minutes,
            may_have_happened=is_repeated,
        )
        asked = AnswerAwaited(
            turn=self._ledger.turn,
            attempt=self._ledger.attempt,
            question=question,
            text=text,
            choices=approval_choices(
                call.arguments, outlook.preview, can_grant=offer is not None and not is_repeated
            ),
            call=call.id,
            deadline=self._deadline,
            kind=QuestionKind.APPROVAL,
            tool=call.name,
            arguments=call.arguments,
            digest=frozen_digest(call.name, call.arguments, traits, outlook),
            offer=offer,
            is_once=decision.is_once,
        )
        return Ask(question=asked)

    def _new_id(self) -> QuestionId:
        return QuestionId(self._services.mint("qst"))

    @property
    def _deadline(self) -> int:
        """Return when a question that is asked now is closed without an answer."""
        wait_ms = self._services.limits.answer_wait_ms
        return self._services.clock.now_ms() + wait_ms if wait_ms else 0

    @property
    def _minutes(self) -> int:
        return -(-self._services.limits.answer_wait_ms // _MINUTE_MS)


def _asked_about(call: ToolCall, events: Sequence[AnyEvent]) -> AnswerAwaited | None:
    """Return the question that was asked about a call, if there was one."""
    asked = [e for e in events if isinstance(e, AnswerAwaited) and e.call == call.id]
    return asked[-1] if asked else None


def _answers_in(events: Sequence[AnyEvent]) -> dict[QuestionId, AnswerReceived]:
    """Return the answers that a turn has received, by question."""
    return {event.question: event for event in events if isinstance(event, AnswerReceived)}


def _denial(why: str) -> Refuse:
    """Return the refusal of a call that a rule denies."""
    return Refuse(text=f"{why} does not allow this call, so it was not run.")


def _answered(
    asked: AnswerAwaited, answers: Mapping[QuestionId, AnswerReceived]
) -> Run | Refuse | Answer | Ask:
    """Return what the answer to a question means for its call."""
    answer = answers.get(asked.question)
    if answer is None:
        return Ask(question=asked)
    if asked.is_midway:
        why = "" if answer.by is not None else answer.reason
        reply = ToolReply(answer=answer.answer, state=asked.state, reason=why)
        return Run(why=asked.question, reply=reply)
    if answer.by is None:
        return Refuse(text=refused_text(answer.reason, kind=asked.kind))
    if asked.kind is QuestionKind.QUESTION:
        return Answer(text=answer.answer)
    if answer.answer == ALLOW:
        return Run(why=asked.question, digest=asked.digest)
    return Refuse(text=refused_text("denied", kind=asked.kind))
