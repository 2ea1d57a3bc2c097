"""Checks that a wait which Slack names is told to the caller and kept: no call is made before it is
over.

The server is this project's own, and the tests move the clock.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from perdure.adapters.slack.adapter import make
from perdure.adapters.slack.manifest import SlackSettings
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import Transient
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
    Sought,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.slack.scripted_slack import (
    ALICE,
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    CHANNEL,
    PRIVATE,
    Bare,
    ScriptedSlack,
)
from perdure.testkit.simulator.system import VirtualClock

ROOT = "1700000000.000001"
KEY = PartId("stp_one")
DEADLINE_S = 10.0
LIMITED = Bare(
    429,
    json.dumps({"ok": False, "error": "ratelimited"}),
    "application/json",
    {"Retry-After": "30"},
)
Call = Callable[[Platform], Awaitable[object]]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSlack]:
    async with ScriptedSlack(SystemClock()) as slack:
        reactions = [{"name": "tada", "users": [BOT]}]
        slack.messages[ROOT] = {
            "ts": ROOT,
            "channel": CHANNEL,
            "user": ALICE,
            "text": "hi",
            "reactions": reactions,
        }
        slack.messages["1.1"] = _ours("1.1")
        slack.messages["1.2"] = {**_ours("1.2"), "streaming_state": "in_progress"}
        yield slack


def _ours(ts: str) -> dict[str, str]:
    return {"ts": ts, "channel": CHANNEL, "user": BOT, "text": "one", "thread_ts": ROOT}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def slack(
    server: ScriptedSlack, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Platform]:
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=server.api_url
    )
    platform = make(settings, AdapterContext(clock=clock, entropy=SystemEntropy(), folder=tmp_path))
    await platform.connect()
    server.calls.clear()
    yield platform
    await platform.close()


def at(place: str = CHANNEL, thread: str = ROOT) -> Address:
    return Address(adapter="slack", account="T01/U0BOT", place=place, thread=thread)


PREVIEW = Preview(
    key=KEY,
    address=at(),
    text="one two",
    streaming=Streaming.NATIVE,
    reply_to=f"{CHANNEL}/{ROOT}",
)
SHOWN = frozenset({f"{CHANNEL}/1.1", f"{CHANNEL}/1.2"})
GROWN = msgspec.structs.replace(PREVIEW, receipt=f"{CHANNEL}/1.2", shown="one")
MARK = React(address=at(), external_id=f"{CHANNEL}/{ROOT}", emoji="👀")
FILE = Upload(key=KEY, address=at(), name="a.txt", mime="text/plain", data=b"x")
STREAMED = Edit(key=KEY, address=at(), receipt=f"{CHANNEL}/1.2", text="one two", shown="one")
CHANGED = Edit(key=KEY, address=at(), receipt=f"{CHANNEL}/1.1", text="one two")


async def fetched(slack: Platform) -> None:
    _ = [chunk async for chunk in slack.fetch("file:F01")]


CALLS: dict[str, tuple[str, Call]] = {
    "connect": ("auth.test", lambda slack: slack.connect()),
    "connect the socket": ("apps.connections.open", lambda slack: slack.connect()),
    "look in a channel": (
        "conversations.history",
        lambda slack: slack.find(Sought(key=KEY, address=at(thread=""))),
    ),
    "look in a thread": (
        "conversations.replies",
        lambda slack: slack.find(Sought(key=KEY, address=at(), owned=SHOWN)),
    ),
    "begin a stream": ("chat.startStream", lambda slack: slack.preview(PREVIEW)),
    "ask for whom": ("conversations.replies", lambda slack: slack.preview(PREVIEW)),
    "grow a stream": ("chat.appendStream", lambda slack: slack.preview(GROWN)),
    "end a stream": ("chat.stopStream", lambda slack: slack.perform(STREAMED)),
    "edit": ("chat.update", lambda slack: slack.perform(CHANGED)),
    "delete": (
        "chat.delete",
        lambda slack: slack.perform(Delete(address=at(), receipt=f"{CHANNEL}/1.1")),
    ),
    "read before marking": ("conversations.replies", lambda slack: slack.perform(MARK)),
    "mark": ("reactions.add", lambda slack: slack.perform(MARK)),
    "unmark": ("reactions.remove", lambda slack: slack.perform(MARK)),
    "prepare a file": ("files.getUploadURLExternal", lambda slack: slack.perform(FILE)),
    "share a file": ("files.completeUploadExternal", lambda slack: slack.perform(FILE)),
    "ask for a file": ("files.info", fetched),
}


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_tells_the_wait_and_keeps_it(
    slack: Platform, server: ScriptedSlack, clock: VirtualClock, name: str
) -> None:
    method, call = CALLS[name]
    server.files["a"] = (200, "text/plain", b"x")
    server.script[method] = [LIMITED]

    for passed_s, left_s in ((0, 30), (10, 20)):
        clock.advance(passed_s)
        with pytest.raises(Transient) as raised:
            await call(slack)
        assert (raised.value.retry_after_s, raised.value.code) == (left_s, ACCOUNT_WAIT)
        assert "again" not in raised.value.message
        assert len(server.made(method)) == 1

    clock.advance(20)
    await call(slack)
    assert len(server.made(method)) == 2


async def test_the_wait_of_a_post_is_that_of_its_channel(
    slack: Platform, server: ScriptedSlack, clock: VirtualClock
) -> None:
    def post(place: str) -> Post:
        return Post(key=KEY, address=at(place, ""), text="hello")

    server.script["chat.postMessage"] = [LIMITED]
    for _ in range(2):
        with pytest.raises(Transient) as raised:
            await slack.perform(post(CHANNEL))
        assert raised.value.retry_after_s == 30
        assert raised.value.code != ACCOUNT_WAIT
    await slack.perform(post(PRIVATE))
    assert len(server.made("chat.postMessage")) == 2
    clock.advance(30)
    await slack.perform(post(CHANNEL))


async def test_the_wait_for_the_bytes_of_a_file_is_told(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["upload"] = [LIMITED]
    with pytest.raises(Transient) as raised:
        await slack.perform(FILE)
    assert raised.value.retry_after_s == 30


class Recorder(Unguarded):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.taken: asyncio.Queue[Arrival] = asyncio.Queue()
        self.is_alive = asyncio.Event()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        for whole in await opened(arrival, reading):
            self.taken.put_nowait(whole)

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        raise AssertionError(why)

    def alive(self) -> None:
        self.is_alive.set()


async def test_no_name_is_asked_for_before_the_wait_is_over(
    slack: Platform, server: ScriptedSlack, clock: VirtualClock
) -> None:
    server.script["users.info"] = [LIMITED]
    inlet = Recorder()
    async with asyncio.timeout(DEADLINE_S):
        task = asyncio.create_task(slack.receive(inlet))
        await inlet.is_alive.wait()
        for passed_s, name, asked in ((0, "", 1), (29, "", 1), (1, "u01", 2)):
            clock.advance(passed_s)
            await server.write(PRIVATE, "hello")
            assert (await inlet.taken.get()).sender.name == name
            assert len(server.made("users.info")) == asked
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_wait_for_a_connection_is_told(slack: Platform, server: ScriptedSlack) -> None:
    server.script["socket"] = [LIMITED]
    with pytest.raises(Transient) as raised:
        await slack.receive(Recorder())
    assert raised.value.retry_after_s == 30


async def test_the_wait_of_a_probe_is_told(
    server: ScriptedSlack, tmp_path: Path, clock: VirtualClock
) -> None:
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), signing_secret=Secret("shh"), api_url=server.api_url
    )
    slack = make(settings, AdapterContext(clock=clock, entropy=SystemEntropy(), folder=tmp_path))
    await slack.connect()
    server.script["auth.test"] = [LIMITED]
    inlet = Recorder()
    async with asyncio.timeout(DEADLINE_S):
        task = asyncio.create_task(slack.receive(inlet))
        await inlet.is_alive.wait()
        clock.advance(60)
        with pytest.raises(Transient) as raised:
            await task
    assert raised.value.retry_after_s == 30
    with pytest.raises(Transient):
        await slack.connect()
    assert len(server.made("auth.test")) == 2
    await slack.close()
