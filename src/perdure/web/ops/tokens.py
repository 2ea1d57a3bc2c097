"""Serves the list of API tokens, and grants and revokes them."""

import base64
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.ports.people.principals import LONGEST, Principal, TokenView
from perdure.web import wire
from perdure.web.endpoints import OperatorServices, PageLimit, endpoint, next_of, page_of

NAME_MAX: Final = 64
TOKEN_BYTES: Final = 32


@endpoint("GET", "/api/tokens", "List API tokens", is_for_operators=True)
async def tokens(
    services: OperatorServices,
    by: Principal,
    *,
    limit: PageLimit = LONGEST.limit,
    cursor: str | None = None,
) -> wire.TokensOut:
    """List tokens."""
    asked = page_of(cursor, limit)
    views = await services.principals.tokens(asked)
    more = next_of(views, asked, lambda each: (each.created_at, each.id))
    return wire.TokensOut(tokens=views, next=more)


@endpoint(
    "POST",
    "/api/tokens",
    "Make a token for a principal; it is shown once",
    status=201,
    is_for_operators=True,
)
async def grant(services: OperatorServices, by: Principal, *, body: wire.TokenIn) -> TokenView:
    """Make a token. It is shown once, in this answer, and is stored nowhere."""
    name = body.name.strip()
    if not name or len(name) > NAME_MAX or not name.isprintable():
        raise Rejected(f"a name has 1 to {NAME_MAX} printable characters", code="invalid_name")
    secret = services.entropy.random_bytes(TOKEN_BYTES)
    token = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
    principal = await services.principals.ensure(name, role="member")
    view = await services.principals.grant(principal.id, token)
    return msgspec.structs.replace(view, token=token)


@endpoint("DELETE", "/api/tokens/{id}", "Revoke a token", is_for_operators=True)
async def revoke(services: OperatorServices, by: Principal, which: str) -> TokenView:
    """Revoke a token, and cut the connections that use it."""
    view = await services.principals.revoke(which)
    await services.end_revoked()
    await services.control.review_access()
    return view
