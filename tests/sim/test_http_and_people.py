"""Checks the whole HTTP surface in this process: nobody reaches what belongs to another person, a
stop ends the model's work, and a closed connection leaves nothing behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.databases import sqlite_on
from tests.untyped_rows import rows

from perdure.app.config.loading import parse
from perdure.app.life.node import running_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.errors import Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.tools.traits import Permission
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.domain.turn.watching import OutcomeNews, StateNews
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.pushes import PushTarget
from perdure.ports.gateway import Report
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock
from perdure.testkit.simulator.watching import one_by_one
from perdure.web import access as access_module
from perdure.web.access import TokenCheck
from perdure.web.http.callers import Callers
from perdure.web.measuring.tally import Tally
from perdure.web.server import application
from perdure.web.services import Services

CANARY = "xyzzy-of-ada"
HANG = "hang"
BUY = "buy"
SOON_S = 3
OPERATORS_ONLY = (
    ("GET", "/api/pairings"), ("POST", "/api/pairings/approve"), ("DELETE", "/api/pairings/{id}"),
    ("GET", "/api/parked"), ("GET", "/api/parked/{id}"), ("POST", "/api/parked/{id}/replay"),
    ("DELETE", "/api/parked/{id}"), ("GET", "/api/verify"), ("POST", "/api/drain"),
    ("POST", "/api/verify"),
    ("POST", "/api/restart"), ("GET", "/api/tokens"), ("POST", "/api/tokens"),
    ("DELETE", "/api/tokens/{id}"),
    ("GET", "/api/tools/servers"), ("GET", "/api/tools/servers/{name}/log"),
    ("GET", "/api/agents"), ("GET", "/api/agents/{name}/log"),
    ("POST", "/api/agents/{name}/test"), ("POST", "/api/agents/{name}/warm"),
)  # fmt: skip
# Routes that belong to nobody in particular, or only to the caller.
ONES_OWN = (
    ("GET", "/api/conversations"), ("GET", "/api/commands"), ("GET", "/api/places"),
    ("GET", "/api/sessions"), ("GET", "/api/search"), ("GET", "/api/status"),
    ("GET", "/api/openapi.json"), ("GET", "/v1/models"), ("GET", "/v1/models/{id}"),
    ("POST", "/api/media"), ("POST", "/api/conversations/{name}/messages"),
    ("POST", "/v1/chat/completions"), ("POST", "/v1/responses"), ("POST", "/api/send"),
    ("GET", "/api/approvals"), ("GET", "/api/grants"), ("GET", "/api/effects"),
    ("GET", "/api/tools"), ("GET", "/api/context"), ("GET", "/api/jobs"), ("POST", "/api/jobs"),
    ("GET", "/api/events"), ("GET", "/api/push"), ("POST", "/api/push"),
)  # fmt: skip
# Streams, which end only with their clients.
ENDLESS = ("/api/events",)
ANOTHERS = (
    ("GET", "/api/conversations/{name}"), ("GET", "/api/conversations/{name}/events"),
    ("GET", "/api/conversations/{name}/transcript"), ("GET", "/api/turns/{id}"),
    ("PATCH", "/api/turns/{id}"), ("POST", "/api/turns/{id}/stop"), ("GET", "/api/media/{id}"),
    ("GET", "/api/sessions/{id}"), ("GET", "/api/sessions/{id}/journal"),
    ("GET", "/api/sessions/{id}/transcript"),
    ("GET", "/api/explain/{id}"), ("GET", "/v1/responses/{id}"),
    ("GET", "/api/approvals/{id}"), ("POST", "/api/approvals/{id}"),
    ("DELETE", "/api/grants/{id}"), ("POST", "/api/effects/{call}"),
    ("GET", "/api/turns/{id}/messages"), ("PATCH", "/api/conversations/{name}"),
    ("GET", "/api/jobs/{id}"), ("PATCH", "/api/jobs/{id}"), ("DELETE", "/api/jobs/{id}"),
    ("POST", "/api/jobs/{id}/run"), ("GET", "/api/jobs/{id}/runs"),
    ("DELETE", "/api/push/{id}"),
)  # fmt: skip
# What a call of a route needs to be understood.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PATCH", "/api/turns/{id}"): {"text": "mine now"},
    ("POST", "/api/approvals/{id}"): {"answer": "allow"},
    ("POST", "/api/effects/{call}"): {"happened": True},
    ("PATCH", "/api/conversations/{name}"): {"pinned": True},
    ("PATCH", "/api/jobs/{id}"): {"state": "paused"},
}


class Listener(ScriptedAgent):
    """Repeats what it hears; to a message that asks for it, it says one word and hangs, or wants to
    buy something first. `open` counts the streams that are being read."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        self.open += 1
        try:
            has_result = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
            if BUY in said(request) and not has_result:
                arguments = json.dumps({"what": said(request)})
                yield AgentCall(id="1", name="pay", arguments=arguments)
                yield Stopped(reason=StopReason.TOOL_CALLS)
                return
            yield AgentText(f"heard: {said(request)}")
            if HANG in said(request):
                await asyncio.Event().wait()
            yield Stopped(reason=StopReason.STOP)
        finally:
            self.open -= 1


class Site:
    def __init__(self, client: TestClient[Any, Any], services: Services, agent: Listener) -> None:
        self.services = services
        self.agent = agent
        self._client = client

    @property
    def feed(self) -> Feed:
        feed = self.services.watchers._feed  # type: ignore[attr-defined]
        assert isinstance(feed, Feed)
        return feed

    def request(self, method: str, path: str, *, by: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer token-of-{by}"}
        return self._client.request(method, path, headers=headers, **more)

    async def call(self, method: str, path: str, *, by: str, **more: Any) -> tuple[int, Any]:
        async with self.request(method, path, by=by, **more) as response:
            body = await response.text()
        return response.status, json.loads(body) if body.startswith(("{", "[")) else body

    async def says(self, by: str, text: str, *, where: str = "main", **more: Any) -> dict[str, Any]:
        path = f"/api/conversations/{where}/messages"
        status, body = await self.call("POST", path, by=by, json={"text": text, **more})
        assert status == 202, body
        accepted: dict[str, Any] = body
        return accepted

    async def settled(self, by: str, turn: str) -> dict[str, Any]:
        async with asyncio.timeout(SOON_S):
            while True:
                _, view = await self.call("GET", f"/api/turns/{turn}", by=by)
                if view["outcome"]:
                    found: dict[str, Any] = view
                    return found
                await asyncio.sleep(0.005)

    async def until(self, is_so: Callable[[], bool], what: str, *, within_s: float = 1) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    await asyncio.sleep(0.002)
        except TimeoutError:
            pytest.fail(f"waited {within_s} s for {what}")


@asynccontextmanager
async def a_site(folder: Path) -> AsyncIterator[Site]:
    clock, agent = SystemClock(), Listener()
    asked_about = CountingTools([], permission=Permission.ACT)
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=SeededEntropy(), media=folder / "media")
    await store.open()
    for name, role in (("ada", "member"), ("bob", "member"), ("olga", "operator")):
        person = await store.principals.ensure(name, role=role)
        await store.principals.grant(person.id, f"token-of-{name}")
    dependencies = NodeDependencies(
        store=store,
        roster=Roster({"main": Backend(name="main", kind="s", agent=agent, tools=asked_about)}),
        clock=clock,
        entropy=SeededEntropy(7),
        limits=Limits(drain_timeout_s=0, has_titles=False),
    )
    try:
        async with (
            running_node(dependencies, parse(b"", folder / "perdure.toml", {})) as running,
            TestClient(TestServer(application(running.services, running.tally))) as client,
        ):
            yield Site(client, running.services, agent)
    finally:
        await store.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path) as site:
        yield site


async def adas(site: Site) -> dict[str, list[str]]:
    """Return the ids of everything that Ada has, by what they stand for in a path."""
    headers = {"Content-Type": "text/plain", "X-Filename": f"{CANARY}.txt"}
    token = {"Authorization": "Bearer token-of-ada"}
    async with site._client.post(
        "/api/media", data=CANARY.encode(), headers={**headers, **token}
    ) as response:
        media = (await response.json())["id"]
    accepted = await site.says("ada", CANARY, attachments=[{"media": media}])
    await site.settled("ada", accepted["turn"])
    _, called = await site.call(
        "POST", "/v1/responses", by="ada", json={"model": "main", "input": CANARY}
    )
    # What Ada says on a platform belongs to her too, under the address that people see there.
    phone = Address(adapter="scripted", account="bot", place="phone")
    said_there = await site.services.door.accept(
        Update(
            address=phone,
            external_id="1",
            kind=UpdateKind.MESSAGE,
            principal=await ada_of(site),
            text=CANARY,
            place_kind="private",
            label=CANARY,
        )
    )
    await site.settled("ada", str(said_there.turn))
    question, grant, call = await bought(site, accepted["turn"])
    order = {"conversation": "main", "prompt": CANARY, "every_s": 86_400}
    status, job = await site.call("POST", "/api/jobs", by="ada", json=order)
    assert status == 201, job
    browser = PushTarget(endpoint=f"https://push.example/{CANARY}", p256dh="key", auth="secret")
    subscription = await site.services.pushes.subscribe(await ada_of(site), browser)
    return {
        "push": [subscription.id],
        "jobs": [job["id"]],
        "approvals": [question],
        "grants": [grant],
        "effects": [call],
        "{name}": ["main", "scripted:phone"],
        "turns": [accepted["turn"]],
        "media": [media],
        "sessions": [accepted["session"]],
        "explain": [accepted["turn"], accepted["message"]],
        "responses": [called["id"]],
    }


async def bought(site: Site, turn: str) -> tuple[str, str, str]:
    """Let Ada's agent ask her twice. Returns what it asks her now, what she has granted it, and a
    call of which she does not know whether it has happened."""
    grants: list[dict[str, Any]] = []
    question = ""
    for number in (1, 2):
        accepted = await site.says("ada", f"{BUY} {CANARY} {number}", where="shop")
        async with asyncio.timeout(SOON_S):
            while not (asked := (await site.call("GET", "/api/approvals", by="ada"))[1])[
                "approvals"
            ]:
                await asyncio.sleep(0.005)
        question = asked["approvals"][0]["id"]
        if number == 1:
            answer = {"answer": "allow", "scope": "forever"}
            status, body = await site.call(
                "POST", f"/api/approvals/{question}", by="ada", json=answer
            )
            assert status == 200, body
            await site.settled("ada", accepted["turn"])
            grants = (await site.call("GET", "/api/grants", by="ada"))[1]["grants"]
    driver = site.services.condition._driver  # type: ignore[attr-defined]
    await driver.write(partial(rows, _UNKNOWN_CALL, "call_ada", CANARY, turn))
    return question, grants[0]["id"], "call_ada"


# Adds a call of a turn of which nobody knows whether it has happened.
_UNKNOWN_CALL = """
    INSERT INTO effects (call_id, turn_id, session_id, principal_id, tool, arguments, at, state)
    SELECT $1, id, session_id, principal_id, 'pay', $2, 1, 'unknown' FROM turns WHERE id = $3"""


def paths(path: str, ids: dict[str, list[str]]) -> list[str]:
    kind = "{name}" if "{name}" in path else path.split("/")[2]
    return [filled(path, each) for each in ids[kind]]


def filled(path: str, name: str) -> str:
    return path.replace("{name}", name).replace("{id}", name).replace("{call}", name)


async def test_every_route_is_for_operators_or_for_whom_it_concerns(site: Site) -> None:
    # A new route has to be added to one of the three lists, and so comes under a test.
    known = {*OPERATORS_ONLY, *ONES_OWN, *ANOTHERS}
    routes = {
        (route.method, route.resource.canonical)
        for route in site._client.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    guarded = {each for each in routes if each[1].startswith(("/api/", "/v1/"))}
    assert guarded == known


async def test_nobody_reaches_what_is_anothers(site: Site) -> None:
    ids = await adas(site)
    asked = await site.services.questions.page(Page(limit=99), principal=None, is_pending=False)
    turns = ",".join([*ids["turns"], *(each.turn for each in asked)])
    for method, path in ANOTHERS:
        for each in paths(path, ids):
            body = BODIES.get((method, path))
            more = {"json": body} if body else {}
            status, body = await site.call(method, each, by="bob", **more)
            assert status == 404, (method, each, body)
            assert CANARY not in json.dumps(body), (method, each)
    for method, path in ONES_OWN:
        if method == "GET" and path not in ENDLESS:
            queries = {
                "/api/search": f"?q={CANARY}",
                "/api/approvals": f"?turns={turns}",
                "/api/effects": f"?turns={turns}",
            }
            query = queries.get(path, "")
            status, body = await site.call(method, path.replace("{id}", "main") + query, by="bob")
            told = json.dumps(body)
            assert CANARY not in told.replace(f'"{CANARY}"', ""), path
            known = ["phone", *(each for kind in ids for each in ids[kind] if each != "main")]
            assert [each for each in known if each in told] == [], path


async def test_what_is_ones_own_is_reached(site: Site) -> None:
    # Without this the test above would also pass where every route refuses everybody.
    ids = await adas(site)
    for method, path in ANOTHERS:
        if method != "GET" or path.endswith("/events"):
            continue
        for each in paths(path, ids):
            for person in ("ada", "olga") if "{name}" not in path else ("ada",):
                if person == "olga" and path.startswith("/v1/"):
                    continue  # an answer over this surface is its caller's alone
                status, body = await site.call(method, each, by=person)
                assert status == 200, (method, each, person, body)


async def test_members_do_nothing_that_is_the_operators(site: Site) -> None:
    for method, path in OPERATORS_ONLY:
        more: dict[str, Any] = {"json": {}} if method == "POST" else {}
        status, body = await site.call(method, filled(path, "x_1"), by="bob", **more)
        assert (status, body["error"]["code"]) == (403, "forbidden"), (method, path)
    assert not site.services.control.is_draining


async def test_nobody_without_a_token_gets_anywhere(site: Site) -> None:
    for method, path in (*OPERATORS_ONLY, *ONES_OWN, *ANOTHERS):
        where = filled(path.replace("{name}", "main"), "x_1")
        status, body = await site.call(method, where, by="nobody")
        assert (status, body["error"]["code"]) == (401, "unauthorized"), (method, path)


async def test_a_token_that_another_process_revoked_opens_nothing_for_long(site: Site) -> None:
    clock = VirtualClock()
    services = site.services
    access = TokenCheck(
        services.principals, services.condition, clock, Callers(), gate=services.gate
    )
    assert await access._look_up("token-of-bob", path="/api/status") is not None
    (bobs,) = [each for each in await site.services.principals.tokens() if each.principal == "bob"]

    await site.services.principals.revoke(bobs.id)

    clock.advance(5)
    assert await access._look_up("token-of-bob", path="/api/status") is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/api/status"])
async def test_a_probe_with_a_token_is_answered_while_the_store_is_away(
    site: Site, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A probe from another machine brings a token, which only the store knows. If it were refused, a
    # liveness probe would restart the node because its database is away.
    monkeypatch.setattr(access_module, "OPEN", frozenset())
    monkeypatch.setattr(access_module, "REMEMBERED_S", 0)
    assert (await site.call("GET", path, by="bob"))[0] == 200
    gone = Transient("the database is gone")

    async def refuse(_: object) -> NoReturn:
        raise gone

    driver = site.services.condition._driver  # type: ignore[attr-defined]
    monkeypatch.setattr(driver, "read", refuse)
    monkeypatch.setattr(driver, "write", refuse)
    site.services.condition.refused(gone)  # type: ignore[attr-defined]

    status, body = await site.call("GET", path, by="bob")

    assert status == (503 if path == "/readyz" else 200), body
    assert "the database is gone" in str(body) or "perdure_store_up 0.0" in str(body)
    unknown = await site.call("GET", path, by="stranger")
    # Whose token cannot be looked up hears that the process lives, like a caller without one.
    assert unknown == (200, {"status": "ok"}) if path == "/healthz" else unknown[0] == 503
    assert (await site.call("GET", "/api/sessions", by="bob"))[0] == 503
    monkeypatch.undo()


async def test_nobody_attaches_or_continues_what_is_anothers(site: Site) -> None:
    ids = await adas(site)
    asked = len(site.agent.requests)
    message = {"text": "look", "attachments": [{"media": ids["media"][0]}]}

    status, body = await site.call(
        "POST", "/api/conversations/main/messages", by="bob", json=message
    )
    continued = {"model": "main", "input": "go on", "previous_response_id": ids["responses"][0]}
    second, _ = await site.call("POST", "/v1/responses", by="bob", json=continued)

    assert (status, body["error"]["code"], second) == (404, "not_found", 404)
    assert len(site.agent.requests) == asked, "no model has seen anything of it"


async def test_the_same_name_and_id_are_another_conversation_for_another_person(
    site: Site,
) -> None:
    mine = await site.says("ada", "mine", id="same")
    theirs = await site.says("bob", "theirs", id="same")

    assert theirs["duplicate"] is False
    assert mine["session"] != theirs["session"]


async def test_the_same_id_in_another_conversation_is_another_message(site: Site) -> None:
    first = await site.says("ada", "hello", id="same")
    path, body = "/api/conversations/other/messages", {"text": "hello", "id": "same"}
    status, second = await site.call("POST", path, by="ada", json=body)

    assert (status, second["duplicate"]) == (202, False)
    assert first["session"] != second["session"]


@pytest.mark.parametrize("by", ["ada", "olga"])
async def test_a_stop_ends_the_call_of_the_model(site: Site, by: str) -> None:
    accepted = await site.says("ada", HANG)
    await site.until(lambda: site.agent.open == 1, "the call")

    status, view = await site.call("POST", f"/api/turns/{accepted['turn']}/stop", by=by)

    assert (status, view["outcome"]) == (200, "stopped")
    await site.until(lambda: site.agent.open == 0, "the end of the call")


async def next_state(stream: AsyncGenerator[Any, None], session: str) -> None:
    """Wait until the watcher is told that the conversation uses this session."""
    async with asyncio.timeout(SOON_S):
        async for told in stream:
            if told and isinstance(told[1], StateNews) and told[1].session == session:
                return


async def test_whoever_watches_goes_along_there_and_back(site: Site) -> None:
    # On the way back nothing is written to the old session that could tell its watchers.
    first = await site.says("ada", "hello")
    await site.settled("ada", first["turn"])
    snapshot = await site.services.conversations.find("main", principal=await ada_of(site))
    async with aclosing(
        one_by_one(site.services.watchers.conversation(snapshot.view.id, after=None))
    ) as stream:
        await next_state(stream, first["session"])
        moved = await site.says("ada", "/new")
        await next_state(stream, moved["session"])
        await site.says("ada", "/resume")
        await next_state(stream, first["session"])


async def test_whoever_watches_hears_of_a_stop_at_once(site: Site) -> None:
    accepted = await site.says("ada", HANG)
    await site.until(lambda: site.agent.open == 1, "the call")
    snapshot = await site.services.conversations.find("main", principal=await ada_of(site))
    async with aclosing(
        one_by_one(site.services.watchers.conversation(snapshot.view.id, after=None))
    ) as stream:
        await next_state(stream, accepted["session"])
        await site.call("POST", f"/api/turns/{accepted['turn']}/stop", by="ada")
        async with asyncio.timeout(SOON_S):
            outcomes = [
                told[1].outcome
                async for told in first_outcome(stream)
                if told is not None and isinstance(told[1], OutcomeNews)
            ]
    assert outcomes == ["stopped"]


async def first_outcome(stream: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
    async for told in stream:
        yield told
        if told is not None and isinstance(told[1], OutcomeNews):
            return


async def ada_of(site: Site) -> PrincipalId:
    ada = await site.services.principals.by_token("token-of-ada")
    assert ada is not None
    return ada.id


async def first_of(response: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(SOON_S):
        return await response.content.readline()


@pytest.mark.parametrize("surface", ["events", "chat", "responses"])
async def test_whoever_closes_a_stream_is_forgotten(site: Site, surface: str) -> None:
    # The server notices the closed connection when it next writes, and must then forget the
    # watcher.
    chat = {"model": "main", "stream": True, "messages": [{"role": "user", "content": "hang on"}]}
    call = {"model": "main", "stream": True, "input": "hang on"}
    await site.says("ada", HANG)
    wanted = {
        "events": ("GET", "/api/conversations/main/events", {}),
        "chat": ("POST", "/v1/chat/completions", {"json": chat}),
        "responses": ("POST", "/v1/responses", {"json": call}),
    }
    method, path, more = wanted[surface]
    async with site.request(method, path, by="ada", **more) as response:
        assert response.status == 200
        await first_of(response)
        await site.until(lambda: bool(site.feed._lines), "the subscription")
        response.close()
    for text in ("/stop", "/status"):
        await site.says("ada", text)

    await site.until(lambda: not site.feed._lines, "the end of the subscription")
    assert site.feed._by_conversation == {}


async def test_a_check_of_everything_ends_with_its_asker(tmp_path: Path) -> None:
    # A check may take minutes, and after a disconnect nobody would read its result.
    begun, ended = asyncio.Event(), asyncio.Event()

    async def for_ever() -> Report:
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            ended.set()

    async with a_site(tmp_path) as site:
        services = msgspec.structs.replace(site.services, verify=for_ever)
        app = application(services, Tally())
        async with TestClient(TestServer(app)) as client, asyncio.timeout(10):
            headers = {"Authorization": "Bearer token-of-olga"}
            asking = asyncio.ensure_future(client.get("/api/verify", headers=headers))
            await begun.wait()
            asking.cancel()
            await ended.wait()
