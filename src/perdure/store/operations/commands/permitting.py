"""Handles commands about what agents may do: approvals, grants, and calls whose fate is
unknown."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import CallId, GrantId, PrincipalId, QuestionId
from perdure.domain.inbound.commands import Given
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.records import EffectView
from perdure.domain.sayings.saying import in_lines, in_one_line, worded
from perdure.domain.text import sentence, without_disguise
from perdure.domain.tools.asking import ALLOW, DENY, DENY_CALL, Consent, short_id
from perdure.domain.tools.durations import duration_ms
from perdure.domain.tools.grants import Scope
from perdure.ports.turns.questions import GrantView, QuestionReply
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.delivery import operators
from perdure.store.operations.questions import effects, grants, question_rows
from perdure.store.operations.questions.question_rows import QuestionRow
from perdure.store.operations.turn_context import TurnContext
from perdure.store.operations.turns import waiting
from perdure.store.statement import Op

NOT_HERE: Final = (
    "this is too long to be shown here, so it cannot be allowed here; look at it on the page or "
    "with `perdure approvals show`"
)
NOTHING: Final = worded("Nothing waits for an approval here.")
_SCOPES: Final = {each.value: each for each in (Scope.CALL, Scope.SESSION, Scope.FOREVER)}
_SCOPE_HELP: Final = "/approve [id] [call | session | forever | 30m]"
_EFFECTS_HELP: Final = worded(
    "Nobody knows whether these calls have happened. Look, and then say /effects ID happened, or "
    "/effects ID not:"
)
_HAPPENED: Final = {"happened": True, "yes": True, "not": False, "no": False}
# How many lines a list shows.
_LISTED: Final = 20
# How many calls of a person may be named.
_KNOWN: Final = 1_000
# The least characters of an id that name a question, a grant or a call.
_SHORTEST: Final = 4


def reply_of(question: QuestionId, consent: Consent, *, for_ms: int = 0) -> QuestionReply:
    """Return what a consent means as an answer. Whoever gives it is filled in later."""
    answer = ALLOW if consent.is_allowed else DENY
    scope = consent.scope if consent.is_allowed else Scope.CALL
    return QuestionReply(
        question=question, answer=answer, by=PrincipalId(""), scope=scope, for_ms=for_ms
    )


class AnswerGiven(NamedTuple):
    """Holds what came of an answer: what whoever gave it is told, whether it counts, and the events
    that were appended."""

    told: str
    counts: bool
    recorded: list[Recorded]


def give(context: TurnContext, row: QuestionRow, reply: QuestionReply) -> Op[AnswerGiven]:
    """Give an answer in the name of whoever has sent the update. A refusal is told and not raised:
    the update has been received, and must not be offered again."""
    if reply.answer == ALLOW and row.is_approval and row.words == (DENY_CALL,):
        return AnswerGiven(worded("Not taken: {why}.", why=NOT_HERE), counts=False, recorded=[])
    named = QuestionReply(
        question=reply.question,
        answer=reply.answer,
        by=context.update.principal,
        scope=reply.scope,
        for_ms=reply.for_ms,
    )
    try:
        taken = yield from waiting.answer(named, context.stamp)
    except (Rejected, Conflict, NotFound) as error:
        return AnswerGiven(sentence(f"Not taken: {error.message}"), counts=False, recorded=[])
    return AnswerGiven(taken.told, counts=True, recorded=taken.recorded)


def approve(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Allow a call, for itself or for longer."""
    words = given.arguments.split()
    scope, for_ms = _scope(words[-1]) if words else (None, 0)
    which = words[:-1] if scope is not None else words
    if len(which) > 1:
        return CommandResult(worded("{usage}: allow what an agent wants to do.", usage=_SCOPE_HELP))
    consent = Consent(is_allowed=True, scope=scope or Scope.CALL)
    return (yield from _answer(context, which, consent, for_ms=for_ms))


def deny(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Deny a call."""
    words = given.arguments.split()
    if len(words) > 1:
        return CommandResult(worded("/deny [id]: do not allow what an agent wants to do."))
    return (yield from _answer(context, words, Consent(is_allowed=False)))


def _scope(word: str) -> tuple[Scope | None, int]:
    """Return the scope that a word names, with its length, or None if it names none."""
    for_ms = duration_ms(word)
    return (Scope.TIME, for_ms) if for_ms else (_SCOPES.get(word.lower()), 0)


def _answer(
    context: TurnContext, which: Sequence[str], consent: Consent, *, for_ms: int = 0
) -> Op[CommandResult]:
    """Answer the named question, or the only one that is open here."""
    row = yield from _named(context, which[0]) if which else _only(context)
    if isinstance(row, str):
        return CommandResult(row)
    answered = yield from give(context, row, reply_of(row.id, consent, for_ms=for_ms))
    turn = row.turn if answered.counts else None
    return CommandResult(answered.told, answered.recorded, turn=turn)


def _only(context: TurnContext) -> Op[QuestionRow | str]:
    """Return the only call that waits for an approval here, or why there is none or not one."""
    found = yield from _open_here(context)
    if not found:
        return NOTHING
    if len(found) > 1:
        listed = "\n".join(f"{short_id(row.id)}  {row.tool}" for row in found[:_LISTED])
        return worded(
            "{count} calls wait for an approval; say which one:\n{calls}",
            count=len(found),
            calls=listed,
        )
    return found[0]


def _named(context: TurnContext, name: str) -> Op[QuestionRow | str]:
    """Return the question with this id, or with an id that ends so and is open here."""
    for row in (yield from _open_here(context)):
        if len(name) >= _SHORTEST and row.id.endswith(name.lower()):
            return row
    known = yield from question_rows.question(QuestionId(name.lower()))
    if known is None or not known.is_approval:
        return worded("No call named {name!r} waits for an approval here.", name=name[:40])
    return known


def _open_here(context: TurnContext) -> Op[list[QuestionRow]]:
    """Return the approvals that are open here and that this person may give."""
    here = context.place.via or context.conversation
    by = context.update.principal
    is_operator = yield from operators.is_operator(by)
    found = yield from question_rows.open_here(here)
    return [row for row in found if row.is_approval and (is_operator or row.principal == by)]


def list_grants(context: TurnContext, given: Given) -> Op[CommandResult]:
    """List what the person has granted, or take one of it back."""
    words, by = given.arguments.split(), context.update.principal
    at = context.stamp.at
    if not words:
        held = yield from grants.newest(by, at=at, limit=_LISTED + 1)
        return CommandResult(_grants_text(held))
    if len(words) != 2 or words[0].lower() != "revoke":
        return CommandResult(
            worded("/grants lists what you have granted; /grants revoke ID takes it back.")
        )
    name = words[1].lower()
    found = yield from grants.newest(by, at=at, limit=2, ending=name)
    if len(name) < _SHORTEST or len(found) != 1:
        return CommandResult(
            worded("You have no grant {name!r}; /grants lists them.", name=words[1][:40])
        )
    yield from grants.revoke(GrantId(found[0].id), principal=by, at=at)
    return CommandResult(
        worded("Taken back: {what}. You will be asked again.", what=found[0].covers)
    )


def _is_named(known: str, name: str) -> bool:
    return len(name) >= _SHORTEST and known.endswith(name.lower())


def _grants_text(held: Sequence[GrantView]) -> str:
    if not held:
        return worded("You have granted nothing beyond single calls.")
    lines = [f"{each.id[-6:]}  {each.agent}: {each.covers} ({each.scope})" for each in held]
    if len(lines) > _LISTED:
        lines[_LISTED:] = [worded("… and older ones, which GET /api/grants lists.")]
    return in_lines(*lines, worded("/grants revoke ID takes one back."))


def list_effects(context: TurnContext, given: Given) -> Op[CommandResult]:
    """List calls whose fate is unknown, or say of one whether it has happened."""
    words, by = given.arguments.split(), context.update.principal
    known = yield from effects.newest(by, limit=_KNOWN)
    if not words:
        return CommandResult(_effects_text(known))
    happened = _HAPPENED.get(words[1].lower()) if len(words) == 2 else None
    if happened is None:
        return CommandResult(
            worded("/effects lists them; /effects ID happened, or /effects ID not.")
        )
    found = [each for each in known if _is_named(each.call, words[0])]
    if len(found) != 1:
        return CommandResult(
            worded("You have no such call {name!r}; /effects lists them.", name=words[0][:40])
        )
    return (yield from _mark(context, found[0].call, by, has_happened=happened))


def _mark(
    context: TurnContext, call: CallId, by: PrincipalId, *, has_happened: bool
) -> Op[CommandResult]:
    try:
        marked = yield from effects.mark(
            call, context.stamp, has_happened=has_happened, by=by, principal=by
        )
    except (Conflict, NotFound) as error:
        return CommandResult(sentence(f"Not taken: {error.message}"))
    told = worded("Noted: {tool} has not happened.", tool=marked.tool)
    if has_happened:
        told = worded("Noted: {tool} has happened.", tool=marked.tool)
    return CommandResult(in_one_line(told, worded("The agent is told with the next message.")))


def _effects_text(known: Sequence[EffectView]) -> str:
    unknown = [each for each in known if each.state == "unknown"]
    if not unknown:
        return worded("There is no call whose effect is unknown.")
    lines = [
        f"{each.call[-6:]}  {each.tool} {without_disguise(each.arguments)[:120]}"
        for each in unknown[:_LISTED]
    ]
    return in_lines(_EFFECTS_HELP, *lines)


def tools(context: TurnContext, given: Given) -> Op[CommandResult]:
    """List what the agent may do here, and why not the rest, and the prompts that people may
    call."""
    yield from ()
    offer = context.menu.offer(context.place.answering)
    name = context.menu.answering(context.place.answering)
    lines = [f"{each.name}  {each.told}" for each in offer.list_tools()]
    if lines:
        lines = [worded("What {name} may do here:", name=name), *lines]
    else:
        lines = [worded("{name} has no tools.", name=name)]
    if prompts := offer.list_prompts():
        lines.append(worded("Prompts of its tool servers, which you call by these words:"))
        lines += [f"{each.usage}  {each.about}".rstrip() for each in prompts]
    return CommandResult(in_lines(*lines))
