"""The numbers of a node in Prometheus' form.

Imports its library, which takes a while: only a scrape imports this module.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from perdure.ports.gateway import Health, PlatformView
from perdure.ports.history import Counts
from perdure.web.tally import Tally

Family = type[GaugeMetricFamily] | type[CounterMetricFamily]
Labels = tuple[str, ...]


def exposed(
    counts: Counts, tally: Tally, *, running: int, platforms: Sequence[PlatformView]
) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collected([*_gauges(counts, running, platforms), *_counters(tally)]))
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return generate_latest(registry)


class _Collected:
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gauges(counts: Counts, running: int, platforms: Sequence[PlatformView]) -> Iterator[Metric]:
    states = [((state,), getattr(counts, state)) for state in ("queued", "running", "interrupted")]
    yield _metric(GaugeMetricFamily, "perdure_turns", "Turns by state", ("state",), states)
    yield GaugeMetricFamily("perdure_turns_here", "Turns running on this node", value=running)
    parts = [(("pending",), counts.outbox_pending), (("parked",), counts.outbox_parked)]
    yield _metric(GaugeMetricFamily, "perdure_outbox", "Parts by state", ("state",), parts)
    depths = [((adapter,), count) for adapter, count in counts.outbox_depths]
    told = "Parts that wait to be sent"
    yield _metric(GaugeMetricFamily, "perdure_outbox_depth", told, ("adapter",), depths)
    up = [((view.name,), int(view.health is Health.SERVING)) for view in platforms]
    told = "Whether a platform talks to us"
    yield _metric(GaugeMetricFamily, "perdure_adapter_up", told, ("adapter",), up)


def _counters(tally: Tally) -> Iterator[Metric]:
    told = "Messages accepted"
    yield CounterMetricFamily("perdure_messages_accepted", told, value=tally.accepted)
    name, told, labels = "perdure_turns_settled", "Turns settled", ("outcome", "agent")
    yield _metric(CounterMetricFamily, name, told, labels, tally.settled.items())
    name, told = "perdure_attempts_interrupted", "Attempts interrupted"
    reasons = [((reason,), count) for reason, count in tally.interrupted.items()]
    yield _metric(CounterMetricFamily, name, told, ("reason",), reasons)
    name, told, labels = "perdure_tokens", "Tokens as providers counted them", ("agent", "way")
    yield _metric(CounterMetricFamily, name, told, labels, tally.tokens.items())


def _metric(
    family: Family, name: str, told: str, labels: Labels, values: Iterable[tuple[Labels, int]]
) -> Metric:
    metric = family(name, told, labels=labels)
    for each, value in values:
        metric.add_metric(each, value)
    return metric
