"""The composition root: one node, from its parts to its end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from perdure import __version__
from perdure.app.config import Config
from perdure.app.file_reading import FileReader
from perdure.app.platforms import address_forms
from perdure.app.verify import verify
from perdure.domain.access import Terms
from perdure.domain.budgets import DailyBudgets
from perdure.domain.delivery import Display
from perdure.domain.ids import RANDOM_BYTES, mint
from perdure.domain.menu import Menu
from perdure.domain.outcomes import Busy
from perdure.domain.recovery import Policy, Resume
from perdure.engine.admission import Admission, Review
from perdure.engine.alarm import Alarm
from perdure.engine.budget import Budgets
from perdure.engine.desk import Desk, Limits
from perdure.engine.errands import Afterwards
from perdure.engine.feed import Feed
from perdure.engine.fetching import FetchPump, NothingFetched, Sources
from perdure.engine.gateway import Gateway
from perdure.engine.giving import Files
from perdure.engine.inbox import Door
from perdure.engine.indexing import Indexer
from perdure.engine.inlet import Inlet
from perdure.engine.outbox import OutboxPump
from perdure.engine.prompts import Prompts
from perdure.engine.reaper import Reaper
from perdure.engine.receivers import Receiver, Receivers
from perdure.engine.roster import Roster
from perdure.engine.scribe import Flusher
from perdure.engine.stage import Stage
from perdure.engine.supervisor import Start, Supervisor
from perdure.engine.surfaces import Surfaces
from perdure.engine.sweeping import Sweeper
from perdure.engine.turns import TurnPump
from perdure.engine.watch import Watchers
from perdure.ports.adapter import Adapter, Platform
from perdure.ports.clock import Clock
from perdure.ports.entropy import Entropy
from perdure.ports.gateway import AgentView, PlatformView
from perdure.ports.media import Fetcher, Reader
from perdure.store.store import Store
from perdure.web.services import NodeInfo, Services
from perdure.web.tally import Tally

POLL_S = 1.0
NO_ADAPTERS: Mapping[str, Adapter] = {}
NO_PLATFORMS: Mapping[str, Platform] = {}
NO_PERSONAS: Mapping[str, str] = {}
NO_DISPLAYS: Mapping[str, Display] = {}
NO_SOURCES: Mapping[str, Fetcher] = {}
NOBODY_TO_ASK = FileReader()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is put together from."""

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
    is_shared: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of a node, put together and not yet begun."""

    turns: TurnPump
    outbox: OutboxPump
    fetching: FetchPump
    reaper: Reaper
    review: Review
    gateway: Gateway
    door: Door
    watchers: Watchers
    receivers: Receivers


def limits_of(config: Config) -> Limits:
    return Limits(
        concurrent=config.turns.concurrent,
        turn_timeout_s=config.turns.timeout_s,
        steps_max=config.turns.steps_max,
        recovery=Policy(
            resume=Resume(config.recovery.resume),
            freshness_ms=int(config.recovery.freshness_s * 1000),
            attempts_max=config.recovery.attempts_max,
        ),
        queue_max=config.limits.queued_per_conversation,
        drain_timeout_s=config.drain.timeout_s,
        delivery_expire_s=int(config.delivery.expire_s),
        has_titles=config.sessions.titles,
        idle_reset_ms=int(config.sessions.idle_reset_s * 1000),
        media_bytes=config.limits.media_bytes,
    )


def put_together(around: Surroundings, start: Start, *, feed: Feed) -> Parts:
    store, limits = around.store, around.limits
    surfaces = Surfaces(
        {**around.adapters, **around.platforms},
        clock=around.clock,
        display=lambda name: around.displays.get(name, Display()),
    )
    stage, outbox = _outgoing(around, feed, start, surfaces)
    admission = Admission(around.terms)
    review = Review(
        store.turns,
        admission,
        feed,
        abandon=lambda turn: turns.abandon(turn),  # noqa: PLW0108 - not yet
        wake=lambda: _wake(turns, outbox),
    )
    reaper = Reaper(store.nodes, feed, policy=limits.recovery, review=review.step)
    turns = TurnPump(
        _desk(
            around,
            feed,
            outbox,
            start,
            admission,
            wake=lambda: turns.wake(),  # noqa: PLW0108 - not yet
            fetch_wake=lambda: fetching.wake(),  # noqa: PLW0108 - not yet
        ),
        reaper=reaper,
        start=start,
        surfaces=surfaces,
        stage=stage,
        poll_s=POLL_S if around.is_shared else None,
    )
    fetching = _fetching(around, feed, start, surfaces, wakes=(turns.wake, outbox.wake))
    gateway = Gateway(
        nodes=store.nodes,
        turns=turns,
        outbox=outbox,
        fetching=fetching,
        sweeper=Sweeper(store.media),
        indexer=Indexer(store.index),
        reaper=reaper,
        feed=feed,
        limits=limits,
        clock=around.clock,
        start=start,
        is_shared=around.is_shared,
    )
    return Parts(
        turns=turns,
        outbox=outbox,
        fetching=fetching,
        reaper=reaper,
        review=review,
        gateway=gateway,
        door=Door(
            store.inbox,
            store.places,
            feed,
            turns,
            queue_max=limits.queue_max,
            menu=lambda: _menu(around),
            restart=gateway.request_restart,
            outbox_wake=outbox.wake,
            fetch_wake=fetching.wake,
        ),
        watchers=Watchers(feed, store.conversations, store.archive),
        receivers=_receivers(around, start, surfaces),
    )


def _wake(*pumps: TurnPump | OutboxPump) -> None:
    for pump in pumps:
        pump.wake()


def _outgoing(
    around: Surroundings, feed: Feed, start: Start, surfaces: Surfaces
) -> tuple[Stage, OutboxPump]:
    store, clock = around.store, around.clock
    stage = Stage(store.outbox, feed, clock=clock, start=start, is_shared=around.is_shared)
    outbox = OutboxPump(
        store.outbox,
        surfaces,
        media=store.media,
        stage=stage,
        clock=clock,
        start=start,
        expire_s=around.limits.delivery_expire_s,
        is_shared=around.is_shared,
    )
    stage.wake = outbox.wake
    return stage, outbox


def _receivers(around: Surroundings, start: Start, surfaces: Surfaces) -> Receivers:
    by_name = {
        name: Receiver(platform, surfaces.named(name), clock=around.clock)
        for name, platform in around.platforms.items()
    }
    return Receivers(by_name, start=start)


def _fetching(
    around: Surroundings,
    feed: Feed,
    start: Start,
    surfaces: Surfaces,
    *,
    wakes: Sequence[Callable[[], None]],
) -> FetchPump:
    def changed() -> None:
        for wake in wakes:
            wake()

    return FetchPump(
        around.store.fetches,
        Sources(
            platforms={**around.platforms, **around.sources},
            is_open=lambda name: surfaces.named(name).is_open,
            web=around.web,
            reader=around.reader,
        ),
        stickers=around.store.stickers,
        sees=lambda name: around.roster.candidates(name)[0].has_vision,
        library=around.store.media,
        feed=feed,
        clock=around.clock,
        start=start,
        bytes_max=around.limits.media_bytes,
        changed=changed,
        is_shared=around.is_shared,
    )


def _desk(  # noqa: PLR0913 - what runners share is made of all of it
    around: Surroundings,
    feed: Feed,
    outbox: OutboxPump,
    start: Start,
    admission: Admission,
    *,
    wake: Callable[[], None],
    fetch_wake: Callable[[], None],
) -> Desk:
    store, clock, entropy = around.store, around.clock, around.entropy
    prompts = Prompts(store.conversations, store.media, personas=lambda: around.personas)
    around.roster.when_gone(prompts.forget)
    return Desk(
        turns=store.turns,
        admission=admission,
        conversations=store.conversations,
        prompts=prompts,
        files=Files(store.media, clock=clock, bytes_max=around.limits.media_bytes),
        roster=around.roster,
        flusher=Flusher(store.turns, clock=clock, start=start),
        feed=feed,
        clock=clock,
        mint=lambda prefix: mint(
            prefix, now_ms=clock.now_ms(), randomness=entropy.random_bytes(RANDOM_BYTES)
        ),
        limits=around.limits,
        budgets=Budgets(store.budgets, clock=clock, limits=around.budgets),
        outbox_wake=outbox.wake,
        fetch_wake=fetch_wake,
        afterwards=Afterwards(store.errands, feed, has_titles=around.limits.has_titles, wake=wake),
        alarm=Alarm(store.operators, feed, clock=clock, wake=outbox.wake),
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

    def inlet(receiver: Receiver) -> Inlet:
        return Inlet(
            receiver.name,
            terms=partial(around.terms, receiver.name),
            door=parts.door,
            access=around.store.access,
            principals=around.store.principals,
            entropy=around.entropy,
            heard=receiver.heard,
            outbox_wake=parts.outbox.wake,
        )

    def opened() -> None:
        parts.outbox.wake()
        parts.fetching.wake()

    parts.receivers.begin(inlet, opened=opened)


class Node:
    """A running gateway, as its surfaces and signals see it."""

    def __init__(self, parts: Parts, roster: Roster) -> None:
        self._gateway = parts.gateway
        self._turns = parts.turns
        self._receivers = parts.receivers
        self._review = parts.review
        self.roster = roster

    @property
    def drain_requested(self) -> asyncio.Event:
        return self._gateway.drain_requested

    @property
    def is_restarting(self) -> bool:
        return self._gateway.is_restarting

    @property
    def is_ready(self) -> bool:
        return self._gateway.is_ready

    @property
    def is_draining(self) -> bool:
        return self._gateway.is_draining

    @property
    def running(self) -> int:
        return self._turns.running

    def agents(self) -> list[AgentView]:
        return [AgentView(name=seat.name, kind=seat.kind) for seat in self.roster.seats]

    def platforms(self) -> list[PlatformView]:
        return self._receivers.views()

    async def take_again(self, adapter: str, payload: str) -> None:
        await self._receivers.take_again(adapter, payload)

    async def review_access(self) -> None:
        await self._review.step()

    def resolve_agent(self, name: str) -> str:
        return self.roster.resolve(name)

    def request_drain(self, *, then_restart: bool = False, is_replaced: bool = False) -> None:
        if then_restart:
            self._gateway.request_restart()
        else:
            self._gateway.request_drain(is_replaced=is_replaced)

    def hurry(self) -> None:
        self._gateway.hurry()

    async def drain(self) -> None:
        """What people say meanwhile is still taken, and answered after the restart."""
        await self._gateway.drain()
        await self._receivers.stop()


class Running(msgspec.Struct, frozen=True):
    node: Node
    services: Services
    tally: Tally


@asynccontextmanager
async def running_node(around: Surroundings, config: Config) -> AsyncIterator[Running]:
    """A node on an open store, working until the block is left; leaving it drains."""
    async with Supervisor() as supervisor:
        tally = Tally()
        parts = put_together(around, supervisor.start, feed=Feed(tally.observe))
        node = Node(parts, around.roster)
        await parts.gateway.begin(name=os.uname().nodename)
        begin_receiving(around, parts)
        try:
            yield Running(node, _services(around, parts, node, config), tally)
        finally:
            await node.drain()
            await parts.receivers.close()


def _services(around: Surroundings, parts: Parts, node: Node, config: Config) -> Services:
    store, clock = around.store, around.clock
    return Services(
        door=parts.door,
        watchers=parts.watchers,
        control=node,
        conversations=store.conversations,
        archive=store.archive,
        diagnostics=store.diagnostics,
        principals=store.principals,
        media=store.media,
        clock=clock,
        entropy=around.entropy,
        info=NodeInfo(
            version=__version__, node=store.node, pid=os.getpid(), started_at=clock.now_ms()
        ),
        verify=partial(verify, store.archive, store.diagnostics),
        busy=Busy(config.server.busy),
        body_bytes_max=config.limits.body_bytes,
        hooks=parts.receivers.hooks(),
        forms=address_forms(config.adapters),
        access=store.access,
        places=store.places,
        parked=store.parked,
        outbox_wake=parts.outbox.wake,
    )
