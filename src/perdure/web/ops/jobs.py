"""Serves jobs: what runs on a schedule, and what became of each occurrence. Each caller sees their
own; operators see everybody's."""

from typing import Final

import msgspec

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import ConversationId, JobId
from perdure.domain.schedule.jobs import (
    REMINDING,
    JobChange,
    JobKind,
    JobPolicy,
    JobSession,
    JobState,
    JobView,
    MissedPolicy,
    NewJob,
    Overlap,
    schedule_words,
)
from perdure.domain.schedule.reading import WhenGiven, next_instants, rule_of
from perdure.domain.schedule.recurrence import Once, Recurrence, Timing
from perdure.domain.text import storable
from perdure.ports.people.principals import Principal
from perdure.ports.schedule.schedule import JobOwner
from perdure.web import jobs_wire as wire
from perdure.web.api.native import conversation_name
from perdure.web.endpoints import (
    OperatorServices,
    PageLimit,
    endpoint,
    moment_of,
    next_of,
    page_of,
)

# What a policy has under the same name as the wish of a person.
_NUMBERS: Final = ("catch_up_s", "jitter_s", "failures_max", "quiet", "tokens_daily")
_CHOICES: Final = {"overlap": Overlap, "missed": MissedPolicy, "session": JobSession}


@endpoint("GET", "/api/jobs", "List what runs on a schedule")
async def jobs(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
) -> wire.JobsOut:
    """List jobs, oldest first."""
    asked = page_of(cursor, limit)
    found = await services.schedule.page(asked, principal=by.scope)
    more = next_of(found, asked, lambda each: (each.created_at, each.id))
    return wire.JobsOut(jobs=[_shown(services, each) for each in found], next=more)


@endpoint("POST", "/api/jobs", "Order something for later, or again and again", status=201)
async def add_job(services: OperatorServices, by: Principal, *, body: wire.JobIn) -> wire.JobOut:
    """Add a job whose results go to a conversation of the caller."""
    own = await services.schedule.zone_of(by.id)
    zone = body.timezone or own or services.schedule_terms().zone
    rule = _rule(services, body, zone)
    assert rule is not None
    _insist_may_allow(by, body)
    known = REMINDING if body.kind == "reminder" else JobPolicy()
    new = NewJob(
        prompt=storable(body.prompt),
        rule=rule,
        name=storable(body.name or ""),
        kind=JobKind(body.kind),
        agent=body.agent or "",
        zone=zone,
        policy=_policy(services, body, known, zone),
    )
    place = await _place(services, by, body.conversation)
    owner = JobOwner(principal=by.id, conversation=place)
    view = await services.schedule.add(new, owner, services.schedule_terms())
    return _shown(services, view)


@endpoint("GET", "/api/jobs/{id}", "Read one job")
async def job(services: OperatorServices, by: Principal, which: str) -> wire.JobOut:
    """Return one job."""
    return _shown(services, await services.schedule.one(JobId(which), principal=by.scope))


@endpoint("PATCH", "/api/jobs/{id}", "Change a job, pause it, or let it go on")
async def change_job(
    services: OperatorServices, by: Principal, which: str, *, body: wire.JobPatch
) -> wire.JobOut:
    """Change what is named, and nothing else."""
    known = await services.schedule.one(JobId(which), principal=by.scope)
    zone = body.timezone or known.timezone
    _insist_may_allow(by, body)
    wish = JobChange(
        name=None if body.name is None else storable(body.name),
        prompt=None if body.prompt is None else storable(body.prompt),
        rule=_rule(services, body, zone, needs_one=False),
        zone=body.timezone,
        agent=body.agent,
        policy=_policy(services, body, known.policy, zone),
        is_paused=None if body.state is None else body.state == "paused",
    )
    terms = services.schedule_terms()
    view = await services.schedule.change(known.id, wish, terms, principal=by.scope)
    return _shown(services, view)


@endpoint("DELETE", "/api/jobs/{id}", "Remove a job")
async def remove_job(services: OperatorServices, by: Principal, which: str) -> wire.JobOut:
    """Remove a job. A run that is under way goes on."""
    view = await services.schedule.remove(JobId(which), principal=by.scope)
    return _shown(services, view)


@endpoint("POST", "/api/jobs/{id}/run", "Run a job now")
async def run_job(services: OperatorServices, by: Principal, which: str) -> wire.JobStarted:
    """Start a run beside the schedule."""
    terms = services.schedule_terms()
    fired = await services.schedule.run_now(JobId(which), terms, principal=by.scope)
    services.happened(fired)
    return wire.JobStarted(job=which, turn=fired.turn)


@endpoint("GET", "/api/jobs/{id}/runs", "List what became of the occurrences of a job")
async def job_runs(
    services: OperatorServices,
    by: Principal,
    which: str,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
) -> wire.RunsOut:
    """List runs, newest first."""
    before = None if cursor is None else moment_of(cursor)
    found = await services.schedule.runs(
        JobId(which), before=before, limit=limit, principal=by.scope
    )
    more = str(found[-1].due_at) if len(found) == limit else None
    return wire.RunsOut(runs=found, next=more)


async def _place(services: OperatorServices, by: Principal, name: str) -> ConversationId:
    """Return the conversation that a job's results go to. One over HTTP is opened if need be."""
    try:
        found = await services.conversations.find(
            storable(name), principal=by.id, sees_all=by.is_operator
        )
    except NotFound:
        if ":" in name:
            raise
        return await services.schedule.open_place(conversation_name(name), principal=by.id)
    return found.view.id


def _rule(
    services: OperatorServices,
    body: wire.JobIn | wire.JobPatch,
    zone: str,
    *,
    needs_one: bool = True,
) -> Recurrence | None:
    """Return when a job is to run, as the body says it."""
    given = WhenGiven(cron=body.cron, every_s=body.every_s, at=body.at, when=body.when)
    if not needs_one and given == WhenGiven():
        return None
    return rule_of(given, zone=zone, now=services.now_ms())


def _policy(
    services: OperatorServices, body: wire.JobIn | wire.JobPatch, known: JobPolicy, zone: str
) -> JobPolicy:
    """Return how a job is run: as it was, with what the body names."""
    wishes = msgspec.structs.asdict(body)
    changes = {name: wishes[name] for name in _NUMBERS if wishes[name] is not None}
    changes |= {
        name: kind(wishes[name]) for name, kind in _CHOICES.items() if wishes[name] is not None
    }
    if body.may_schedule is not None:
        changes["may_schedule"] = body.may_schedule
    if body.ends_at is not None:
        changes["ends_at"] = _instant(services, body.ends_at, zone)
    return msgspec.structs.replace(known, **changes)


def _instant(services: OperatorServices, text: str, zone: str) -> int:
    """Return the instant that ends a job; 0 if the text is empty, for no end."""
    if not text:
        return 0
    rule = rule_of(WhenGiven(at=text), zone=zone, now=services.now_ms())
    if not isinstance(rule, Once):
        raise Rejected("`ends_at` is one time, in ISO 8601", code="invalid_policy")
    return rule.at


def _insist_may_allow(by: Principal, body: wire.JobIn | wire.JobPatch) -> None:
    """Raise `Rejected` if somebody who is no operator orders a heartbeat."""
    is_heartbeat = isinstance(body, wire.JobIn) and body.kind == "heartbeat"
    if is_heartbeat and not by.is_operator:
        raise Rejected(
            "a heartbeat reads a file of the home, so it is for operators", code="forbidden"
        )


def _shown(services: OperatorServices, view: JobView) -> wire.JobOut:
    policy = view.policy
    timing = Timing(view.rule, view.timezone, view.anchor)
    is_active = view.state is JobState.ACTIVE
    return wire.JobOut(
        id=view.id,
        name=view.name,
        person=view.person,
        conversation=view.conversation,
        prompt=view.prompt,
        kind=view.kind,
        schedule=schedule_words(view.rule),
        timezone=view.timezone,
        next_at=view.next_at,
        next_runs=list(next_instants(timing, now=services.now_ms())) if is_active else [],
        state=view.state,
        agent=view.agent,
        overlap=policy.overlap,
        missed=policy.missed,
        session=policy.session,
        catch_up_s=policy.catch_up_s,
        jitter_s=policy.jitter_s,
        failures_max=policy.failures_max,
        ends_at=policy.ends_at or None,
        quiet=policy.quiet,
        tokens_daily=policy.tokens_daily,
        may_schedule=policy.may_schedule,
        why=view.why,
        failures=view.failures,
        last_at=view.last_at or None,
        last_state=view.last_state or None,
        last_outcome=view.last_outcome or None,
        created_at=view.created_at,
    )
