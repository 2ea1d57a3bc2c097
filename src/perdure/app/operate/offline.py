"""The answers of a running node, straight from the store, for when none runs.

Whoever can read the home is its operator. The store's own lock keeps two processes apart.
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
from perdure.domain.ids import PrincipalId, TurnId
from perdure.engine.foundation.wakes import Bus
from perdure.ports.gateway import Health, PlatformView
from perdure.ports.people.places import OutgoingMessage, SentMessage
from perdure.ports.people.principals import Principal
from perdure.store.store import Store
from perdure.web.endpoints import Endpoint, OperatorServices

P = ParamSpec("P")
T = TypeVar("T")
IN_USE: Final = "in_use"


@asynccontextmanager
async def opened_store(
    home: Path, environ: Mapping[str, str], *, make: bool = False
) -> AsyncIterator[Store]:
    """This home's store, ours alone until the block is left. `make`: also where no home is yet."""
    store = _closed_store(home, environ, make=make)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def watched_store(home: Path, environ: Mapping[str, str]) -> AsyncIterator[Store]:
    """This home's store, for reading beside a node that has it open. Where none has, it is brought
    up to date first, and is then free for one again."""
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
        return await endpoint.answer(self._services, self._operator, *names, **given)


async def store_answers(store: Store, settings: config.Config) -> StoreAnswers:
    """Return what answers on this store. The operator is made before anybody else, whose name it
    could become otherwise."""
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
        audit=store.audit,
        door=nobody,
        control=nobody,
        wakes=Bus(),  # nobody waits
        entropy=SystemEntropy(),
        forms=address_forms(settings.adapters),
    )
    return StoreAnswers(services, operator)


class NoNode:
    """Stands for the node where none runs: what is wanted is written down, and the next start goes
    on from there."""

    def __init__(self, store: Store, settings: config.Config) -> None:
        self._store = store
        self._settings = settings

    async def send(self, sending: OutgoingMessage) -> SentMessage:
        adapters = self._settings.adapters
        await self._store.principals.platforms_operators(operators_of(adapters))
        queue_max = self._settings.limits.queued_per_conversation
        return await self._store.places.send(sending, queue_max=queue_max)

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        """Stop a turn that a node has left in the middle, so that the next start does not go on
        with it."""
        await self._store.inbox.stop(turn, by=by)

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None:
        await self._store.inbox.amend(turn, text, by=by)

    def platforms(self) -> list[PlatformView]:
        names = self._settings.adapters
        return [PlatformView(name=name, account="", health=Health.BLIND) for name in names]

    async def take_again(self, adapter: str, payload: str) -> None:
        raise Rejected("a letter is taken again by a running node; start it: perdure serve")

    async def review_access(self) -> None:
        """Do nothing: no turn runs, and each is asked about again before it begins."""
