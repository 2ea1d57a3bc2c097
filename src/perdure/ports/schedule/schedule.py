"""Defines the port of jobs: what is to be done later, or again and again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, JobId, PrincipalId, TurnId
from perdure.domain.journal.events import NO_TRAITS, Recorded, SenderTraits
from perdure.domain.people.sharing import FairShares
from perdure.domain.schedule.boot import BootState
from perdure.domain.schedule.jobs import JobChange, JobView, NewJob, RunView, ScheduleTerms
from perdure.domain.turn.recovery import Policy
from perdure.ports.records.history import Page


class JobOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Says whose job it is, and where its results go. `turn` is the turn that orders it, if that is
    not a person's own word: a run of a job may order none, unless it was allowed to."""

    principal: PrincipalId
    conversation: ConversationId
    traits: SenderTraits = NO_TRAITS
    turn: TurnId | None = None


class DueJob(msgspec.Struct, frozen=True):
    """Names a job for which something is to be done now, and its person."""

    job: JobId
    principal: PrincipalId


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """Says what was done for a job: the turn that it has started, the turns that it has ended, and
    what was appended."""

    turn: TurnId | None = None
    ended: tuple[TurnId, ...] = ()
    recorded: tuple[Recorded, ...] = ()


class Booted(msgspec.Struct, frozen=True, kw_only=True):
    """Says what became of the instructions for the start: the turn that runs them, and what was
    appended."""

    state: BootState
    turn: TurnId | None = None
    recorded: tuple[Recorded, ...] = ()


class Schedule(Protocol):
    """Keeps jobs and their runs.

    Guarantees: each method that writes is one transaction. An occurrence of a job has one row, and
    starts at most one turn, whoever finds it due and however often. `principal` limits what is
    found to one person's; None finds everybody's. Reads change nothing.
    Requires: names and prompts that passed `storable`.
    Raises: `NotFound`; `Rejected`; `Conflict` if a run is under way; `Transient` when nothing was
    written; `Ambiguous` when that is unknown.
    After a crash: an occurrence is either not dealt with, and is found due again, or it has its row
    and its turn.
    """

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever a job was added or changed through this port."""

    async def add(self, new: NewJob, owner: JobOwner, terms: ScheduleTerms) -> JobView:
        """Add a job. Raises `Rejected` if its person has too many, or if nothing of it lies
        ahead."""

    async def open_place(self, name: str, *, principal: PrincipalId) -> ConversationId:
        """Return a person's conversation over HTTP with this name, opened if there is none."""

    async def change(
        self,
        job: JobId,
        change: JobChange,
        terms: ScheduleTerms,
        *,
        principal: PrincipalId | None,
    ) -> JobView:
        """Change a job, pause it or let it go on. Occurrences that passed while it was paused are
        not made up for."""

    async def remove(self, job: JobId, *, principal: PrincipalId | None) -> JobView:
        """Remove a job. A run that is under way goes on, and those that wait do not begin."""

    async def run_now(
        self, job: JobId, terms: ScheduleTerms, *, principal: PrincipalId | None
    ) -> Fired:
        """Start a run of a job now, beside its occurrences."""

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[JobView]:
        """Return jobs, oldest first."""

    async def one(self, job: JobId, *, principal: PrincipalId | None) -> JobView:
        """Return one job."""

    async def runs(
        self, job: JobId, *, before: int | None, limit: int, principal: PrincipalId | None
    ) -> list[RunView]:
        """Return the runs of a job that were due before an instant, newest first."""

    async def due(self, *, limit: int, shares: FairShares) -> Sequence[DueJob]:
        """Return jobs for which something is to be done now, without those of people who have all
        the runs under way that one person may have."""

    async def under_way(self) -> Mapping[PrincipalId, int]:
        """Return how many runs of each person wait or are at work."""

    async def next_due_ms(self) -> int | None:
        """Return when something is to be done next for any job, or None."""

    async def fire(self, job: JobId, terms: ScheduleTerms) -> Fired:
        """Deal with the occurrences of a job that are due: start a turn, queue or skip them, or
        record that they were missed."""

    async def keep_heartbeat(self, every_s: int) -> None:
        """See to it that there is a heartbeat of this interval, in the home conversation of the
        operator; with 0, that there is none. Does nothing while no operator has a home."""

    async def boot(self, text: str, terms: ScheduleTerms, policy: Policy) -> Booted:
        """Run the instructions for the start in the operator's home conversation, unless a run is
        under way or was over within the last ten minutes, or an interrupted turn there goes on
        first. `policy` says which turns go on. Raises `Conflict` if the home's platform is gone."""

    async def mend_clock(self) -> int:
        """Look for jobs that a wrong clock has moved far into the future, and let them go on from
        now. Returns how many there were."""

    async def zone_of(self, principal: PrincipalId) -> str:
        """Return the zone that a person has chosen, or an empty string."""
