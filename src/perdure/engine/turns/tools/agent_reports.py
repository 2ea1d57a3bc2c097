"""Writes down what an external agent has done by itself in the middle of an answer: the tools of
its own that it used, and its plan."""

import msgspec

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import CallId
from perdure.domain.journal.events import AnyEvent, ToolCall, ToolFinished, ToolStarted
from perdure.domain.outcomes import CallEnding
from perdure.domain.text import storable
from perdure.domain.turn.stream import AgentActed, AgentBegan, AgentPlan
from perdure.domain.turn.watching import ToolProgress
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

# The most characters of a result that stand in the journal; the rest is kept as a file.
RESULT_MAX = 20_000
KEPT_MAX = 1_000_000


class AgentReports:
    """Takes the reports of one attempt."""

    def __init__(self, services: RunnerServices, claimed: Claimed, ledger: Ledger) -> None:
        self._services = services
        self._claimed = claimed
        self._ledger = ledger
        self._ids: dict[str, CallId] = {}

    def began(self, report: AgentBegan) -> None:
        """Tell those who watch that the agent uses a tool. It is journalled when it is over."""
        progress = ToolProgress(
            turn=self._ledger.turn,
            call=self._id(report.id),
            text=storable(report.name),
            name=storable(report.name),
        )
        self._services.feed.publish(self._ledger.session, (progress,))

    async def taken(self, report: AgentActed) -> tuple[ToolCall, list[AnyEvent]]:
        """Return the call of a report as the journal holds it, and the events that end it. A long
        result is kept as a file."""
        turn, text = self._ledger.turn, storable(report.text)
        call = ToolCall(
            id=self._id(report.id),
            name=storable(report.name),
            arguments=storable(report.arguments),
            is_agents=True,
        )
        finished = ToolFinished(
            turn=turn,
            call=call.id,
            ending=CallEnding.FAILED if report.has_failed else CallEnding.RETURNED,
            result=text[:RESULT_MAX],
        )
        kept = text[:KEPT_MAX]
        if len(text) > RESULT_MAX:
            stored = await self._services.files.keep(kept, report.name, self._claimed.principal)
            if stored is not None:
                finished = msgspec.structs.replace(finished, whole=stored.id, size=len(kept))
        self._ids.pop(report.id, None)
        return call, [ToolStarted(turn=turn, call=call.id, why="the agent's own tool"), finished]

    async def plan(self, plan: AgentPlan) -> None:
        """Show the agent's plan as the list of the session. It is shown at most once: if it cannot
        be stored now, the next one takes its place."""
        try:
            recorded = await self._services.todos.put(
                self._ledger.session, self._ledger.turn, plan.items
            )
        except (Transient, Ambiguous):
            return
        self._services.feed.publish_recorded(recorded)
        self._services.wakes.publish(Topic.OUTBOX)

    def _id(self, agents: str) -> CallId:
        """Return our own id for a call that the agent knows by its own."""
        if agents not in self._ids:
            self._ids[agents] = CallId(self._services.mint("call"))
        return self._ids[agents]
