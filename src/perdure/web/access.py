"""Identifies callers by their tokens. Each token stands for one principal.

Requests to hooks carry a platform's signature instead of a token, and health checks from loopback
need none. Open requests are kept by token, so that streams are cut when their token is revoked.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog
from aiohttp import web

from perdure.domain.errors import PerdureError, Rejected, Transient
from perdure.domain.people.quotas import OverQuota
from perdure.domain.text import storable
from perdure.ports.people.principals import Principal, Principals
from perdure.ports.people.quotas import QuotaGate
from perdure.ports.records.condition import StoreCondition
from perdure.ports.system.clock import Clock
from perdure.web import hooks, pages
from perdure.web.endpoints import require_operator
from perdure.web.http.answers import Handler, json_response
from perdure.web.http.callers import Callers
from perdure.web.http.doorway import sign_in

PRINCIPAL: Final = web.RequestKey("principal", Principal)
HEALTH: Final = "/healthz"
OPEN: Final = frozenset({HEALTH, "/readyz", "/metrics"})
# These paths answer even while the store is down, if the token was valid before: that is when an
# operator needs to see the node's state, or to stop it.
ALWAYS: Final = OPEN | {"/api/status", "/api/drain"}
# How long a looked-up token is trusted without asking the store again. A revocation by another node
# takes effect within this time.
REMEMBERED_S: Final = 2.0
# While the store cannot be asked, a token is believed that was valid so recently before.
BELIEVED_S: Final = 3600.0
# How long those paths wait to learn whether the store can be asked: longer than it takes until a
# database that hangs counts as being in trouble, and only a moment once it does.
LOOK_S: Final = 2.5
LOOK_AGAIN_S: Final = 0.1
REMEMBERED_MAX: Final = 10_000
# Wrong tokens from one address are logged at most once in this time, so that guessing cannot flood
# the log.
WRONG_EVERY_S: Final = 60.0
log = structlog.get_logger("web")


class TokenCheck:
    """Looks up tokens, and trusts each answer for `REMEMBERED_S`. A revocation on this node clears
    what is remembered at once. An older answer counts only while the store cannot be asked."""

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
        # Open requests by token, then by `id`: two requests with the same items compare as equal.
        self._requests: dict[str, dict[int, web.Request]] = {}
        self._revocations = 0
        self._principals = principals
        self._condition = condition
        self._clock = clock
        self._gate = gate
        self._known: dict[str, tuple[float, Principal]] = {}
        # By address: when it was last logged, and how many wrong tokens it has sent since.
        self._wrong: dict[str, tuple[float, int]] = {}

    async def revoked(self, *, by: web.Request | None = None) -> None:
        """Forget remembered tokens, and cut the connections of every token that is no longer valid.
        The request that revoked the token (`by`) is spared, so that it gets its answer."""
        self._revocations += 1
        self._known.clear()
        await self._cut_revoked(by=by)

    async def _cut_revoked(self, *, by: web.Request | None = None) -> None:
        for token in list(self._requests):
            if await self._principals.by_token(token) is None:
                self._known.pop(token, None)
                for request in list(self._requests.get(token, {}).values()):
                    if request is not by and request.transport is not None:
                        request.transport.abort()

    async def watch_others(self, _: web.Application) -> AsyncIterator[None]:
        """Check regularly for tokens that another node on the same store has revoked."""

        async def look() -> None:
            while True:
                await self._clock.sleep(REMEMBERED_S)
                with suppress(
                    PerdureError
                ):  # the store is down: validity is unknown, so look again later
                    self._forget_old()
                    await self._cut_revoked()

        looking = asyncio.create_task(look())  # noqa: TID251 - it ends with the application
        yield
        looking.cancel()
        await asyncio.wait({looking})

    def _forget_old(self) -> None:
        """Forget what was looked up long ago. Nothing is forgotten while the store is in trouble,
        because nothing could be looked up again."""
        if not self._condition.trouble:
            oldest_s = self._clock.monotonic_s() - BELIEVED_S
            for token in [each for each, (at_s, _) in self._known.items() if at_s < oldest_s]:
                del self._known[token]

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass if it needs no token, or if its token is valid. Raises `Rejected`
        otherwise."""
        path = request.path
        if path.startswith(hooks.PREFIX) or (path in OPEN and self._callers.is_local(request)):
            return await handler(request)
        token = _token_of(request)
        if path == HEALTH and (not token or not self._callers.is_meant(request)):
            # A load balancer needs this much, and it tells a stranger nothing.
            return json_response({"status": "ok"})
        self._callers.require_meant(request)
        if path in ("/", f"/{pages.WORKER}") or path.startswith("/static/"):
            return await handler(request)
        with self._under_way(token, request):
            try:
                principal = request[PRINCIPAL] = await self._principal(request, token)
            except Transient:
                if path != HEALTH:
                    raise
                # The process lives, and more than that is told only to those we know.
                return json_response({"status": "ok"})
            sign_in(request, is_operator=principal.is_operator)
            return await self._within_quota(request, handler, principal)

    async def _within_quota(
        self, request: web.Request, handler: Handler, principal: Principal
    ) -> web.StreamResponse:
        """Handle a request. Counts it if it is refused because its principal is over a quota."""
        try:
            if request.path not in OPEN:
                self._gate.admit(principal.id, is_operator=principal.is_operator)
            return await handler(request)
        except OverQuota as error:
            self._gate.note(error)
            raise

    @contextmanager
    def _under_way(self, token: str, request: web.Request) -> Iterator[None]:
        # Register the request before its token is looked up: if the token is revoked in between,
        # `revoked` finds the request here and cuts it.
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
        """Log where wrong tokens come from: the first one at once, then a count per
        `WRONG_EVERY_S`."""
        who, now_s = self._callers.address(request), self._clock.monotonic_s()
        # A new address starts as if it had last been logged long ago.
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
        if path in ALWAYS and (trouble := await self._trouble()):
            # Whether the token is still valid cannot be known, and neither a probe nor a stop may
            # fail because of that.
            if known is None:
                raise Transient(f"{trouble} (until then nobody knows whose token this is)")
            return known[1]
        revocations = self._revocations
        principal = await self._principals.by_token(token)
        if principal is None:
            self._known.pop(token, None)
        # A revocation during the lookup makes the answer stale, so it is not remembered.
        if principal is not None and revocations == self._revocations:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[token] = (now, principal)
        return principal

    async def _trouble(self) -> str:
        """Return why the store cannot be asked, or an empty string."""
        within_s = LOOK_AGAIN_S if self._condition.trouble else LOOK_S
        return await self._condition.look(within_s=within_s)


def operator_of(request: web.Request) -> Principal:
    """Return the caller of a request. Raises `Rejected` if the caller is not an operator."""
    principal = request[PRINCIPAL]
    require_operator(principal)
    return principal


def _token_of(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    # Our tokens are valid UTF-8, and no store accepts anything else.
    return storable(token.strip()) if scheme.lower() == "bearer" else ""
