"""Implements the tool `schedule`: what an agent orders for later, in the name of the person that it
talks with.

A job belongs to the person, and its results go to the conversation in which it was ordered. A run
of a job orders no jobs, unless the job was allowed to. The id of a new job follows from the call,
so a call that is made again after a crash finds the job that it has made before.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, assert_never

from msgspec import Meta

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import JobId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.schedule.jobs import (
    REMINDING,
    JobChange,
    JobKind,
    JobPolicy,
    JobState,
    JobView,
    NewJob,
    ScheduleTerms,
    schedule_words,
)
from perdure.domain.schedule.reading import WhenGiven, next_times, rule_of, told_time
from perdure.domain.schedule.recurrence import Timing
from perdure.domain.text import storable
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import JobOwner, Schedule
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "schedule"
_LISTED: Final = 100
_DESCRIPTION: Final = (
    "Do something later, or again and again, for the person you talk with. add orders a job: kind "
    "prompt asks you with its text when it is due, and your answer is sent here; kind reminder "
    "says its text as it is. list shows the person's jobs; pause, resume and remove change one by "
    "its id. Times are read in the person's time zone."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[
        Literal["add", "list", "pause", "resume", "remove"], Meta(description="what to do")
    ]
    when: Annotated[
        str,
        Meta(
            description="add: a time in plain words, such as 'tomorrow at 9', 'every weekday at"
            " 9am', 'every 15 minutes', or in ISO 8601"
        ),
    ] = ""
    cron: Annotated[str, Meta(description="add, instead of when: a cron expression")] = ""
    text: Annotated[str, Meta(description="add: what is to be done or said then")] = ""
    kind: Annotated[Literal["prompt", "reminder"], Meta(description="add: what kind of job")] = (
        "prompt"
    )
    name: Annotated[str, Meta(description="add: what to call it")] = ""
    job: Annotated[
        str, Meta(description="pause, resume, remove: the job's id, as list shows it")
    ] = ""


class ScheduleTool:
    """Keeps jobs of the caller's person. `terms` returns on what terms people have jobs."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(
        self,
        schedule: Schedule,
        *,
        terms: Callable[[], ScheduleTerms],
        now_ms: Callable[[], int],
    ) -> None:
        self._schedule = schedule
        self._terms = terms
        self._now_ms = now_ms

    def traits(self, arguments: str) -> CallTraits:
        return CallTraits(names=(NAME,), repeat=Repeat.REPEATABLE, permission=Permission.OWN)

    def kinds(self) -> Sequence[CallTraits]:
        return (self.traits("{}"),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked = arguments_of(call.arguments, _Arguments, tool=NAME)
        match asked.action:
            case "add":
                return await self._add(asked, caller, _id_of(call, caller))
            case "list":
                return await self._list(caller)
            case "pause" | "resume" | "remove":
                return await self._change(asked, caller)
            case _:
                assert_never(asked.action)

    async def _add(self, asked: _Arguments, caller: ToolCaller, job: JobId) -> str:
        known = await self._known(job, caller)
        if known is not None:
            return _told(known, "Ordered", now=self._now_ms())
        terms, now = self._terms(), self._now_ms()
        zone = await self._schedule.zone_of(caller.principal) or terms.zone
        given = WhenGiven(cron=asked.cron or None, when=asked.when or None)
        new = NewJob(
            id=job,
            prompt=storable(asked.text),
            rule=rule_of(given, zone=zone, now=now),
            name=storable(asked.name),
            kind=JobKind(asked.kind),
            policy=REMINDING if asked.kind == "reminder" else JobPolicy(),
            zone=zone,
        )
        owner = JobOwner(
            principal=caller.principal, conversation=caller.conversation, turn=caller.turn
        )
        return _told(await self._schedule.add(new, owner, terms), "Ordered", now=now)

    async def _known(self, job: JobId, caller: ToolCaller) -> JobView | None:
        try:
            return await self._schedule.one(job, principal=caller.principal)
        except NotFound:
            return None

    async def _list(self, caller: ToolCaller) -> str:
        if caller.is_shared:
            raise Rejected("jobs are private, and others read along here; say /jobs in private")
        page = Page(limit=_LISTED)
        found = await self._schedule.page(page, principal=caller.principal)
        lines = [_line(each) for each in found if each.state is not JobState.DONE]
        return "\n".join(lines) or "There are no jobs."

    async def _change(self, asked: _Arguments, caller: ToolCaller) -> str:
        if not asked.job:
            raise Rejected(f"{asked.action} needs job; list shows the ids")
        which = JobId(asked.job)
        if asked.action == "remove":
            view = await self._schedule.remove(which, principal=caller.principal)
            return f"Removed: {view.name}"
        wish = JobChange(is_paused=asked.action == "pause")
        view = await self._schedule.change(which, wish, self._terms(), principal=caller.principal)
        return _line(view)


def _id_of(call: ToolCall, caller: ToolCaller) -> JobId:
    """Return the id of the job that a call makes, however often it is made."""
    digest = hashlib.sha256(f"{caller.turn} {call.id}".encode()).hexdigest()
    return JobId(f"job_{digest[:26]}")


def _told(view: JobView, done: str, *, now: int) -> str:
    times = ", ".join(next_times(Timing(view.rule, view.timezone, view.anchor), now=now))
    return f"{done} as {view.id}: {view.name}. It runs {times} ({view.timezone})."


def _line(view: JobView) -> str:
    when = told_time(view.next_at, view.timezone) if view.next_at else str(view.state)
    return f"{view.id}  {view.name}: {schedule_words(view.rule)}, next {when}"
