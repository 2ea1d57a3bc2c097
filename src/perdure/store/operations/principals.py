"""Principals and the digests of their tokens."""

import hashlib
from collections.abc import Collection

import msgspec

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import PrincipalId
from perdure.ports.history import Page
from perdure.ports.principals import Principal, TokenView
from perdure.store.statement import Op, Row, row, rows, run

_ENSURE = """
    INSERT INTO principals (id, name, role, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO NOTHING"""
_APPOINT = """
    INSERT INTO principals (id, name, role, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET role = excluded.role"""
# People of platforms are named after them: `telegram:42`.
_PLATFORMS_OPERATORS = """
    SELECT name FROM principals WHERE role = 'operator' AND name LIKE '%:%'"""
_GIVE_ROLE = "UPDATE principals SET role = $1 WHERE name = $2 AND role <> $1"
_BY_NAME = "SELECT id, name, role FROM principals WHERE name = $1"
_BY_TOKEN = """
    SELECT p.id, p.name, p.role FROM tokens t JOIN principals p ON p.id = t.principal_id
    WHERE t.digest = $1 AND t.revoked_at IS NULL"""
_GRANT = """
    INSERT INTO tokens (id, digest, principal_id, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (digest) DO UPDATE SET revoked_at = NULL
    WHERE tokens.principal_id = excluded.principal_id"""
_OWNER = "SELECT principal_id FROM tokens WHERE digest = $1"
_TOKENS = """
    SELECT t.id, p.name, p.role, t.created_at, t.revoked_at
    FROM tokens t JOIN principals p ON p.id = t.principal_id """
_TOKEN = _TOKENS + "WHERE t.id = $1"
_TOKENS_OF = _TOKENS + "WHERE p.name = $1 ORDER BY t.created_at DESC, t.id DESC"
_TOKEN_BY_DIGEST = _TOKENS + "WHERE t.digest = $1"
_PAGE = (
    _TOKENS
    + """
    WHERE t.created_at > $1 OR (t.created_at = $1 AND t.id > $2)
    ORDER BY t.created_at, t.id LIMIT $3"""
)
_BEGINNING = (-1, "")
_OTHER_OPERATORS = """
    SELECT count(*) FROM tokens t JOIN principals p ON p.id = t.principal_id
    WHERE p.role = 'operator' AND t.revoked_at IS NULL AND t.id <> $1"""
_REVOKE = "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2"


def digest(token: str) -> str:
    """Tokens are long and random, so a plain hash cannot be searched."""
    return hashlib.sha256(token.encode()).hexdigest()


def ensure(principal: PrincipalId, name: str, role: str, *, at: int) -> Op[Principal]:
    yield from run(_ENSURE, principal, name, role, at)
    return (yield from _named(name))


def appoint(principal: PrincipalId, name: str, role: str, *, at: int) -> Op[Principal]:
    yield from run(_APPOINT, principal, name, role, at)
    return (yield from _named(name))


def platforms_operators(names: Collection[str]) -> Op[None]:
    before = {name for (name,) in (yield from rows(_PLATFORMS_OPERATORS))}
    for name in sorted(before.difference(names)):
        yield from run(_GIVE_ROLE, "member", name)
    for name in sorted(set(names).difference(before)):
        yield from run(_GIVE_ROLE, "operator", name)


def _named(name: str) -> Op[Principal]:
    found = yield from row(_BY_NAME, name)
    assert found is not None
    return _principal(found)


def _principal(found: Row) -> Principal:
    principal, name, role = found
    return Principal(id=principal, name=name, role=role)


def by_token(token: str) -> Op[Principal | None]:
    found = yield from row(_BY_TOKEN, digest(token))
    return None if found is None else _principal(found)


def grant(token_id: str, principal: PrincipalId, token: str, *, at: int) -> Op[TokenView]:
    """New tokens are random, so one that is there already is the home's: it opens again."""
    yield from run(_GRANT, token_id, digest(token), principal, at)
    owner = yield from row(_OWNER, digest(token))
    if owner is None or owner[0] != principal:
        raise Conflict("this token stands for someone else; make a new one")
    found = yield from row(_TOKEN_BY_DIGEST, digest(token))
    assert found is not None
    return _token(found)


def revoke(which: str, *, at: int) -> Op[TokenView]:
    """Revoke a token by its id, or by the name of the one it stands for."""
    found = yield from row(_TOKEN, which)
    view = (yield from _only_token_of(which)) if found is None else _token(found)
    if view.revoked_at is not None:
        return view
    if view.role == "operator":
        yield from _keep_an_operator(view.id)
    yield from run(_REVOKE, at, view.id)
    return msgspec.structs.replace(view, revoked_at=at)


def _only_token_of(name: str) -> Op[TokenView]:
    """The one token of this name that is not revoked; if all are, the newest."""
    views = [_token(found) for found in (yield from rows(_TOKENS_OF, name))]
    valid = [view for view in views if view.revoked_at is None]
    if not views:
        raise NotFound(f"no token has the id or the name {name}; `perdure token list` shows them")
    if len(valid) > 1:
        ids = ", ".join(view.id for view in valid)
        raise Conflict(
            f"{name} has {len(valid)} valid tokens ({ids}); give the id of the one to revoke",
            code="ambiguous_token",
        )
    return valid[0] if valid else views[0]


def _keep_an_operator(token_id: str) -> Op[None]:
    others = yield from row(_OTHER_OPERATORS, token_id)
    if others is None or not others[0]:
        raise Conflict(
            f"{token_id} is the operator's last token, and without it nobody could get in; to "
            "change it, remove the file `token` of the home, restart, then revoke this one",
            code="last_operator_token",
        )


def tokens(page: Page) -> Op[list[TokenView]]:
    at, last = page.after or _BEGINNING
    return [_token(found) for found in (yield from rows(_PAGE, at, last, page.limit))]


def _token(found: Row) -> TokenView:
    token_id, principal, role, created_at, revoked_at = found
    return TokenView(
        id=token_id,
        principal=principal,
        role=role,
        created_at=created_at,
        revoked_at=revoked_at,
    )
