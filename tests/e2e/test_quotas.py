"""Checks the quotas of a real gateway: a member is refused in clear words, and nobody else
notices."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import aiohttp
import openai
import pytest

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.file_server import FileServer
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
SOON_S = 30
# A person who is held up would wait for ever, because the others' files and answers never end.
BUSY_MACHINE_S = 1.0


def toml(model: ModelServer, more: str) -> str:
    return f"""
[agents.main]
kind = "chat"
base_url = "{model.openai_url}"
model = "scripted"

[sessions]
titles = false

{more}
"""


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Caller:
    def __init__(self, http: aiohttp.ClientSession, gateway: GatewayProcess, token: str) -> None:
        self._http = http
        self._url = gateway.url
        self.token = token

    async def call(
        self, method: str, path: str, **body: object
    ) -> tuple[int, dict[str, str], dict[str, object]]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._http.request(
            method,
            self._url + path,
            headers=headers,
            **body,  # type: ignore[arg-type]
        ) as response:
            return response.status, dict(response.headers), await response.json()

    async def member(self, name: str, gateway: GatewayProcess) -> "Caller":
        status, _, made = await self.call("POST", "/api/tokens", json={"name": name})
        assert status == 201, made
        return Caller(self._http, gateway, str(made["token"]))


async def test_a_member_who_has_too_much_is_told_what_and_what_to_do(
    gateway_factory: Factory, http: aiohttp.ClientSession
) -> None:
    async with ModelServer(lambda _: script.hang(0, script.say("yes"))) as model:
        quotas = "[quotas.member]\nturns = 2\nfiles = 1\nbytes = 100\nrequests_per_minute = 40"
        gateway = await gateway_factory(toml=toml(model, quotas))
        operator = Caller(http, gateway, gateway.token)
        ada = await operator.member("ada", gateway)

        assert (await ada.call("POST", "/api/media", data=b"file"))[0] == 201
        status, headers, body = await ada.call("POST", "/api/media", data=b"another")
        assert (status, headers.get("Retry-After")) == (429, None)
        assert body["error"]["type"] == "files"  # type: ignore[index]
        for name in ("one", "two"):
            path = f"/api/conversations/{name}/messages"
            assert (await ada.call("POST", path, json={"text": "hello"}))[0] == 202
        path = "/api/conversations/three/messages"
        status, headers, body = await ada.call("POST", path, json={"text": "hello"})
        assert (status, headers["Retry-After"]) == (429, "5")
        assert "2 messages of yours wait" in str(body)
        sdk = openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=ada.token, max_retries=0)
        async with sdk:
            with pytest.raises(openai.RateLimitError) as caught:
                await sdk.chat.completions.create(
                    model="main", messages=[{"role": "user", "content": "hello"}]
                )
        assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "turns")
        long = {"text": "/new " + "x" * 200}
        assert (await operator.call("POST", path, json=long))[0] == 202
        statuses = [(await ada.call("GET", "/api/conversations"))[0] for _ in range(50)]
        assert statuses.count(200) < 50
        status, headers, body = await ada.call("GET", "/api/conversations")
        assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")  # type: ignore[index]
        assert int(headers["Retry-After"]) >= 1
        _, _, found = await operator.call("GET", "/api/status")
        refused = found["refused"]
        assert isinstance(refused, dict)
        assert (refused["files"], refused["turns"], refused["bytes"]) == (1, 2, 0)
        assert refused["requests"] >= 1
        async with http.get(gateway.url + "/metrics") as response:
            assert 'perdure_quota_refusals_total{kind="turns"} 2.0' in await response.text()


def _hanging(model: ModelServer) -> int:
    return len([each for each in model.requests if b"hang" in each.raw])


async def test_one_who_saturates_the_turns_holds_up_nobody_else(
    gateway_factory: Factory, http: aiohttp.ClientSession
) -> None:
    # Turns of one person hang in all the slots that person may have, and many more wait behind
    # them.
    def answer(request: script.ScriptedRequest) -> script.Reply:
        said = script.say("yes", delay_ms=100)
        return script.hang(0, said) if "hang" in request.last_user_text else said

    async with ModelServer(answer) as model:
        gateway = await gateway_factory(toml=toml(model, "[turns]\nconcurrent = 4"))
        operator = Caller(http, gateway, gateway.token)
        ada = await operator.member("ada", gateway)
        bob = await operator.member("bob", gateway)

        async def ask(who: Caller) -> float:
            began_s = time.monotonic()
            body = {"messages": [{"role": "user", "content": "hello"}]}
            async with asyncio.timeout(SOON_S):
                status, _, _ = await who.call("POST", "/v1/chat/completions", json=body)
            assert status == 200
            return time.monotonic() - began_s

        idle_s = sorted([await ask(bob) for _ in range(5)])[2]
        for number in range(50):
            path = f"/api/conversations/{number}/messages"
            assert (await ada.call("POST", path, json={"text": "hang"}))[0] == 202
        async with asyncio.timeout(SOON_S):
            while _hanging(model) < 3:
                await asyncio.sleep(0.01)
        busy_s = sorted([await ask(bob) for _ in range(5)])[2]
        assert busy_s < 3 * idle_s + BUSY_MACHINE_S, (busy_s, idle_s)
        assert _hanging(model) == 3


def _slow_document() -> bytes:
    """Return a document that is small when sent and takes seconds to read."""
    packed = BytesIO()
    words = "<w:p><w:r><w:t>word </w:t></w:r></w:p>" * 1_500_000
    with ZipFile(packed, "w", ZIP_DEFLATED) as document:
        namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        head = f'<w:document xmlns:w="{namespace}"><w:body>'
        document.writestr("word/document.xml", f"{head}{words}</w:body></w:document>")
    return packed.getvalue()


def _looked(model: ModelServer) -> int:
    return len([each for each in model.requests if b"the sea is blue" in each.raw])


@pytest.mark.parametrize("way", ["hanging", "slow to read"])
async def test_one_whose_files_take_for_ever_holds_up_no_file_of_others(
    gateway_factory: Factory, http: aiohttp.ClientSession, way: str
) -> None:
    small = {"/small.html": b"<p>the sea is blue</p>", "/slow.docx": _slow_document()}
    async with (
        ModelServer(lambda _: script.say("yes", delay_ms=100)) as model,
        FileServer(small) as files,
    ):
        settings = toml(model, "[limits]\nprivate_urls = true")
        gateway = await gateway_factory(toml=settings)
        operator = Caller(http, gateway, gateway.token)
        ada = await operator.member("ada", gateway)
        bob = await operator.member("bob", gateway)
        asked = 0

        async def ask() -> float:
            nonlocal asked
            asked += 1
            path = f"/api/conversations/{asked}/messages"
            began_s, before = time.monotonic(), _looked(model)
            body = {"text": "look", "attachments": [{"url": f"{files.url}/small.html"}]}
            assert (await bob.call("POST", path, json=body))[0] == 202
            async with asyncio.timeout(SOON_S):
                while _looked(model) == before:
                    await asyncio.sleep(0.005)
            return time.monotonic() - began_s

        idle_s = sorted([await ask() for _ in range(5)])[2]
        name = "/slow.docx" if way == "slow to read" else "/hangs.txt"
        files.files["/hangs.txt"] = b"much"
        files.hanging.add("/hangs.txt")
        for number in range(10):
            path = f"/api/conversations/{number}/messages"
            body = {"text": "look", "attachments": [{"url": files.url + name}] * 4}
            assert (await ada.call("POST", path, json=body))[0] == 202
        async with asyncio.timeout(SOON_S):
            while files.asked.count(name) < 8:
                await asyncio.sleep(0.01)
        busy_s = sorted([await ask() for _ in range(5)])[2]
        assert busy_s < 3 * idle_s + BUSY_MACHINE_S, (busy_s, idle_s)
