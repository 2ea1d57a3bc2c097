"""Checks a whole gateway with a bot on Slack: what people see there, also when it dies."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from perdure.adapters.slack.hooks import signature
from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.slack import scripted_slack as scripted
from perdure.testkit.peers.slack.emulate_slack import EmulateSlackControl
from perdure.testkit.peers.slack.local_slack import (
    ALICE,
    APP_TOKEN,
    BOB,
    BOT,
    BOT_TOKEN,
    GENERAL,
    LocalSlackControl,
    LocalSlackServer,
)
from perdure.testkit.peers.slack.scripted_slack import CHANNEL, PRIVATE, Bare, ScriptedSlack
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Awaitable[GatewayProcess]]
Accept = Callable[[list[ShownMessage]], bool]

CLOCK = SystemClock()
SLOW = "demo words=40 delay_ms=45"
ENDLESS = "demo words=900 delay_ms=40"


def section(api_url: str, *, token: str, allow: str, more: str) -> str:
    """Return the configuration of the adapter. Each person in a channel has a conversation of their
    own, so that the demo agent is told only what they said."""
    return (
        f'[adapters.slack]\ntoken = "{token}"\napi_url = "{api_url}"\nallow = ["{allow}"]\n'
        f'groups = "person"\ncollect_ms = 0\n{more}\n'
    )


def local_section(api_url: str) -> str:
    socket = f'app_token = "{APP_TOKEN}"'
    return section(api_url, token=BOT_TOKEN, allow=ALICE, more=socket)


def scripted_section(server: ScriptedSlack, token: str = scripted.BOT_TOKEN) -> str:
    socket = f'app_token = "{scripted.APP_TOKEN}"'
    return section(server.api_url, token=token, allow=scripted.ALICE, more=socket)


@asynccontextmanager
async def running(home: Path, toml: str) -> AsyncIterator[GatewayProcess]:
    """Run a gateway that several tests share."""
    (home / "perdure.toml").write_text(toml)
    environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
    gateway = GatewayProcess(home, environ=environ, clock=CLOCK)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()


def is_whole(words: int) -> Accept:
    return lambda shown: bool(shown) and len(shown[-1].text.split()) == words


def has_words(words: int) -> Accept:
    return lambda shown: any(len(each.text.split()) >= words for each in shown)


def said(word: str) -> Accept:
    return lambda shown: any(word in each.text for each in shown)


async def answers(
    control: LocalSlackControl, channel: str, accept: Accept, *, thread: str = ""
) -> list[ShownMessage]:
    """Wait until what the bot shows there is accepted. Returns it."""

    async def look() -> list[ShownMessage]:
        shown = await control.shown(channel)
        return [each for each in shown if each.author == BOT and each.thread == thread]

    return await wait_until(look, accept, clock=CLOCK)


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_slack(local_slack_server: LocalSlackServer) -> AsyncIterator[LocalSlackControl]:
    async with local_slack_server.control() as control:
        yield control


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_gateway(
    one_slack: LocalSlackControl, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("slack")
    async with running(home, local_section(one_slack.api_url)) as gateway:
        await one_slack.wait_connected()
        yield gateway


@pytest.mark.asyncio(loop_scope="class")
class TestOnLocalSlack:
    """Checks one gateway on Socket Mode. Each test has a thread or a person of its own."""

    @pytest.fixture
    def slack(self, one_slack: LocalSlackControl, one_gateway: GatewayProcess) -> LocalSlackControl:
        return one_slack

    async def test_a_mention_is_answered_once_in_a_thread_that_grows(
        self, slack: LocalSlackControl
    ) -> None:
        # Slack sends a mention twice. local-slack has no streams, so the bubble is edited.
        ts = await slack.mention(GENERAL, SLOW)

        (growing,) = await answers(slack, GENERAL, bool, thread=ts)
        assert len(growing.text.split()) < 40
        (answer,) = await answers(slack, GENERAL, is_whole(40), thread=ts)
        assert answer.id == growing.id
        await slack.write(GENERAL, "and you?", thread=ts)
        assert len(await answers(slack, GENERAL, said("and you?"), thread=ts)) == 2

    async def test_strangers_and_talk_among_people_meet_silence(
        self, slack: LocalSlackControl
    ) -> None:
        stranger = await slack.mention(GENERAL, "let me in", user=BOB)
        aside = await slack.write(GENERAL, "not for the bot")
        channel = await slack.direct(user=BOB)
        await slack.write(channel, "nor me?", user=BOB)

        ts = await slack.mention(GENERAL, "hello")

        await answers(slack, GENERAL, said("hello"), thread=ts)
        for thread in (stranger, aside, ""):
            assert await answers(slack, GENERAL, lambda _: True, thread=thread) == []
        assert await answers(slack, channel, lambda _: True) == []

    async def test_a_stop_ends_the_answer(self, slack: LocalSlackControl) -> None:
        ts = await slack.mention(GENERAL, ENDLESS)
        await answers(slack, GENERAL, bool, thread=ts)

        await slack.mention(GENERAL, "/stop", thread=ts)

        await answers(slack, GENERAL, said("topped"), thread=ts)
        await slack.write(GENERAL, "next", thread=ts)
        cut, *_ = await answers(slack, GENERAL, said("next"), thread=ts)
        assert len(cut.text.split()) < 900

    async def test_a_slash_command_in_private_stops_the_answer(
        self, slack: LocalSlackControl
    ) -> None:
        channel = await slack.direct()
        await slack.write(channel, ENDLESS)
        await answers(slack, channel, bool)

        await slack.command(channel, "/perdure", "stop")

        await answers(slack, channel, said("topped"))

    async def test_a_file_is_fetched_and_given_to_the_agent(
        self, slack: LocalSlackControl, one_gateway: GatewayProcess
    ) -> None:
        channel, data = await slack.direct(), b"a text of its own"
        await slack.send_file(channel, "scan.txt", data, text="look")
        await answers(slack, channel, said("scan.txt"))
        kept = [path.read_bytes() for path in one_gateway.home.rglob("*") if path.is_file()]
        assert data in kept

    async def test_a_file_that_the_agent_makes_is_sent(self, slack: LocalSlackControl) -> None:
        channel = await slack.direct()
        await slack.write(channel, "demo file report.txt high tide at noon")
        shown = await answers(
            slack, channel, lambda shown: any(each.raw.get("files") for each in shown)
        )
        (file,) = next(each.raw["files"] for each in shown if each.raw.get("files"))
        assert file["title"] == "report.txt"

    async def test_an_edited_message_is_asked_anew(self, slack: LocalSlackControl) -> None:
        ts = await slack.mention(GENERAL, "helo")
        await answers(slack, GENERAL, said("helo"), thread=ts)

        await slack.edit(GENERAL, ts, f"<@{BOT}> hello again")

        await answers(slack, GENERAL, said("hello again"), thread=ts)


async def test_a_kill_in_the_middle_shows_nothing_twice_and_asks_by_buttons(
    gateway_factory: Start, local_slack: LocalSlackControl
) -> None:
    toml = f'[recovery]\nresume = "ask"\n{local_section(local_slack.api_url)}'
    gateway = await gateway_factory(toml=toml)
    await local_slack.wait_connected()
    ts = await local_slack.mention(GENERAL, "demo words=100 delay_ms=45")
    (first,) = await answers(local_slack, GENERAL, bool, thread=ts)
    # After its first change its receipt is certainly stored. Before, it would be posted anew.
    (growing,) = await answers(
        local_slack, GENERAL, lambda shown: shown[0].text != first.text, thread=ts
    )

    await gateway.restart()
    await local_slack.wait_connected()
    _, question = await answers(
        local_slack, GENERAL, lambda shown: len(shown[-1].raw["blocks"]) > 1, thread=ts
    )
    await local_slack.click(GENERAL, question.id, "perdure_choice_0")

    shown = await answers(local_slack, GENERAL, has_words(100), thread=ts)
    assert [each.id for each in shown if len(each.text.split()) >= 100] == [growing.id]


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_server() -> AsyncIterator[ScriptedSlack]:
    async with ScriptedSlack(CLOCK) as slack:
        yield slack


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_scripted_gateway(
    one_server: ScriptedSlack, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    async with running(tmp_path_factory.mktemp("slack"), scripted_section(one_server)) as gateway:
        await one_server.wait(lambda: bool(one_server.connections))
        yield gateway


@pytest.mark.asyncio(loop_scope="class")
class TestOnScriptedSlack:
    """Checks one gateway on this project's own Slack server, which has streams, refuses, and sends
    again."""

    @pytest.fixture
    def slack(
        self, one_server: ScriptedSlack, one_scripted_gateway: GatewayProcess
    ) -> ScriptedSlack:
        one_server.messages.clear()
        one_server.calls.clear()
        return one_server

    async def test_an_answer_grows_as_a_stream(self, slack: ScriptedSlack) -> None:
        ts = await slack.write(CHANNEL, f"<@{scripted.BOT}> {SLOW}")

        (growing,) = await slack.wait_shown(CHANNEL, bool)
        assert growing.raw["streaming_state"] == "in_progress"
        (answer,) = await slack.wait_shown(CHANNEL, is_whole(40))
        await slack.wait(lambda: answer.raw["streaming_state"] == "completed")
        assert (answer.id, answer.thread) == (growing.id, ts)
        assert slack.last("chat.startStream")["recipient_user_id"] == scripted.ALICE
        assert slack.made("chat.appendStream")
        assert slack.made("chat.update", "chat.postMessage") == []

    @pytest.mark.parametrize("held", [[], ["chat.startStream"]], ids=["later", "at its beginning"])
    async def test_a_stream_that_a_kill_cut_is_finished(
        self, slack: ScriptedSlack, one_scripted_gateway: GatewayProcess, held: list[str]
    ) -> None:
        slack.held += held
        await slack.write(CHANNEL, f"<@{scripted.BOT}> {SLOW}")
        (growing,) = await slack.wait_shown(CHANNEL, bool)

        await one_scripted_gateway.restart()

        (answer,) = await slack.wait_shown(CHANNEL, has_words(40))
        assert answer.id == growing.id
        await slack.wait(lambda: answer.raw["streaming_state"] == "completed")

    async def test_nothing_is_lost_while_it_is_dead_and_nothing_comes_twice(
        self, slack: ScriptedSlack, one_scripted_gateway: GatewayProcess
    ) -> None:
        await slack.wait(lambda: bool(slack.connections))
        ts = await slack.write(PRIVATE, "first")
        await slack.wait_shown(PRIVATE, said("first"))
        await slack.wait(lambda: not slack.unacknowledged)
        await one_scripted_gateway.kill()
        await slack.write(PRIVATE, "second")
        # Slack repeats an event that may not have been taken.
        again = {"type": "event_callback", "event": slack.messages[ts]}
        await slack.deliver("events_api", again)
        await one_scripted_gateway.start()

        await slack.wait_shown(PRIVATE, said("second"))
        await slack.wait(lambda: not slack.unacknowledged)
        await slack.write(PRIVATE, "third")
        shown = await slack.wait_shown(PRIVATE, said("third"))
        assert [each.text.split('"')[1] for each in shown] == ["first", "second", "third"]

    async def test_slacks_wait_is_honoured_and_the_answer_delivered(
        self, slack: ScriptedSlack
    ) -> None:
        body = json.dumps({"ok": False, "error": "ratelimited"})
        limited = Bare(429, body, "application/json", {"Retry-After": "1"})
        slack.script["chat.postMessage"] = [limited]
        await slack.write(PRIVATE, "patience")
        await slack.wait_shown(PRIVATE, said("patience"))
        assert len(slack.made("chat.postMessage")) == 2

    async def test_a_post_whose_answer_was_lost_is_shown_once(self, slack: ScriptedSlack) -> None:
        slack.lost.append("chat.postMessage")
        await slack.write(PRIVATE, "/status")
        await slack.wait(lambda: "conversations.history" in slack.made())
        await slack.write(PRIVATE, "hello")
        await slack.wait_shown(PRIVATE, said("hello"))
        assert len(await slack.shown(PRIVATE)) == 2


async def test_a_wrong_token_is_told_by_the_health(gateway_factory: Start) -> None:
    async with ScriptedSlack(CLOCK) as slack:
        slack.script["auth.test"] = [{"ok": False, "error": "invalid_auth"}]
        gateway = await gateway_factory(toml=scripted_section(slack, "xoxb-wrong"))
        await slack.wait(lambda: "set token in [adapters.slack]" in gateway.output)
        assert "xoxb-wrong" not in gateway.output
        assert await health(gateway) == {"slack": "blind"}


async def health(gateway: GatewayProcess) -> dict[str, str]:
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/healthz") as response:
        adapters: dict[str, str] = (await response.json())["adapters"]
        return adapters


async def test_an_event_by_the_events_api_is_answered_once_across_lives(
    gateway_factory: Start, emulate_slack: EmulateSlackControl
) -> None:
    peer, place = emulate_slack, emulate_slack.channels["general"]
    more = f'signing_secret = "{peer.signing_secret}"'
    gateway = await gateway_factory(
        toml=section(peer.api_url, token=peer.bot_token, allow=peer.user, more=more)
    )
    hook = f"{gateway.url}/hooks/slack/events"
    await is_serving(gateway)
    await peer.subscribe(hook)
    ts = await peer.write(place, f"<@{peer.bot_user}> {SLOW}")
    await peer.wait_thread(place, ts, lambda shown: len(shown) == 2 and is_whole(40)(shown))

    delivered = (await peer.deliveries())[0]
    assert delivered.status == 200
    # Slack repeats an event that was not answered in time, even if a new life receives it.
    assert await repeated(hook, delivered.payload, peer.signing_secret) == 200
    await gateway.restart()
    await is_serving(gateway)
    assert await repeated(hook, delivered.payload, peer.signing_secret) == 200
    assert await repeated(hook, delivered.payload, "forged") == 401
    await peer.write(place, "and you?", thread=ts)
    shown = await peer.wait_thread(place, ts, said("You said"))
    assert len([each for each in shown if each.author == peer.bot_user]) == 2


async def is_serving(gateway: GatewayProcess) -> None:
    await wait_until(
        lambda: health(gateway), lambda seen: seen == {"slack": "serving"}, clock=CLOCK
    )


async def repeated(hook: str, payload: dict[str, Any], secret: str) -> int:
    body = json.dumps(payload).encode()
    now = str(CLOCK.now_ms() // 1000)
    headers = {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": now,
        "X-Slack-Signature": signature(secret, now, body),
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(hook, data=body, headers=headers) as response,
    ):
        return response.status
