"""Checks webhooks over real sockets: requests come through the mount, answers go to a real
callback.

The reference library of Standard Webhooks signs what the adapter takes and verifies what it sends.
"""

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from standardwebhooks import Webhook as Reference
from yarl import URL

from perdure.adapters.webhook.adapter import ALIVE_S, POLL, make
from perdure.adapters.webhook.manifest import Route, WebhookSettings
from perdure.adapters.webhook.wire import Wire
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival
from perdure.domain.journal.records import AnswerSoFar
from perdure.domain.secret import Secret
from perdure.domain.waits import retry_after_s
from perdure.ports.platform.adapter import (
    ArrivalReading,
    Delete,
    HookRequest,
    HookResponse,
    Platform,
    Post,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.simulator.system import VirtualClock
from perdure.web.hooks import HooksApi
from perdure.web.http.answers import errors_as_json
from perdure.web.services import Hook

pytestmark = pytest.mark.timeout(30)

BODY_MAX = 10_000


def secret(seed: int) -> str:
    return "whsec_" + base64.b64encode(bytes([seed] * 32)).decode()


OURS, NEWER, FOREIGN, OUTGOING = map(secret, range(4))


PLAIN = "a secret of sixteen or more"


class Inbox(Unguarded):
    """Keeps what it is given, each arrival once, and tells its answer. It first raises its
    `failures`."""

    def __init__(self) -> None:
        self.spoilt: dict[str, str] = {}
        self.answered: dict[str, AnswerSoFar] = {}
        self.arrivals: dict[str, Arrival] = {}
        self.offered = 0
        self.signs_of_life = 0
        self.lives = asyncio.Event()
        self.failures: list[PerdureError] = []

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        assert reading is None, "there is nothing to convert"
        self.offered += 1
        if self.failures:
            raise self.failures.pop(0)
        self.arrivals.setdefault(arrival.external_id, arrival)

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = why

    def alive(self) -> None:
        self.signs_of_life += 1
        self.lives.set()

    async def answer(self, external_id: str) -> AnswerSoFar | None:
        if external_id not in self.arrivals:
            return None
        return self.answered.get(external_id, AnswerSoFar(state="pending"))


class Receiver:
    """Plays a callback that verifies every request, and answers with `responses`, and then with
    204."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] = {}
        self.tries: list[str] = []
        self.responses: list[web.Response] = []
        self.is_cutting = False
        self.is_silent = False

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        message = Reference(OUTGOING).verify(body, dict(request.headers))
        self.tries.append(request.headers["webhook-id"])
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_cutting:
            assert request.transport is not None
            request.transport.abort()
        response = self.responses.pop(0) if self.responses else web.Response(status=204)
        if response.status < 300:
            self.shown.setdefault(request.headers["webhook-id"], message)
        return response


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def mounted(**hooks: Hook) -> AsyncIterator[str]:
    app = web.Application(client_max_size=BODY_MAX, middlewares=[errors_as_json])
    app.add_routes(HooksApi(hooks).routes())
    async with listening(app) as url:
        yield url


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, str]]:
    receiver = Receiver()
    app = web.Application()
    app.add_routes([web.post("/answers", receiver.serve)])
    async with listening(app) as url:
        yield receiver, url


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Rig:
    """Holds the adapter behind a real server, and a sender that signs with the reference
    library."""

    def __init__(self, platform: Platform, inbox: Inbox, url: str, http: aiohttp.ClientSession):
        self.platform = platform
        self.inbox = inbox
        self.url = url
        self._http = http

    async def post(
        self,
        route: str,
        body: str,
        *,
        message: str = "msg_1",
        secrets: tuple[str, ...] = (OURS,),
        late_s: int = 0,
        said: str | None = None,
    ) -> tuple[int, Any]:
        headers = signed(message, body, *secrets, late_s=late_s)
        return await self.call("POST", route, headers=headers, body=body if said is None else said)

    async def poll(self, route: str, message: str, *, asked: str = "") -> tuple[int, Any]:
        return await self.call("GET", f"{route}/{asked or message}", headers=signed(message, ""))

    async def call(
        self, method: str, path: str, *, headers: dict[str, str], body: str = ""
    ) -> tuple[int, Any]:
        url = f"{self.url}/hooks/webhook/{path}"
        data = body.encode()
        async with self._http.request(method, url, headers=headers, data=data) as response:
            return response.status, await response.json()


def signed(message: str, body: str, *secrets: str, late_s: int = 0) -> dict[str, str]:
    at = datetime.now(tz=UTC) - timedelta(seconds=late_s)
    signatures = [Reference(each).sign(message, at, body) for each in secrets or (OURS,)]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


@pytest.fixture
async def rig(
    receiver: tuple[Receiver, str], http: aiohttp.ClientSession, tmp_path: Path
) -> AsyncIterator[Rig]:
    keys = (Secret(OURS), Secret(NEWER))
    callback = f"{receiver[1]}/answers"
    routes = {
        "each": Route(secrets=keys),
        "one": Route(secrets=keys, conversation="one"),
        "issues": Route(
            secrets=keys,
            prompt="Issue: {json.title}",
            conversation="{json.id}",
            callback=callback,
            callback_secret=Secret(OUTGOING),
        ),
        "own": Route(secrets=(Secret(OUTGOING),), callback=callback),
        "moved": Route(secrets=keys, callback=f"{receiver[1]}/moved"),
        "hub": Route(secrets=(Secret(PLAIN),), preset="github", events=("issues.opened",)),
        "bare": Route(secrets=(Secret(PLAIN),), preset="bearer"),
    }
    async with AsyncExitStack() as stack:
        inbox = Inbox()
        context = AdapterContext(
            clock=SystemClock(),
            entropy=SystemEntropy(),
            folder=tmp_path,
            hook_url="https://gateway.example/hooks/webhook",
            answers=inbox.answer,
        )
        platform = make(WebhookSettings(routes=routes), context)
        stack.push_async_callback(platform.close)
        assert await platform.connect() == "webhook"

        async def answer(request: HookRequest) -> HookResponse:
            return await platform.answer(request, inbox)

        url = await stack.enter_async_context(mounted(webhook=answer))
        yield Rig(platform, inbox, url, http)


def address(place: str, thread: str = "") -> Address:
    return Address(adapter="webhook", account="webhook", place=place, thread=thread)


def part(place: str, thread: str = "", *, key: str = "prt_1", reply_to: str = "") -> Post:
    where = address(place, thread)
    return Post(key=PartId(key), address=where, text="**Done.**", reply_to=reply_to)


async def test_a_signed_request_is_taken_and_its_answer_can_be_asked_for(rig: Rig) -> None:
    status, body = await rig.post("each", "Deploy it, bitte schön")

    assert (status, body["id"]) == (202, "msg_1")
    assert body["poll"] == "https://gateway.example/hooks/webhook/each/msg_1"
    (arrival,) = rig.inbox.arrivals.values()
    assert arrival.text == "Deploy it, bitte schön"
    assert (arrival.place, arrival.thread) == ("each", "msg_1")
    assert await rig.poll("each", "msg_1") == (200, {"state": "pending", "text": ""})
    receipt = await rig.platform.perform(part("each", "msg_1", reply_to=arrival.external_id))
    assert receipt.external_id == POLL + "prt_1"
    rig.inbox.answered[arrival.external_id] = AnswerSoFar(state="done", text="**Done.**")
    assert await rig.poll("each", "msg_1") == (200, {"state": "done", "text": "**Done.**"})


def from_hub(body: str, *, delivery: str = "d1") -> dict[str, str]:
    digest = hmac.new(PLAIN.encode(), body.encode(), hashlib.sha256).hexdigest()
    return {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": delivery,
    }


async def test_a_service_posts_as_it_is_used_to_and_a_replay_is_no_new_message(rig: Rig) -> None:
    opened = '{"action": "opened", "issue": {"title": "The tap drips"}}'
    status, taken = await rig.call("POST", "hub", headers=from_hub(opened), body=opened)
    again = await rig.call("POST", "hub", headers=from_hub(opened, delivery="d2"), body=opened)
    assert (status, again) == (202, (202, taken))
    closed = '{"action": "closed", "issue": {"title": "The tap drips"}}'
    ignored = await rig.call("POST", "hub", headers=from_hub(closed), body=closed)
    assert ignored == (200, {"ignored": ["issues", "issues.closed"]})
    forged = await rig.call("POST", "hub", headers=from_hub(closed), body=opened)
    assert forged[0] == 401
    standard = await rig.call("POST", "hub", headers=signed("m", opened), body=opened)
    assert standard[0] == 401, "no request chooses how it is checked"
    assert len(rig.inbox.arrivals) == 1
    polled = await rig.call("GET", f"hub/{taken['id']}", headers=from_hub(""))
    assert polled[0] == 404


async def test_with_a_bare_secret_the_senders_id_names_the_message(rig: Rig) -> None:
    bearer = {"Authorization": f"Bearer {PLAIN}"}
    named = {**bearer, "Idempotency-Key": "build-17"}
    for headers in (named, named, bearer, bearer):
        status, taken = await rig.call("POST", "bare", headers=headers, body="done")
        assert status == 202
        found = await rig.call("GET", f"bare/{taken['id']}", headers=bearer)
        assert found == (200, {"state": "pending", "text": ""})
    assert len(rig.inbox.arrivals) == 3
    assert (await rig.call("POST", "bare", headers={}, body="done"))[0] == 401


async def test_without_a_callback_only_what_answers_a_request_has_somewhere_to_go(rig: Rig) -> None:
    await rig.post("each", "hello")
    first = await rig.platform.perform(part("each", "msg_1"))
    second = await rig.platform.perform(part("each", "msg_1", key="prt_other"))
    assert first.external_id.startswith(POLL)
    assert first != second, "no two parts have one receipt"
    with pytest.raises(Permanent, match="set callback"):
        await rig.platform.perform(part("one"))


async def test_the_same_request_again_gets_the_same_answer(rig: Rig) -> None:
    first = await rig.post("each", "hello")
    again = await rig.post("each", "hello", late_s=10)
    assert first == again
    assert (len(rig.inbox.arrivals), rig.inbox.offered) == (1, 2)
    await rig.post("one", "hello")
    assert list(rig.inbox.arrivals) == ["each/msg_1", "one/msg_1"]


async def test_any_secret_of_the_route_and_any_signature_will_do(rig: Rig) -> None:
    assert (await rig.post("each", "a", message="m1", secrets=(NEWER,)))[0] == 202
    assert (await rig.post("each", "a", message="m2", secrets=(FOREIGN, OURS)))[0] == 202
    assert (await rig.post("each", "a", message="m3", secrets=(FOREIGN,)))[0] == 401


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"secrets": (FOREIGN,)}, 401, "unauthorized"),
        ({"said": "Deploy that"}, 401, "unauthorized"),
        ({"late_s": 400}, 401, "unauthorized"),
        ({"late_s": -400}, 401, "unauthorized"),
        ({"message": "msg.1"}, 401, "unauthorized"),
        ({"route": "nowhere"}, 404, "not_found"),
        ({"body": "x" * (BODY_MAX + 1)}, 413, "body_too_large"),
        ({"body": ""}, 400, "empty_message"),
        ({"route": "issues"}, 400, "malformed_json"),
        ({"route": "issues", "body": '{"id": 1}'}, 400, "invalid_body"),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_a_reason(
    rig: Rig, changes: dict[str, Any], status: int, code: str
) -> None:
    given = {"route": "each", "body": "Deploy it", **changes}
    answered, body = await rig.post(given.pop("route"), given.pop("body"), **given)
    assert (answered, body["error"]["code"], body["error"]["retryable"]) == (status, code, False)
    assert body["error"]["message"]
    assert rig.inbox.offered == 0


async def test_a_request_without_signature_or_way_is_refused(rig: Rig) -> None:
    status, body = await rig.call("POST", "each", headers={}, body="hello")
    assert (status, body["error"]["code"]) == (401, "unauthorized")
    assert "webhook-signature" in body["error"]["message"]
    for method, path in [("GET", "each"), ("PUT", "each"), ("POST", "each/msg_1")]:
        status, body = await rig.call(method, path, headers=signed("msg_1", ""))
        assert (status, body["error"]["code"]) == (404, "not_found")
    assert rig.inbox.offered == 0


async def test_polling_is_signed_for_the_id_asked_about(rig: Rig) -> None:
    await rig.post("each", "mine", message="a")
    await rig.post("each", "other", message="b")
    assert (await rig.poll("each", "a", asked="b"))[0] == 401
    assert (await rig.poll("each", "never-sent"))[0] == 404
    status, _ = await rig.call("GET", "each/a", headers=signed("a", "", FOREIGN))
    assert status == 401


async def test_an_id_with_slashes_can_be_asked_about(rig: Rig) -> None:
    _, body = await rig.post("each", "hello", message="a/b%c")
    poll = body["poll"].rpartition("/hooks/webhook/")[2]
    assert poll == "each/a%2Fb%25c"
    status, body = await rig.call("GET", poll, headers=signed("a/b%c", ""))
    assert (status, body["state"]) == (200, "pending")


async def test_what_the_store_cannot_take_is_offered_again(rig: Rig) -> None:
    rig.inbox.failures = [Transient("busy"), Ambiguous("lost"), Rejected("no", code="queue_full")]
    for status in (503, 503, 429):
        answered, body = await rig.post("each", "hello")
        assert (answered, body["error"]["retryable"]) == (status, True)
        assert (await rig.poll("each", "msg_1"))[0] == 404
    assert (await rig.post("each", "hello"))[0] == 202
    assert len(rig.inbox.arrivals) == 1


async def test_an_answer_is_posted_to_the_callback_signed(
    rig: Rig, receiver: tuple[Receiver, str]
) -> None:
    await rig.post("issues", '{"id": 17, "title": "It leaks"}')
    (arrival,) = rig.inbox.arrivals.values()
    assert (arrival.text, arrival.thread) == ("Issue: It leaks", "17")

    receipt = await rig.platform.perform(part("issues", "17", reply_to=arrival.external_id))

    assert receipt.external_id == "prt_1"
    assert receiver[0].shown == {
        "prt_1": {
            "type": "message",
            "id": "prt_1",
            "conversation": "17",
            "text": "**Done.**",
            "in_reply_to": "msg_1",
        }
    }


async def test_without_its_own_secret_a_callback_gets_the_first_of_the_route(
    rig: Rig, receiver: tuple[Receiver, str]
) -> None:
    await rig.platform.perform(part("own"))
    assert receiver[0].shown["prt_1"]["in_reply_to"] is None


async def test_the_same_part_again_has_the_same_id_and_is_shown_once(
    rig: Rig, receiver: tuple[Receiver, str]
) -> None:
    assert rig.platform.capabilities(address("issues")).takes_key
    for _ in range(3):
        await rig.platform.perform(part("issues", "17"))
    assert receiver[0].tries == ["prt_1"] * 3
    assert list(receiver[0].shown) == ["prt_1"]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait_s"),
    [
        (429, {"Retry-After": "7"}, Transient, 7),
        (503, {"Retry-After": "soon"}, Transient, None),
        (500, {}, Transient, None),
        (400, {}, Permanent, None),
        (401, {}, Permanent, None),
        (404, {}, Permanent, None),
        (410, {}, Permanent, None),
        (302, {"Location": "/answers"}, Permanent, None),
        (307, {"Location": "/answers"}, Permanent, None),
    ],
)
async def test_what_a_callback_answers_decides_whether_it_is_tried_again(
    rig: Rig,
    receiver: tuple[Receiver, str],
    status: int,
    headers: dict[str, str],
    kind: type[PerdureError],
    wait_s: float | None,
) -> None:
    receiver[0].responses = [web.Response(status=status, headers=headers, body=b"x" * 100_000)]
    with pytest.raises(kind, match=f"route issues answered {status}") as refusal:
        await rig.platform.perform(part("issues"))
    assert getattr(refusal.value, "retry_after_s", None) == wait_s
    assert receiver[0].tries == ["prt_1"]  # no redirect was followed
    await rig.platform.perform(part("issues"))
    assert list(receiver[0].shown) == ["prt_1"]


async def test_a_lost_answer_and_a_server_that_is_gone_are_tried_again(
    rig: Rig, receiver: tuple[Receiver, str]
) -> None:
    receiver[0].is_cutting = True
    with pytest.raises(Transient, match="broke the connection"):
        await rig.platform.perform(part("issues"))
    receiver[0].is_cutting, receiver[0].is_silent = False, True
    wire = Wire(SystemClock(), timeout=aiohttp.ClientTimeout(total=0.2))
    headers = signed("prt_2", "{}", OUTGOING)
    try:
        with pytest.raises(Transient, match="in time"):
            await wire.post("issues", f"{receiver[1]}/answers", headers, b"{}")
        with pytest.raises(Transient, match="cannot be reached"):
            await wire.post("issues", "http://127.0.0.1:1/answers", headers, b"{}")
    finally:
        await wire.close()
    receiver[0].is_silent = False
    await rig.platform.perform(part("issues"))
    assert receiver[0].tries == ["prt_1", "prt_2", "prt_1"]


async def test_what_can_never_be_sent_says_so(rig: Rig) -> None:
    with pytest.raises(Permanent, match=r"\[adapters.webhook.routes.gone\]"):
        await rig.platform.perform(part("gone"))
    with pytest.raises(Permanent, match="messages only"):
        await rig.platform.perform(Delete(address=address("issues"), receipt="prt_1"))
    with pytest.raises(Permanent, match="nothing is there"):
        await rig.platform.perform(part("moved"))
    with pytest.raises(Permanent, match="no files"):
        rig.platform.fetch("anything")


async def test_a_long_answer_is_one_message(rig: Rig, receiver: tuple[Receiver, str]) -> None:
    text = "0123456789" * 20_000
    platform = rig.platform
    assert platform.size(text) < platform.capabilities(address("issues")).text_max
    await platform.perform(Post(key=PartId("prt_9"), address=address("issues"), text=text))
    assert receiver[0].shown["prt_9"]["text"] == text


async def test_a_quiet_route_is_not_taken_for_a_lost_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    context = AdapterContext(clock=clock, entropy=SystemEntropy(), folder=tmp_path)
    platform = make(WebhookSettings(routes={}), context)
    inbox = Inbox()
    receiving = asyncio.create_task(platform.receive(inbox))
    for _ in range(3):
        await inbox.lives.wait()
        inbox.lives.clear()
        clock.advance(ALIVE_S)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving


async def test_the_example_for_the_shell_works(rig: Rig) -> None:
    page = Path(__file__).parents[2] / "docs" / "adapters" / "webhook.md"
    (script,) = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for written, meant in [
        ("http://127.0.0.1:8585/hooks/webhook/issues", f"{rig.url}/hooks/webhook/each"),
        ("SECRET=whsec_...", f"SECRET={OURS}"),
    ]:
        assert written in script
        script = script.replace(written, meant)
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", script, stdout=asyncio.subprocess.PIPE
    )
    shown, _ = await process.communicate()
    assert shown.decode() == (
        '{"id":"issue-17-opened",'
        '"poll":"https://gateway.example/hooks/webhook/each/issue-17-opened"}'
        '{"state":"pending","text":""}'
    )


def test_a_wait_is_read_from_seconds_or_a_date() -> None:
    def wait_s(value: str, *, now_ms: int) -> float | None:
        return retry_after_s({"Retry-After": value}, now_ms=now_ms)

    assert wait_s("120", now_ms=0) == 120
    assert wait_s("Thu, 01 Jan 1970 00:02:00 GMT", now_ms=30_000) == 90
    assert wait_s("Thu, 01 Jan 1970 00:00:00 GMT", now_ms=30_000) == 0
    assert [wait_s(each, now_ms=0) for each in ("", "soon", "-5")] == [None] * 3


def test_a_date_to_wait_for_is_read_by_the_receivers_own_clock() -> None:
    headers = {
        "Date": "Tue, 14 Nov 2023 22:13:20 GMT",
        "Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT",
    }
    assert retry_after_s(headers, now_ms=0) == 30


async def test_the_mount_hands_over_the_request_as_it_is(http: aiohttp.ClientSession) -> None:
    seen: list[HookRequest] = []

    async def hook(request: HookRequest) -> HookResponse:
        seen.append(request)
        return HookResponse(status=201, body=b"<ok/>", content_type="text/xml; charset=utf-8")

    async with mounted(some=hook) as url:
        for method in ("GET", "POST", "PUT"):
            headers = [("X-Two", "1"), ("X-Two", "2")]
            path = f"{url}/hooks/some/a%20b/c?q=1&q=2"
            async with http.request(method, path, headers=headers, data=b"\xff") as response:
                assert (response.status, await response.read()) == (201, b"<ok/>")
                assert response.headers["Content-Type"] == "text/xml; charset=utf-8"
        async with http.post(f"{url}/hooks/other/x") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                404,
                "not_found",
            )
        async with http.delete(f"{url}/hooks/some/x") as response:
            assert response.status == 405
    assert [each.method for each in seen] == ["GET", "POST", "PUT"]
    assert (seen[0].path, seen[0].query, seen[0].body) == ("a b/c", {"q": "1"}, b"\xff")
    assert seen[0].headers["x-two"] == "1, 2"


async def test_a_header_that_is_no_text_is_handed_over_as_text() -> None:
    # An adapter compares the header with a signature, and must not fail on half a character.
    seen: list[HookRequest] = []

    async def hook(request: HookRequest) -> HookResponse:
        seen.append(request)
        return HookResponse(status=401)

    async with mounted(some=hook) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /hooks/some/x HTTP/1.1\r\nHost: x\r\nX-Signature: v1,\xff\xfe\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()
    assert seen[0].headers["x-signature"].encode().decode() == "v1,\ufffd\ufffd"


async def test_work_after_a_response_holds_nobody_up(http: aiohttp.ClientSession) -> None:
    answered, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await answered.wait()
        done.set()
        raise Transient("too late to tell")

    def hook(afterwards: Callable[[], Any] | None) -> Hook:
        async def answer(request: HookRequest) -> HookResponse:
            return HookResponse(body=b"{}", afterwards=afterwards)

        return answer

    async with mounted(slow=hook(work), quick=hook(None)) as url:
        async with http.post(f"{url}/hooks/slow/x") as response:
            assert (response.status, await response.read()) == (200, b"{}")
        assert not done.is_set()
        async with http.post(f"{url}/hooks/quick/x") as response:
            assert response.status == 200
        answered.set()
        await done.wait()


async def test_work_is_done_though_the_platform_has_gone() -> None:
    reached, gone, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        done.set()

    async def hook(request: HookRequest) -> HookResponse:
        reached.set()
        await gone.wait()
        return HookResponse(body=b"{}", afterwards=work)

    async with mounted(slow=hook) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /hooks/slow/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await reached.wait()
        writer.transport.abort()
        gone.set()
        await done.wait()


async def test_a_gateway_asks_for_no_token_at_its_hooks(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{gateway.url}/hooks/nobody/x", data=b"x") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                404,
                "not_found",
            )
        for path, status in [
            ("/api/status", 401),
            ("/hooks", 401),
            ("/hooksapi/status", 401),
            ("/hooks/../api/status", 404),
            ("/hooks%2F..%2Fapi/status", 404),
        ]:
            async with session.get(URL(gateway.url + path, encoded=True)) as response:
                assert response.status == status, path
