"""Checks what people are told afterwards, by a real gateway: transcripts with notices, the chain
behind a call, calls whose effect is unknown, and the log."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.approving import LIST, answer, ask, asked, files, toml

from perdure.app.config import loading as config
from perdure.app.config.environment import OPERATOR
from perdure.app.wiring import storage
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.ids import CallId, MessageId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import AssistantSaid, ToolCall, ToolStarted
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.testkit.processes.command import TRUSTS_NOBODY, Result, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.simulator.stores import claim_one

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)
shared = pytest.mark.shared
CANARY = "canary-5190"
CALL = CallId("call_01hzzzzzzzzzzzzzzzzzzzzzzz")


@pytest.fixture(scope="module")
def shared_gateway(
    share_gateway: Callable[[str], GatewayProcess], tmp_path_factory: pytest.TempPathFactory
) -> GatewayProcess:
    return share_gateway(toml(tmp_path_factory.mktemp("work")))


@pytest.fixture
async def own(gateway_factory: StartGateway, tmp_path: Path) -> AsyncIterator[Client]:
    """Provide the operator of a gateway that belongs to this test alone."""
    work = tmp_path / "work"
    work.mkdir()
    gateway = await gateway_factory(toml=toml(work))
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def perdure(client: Client, *arguments: str) -> Result:
    around = {
        **os.environ,
        **TRUSTS_NOBODY,
        "PERDURE_HOME": str(client.gateway.home),
        "COLUMNS": "250",
    }
    result = await run_command(arguments, environ=around)
    assert "Traceback" not in result.err, result.err
    return result


async def has_talked(client: Client, name: str) -> dict[str, Any]:
    """Have a talk with notices, a list that is posted again, an undo and two questions. Returns the
    last question."""
    question = await asked(client, name, LIST)
    await client.say(name, "/status")
    await client.say(name, "/approve")
    await client.settled(question["turn"])
    await client.settled((await client.say(name, "hello"))["turn"])
    await client.say(name, "/undo")
    for state in ("doing", "done"):
        todo = f'demo tool todo {{"items": [{{"text": "sow", "state": "{state}"}}]}}'
        await client.settled((await client.say(name, todo))["turn"])
    await client.say(name, "/branch second")
    question = await asked(client, name, ask("Which bed?", "left", "right"))
    queued = await client.say(name, "/queue later")
    await client.say(name, "left")
    await client.settled(question["turn"])
    await client.settled(queued["turn"])
    await client.say(name, "/tools")
    return question


def told(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the role and the first words of each entry."""
    return [(each["role"], " ".join(each["text"].split())[:24]) for each in entries]


@shared
async def test_notices_stand_where_they_were_posted(client: Client) -> None:
    question = await has_talked(client, "a")
    plain = await client.transcript("a", "?limit=1000")
    entries = await client.transcript("a", "?limit=1000&notices=true")

    assert [each for each in entries if each["role"] != "notice"] == plain
    assert "notice" not in {each["role"] for each in plain}
    assert told(entries)[:6] == [
        ("user", 'demo tool memory {"actio'),
        ("assistant", ""),
        ("notice", "🔐 May I call **memory** "),
        ("notice", "waiting, 0 waiting; sess"),
        ("notice", told(entries)[4][1]),
        ("tool", "Nothing is remembered ab"),
    ]
    assert told(entries)[4][1].startswith("✅ Allowed by guest")
    asking = [each for each in entries if each.get("question")]
    assert [(each["state"], each["answer"]) for each in asking] == [
        ("allowed", "allow"),
        ("answered", "left"),
    ]
    assert asking[1]["question"] == question["id"]
    assert asking[1]["choices"] == ["left", "right"]
    assert ("notice", "Undone: hello") in told(entries)
    assert ("notice", "A branch from here. /res") in told(entries)
    lists = [each["text"] for each in entries if each["text"].startswith("📋")]
    shown = [each for each in entries if each["role"] == "notice" and "📋" in each["text"]]
    assert len(lists) > len(shown) == 2
    assert told(entries)[-1][1].startswith("What main may do here")


@shared
async def test_pages_with_notices_join_to_the_whole(client: Client) -> None:
    await has_talked(client, "a")
    whole = await client.transcript("a", "?limit=1000&notices=true")
    assert len({each["id"] for each in whole}) == len(whole)
    _, conversation = await client.call("GET", "/api/conversations/a")
    paths = {
        "/api/conversations/a/transcript": "before",
        f"/api/sessions/{conversation['session']}/transcript": "cursor",
    }
    for path, cursor in paths.items():
        _, body = await client.call("GET", f"{path}?limit=1000&notices=true")
        every = body["messages"]
        assert body["next"] is None
        for limit in (1, 2, 3, 7):
            pages: list[list[dict[str, Any]]] = []
            before = ""
            while True:
                query = f"{path}?limit={limit}&notices=true{before}"
                _, page = await client.call("GET", query)
                pages.insert(0, page["messages"])
                if page["next"] is None:
                    break
                before = f"&{cursor}={page['next']}"
            assert [each for page in pages for each in page] == every
    status, body = await client.call(
        "GET", "/api/conversations/a/transcript?notices=true&before=msg_none"
    )
    assert (status, body["error"]["code"]) == (404, "not_found")


@shared
async def test_a_new_session_begins_with_the_reply_that_opened_it(client: Client) -> None:
    await client.settled((await client.say("a", "hello"))["turn"])
    await client.say("a", "/new")
    entries = await client.transcript("a", "?notices=true")
    assert told(entries) == [("notice", "A new session. /resume g")]
    assert await client.transcript("a") == []


async def test_the_command_line_shows_notices_with_and_without_a_node(own: Client) -> None:
    question = await has_talked(own, "a")
    plain = await perdure(own, "sessions", "show", "a")
    assert question["id"] not in plain.out
    shown = await perdure(own, "sessions", "show", "a", "--notices")
    assert f"{question['id']} answered" in shown.out
    await own.gateway.kill()
    assert (await perdure(own, "sessions", "show", "a", "--notices")).out == shown.out


async def test_the_chain_of_a_call_shows_its_question_and_what_allowed_it(own: Client) -> None:
    question = await asked(own, "a", LIST)
    waiting = await perdure(own, "explain", question["call"])
    assert f"question {question['id']} asked" in waiting.out
    assert question["turn"] in waiting.out
    assert "waits for an answer" in (await own.say("a", "/why"))["reply"]
    await answer(own, question["id"], "allow", scope="session")
    await own.settled(question["turn"])

    body: dict[str, Any] = {}
    for any_id in (question["id"], question["call"], question["turn"]):
        status, body = await own.call("GET", f"/api/explain/{any_id}")
        assert (status, body["turn"]["id"]) == (200, question["turn"])
    (view,) = body["questions"]
    assert (view["state"], view["scope"], view["answered_by"]) == ("allowed", "session", "operator")
    shown = (await perdure(own, "explain", question["id"])).out
    assert f"question {question['id']} allowed  allow by operator, for session: memory" in shown
    assert f"allowed by {question['id']}" in shown
    again = await own.say("a", LIST)
    await own.settled(again["turn"])
    (grant,) = (await own.call("GET", "/api/grants"))[1]["grants"]
    assert f"allowed by {grant['id']}" in (await perdure(own, "explain", again["turn"])).out
    assert (
        "about memory: allowed by operator (session)"
        in (await own.say("a", f"/why {question['turn']}"))["reply"]
    )


async def unknown_call(own: Client) -> str:
    """Kill the gateway, and leave a call in its store that had begun when the process died. Returns
    the call's turn."""
    await own.gateway.kill()
    home = own.gateway.home
    store = storage.store(config.load(home, {}), home, clock=SystemClock(), entropy=SystemEntropy())
    await store.open()
    operator = await store.principals.ensure(OPERATOR, role="operator")
    await store.nodes.join(name="test")
    await store.inbox.accept(
        Update(
            address=Address(adapter="http", account=operator.id, place="a"),
            external_id="u1",
            kind=UpdateKind.MESSAGE,
            principal=operator.id,
            text="pay the bill",
            busy=Busy.QUEUE,
        ),
        queue_max=10,
    )
    claimed = await claim_one(store)
    turn = claimed.lease.turn
    call = ToolCall(id=CALL, name="pay", arguments=f'{{"to": "{CANARY}"}}')
    said = AssistantSaid(turn=turn, attempt=1, message=MessageId("msg_1"), text="", calls=(call,))
    await store.turns.append(claimed.lease, [said, ToolStarted(turn=turn, call=CALL, why="policy")])
    await store.close()
    await own.gateway.start()
    await own.settled(turn)
    return turn


async def test_a_call_whose_effect_is_unknown_is_shown_until_somebody_knows(own: Client) -> None:
    turn = await unknown_call(own)
    _, body = await own.call("GET", "/api/effects")
    (effect,) = body["effects"]
    assert (effect["call"], effect["state"], effect["turn"]) == (CALL, "unknown", turn)
    shown = (await perdure(own, "explain", CALL)).out
    assert "effect unknown  nobody knows whether it has happened" in shown
    assert "nobody knows whether it has happened" in (await own.say("a", f"/why {turn}"))["reply"]
    listed = (await own.say("a", "/effects"))["reply"]
    assert f"{CALL[-6:]}  pay" in listed
    guest = Client(own.gateway, own.session)
    await guest.become("a stranger")
    assert (await guest.call("GET", "/api/effects"))[1]["effects"] == []
    status, _ = await guest.call("POST", f"/api/effects/{CALL}", body={"happened": True})
    assert status == 404

    noted = await own.say("a", f"/effects {CALL[-6:]} happened")

    assert noted["reply"].startswith("Noted: pay has happened.")
    status, body = await own.call("POST", f"/api/effects/{CALL}", body={"happened": False})
    assert (status, body["error"]["code"]) == (409, "already_marked")
    assert (await own.say("a", "/effects"))["reply"] == (
        "There is no call whose effect is unknown."
    )
    shown = (await perdure(own, "explain", turn)).out
    assert "effect happened  it has happened, says operator at" in shown
    after = await own.say("a", "hello")
    await own.settled(after["turn"])
    assert (
        f"of call pay {CALL}: it has happened" in (await perdure(own, "explain", after["turn"])).out
    )


async def test_the_log_has_a_line_for_each_question_and_no_words_of_it(own: Client) -> None:
    question = await asked(own, "a", files("write", "a.txt", text=CANARY))
    await answer(own, question["id"], "deny")
    await own.settled(question["turn"])
    other = await asked(own, "a", ask(f"Which {CANARY}?"))
    await answer(own, other["id"], f"the {CANARY}")
    await own.settled(other["turn"])
    await unknown_call(own)

    lines = own.gateway.output.splitlines()

    for words, name in (
        ("question asked", question["id"]),
        ("question denied", question["id"]),
        ("question asked", other["id"]),
        ("question answered", other["id"]),
        ("nobody knows whether a call has happened", CALL),
    ):
        assert len([each for each in lines if words in each and name in each]) == 1, words
    assert CANARY not in own.gateway.output


async def test_a_long_result_is_kept_and_read_on(own: Client, tmp_path: Path) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(400)]
    (tmp_path / "work" / "long.txt").write_text("\n".join(lines))
    said = await own.say("a", files("read", "long.txt"))
    await own.settled(said["turn"])
    (first,) = [each for each in await own.transcript("a") if each["role"] == "tool"]
    assert len(first["text"]) == 20_000
    _, body = await own.call("GET", f"/api/explain/{said['turn']}")
    (kept,) = [each["body"] for each in body["events"] if each["kind"] == "tool_finished"]

    handle = f'{{"handle": "{kept["whole"]}", "offset": 20000, "count": 16000}}'
    more = await own.say("a", f"demo tool result {handle}")
    await own.settled(more["turn"])

    second = [each for each in await own.transcript("a") if each["role"] == "tool"][-1]
    whole = first["text"] + second["text"][:16_000]
    assert all(line in whole for line in lines[:300])
    assert f"go on with offset {20_000 + 16_000}" in second["text"]
    assert kept["size"] > 36_000
    guest = Client(own.gateway, own.session)
    await guest.become("a stranger")
    refused = await guest.say("b", f"demo tool result {handle}")
    await guest.settled(refused["turn"])
    tools = [each for each in await guest.transcript("b") if each["role"] == "tool"]
    assert "there is no result" in tools[0]["text"]
