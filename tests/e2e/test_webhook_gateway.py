"""Checks a whole gateway with webhooks: the result of a request can be asked for, also from the
next life."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook as Reference

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.shown import wait_until
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
StartGateway = Callable[..., Awaitable[GatewayProcess]]
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
TOML = f"""
[limits]
queued_per_conversation = 1

[adapters.webhook.routes.deploys]
secrets = ["{SECRET}"]

[adapters.webhook.routes.alarms]
secrets = ["{SECRET}"]
conversation = "one"
"""


class Sender:
    """Signs with the reference library of the standard."""

    def __init__(self, gateway: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self._gateway = gateway
        self._http = http

    async def post(self, route: str, message: str, body: str) -> int:
        return (await self.posted(route, message, body))[0]

    async def posted(self, route: str, message: str, body: str) -> tuple[int, Any]:
        return await self._call("POST", route, message, body)

    async def ask(self, route: str, message: str) -> tuple[int, Any]:
        return await self._call("GET", f"{route}/{message}", message, "")

    async def answer(self, route: str, message: str) -> Any:
        """Wait until the request is no longer pending. Returns its answer."""

        async def look() -> Any:
            return (await self.ask(route, message))[1]

        return await wait_until(
            look, lambda found: found["state"] != "pending", clock=SystemClock()
        )

    async def _call(self, method: str, path: str, message: str, body: str) -> tuple[int, Any]:
        at = datetime.now(tz=UTC)
        headers = {
            "webhook-id": message,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Reference(SECRET).sign(message, at, body),
        }
        url = f"{self._gateway.url}/hooks/webhook/{path}"
        async with self._http.request(method, url, headers=headers, data=body) as response:
            return response.status, await response.json()


@pytest.fixture
async def gateway(gateway_factory: StartGateway) -> GatewayProcess:
    return await gateway_factory(toml=TOML)


@pytest.fixture
async def sender(gateway: GatewayProcess) -> AsyncIterator[Sender]:
    async with aiohttp.ClientSession() as http:
        yield Sender(gateway, http)


async def test_an_answer_is_found_after_the_gateway_was_killed(
    gateway: GatewayProcess, sender: Sender
) -> None:
    poll = f"{gateway.url}/hooks/webhook/deploys/d-1"
    assert await sender.posted("deploys", "d-1", "deploy it") == (202, {"id": "d-1", "poll": poll})
    assert (await sender.answer("deploys", "d-1"))["state"] == "done"

    await gateway.restart()

    status, answer = await sender.ask("deploys", "d-1")
    assert (status, answer["state"]) == (200, "done")
    assert "deploy it" in answer["text"]
    assert (await sender.ask("deploys", "d-2"))[0] == 404
    assert (await sender.ask("alarms", "d-1"))[0] == 404, "ids are the route's"


async def test_a_request_that_was_under_way_is_pending_until_it_is_done(
    gateway: GatewayProcess, sender: Sender
) -> None:
    assert await sender.post("deploys", "d-1", "demo words=100 delay_ms=20") == 202
    assert (await sender.ask("deploys", "d-1"))[1] == {"state": "pending", "text": ""}

    await gateway.restart()

    answer = await sender.answer("deploys", "d-1")
    assert answer["state"] == "done"
    assert answer["text"]


async def test_failures_commands_and_refusals_are_told_as_such(sender: Sender) -> None:
    assert await sender.post("deploys", "d-1", "demo fail") == 202
    failed = await sender.answer("deploys", "d-1")
    assert failed["state"] == "failed"
    assert failed["text"]

    assert await sender.post("alarms", "a-1", "/whoami") == 202
    whoami = {"state": "done", "text": "You are webhook:webhook:alarms (member)."}
    assert await sender.answer("alarms", "a-1") == whoami

    assert await sender.post("alarms", "a-2", "demo words=200 delay_ms=20") == 202
    assert await sender.post("alarms", "a-3", "one that waits") == 202
    assert await sender.post("alarms", "a-4", "one too many") == 202
    refused = await sender.answer("alarms", "a-4")
    assert refused == {"state": "failed", "text": "it was not taken: queue_full"}
