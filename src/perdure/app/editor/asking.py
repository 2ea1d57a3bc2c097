"""Asks the person at an editor what an agent wants to know: whether a call may run, or a question
of its own."""

from typing import Final, Literal

from perdure.app.editor.link import EditorLink
from perdure.app.editor.retelling import Retelling
from perdure.app.editor.shapes import (
    Field,
    Form,
    FormFilled,
    FormWanted,
    Option,
    PermissionGiven,
    PermissionWanted,
)
from perdure.domain.errors import Rejected
from perdure.domain.journal.records import QuestionView
from perdure.domain.outcomes import QuestionKind
from perdure.domain.tools.asking import (
    ALLOW,
    ALLOW_CALL,
    ALLOW_SESSION,
    DENY,
    DENY_CALL,
)
from perdure.web.wire import AnswerIn

_SESSION: Final = "session"
_ANSWER: Final = "answer"
_KINDS: Final[dict[str, tuple[str, Literal["allow_once", "allow_always", "reject_once"]]]] = {
    ALLOW_CALL: (ALLOW, "allow_once"),
    ALLOW_SESSION: (_SESSION, "allow_always"),
    DENY_CALL: (DENY, "reject_once"),
}
_ANSWERS: Final = {
    ALLOW: AnswerIn(answer=ALLOW),
    _SESSION: AnswerIn(answer=ALLOW, scope=_SESSION),
    DENY: AnswerIn(answer=DENY),
}


async def answer_of(
    link: EditorLink, session: str, question: QuestionView, telling: Retelling, *, has_forms: bool
) -> AnswerIn | None:
    """Ask the person, and return the answer. Returns None if the person has given none there, or if
    the editor cannot ask: then the question stays open, and can be answered in words."""
    try:
        if question.kind == QuestionKind.APPROVAL:
            return await _permission(link, session, question, telling)
        return await _form(link, session, question) if has_forms else None
    except Rejected:
        return None


async def _permission(
    link: EditorLink, session: str, question: QuestionView, telling: Retelling
) -> AnswerIn | None:
    """Ask whether a call may run. What may not be allowed where it is not shown whole cannot be
    allowed here either."""
    wanted = PermissionWanted(
        session_id=session,
        tool_call=telling.asked(question.call, question.tool, question.arguments, question.text),
        options=tuple(
            Option(option_id=_KINDS[each][0], name=each, kind=_KINDS[each][1])
            for each in question.choices
            if each in _KINDS
        ),
    )
    given = await link.ask("session/request_permission", wanted, PermissionGiven)
    return _ANSWERS.get(given.outcome.option_id) if given.outcome.outcome == "selected" else None


async def _form(link: EditorLink, session: str, question: QuestionView) -> AnswerIn | None:
    """Ask a question of the agent's own in a form with one field."""
    field = Field(title="Answer", enum=question.choices)
    wanted = FormWanted(
        session_id=session,
        message=question.text,
        requested_schema=Form(properties={_ANSWER: field}, required=(_ANSWER,)),
    )
    filled = await link.ask("elicitation/create", wanted, FormFilled)
    said = (filled.content or {}).get(_ANSWER)
    is_given = filled.action == "accept" and isinstance(said, str) and bool(said.strip())
    return AnswerIn(answer=str(said)) if is_given else None
