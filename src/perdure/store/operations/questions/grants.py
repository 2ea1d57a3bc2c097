"""Keeps what people have granted agents beyond one call."""

from typing import Final, NamedTuple

from perdure.domain.errors import NotFound
from perdure.domain.ids import GrantId, PrincipalId, QuestionId, SessionId
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.tools.grants import (
    Grant,
    Scope,
)
from perdure.ports.records.history import Page
from perdure.ports.turns.questions import GrantView
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, one, run

# Adds a grant.
_PUT = """
    INSERT INTO grants (id, principal_id, agent, act, definition, pattern, words, scope, session_id,
                        until_at, question_id, granted_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"""
# Reads the grants of a person for an agent that may hold in a session.
_OF = """
    SELECT id, agent, act, definition, pattern, words, scope, session_id, until_at FROM grants
    WHERE principal_id = $1 AND revoked_at IS NULL AND agent = $2
      AND (session_id IS NULL OR session_id = $3) AND (until_at = 0 OR until_at > $4)
    ORDER BY id LIMIT 1000"""
# Reads grants as people are shown them; the caller appends which.
_SHOWN = """
    SELECT g.id, p.name, g.agent, g.act, g.words, g.scope, g.granted_at, g.session_id, g.until_at
    FROM grants g JOIN principals p ON p.id = g.principal_id """
# Reads a page of the grants in force, oldest first.
_PAGE = (
    _SHOWN
    + """
    WHERE g.revoked_at IS NULL AND (g.until_at = 0 OR g.until_at > $1)
      AND ($2 = '' OR g.principal_id = $2)
      AND (g.granted_at > $3 OR (g.granted_at = $3 AND g.id > $4))
    ORDER BY g.granted_at, g.id LIMIT $5"""
)
# Reads one grant that was not revoked.
_ONE = _SHOWN + "WHERE g.id = $1 AND g.revoked_at IS NULL AND ($2 = '' OR g.principal_id = $2)"
# Ends a grant.
_REVOKE = "UPDATE grants SET revoked_at = $1 WHERE id = $2"
_BEGINNING: Final = (-1, "")


class _Granted(NamedTuple):
    id: GrantId
    agent: str
    act: str
    definition: str
    pattern: str
    words: str
    scope: str
    session: SessionId | None
    until: int


class _Shown(NamedTuple):
    id: GrantId
    person: str
    agent: str
    act: str
    words: str
    scope: str
    granted_at: int
    session: SessionId | None
    until: int


class NewGrant(NamedTuple):
    """Holds what a person grants with the answer to a question. `until` is 0 if the grant does not
    end by itself."""

    principal: PrincipalId
    offer: GrantOffer
    scope: Scope
    session: SessionId
    until: int
    question: QuestionId


def put(new: NewGrant, stamp: Stamp) -> Op[None]:
    """Add a grant."""
    offer = new.offer
    session = new.session if new.scope is Scope.SESSION else None
    yield from run(
        _PUT,
        stamp.mint("grt"), new.principal, offer.agent, offer.act, offer.definition, offer.pattern,
        offer.words, new.scope, session, new.until, new.question, stamp.at,
    )  # fmt: skip


def of(principal: PrincipalId, *, agent: str, session: SessionId, at: int) -> Op[list[Grant]]:
    """Return the grants of a person for an agent that may hold in a session."""
    found = yield from many(_Granted, _OF, principal, agent, session, at)
    return [
        Grant(
            id=each.id,
            offer=GrantOffer(
                agent=each.agent,
                act=each.act,
                definition=each.definition,
                pattern=each.pattern,
                words=each.words,
            ),
            scope=Scope(each.scope),
            session=each.session,
            until=each.until,
        )
        for each in found
    ]


def page(page: Page, *, principal: PrincipalId | None, at: int) -> Op[list[GrantView]]:
    """Return a page of the grants in force."""
    after, last = page.after or _BEGINNING
    found = yield from many(_Shown, _PAGE, at, principal or "", after, last, page.limit)
    return [_view(each) for each in found]


def revoke(grant: GrantId, *, principal: PrincipalId | None, at: int) -> Op[GrantView]:
    """End a grant. Raises `NotFound` if the person has no such grant."""
    found = yield from one(_Shown, _ONE, grant, principal or "")
    if found is None:
        raise NotFound(f"there is no grant {grant}; /grants lists those in force")
    yield from run(_REVOKE, at, grant)
    return _view(found)


def _view(found: _Shown) -> GrantView:
    return GrantView(
        id=found.id,
        person=found.person,
        agent=found.agent,
        tool=found.act,
        covers=found.words,
        scope=found.scope,
        granted_at=found.granted_at,
        session=found.session or "",
        until=found.until,
    )
