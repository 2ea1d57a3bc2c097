"""Checks that the work of a person whose access ends is stopped, while it runs, waits or was
interrupted: with a real gateway, and a model server that tells what it was asked."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.adapters.webhook.signing import key_of, signed_headers
from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.command import TRUSTS_NOBODY
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0cywgbG9uZyBlbm91Z2g="
HOOKS = (("ci", "m1"), ("shop", "m2"))
ROUTE = f"""
[adapters.webhook.routes.{{}}]
secrets = ["{SECRET}"]
"""


class Model:
    """Says one word and then hangs, while it is held."""

    def __init__(self) -> None:
        self.is_held = True
        self.server = ModelServer(self._answer)

    def _answer(self, request: script.ScriptedRequest) -> script.Reply:
        return script.hang(1, script.say("a long answer")) if self.is_held else script.echo(request)

    @property
    def asked(self) -> str:
        return "\n".join(json.dumps(each.body) for each in self.server.requests)


class House:
    def __init__(self, gateway: GatewayProcess, model: Model, http: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.model = model
        self.http = http
        self.operator = Client(gateway, http)

    def configure(self, *routes: str) -> None:
        (self.gateway.home / "perdure.toml").write_text(toml(self.model.server, *routes))

    async def perdure(self, *arguments: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "perdure", *arguments,
            env={**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(self.gateway.home)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == code, out
        return out.decode()

    async def member(self, name: str) -> Client:
        client = Client(self.gateway, self.http)
        client.token = json.loads(await self.perdure("token", "add", name, "--json"))["token"]
        return client

    async def hook(self, route: str, message: str) -> None:
        body = f"what of {route}?".encode()
        headers = signed_headers(
            key_of(SECRET), message=message, now_ms=int(time.time() * 1000), body=body
        )
        url = f"{self.gateway.url}/hooks/webhook/{route}"
        async with self.http.post(url, data=body, headers=headers) as response:
            assert response.status == 202, await response.text()

    async def are_asked(self, count: int) -> None:
        async with asyncio.timeout(20):
            await self.model.server.wait_for_requests(count)

    async def ended(self, turn: str) -> tuple[str, str]:
        settled = await self.operator.settled(turn)
        return settled["outcome"], settled["reason"]

    async def turn_of(self, message: str) -> str:
        _, found = await self.operator.call("GET", f"/api/explain/{message}")
        turn: str = found["turn"]["id"]
        return turn


def toml(model: ModelServer, *routes: str) -> str:
    agent = f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "scripted"\n'
    titles = "[sessions]\ntitles = false\n"
    return agent + titles + "".join(ROUTE.format(route) for route in routes)


@pytest.fixture
async def house(
    gateway_factory: Callable[..., Awaitable[GatewayProcess]],
) -> AsyncIterator[House]:
    model = Model()
    async with model.server, aiohttp.ClientSession() as http:
        gateway = await gateway_factory(toml=toml(model.server, "ci", "shop"))
        yield House(gateway, model, http)


async def test_work_ends_with_the_access_of_its_person(house: House) -> None:
    bob, ada = await house.member("bob"), await house.member("ada")
    said: dict[str, Any] = {}
    for who, client in (("bob", bob), ("ada", ada), ("root", house.operator)):
        said[who] = (await client.say("main", f"first of {who}"))["turn"]
        said[f"{who} waits"] = (await client.say("main", f"second of {who}"))["turn"]
    await house.hook("ci", "m1")
    await house.hook("shop", "m2")
    await house.are_asked(5)

    # A running node ends the work of the person whose token was revoked by name, and no other work.
    assert "bob is revoked" in await house.perdure("token", "revoke", "bob")
    why = "access ended: no token of bob is valid any more"
    assert await house.ended(said["bob"]) == ("stopped", why)
    assert await house.ended(said["bob waits"]) == ("refused", why)
    assert why in await house.perdure("explain", said["bob waits"])
    assert "the id or the name" in await house.perdure("token", "revoke", "nobody", code=1)

    # A changed configuration ends work too.
    hooks = {route: await house.turn_of(id_) for route, id_ in HOOKS}
    house.configure("shop")
    house.gateway.send_signal(signal.SIGHUP)
    outcome, reason = await house.ended(hooks["ci"])
    assert outcome == "stopped"
    assert reason.startswith("access ended")

    # A change while no node runs takes effect at the next start.
    await house.gateway.kill()
    house.model.is_held = False
    house.model.server.requests.clear()
    house.configure()
    await house.perdure("token", "revoke", "ada")
    await house.gateway.start()
    for turn in (said["ada"], said["ada waits"], hooks["shop"]):
        outcome, reason = await house.ended(turn)
        assert outcome == "refused"
        assert reason.startswith("access ended")
    for turn in (said["root"], said["root waits"]):
        assert (await house.ended(turn))[0] == "done"
    assert "of root" in house.model.asked
    assert not any(words in house.model.asked for words in ("of ada", "of bob", "what of"))
    assert await house.perdure("verify")
