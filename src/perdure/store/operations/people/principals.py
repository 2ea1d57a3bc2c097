"""Keeps principals and their tokens. Of a token only its hash is stored."""

import hashlib
from collections.abc import Collection

import msgspec

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import PrincipalId
from perdure.ports.people.principals import Principal, TokenView
from perdure.ports.records.history import Page
from perdure.store.operations import pushes
from perdure.store.statement import Op, many, one, run

# Creates a principal, unless the name exists.
_ENSURE = """
    INSERT INTO principals (id, name, role, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO NOTHING"""
# Creates a principal, or gives the one with this name the role.
_APPOINT = """
    INSERT INTO principals (id, name, role, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET role = excluded.role"""
# Reads the names of operators on platforms. People there are named after the platform:
# `telegram:42`.
_PLATFORMS_OPERATORS = """
    SELECT name FROM principals WHERE role = 'operator' AND name LIKE '%:%'"""
# Gives a principal another role.
_GIVE_ROLE = "UPDATE principals SET role = $1 WHERE name = $2 AND role <> $1"
# Reads the principal with this name.
_BY_NAME = "SELECT id, name, role FROM principals WHERE name = $1"
# Finds a principal by its id.
_BY_ID = "SELECT id, name, role FROM principals WHERE id = $1"
# Reads the principal of a valid token.
_BY_TOKEN = """
    SELECT p.id, p.name, p.role FROM tokens t JOIN principals p ON p.id = t.principal_id
    WHERE t.digest = $1 AND t.revoked_at IS NULL"""
# Creates a token, or makes one of the same principal valid again.
_GRANT = """
    INSERT INTO tokens (id, digest, principal_id, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (digest) DO UPDATE SET revoked_at = NULL
    WHERE tokens.principal_id = excluded.principal_id"""
# Finds the principal of a token.
_OWNER = "SELECT principal_id FROM tokens WHERE digest = $1"
# Finds the principal of a token by the token's id.
_HOLDER = "SELECT principal_id FROM tokens WHERE id = $1"
# Reads tokens; the caller appends which.
_TOKENS = """
    SELECT t.id, p.name, p.role, t.created_at, t.revoked_at
    FROM tokens t JOIN principals p ON p.id = t.principal_id """
# Reads the token with an id.
_TOKEN = _TOKENS + "WHERE t.id = $1"
# Reads the tokens of a name, newest first.
_TOKENS_OF = _TOKENS + "WHERE p.name = $1 ORDER BY t.created_at DESC, t.id DESC"
# Reads the token with a digest.
_TOKEN_BY_DIGEST = _TOKENS + "WHERE t.digest = $1"
# Reads a page of all tokens, oldest first.
_PAGE = (
    _TOKENS
    + """
    WHERE t.created_at > $1 OR (t.created_at = $1 AND t.id > $2)
    ORDER BY t.created_at, t.id LIMIT $3"""
)
_BEGINNING = (-1, "")
# Counts the other valid tokens of operators.
_OTHER_OPERATORS = """
    SELECT count(*) FROM tokens t JOIN principals p ON p.id = t.principal_id
    WHERE p.role = 'operator' AND t.revoked_at IS NULL AND t.id <> $1"""
# Revokes a token. A second time does not change the instant.
_REVOKE = "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2"


def token_digest(token: str) -> str:
    """Return the hash of a token. Tokens are long and random, so a plain hash cannot be reversed by
    guessing."""
    return hashlib.sha256(token.encode()).hexdigest()


def ensure(principal: PrincipalId, name: str, role: str, *, at: int) -> Op[Principal]:
    """Return the principal with this name, created with this role if there is none."""
    yield from run(_ENSURE, principal, name, role, at)
    return (yield from _named(name))


def appoint(principal: PrincipalId, name: str, role: str, *, at: int) -> Op[Principal]:
    """Return the principal with this name, and give it this role."""
    yield from run(_APPOINT, principal, name, role, at)
    return (yield from _named(name))


def platforms_operators(names: Collection[str]) -> Op[None]:
    """Make exactly these names operators, among people of platforms; all others there become
    members."""
    before = set((yield from many(str, _PLATFORMS_OPERATORS)))
    for name in sorted(before.difference(names)):
        yield from _give_role(name, "member")
    for name in sorted(set(names).difference(before)):
        yield from _give_role(name, "operator")


def _give_role(name: str, role: str) -> Op[None]:
    """Give a principal a role, unless it has that role."""
    yield from run(_GIVE_ROLE, role, name)


def _named(name: str) -> Op[Principal]:
    """Return the principal with this name, which must exist."""
    found = yield from one(_principal, _BY_NAME, name)
    assert found is not None
    return found


def with_id(principal: PrincipalId) -> Op[Principal]:
    """Return the principal with this id, which must exist."""
    found = yield from one(_principal, _BY_ID, principal)
    assert found is not None
    return found


def _principal(principal: PrincipalId, name: str, role: str) -> Principal:
    """Return the principal that a row holds."""
    return Principal(id=principal, name=name, role=role)


def by_token(token: str) -> Op[Principal | None]:
    """Return the principal of a token, or None if the token is not valid."""
    return (yield from one(_principal, _BY_TOKEN, token_digest(token)))


def grant(token_id: str, principal: PrincipalId, token: str, *, at: int) -> Op[TokenView]:
    """Make a token stand for a principal. New tokens are random, so a known one is the token
    file of the home, which becomes valid again. Raises `Conflict` if the token is another
    principal's."""
    yield from run(_GRANT, token_id, token_digest(token), principal, at)
    owner = yield from one(PrincipalId, _OWNER, token_digest(token))
    if owner != principal:
        raise Conflict("this token stands for someone else; make a new one")
    found = yield from one(_token, _TOKEN_BY_DIGEST, token_digest(token))
    assert found is not None
    return found


def revoke(which: str, *, at: int) -> Op[TokenView]:
    """Revoke a token, given by its id or by its principal's name. Raises `Conflict` for the last
    operator token."""
    view = yield from one(_token, _TOKEN, which)
    if view is None:
        view = yield from _only_token_of(which)
    if view.revoked_at is not None:
        return view
    if view.role == "operator":
        yield from _keep_an_operator(view.id)
    yield from run(_REVOKE, at, view.id)
    holder = yield from one(PrincipalId, _HOLDER, view.id)
    assert holder is not None
    yield from pushes.unsubscribe_all(holder)
    return msgspec.structs.replace(view, revoked_at=at)


def _only_token_of(name: str) -> Op[TokenView]:
    """Return the only valid token of this name; if none is valid, the newest. Raises `Conflict` if
    there are several."""
    views = yield from many(_token, _TOKENS_OF, name)
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
    """Raise `Conflict` if no other valid operator token would be left."""
    if not (yield from one(int, _OTHER_OPERATORS, token_id)):
        raise Conflict(
            f"{token_id} is the operator's last token, and without it nobody could get in; to "
            "change it, remove the file `token` of the home, restart, then revoke this one",
            code="last_operator_token",
        )


def tokens(page: Page) -> Op[list[TokenView]]:
    """Return a page of all tokens, oldest first."""
    at, last = page.after or _BEGINNING
    return (yield from many(_token, _PAGE, at, last, page.limit))


def _token(
    token_id: str, principal: str, role: str, created_at: int, revoked_at: int | None
) -> TokenView:
    """Return the token that a row holds."""
    return TokenView(
        id=token_id,
        principal=principal,
        role=role,
        created_at=created_at,
        revoked_at=revoked_at,
    )
