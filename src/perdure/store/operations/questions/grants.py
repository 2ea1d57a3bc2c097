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
# Reads a grant of a person that covers what is offered. The conditions are those of `covers`, so
# that a grant is found however many others there are.
_COVERING = """
    SELECT id, agent, act, definition, pattern, words, scope, session_id, until_at FROM grants
    WHERE principal_id = $1 AND revoked_at IS NULL AND agent = $2 AND definition = $3
      AND pattern IN ('', $4) AND (act = $5 OR substr($5, 1, length(act) + 1) = act || '.')
      AND (session_id IS NULL OR session_id = $6) AND (until_at = 0 OR until_at > $7)
    ORDER BY id LIMIT 1"""
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
# Reads a person's newest grants in force whose ids end so.
_NEWEST = (
    _SHOWN
    + """
    WHERE g.principal_id = $1 AND g.revoked_at IS NULL AND (g.until_at = 0 OR g.until_at > $2)
      AND substr(g.id, length(g.id) - length($3) + 1) = $3
    ORDER BY g.granted_at DESC, g.id DESC LIMIT $4"""
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


def covering(
    principal: PrincipalId, *, offer: GrantOffer, session: SessionId, at: int
) -> Op[Grant | None]:
    """Return a grant of a person that covers what is offered in a session, or None."""
    found = yield from one(
        _Granted, _COVERING,
        principal, offer.agent, offer.definition, offer.pattern, offer.act, session, at,
    )  # fmt: skip
    if found is None:
        return None
    granted = GrantOffer(
        agent=found.agent,
        act=found.act,
        definition=found.definition,
        pattern=found.pattern,
        words=found.words,
    )
    return Grant(
        id=found.id,
        offer=granted,
        scope=Scope(found.scope),
        session=found.session,
        until=found.until,
    )


def page(page: Page, *, principal: PrincipalId | None, at: int) -> Op[list[GrantView]]:
    """Return a page of the grants in force."""
    after, last = page.after or _BEGINNING
    found = yield from many(_Shown, _PAGE, at, principal or "", after, last, page.limit)
    return [_view(each) for each in found]


def newest(principal: PrincipalId, *, at: int, limit: int, ending: str = "") -> Op[list[GrantView]]:
    """Return a person's newest grants in force whose ids end with these letters, the newest
    first."""
    return [
        _view(each) for each in (yield from many(_Shown, _NEWEST, principal, at, ending, limit))
    ]


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
