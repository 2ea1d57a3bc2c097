"""Gives the work of calls to other agents, and takes back what came of it.

A call that delegates never runs here. Its turn waits for an errand that the store opens with the
wait. What came of the errand is in the errand's own journal, so it is the result of the call in
whichever attempt asks for it, and no crash loses it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import AnyEvent, Attachment, ToolCall
from perdure.domain.journal.question_events import WorkDelegated, WorkReturned
from perdure.domain.outcomes import CallEnding, Outcome
from perdure.domain.tools.traits import Delegation
from perdure.engine.foundation.persist import persist
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.tools.postings import named_files
from perdure.ports.agents.delegations import WorkDone, WorkOrder
from perdure.ports.turns.tools import ToolResult

TOO_DEEP: Final = (
    "this work was given to you by another agent, and may not be passed on; do it yourself, or say "
    "that it cannot be done"
)
GONE: Final = "what came of the work is not there any more; do it yourself or tell the person"


class DelegatedWork:
    """Knows the work that one attempt's turn has given away."""

    def __init__(self, services: RunnerServices, ledger: Ledger) -> None:
        self._services = services
        self._ledger = ledger

    def order(self, call: ToolCall, delegation: Delegation, *, why: str) -> WorkOrder:
        """Return what is given to the other agent. Raises `Rejected` if it may not be."""
        limits = self._services.limits.delegating
        if self._ledger.queued.depth >= limits.depth:
            raise Rejected(TOO_DEEP)
        self._services.roster.resolve(delegation.agent)
        wait_ms = limits.wait_ms
        return WorkOrder(
            call=call.id,
            agent=delegation.agent,
            task=delegation.task,
            files=named_files(self._ledger, delegation.files),
            deadline=self._services.clock.now_ms() + wait_ms if wait_ms else 0,
            why=why,
        )

    async def result(self, returned: WorkReturned) -> tuple[ToolResult, tuple[Attachment, ...]]:
        """Return what came of an errand, as the result of its call, with the files that its agent
        has made."""
        given = self._given(returned)
        if returned.reason:
            return _failed(_late(given)), ()
        read = partial(self._services.delegations.result, returned.errand)
        done = await persist(read, clock=self._services.clock)
        if done is None:
            return _failed(GONE), ()
        if done.outcome is Outcome.DONE:
            text = done.text or "[It has said nothing.]"
            return ToolResult(ending=CallEnding.RETURNED, text=text), done.files
        return _failed(_undone(given.agent, done)), done.files

    def _given(self, returned: WorkReturned) -> WorkDelegated:
        """Return the event by which an errand was ordered."""
        facts = self._ledger.facts
        given = (event for event in facts if isinstance(event, WorkDelegated))
        return next(event for event in given if event.errand == returned.errand)


def returned_for(call: ToolCall, events: Sequence[AnyEvent]) -> WorkReturned | None:
    """Return the end of the wait for the work that a call has given away, or None."""
    ended = [e for e in events if isinstance(e, WorkReturned) and e.call == call.id]
    return ended[-1] if ended else None


def _late(given: WorkDelegated) -> str:
    return (
        f"{given.agent} has not answered in time, so its work was stopped. Nobody knows how far it "
        "came; look before you have it done again."
    )


def _undone(agent: str, done: WorkDone) -> str:
    """Return what the model is told of work that was not done."""
    said = f"\nWhat it had said until then:\n{done.text}" if done.text else ""
    return f"{agent} has not done the work: it {done.why}.{said}"


def _failed(text: str) -> ToolResult:
    return ToolResult(ending=CallEnding.FAILED, text=text)
