"""Checks what no imitation of Slack by others has: streams, refusals, lost answers, redelivery.

The server is this project's own, so this proves what the adapter does with such answers, not that
Slack gives them.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from perdure.adapters.slack import socket_mode
from perdure.adapters.slack.adapter import make
from perdure.adapters.slack.manifest import SlackSettings
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import (
    Ambiguous,
    NotFound,
    PerdureError,
    Permanent,
    Rejected,
    Transient,
)
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    ArrivalReading,
    Delete,
    Edit,
    Platform,
    Post,
    Preview,
    React,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.slack.scripted_slack import (
    ALICE,
    APP_TOKEN,
    BOT_TOKEN,
    CHANNEL,
    PRIVATE,
    TEAM,
    Bare,
    ScriptedSlack,
    SlackAnswer,
)
from perdure.testkit.simulator.system import VirtualClock

ROOT = "1700000000.000001"
KEY = PartId("stp_one")
DEADLINE_S = 10.0


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSlack]:
    async with ScriptedSlack(SystemClock()) as slack:
        yield slack


@asynccontextmanager
async def connected(
    server: ScriptedSlack, folder: Path, *, clock: VirtualClock | SystemClock | None = None
) -> AsyncIterator[Platform]:
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=server.api_url
    )
    context = AdapterContext(clock=clock or SystemClock(), entropy=SystemEntropy(), folder=folder)
    platform = make(settings, context)
    try:
        await platform.connect()
        server.calls.clear()
        yield platform
    finally:
        await platform.close()


@pytest.fixture
async def slack(server: ScriptedSlack, tmp_path: Path) -> AsyncIterator[Platform]:
    async with connected(server, tmp_path) as platform:
        yield platform


def at(place: str, thread: str = ROOT, person: str = "") -> Address:
    return Address(adapter="slack", account="T01/U0BOT", place=place, thread=thread, person=person)


def growing(
    text: str, *, receipt: str = "", shown: str = "", address: Address | None = None
) -> Preview:
    return Preview(
        key=KEY,
        address=address or at(CHANNEL, person=ALICE),
        text=text,
        streaming=Streaming.NATIVE,
        receipt=receipt,
        shown=shown,
        reply_to=f"{CHANNEL}/{ROOT}",
    )


def final(text: str, receipt: str, shown: str = "") -> Edit:
    return Edit(key=KEY, address=at(CHANNEL), receipt=receipt, text=text, shown=shown)


def texts(server: ScriptedSlack) -> list[str]:
    return [message["text"] for message in server.messages.values()]


async def test_a_stream_is_given_what_is_new(slack: Platform, server: ScriptedSlack) -> None:
    receipt = await slack.preview(growing("Hello <"))
    assert await slack.preview(growing("Hello <!chan", receipt=receipt, shown="Hello <")) == receipt
    await slack.perform(final("Hello <!channel>, done.", receipt, shown="Hello <!chan"))

    streamed = ["chat.startStream", "chat.appendStream", "chat.stopStream"]
    assert server.made() == streamed
    assert texts(server) == ["Hello <!\u200bchannel>, done."]
    began = server.last("chat.startStream")
    assert (began["recipient_user_id"], began["recipient_team_id"]) == (ALICE, TEAM)
    assert began["thread_ts"] == ROOT
    assert server.last("chat.stopStream")["metadata"]["event_payload"] == {"key": KEY}


async def test_what_streams_are_given_is_what_slacks_library_gives(
    slack: Platform, server: ScriptedSlack
) -> None:
    # None of the servers here checks the parameters of streams, so they are compared with the
    # library's.
    receipt = await slack.preview(growing("a"))
    await slack.preview(growing("ab", receipt=receipt, shown="a"))
    edit = Edit(
        key=KEY, address=at(CHANNEL), receipt=receipt, text="abc", shown="ab", choices=("Yes",)
    )
    await slack.perform(edit)

    for method in ("chat.startStream", "chat.appendStream", "chat.stopStream"):
        signature = inspect.signature(getattr(AsyncWebClient, method.replace(".", "_")))
        known = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        needed = {name for name, each in known.items() if each.default is inspect.Parameter.empty}
        given = set(server.last(method))
        assert needed <= given <= set(known)


async def test_a_stream_names_the_person_who_wrote_the_message(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.messages[ROOT] = {
        "ts": ROOT,
        "channel": CHANNEL,
        "user": "U07",
        "user_team": "T07",
        "text": "hi",
    }
    await slack.preview(growing("a", address=at(CHANNEL)))
    began = server.last("chat.startStream")
    assert (began["recipient_user_id"], began["recipient_team_id"]) == ("U07", "T07")


async def test_a_private_stream_needs_nobody(slack: Platform, server: ScriptedSlack) -> None:
    await slack.preview(growing("a", address=at(PRIVATE)))
    assert "recipient_user_id" not in server.last("chat.startStream")


async def test_a_message_is_edited_where_no_stream_can_be(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.startStream"] = [{"ok": False, "error": "channel_type_not_supported"}]

    receipt = await slack.preview(growing("a"))
    await slack.preview(growing("ab", receipt=receipt, shown="a"))
    await slack.perform(final("abc", receipt, shown="ab"))

    edited = ["chat.startStream", "chat.postMessage", "chat.update", "chat.update"]
    assert server.made() == edited
    assert texts(server) == ["abc"]


async def test_a_stream_that_ended_by_itself_is_replaced(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("a"))
    next(iter(server.messages.values()))["streaming_state"] = "errored"

    await slack.preview(growing("ab", receipt=receipt, shown="a"))
    await slack.preview(growing("abc", receipt=receipt, shown="ab"))
    await slack.perform(final("abcd", receipt, shown="abc"))

    assert texts(server) == ["abcd"]
    assert len(server.made("chat.appendStream", "chat.stopStream")) == 1


async def test_an_answer_that_turned_out_otherwise_replaces_the_stream(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("I think"))
    await slack.perform(final("Sorry.", receipt, shown="I think"))
    assert texts(server) == ["Sorry."]


async def test_words_whose_fate_is_unknown_are_never_shown_twice(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("one"))
    server.lost.append("chat.appendStream")
    with pytest.raises(Transient):
        await slack.preview(growing("one two", receipt=receipt, shown="one"))
    assert texts(server) == ["one two"]

    await slack.preview(growing("one two three", receipt=receipt, shown="one"))
    await slack.perform(final("one two three.", receipt, shown="one two three"))

    assert texts(server) == ["one two three."]


async def test_a_final_whose_answer_was_lost_may_be_repeated(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("one"))
    server.lost.append("chat.stopStream")
    with pytest.raises(Transient):
        await slack.perform(final("one two", receipt, shown="one"))
    await slack.perform(final("one two", receipt, shown="one"))
    assert texts(server) == ["one two"]


async def test_a_stream_that_a_person_has_deleted_is_told_as_gone(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("one"))
    server.messages.clear()
    with pytest.raises(NotFound):
        await slack.preview(growing("one two", receipt=receipt, shown="one"))
    with pytest.raises(NotFound):
        await slack.perform(final("one two", receipt, shown="one"))


async def test_a_stream_is_ended_before_it_is_deleted(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(growing("one"))
    await slack.perform(Delete(address=at(CHANNEL), receipt=receipt))
    assert server.messages == {}


POST = Post(key=KEY, address=at(CHANNEL), text="hello")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"ok": False, "error": "invalid_auth"}, Permanent, r"set token in \[adapters.slack\]"),
        ({"ok": False, "error": "missing_scope", "needed": "chat:write"}, Permanent, "chat:write"),
        ({"ok": False, "error": "not_in_channel"}, Permanent, "/invite"),
        ({"ok": False, "error": "something_new"}, Permanent, "something_new"),
        ({"ok": False, "error": "internal_error"}, Ambiguous, "may have"),
        ({"ok": False, "error": "service_unavailable"}, Transient, "not at work"),
        (Bare(503, "<html>"), Ambiguous, "503"),
        (Bare(200, "<html>"), Ambiguous, "cannot be read"),
        (Bare(200, "{", "application/json"), Ambiguous, "read"),
        ({"ok": True}, Ambiguous, "cannot be read"),
        (None, Ambiguous, "broke"),
    ],
)
async def test_what_a_post_meets_decides_whether_it_may_be_tried_again(
    slack: Platform,
    server: ScriptedSlack,
    answer: SlackAnswer,
    kind: type[PerdureError],
    words: str,
) -> None:
    server.script["chat.postMessage"] = [answer]
    with pytest.raises(kind, match=words) as raised:
        await slack.perform(POST)
    assert "xoxb" not in str(raised.value)
    assert len(server.made("chat.postMessage")) == 1


@pytest.mark.parametrize("answer", [{"ok": False, "error": "internal_error"}, Bare(502), None])
async def test_an_edit_may_always_be_repeated(
    slack: Platform, server: ScriptedSlack, answer: SlackAnswer
) -> None:
    server.script["chat.update"] = [answer]
    with pytest.raises(Transient):
        await slack.perform(final("x", f"{CHANNEL}/1.1"))
    with pytest.raises(NotFound):
        await slack.perform(final("x", f"{CHANNEL}/1.1"))


async def test_slacks_wait_is_told(slack: Platform, server: ScriptedSlack) -> None:
    body = json.dumps({"ok": False, "error": "ratelimited"})
    limited = Bare(429, body, "application/json", {"Retry-After": "30"})
    server.script["chat.postMessage"] = [limited]
    with pytest.raises(Transient) as raised:
        await slack.perform(POST)
    assert raised.value.retry_after_s == 30
    assert raised.value.code != ACCOUNT_WAIT
    assert len(server.made("chat.postMessage")) == 1

    server.script["chat.update"] = [limited]
    with pytest.raises(Transient) as raised:
        await slack.perform(final("x", f"{CHANNEL}/1.1"))
    assert (raised.value.retry_after_s, raised.value.code) == (30, ACCOUNT_WAIT)


async def test_a_wait_is_told_by_a_server_that_may_have_done_it(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.postMessage"] = [Bare(503, "busy", headers={"Retry-After": "30"})]
    with pytest.raises(Ambiguous) as raised:
        await slack.perform(POST)
    assert raised.value.retry_after_s == 30


async def test_a_server_without_markdown_gets_slacks_markup(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.postMessage"] = [
        {"ok": False, "error": "invalid_blocks"},
        {"ok": True, "ts": "1.1", "channel": CHANNEL},
    ]
    await slack.perform(Post(key=KEY, address=at(CHANNEL), text="**bold**"))
    (block,) = server.last("chat.postMessage")["blocks"]
    assert block == {"type": "section", "text": {"type": "mrkdwn", "text": "*bold*"}}


async def test_a_server_without_metadata_gets_none(slack: Platform, server: ScriptedSlack) -> None:
    server.script["chat.postMessage"] = [
        {"ok": False, "error": "invalid_metadata_schema"},
        {"ok": True, "ts": "1.1", "channel": CHANNEL},
    ]
    receipt = await slack.perform(POST)
    assert receipt.external_id == f"{CHANNEL}/1.1"
    assert "metadata" not in server.last("chat.postMessage")


async def test_only_the_last_step_of_an_upload_is_in_doubt(
    slack: Platform, server: ScriptedSlack
) -> None:
    upload = Upload(key=KEY, address=at(CHANNEL), name="a.txt", mime="text/plain", data=b"x")
    server.script["files.getUploadURLExternal"] = [None]
    with pytest.raises(Transient):
        await slack.perform(upload)
    server.script["files.completeUploadExternal"] = [None]
    with pytest.raises(Ambiguous):
        await slack.perform(upload)
    # The server gave the file a new name at each try.
    assert (await slack.perform(upload)).external_id == f"{CHANNEL}/F02"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ((200, "text/html", b"<html>sign in"), Permanent, "files:read"),
        ((302, "text/plain", b""), Permanent, "files:read"),
        ((404, "text/plain", b""), Permanent, "404"),
        ((503, "text/plain", b""), Transient, "503"),
    ],
)
async def test_a_file_that_is_not_handed_out_is_refused_with_a_reason(
    slack: Platform,
    server: ScriptedSlack,
    body: tuple[int, str, bytes],
    kind: type[PerdureError],
    words: str,
) -> None:
    server.files["a"] = body
    with pytest.raises(kind, match=words):
        _ = [chunk async for chunk in slack.fetch(f"{server.url}/files/a")]


async def test_a_file_known_by_its_id_alone_is_fetched(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.files["a"] = (200, "text/plain", b"of another workspace")
    assert b"".join([chunk async for chunk in slack.fetch("file:F01")]) == b"of another workspace"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("auth.test", r"set token in \[adapters.slack\]"),
        ("apps.connections.open", r"set app_token in \[adapters.slack\]"),
    ],
)
async def test_a_wrong_token_is_told(
    server: ScriptedSlack, tmp_path: Path, method: str, words: str
) -> None:
    server.script[method] = [{"ok": False, "error": "invalid_auth"}]
    with pytest.raises(Permanent, match=words):
        async with connected(server, tmp_path):
            pass


async def test_of_a_stranger_who_may_ask_to_be_let_in_only_the_name_is_looked_up(
    server: ScriptedSlack, slack: Platform
) -> None:
    names: list[str] = []

    class Doorkeeper(Recorder):
        async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
            assert reading is not None
            assert reading.name is not None
            names.append(await reading.name())
            await super().take(arrival)

    inlet = Doorkeeper()
    async with receiving(slack, server, inlet):
        await server.write(PRIVATE, "do <@U02> and <@U03> know me?")
        assert (await inlet.text("")).sender.id == "U01"
    asked = [params["user"] for method, params in server.calls if method == "users.info"]
    assert (names, asked) == (["u01"], ["U01"])


async def test_a_name_that_cannot_be_had_stops_no_message(
    server: ScriptedSlack, slack: Platform
) -> None:
    server.script["users.info"] = [None]
    inlet = Recorder()
    async with receiving(slack, server, inlet):
        await server.write(PRIVATE, "first")
        assert (await inlet.text("first")).sender.name == ""
        await server.write(PRIVATE, "second")
        assert (await inlet.text("second")).sender.name == "u01"


class Recorder(Unguarded):
    """Keeps what it is given, unless it is told to fail."""

    def __init__(self) -> None:
        self.spoilt: dict[str, str] = {}
        self.taken: list[Arrival] = []
        self.failures: list[PerdureError] = []
        self.alive_count = 0
        self._changed = asyncio.Condition()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        if self.failures:
            raise self.failures.pop(0)
        async with self._changed:
            self.taken += await opened(arrival, reading)
            self._changed.notify_all()

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = why

    def alive(self) -> None:
        self.alive_count += 1

    async def text(self, text: str) -> Arrival:
        def found() -> Arrival | None:
            return next((each for each in self.taken if each.text == text), None)

        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: found() is not None)
        arrival = found()
        assert arrival is not None
        return arrival


async def until(accept: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not accept():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def receiving(
    platform: Platform, server: ScriptedSlack, inlet: Recorder
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(platform.receive(inlet))
    try:
        await until(lambda: bool(server.connections) or task.done())
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_envelope_comes_until_it_is_taken(server: ScriptedSlack, tmp_path: Path) -> None:
    clock, inlet = VirtualClock(is_eager=True), Recorder()
    inlet.failures += [Transient("down")] * 5
    async with connected(server, tmp_path, clock=clock) as slack:
        async with receiving(slack, server, inlet) as task:
            await server.write(PRIVATE, "keep me")
            with pytest.raises(Transient, match="down"):
                await task
        assert len(server.unacknowledged) == 1

        await slack.connect()
        async with receiving(slack, server, inlet):
            await inlet.text("keep me")
            await until(lambda: not server.unacknowledged)


async def test_what_can_never_be_taken_is_acknowledged(
    slack: Platform, server: ScriptedSlack
) -> None:
    inlet = Recorder()
    inlet.failures.append(Rejected("too long"))
    async with receiving(slack, server, inlet):
        await server.write(PRIVATE, "too long")
        await server.deliver("events_api", {"event": {"type": "message", "user": {}}})
        await server.deliver("events_api", {"event": {"type": "team_join"}})
        await server.deliver("something_new", {})
        await until(lambda: not server.unacknowledged)
    assert inlet.taken == []


async def test_slack_may_ask_for_a_new_connection(server: ScriptedSlack, tmp_path: Path) -> None:
    clock, inlet = VirtualClock(), Recorder()
    async with (
        connected(server, tmp_path, clock=clock) as slack,
        receiving(slack, server, inlet) as task,
    ):
        clock.advance(3600)
        await server.send({"type": "disconnect", "reason": "refresh_requested"})
        await until(lambda: server.connection_count == 2)
        await server.write(PRIVATE, "after")
        await inlet.text("after")

        await server.send({"type": "disconnect", "reason": "warning"})
        with pytest.raises(Transient, match="at once"):
            await task


async def test_socket_mode_switched_off_is_told(slack: Platform, server: ScriptedSlack) -> None:
    async with receiving(slack, server, Recorder()) as task:
        await server.send({"type": "disconnect", "reason": "link_disabled"})
        with pytest.raises(Permanent, match="Socket Mode"):
            await task


async def test_a_lost_connection_is_told(slack: Platform, server: ScriptedSlack) -> None:
    inlet = Recorder()
    async with receiving(slack, server, inlet) as task:
        await server.connections[0].ping()
        await until(lambda: inlet.alive_count >= 2)
        await server.connections[0].close()
        with pytest.raises(Transient, match="closed"):
            await task


async def test_a_silent_connection_is_asked_for_a_sign_of_life(
    slack: Platform, server: ScriptedSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_mode, "SILENCE_S", 0.05)
    inlet = Recorder()
    async with receiving(slack, server, inlet) as task:
        await until(lambda: inlet.alive_count > 5 or task.done())
        assert not task.done()
    server.answers_pings = False
    await slack.connect()
    async with receiving(slack, server, inlet) as task:
        with pytest.raises(Transient, match="silent"):
            await task


async def test_events_by_hook_are_watched_by_asking(server: ScriptedSlack, tmp_path: Path) -> None:
    clock, inlet = VirtualClock(), Recorder()
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), signing_secret=Secret("shh"), api_url=server.api_url
    )
    platform = make(settings, AdapterContext(clock=clock, entropy=SystemEntropy(), folder=tmp_path))
    await platform.connect()
    task = asyncio.create_task(platform.receive(inlet))
    await until(lambda: clock.sleepers == 1)
    clock.advance(60)
    await until(lambda: inlet.alive_count == 2 and clock.sleepers == 1)
    server.script["auth.test"] = [{"ok": False, "error": "token_revoked"}]
    clock.advance(60)
    with pytest.raises(Permanent, match="set token"):
        async with asyncio.timeout(DEADLINE_S):
            await task
    await platform.close()


async def test_a_mark_that_is_already_there_is_no_failure(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.messages[ROOT] = {"ts": ROOT, "channel": CHANNEL, "user": ALICE, "text": "hi"}
    server.script["reactions.add"] = [{"ok": False, "error": "already_reacted"}]
    react = React(address=at(CHANNEL), external_id=f"{CHANNEL}/{ROOT}", emoji="👀")
    assert (await slack.perform(react)).external_id == f"{CHANNEL}/{ROOT}"


async def test_the_token_goes_out_as_a_header_alone(slack: Platform, server: ScriptedSlack) -> None:
    await slack.perform(POST)
    assert not any("xoxb" in str(params) for _, params in server.calls)
