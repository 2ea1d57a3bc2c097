"""Health, readiness and Prometheus metrics."""

from collections.abc import Sequence

from aiohttp import web

from perdure.ports.gateway import Health, PlatformView
from perdure.web.answers import json_response, problem
from perdure.web.services import Services
from perdure.web.tally import Tally


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
        """Alive, proved by traffic: the store answers a question, and the platforms talk to us. A
        platform that is lost makes the node degraded; if all are, it is blind. It still answers
        200: a restart would not help."""
        await self._services.diagnostics.counts()
        control = self._services.control
        views = control.platforms()
        state = "draining" if control.is_draining else _health(views)
        return json_response(
            {
                "status": state,
                "version": self._services.info.version,
                "adapters": {view.name: view.health for view in views},
            }
        )

    async def readyz(self, request: web.Request) -> web.Response:
        control = self._services.control
        if control.is_ready and not control.is_draining:
            return json_response({"status": "ready"})
        if control.is_draining:
            why = "draining: messages are kept and run after the restart"
        else:
            why = "starting, or stumbling: messages are kept and run soon; `perdure logs` says more"
        return problem(503, "not_ready", why, retryable=True)

    async def metrics(self, request: web.Request) -> web.Response:
        # Imported at the first scrape: a gateway nobody scrapes does not pay for it.
        from perdure.web.metrics import exposed  # noqa: PLC0415

        control = self._services.control
        body = exposed(
            await self._services.diagnostics.counts(),
            self._tally,
            running=control.running,
            platforms=control.platforms(),
        )
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})
