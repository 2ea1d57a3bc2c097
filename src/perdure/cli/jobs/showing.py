"""Implements `perdure jobs`: what runs on a schedule."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from perdure.cli.printing import clean, print_json, when
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, EndpointAnswerer, answering
from perdure.web import jobs_wire as wire
from perdure.web.ops import jobs

# The options of `perdure jobs add`, which are named like what they say over HTTP.
WISHES: Final = (
    *("name", "cron", "every_s", "at", "when", "timezone", "agent", "overlap", "missed"),
    *("session", "catch_up_s", "jitter_s", "failures_max", "ends_at", "quiet", "tokens_daily"),
    *("kind", "may_schedule"),
)
_SHORTEST: Final = 4
_LOOKED_AT: Final = 1000


async def list_jobs(target: CommandTarget, *, limit: int, after: str | None) -> None:
    """Print jobs with their next and last runs."""
    async with answering(target) as answers:
        found = await answers.ask(jobs.jobs, limit=limit, cursor=after)
    if target.is_json:
        print_json(found)
        return
    if not found.jobs:
        print("there are no jobs")
        return
    rows = [
        [
            each.id,
            each.conversation,
            each.name,
            each.schedule,
            when(each.next_at) if each.next_at else each.state,
            each.last_outcome or each.last_state or "",
        ]
        for each in found.jobs
    ]
    print_table(["ID", "IN", "NAME", "SCHEDULE", "NEXT", "LAST"], rows)
    if found.next:
        print(f"more with: perdure jobs list --after {found.next}")


async def add(
    target: CommandTarget, *, conversation: str, prompt: str, wishes: Mapping[str, Any]
) -> None:
    """Order a job."""
    given = {name: value for name, value in wishes.items() if value is not None}
    body = wire.JobIn(conversation=conversation, prompt=prompt, **given)
    async with answering(target) as answers:
        found = await answers.ask(jobs.add_job, body=body)
    if target.is_json:
        print_json(found)
        return
    times = ", ".join(when(each) for each in found.next_runs)
    print(clean(f"{found.id}: {found.name} ({found.schedule}, {found.timezone}) runs {times}"))


async def runs(target: CommandTarget, *, job: str, limit: int, after: str | None) -> None:
    """Print what became of the occurrences of a job, newest first."""
    async with answering(target) as answers:
        job = await _whole(answers, job)
        found = await answers.ask(jobs.job_runs, job, limit=limit, cursor=after)
    if target.is_json:
        print_json(found)
        return
    if not found.runs:
        print("it has not run yet")
        return
    rows = [
        [
            when(each.due_at),
            each.state,
            each.turn or "",
            each.outcome or "",
            each.delivery,
            each.reason,
        ]
        for each in found.runs
    ]
    print_table(["DUE", "STATE", "TURN", "OUTCOME", "RESULT", "WHY"], rows)
    if found.next:
        print(f"more with: perdure jobs runs {job} --after {found.next}")


async def remove(target: CommandTarget, *, job: str) -> None:
    """Remove a job."""
    async with answering(target) as answers:
        found = await answers.ask(jobs.remove_job, await _whole(answers, job))
    _say(target, found, "removed")


async def change(target: CommandTarget, *, job: str, state: Literal["active", "paused"]) -> None:
    """Pause a job, or let it go on."""
    async with answering(target) as answers:
        body = wire.JobPatch(state=state)
        found = await answers.ask(jobs.change_job, await _whole(answers, job), body=body)
    _say(target, found, found.state)


async def run(target: CommandTarget, *, job: str) -> None:
    """Start a run of a job now."""
    async with answering(target) as answers:
        found = await answers.ask(jobs.run_job, await _whole(answers, job))
    if target.is_json:
        print_json(found)
    else:
        print(f"{found.job} runs as {found.turn}" if found.turn else "there is nothing to do")


def _say(target: CommandTarget, found: wire.JobOut, what: str) -> None:
    if target.is_json:
        print_json(found)
    else:
        print(clean(f"{found.id} ({found.name}) is {what}"))


async def _whole(answers: EndpointAnswerer, named: str) -> str:
    """Return the id of the job that is named by its id, or by the end of it as in a
    conversation."""
    if named.startswith("job_") or len(named) < _SHORTEST:
        return named
    found = await answers.ask(jobs.jobs, limit=_LOOKED_AT)
    meant = [each.id for each in found.jobs if each.id.endswith(named.lower())]
    return meant[0] if len(meant) == 1 else named
