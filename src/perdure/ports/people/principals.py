"""Who rows belong to."""

from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from perdure.domain.ids import PrincipalId
from perdure.ports.records.history import Page

# Lists that people make by hand are short; who names no page gets the longest one.
LONGEST: Final = Page(limit=1000)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    id: PrincipalId
    name: str
    role: str

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def scope(self) -> PrincipalId | None:
        """What reads are limited to: operators see everything."""
        return None if self.is_operator else self.id


class TokenView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a token. `token` is the token itself, which is shown once, to whoever makes it."""

    id: str
    principal: str
    role: str
    created_at: int
    revoked_at: int | None
    token: str = ""


class Principals(Protocol):
    """Principals and the tokens that stand for them.

    Guarantees: a token is stored as a digest only; `by_token` returns None for unknown and revoked
    ones. `ensure` makes the principal if it is not there; `appoint` does so too, and gives it this
    role whatever it was. `platforms_operators` makes these names, and of the people of platforms
    only these, operators at once; whoever is not known yet becomes one with the first message.
    `revoke` takes a token's id, or the name of a principal who has one valid
    token. `tokens` is in the order in which they were made.
    Requires: tokens of at least 128 random bits, made by the caller.
    Raises: `Conflict` when a principal of that name exists, for a name with several valid tokens
    and for the operator's last token; `NotFound` for an unknown token id or name.
    After a crash: a token that was shown is valid.
    """

    async def ensure(self, name: str, *, role: str) -> Principal: ...

    async def appoint(self, name: str, *, role: str) -> Principal: ...

    async def platforms_operators(self, names: Collection[str]) -> None: ...

    async def by_token(self, token: str) -> Principal | None: ...

    async def grant(self, principal: PrincipalId, token: str) -> TokenView: ...

    async def revoke(self, which: str) -> TokenView: ...

    async def tokens(self, page: Page = LONGEST) -> list[TokenView]: ...
