"""Checks what people see while a turn runs and after a crash: modes, policies, commands."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.processes.command import run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
LONG = "demo words=400 delay_ms=20"


@pytest.fixture
async def start(gateway_factory: Factory) -> AsyncIterator[Callable[[str], Awaitable[Client]]]:
    async with aiohttp.ClientSession() as session:

        async def begin(toml: str = "") -> Client:
            return Client(await gateway_factory(toml=toml), session)

        yield begin


async def until_text(client: Client, name: str = "main") -> None:
    async with client.events(name) as events:
        async for _, kind, _data in events:
            if kind == "delta":
                return


async def seen(client: Client, wanted: Callable[[str, Any], bool], name: str = "main") -> Any:
    """Return the first event that is wanted, counted from the conversation's beginning."""
    async with client.events(name, "000001-0000000000-99-000000000") as events:
        async for _, kind, data in events:
            if wanted(kind, data):
                return data
    raise AssertionError("the stream ended")


async def test_a_newer_message_supersedes(start: Any) -> None:
    client = await start('[server]\nbusy = "interrupt"\n')
    first = await client.say("main", LONG)
    await until_text(client)
    second = await client.say("main", "never mind")
    assert second["effect"] == "superseded"
    assert (await client.settled(first["turn"]))["outcome"] == "superseded"
    assert (await client.settled(second["turn"]))["outcome"] == "done"
    user, cut, *_ = await client.transcript("main")
    assert (user["role"], cut["outcome"]) == ("user", "superseded")
    assert 0 < len(cut["text"].split()) < 400


async def test_a_steer_becomes_a_turn_if_it_comes_too_late(start: Any) -> None:
    client = await start('[server]\nbusy = "steer"\n')
    first = await client.say("main", "demo words=30 delay_ms=10")
    await until_text(client)
    steer = await client.say("main", "and be quick")
    assert (steer["effect"], steer["turn"]) == ("steered", first["turn"])
    assert (await client.settled(first["turn"]))["outcome"] == "done"
    await seen(client, lambda kind, data: kind == "state" and data["state"] == "idle")
    texts = [e["text"] for e in await client.transcript("main") if e["role"] == "user"]
    assert texts == ["demo words=30 delay_ms=10", "and be quick"]


async def test_a_waiting_message_can_be_rewritten_and_removed(start: Any) -> None:
    client = await start()
    running = await client.say("main", LONG)
    await until_text(client)
    second = await client.say("main", "second")
    third = await client.say("main", "third")
    assert (second["queued"], third["queued"]) == (1, 2)
    status, _ = await client.call("PATCH", f"/api/turns/{second['turn']}", body={"text": "better"})
    assert status == 200
    status, body = await client.call("PATCH", f"/api/turns/{running['turn']}", body={"text": "no"})
    assert (status, body["error"]["code"]) == (409, "already_begun")
    await client.call("POST", f"/api/turns/{third['turn']}/stop")
    await client.call("POST", f"/api/turns/{running['turn']}/stop")
    assert (await client.settled(second["turn"]))["outcome"] == "done"
    entries = await client.transcript("main")
    assert [e["text"] for e in entries if e["role"] == "user"] == [LONG, "better"]
    assert "better" in entries[-1]["text"]


async def crash(client: Client, text: str = LONG) -> dict[str, Any]:
    accepted = await client.say("main", text)
    await until_text(client)
    await client.gateway.kill()
    await client.gateway.start()
    result: dict[str, Any] = accepted
    return result


async def test_a_person_who_is_asked_can_continue_the_turn(start: Any) -> None:
    client = await start('[recovery]\nresume = "ask"\n')
    accepted = await crash(client, "demo words=40 delay_ms=20")
    notice = await seen(client, lambda kind, data: data.get("role") == "notice")
    assert notice["choices"] == ["continue", "drop"]
    _, conversation = await client.call("GET", "/api/conversations/main")
    assert (conversation["state"], conversation["resume_reason"]) == ("resume_pending", "crash")
    answer = await client.say("main", "Continue")
    assert (answer["command"], answer["effect"]) == ("continue", "continued")
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)


async def test_a_person_who_is_asked_can_drop_the_turn(start: Any) -> None:
    client = await start('[recovery]\nresume = "ask"\n')
    accepted = await crash(client)
    answer = await client.say("main", "drop")
    assert (answer["command"], answer["turn"]) == ("drop", None)
    assert (await client.settled(accepted["turn"]))["outcome"] == "interrupted"
    assert (await client.settled((await client.say("main", "next"))["turn"]))["outcome"] == "done"


async def test_an_interrupted_turn_waits_until_the_next_message_in_the_same_session(
    start: Any,
) -> None:
    client = await start('[recovery]\nresume = "wait"\n')
    accepted = await crash(client)
    _, before = await client.call("GET", "/api/conversations/main")
    assert before["state"] == "resume_pending"
    following = await client.say("main", "what were you saying?")
    assert following["session"] == accepted["session"]
    assert (await client.settled(accepted["turn"]))["outcome"] == "interrupted"
    assert (await client.settled(following["turn"]))["outcome"] == "done"
    outcomes = [e.get("outcome") for e in await client.transcript("main")]
    assert outcomes == [None, "interrupted", None, "done"]


@pytest.mark.parametrize("resume", ["wait", "ask"])
async def test_what_was_said_while_it_drained_is_answered_after_the_restart(
    start: Any, resume: str
) -> None:
    client = await start(f'[recovery]\nresume = "{resume}"\n[drain]\ntimeout_s = 1\n')
    cut = await client.say("main", LONG)
    await until_text(client)
    client.gateway.send_signal(signal.SIGTERM)
    while (await client.call("GET", "/readyz"))[0] != 503:
        await client.gateway.pause(0.01)
    behind = await client.say("main", "what else?")
    assert await client.gateway.wait() == 0
    await client.gateway.start()
    assert (await client.settled(behind["turn"]))["outcome"] == "done"
    turn = await client.settled(cut["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("interrupted", 1)
    outcomes = [e.get("outcome") for e in await client.transcript("main")]
    assert outcomes == [None, "interrupted", None, "done"]


async def without_a_node(client: Client, *arguments: str) -> Any:
    """Return what the command line reads from the store by itself."""
    home = str(client.gateway.home)
    result = await run_command(["--json", "--home", home, *arguments], environ=os.environ)
    assert result.code == 0, result
    return result.json


async def test_a_turn_that_is_stopped_while_no_node_runs_does_not_go_on(start: Any) -> None:
    client = await start()
    running = await client.say("main", LONG)
    await until_text(client)
    waiting = await client.say("main", "and then?")
    await client.gateway.kill()
    stopped = await without_a_node(client, "turns", "stop", running["turn"])
    assert (stopped["id"], stopped["outcome"]) == (running["turn"], "stopped")
    await client.gateway.start()
    assert (await client.settled(waiting["turn"]))["outcome"] == "done"
    turn = await client.settled(running["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("stopped", 1)
    _, cut, *_ = await client.transcript("main")
    assert 0 < len(cut["text"].split()) < 400


async def test_three_crashes_suspend_and_resume_brings_the_session_back(start: Any) -> None:
    # The messages that wait behind the turn are still answered, in another session.
    client = await start()
    accepted = await crash(client)
    await until_text(client)
    await client.gateway.kill()
    await client.gateway.start()
    await until_text(client)
    behind = await client.say("main", "queued behind", id="b1")
    who = await client.say("main", "/whoami", id="w1")
    await client.gateway.kill()
    *_, shown = (await without_a_node(client, "sessions", "show", "main"))["messages"]
    assert (shown["role"], "outcome" in shown) == ("assistant", False)
    explained = await without_a_node(client, "explain", accepted["message"])
    assert explained["partial"]["text"] == shown["text"] != ""
    explained = await without_a_node(client, "explain", "w1")
    assert (explained["turn"], explained["reply"]) == (None, who["reply"])
    await client.gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("suspended", 3)
    served = await client.settled(behind["turn"])
    assert (served["outcome"], served["attempts"]) == ("done", 1)
    assert served["session"] != accepted["session"]
    again = await client.say("main", "queued behind", id="b1")
    assert (again["turn"], again["duplicate"]) == (behind["turn"], True)
    given_up = await seen(client, lambda kind, _: kind == "outcome")
    assert (given_up["turn"], given_up["outcome"]) == (accepted["turn"], "suspended")
    notices = ("message", "notice")
    told = await seen(
        client,
        lambda kind, data: (kind, data.get("role")) == notices and data["id"] != who["message"],
    )
    assert (told["turn"], "/resume" in told["text"]) == (accepted["turn"], True)

    fresh = await client.say("main", "hello again")
    assert fresh["session"] == served["session"]
    assert (await client.settled(fresh["turn"]))["outcome"] == "done"
    assert len(await client.transcript("main")) == 4

    back = await client.say("main", "/resume")
    assert (back["command"], back["turn"]) == ("resume", None)
    _, conversation = await client.call("GET", "/api/conversations/main")
    assert (conversation["session"], conversation["state"]) == (accepted["session"], "idle")
    again = await client.say("main", "still here?")
    assert again["session"] == accepted["session"]
    assert (await client.settled(again["turn"]))["outcome"] == "done"


async def test_commands_are_not_for_the_model(start: Any) -> None:
    client = await start()
    running = await client.say("main", LONG)
    await until_text(client)
    await client.say("main", "waiting")
    stopped = await client.say("main", "/stop", id="s1")
    assert (stopped["turn"], stopped["reply"]) == (None, "Stopped. 1 more message waits.")
    assert (await client.settled(running["turn"]))["outcome"] == "stopped"
    again = await client.say("main", "/stop", id="s1")
    assert (again["duplicate"], again["reply"]) == (True, stopped["reply"])
    unknown = await client.say("main", "/stpo")
    assert "Did you mean /stop?" in unknown["reply"]
    path = await client.say("main", "/usr/bin is a path")
    assert path["turn"]
    await client.settled(path["turn"])
    help_ = await client.say("main", "/help")
    assert "/restart" in help_["reply"]
    texts = [e["text"] for e in await client.transcript("main") if e["role"] == "user"]
    assert texts == [LONG, "waiting", "/usr/bin is a path"]


async def test_a_restart_asked_for_in_a_conversation_is_told_there(start: Any) -> None:
    client = await start()
    running = await client.say("main", "demo words=60 delay_ms=20")
    await until_text(client)
    asked = await client.say("main", "/restart")
    assert asked["command"] == "restart"
    back = await _told_after_restart(client)
    assert back["text"] == "The gateway is back."
    turn = await client.settled(running["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 1)
    assert [e["role"] for e in await client.transcript("main")] == ["user", "assistant"]


async def _told_after_restart(client: Client) -> Any:
    """Watch until the notice comes, through the end of one life and the beginning of the next."""

    def is_back(kind: str, data: Any) -> bool:
        return kind == "message" and data["text"] == "The gateway is back."

    while True:
        try:
            return await seen(client, is_back)
        except (aiohttp.ClientError, AssertionError):
            await client.gateway.pause(0.05)


async def test_only_operators_restart(start: Any) -> None:
    client = await start()
    _, made = await client.call("POST", "/api/tokens", body={"name": "ada"})
    client.token = made["token"]
    refused = await client.say("main", "/restart")
    assert refused["reply"] == "/restart is for operators."
    assert (await client.settled((await client.say("main", "still up?"))["turn"]))["outcome"] == (
        "done"
    )
