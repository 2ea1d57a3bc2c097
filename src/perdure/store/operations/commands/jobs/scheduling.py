"""Handles commands about jobs: reminders, the list of a person's jobs, and their time zone."""

from collections.abc import Sequence
from typing import Final

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import JobId
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.events import Recorded
from perdure.domain.sayings.saying import in_lines, in_one_line, worded
from perdure.domain.schedule.jobs import (
    REMINDING,
    JobChange,
    JobKind,
    JobPolicy,
    JobState,
    JobView,
    NewJob,
    schedule_words,
)
from perdure.domain.schedule.reading import WhenGiven, next_times, rule_of, told_time
from perdure.domain.schedule.recurrence import Recurrence, Timing, known_zone
from perdure.domain.text import sentence
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import JobOwner
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.schedule import firing, keeping, listing
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op

REMIND_HELP: Final = (
    "/remind me TIME to TEXT, such as /remind me tomorrow at 9 to call the bank, or /remind me "
    "every monday at 8 to water the plants"
)
_JOBS_HELP: Final = "/jobs [add TIME: TEXT | pause ID | resume ID | run ID | remove ID]"
_LISTED: Final = 50
_SHORTEST: Final = 4


def remind(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Order a reminder: a text that is said as it is, once or again and again."""
    return (yield from _order(context, given.arguments, JobKind.REMINDER))


def jobs(context: TurnContext, given: Given) -> Op[CommandResult]:
    """List the person's jobs, or change one."""
    verb, *rest = given.arguments.split(maxsplit=1) or [""]
    words = rest[0] if rest else ""
    if not verb:
        return CommandResult((yield from _list(context)))
    if verb.lower() == "add" and words:
        return (yield from _order(context, words, JobKind.PROMPT))
    if verb.lower() not in ("pause", "resume", "run", "remove") or not words:
        return CommandResult(worded("{usage}: what runs on a schedule.", usage=_JOBS_HELP))
    found = yield from _named(context, words.strip())
    if isinstance(found, str):
        return CommandResult(found)
    try:
        return (yield from _act(context, verb.lower(), found))
    except (Rejected, Conflict, NotFound) as error:
        return CommandResult(_refused(error))


def timezone(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Say or choose the zone in which the person's times are read."""
    person = context.update.principal
    if not given.arguments:
        chosen = yield from keeping.zone_of(person)
        zone = chosen or context.menu.schedule.zone
        now = told_time(context.stamp.at, zone)
        if chosen:
            return CommandResult(
                worded("Your times are read in {zone}. It is {now} there.", zone=zone, now=now)
            )
        return CommandResult(
            worded(
                "Your times are read in {zone}, which is the gateway's. It is {now} there.",
                zone=zone,
                now=now,
            )
        )
    try:
        known_zone(given.arguments)
    except Rejected as error:
        return CommandResult(_refused(error))
    yield from keeping.choose_zone(person, given.arguments)
    now = told_time(context.stamp.at, given.arguments)
    return CommandResult(
        worded(
            "Your times are read in {zone} from now on. It is {now} there. Jobs that you have keep "
            "their zone.",
            zone=given.arguments,
            now=now,
        )
    )


def _order(context: TurnContext, text: str, kind: JobKind) -> Op[CommandResult]:
    """Add the job that a text describes: a time, and what is to be done then."""
    # Imported here: most nodes never read a time in words.
    from perdure.domain.schedule.phrases import now_in, split_phrase  # noqa: PLC0415

    zone = (yield from keeping.zone_of(context.update.principal)) or context.menu.schedule.zone
    now = now_in(zone, context.stamp.at)
    found = split_phrase(text, now)
    if found is None:
        return CommandResult(
            in_one_line(
                worded("I find no time in that."), _refusal_of(text, zone, context.stamp.at)
            )
        )
    rule, words = found
    if not words:
        return CommandResult(worded("What is to be done then? {usage}.", usage=REMIND_HELP))
    return (yield from _add(context, rule, words, kind))


def _refusal_of(text: str, zone: str, at: int) -> str:
    try:
        rule_of(WhenGiven(when=text), zone=zone, now=at)
    except Rejected as error:
        return f"{sentence(error.message)} {REMIND_HELP}."
    return f"{REMIND_HELP}."


def _add(context: TurnContext, rule: Recurrence, words: str, kind: JobKind) -> Op[CommandResult]:
    owner = JobOwner(
        principal=context.update.principal,
        conversation=context.conversation,
        traits=context.update.traits,
    )
    policy = REMINDING if kind is JobKind.REMINDER else JobPolicy()
    new = NewJob(prompt=words, rule=rule, kind=kind, policy=policy)
    try:
        view = yield from keeping.add(new, owner, context.menu.schedule, context.stamp)
    except Rejected as error:
        return CommandResult(_refused(error))
    timing = Timing(view.rule, view.timezone, context.stamp.at)
    times = next_times(timing, now=context.stamp.at)
    values = {
        "first": times[0],
        "zone": view.timezone,
        "then": worded(", then {times}", times=", ".join(times[1:])) if len(times) > 1 else "",
        "text": view.prompt,
    }
    told = worded("The job will run {first} ({zone}){then}: {text}", **values)
    if kind is JobKind.REMINDER:
        told = worded("I will remind you {first} ({zone}){then}: {text}", **values)
    return CommandResult(
        in_lines(told, worded("/jobs remove {job} takes it back.", job=_short(view)))
    )


def _list(context: TurnContext) -> Op[str]:
    found = yield from _own(context)
    if not found:
        return worded("You have no jobs. {usage}.", usage=REMIND_HELP)
    lines = [_line(each) for each in found[:_LISTED]]
    if len(found) > _LISTED:
        lines.append(worded("… and more, which GET /api/jobs lists."))
    return in_lines(*lines, f"{_JOBS_HELP}.")


def _own(context: TurnContext) -> Op[list[JobView]]:
    page = Page(limit=1_000)
    found = yield from listing.page(page, principal=context.update.principal)
    return [each for each in found if each.state is not JobState.DONE]


def _line(view: JobView) -> str:
    """Return a job on one line: its id, its name, when it runs, and how its last run ended."""
    when = told_time(view.next_at, view.timezone) if view.next_at else str(view.state)
    why = f" ({view.why})" if view.why else ""
    how = view.last_outcome or view.last_state
    return worded(
        "{job}  {name}: {schedule}, next {when}{why}{last}",
        job=_short(view),
        name=view.name,
        schedule=schedule_words(view.rule),
        when=when,
        why=why,
        last=worded(", last run {how}", how=how) if how else "",
    )


def _short(view: JobView) -> str:
    return view.id[-6:]


def _named(context: TurnContext, name: str) -> Op[JobView | str]:
    """Return the person's job with this name, or with an id that ends so."""
    wanted = name.lower()
    own = yield from _own(context)
    found = [each for each in own if len(wanted) >= _SHORTEST and each.id.endswith(wanted)]
    found = found or [each for each in own if each.name.lower() == wanted]
    return (
        found[0]
        if len(found) == 1
        else worded("You have no job {name!r}; /jobs lists them.", name=name[:40])
    )


def _act(context: TurnContext, verb: str, view: JobView) -> Op[CommandResult]:
    person, terms, stamp = context.update.principal, context.menu.schedule, context.stamp
    which = JobId(view.id)
    if verb == "remove":
        yield from keeping.remove(which, stamp, principal=person)
        return CommandResult(worded("Removed: {name}.", name=view.name))
    if verb == "run":
        fired = yield from firing.run_now(which, terms, stamp, principal=person)
        return _started(view, list(fired.recorded))
    wish = JobChange(is_paused=verb == "pause")
    changed = yield from keeping.change(which, wish, terms, stamp, principal=person)
    if changed.next_at is None:
        return CommandResult(worded("Paused: {name}.", name=view.name))
    when = told_time(changed.next_at, changed.timezone)
    return CommandResult(worded("{name} goes on; it runs next {when}.", name=view.name, when=when))


def _started(view: JobView, recorded: Sequence[Recorded]) -> CommandResult:
    if not recorded:
        return CommandResult(worded("There is nothing to do for {name} now.", name=view.name))
    return CommandResult(
        worded("{name} runs now; the result comes here.", name=view.name), list(recorded)
    )


def _refused(error: Rejected | Conflict | NotFound) -> str:
    return sentence(f"{error.message[0].upper()}{error.message[1:]}")
