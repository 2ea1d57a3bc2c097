"""Writes the questions that people are asked about tool calls, and reads their answers.

The question shows the exact arguments. What would change the order of letters is shown by its
number. If the arguments are too long to be shown whole, the question cannot be allowed where it is
asked: nobody should approve what they have not seen.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.ids import QuestionId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import QuestionKind
from perdure.domain.sayings.saying import in_lines, worded
from perdure.domain.text import exact, without_disguise
from perdure.domain.tools.grants import Scope

ALLOW: Final = "allow"
DENY: Final = "deny"
# Why the questions of an agent are void that has ended while it waited for their answers.
AGENT_LOST: Final = "agent_lost"
# The labels of the buttons under a question about a call.
ALLOW_CALL: Final = "Allow"
ALLOW_SESSION: Final = "Allow in this session"
DENY_CALL: Final = "Deny"
# The most characters of arguments and preview that a question shows.
SHOWN_MAX: Final = 12_000
# How many last characters of a question's id name it in a conversation.
SHORT: Final = 6
# The most characters of an answer that are shown under its question.
ECHO_MAX: Final = 500
CHOICES_MAX: Final = 25
CHOICE_LENGTH_MAX: Final = 200
QUESTION_LENGTH_MAX: Final = 4_000
# What people are told whose message comes while a turn waits for an answer.
STILL_WAITING: Final = worded(
    "I still wait for an answer to the question above. Your message is kept, and comes after it; "
    "/stop ends the wait."
)
_CONSENT: Final = {
    "allow": Scope.CALL,
    "approve": Scope.CALL,
    "yes": Scope.CALL,
    ALLOW_CALL.lower(): Scope.CALL,
    ALLOW_SESSION.lower(): Scope.SESSION,
}
_REFUSAL: Final = frozenset({"deny", "no", DENY_CALL.lower()})


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a word says about a call: whether it may run, and for how long that holds."""

    is_allowed: bool
    scope: Scope = Scope.CALL


def consent_of(word: str) -> Consent | None:
    """Return what a word says about a call, or None if it says neither yes nor no. Only exact known
    words count."""
    said = word.strip().rstrip(".!").lower()
    if said in _REFUSAL:
        return Consent(is_allowed=False)
    scope = _CONSENT.get(said)
    return None if scope is None else Consent(is_allowed=True, scope=scope)


def short_id(question: QuestionId) -> str:
    """Return the end of a question's id, by which people name it in a conversation."""
    return question[-SHORT:]


def is_shown_whole(arguments: str, preview: str) -> bool:
    """Tell whether a question can show everything that a person must see before allowing it. What
    is shown counts: a character that is shown by its number takes the room of its number."""
    if len(arguments) + len(preview) > SHOWN_MAX:
        return False
    return len(exact(arguments)) + len(exact(preview)) <= SHOWN_MAX


def approval_choices(arguments: str, preview: str, *, can_grant: bool) -> tuple[str, ...]:
    """Return the buttons under a question about a call."""
    if not is_shown_whole(arguments, preview):
        return (DENY_CALL,)
    return (ALLOW_CALL, ALLOW_SESSION, DENY_CALL) if can_grant else (ALLOW_CALL, DENY_CALL)


def approval_text(  # noqa: PLR0913 - everything that a person must know
    question: QuestionId,
    *,
    tool: str,
    arguments: str,
    preview: str,
    grant: str,
    minutes: int,
    may_have_happened: bool = False,
) -> str:
    """Return the question whether a call may run, as markdown. `grant` says what may be granted
    beyond this call, and is empty if nothing can be."""
    name = short_id(question)
    lines = [f"🔐 May I call **{_name(tool)}** with these arguments?"]
    if may_have_happened:
        lines.append(
            "⚠️ The same call was cut short before and may have happened already. Allow it only if "
            "you know that it did not."
        )
    if is_shown_whole(arguments, preview):
        lines.append(_fenced(arguments))
        lines += [_fenced(preview, "diff")] if preview else []
        scopes = f" session, forever or 30m after it covers {code_line(grant)}." if grant else ""
        lines.append(f"/approve {name} allows it, /deny {name} does not.{scopes}{_wait(minutes)}")
    else:
        shown = exact(arguments[: SHOWN_MAX + 1])
        shown = shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX // 4]
        lines.append(f"{_fenced(shown)}\n… {len(arguments) + len(preview):,} characters in all")
        lines.append(
            "This is too long to be shown here, so it cannot be allowed here. Look at it on the "
            f"page, or with `perdure approvals show {question}`. /deny {name} denies it."
            f"{_wait(minutes)}"
        )
    return "\n\n".join(lines)


def inquiry_text(text: str, choices: Sequence[str], *, minutes: int) -> str:
    """Return a question of the agent's own, as markdown."""
    asked = without_disguise(text)
    listed = "".join(f"\n{n}. {without_disguise(each)}" for n, each in enumerate(choices, start=1))
    how = (
        "Choose one, or reply to this message." if choices else "Say it, or reply to this message."
    )
    return f"❓ {asked}{listed and chr(10)}{listed}\n\n{how}{_wait(minutes)}"


def _wait(minutes: int) -> str:
    """Return how long the question is open, as the end of a sentence."""
    if not minutes:
        return ""
    span = f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"
    return f" The question is open for {span}."


def _name(tool: str) -> str:
    """Return a tool's name so that it cannot leave its place in the text."""
    return exact(tool).replace("*", "").replace("`", "")


def code_line(text: str) -> str:
    """Return a line as code that it cannot end: it may hold the name of a file or an address."""
    line = " ".join(text.split()).replace("`", "'")
    return f"`{exact(line)}`"


def _fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code that it cannot end."""
    shown = exact(text)
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"{fence}{language}\n{shown}\n{fence}"


def answered_text(kind: QuestionKind, answer: str, who: str, scope: str, grant: str) -> str:
    """Return the line that replaces the buttons of a question that was answered."""
    if kind is QuestionKind.QUESTION:
        said = without_disguise(answer)
        return f"✔️ {who}: {said if len(said) <= ECHO_MAX else f'{said[:ECHO_MAX]} …'}"
    if answer != ALLOW:
        return f"⛔ Denied by {who}."
    lasting = (
        {
            Scope.SESSION: f" From now on in this session: {code_line(grant)}.",
            Scope.FOREVER: f" From now on: {code_line(grant)}. /grants takes it back.",
            Scope.TIME: f" For a while: {code_line(grant)}.",
        }.get(Scope(scope), "")
        if scope
        else ""
    )
    return f"✅ Allowed by {who}.{lasting}"


def over_text(reason: str) -> str:
    """Return the line that replaces the buttons of a question that nobody has answered."""
    return {
        "deadline": "⌛ Nobody answered in time, so it was not done.",
        "withdrawn": "⏹️ This is not needed any more: the turn has ended.",
        AGENT_LOST: "⏹️ This is void: the agent's program that asked has ended. If it is still "
        "needed, it is asked again.",
    }.get(reason, "⛔ It was not done.")


def unknown_text(calls: Sequence[ToolCall]) -> str:
    """Return what people are told when calls were cut short and nobody knows whether they have
    happened."""
    return in_lines(*map(_unknown, calls))


def _unknown(call: ToolCall) -> str:
    return worded(
        "⚠️ {tool} was cut short, and nobody knows whether it has happened. Please look, and then "
        "say {command} happened, or {command} not: the agent is told.",
        tool=_name(call.name),
        command=f"/effects {call.id[-SHORT:]}",
    )


def refused_text(reason: str, *, kind: QuestionKind) -> str:
    """Return the result of a call that does not run, as the model reads it."""
    is_question = kind is QuestionKind.QUESTION
    what = "The person has not answered" if is_question else "The call was not run"
    needs = "" if is_question else "it needs a person's approval, and "
    because = {
        "denied": "The person denied this call, so it was not run. Do not make it again unless "
        "they ask.",
        "deadline": f"{what}: nobody answered in time.",
        "undeliverable": f"{what}: the question could not be delivered to anybody.",
        AGENT_LOST: f"{what}: the agent's program ended before anybody had answered. Ask again if "
        "it is still needed.",
        "nobody": f"{what}: {needs}nobody can be asked here.",
        "too_many": f"{what}: too many questions are open at once. Call again after these are "
        "answered.",
        "changed": f"{what}: the tool, or what it works on, has changed since the call was "
        "approved. Look again, and call again if it is still right.",
    }
    return because.get(reason, f"{what}: {reason}")
