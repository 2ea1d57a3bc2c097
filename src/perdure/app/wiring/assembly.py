"""Puts the engine of a node together from what it stands on."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from perdure.app.wiring.file_reading import FileReader
from perdure.domain.delivery import Display
from perdure.domain.ids import RANDOM_BYTES, mint
from perdure.domain.people.access import Terms
from perdure.domain.people.budgets import DailyBudgets
from perdure.domain.people.menu import Menu
from perdure.engine.delivery.bubbles import Means
from perdure.engine.delivery.handover import Handovers
from perdure.engine.delivery.outbox import OutboxPump
from perdure.engine.delivery.previews import Previews
from perdure.engine.delivery.surfaces import Surfaces
from perdure.engine.delivery.typing import Typing
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.pulse import Pulse
from perdure.engine.foundation.supervisor import Start
from perdure.engine.foundation.thrift import Thrift
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.door import Door
from perdure.engine.inbound.fetching import FetchPump, NothingFetched, Sources
from perdure.engine.inbound.file_waits import FileWaits
from perdure.engine.inbound.inlet import Care, Inlet
from perdure.engine.inbound.receivers import Receiver, Receivers
from perdure.engine.models.budget import Budgets
from perdure.engine.models.prompts import Prompts
from perdure.engine.models.reaching import Reaching
from perdure.engine.models.roster import Roster
from perdure.engine.models.windows import Windows
from perdure.engine.node.indexing import Indexer
from perdure.engine.node.life import Gateway
from perdure.engine.node.sweeping import Sweeper
from perdure.engine.people.admission import Admission, Review
from perdure.engine.people.alarm import Alarm
from perdure.engine.people.quotas import RequestGate
from perdure.engine.turns.desk import Desk, Limits
from perdure.engine.turns.errands import Afterwards
from perdure.engine.turns.giving import Files
from perdure.engine.turns.pump import TurnPump
from perdure.engine.turns.reaper import Reaper
from perdure.engine.turns.scribe import Flusher
from perdure.engine.watching.feed import Feed
from perdure.engine.watching.watch import Watchers
from perdure.ports.platform.adapter import Adapter, Platform
from perdure.ports.records.media import Fetcher, Reader
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.store.store import Store

POLL_S = 1.0
NO_ADAPTERS: Mapping[str, Adapter] = {}
NO_PLATFORMS: Mapping[str, Platform] = {}
NO_PERSONAS: Mapping[str, str] = {}
NO_DISPLAYS: Mapping[str, Display] = {}
NO_SOURCES: Mapping[str, Fetcher] = {}
NOBODY_TO_ASK = FileReader()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is put together from. `give_back` returns free memory to the system."""

    store: Store
    roster: Roster
    clock: Clock
    entropy: Entropy
    limits: Limits = Limits()
    budgets: DailyBudgets = DailyBudgets()
    personas: Mapping[str, str] = NO_PERSONAS
    adapters: Mapping[str, Adapter] = NO_ADAPTERS
    platforms: Mapping[str, Platform] = NO_PLATFORMS
    terms: Callable[[str], Terms] = lambda _: Terms()
    displays: Mapping[str, Display] = NO_DISPLAYS
    sources: Mapping[str, Fetcher] = NO_SOURCES
    web: Fetcher = NothingFetched()
    reader: Reader = NOBODY_TO_ASK
    give_back: Callable[[], None] = lambda: None
    is_shared: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of a node, put together and not yet begun."""

    wakes: Bus
    turns: TurnPump
    outbox: OutboxPump
    fetching: FetchPump
    reaper: Reaper
    review: Review
    gateway: Gateway
    door: Door
    watchers: Watchers
    receivers: Receivers
    gate: RequestGate
    prompts: Prompts


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what nearly every part of the engine is given."""

    feed: Feed
    start: Start
    bus: Bus
    surfaces: Surfaces
    admission: Admission
    pulse: Pulse
    lease: NodeLease
    thrift: Thrift
    windows: Windows


def put_together(around: Surroundings, start: Start, *, feed: Feed) -> Parts:
    """Make the parts of a node, each from those that are there already."""
    store = around.store
    common = _common(around, start, feed)
    review = Review(store.turns, common.admission, feed, wakes=common.bus)
    reaper = Reaper(store.nodes, feed, policy=around.limits.recovery, review=review.step)
    handovers = Handovers()
    previews = _previews(around, common, handovers)
    desk = _desk(around, common)
    turns = _turns(around, common, desk, reaper, previews)
    outbox = _outbox(around, common, handovers)
    fetching = _fetching(around, common)
    gateway = _gateway(
        around, common, reaper, turns, outbox=outbox, previews=previews, fetching=fetching
    )
    return Parts(
        wakes=common.bus,
        turns=turns,
        outbox=outbox,
        fetching=fetching,
        reaper=reaper,
        review=review,
        gateway=gateway,
        door=_door(around, common, turns, gateway),
        watchers=Watchers(feed, store.conversations, store.archive, is_shared=around.is_shared),
        receivers=_receivers(around, common),
        gate=RequestGate(around.clock, around.limits.quota),
        prompts=desk.prompts,
    )


def _common(around: Surroundings, start: Start, feed: Feed) -> Common:
    store, clock = around.store, around.clock
    thrift = Thrift(store.shrink, around.give_back, clock=clock)
    return Common(
        feed=feed,
        start=start,
        bus=Bus(),
        surfaces=Surfaces(
            {**around.adapters, **around.platforms},
            store.pacing,
            clock=clock,
            display=lambda name: around.displays.get(name, Display()),
        ),
        admission=Admission(around.terms),
        pulse=Pulse(clock),
        lease=NodeLease(clock, lease_s=store.nodes.lease_s),
        thrift=thrift,
        windows=Windows(clock=clock, dropped=thrift.stir),
    )


def _previews(around: Surroundings, common: Common, handovers: Handovers) -> Previews:
    means = Means(
        outbox=around.store.outbox,
        clock=around.clock,
        bus=common.bus,
        lease=common.lease,
        is_shared=around.is_shared,
    )
    return Previews(means, handovers, common.feed, start=common.start)


def _turns(
    around: Surroundings, common: Common, desk: Desk, reaper: Reaper, previews: Previews
) -> TurnPump:
    return TurnPump(
        desk,
        reaper=reaper,
        start=common.start,
        surfaces=common.surfaces,
        previews=previews,
        bus=common.bus,
        poll_s=POLL_S if around.is_shared else None,
    )


def _outbox(around: Surroundings, common: Common, handovers: Handovers) -> OutboxPump:
    return OutboxPump(
        around.store.outbox,
        common.surfaces,
        media=around.store.media,
        handovers=handovers,
        feed=common.feed,
        clock=around.clock,
        start=common.start,
        expire_s=around.limits.delivery_expire_s,
        bus=common.bus,
        lease=common.lease,
        is_shared=around.is_shared,
    )


def _gateway(  # noqa: PLR0913 - the parts of a node
    around: Surroundings,
    common: Common,
    reaper: Reaper,
    turns: TurnPump,
    *,
    outbox: OutboxPump,
    previews: Previews,
    fetching: FetchPump,
) -> Gateway:
    store = around.store
    return Gateway(
        nodes=store.nodes,
        turns=turns,
        outbox=outbox,
        previews=previews,
        fetching=fetching,
        sweeper=Sweeper(store.media),
        indexer=Indexer(store.index),
        windows=common.windows,
        thrift=common.thrift,
        reaper=reaper,
        feed=common.feed,
        limits=around.limits,
        clock=around.clock,
        pulse=common.pulse,
        start=common.start,
        bus=common.bus,
        lease=common.lease,
        is_shared=around.is_shared,
    )


def _door(around: Surroundings, common: Common, turns: TurnPump, gateway: Gateway) -> Door:
    return Door(
        around.store.inbox,
        around.store.places,
        common.feed,
        turns,
        queue_max=around.limits.queue_max,
        menu=lambda: _menu(around),
        restart=gateway.request_restart,
        wakes=common.bus,
    )


def _receivers(around: Surroundings, common: Common) -> Receivers:
    by_name = {
        name: Receiver(platform, common.surfaces.named(name), clock=around.clock, wakes=common.bus)
        for name, platform in around.platforms.items()
    }
    return Receivers(by_name, start=common.start)


def _fetching(around: Surroundings, common: Common) -> FetchPump:
    store, clock, surfaces = around.store, around.clock, common.surfaces
    return FetchPump(
        store.fetches,
        Sources(
            platforms={**around.platforms, **around.sources},
            is_open=lambda name: surfaces.named(name).is_open,
            web=around.web,
            reader=around.reader,
        ),
        stickers=store.stickers,
        sees=lambda name: around.roster.candidates(name)[0].has_vision,
        library=store.media,
        feed=common.feed,
        clock=clock,
        start=common.start,
        waits=FileWaits(store.fetches, clock=clock, wait_s=around.limits.fetch_wait_s),
        typing=Typing(surfaces, clock=clock, start=common.start),
        bytes_max=around.limits.media_bytes,
        bus=common.bus,
        lease=common.lease,
        is_shared=around.is_shared,
    )


def _desk(around: Surroundings, common: Common) -> Desk:
    store, clock, entropy, feed = around.store, around.clock, around.entropy, common.feed
    prompts = Prompts(
        store.conversations, store.media, windows=common.windows, personas=lambda: around.personas
    )
    reaching = Reaching(clock)
    around.roster.when_gone(common.windows.forget_agent)
    around.roster.when_gone(reaching.forget)
    return Desk(
        turns=store.turns,
        admission=common.admission,
        conversations=store.conversations,
        prompts=prompts,
        files=Files(store.media, clock=clock, bytes_max=around.limits.media_bytes),
        roster=around.roster,
        reaching=reaching,
        flusher=Flusher(store.turns, clock=clock, start=common.start, pulse=common.pulse),
        feed=feed,
        clock=clock,
        mint=lambda prefix: mint(
            prefix, now_ms=clock.now_ms(), randomness=entropy.random_bytes(RANDOM_BYTES)
        ),
        limits=around.limits,
        budgets=Budgets(store.budgets, clock=clock, limits=around.budgets),
        wakes=common.bus,
        lease=common.lease,
        afterwards=Afterwards(
            store.errands, feed, has_titles=around.limits.has_titles, wakes=common.bus
        ),
        alarm=Alarm(store.operators, feed, clock=clock, wakes=common.bus),
        thrift=common.thrift,
    )


def _menu(around: Surroundings) -> Menu:
    return Menu(
        agents={seat.name: seat.offer for seat in around.roster.seats},
        personas=tuple(around.personas),
        idle_reset_ms=around.limits.idle_reset_ms,
        recovery=around.limits.recovery,
    )


def begin_receiving(around: Surroundings, parts: Parts) -> None:
    """From now on what people do on the platforms is taken."""
    is_after_death = parts.gateway.is_after_death
    care = Care(around.store.handling, around.clock, is_after_death=is_after_death)

    def inlet(receiver: Receiver) -> Inlet:
        return Inlet(
            receiver.name,
            terms=partial(around.terms, receiver.name),
            door=parts.door,
            access=around.store.access,
            principals=around.store.principals,
            entropy=around.entropy,
            gate=parts.gate,
            heard=receiver.heard,
            wakes=parts.wakes,
            care=care,
        )

    parts.receivers.begin(inlet)
