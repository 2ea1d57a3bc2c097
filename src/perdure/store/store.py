"""Puts the store together: one driver, and the ports that use it."""

from pathlib import Path

from perdure.domain.ids import NodeId
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.store.condition import StoredCondition, WatchedDriver
from perdure.store.drivers.driver import Driver
from perdure.store.migrations import Applied
from perdure.store.mint import Mint
from perdure.store.ports.delivery.outbox import StoredOutbox
from perdure.store.ports.delivery.pacing import StoredPacing
from perdure.store.ports.delivery.parked import StoredParked
from perdure.store.ports.delivery.pushes import StoredPushes
from perdure.store.ports.people.access import StoredAccess
from perdure.store.ports.people.memory import StoredMemory
from perdure.store.ports.people.operators import StoredOperators
from perdure.store.ports.people.overhearing import StoredOverhearing
from perdure.store.ports.people.places import StoredPlaces
from perdure.store.ports.records.audit import StoredAudit
from perdure.store.ports.records.fetches import StoredFetches
from perdure.store.ports.records.history import (
    StoredArchive,
    StoredConversations,
    StoredDiagnostics,
    StoredIndex,
)
from perdure.store.ports.records.media import StoredMedia
from perdure.store.ports.records.occasions import StoredOccasions
from perdure.store.ports.records.shelves import StoredShelves
from perdure.store.ports.records.stickers import StoredStickers
from perdure.store.ports.turns.budgets import StoredBudgets
from perdure.store.ports.turns.delegations import StoredDelegations
from perdure.store.ports.turns.errands import StoredErrands
from perdure.store.ports.turns.handling import StoredHandling
from perdure.store.ports.turns.questions import (
    StoredEffects,
    StoredGrants,
    StoredQuestions,
    StoredTodos,
)
from perdure.store.ports.turns.room import StoredRoom
from perdure.store.ports.turns.schedule import StoredSchedule
from perdure.store.ports.turns.turns import (
    StoredInbox,
    StoredNodes,
    StoredPrincipals,
    StoredTurns,
)


class Store:
    """Holds one opened database and all ports on it. Each process opens it once and gets a node id
    of its own: after a restart the same machine is another node."""

    def __init__(
        self,
        driver: Driver,
        *,
        clock: Clock,
        entropy: Entropy,
        media: Path,
        quota: Quota = NO_QUOTA,
    ) -> None:
        """Build the ports without opening the database. `quota` is what each member may have."""
        self._mint = mint = Mint(clock, entropy)
        self.node = node = NodeId(mint.id("nod"))
        self.condition = StoredCondition(driver, clock, node)
        self._driver = driver = WatchedDriver(driver, self.condition)
        self.inbox = StoredInbox(driver, mint, node, quota=quota)
        self.turns = StoredTurns(driver, mint, node)
        self.nodes = StoredNodes(driver, mint, node)
        self.errands = StoredErrands(driver, mint, node)
        self.delegations = StoredDelegations(driver, mint, node)
        self.room = StoredRoom(driver, mint, node)
        self.questions = StoredQuestions(driver, mint, node)
        self.grants = StoredGrants(driver, mint)
        self.effects = StoredEffects(driver, mint, node)
        self.todos = StoredTodos(driver, mint, node)
        self.schedule = StoredSchedule(driver, mint, node)
        self.outbox = StoredOutbox(driver, mint, node)
        self.pacing = StoredPacing(driver, mint)
        self.handling = StoredHandling(driver, mint)
        self.access = StoredAccess(driver, mint, node)
        self.overhearing = StoredOverhearing(driver, mint, node)
        self.places = StoredPlaces(driver, mint, node)
        self.parked = StoredParked(driver, mint)
        self.principals = StoredPrincipals(driver, mint)
        self.operators = StoredOperators(driver, mint, node)
        self.conversations = StoredConversations(driver)
        self.shelves = StoredShelves(driver, mint)
        self.archive = StoredArchive(driver)
        self.index = StoredIndex(driver)
        self.diagnostics = StoredDiagnostics(driver)
        self.audit = StoredAudit(driver)
        self.budgets = StoredBudgets(driver, mint)
        self.media = StoredMedia(driver, mint, media, quota=quota)
        self.fetches = StoredFetches(driver, mint, node, quota=quota)
        self.stickers = StoredStickers(driver, mint, node)
        self.memory = StoredMemory(driver, mint)
        self.occasions = StoredOccasions(driver, mint, node)
        self.pushes = StoredPushes(driver, mint, node)

    async def open(self) -> list[Applied]:
        """Open the database and migrate it. Returns the migrations that were applied."""
        return await self._driver.open(now_ms=self._mint.now_ms())

    async def shrink(self) -> None:
        """Release memory that is held only for speed."""
        await self._driver.shrink()

    async def close(self) -> None:
        """Finish the writes under way and release the database."""
        await self.condition.close()
        await self._driver.close()
