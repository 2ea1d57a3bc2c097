"""Serves what agents ask people: approvals and questions, grants, and calls whose fate is
unknown. Each caller sees their own; operators see everybody's."""

from typing import Final

from perdure.domain.errors import Conflict, Rejected
from perdure.domain.ids import CallId, GrantId, QuestionId, TurnId
from perdure.domain.journal.records import EffectView, QuestionView
from perdure.domain.text import storable
from perdure.domain.tools.grants import Scope
from perdure.ports.people.principals import Principal
from perdure.ports.turns.questions import GrantView, QuestionReply
from perdure.web import wire
from perdure.web.endpoints import OperatorServices, PageLimit, endpoint, next_of, page_of

_STATES: Final = ("pending", "all")
_SCOPES: Final = ("call", "session", "forever")
# The longest time for which an approval may hold: a year.
_FOR_MAX_S: Final = 366 * 86_400
# The most turns that one request may name.
_TURNS_MAX: Final = 100


@endpoint("GET", "/api/approvals", "List approvals and questions that agents wait for")
async def approvals(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
    state: str = "pending",
    turns: str = "",
) -> wire.ApprovalsOut:
    """List questions, oldest first: those that are open, or all. With `turns`, ids with commas
    between them, list all that were asked in these turns."""
    if turns:
        named = await services.questions.of_turns(_turns(turns), principal=by.scope)
        return wire.ApprovalsOut(approvals=named)
    if state not in _STATES:
        raise Rejected(f"`state` is one of {', '.join(_STATES)}", code="invalid_state")
    asked = page_of(cursor, limit)
    found = await services.questions.page(asked, principal=by.scope, is_pending=state == "pending")
    more = next_of(found, asked, lambda each: (each.asked_at, each.id))
    return wire.ApprovalsOut(approvals=found, next=more)


def _turns(named: str) -> list[TurnId]:
    """Return the turns that a list of ids names."""
    found = [TurnId(each) for each in storable(named).split(",") if each]
    if len(found) > _TURNS_MAX:
        raise Rejected(f"`turns` names at most {_TURNS_MAX} turns", code="too_many")
    return found


@endpoint("GET", "/api/approvals/{id}", "Read one approval or question")
async def approval(services: OperatorServices, by: Principal, which: str) -> QuestionView:
    """Return one question, whatever came of it."""
    return await services.questions.one(QuestionId(which), principal=by.scope)


@endpoint("POST", "/api/approvals/{id}", "Answer an approval or a question")
async def answer(
    services: OperatorServices, by: Principal, which: str, *, body: wire.AnswerIn
) -> QuestionView:
    """Give the answer to a question. Only the first one counts."""
    asked = await services.questions.one(QuestionId(which), principal=by.scope)
    reply = QuestionReply(
        question=asked.id,
        answer=body.answer,
        by=by.id,
        scope=_scope(body),
        for_ms=int((body.for_s or 0) * 1000),
    )
    taken = await services.door.answer(reply)
    view = await services.questions.one(asked.id, principal=None)
    if not view.answered_by:
        # The deadline had passed, and this answer has only found that out.
        raise Conflict(taken.told, code="already_answered")
    return view


def _scope(body: wire.AnswerIn) -> Scope:
    """Return for how long an approval holds."""
    if body.for_s is not None:
        if not 1 <= body.for_s <= _FOR_MAX_S:
            raise Rejected(f"`for_s` is between 1 and {_FOR_MAX_S:,} seconds", code="invalid_scope")
        if body.scope not in (None, "call"):
            raise Rejected("give either `scope` or `for_s`", code="invalid_scope")
        return Scope.TIME
    if body.scope is not None and body.scope not in _SCOPES:
        raise Rejected(f"`scope` is one of {', '.join(_SCOPES)}", code="invalid_scope")
    return Scope(body.scope or "call")


@endpoint("GET", "/api/grants", "List what was allowed beyond single calls")
async def grants(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
) -> wire.GrantsOut:
    """List grants in force, oldest first."""
    asked = page_of(cursor, limit)
    found = await services.grants.page(asked, principal=by.scope)
    more = next_of(found, asked, lambda each: (each.granted_at, each.id))
    return wire.GrantsOut(grants=found, next=more)


@endpoint("DELETE", "/api/grants/{id}", "Take back what was allowed")
async def revoke_grant(services: OperatorServices, by: Principal, which: str) -> GrantView:
    """End a grant. The next call that it covered is asked about again."""
    return await services.grants.revoke(GrantId(which), principal=by.scope)


@endpoint("GET", "/api/effects", "List calls that may or may not have happened")
async def effects(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = 50,
    cursor: str | None = None,
    turns: str = "",
) -> wire.EffectsOut:
    """List calls whose fate is or was unknown, oldest first. With `turns`, ids with commas between
    them, list all such calls of these turns."""
    if turns:
        named = await services.effects.of_turns(_turns(turns), principal=by.scope)
        return wire.EffectsOut(effects=named)
    asked = page_of(cursor, limit)
    found = await services.effects.page(asked, principal=by.scope)
    more = next_of(found, asked, lambda each: (each.at, each.call))
    return wire.EffectsOut(effects=found, next=more)


@endpoint("POST", "/api/effects/{call}", "Say whether a call has happened")
async def mark_effect(
    services: OperatorServices, by: Principal, call: str, *, body: wire.HappenedIn
) -> EffectView:
    """Mark a call as happened or not. Its agent is told."""
    return await services.door.mark_effect(
        CallId(call), has_happened=body.happened, by=by.id, principal=by.scope
    )


@endpoint("GET", "/api/tools", "List what an agent may do in a conversation, and why not the rest")
async def tools(
    services: OperatorServices, by: Principal, *, conversation: str = ""
) -> wire.ToolsOut:
    """List the tools of the agent that answers in a conversation, or of the default one."""
    agent = ""
    if conversation:
        found = await services.conversations.find(
            conversation, principal=by.id, sees_all=by.is_operator
        )
        agent = found.view.agent
    return wire.ToolsOut(tools=services.control.tools(agent))
