"""Defines the port that keeps principals, to whom rows belong, and their tokens."""

from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from perdure.domain.ids import PrincipalId
from perdure.ports.records.history import Page

# Lists that people make by hand are short, so a caller that names no page gets the longest one.
LONGEST: Final = Page(limit=1000)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a person or a program that rows belong to. `role` is operator or member."""

    id: PrincipalId
    name: str
    role: str

    @property
    def is_operator(self) -> bool:
        """Tell whether the principal is an operator."""
        return self.role == "operator"

    @property
    def scope(self) -> PrincipalId | None:
        """Return whose rows the principal may read; None for operators, who may read everything."""
        return None if self.is_operator else self.id


class TokenView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a token. `token` is the token itself; it is shown only once, when it is made."""

    id: str
    principal: str
    role: str
    created_at: int
    revoked_at: int | None
    token: str = ""


class Principals(Protocol):
    """Keeps principals and the tokens that stand for them.

    Guarantees: of a token only a digest is stored.
    Requires: tokens of at least 128 random bits, made by the caller.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: a token that was shown is valid, because it is stored before it is shown.
    """

    async def ensure(self, name: str, *, role: str) -> Principal:
        """Return the principal with this name. Creates it with this role if there is none."""

    async def appoint(self, name: str, *, role: str) -> Principal:
        """Return the principal with this name, created if there is none, and give it this role."""

    async def platforms_operators(self, names: Collection[str]) -> None:
        """Make these names operators, and all other people of platforms members. A name that is not
        known yet is not created: `appoint` does that with the person's first message."""

    async def by_token(self, token: str) -> Principal | None:
        """Return the principal of a token, or None if the token is unknown or revoked."""

    async def grant(self, principal: PrincipalId, token: str) -> TokenView:
        """Store a token that stands for a principal. Raises `Conflict` if it stands for another
        one."""

    async def revoke(self, which: str) -> TokenView:
        """Revoke a token, named by its id, or by its principal's name if that has one valid token.
        Raises `NotFound` for an unknown id or name, and `Conflict` for a name with several valid
        tokens and for the last token of an operator."""

    async def tokens(self, page: Page = LONGEST) -> list[TokenView]:
        """Return a page of all tokens, in the order in which they were made."""
