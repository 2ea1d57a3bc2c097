"""Writes a node's metrics in Prometheus' format.

Only a scrape imports this module, because its library takes a while to load.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from perdure.ports.agents.programs import AgentStanding, ProgramView
from perdure.ports.gateway import Health, PlatformView
from perdure.ports.records.history import Counts
from perdure.ports.turns.servers import ServerState, ToolServerView
from perdure.web.measuring.tally import BUCKETS_S, StepTimes, Tally

Family = type[GaugeMetricFamily] | type[CounterMetricFamily]
Labels = tuple[str, ...]


class MetricsReading(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is read from a node at one scrape. `counts` is None if the store did not answer;
    its metrics are left out then, because a wrong number would be worse than none."""

    version: str
    counts: Counts | None
    tally: Tally
    running: int
    platforms: Sequence[PlatformView]
    is_ready: bool
    is_store_up: bool
    store_refusals: int
    quota_refusals: Mapping[str, int]
    tool_servers: Sequence[ToolServerView] = ()
    agents: Sequence[AgentStanding] = ()


def exposed(reading: MetricsReading) -> bytes:
    """Return the metrics as text."""
    stored = _stored(reading.counts) if reading.counts is not None else ()
    registry = CollectorRegistry()
    servers = _tool_servers(reading.tool_servers)
    agents = [*_agents(reading.agents), _times(reading.tally)]
    gauges, counters = _gauges(reading), _counters(reading)
    registry.register(_Collected([*gauges, *stored, *counters, *servers, *agents]))
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return generate_latest(registry)


class _Collected:
    """Hands finished metrics to the Prometheus library."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gauges(reading: MetricsReading) -> Iterator[Metric]:
    build = [((reading.version,), 1)]
    yield _metric(GaugeMetricFamily, "perdure_build_info", "What runs", ("version",), build)
    told = "Whether a message would be accepted now"
    yield GaugeMetricFamily("perdure_ready", told, value=int(reading.is_ready))
    told = "Whether the store answers and takes writes"
    yield GaugeMetricFamily("perdure_store_up", told, value=int(reading.is_store_up))
    told = "Turns running on this node"
    yield GaugeMetricFamily("perdure_turns_here", told, value=reading.running)
    up = [((view.name,), int(view.health is Health.SERVING)) for view in reading.platforms]
    told = "Whether a platform talks to us"
    yield _metric(GaugeMetricFamily, "perdure_adapter_up", told, ("adapter",), up)


def _stored(counts: Counts) -> Iterator[Metric]:
    states = [
        ((state,), getattr(counts, state))
        for state in ("queued", "running", "waiting", "interrupted")
    ]
    yield _metric(GaugeMetricFamily, "perdure_turns", "Turns by state", ("state",), states)
    parts = [(("pending",), counts.outbox_pending), (("parked",), counts.outbox_parked)]
    yield _metric(GaugeMetricFamily, "perdure_outbox", "Parts by state", ("state",), parts)
    depths = [((adapter,), count) for adapter, count in counts.outbox_depths]
    told = "Parts that wait to be sent"
    yield _metric(GaugeMetricFamily, "perdure_outbox_depth", told, ("adapter",), depths)


def _counters(reading: MetricsReading) -> Iterator[Metric]:
    tally = reading.tally
    told = "Reads and writes that the store refused"
    yield CounterMetricFamily("perdure_store_refusals", told, value=reading.store_refusals)
    told = "How often the event loop stood still for a second"
    yield CounterMetricFamily("perdure_standstills", told, value=tally.standstills)
    told = "Requests, messages and files refused because a person had too much"
    kinds = [((kind,), count) for kind, count in reading.quota_refusals.items()]
    yield _metric(CounterMetricFamily, "perdure_quota_refusals", told, ("kind",), kinds)
    told = "Messages accepted"
    yield CounterMetricFamily("perdure_messages_accepted", told, value=tally.accepted)
    name, told, labels = "perdure_turns_settled", "Turns settled", ("outcome", "agent")
    yield _metric(CounterMetricFamily, name, told, labels, tally.settled.items())
    name, told = "perdure_attempts_interrupted", "Attempts interrupted"
    reasons = [((reason,), count) for reason, count in tally.interrupted.items()]
    yield _metric(CounterMetricFamily, name, told, ("reason",), reasons)
    name, told, labels = "perdure_tokens", "Tokens as providers counted them", ("agent", "way")
    yield _metric(CounterMetricFamily, name, told, labels, tally.tokens.items())


def _tool_servers(views: Sequence[ToolServerView]) -> Iterator[Metric]:
    """Yield how the tool servers are. Only names of the configuration become labels."""
    labels = ("server", "state")
    states = [
        ((view.name, state), int(view.state is state)) for view in views for state in ServerState
    ]
    told = "1 for the state that a tool server is in"
    yield _metric(GaugeMetricFamily, "perdure_tool_servers", told, labels, states)
    calls = [((view.name,), view.calls) for view in views]
    told = "Calls of the tools of a server"
    yield _metric(CounterMetricFamily, "perdure_tool_server_calls", told, ("server",), calls)
    failures = [((view.name,), view.failures) for view in views]
    name, told = "perdure_tool_server_failures", "Calls that a tool server did not answer"
    yield _metric(CounterMetricFamily, name, told, ("server",), failures)


def _agents(standings: Sequence[AgentStanding]) -> Iterator[Metric]:
    """Yield how the agents are. Only names of the configuration become labels."""
    calls = [((each.name, "calling"), each.calls) for each in standings]
    waiting = [((each.name, "waiting"), each.waiting) for each in standings]
    told, labels = "Model calls under way, and those that wait for a place", ("agent", "state")
    yield _metric(GaugeMetricFamily, "perdure_agent_calls", told, labels, [*calls, *waiting])
    programs = [(each.name, each.program) for each in standings if each.program]
    for family, name, told, count in _PROGRAM_METRICS:
        values = [((agent,), count(program)) for agent, program in programs]
        yield _metric(family, name, told, ("agent",), values)


_PROGRAM_METRICS: Final[Sequence[tuple[Family, str, str, Callable[[ProgramView], int]]]] = (
    (
        GaugeMetricFamily,
        "perdure_agent_processes",
        "Processes of an agent",
        lambda each: len(each.processes),
    ),
    (
        GaugeMetricFamily,
        "perdure_agent_sessions",
        "Sessions open in the processes of an agent",
        lambda each: sum(process.sessions for process in each.processes),
    ),
    (
        GaugeMetricFamily,
        "perdure_agent_memory_bytes",
        "Memory of an agent's processes when it was looked at last",
        lambda each: sum(process.memory_bytes for process in each.processes),
    ),
    (
        CounterMetricFamily,
        "perdure_agent_starts",
        "Processes of an agent started",
        lambda each: each.starts,
    ),
    (
        CounterMetricFamily,
        "perdure_agent_crashes",
        "Processes ended by themselves",
        lambda each: each.crashes,
    ),
    (
        CounterMetricFamily,
        "perdure_agent_sessions_opened",
        "Sessions that were opened",
        lambda each: each.opened,
    ),
)


def _times(tally: Tally) -> Metric:
    """Return where the time of turns went that agents' programs have answered."""
    told, labels = "How long a step of an answer took", ("agent", "step", "transport")
    metric = HistogramMetricFamily("perdure_agent_step_seconds", told, labels=labels)
    for each, times in tally.times.items():
        metric.add_metric(each, list(_ranges(times)), times.sum_s)
    return metric


def _ranges(times: StepTimes) -> Iterator[tuple[str, float]]:
    """Yield how many times are at most as long as each range's end."""
    so_far = 0
    for end, count in zip([*map(str, BUCKETS_S), "+Inf"], times.counts, strict=True):
        so_far += count
        yield end, so_far


def _metric(
    family: Family, name: str, told: str, labels: Labels, values: Iterable[tuple[Labels, int]]
) -> Metric:
    metric = family(name, told, labels=labels)
    for each, value in values:
        metric.add_metric(each, value)
    return metric
