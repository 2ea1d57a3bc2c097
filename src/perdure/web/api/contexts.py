"""Tells who answers in a conversation, what could be chosen instead, and how full the model's
window is."""

from perdure.ports.people.principals import Principal
from perdure.web import wire
from perdure.web.api.native import read_along
from perdure.web.endpoints import endpoint
from perdure.web.services import Services


@endpoint("GET", "/api/context", "Read who answers in a conversation, and how full the window is")
async def context(
    services: Services, by: Principal, *, conversation: str | None = None
) -> wire.ContextOut:
    """Return who answers in a conversation of the caller, or in a new one."""
    menu = services.menu()
    agents = [
        wire.OfferedAgentOut(name=name, model=offer.model, window=offer.context_tokens)
        for name, offer in menu.agents.items()
    ]
    offered = wire.ContextOut(agent=menu.default, agents=agents, personas=list(menu.personas))
    if conversation is None:
        return offered
    found = (await read_along(services, by, conversation)).view
    known = await services.archive.context(found.id)
    return wire.ContextOut(
        agent=menu.answering(known.agent),
        agents=agents,
        personas=offered.personas,
        persona=known.persona,
        effort=known.effort,
        tokens=known.tokens,
        window=menu.offer(known.agent).context_tokens,
        summary=known.summary,
        summarized_turns=known.summarized_turns,
    )
