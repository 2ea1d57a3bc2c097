"""Who is calling. Each token is a principal; health needs none on loopback, and requests to hooks
are signed instead.

What is under way is known by its token, so that streams end when their token is revoked.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog
from aiohttp import web

from perdure.domain.errors import PerdureError, Rejected
from perdure.domain.people.quotas import OverQuota
from perdure.domain.text import storable
from perdure.ports.people.principals import Principal, Principals
from perdure.ports.people.quotas import QuotaGate
from perdure.ports.records.condition import StoreCondition
from perdure.ports.system.clock import Clock
from perdure.web import hooks
from perdure.web.endpoints import require_operator
from perdure.web.http.answers import Handler, json_response
from perdure.web.http.callers import Callers
from perdure.web.http.doorway import sign_in
from perdure.web.http.shared_question import LOOK_S

PRINCIPAL: Final = web.RequestKey("principal", Principal)
HEALTH: Final = "/healthz"
OPEN: Final = frozenset({HEALTH, "/readyz", "/metrics"})
# These answer also while the store does not, to a token that was good before: it is then that one
# has to know how the node is, and may want to stop it.
ALWAYS: Final = OPEN | {"/api/status", "/api/drain"}
REMEMBERED_S: Final = 2.0
REMEMBERED_MAX: Final = 10_000
# How often one address is named in the log that comes with wrong tokens.
WRONG_EVERY_S: Final = 60.0
log = structlog.get_logger("web")


class TokenCheck:
    """Looks tokens up, remembering an answer for a moment; revoking here forgets at once."""

    def __init__(
        self,
        principals: Principals,
        condition: StoreCondition,
        clock: Clock,
        callers: Callers,
        *,
        gate: QuotaGate,
    ) -> None:
        self._callers = callers
        # By token, as long as they are under way. A request equals another with the same items.
        self._requests: dict[str, dict[int, web.Request]] = {}
        self._revocations = 0
        self._principals = principals
        self._condition = condition
        self._clock = clock
        self._gate = gate
        self._known: dict[str, tuple[float, Principal]] = {}
        # By address: when it was last named in the log, and its wrong tokens since then.
        self._wrong: dict[str, tuple[float, int]] = {}

    async def revoked(self, *, by: web.Request | None = None) -> None:
        """Forget what is known, and end whatever is under way for a token that is good no more,
        but for the request that has revoked it."""
        self._revocations += 1
        self._known.clear()
        for token in list(self._requests):
            if await self._principals.by_token(token) is None:
                for request in list(self._requests.get(token, {}).values()):
                    if request is not by and request.transport is not None:
                        request.transport.abort()

    async def watch_others(self, _: web.Application) -> AsyncIterator[None]:
        """Look now and then for tokens that another node of the same store has revoked."""

        async def look() -> None:
            while True:
                await self._clock.sleep(REMEMBERED_S)
                with suppress(PerdureError):  # nobody can tell while the store does not answer
                    await self.revoked()

        looking = asyncio.create_task(look())  # noqa: TID251 - it ends with the application
        yield
        looking.cancel()
        await asyncio.wait({looking})

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        if path.startswith(hooks.PREFIX) or (path in OPEN and self._callers.is_local(request)):
            return await handler(request)
        token = _token_of(request)
        if path == HEALTH and (not token or not self._callers.is_meant(request)):
            # That much a load balancer has to know, and a stranger may.
            return json_response({"status": "ok"})
        self._callers.require_meant(request)
        if path == "/" or path.startswith("/static/"):
            return await handler(request)
        with self._under_way(token, request):
            principal = request[PRINCIPAL] = await self._principal(request, token)
            sign_in(request, is_operator=principal.is_operator)
            return await self._within_quota(request, handler, principal)

    async def _within_quota(
        self, request: web.Request, handler: Handler, principal: Principal
    ) -> web.StreamResponse:
        """Handle a request, and count it if it is refused because its person has too much."""
        try:
            if request.path not in OPEN:
                self._gate.admit(principal.id, is_operator=principal.is_operator)
            return await handler(request)
        except OverQuota as error:
            self._gate.note(error)
            raise

    @contextmanager
    def _under_way(self, token: str, request: web.Request) -> Iterator[None]:
        # Before the token is looked up: one that is revoked in between is found here.
        requests = self._requests.setdefault(token, {})
        requests[id(request)] = request
        try:
            yield
        finally:
            del requests[id(request)]
            if not requests and self._requests.get(token) is requests:
                del self._requests[token]

    async def _principal(self, request: web.Request, token: str) -> Principal:
        if not token:
            raise Rejected(
                "send the header `Authorization: Bearer TOKEN`; the token is in the file `token` "
                "of Perdure's home folder",
                code="unauthorized",
            )
        principal = await self._look_up(token, path=request.path)
        if principal is None:
            self._note_wrong(request)
            raise Rejected(
                "this token is not known here; it may have been revoked, or belong to another "
                "Perdure",
                code="unauthorized",
            )
        return principal

    def _note_wrong(self, request: web.Request) -> None:
        """Say where wrong tokens come from: the first at once, and then a count now and then."""
        who, now_s = self._callers.address(request), self._clock.monotonic_s()
        told_s, count = self._wrong.get(who, (now_s - WRONG_EVERY_S, 0))
        if now_s - told_s < WRONG_EVERY_S:
            self._wrong[who] = (told_s, count + 1)
            return
        if len(self._wrong) >= REMEMBERED_MAX:
            self._wrong.clear()
        self._wrong[who] = (now_s, 0)
        more = {"more_before": count} if count else {}
        log.warning("a wrong token was refused", remote=who, path=request.path, **more)

    async def _look_up(self, token: str, *, path: str) -> Principal | None:
        now = self._clock.monotonic_s()
        known = self._known.get(token)
        if known is not None and now - known[0] < REMEMBERED_S:
            return known[1]
        if known is not None and path in ALWAYS and await self._condition.look(within_s=LOOK_S):
            # Nobody can tell whether it is still good, and neither a probe nor a stop must fail
            # for that.
            return known[1]
        revocations = self._revocations
        principal = await self._principals.by_token(token)
        if principal is not None and revocations == self._revocations:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[token] = (now, principal)
        return principal


def operator_of(request: web.Request) -> Principal:
    principal = request[PRINCIPAL]
    require_operator(principal)
    return principal


def _token_of(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    # Bytes that are no UTF-8 are no token of ours, and no store takes them.
    return storable(token.strip()) if scheme.lower() == "bearer" else ""
