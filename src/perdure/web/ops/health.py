"""Serves health, readiness and Prometheus metrics.

`/healthz` says whether the process is alive. Only that decides whether it is restarted, so nothing
outside the process may change it. `/readyz` says whether a message would be accepted now; the store
is asked, because only a write shows that it takes one. `/metrics` always answers, because numbers
are needed most when something is wrong.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from perdure.ports.gateway import Health, PlatformView
from perdure.web import wire
from perdure.web.http.answers import json_response, problem
from perdure.web.http.shared_question import LOOK_S
from perdure.web.measuring.tally import Tally
from perdure.web.services import Services

# How long `/readyz` waits for the store.
READY_S: Final = 2.5
DRAINING: Final = "draining: messages are kept and run after the restart"
STUMBLING: Final = (
    "starting, or stumbling: messages are kept and run soon; `perdure logs` says more"
)


def _health(views: Sequence[PlatformView]) -> Health:
    lost = [view for view in views if view.health is Health.BLIND]
    if views and len(lost) == len(views):
        return Health.BLIND
    is_whole = all(view.health is Health.SERVING for view in views)
    return Health.SERVING if is_whole else Health.DEGRADED


class HealthApi:
    def __init__(self, services: Services, tally: Tally) -> None:
        self._services = services
        self._tally = tally

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
        ]

    async def healthz(self, request: web.Request) -> web.Response:
        """Answer 200 while the process lives. A store in trouble or a lost platform makes the node
        degraded, and it is blind when all platforms are lost; a restart would not help with
        either."""
        trouble = await self._services.condition.look(within_s=LOOK_S)
        control = self._services.control
        views = control.platforms()
        state: str = _health(views)
        if control.is_draining:
            state = "draining"
        elif trouble and state == Health.SERVING:
            state = Health.DEGRADED
        out = wire.HealthOut(
            status=state,
            version=self._services.info.version,
            adapters={view.name: view.health for view in views},
            store=wire.StoreOut(is_up=not trouble, reason=trouble),
            reason=_reason(views, trouble, is_draining=control.is_draining),
        )
        return json_response(out)

    async def readyz(self, request: web.Request) -> web.Response:
        """Answer 200 if a message that came now would be accepted and its turn would begin, else
        503."""
        why_not = self._unready() or await self._services.condition.look(within_s=READY_S)
        if not why_not:
            return json_response({"status": "ready"})
        return problem(503, "not_ready", why_not, retryable=True)

    def _unready(self) -> str:
        """Return why this node itself is not ready, or an empty string. The store is not asked."""
        control = self._services.control
        if control.is_draining:
            return DRAINING
        return "" if control.is_ready else STUMBLING

    async def metrics(self, request: web.Request) -> web.Response:
        """Return the node's metrics in Prometheus' format."""
        # Imported at the first scrape, so that a gateway which is never scraped does not load the
        # library.
        from perdure.web.measuring.metrics import MetricsReading, exposed  # noqa: PLC0415

        services = self._services
        trouble = await services.condition.look(within_s=LOOK_S)
        reading = MetricsReading(
            version=services.info.version,
            counts=await services.counts.ask(),
            tally=self._tally,
            running=services.control.running,
            platforms=services.control.platforms(),
            is_ready=not trouble and not self._unready(),
            is_store_up=not trouble,
            store_refusals=services.condition.refusals,
            quota_refusals=services.gate.refused,
            tool_servers=services.tool_servers.views(),
            agents=services.agents.standings(),
        )
        body = exposed(reading)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})


def _reason(views: Sequence[PlatformView], trouble: str, *, is_draining: bool) -> str:
    """Return why the node is not simply serving, or an empty string."""
    lost = [f"{view.name} is {view.health}" for view in views if view.health is not Health.SERVING]
    return "; ".join(filter(None, [DRAINING if is_draining else "", trouble, *lost]))
