"""Shows the state of the running node, and drains or restarts it."""

import msgspec

from perdure.ports.gateway import Control
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Counts
from perdure.ports.records.occasions import HookFailures
from perdure.web import wire
from perdure.web.endpoints import endpoint
from perdure.web.http.shared_question import LOOK_S
from perdure.web.services import Services


@endpoint("GET", "/api/status", "Read running turns, queues and the health of platforms")
async def status(services: Services, by: Principal) -> wire.StatusOut:
    """Return what runs and what waits. Answers also while the store is down, without its counts."""
    trouble = await services.condition.look(within_s=LOOK_S)
    counts = await services.counts.ask()
    control, info = services.control, services.info
    return wire.StatusOut(
        version=info.version,
        state=_state(control, trouble),
        node=info.node,
        pid=info.pid,
        started_at=info.started_at,
        principal=by.name,
        role=by.role,
        agents=control.agents(),
        turns=_turn_counts(counts),
        outbox=_part_counts(counts),
        adapters=[
            msgspec.convert(view, wire.AdapterOut, from_attributes=True)
            for view in control.platforms()
        ],
        store=wire.StoreOut(is_up=not trouble, reason=trouble),
        refused=dict(services.gate.refused),
        tool_servers=list(services.tool_servers.views()) if by.is_operator else [],
        programs=[each for each in services.agents.standings() if each.program]
        if by.is_operator
        else [],
        hooks=services.operators_hooks.failures if by.is_operator else HookFailures(),
        boot=services.boot_problem() if by.is_operator else "",
    )


def _state(control: Control, trouble: str) -> str:
    if control.is_draining:
        return "draining"
    return "degraded" if trouble else "serving"


def _turn_counts(counts: Counts | None) -> dict[str, int]:
    """Return the turns by state, or nothing if the store did not answer."""
    if counts is None:
        return {}
    return {
        "queued": counts.queued,
        "running": counts.running,
        "waiting": counts.waiting,
        "interrupted": counts.interrupted,
    }


def _part_counts(counts: Counts | None) -> dict[str, int]:
    """Return the parts by state, or nothing if the store did not answer."""
    if counts is None:
        return {}
    return {"pending": counts.outbox_pending, "parked": counts.outbox_parked}


@endpoint(
    "POST",
    "/api/drain",
    "Claim no more turns, finish the running ones, exit",
    status=202,
    is_for_operators=True,
)
async def drain(services: Services, by: Principal, *, replaced: str = "") -> dict[str, str]:
    """Begin to end the node. `replaced` is `true` if another node takes its place; parked turns
    then continue at once."""
    services.control.request_drain(is_replaced=replaced == "true")
    return {"state": "draining"}


@endpoint(
    "POST", "/api/restart", "Drain, then start the node again", status=202, is_for_operators=True
)
async def restart(services: Services, by: Principal) -> dict[str, str]:
    """Begin to end the node, and start it again."""
    services.control.request_drain(then_restart=True)
    return {"state": "restarting"}
