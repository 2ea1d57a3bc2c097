"""Makes model calls beside the turn's own, of which only the text counts."""

from contextlib import aclosing

from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import Measure
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentSpent, AgentText, Stopped, Thinking
from perdure.engine.models.reaching import Quest
from perdure.engine.models.roster import Backend
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.runner_services import RunnerServices


async def plain_answer(
    services: RunnerServices,
    calls: ModelCalls,
    backend: Backend,
    request: ModelRequest,
    quest: Quest,
) -> tuple[Stopped, str]:
    """Make one call to one agent. Returns how it has ended, and its text. What it uses is charged
    to the turn."""
    texts: list[str] = []
    measure = Measure(request.room)
    stopped = Stopped(reason=StopReason.AGENT_ERROR, detail="the agent ended without a word")
    # A process that stood still may have lost the turn, and another node then makes this call.
    # Nothing is awaited between the check and the call.
    await services.lease.held()
    async with aclosing(backend.agent.run(request, calls.work)) as stream:
        async for event in stream:
            quest.hears(backend, event)
            match event:
                case AgentText(text=text):
                    texts.append(measure.text(text))
                case Thinking():
                    calls.is_thinking()
                case AgentSpent(usage=usage):
                    calls.spending.add(usage, backend)
                case Stopped():
                    stopped = event
                case _:
                    pass
            if measure.excess:
                stopped = Stopped(reason=StopReason.ANSWER_EXCEEDED, detail=measure.excess)
                break
    return stopped, "".join(texts)
