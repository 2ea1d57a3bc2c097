"""Who is calling. Each token is a principal; health needs none on loopback, and requests to hooks
are signed instead."""

import ipaddress
from typing import Final

from aiohttp import web

from perdure.domain.errors import Rejected
from perdure.ports.clock import Clock
from perdure.ports.principals import Principal, Principals
from perdure.web import hooks
from perdure.web.answers import Handler

PRINCIPAL: Final = web.RequestKey("principal", Principal)
OPEN: Final = frozenset({"/healthz", "/readyz", "/metrics"})
REMEMBERED_S: Final = 2.0
REMEMBERED_MAX: Final = 10_000


class Access:
    """Looks tokens up, remembering an answer for a moment; revoking here forgets at once."""

    def __init__(self, principals: Principals, clock: Clock) -> None:
        self._principals = principals
        self._clock = clock
        self._known: dict[str, tuple[float, Principal]] = {}

    def forget(self) -> None:
        self._known.clear()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        is_open = path == "/" or path.startswith(("/static/", hooks.PREFIX))
        if is_open or (path in OPEN and _is_loopback(request.remote)):
            return await handler(request)
        request[PRINCIPAL] = await self._principal(request)
        return await handler(request)

    async def _principal(self, request: web.Request) -> Principal:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Rejected(
                "send the header `Authorization: Bearer TOKEN`; the token is in the file `token` "
                "of Perdure's home folder",
                code="unauthorized",
            )
        principal = await self._look_up(token)
        if principal is None:
            raise Rejected(
                "this token is not known here; it may have been revoked, or belong to another "
                "Perdure",
                code="unauthorized",
            )
        return principal

    async def _look_up(self, token: str) -> Principal | None:
        now = self._clock.monotonic_s()
        known = self._known.get(token)
        if known is not None and now - known[0] < REMEMBERED_S:
            return known[1]
        principal = await self._principals.by_token(token)
        if principal is not None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[token] = (now, principal)
        return principal


def operator_of(request: web.Request) -> Principal:
    principal = request[PRINCIPAL]
    if not principal.is_operator:
        raise Rejected("only the operator's token may do this", code="forbidden")
    return principal


def _is_loopback(remote: str | None) -> bool:
    try:
        return remote is not None and ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False
