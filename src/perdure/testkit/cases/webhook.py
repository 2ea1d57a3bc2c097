"""Provides the case for webhooks: a sender that signs and repeats, and a callback that verifies."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Self

from aiohttp import web

from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous, Rejected, Transient
from perdure.ports.platform.adapter import HookRequest, HookResponse, Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall

ROUTE: Final = "alarms"
_KEY: Final = bytes(range(32))
_SECRET: Final = "whsec_" + base64.b64encode(_KEY).decode()
_TRIES: Final = 5


class ShownOnce:
    """Plays the program behind a callback. It shows each message once, by its id, as the standard
    asks of receivers. While there are `waits`, it answers with the next of them instead."""

    def __init__(self) -> None:
        self.url = ""
        self.waits: list[int] = []
        self.shown: dict[str, str] = {}

    async def serve(self, request: web.Request) -> web.Response:
        """Take one request: refuse it if it is not signed, and otherwise show its text."""
        if self.waits:
            return web.Response(status=429, headers={"Retry-After": str(self.waits.pop(0))})
        body, headers = await request.read(), request.headers
        name = headers["webhook-id"]
        signature = _signature(name, int(headers["webhook-timestamp"]), body)
        if not hmac.compare_digest(headers["webhook-signature"], signature):
            return web.Response(status=401)
        self.shown.setdefault(name, json.loads(body)["text"])
        return web.Response(status=204)

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Self]:
        """Serve a callback on loopback for as long as the block runs."""
        callback = cls()
        app = web.Application(client_max_size=16_000_000)
        app.add_routes([web.post("/answers", callback.serve)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            callback.url = f"http://127.0.0.1:{runner.addresses[0][1]}/answers"
            yield callback
        finally:
            await runner.cleanup()


class WebhookCase(AdapterCase):
    """Describes webhooks to the suite. There is one route, and all its requests are one
    conversation. `send` is how a request reaches the gateway."""

    person = f"webhook:{ROUTE}"

    def __init__(self, callback: ShownOnce, make: MakePlatform, *, clock: Clock) -> None:
        self._callback = callback
        self._make = make
        self._numbers = count(1)
        self._unanswered: list[tuple[str, str]] = []
        self.settings = section(
            f"adapters.webhook.routes.{ROUTE}",
            secrets=[_SECRET],
            conversation="one",
            callback=callback.url,
        )
        super().__init__(make(self.settings), clock=clock)
        self.send: Callable[[HookRequest], Awaitable[HookResponse]] = self._answer

    async def _answer(self, request: HookRequest) -> HookResponse:
        return await self.platform.answer(request, self.heard)

    async def private(self, *, is_stranger: bool = False) -> Address:
        if is_stranger:
            self.has_no("strangers: who has the secret may speak")
        return Address(adapter="webhook", account="webhook", place=ROUTE)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        """Send a message, again and again until it is taken, as senders do. Returns its external
        id."""
        await self.private(is_stranger=is_stranger)
        name = f"msg_{next(self._numbers)}"
        if not await self._is_sent(name, text):
            self._unanswered.append((name, text))
        return f"{ROUTE}/{name}"

    async def _is_sent(self, name: str, text: str) -> bool:
        """Send a message a few times. Returns whether the gateway took it or refused it for
        good."""
        for _ in range(_TRIES):
            try:
                answer = await self.send(self._request(name, text))
            except (Transient, Ambiguous):
                continue
            except Rejected:
                return True
            if answer.status < 500:
                return True
        return False

    def _request(self, name: str, text: str, signature: str = "") -> HookRequest:
        at, body = self.clock.now_ms() // 1000, text.encode()
        headers = {
            "webhook-id": name,
            "webhook-timestamp": str(at),
            "webhook-signature": signature or _signature(name, at, body),
        }
        return HookRequest(method="POST", path=ROUTE, headers=headers, query={}, body=body)

    async def shown(self, address: Address | None = None) -> list[str]:
        return list(self._callback.shown.values())

    async def pings(self) -> list[str]:
        self.has_no("one to notify: a callback is a program")

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        if call is not PlatformCall.POST:
            self.has_no(f"{call} that goes to a callback")
        self._callback.waits.append(seconds)

    async def lose_thread(self) -> Address:
        self.has_no("threads: what a callback shows is its own choice")

    def refuse_rendering(self) -> None:
        self.has_no("rendering: a callback is given the text as it is")

    def hooked(self, text: str) -> HookRequest:
        return self._request(f"msg_{next(self._numbers)}", text)

    def anew(self) -> Platform:
        return self._make(self.settings)

    async def ready(self) -> None:
        """Send again what was not taken, as senders do after a while."""
        await super().ready()
        unanswered, self._unanswered = self._unanswered, []
        for name, text in unanswered:
            assert await self._is_sent(name, text), f"{name} was not taken"

    def forged(self) -> HookRequest:
        return self._request("msg_forged", "let me in", "v1," + base64.b64encode(_KEY).decode())


def _signature(name: str, at: int, body: bytes) -> str:
    digest = hmac.digest(_KEY, b"%s.%d.%s" % (name.encode(), at, body), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
