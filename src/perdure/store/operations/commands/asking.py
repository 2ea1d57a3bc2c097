"""Handles commands that only answer a question."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.address import GROUP
from perdure.domain.delivery import DeliveryStep
from perdure.domain.errors import NotFound
from perdure.domain.ids import QuestionId, SessionId
from perdure.domain.inbound.commands import Given
from perdure.domain.inbound.updates import UpdateEffect
from perdure.domain.journal.events import (
    AssistantSaid,
    PromptExpanded,
    ToolFinished,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.journal.records import EffectView, QuestionView
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding
from perdure.domain.sayings.saying import in_lines, worded
from perdure.domain.text import sentence
from perdure.domain.tools.asking import SHORT, short_id
from perdure.domain.turn.endings import Audience, reached, visible_reason
from perdure.domain.turn.errands import plain_line
from perdure.domain.turn.standing import SessionStanding
from perdure.ports.records.history import Explanation
from perdure.store.operations.commands.choices import effort_here
from perdure.store.operations.commands.command_result import CommandResult
from perdure.store.operations.commands.spending import context_of
from perdure.store.operations.delivery import operators
from perdure.store.operations.reading import explaining, history, search
from perdure.store.operations.sessions.scopes import asked_from
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, many, one

# Finds the sessions of a conversation that were active last. `/resume N` counts in this order.
_SESSIONS = """
    SELECT id, title, state, last_seq, active_at FROM sessions
    WHERE conversation_id = $1 AND kind = '' ORDER BY active_at DESC, id DESC LIMIT $2"""
# Counts the background requests of a conversation that are not answered yet.
_BACKGROUND = f"""
    SELECT count(*) FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.conversation_id = $1 AND s.kind = '{TurnKind.BACKGROUND}' AND t.outcome IS NULL"""
# How many sessions are listed.
LISTED: Final = 10
RESTARTING: Final = worded("Restarting: what runs is finished first. You will be told here.")
NOT_ALL: Final = worded("Not everything is in the index yet; ask again in a moment.")
# How many messages a search adds to the index first. This transaction blocks other writers, so
# after a crash, when many may wait, it does not index all of them.
INDEX_AT_ONCE: Final = 200
# Characters of each found message that are shown.
_SHOWN = 100
# Messages that a search shows.
_HITS = 8


class _Session(NamedTuple):
    id: SessionId
    title: str
    state: str
    events: int
    active_at: int


def status(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Say whether a turn runs here, what waits, which agent answers with which model, and how full
    the model's window is."""
    place = context.place
    turns = yield from history.open_turns(context.session)
    standing = SessionStanding(session=context.session, head=place.head, open_turns=turns)
    lines = [
        worded(
            "{state}, {count} waiting; session {session}",
            state=standing.state,
            count=standing.queued,
            session=context.session,
        ),
        worded("agent {name}", name=context.menu.in_words(context.menu.answering(place.answering))),
    ]
    if place.speaking_as:
        lines.append(worded("persona {name}", name=place.speaking_as))
    lines.append(effort_here(context))
    if beside := (yield from one(int, _BACKGROUND, context.conversation)):
        lines.append(worded("{count} in the background; /stop all stops that too", count=beside))
    tokens = yield from context_of(place.head)
    if tokens:
        lines.append(_fullness(context, tokens))
    return CommandResult(in_lines(*lines))


def _fullness(context: TurnContext, tokens: int) -> str:
    """Return how much of the window of the agent's model these tokens take, in words."""
    window = context.menu.offer(context.place.answering).context_tokens
    if not window:
        return worded("about {count:,} tokens of context", count=tokens)
    return worded(
        "about {count:,} tokens of context, {share:.0%} of the {window:,} that the model takes",
        count=tokens,
        share=tokens / window,
        window=window,
    )


def sessions(context: TurnContext, given: Given) -> Op[CommandResult]:
    """List the newest sessions of this conversation; with words, search the messages."""
    if given.arguments:
        return (yield from _search(context, given.arguments))
    lines = []
    found = yield from many(_Session, _SESSIONS, context.conversation, LISTED)
    for number, each in enumerate(found, start=1):
        lines.append(
            worded(
                "{number}. {title}  {session}, {count} events, {state}",
                number=number,
                title=each.title or worded("(no title)"),
                session=each.id,
                count=each.events,
                state=worded("here") if each.id == context.session else each.state,
            )
        )
    return CommandResult(in_lines(*lines, worded("/resume and a number goes back to one.")))


def listed_at(context: TurnContext, number: int) -> Op[SessionId | None]:
    """Return the session that the list shows at this number now, or None if there is none."""
    found = yield from many(_Session, _SESSIONS, context.conversation, LISTED)
    return found[number - 1].id if 1 <= number <= len(found) else None


def _search(context: TurnContext, words: str) -> Op[CommandResult]:
    """Find messages that the person may see where they ask."""
    has_more = yield from search.index_waiting(context.dialect, limit=INDEX_AT_ONCE)
    hits = yield from search.search(
        context.dialect, words, scope=asked_from(context), before=None, limit=_HITS
    )
    lines = []
    for hit in hits:
        text = plain_line(hit.text)
        lines.append(f"{hit.session}  {hit.conversation}: {text[:_SHOWN]}")
    if not lines and asked_from(context) == context.conversation:
        lines.append(worded("No message here has the words: {words}", words=plain_line(words)))
    elif not lines:
        lines.append(worded("No message of yours has the words: {words}", words=plain_line(words)))
    return CommandResult(in_lines(*lines, *([NOT_ALL] if has_more else [])))


def why(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Explain what happened to a turn or message: the given one, the first unfinished one, or the
    last."""
    wanted = given.arguments or context.place.head or ""
    if context.open_turns and not given.arguments:
        wanted = context.open_turns[0].id
    if not wanted:
        return CommandResult(worded("Nothing has happened here yet."))
    try:
        found = yield from explaining.explain(context.dialect, wanted, scope=asked_from(context))
    except NotFound as error:
        told_so = sentence(plain_line(error.message))
        return CommandResult(told_so[0].upper() + told_so[1:])
    is_private = context.update.place_kind != GROUP
    is_operator = is_private and (yield from operators.is_operator(context.update.principal))
    return CommandResult("\n".join(_told(found, Audience.of(is_operator=is_operator))))


def _told(found: Explanation, audience: Audience) -> list[str]:
    """Return the explanation as lines, with details only for operators."""
    turn = found.turn
    lines = [f"/{found.command}: {found.reply}"] if found.command else []
    if turn is not None:
        reason = f" ({turn.reason})" if turn.reason else ""
        lines.append(f"turn {turn.id}: {turn.outcome or turn.state}{reason}")
        lines += [f"{found.left.replace('_', ' ')} since"] if found.left else []
    for recorded in found.events:
        match recorded.event:
            case TurnStarted(attempt=attempt) if attempt > 1:
                lines.append(f"attempt {attempt}")
            case PromptExpanded(name=prompt):
                lines.append(f"the prompt {prompt} was fetched")
            case AssistantSaid(calls=calls) if calls:
                lines.append("called " + ", ".join(call.name for call in calls))
            case ToolFinished() as finished:
                lines.append(_ended(finished, found.effects))
            case AnswerAwaited(question=question):
                lines.append(_asked(question, found.questions))
            case TurnSettled(agent=agent, usage=usage) as settled:
                read, wrote = usage.input_tokens, usage.output_tokens
                lines.append(f"agent {agent or '-'}: {read:,} tokens read, {wrote:,} written")
                lines += reached(settled, audience)
                lines += filter(
                    None,
                    [visible_reason(settled.outcome, settled.reason, settled.detail, audience)],
                )
            case _:
                pass
    is_full = audience is Audience.OPERATORS
    lines += [
        f"part {part.part + 1}: {part.state} {part.error if is_full else ''}".strip()
        for part in found.parts
        if part.step == DeliveryStep.POST
    ]
    return lines


def _ended(finished: ToolFinished, effects: Sequence[EffectView]) -> str:
    """Return how a call ended, and of an unknown one what is known since."""
    effect = next((each for each in effects if each.call == finished.call), None)
    if finished.ending is not CallEnding.UNKNOWN or effect is None:
        return f"the call {finished.ending}"
    name = f"call {effect.call[-SHORT:]}"
    if effect.marked_at is None:
        late = "; its result came late, `perdure explain` shows it" if effect.late_result else ""
        return f"{name}: nobody knows whether it has happened; /effects asks you{late}"
    return f"{name}: {effect.state.replace('_', ' ')}, says {effect.marked_by or 'somebody'}"


def _asked(question: QuestionId, questions: Sequence[QuestionView]) -> str:
    """Return what was asked about a call, and what came of it."""
    asked = next((each for each in questions if each.id == question), None)
    name = f"question {short_id(question)}"
    if asked is None or asked.state == "pending":
        return f"{name} waits for an answer"
    by = f" by {asked.answered_by}" if asked.answered_by else ""
    scope = f" ({asked.scope})" if asked.scope else ""
    return f"{name} about {plain_line(asked.tool)}: {asked.state}{by}{scope}"


def restart(context: TurnContext, given: Given) -> Op[CommandResult]:
    """Accept a restart. The process begins it once this transaction is committed."""
    yield from ()
    return CommandResult(RESTARTING, effect=UpdateEffect.RESTARTING)
