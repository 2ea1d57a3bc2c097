"""Answers the questions of the command line from the store itself, when no node runs.

Everybody who can read the home is its operator. The store's own lock keeps two processes apart.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from perdure.app.config import environment
from perdure.app.config import loading as config
from perdure.app.config.environment import OPERATOR
from perdure.app.config.platforms import address_forms, operators_of
from perdure.app.wiring import storage
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Rejected
from perdure.domain.ids import CallId, PrincipalId, TurnId
from perdure.domain.journal.records import EffectView
from perdure.domain.people.menu import OfferedTool
from perdure.engine.foundation.wakes import Bus
from perdure.ports.gateway import Health, PlatformView
from perdure.ports.people.places import OutgoingMessage, SentMessage
from perdure.ports.people.principals import Principal
from perdure.ports.turns.questions import QuestionReply, QuestionTaken
from perdure.store.store import Store
from perdure.web.endpoints import Endpoint, OperatorServices

P = ParamSpec("P")
T = TypeVar("T")
IN_USE: Final = "in_use"


@asynccontextmanager
async def opened_store(
    home: Path, environ: Mapping[str, str], *, make: bool = False
) -> AsyncIterator[Store]:
    """Yield this home's store, locked until the block ends. With `make`, a missing home is
    created."""
    store = _closed_store(home, environ, make=make)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def watched_store(home: Path, environ: Mapping[str, str]) -> AsyncIterator[Store]:
    """Yield this home's store for reading beside a running node. If no node has it open, it is
    migrated first and then released, so that a node can open it."""
    settings = config.load(home, environ)
    if not settings.store.is_sqlite:
        async with opened_store(home, environ) as store:
            yield store
        return
    try:
        async with opened_store(home, environ):
            pass
    except Rejected as error:
        if error.code != IN_USE:
            raise
    store = storage.watched(home, clock=SystemClock(), entropy=SystemEntropy())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _closed_store(home: Path, environ: Mapping[str, str], *, make: bool) -> Store:
    """Return the store, not yet opened. Raises `Rejected` if there is no home and `make` is not
    set."""
    if not make and not home.is_dir():
        raise Rejected(
            f"there is no Perdure in {home}; `perdure serve` begins one there, or choose another "
            "with --home",
            code="no_home",
        )
    environment.prepare_home(home)
    settings = config.load(home, environ)
    return storage.store(settings, home, clock=SystemClock(), entropy=SystemEntropy())


class StoreAnswers:
    """Answers endpoints on an opened store, as its operator."""

    def __init__(self, services: OperatorServices, operator: Principal) -> None:
        self._services = services
        self._operator = operator

    async def ask(
        self, endpoint: Endpoint[OperatorServices, P, T], *names: P.args, **given: P.kwargs
    ) -> T:
        """Call an endpoint's function directly, as a node would."""
        return await endpoint.answer(self._services, self._operator, *names, **given)


async def store_answers(store: Store, settings: config.Config) -> StoreAnswers:
    """Return what answers on this store. The operator is created first, so that no other principal
    can take this name."""
    operator = await store.principals.ensure(OPERATOR, role="operator")
    nobody = NoNode(store, settings)
    services = OperatorServices(
        conversations=store.conversations,
        archive=store.archive,
        diagnostics=store.diagnostics,
        principals=store.principals,
        access=store.access,
        places=store.places,
        parked=store.parked,
        questions=store.questions,
        grants=store.grants,
        effects=store.effects,
        schedule=store.schedule,
        now_ms=SystemClock().now_ms,
        audit=store.audit,
        door=nobody,
        control=nobody,
        wakes=Bus(),  # no node waits for wake-ups
        entropy=SystemEntropy(),
        forms=address_forms(settings.adapters),
    )
    return StoreAnswers(services, operator)


class NoNode:
    """Takes the place of the node when none runs: it stores what is wanted, and the next start
    continues from there."""

    def __init__(self, store: Store, settings: config.Config) -> None:
        self._store = store
        self._settings = settings

    async def send(self, sending: OutgoingMessage) -> SentMessage:
        """Store a message to send. The next start sends it."""
        adapters = self._settings.adapters
        await self._store.principals.platforms_operators(operators_of(adapters))
        queue_max = self._settings.limits.queued_per_conversation
        return await self._store.places.send(sending, queue_max=queue_max)

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        """Stop a turn that a node left unfinished, so that the next start does not resume it."""
        await self._store.inbox.stop(turn, by=by)

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None:
        """Replace the text of a message that waits."""
        await self._store.inbox.amend(turn, text, by=by)

    async def answer(self, reply: QuestionReply) -> QuestionTaken:
        """Take the answer to a question. The next start goes on with the turn."""
        return await self._store.questions.answer(reply)

    async def mark_effect(
        self, call: CallId, *, has_happened: bool, by: PrincipalId, principal: PrincipalId | None
    ) -> EffectView:
        """Record whether a call has happened."""
        return await self._store.effects.mark(
            call, has_happened=has_happened, by=by, principal=principal
        )

    def tools(self, agent: str) -> list[OfferedTool]:
        """Refuse the request, because only a running node has agents with tools."""
        raise Rejected("only a running node knows its agents' tools; start it: perdure serve")

    def platforms(self) -> list[PlatformView]:
        """Return the configured platforms, none of which is connected."""
        names = self._settings.adapters
        return [PlatformView(name=name, account="", health=Health.BLIND) for name in names]

    async def take_again(self, adapter: str, payload: str) -> None:
        """Refuse the request, because only a running node has adapters that can read the
        message."""
        raise Rejected("a letter is taken again by a running node; start it: perdure serve")

    async def review_access(self) -> None:
        """Do nothing: no turn runs, and access is checked again before each turn begins."""
