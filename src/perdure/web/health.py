"""Health, readiness and Prometheus metrics."""

from collections import Counter
from collections.abc import Iterator, Sequence

from aiohttp import web

from perdure.domain.errands import errand_of
from perdure.domain.events import AttemptInterrupted, Recorded, TurnQueued, TurnSettled
from perdure.domain.ids import TurnId
from perdure.ports.gateway import Health, PlatformView
from perdure.web.answers import json_response, problem
from perdure.web.services import Services


class Tally:
    """Counts facts as this process makes them durable; told by the engine's feed. Errands are no
    turns of anyone's: of them only the tokens count."""

    def __init__(self) -> None:
        self.accepted = 0
        self.settled: Counter[tuple[str, str]] = Counter()
        self.interrupted: Counter[str] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self._errands: set[TurnId] = set()

    def observe(self, recorded: Recorded) -> None:
        match recorded.event:
            case TurnQueued(turn=turn, kind=kind) if errand_of(kind):
                self._errands.add(turn)
            case TurnQueued():
                self.accepted += 1
            case TurnSettled(turn=turn, outcome=outcome, agent=agent, usage=usage):
                self.settled[outcome, agent] += turn not in self._errands
                self._errands.discard(turn)
                self.tokens[agent, "input"] += usage.input_tokens
                self.tokens[agent, "output"] += usage.output_tokens
                self.tokens[agent, "cached"] += usage.cache_read_tokens
            case AttemptInterrupted(reason=reason):
                self.interrupted[reason] += 1
            case _:
                pass


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
        why = "draining: messages are kept and run after the restart"
        return problem(503, "not_ready", why if control.is_draining else "starting", retryable=True)

    async def metrics(self, request: web.Request) -> web.Response:
        # Imported at the first scrape: a gateway nobody scrapes does not pay for it.
        from prometheus_client import (  # noqa: PLC0415
            GC_COLLECTOR,
            PLATFORM_COLLECTOR,
            PROCESS_COLLECTOR,
            CollectorRegistry,
            generate_latest,
        )
        from prometheus_client.core import (  # noqa: PLC0415
            CounterMetricFamily,
            GaugeMetricFamily,
            Metric,
        )

        counts = await self._services.diagnostics.counts()
        tally, running = self._tally, self._services.control.running
        platforms = self._services.control.platforms()

        class Collector:
            def collect(self) -> Iterator[Metric]:
                turns = GaugeMetricFamily("perdure_turns", "Turns by state", labels=["state"])
                for state in ("queued", "running", "interrupted"):
                    turns.add_metric([state], getattr(counts, state))
                yield turns
                yield GaugeMetricFamily(
                    "perdure_turns_here", "Turns running on this node", value=running
                )
                outbox = GaugeMetricFamily("perdure_outbox", "Parts by state", labels=["state"])
                outbox.add_metric(["pending"], counts.outbox_pending)
                outbox.add_metric(["parked"], counts.outbox_parked)
                yield outbox
                depths = GaugeMetricFamily(
                    "perdure_outbox_depth", "Parts that wait to be sent", labels=["adapter"]
                )
                for adapter, count in counts.outbox_depths:
                    depths.add_metric([adapter], count)
                yield depths
                up = GaugeMetricFamily(
                    "perdure_adapter_up", "Whether a platform talks to us", labels=["adapter"]
                )
                for view in platforms:
                    up.add_metric([view.name], int(view.health is Health.SERVING))
                yield up
                yield CounterMetricFamily(
                    "perdure_messages_accepted", "Messages accepted", value=tally.accepted
                )
                settled = CounterMetricFamily(
                    "perdure_turns_settled", "Turns settled", labels=["outcome", "agent"]
                )
                for (outcome, agent), count in tally.settled.items():
                    settled.add_metric([outcome, agent], count)
                yield settled
                interrupted = CounterMetricFamily(
                    "perdure_attempts_interrupted", "Attempts interrupted", labels=["reason"]
                )
                for reason, count in tally.interrupted.items():
                    interrupted.add_metric([reason], count)
                yield interrupted
                tokens = CounterMetricFamily(
                    "perdure_tokens", "Tokens as providers counted them", labels=["agent", "way"]
                )
                for (agent, way), count in tally.tokens.items():
                    tokens.add_metric([agent, way], count)
                yield tokens

        registry = CollectorRegistry()
        registry.register(Collector())
        for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
            registry.register(collector)
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"}
        )
