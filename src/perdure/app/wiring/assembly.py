"""Assembles the engine of a node. Each part is made from those above it, and is given what it
needs."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from perdure.app.schedule.making import JobPumps, job_pumps, terms_of
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.shared_parts import Common, common_parts
from perdure.domain.delivery import Display
from perdure.domain.ids import RANDOM_BYTES, mint
from perdure.domain.people.menu import Menu
from perdure.engine.delivery.bubbles import Means
from perdure.engine.delivery.handover import Handovers
from perdure.engine.delivery.outbox import OutboxPump
from perdure.engine.delivery.previews import Previews
from perdure.engine.delivery.surfaces import Surfaces
from perdure.engine.delivery.typing import Typing
from perdure.engine.foundation.supervisor import Start
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.door import NodeDoor
from perdure.engine.inbound.fetching import FetchPump, Sources
from perdure.engine.inbound.file_waits import FileWaits
from perdure.engine.inbound.patient_fetcher import PatientFetcher
from perdure.engine.inbound.receivers import PlatformReceiver, Receivers
from perdure.engine.models.budget import Budgets
from perdure.engine.models.places import AgentPlaces
from perdure.engine.models.prompts import Prompts
from perdure.engine.models.reaching import Reaching
from perdure.engine.models.standing import NodeAgents
from perdure.engine.node.indexing import Indexer
from perdure.engine.node.life import BackgroundTask, Gateway
from perdure.engine.node.sweeping import Sweeper
from perdure.engine.people.admission import Review
from perdure.engine.people.alarm import Alarm
from perdure.engine.people.quotas import RequestGate
from perdure.engine.schedule.boot import BootRun
from perdure.engine.schedule.pump import SchedulePump
from perdure.engine.turns.agent_files import AgentFiles
from perdure.engine.turns.errands import Afterwards
from perdure.engine.turns.flusher import Flusher
from perdure.engine.turns.pump import TurnPump
from perdure.engine.turns.reaper import Reaper
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.tools.deadlines import Deadlines
from perdure.engine.watching.feed import Feed
from perdure.engine.watching.hook_pump import HookPump
from perdure.engine.watching.push_pump import PushPump
from perdure.engine.watching.watch import LiveWatchers

# How often a node on a shared store looks for turns that another node queued.
POLL_S = 1.0
# How often a node on a shared store looks for what another node waits for, or has ended.
QUESTIONS_POLL_S = 5.0


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the assembled parts of a node, which do nothing yet."""

    wakes: Bus
    turns: TurnPump
    outbox: OutboxPump
    schedule: SchedulePump
    boot: BootRun
    fetching: FetchPump
    reaper: Reaper
    review: Review
    gateway: Gateway
    door: NodeDoor
    watchers: LiveWatchers
    receivers: Receivers
    gate: RequestGate
    prompts: Prompts
    agents: NodeAgents
    menu: Callable[[], Menu]
    hooks: HookPump
    deadlines: Deadlines
    pushes: PushPump


def compose_node(dependencies: NodeDependencies, start: Start, *, feed: Feed) -> NodeParts:
    """Make the parts of a node, each from those that exist already."""
    store = dependencies.store
    common = _common(dependencies, start, feed)
    review = Review(store.turns, common.admission, feed, wakes=common.bus)
    reaper = Reaper(store.nodes, feed, policy=dependencies.limits.recovery, review=review.step)
    handovers = Handovers()
    previews = _previews(dependencies, common, handovers)
    receivers = _receivers(dependencies, common)
    services = _services(dependencies, common, receivers)
    turns = _turns(dependencies, common, services, reaper, previews)
    outbox = _outbox(dependencies, common, handovers)
    fetching = _fetching(dependencies, common)
    jobs = _jobs(dependencies, common)
    hooks = _hooks(dependencies, common)
    deadlines = _deadlines(dependencies, common)
    pushes = _pushes(dependencies, common)
    gateway = _gateway(
        dependencies,
        common,
        reaper,
        turns,
        outbox=outbox,
        previews=previews,
        fetching=fetching,
        background={
            **jobs.tasks,
            "hooks": hooks,
            "deadlines": deadlines,
            "notifications": pushes,
        },
    )
    return NodeParts(
        wakes=common.bus,
        turns=turns,
        outbox=outbox,
        schedule=jobs.pump,
        boot=jobs.boot,
        fetching=fetching,
        reaper=reaper,
        review=review,
        gateway=gateway,
        door=_door(dependencies, common, turns, gateway),
        watchers=LiveWatchers(
            feed, store.conversations, store.archive, is_shared=dependencies.is_shared
        ),
        receivers=receivers,
        gate=RequestGate(dependencies.clock, dependencies.limits.quota),
        prompts=services.prompts,
        agents=NodeAgents(dependencies.roster, services.reaching.places),
        menu=partial(_menu, dependencies),
        hooks=hooks,
        deadlines=deadlines,
        pushes=pushes,
    )


def _jobs(dependencies: NodeDependencies, common: Common) -> JobPumps:
    return job_pumps(
        dependencies.store.schedule,
        common.feed,
        terms=lambda: _menu(dependencies).schedule,
        settings=dependencies.jobs,
        limits=dependencies.limits,
        clock=dependencies.clock,
        bus=common.bus,
        is_shared=dependencies.is_shared,
    )


def _deadlines(dependencies: NodeDependencies, common: Common) -> Deadlines:
    return Deadlines(
        dependencies.store.questions,
        dependencies.store.delegations,
        common.feed,
        lost=common.lost,
        clock=dependencies.clock,
        bus=common.bus,
        # Another node may have asked a question and died.
        poll_s=QUESTIONS_POLL_S if dependencies.is_shared else None,
    )


def _common(dependencies: NodeDependencies, start: Start, feed: Feed) -> Common:
    surfaces = Surfaces(
        {**dependencies.adapters, **dependencies.platforms},
        dependencies.store.pacing,
        clock=dependencies.clock,
        display=lambda name: dependencies.displays.get(name, Display()),
    )
    return common_parts(
        dependencies.store,
        surfaces,
        clock=dependencies.clock,
        terms=dependencies.terms,
        give_back=dependencies.give_back,
        start=start,
        feed=feed,
    )


def _previews(dependencies: NodeDependencies, common: Common, handovers: Handovers) -> Previews:
    means = Means(
        outbox=dependencies.store.outbox,
        turns=dependencies.store.turns,
        still_at_work_s=dependencies.limits.notices.still_at_work_s,
        clock=dependencies.clock,
        bus=common.bus,
        lease=common.lease,
        is_shared=dependencies.is_shared,
    )
    return Previews(means, handovers, common.feed, start=common.start)


def _turns(
    dependencies: NodeDependencies,
    common: Common,
    services: RunnerServices,
    reaper: Reaper,
    previews: Previews,
) -> TurnPump:
    return TurnPump(
        services,
        reaper=reaper,
        start=common.start,
        surfaces=common.surfaces,
        previews=previews,
        bus=common.bus,
        poll_s=POLL_S if dependencies.is_shared else None,
    )


def _outbox(dependencies: NodeDependencies, common: Common, handovers: Handovers) -> OutboxPump:
    return OutboxPump(
        dependencies.store.outbox,
        common.surfaces,
        media=dependencies.store.media,
        handovers=handovers,
        feed=common.feed,
        clock=dependencies.clock,
        start=common.start,
        expire_s=dependencies.limits.delivery_expire_s,
        bus=common.bus,
        lease=common.lease,
        is_shared=dependencies.is_shared,
        speaker=dependencies.speaker,
    )


def _gateway(  # noqa: PLR0913 - the parts of a node
    dependencies: NodeDependencies,
    common: Common,
    reaper: Reaper,
    turns: TurnPump,
    *,
    outbox: OutboxPump,
    previews: Previews,
    fetching: FetchPump,
    background: Mapping[str, BackgroundTask],
) -> Gateway:
    store = dependencies.store
    return Gateway(
        nodes=store.nodes,
        turns=turns,
        outbox=outbox,
        previews=previews,
        fetching=fetching,
        background={
            "sweeper": Sweeper(store.media),
            "indexer": Indexer(store.index),
            "prompt windows": common.windows,
            "memory": common.trim,
            **background,
        },
        reaper=reaper,
        feed=common.feed,
        limits=dependencies.limits,
        clock=dependencies.clock,
        heartbeat=common.heartbeat,
        start=common.start,
        bus=common.bus,
        lease=common.lease,
        is_shared=dependencies.is_shared,
    )


def _door(
    dependencies: NodeDependencies, common: Common, turns: TurnPump, gateway: Gateway
) -> NodeDoor:
    return NodeDoor(
        dependencies.store.inbox,
        dependencies.store.places,
        dependencies.store.questions,
        dependencies.store.effects,
        common.feed,
        turns,
        queue_max=dependencies.limits.queue_max,
        menu=lambda: _menu(dependencies),
        restart=gateway.request_restart,
        wakes=common.bus,
    )


def _receivers(dependencies: NodeDependencies, common: Common) -> Receivers:
    by_name = {
        name: PlatformReceiver(
            platform,
            common.surfaces.named(name),
            condition=dependencies.store.condition,
            clock=dependencies.clock,
            wakes=common.bus,
        )
        for name, platform in dependencies.platforms.items()
    }
    return Receivers(by_name, common.surfaces, clock=dependencies.clock, start=common.start)


def _fetching(dependencies: NodeDependencies, common: Common) -> FetchPump:
    store, clock, surfaces = dependencies.store, dependencies.clock, common.surfaces
    platforms = {**dependencies.platforms, **dependencies.sources}
    return FetchPump(
        store.fetches,
        Sources(
            platforms={
                name: PatientFetcher(source, surfaces.named(name))
                for name, source in platforms.items()
            },
            is_open=lambda name: surfaces.named(name).is_open,
            web=dependencies.web,
            reader=dependencies.reader,
        ),
        stickers=store.stickers,
        sees=lambda name: dependencies.roster.candidates(name)[0].has_vision,
        library=store.media,
        feed=common.feed,
        clock=clock,
        start=common.start,
        waits=FileWaits(store.fetches, clock=clock, wait_s=dependencies.limits.fetch_wait_s),
        typing=Typing(surfaces, clock=clock, start=common.start),
        bytes_max=dependencies.limits.media_bytes,
        bus=common.bus,
        lease=common.lease,
        is_shared=dependencies.is_shared,
    )


def _services(
    dependencies: NodeDependencies, common: Common, receivers: Receivers
) -> RunnerServices:
    """Make the services that every runner uses."""
    store, clock = dependencies.store, dependencies.clock
    entropy, feed = dependencies.entropy, common.feed
    random_bytes = entropy.random_bytes
    prompts = Prompts(
        store.conversations,
        store.media,
        windows=common.windows,
        personas=lambda: dependencies.personas,
        platform=dependencies.platform,
        zone=dependencies.zone,
    )
    reaching = Reaching(clock, AgentPlaces(dependencies.roster.places))
    for forget in (common.windows.forget_agent, reaching.forget):
        dependencies.roster.when_gone(forget)
    return RunnerServices(
        can_speak=dependencies.speaker is not None,
        turns=store.turns,
        places=store.places,
        reach=partial(receivers.reach, dependencies.forms, dependencies.adapters),
        delegations=store.delegations,
        grants=store.grants,
        lost=common.lost,
        effects=store.effects,
        todos=store.todos,
        start=common.start,
        room=store.room,
        admission=common.admission,
        conversations=store.conversations,
        prompts=prompts,
        files=AgentFiles(store.media, clock=clock, bytes_max=dependencies.limits.media_bytes),
        roster=dependencies.roster,
        reaching=reaching,
        flusher=Flusher(store.turns, clock=clock, start=common.start, heartbeat=common.heartbeat),
        feed=feed,
        clock=clock,
        mint=lambda kind: mint(kind, now_ms=clock.now_ms(), randomness=random_bytes(RANDOM_BYTES)),
        limits=dependencies.limits,
        budgets=Budgets(store.budgets, clock=clock, limits=dependencies.budgets),
        wakes=common.bus,
        lease=common.lease,
        afterwards=Afterwards(
            store.errands, feed, has_titles=dependencies.limits.has_titles, wakes=common.bus
        ),
        alarm=Alarm(store.operators, feed, clock=clock, wakes=common.bus),
        trim=common.trim,
    )


def _hooks(dependencies: NodeDependencies, common: Common) -> HookPump:
    return HookPump(
        dependencies.store.occasions,
        dependencies.hooks,
        common.feed,
        is_shared=dependencies.is_shared,
        clock=dependencies.clock,
        bus=common.bus,
        node=dependencies.store.node,
    )


def _pushes(dependencies: NodeDependencies, common: Common) -> PushPump:
    return PushPump(
        dependencies.store.pushes,
        dependencies.pushes,
        common.feed,
        clock=dependencies.clock,
        bus=common.bus,
        start=common.start,
        lease=common.lease,
    )


def _menu(dependencies: NodeDependencies) -> Menu:
    """Return what commands can choose from now: agents, personas, the idle time, the recovery
    policy."""
    return Menu(
        agents={backend.name: backend.offer for backend in dependencies.roster.backends},
        personas=tuple(dependencies.personas),
        idle_reset_ms=dependencies.limits.idle_reset_ms,
        recovery=dependencies.limits.recovery,
        can_speak=dependencies.speaker is not None,
        schedule=terms_of(
            dependencies.jobs,
            agents=[each.name for each in dependencies.roster.backends],
            adapters=[*dependencies.adapters, *dependencies.platforms],
            zone=dependencies.zone,
        ),
    )
