"""Checks what crosses surfaces: a real gateway, its command line, and people on a chat platform."""

import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault
from perdure.testkit.processes.command import TRUSTS_NOBODY, Result, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
StartGateway = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
ADA, BOB, STRANGER = 42, 43, 99
DEADLINE_S = 30.0


class Rig:
    """Holds a gateway with a bot on Telegram. Ada is its operator, Bob may speak, others may ask
    for access."""

    def __init__(self, gateway: GatewayProcess, api: BotApi, client: Client) -> None:
        self.gateway = gateway
        self.api = api
        self.client = client

    async def perdure(self, *arguments: str) -> Result:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        result = await run_command(
            ["--home", str(self.gateway.home), *arguments],
            environ={**kept, **TRUSTS_NOBODY, "PERDURE_DISCOVER": "0"},
        )
        assert "Traceback" not in result.err, result.err
        return result

    async def done(self, *arguments: str) -> Result:
        result = await self.perdure(*arguments)
        assert result.code == 0, result
        return result

    async def connected(self) -> None:
        """Wait until the platform is connected."""

        async def look() -> str:
            _, status = await self.client.call("GET", "/api/status")
            health: str = status["adapters"][0]["health"]
            return health

        await wait_until(look, lambda health: health == "serving", clock=CLOCK)

    async def read(self, chat: int, *texts: str) -> list[ShownMessage]:
        """Wait until the chat shows exactly these texts."""
        return await self.api.wait_shown(chat, lambda shown: [s.text for s in shown] == [*texts])

    async def answered(self, chat: int, word: str) -> list[ShownMessage]:
        return await self.api.wait_shown(chat, lambda shown: any(word in s.text for s in shown))


@pytest.fixture
async def rig(gateway_factory: StartGateway) -> AsyncIterator[Rig]:
    async with BotApi(CLOCK) as api, aiohttp.ClientSession() as session:
        gateway = await gateway_factory(
            toml=f"""
[adapters.telegram]
token = "{api.token}"
api_url = "{api.url}"
allow = ["{BOB}"]
collect_ms = 0
operators = ["{ADA}"]
pairing = true
stream = false
"""
        )
        rig = Rig(gateway, api, Client(gateway, session))
        await rig.connected()
        yield rig


async def test_what_is_sent_arrives_once_and_is_part_of_the_conversation(rig: Rig) -> None:
    sent = await rig.done("send", f"telegram:{ADA}", "The", "backup", "is", "done.", "--id", "b1")
    assert sent.out.endswith(f"is on its way to telegram:{ADA}\n")
    again = await rig.done("--json", "send", f"telegram:{ADA}", "The backup is done.", "--id", "b1")
    assert again.json["duplicate"] is True
    await rig.read(ADA, "The backup is done.")

    rig.api.write(ADA, "which backup?")

    await rig.answered(ADA, "which backup?")
    session = again.json["session"]
    shown = (await rig.done("--json", "sessions", "show", session)).json["messages"]
    assert [(m["role"], m.get("origin", "")) for m in shown] == [
        ("assistant", "sent"),
        ("user", ""),
        ("assistant", ""),
    ]
    explained = await rig.done("explain", again.json["turn"])
    assert "The backup is done." in explained.out
    assert (await rig.done("verify")).out.endswith("all sound\n")


async def test_a_kill_right_after_the_acknowledgement_loses_nothing(rig: Rig) -> None:
    body = {"to": f"telegram:{ADA}", "text": "still there", "id": "k1"}
    status, sent = await rig.client.call("POST", "/api/send", body=body)
    await rig.gateway.restart()

    repeated = await rig.client.call("POST", "/api/send", body=body)

    assert status == 202
    assert sent["conversation"] == f"telegram:{ADA}"
    assert repeated == (202, {**sent, "duplicate": True})
    await rig.read(ADA, "still there")


async def test_what_is_sent_without_a_node_is_kept_for_the_next_start(rig: Rig) -> None:
    rig.api.write(ADA, "hello")
    await rig.answered(ADA, "hello")
    assert await rig.gateway.terminate() == 0

    assert (await rig.done("send", f"telegram:{ADA}", "while you slept")).err == ""

    assert f"telegram:{ADA}" in (await rig.done("places")).out
    await rig.gateway.start()
    await rig.answered(ADA, "while you slept")


async def test_errors_say_what_to_do(rig: Rig) -> None:
    unknown = await rig.perdure("send", "telegramm:1", "hi")
    nowhere = await rig.perdure("send", "nowhere", "hi")
    homeless = await rig.perdure("send", "home", "hi")
    empty = await rig.perdure("send", f"telegram:{ADA}", " ")
    impossible = await rig.perdure("send", "telegram:Ada", "hi")
    status, body = await rig.client.call(
        "POST", "/api/send", body={"to": "telegram:Ada", "text": "hi"}
    )

    assert [each.code for each in (unknown, nowhere, homeless, empty)] == [1, 1, 1, 1]
    assert (impossible.code, status, body["error"]["code"]) == (2, 400, "impossible_address")
    assert "telegram:123456789" in impossible.err
    assert "Ada" not in (await rig.done("places")).out
    assert "operators" in homeless.err
    assert "no platform 'telegramm' here; configured are: telegram" in unknown.err
    assert "perdure places" in nowhere.err
    assert "say /home" in homeless.err
    assert "nothing to send" in empty.err
    assert rig.api.made("sendMessage") == []


async def test_home_is_where_the_operator_said_it(rig: Rig) -> None:
    rig.api.write(ADA, "/home")
    await rig.read(ADA, "This is your home conversation now.")

    await rig.done("send", "home", "good morning")

    await rig.read(ADA, "This is your home conversation now.", "good morning")


async def test_an_operator_by_configuration_has_a_home_at_once_and_no_longer(rig: Rig) -> None:
    rig.api.write(BOB, "/home")
    await rig.read(BOB, "This is your home conversation now.")
    assert f"add '{BOB}'" in (await rig.perdure("send", "home", "too early")).err
    file = rig.gateway.home / "perdure.toml"
    before = file.read_text()
    assert await rig.gateway.terminate() == 0

    file.write_text(before.replace(f'operators = ["{ADA}"]', f'operators = ["{ADA}", "{BOB}"]'))
    await rig.done("send", "home", "while you slept")
    await rig.gateway.start()
    await rig.done("send", "home", "good morning")
    own = ("This is your home conversation now.", "The gateway is back.")
    await rig.read(BOB, *own, "while you slept", "good morning")
    file.write_text(before)
    rig.gateway.send_signal(signal.SIGHUP)

    async def refused() -> str:
        return (await rig.perdure("send", "home", "too late", "--id", "late")).err

    await wait_until(refused, lambda err: f"add '{BOB}'" in err, clock=CLOCK)


async def test_members_reach_their_own_home_and_see_their_own_places(rig: Rig) -> None:
    rig.api.write(ADA, "hello")
    await rig.answered(ADA, "hello")
    token = (await rig.done("--json", "token", "add", "phone")).json["token"]
    rig.client.token = token
    accepted = await rig.client.say("notes", "/home")
    assert accepted["command"] == "home"

    status, refused = await rig.client.call(
        "POST", "/api/send", body={"to": f"telegram:{ADA}", "text": "hi"}
    )
    taken, sent = await rig.client.call("POST", "/api/send", body={"to": "home", "text": "hi"})
    _, own = await rig.client.call("GET", "/api/places")

    assert (status, refused["error"]["code"]) == (403, "forbidden")
    assert (taken, sent["conversation"]) == (202, "notes")
    assert [place["address"] for place in own["places"]] == ["notes"]
    await rig.client.settled(sent["turn"])
    (entry,) = await rig.client.transcript("notes")
    assert (entry["role"], entry["text"], entry["origin"]) == ("assistant", "hi", "sent")
    rig.client.token = rig.gateway.token
    _, page = await rig.client.call("GET", "/api/places?limit=1")
    _, rest = await rig.client.call("GET", f"/api/places?cursor={page['next']}")
    places = [place["address"] for place in page["places"] + rest["places"]]
    assert places == ["notes", f"telegram:{ADA}"]
    listed = (await rig.done("places")).out
    assert "telegram:42" in listed
    assert "private" in listed


async def test_a_conversation_goes_on_in_another_place(rig: Rig) -> None:
    first = await rig.client.say("main", "I grow beans")
    await rig.client.settled(first["turn"])
    code = re.findall(r"The code is (\w+),", (await rig.client.say("main", "/link"))["reply"])[0]

    rig.api.write(ADA, f"/link {code}")
    await rig.answered(ADA, "Linked. What is said here continues main")
    rig.api.write(ADA, "what do I grow?")

    await rig.answered(ADA, 'You said: "what do I grow?"')
    said = [m["text"] for m in await rig.client.transcript("main") if m["role"] == "user"]
    assert said == ["I grow beans", "what do I grow?"]
    rig.api.write(ADA, "/link off")
    await rig.answered(ADA, "its own conversation again")
    rig.api.write(ADA, "and now?")
    await rig.answered(ADA, 'You said: "and now?"')
    assert len(await rig.client.transcript("main")) == 4


async def test_the_events_of_a_linked_conversation_are_those_of_the_other(rig: Rig) -> None:
    await rig.client.settled((await rig.client.say("main", "hello"))["turn"])
    rig.api.write(ADA, "/link")
    (offer,) = await rig.answered(ADA, "The code is")
    (code,) = re.findall(r"The code is (\w+),", offer.text)
    ids: list[str] = []

    async with rig.client.events("main") as events:
        async for event_id, kind, _ in events:
            ids.append(event_id)
            if kind == "state":
                break
        linked = await rig.client.say("main", f"/link {code}")
        assert linked["reply"].startswith(f"Linked. What is said here continues telegram:{ADA}")
        rig.api.write(ADA, "from the phone")
        heard: list[str] = []
        async for event_id, kind, data in events:
            ids.append(event_id)
            heard += [data["text"]] if kind == "message" else []
            if kind == "outcome":
                break
        assert linked["reply"] in heard
        assert "from the phone" in heard
        await rig.client.say("main", "/link off")
        async for event_id, kind, data in events:
            ids.append(event_id)
            if kind == "message" and data["text"].startswith("This place has its own"):
                break
    assert ids == sorted(ids)
    _, conversation = await rig.client.call("GET", "/api/conversations/main")
    assert "linked" not in conversation


async def at_work(rig: Rig, conversation: str) -> str:
    """Wait for a running turn of a conversation. Returns its id."""

    async def look() -> dict[str, Any]:
        _, found = await rig.client.call("GET", f"/api/conversations/{conversation}")
        result: dict[str, Any] = found
        return result

    found = await wait_until(look, lambda each: each["state"] == "running", clock=CLOCK)
    turn: str = found["turn"]
    return turn


async def test_a_stranger_is_let_in_and_out_again(rig: Rig) -> None:
    assert "nobody has asked" in (await rig.done("pair", "list")).out
    rig.api.write(STRANGER, "let me in")
    (asked,) = await rig.answered(STRANGER, "Your code is")
    (code,) = re.findall(r"Your code is (\w+)\.", asked.text)
    (pairing,) = (await rig.done("--json", "pair", "list")).json["pairings"]
    assert (pairing["sender"], pairing["state"]) == (str(STRANGER), "asked")

    wrong = await rig.perdure("pair", "approve", "WRONG234")
    approved = await rig.done("pair", "approve", code)

    assert wrong.code == 1
    assert "perdure pair list" in wrong.err
    assert approved.out == f"telegram:{STRANGER} (Ada L) may speak from now on\n"
    await rig.answered(STRANGER, "You are let in")
    rig.api.write(STRANGER, "thank you")
    before = await rig.answered(STRANGER, "thank you")
    rig.api.write(STRANGER, "demo words=2000 delay_ms=20")
    running = await at_work(rig, f"telegram:{STRANGER}")

    await rig.done("pair", "revoke", pairing["id"])

    stopped = await rig.client.settled(running)
    assert stopped["outcome"] == "stopped"
    assert stopped["reason"] == f"access ended: {STRANGER} may not speak on telegram any more"
    rig.api.write(STRANGER, "are you there?")
    rig.api.write(BOB, "are you there?")
    await rig.answered(BOB, "are you there?")
    assert await rig.api.shown(STRANGER) == before, "what came first was taken first, in silence"
    (pairing,) = (await rig.done("--json", "pair", "list")).json["pairings"]
    assert pairing["state"] == "revoked"


async def test_what_cannot_be_delivered_is_parked_and_replayed(rig: Rig) -> None:
    rig.api.fail("sendMessage", BotApiFault(status=400, description="Bad Request: chat not found"))
    await rig.done("send", f"telegram:{ADA}", "for Ada")

    part = await parked(rig)

    assert (part["state"], part["text"], part["address"]) == ("failed", "for Ada", "telegram:42")
    shown = await rig.done("parked", "show", part["id"])
    assert "chat not found" in shown.out
    assert shown.out.endswith("\n\nfor Ada\n")
    assert "for Ada" in (await rig.done("parked", "list")).out
    assert (
        "is on its way to telegram:42 again" in (await rig.done("parked", "replay", part["id"])).out
    )
    await rig.read(ADA, "for Ada")
    assert (await rig.done("parked", "list")).out == "nothing is parked\n"
    twice = await rig.perdure("parked", "replay", part["id"])
    assert twice.code == 1
    assert "not parked" in twice.err


async def test_what_may_have_arrived_is_replayed_only_on_purpose(rig: Rig) -> None:
    rig.api.fail("sendMessage", BotApiFault(is_lost=True))
    await rig.done("send", f"telegram:{ADA}", "once or twice")
    part = await parked(rig)
    assert part["state"] == "unknown"

    careful = await rig.perdure("parked", "replay", part["id"])
    path = f"/api/parked/{part['id']}/replay"
    refused, body = await rig.client.call("POST", path)

    assert careful.code == 1
    assert "--yes" in careful.err
    assert (refused, body["error"]["code"]) == (409, "may_show_twice")
    await rig.done("parked", "replay", part["id"], "--yes")
    await rig.read(ADA, "once or twice", "once or twice")


async def test_what_nobody_needs_any_more_is_dropped(rig: Rig) -> None:
    rig.api.fail("sendMessage", BotApiFault(status=403, description="Forbidden: bot was blocked"))
    await rig.done("send", f"telegram:{ADA}", "old news")
    part = await parked(rig)

    await rig.done("parked", "drop", part["id"])

    _, left = await rig.client.call("GET", "/api/parked")
    assert left == {"parked": [], "next": None}
    assert (await rig.client.call("GET", "/api/parked/prt_nothing"))[0] == 404
    rig.client.token = (await rig.done("--json", "token", "add", "phone")).json["token"]
    for method, path in (
        ("GET", "/api/parked"),
        ("DELETE", f"/api/parked/{part['id']}"),
        ("GET", "/api/pairings"),
        ("DELETE", "/api/pairings/pair_1"),
    ):
        assert (await rig.client.call(method, path))[0] == 403


async def test_what_cannot_be_taken_is_parked_and_the_next_is_served(rig: Rig) -> None:
    rig.api.push(message={"message_id": "not a number", "text": "half of it"})
    rig.api.write(ADA, "hello")
    await rig.answered(ADA, "hello")

    letter = await parked(rig)

    assert (letter["step"], letter["state"], letter["address"]) == (
        "letter",
        "parked",
        "telegram:700",
    )
    assert letter["id"] in (await rig.done("parked", "list")).out
    assert "half of it" in (await rig.done("parked", "show", letter["id"])).out
    replayed = await rig.perdure("parked", "replay", letter["id"])
    assert replayed.code != 0
    assert "drop it" in replayed.err
    await rig.done("parked", "drop", letter["id"])
    assert (await rig.done("parked", "list")).out == "nothing is parked\n"


async def parked(rig: Rig) -> dict[str, Any]:
    async def look() -> list[dict[str, Any]]:
        _, body = await rig.client.call("GET", "/api/parked")
        found: list[dict[str, Any]] = body["parked"]
        return found

    (part,) = await wait_until(look, bool, clock=CLOCK)
    return part


async def test_status_and_metrics_tell_how_platforms_do(rig: Rig) -> None:
    _, status = await rig.client.call("GET", "/api/status")
    assert status["adapters"] == [
        {"name": "telegram", "account": "700", "health": "serving", "error": ""}
    ]
    assert "telegram as 700 is serving" in (await rig.done("status")).out
    rig.api.fail("sendMessage", BotApiFault(status=429, retry_after=30))
    await rig.done("send", f"telegram:{ADA}", "later")
    await rig.api.wait(lambda: bool(rig.api.made("sendMessage")))

    async with rig.client.session.get(f"{rig.gateway.url}/metrics") as response:
        metrics = await response.text()

    assert 'perdure_adapter_up{adapter="telegram"} 1.0' in metrics
    assert 'perdure_outbox_depth{adapter="telegram"} 1.0' in metrics
