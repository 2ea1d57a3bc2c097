"""Implements the port of jobs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from perdure.domain.ids import ConversationId, JobId, NodeId, PrincipalId
from perdure.domain.people.sharing import FairShares
from perdure.domain.schedule.jobs import JobChange, JobView, NewJob, RunView, ScheduleTerms
from perdure.domain.turn.recovery import Policy
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import Booted, DueJob, Fired, JobOwner
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.schedule import boot, firing, heartbeat, keeping, listing, mending


class StoredSchedule:
    """Implements `Schedule`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node
        self._tell: Callable[[], None] = lambda: None

    def when_changed(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    async def add(self, new: NewJob, owner: JobOwner, terms: ScheduleTerms) -> JobView:
        stamp = self._mint.stamp(self._node)
        view = await self._driver.write(partial(keeping.add, new, owner, terms, stamp))
        self._tell()
        return view

    async def open_place(self, name: str, *, principal: PrincipalId) -> ConversationId:
        stamp = self._mint.stamp(self._node)
        make = partial(keeping.open_place, name, stamp, principal=principal)
        return await self._driver.write(make)

    async def change(
        self,
        job: JobId,
        change: JobChange,
        terms: ScheduleTerms,
        *,
        principal: PrincipalId | None,
    ) -> JobView:
        stamp = self._mint.stamp(self._node)
        make = partial(keeping.change, job, change, terms, stamp, principal=principal)
        view = await self._driver.write(make)
        self._tell()
        return view

    async def remove(self, job: JobId, *, principal: PrincipalId | None) -> JobView:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(keeping.remove, job, stamp, principal=principal))

    async def run_now(
        self, job: JobId, terms: ScheduleTerms, *, principal: PrincipalId | None
    ) -> Fired:
        stamp = self._mint.stamp(self._node)
        make = partial(firing.run_now, job, terms, stamp, principal=principal)
        return await self._driver.write(make)

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[JobView]:
        return await self._driver.read(partial(listing.page, page, principal=principal))

    async def one(self, job: JobId, *, principal: PrincipalId | None) -> JobView:
        return await self._driver.read(partial(listing.one_job, job, principal=principal))

    async def runs(
        self, job: JobId, *, before: int | None, limit: int, principal: PrincipalId | None
    ) -> list[RunView]:
        read = partial(listing.runs, job, before=before, limit=limit, principal=principal)
        return await self._driver.read(read)

    async def due(self, *, limit: int, shares: FairShares) -> Sequence[DueJob]:
        at = self._mint.now_ms()
        return await self._driver.read(partial(listing.due, at=at, limit=limit, shares=shares))

    async def under_way(self) -> Mapping[PrincipalId, int]:
        return await self._driver.read(listing.under_way)

    async def next_due_ms(self) -> int | None:
        return await self._driver.read(listing.next_due)

    async def fire(self, job: JobId, terms: ScheduleTerms) -> Fired:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(firing.fire, job, terms, stamp))

    async def keep_heartbeat(self, every_s: int) -> None:
        if await self._driver.read(partial(heartbeat.is_kept, every_s)):
            return
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(heartbeat.keep, every_s, stamp))

    async def boot(self, text: str, terms: ScheduleTerms, policy: Policy) -> Booted:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(boot.begin, text, terms, policy, stamp))

    async def mend_clock(self) -> int:
        return await self._driver.write(partial(mending.mend, self._mint.stamp(self._node)))

    async def zone_of(self, principal: PrincipalId) -> str:
        return await self._driver.read(partial(keeping.zone_of, principal))
