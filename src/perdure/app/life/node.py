"""Runs one node, from its parts to its end. This is the composition root."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import msgspec

from perdure import __version__
from perdure.app.config.loading import Config, ServerConfig
from perdure.app.config.platforms import address_forms
from perdure.app.life.life_log import LifeLog
from perdure.app.operate.verify import report
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.receiving import begin_receiving
from perdure.domain.hooks.occasions import Occasion
from perdure.domain.outcomes import Busy
from perdure.domain.people.menu import OfferedTool
from perdure.domain.turn.rebuilding import StoredRequest
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.prompts import Prompts
from perdure.engine.models.roster import Roster
from perdure.engine.watching.feed import Feed
from perdure.ports.gateway import AgentView, PlatformView
from perdure.web.http.shared_question import counting
from perdure.web.measuring.tally import Tally
from perdure.web.services import NodeInfo, Services


class Node:
    """Represents a running gateway to the web, to signals and to the stop."""

    def __init__(self, parts: NodeParts, roster: Roster) -> None:
        self._gateway = parts.gateway
        self._turns = parts.turns
        self._receivers = parts.receivers
        self._review = parts.review
        self._hooks = parts.hooks
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
        """Return how many turns run now."""
        return self._turns.running

    @property
    def sending(self) -> int:
        """Return how many messages are being sent now."""
        return self._gateway.sending

    def agents(self) -> list[AgentView]:
        return [
            AgentView(
                name=backend.name, kind=backend.kind, model=backend.model, window=backend.window
            )
            for backend in self.roster.backends
        ]

    def tools(self, agent: str) -> list[OfferedTool]:
        """Return what the agent that answers under this name may do, and why not the rest."""
        names = [backend.name for backend in self.roster.backends]
        chosen = agent if agent in names else self.roster.default
        return list(self.roster.candidates(chosen)[0].list_tools())

    def platforms(self) -> list[PlatformView]:
        return self._receivers.views()

    async def take_again(self, adapter: str, payload: str) -> None:
        """Take a message again that was put aside unread. Raises what keeps it from being taken."""
        await self._receivers.take_again(adapter, payload)

    async def review_access(self) -> None:
        """End the work of people who may no longer speak: stop their running turns, and refuse the
        waiting ones."""
        await self._review.step()

    def tell_hooks_of_start(self) -> None:
        """Tell hooks that people can reach the node."""
        self._hooks.say(Occasion.STARTED)

    def resolve_agent(self, name: str) -> str:
        """Return the name of a configured agent; an empty name means the default. Raises
        `Rejected`."""
        return self.roster.resolve(name)

    def request_drain(self, *, then_restart: bool = False, is_replaced: bool = False) -> None:
        """Ask the node to drain, and to stop or restart after that. Returns at once."""
        if then_restart:
            self._gateway.request_restart()
        else:
            self._gateway.request_drain(is_replaced=is_replaced)

    def when_drain_requested(self, tell: Callable[[], None]) -> None:
        """Have `tell` called as soon as a drain is asked for."""
        self._gateway.when_drain_requested(tell)

    def hurry(self) -> None:
        """Let the drain wait no longer."""
        self._gateway.hurry()

    @property
    def parked(self) -> tuple[int, int]:
        """Return how many turns the drain has parked, and how many it could not."""
        return self._gateway.parked, self._gateway.unparked

    async def drain(self) -> None:
        """Finish or park the running turns, then stop receiving. Messages that arrive meanwhile are
        still accepted, and answered after the restart."""
        await self._gateway.drain()
        async with self._gateway.ending.last_step("platforms that are being heard"):
            await self._receivers.stop()


class RunningNode(msgspec.Struct, frozen=True):
    """Holds a running node, and what its HTTP server needs."""

    node: Node
    services: Services
    tally: Tally


@asynccontextmanager
async def running_node(
    dependencies: NodeDependencies, config: Config
) -> AsyncIterator[RunningNode]:
    """Run a node on an open store until the block ends. Leaving the block drains it. Every step of
    the end has a time limit (`engine/node/ending.py`)."""
    async with Supervisor() as supervisor:
        tally = Tally()
        parts = compose_node(
            dependencies, supervisor.start, feed=Feed(tally.observe, LifeLog().observe)
        )
        node = Node(parts, dependencies.roster)
        # Before the first turn, which would otherwise take a window for larger than it is.
        learned = await dependencies.store.room.learned()
        dependencies.roster.learn((each.agent, each.model, each.tokens) for each in learned)
        await parts.gateway.begin(name=os.uname().nodename)
        begin_receiving(dependencies, parts)
        try:
            yield RunningNode(node, _services(dependencies, parts, node, config), tally)
        finally:
            # Messages may still be sent until the drain is over, so the platforms' connections are
            # closed after it.
            await node.drain()
            ending = parts.gateway.ending
            async with ending.last_step("platforms' connections"):
                await parts.receivers.close()
            async with ending.last_step("work under way"):
                await supervisor.finished()
            await supervisor.let_go()


def _services(
    dependencies: NodeDependencies, parts: NodeParts, node: Node, config: Config
) -> Services:
    """Collect the services that the HTTP server gives to its endpoints."""
    store, clock = dependencies.store, dependencies.clock
    return Services(
        door=parts.door,
        watchers=parts.watchers,
        control=node,
        conversations=store.conversations,
        shelves=store.shelves,
        menu=parts.menu,
        archive=store.archive,
        diagnostics=store.diagnostics,
        counts=counting(store.diagnostics),
        condition=store.condition,
        principals=store.principals,
        media=store.media,
        clock=clock,
        entropy=dependencies.entropy,
        info=NodeInfo(
            version=__version__, node=store.node, pid=os.getpid(), started_at=clock.now_ms()
        ),
        encoded_again=partial(_encoded_again, parts.prompts, dependencies.roster),
        verify=partial(report, store.audit, store.diagnostics),
        audit=store.audit,
        busy=Busy(config.server.busy),
        call_wait_s=config.server.call_wait_s,
        body_bytes_max=config.limits.body_bytes,
        gate=parts.gate,
        agents=parts.agents,
        tool_servers=dependencies.servers,
        hooks=parts.receivers.hooks(),
        operators_hooks=dependencies.hooks,
        boot_problem=lambda: parts.boot.problem,
        pushes=store.pushes,
        push_sender=dependencies.pushes,
        forms=address_forms(config.adapters),
        access=store.access,
        places=store.places,
        parked=store.parked,
        questions=store.questions,
        grants=store.grants,
        effects=store.effects,
        schedule=store.schedule,
        schedule_terms=parts.schedule.terms,
        now_ms=clock.now_ms,
        happened=parts.schedule.tell,
        wakes=parts.wakes,
        proxies=config.server.trusted_proxies,
        hosts=_names(config.server),
        is_shared=dependencies.is_shared,
    )


async def _encoded_again(prompts: Prompts, roster: Roster, asked: StoredRequest) -> bytes | None:
    """Rebuild the messages of a stored request, encoded as its agent did. Returns None if that
    agent is no longer configured."""
    backend = next((each for each in roster.backends if each.name == asked.basis.agent), None)
    if backend is None:
        return None
    request = await prompts.encoded_again(asked, backend)
    messages = [*request.history, *map(backend.agent.encode, request.messages)]
    return b"[" + b",".join(messages) + b"]"


def _names(server: ServerConfig) -> tuple[str, ...]:
    """Return the host names by which a request may address this gateway."""
    public = urlsplit(server.base_url or "").hostname or ""
    own = socket.gethostname().lower()
    found = (server.host, public, own, f"{own}.local", *server.hosts)
    return tuple(name for name in found if name)
