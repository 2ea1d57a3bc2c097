"""Serves how the agents of the node are, and tries them."""

from contextlib import aclosing
from typing import Final

from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import TurnSettled
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Outcome
from perdure.domain.text import storable
from perdure.domain.turn.endings import Audience, reached
from perdure.ports.people.principals import Principal
from perdure.ports.system.time_limits import time_limit
from perdure.web import wire
from perdure.web.api.native import fresh_id, http_address
from perdure.web.endpoints import endpoint
from perdure.web.services import Services

# How long a trial may take. A program that is started for it may first load for a while.
TRIAL_S: Final = 300.0
# How long the start of a process may take.
WARM_S: Final = 150.0
HELLO: Final = "Say hello in one short sentence. Use no tool."
# How much of an answer is shown.
_SHOWN_MAX: Final = 4_000


@endpoint("GET", "/api/agents", "List agents and how they are", is_for_operators=True)
async def agents(services: Services, by: Principal) -> wire.AgentsOut:
    """List the configured agents of this node."""
    return wire.AgentsOut(agents=list(services.agents.standings()))


@endpoint(
    "GET",
    "/api/agents/{name}/log",
    "Read the end of what an agent's processes have written",
    is_for_operators=True,
)
async def agent_log(services: Services, by: Principal, name: str) -> wire.AgentLogOut:
    """Return the end of what an agent's processes have written to standard error."""
    name = storable(name)
    return wire.AgentLogOut(name=name, log=services.agents.log(name))


@endpoint(
    "POST",
    "/api/agents/{name}/warm",
    "Start a process of an agent, if none runs",
    is_for_operators=True,
    within_s=WARM_S,
)
async def warm_agent(services: Services, by: Principal, name: str) -> wire.AgentsOut:
    """Start a process of an agent, so that the next turn need not wait for it."""
    return wire.AgentsOut(agents=[await services.agents.warm(storable(name), by.id)])


@endpoint(
    "POST",
    "/api/agents/{name}/test",
    "Ask an agent something, and measure its answer",
    is_for_operators=True,
    within_s=TRIAL_S + 30,
)
async def try_agent(
    services: Services, by: Principal, name: str, *, body: wire.AgentTrialIn
) -> wire.AgentTrialOut:
    """Let an agent answer a prompt in a call that is no part of a conversation. The call is stored
    and charged like any other."""
    unique = fresh_id(services)
    clock = services.clock
    began_s = clock.monotonic_s()
    accepted = await services.door.accept(
        Update(
            address=http_address(by, f"call-{unique}"),
            external_id=f"{unique}\n",
            kind=UpdateKind.CALL,
            principal=by.id,
            caller=by.name,
            text=storable(body.text.strip()) or HELLO,
            agent=services.control.resolve_agent(storable(name)),
            is_listed=False,
        )
    )
    assert accepted.turn is not None
    texts: list[str] = []
    first_s = 0.0
    try:
        async with (
            time_limit(TRIAL_S),
            aclosing(services.watchers.turn(accepted, is_fresh=True)) as growing,
        ):
            async for grown in growing:
                if grown.text and not first_s:
                    first_s = clock.monotonic_s() - began_s
                texts.append(grown.text)
    except TimeoutError:
        await services.door.stop(accepted.turn, by=None)
    return await _tried(
        services,
        by,
        accepted.turn,
        text="".join(texts)[:_SHOWN_MAX],
        first_ms=round(first_s * 1000),
        took_ms=round((clock.monotonic_s() - began_s) * 1000),
    )


async def _tried(
    services: Services, by: Principal, turn: TurnId, *, text: str, first_ms: int, took_ms: int
) -> wire.AgentTrialOut:
    """Return what the journal holds of a trial, with what was measured."""
    found = await services.diagnostics.explain(turn, principal=by.scope)
    settled = next(
        (each.event for each in found.events if isinstance(each.event, TurnSettled)),
        TurnSettled(turn=turn, outcome=Outcome.FAILED, detail="the turn has not ended"),
    )
    return wire.AgentTrialOut(
        turn=turn,
        outcome=settled.outcome,
        reason=settled.reason,
        detail=settled.detail,
        agent=settled.agent,
        text=text,
        first_text=first_ms,
        took=took_ms,
        usage=settled.usage,
        timings=settled.timings,
        missed=reached(settled, Audience.OPERATORS),
    )
