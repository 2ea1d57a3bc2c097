"""Checks the Slack adapter against two imitations: `local-slack` for Socket Mode, `emulate` for the
Events API.

What neither of them imitates (streams, refusals, redelivery) is tested in `test_slack_wire.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from perdure.adapters.slack.adapter import make
from perdure.adapters.slack.manifest import SlackSettings
from perdure.adapters.slack.render import TEXT_MAX
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming, plan_parts
from perdure.domain.errors import NotFound, PerdureError, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind
from perdure.domain.kinds import UpdateKind
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ArrivalReading,
    Delete,
    Edit,
    HookRequest,
    Platform,
    Post,
    Preview,
    React,
    Sought,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.slack.emulate_slack import EmulateSlackControl
from perdure.testkit.peers.slack.local_slack import (
    ALICE,
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    GENERAL,
    LocalSlackControl,
)

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text()
KEY = PartId("stp_one")
DEADLINE_S = 10.0


class Recorder(Unguarded):
    """Keeps what it is given, and may be down for a while."""

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

    async def until(self, accept: Callable[[Arrival], bool]) -> Arrival:
        def found() -> Arrival | None:
            return next(filter(accept, self.taken), None)

        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: found() is not None)
        arrival = found()
        assert arrival is not None
        return arrival

    async def text(self, text: str) -> Arrival:
        return await self.until(lambda arrival: arrival.text == text)


def context(folder: Path) -> AdapterContext:
    return AdapterContext(clock=SystemClock(), entropy=SystemEntropy(), folder=folder)


@asynccontextmanager
async def receiving(platform: Platform, inlet: Recorder) -> AsyncIterator[None]:
    task = asyncio.create_task(platform.receive(inlet))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def slack(local_slack: LocalSlackControl, tmp_path: Path) -> AsyncIterator[Platform]:
    """Connect the adapter to local-slack. It does not listen yet."""
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=local_slack.api_url
    )
    platform = make(settings, context(tmp_path))
    assert await platform.connect() == f"T0TEST/{BOT}"
    yield platform
    await platform.close()


@pytest.fixture
async def inlet(slack: Platform, local_slack: LocalSlackControl) -> AsyncIterator[Recorder]:
    """Receive over Socket Mode until the test ends."""
    recorder = Recorder()
    async with receiving(slack, recorder):
        await local_slack.wait_connected()
        yield recorder


def at(place: str, thread: str = "") -> Address:
    return Address(adapter="slack", account=f"T0TEST/{BOT}", place=place, thread=thread)


async def shown_by_bot(control: LocalSlackControl, channel: str) -> list[ShownMessage]:
    return [each for each in await control.shown(channel) if each.author == BOT]


async def test_a_private_message_arrives(inlet: Recorder, local_slack: LocalSlackControl) -> None:
    channel = await local_slack.direct()

    ts = await local_slack.write(channel, "hello &amp; <https://x.org|x.org>")

    arrival = await inlet.text("hello & https://x.org")
    assert arrival.external_id == f"{channel}/{ts}"
    assert (arrival.place_kind, arrival.thread) == (PlaceKind.PRIVATE, "")
    assert (arrival.sender.id, arrival.sender.name) == (ALICE, "alice")
    assert inlet.alive_count > 0


async def test_a_mention_arrives_twice_as_the_same(
    inlet: Recorder, local_slack: LocalSlackControl
) -> None:
    ts = await local_slack.mention(GENERAL, "what now?")
    await local_slack.write(GENERAL, "people among themselves")
    await local_slack.write(GENERAL, "in the thread", thread=ts)

    reply = await inlet.text("in the thread")
    mention, again, aside, _ = inlet.taken
    assert mention == again
    assert (mention.text, mention.thread, mention.is_addressed) == ("what now?", ts, True)
    assert (aside.is_addressed, aside.thread) == (False, "")
    assert reply.thread == ts


async def test_edits_and_deletions_arrive(inlet: Recorder, local_slack: LocalSlackControl) -> None:
    ts = await local_slack.mention(GENERAL, "helo")
    await local_slack.edit(GENERAL, ts, f"<@{BOT}> hello")
    await local_slack.edit(GENERAL, ts, f"<@{BOT}> hello you")
    await local_slack.delete(GENERAL, ts)

    deleted = await inlet.until(lambda arrival: arrival.kind == UpdateKind.DELETE)
    edits = [arrival for arrival in inlet.taken if arrival.kind == UpdateKind.EDIT]
    assert [edit.text for edit in edits] == ["hello", "hello you"]
    assert {arrival.target for arrival in (*edits, deleted)} == {f"{GENERAL}/{ts}"}
    assert {arrival.thread for arrival in (*edits, deleted)} == {ts}
    assert len({arrival.external_id for arrival in (*edits, deleted)}) == 3


async def test_what_the_bot_says_is_not_heard(
    slack: Platform, inlet: Recorder, emulated: "Emulated"
) -> None:
    # local-slack sends a bot none of its own messages; emulate does, like Slack.
    place = emulated.control.channels["general"]
    receipt = await emulated.platform.perform(Post(key=KEY, address=at(place), text="mine"))
    edit = Edit(key=KEY, address=at(place), receipt=receipt.external_id, text="mine too")
    await emulated.platform.perform(edit)
    await emulated.platform.perform(Delete(address=at(place), receipt=receipt.external_id))

    delivered = await emulated.control.deliveries()
    assert [each.status for each in delivered] == [200, 200, 200]
    assert emulated.inlet.taken == []


async def test_slash_commands_arrive_as_text(
    inlet: Recorder, local_slack: LocalSlackControl
) -> None:
    channel = await local_slack.direct()
    await local_slack.command(channel, "/perdure", "stop all")
    await local_slack.command(channel, "/perdure", "stop all")

    await inlet.text("/stop all")
    async with asyncio.timeout(DEADLINE_S):
        while len(inlet.taken) < 2:
            await asyncio.sleep(0.01)
    first, second = inlet.taken
    assert (first.place, first.sender.id, first.is_addressed) == (channel, ALICE, True)
    assert first.external_id != second.external_id


async def test_a_click_arrives_as_the_word(
    slack: Platform, inlet: Recorder, local_slack: LocalSlackControl
) -> None:
    ts = await local_slack.mention(GENERAL, "may you?")
    post = Post(key=KEY, address=at(GENERAL, ts), text="Sure?", choices=("Allow", "Deny"))
    receipt = (await slack.perform(post)).external_id

    await local_slack.click(GENERAL, receipt.partition("/")[2], "perdure_choice_1")

    arrival = await inlet.text("Deny")
    assert (arrival.place, arrival.thread, arrival.sender.id) == (GENERAL, ts, ALICE)


async def test_files_come_in(
    slack: Platform, inlet: Recorder, local_slack: LocalSlackControl
) -> None:
    channel, data = await local_slack.direct(), bytes(range(256)) * 1_000

    await local_slack.send_file(channel, "scan.png", data, text="look")

    (file,) = (await inlet.text("look")).files
    assert (file.name, file.mime, file.size) == ("scan.png", "image/png", len(data))
    assert b"".join([chunk async for chunk in slack.fetch(file.reference)]) == data


async def test_files_are_fetched_from_slack_alone(slack: Platform) -> None:
    with pytest.raises(Permanent, match="not kept by Slack"):
        _ = [chunk async for chunk in slack.fetch("https://elsewhere.example/f.png")]


async def test_a_message_is_posted_edited_and_deleted(
    slack: Platform, local_slack: LocalSlackControl
) -> None:
    ts = await local_slack.mention(GENERAL, "go")
    address = at(GENERAL, ts)

    posted = await slack.perform(Post(key=KEY, address=address, text="**one** <!channel>"))
    (first,) = await shown_by_bot(local_slack, GENERAL)
    assert posted.external_id == f"{GENERAL}/{first.id}"
    assert first.thread == ts
    assert first.raw["blocks"] == [{"type": "markdown", "text": "**one** <!\u200bchannel>"}]
    assert first.text == "*one* &lt;!\u200bchannel&gt;"

    edit = Edit(key=KEY, address=address, receipt=posted.external_id, text="two", choices=("Go",))
    assert await slack.perform(edit) == posted
    (second,) = await shown_by_bot(local_slack, GENERAL)
    assert (second.id, second.text, second.is_edited) == (first.id, "two", True)
    assert [block["type"] for block in second.raw["blocks"]] == ["markdown", "actions"]

    delete = Delete(address=address, receipt=posted.external_id)
    await slack.perform(delete)
    await slack.perform(delete)
    assert await shown_by_bot(local_slack, GENERAL) == []
    with pytest.raises(NotFound):
        await slack.perform(edit)


async def test_a_message_bears_one_mark_of_the_bots_at_a_time(
    slack: Platform, local_slack: LocalSlackControl
) -> None:
    ts = await local_slack.mention(GENERAL, "go")
    await local_slack.react(GENERAL, ts, "tada")

    async def mark(emoji: str) -> list[tuple[str, str]]:
        react = React(address=at(GENERAL), external_id=f"{GENERAL}/{ts}", emoji=emoji)
        await slack.perform(react)
        await slack.perform(react)
        return sorted(await local_slack.reactions(GENERAL, ts))

    assert await mark("👀") == [(ALICE, "tada"), (BOT, "eyes")]
    assert await mark("✅") == [(ALICE, "tada"), (BOT, "white_check_mark")]
    assert await mark("") == [(ALICE, "tada")]
    gone = React(address=at(GENERAL), external_id=f"{GENERAL}/1.000001", emoji="👀")
    with pytest.raises(NotFound):
        await slack.perform(gone)
    command = React(address=at(GENERAL), external_id=f"{GENERAL}/command/1.2.x", emoji="👀")
    await slack.perform(command)


async def test_a_file_goes_out(slack: Platform, local_slack: LocalSlackControl) -> None:
    ts = await local_slack.mention(GENERAL, "draw")
    address = at(GENERAL, ts)
    upload = Upload(
        key=KEY, address=address, name="map.png", mime="image/png", data=b"\x89PNG", caption="*a*"
    )

    receipt = await slack.perform(upload)

    (shown,) = await shown_by_bot(local_slack, GENERAL)
    (file,) = shown.raw["files"]
    assert (file["title"], shown.text, shown.thread) == ("map.png", "_a_", ts)
    assert b"".join([chunk async for chunk in slack.fetch(file["url_private"])]) == b"\x89PNG"
    assert await slack.find(Sought(key=KEY, address=address)) == receipt
    await slack.perform(Delete(address=address, receipt=receipt.external_id))
    await slack.perform(Delete(address=address, receipt=receipt.external_id))


async def test_a_preview_grows_into_the_answer(
    slack: Platform, local_slack: LocalSlackControl
) -> None:
    ts = await local_slack.mention(GENERAL, "tell me")
    address = at(GENERAL, ts)

    def preview(text: str, streaming: Streaming, receipt: str = "", shown: str = "") -> Preview:
        return Preview(
            key=KEY,
            address=address,
            text=text,
            streaming=streaming,
            receipt=receipt,
            shown=shown,
            reply_to=f"{GENERAL}/{ts}",
        )

    assert slack.capabilities(address).streaming is Streaming.NATIVE
    assert slack.capabilities(at(GENERAL)).streaming is Streaming.EDIT
    with pytest.raises(Unsupported):
        await slack.preview(preview("Once", Streaming.NATIVE))
    assert await shown_by_bot(local_slack, GENERAL) == []

    receipt = await slack.preview(preview("Once", Streaming.EDIT))
    again = await slack.preview(preview("Once upon", Streaming.EDIT, receipt, "Once"))
    assert [each.text for each in await shown_by_bot(local_slack, GENERAL)] == ["Once upon"]
    await slack.perform(Edit(key=KEY, address=address, receipt=receipt, text="Once upon a time."))
    assert again == receipt
    assert [each.text for each in await shown_by_bot(local_slack, GENERAL)] == ["Once upon a time."]


async def test_texts_at_the_limit_arrive_whole(emulated: "Emulated") -> None:
    platform, place = emulated.platform, emulated.control.channels["general"]
    capabilities = platform.capabilities(at(place))

    for length, count in ((TEXT_MAX - 1, 1), (TEXT_MAX, 1), (TEXT_MAX + 1, 2)):
        text = "é" * length
        parts = plan_parts(text, capabilities, size=platform.size)
        assert len(parts) == count
        for index, part in enumerate(parts):
            await platform.perform(
                Post(key=PartId(f"{length}_{index}"), address=at(place), text=part)
            )
        shown = (await emulated.control.shown(place))[-count:]
        assert "".join(each.raw["blocks"][0]["text"] for each in shown) == text


async def test_the_torture_text_is_accepted(emulated: "Emulated") -> None:
    platform, place = emulated.platform, emulated.control.channels["general"]

    for part in plan_parts(TORTURE, platform.capabilities(at(place)), size=platform.size):
        await platform.perform(Post(key=KEY, address=at(place), text=part))

    (shown,) = await emulated.control.shown(place)
    (block,) = shown.raw["blocks"]
    assert block["text"].replace("\u200b", "") == TORTURE.replace("\u200b", "")
    assert "<!channel>" not in str(shown.raw)


class Emulated(msgspec.Struct):
    """Holds the adapter behind a hook of its own, and emulate as its Slack."""

    platform: Platform
    inlet: Recorder
    control: EmulateSlackControl
    url: str


@pytest.fixture
async def emulated(emulate_slack: EmulateSlackControl, tmp_path: Path) -> AsyncIterator[Emulated]:
    settings = SlackSettings(
        token=Secret(emulate_slack.bot_token),
        signing_secret=Secret(emulate_slack.signing_secret),
        api_url=emulate_slack.api_url,
    )
    platform, inlet = make(settings, context(tmp_path)), Recorder()
    assert (await platform.connect()).endswith(f"/{emulate_slack.bot_user}")
    async with served(platform, inlet) as url:
        await emulate_slack.subscribe(url)
        yield Emulated(platform, inlet, emulate_slack, url)
    await platform.close()


@asynccontextmanager
async def served(platform: Platform, inlet: Recorder) -> AsyncIterator[str]:
    """Serve a hook as the gateway's HTTP server does. Returns its address."""

    async def answer(request: web.Request) -> web.Response:
        asked = HookRequest(
            method=request.method,
            path=request.match_info["path"],
            headers={name.lower(): value for name, value in request.headers.items()},
            query=dict(request.query),
            body=await request.read(),
        )
        given = await platform.answer(asked, inlet)
        return web.Response(status=given.status, body=given.body, content_type=given.content_type)

    app = web.Application()
    app.router.add_route("*", "/hooks/slack/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/hooks/slack/events"
    finally:
        await runner.cleanup()


async def test_signed_events_arrive(emulated: Emulated) -> None:
    control, place = emulated.control, emulated.control.channels["general"]
    private = await control.direct()

    ts = await control.write(place, f"<@{control.bot_user}> hello")
    reply = await control.write(place, "and more", thread=ts)
    await control.edit(place, ts, f"<@{control.bot_user}> hello there")
    await control.delete(place, reply)
    await control.write(private, "between us")

    mention, more, edit, deletion, direct = emulated.inlet.taken
    assert (mention.text, mention.thread, mention.is_addressed) == ("hello", ts, True)
    assert (more.text, more.thread) == ("and more", ts)
    assert (edit.kind, edit.text, edit.target) == (
        UpdateKind.EDIT,
        "hello there",
        mention.external_id,
    )
    assert (deletion.kind, deletion.target) == (UpdateKind.DELETE, more.external_id)
    assert (direct.place, direct.place_kind) == (private, PlaceKind.PRIVATE)
    assert direct.sender.id == control.user
    assert direct.sender.name


async def test_an_event_that_cannot_be_kept_is_not_acknowledged(emulated: Emulated) -> None:
    place = emulated.control.channels["general"]
    emulated.inlet.failures += [Transient("the store is down"), Rejected("too long")]

    await emulated.control.write(place, "lost once")
    await emulated.control.write(place, "never to be taken")

    statuses = [each.status for each in await emulated.control.deliveries()]
    assert statuses == [503, 200]
    assert emulated.inlet.taken == []


async def test_unsigned_requests_are_refused(emulated: Emulated) -> None:
    body = b'{"type":"event_callback","event":{"type":"message","channel":"C1","user":"U1"}}'
    now = str(SystemClock().now_ms() // 1000)
    bad = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": "v0=" + "0" * 64}
    async with aiohttp.ClientSession() as session:
        for headers in ({}, bad):
            async with session.post(emulated.url, data=body, headers=headers) as response:
                assert response.status == 401
                assert "signing_secret" in await response.text()
    assert emulated.inlet.taken == []


async def test_a_lost_receipt_is_found(emulated: Emulated) -> None:
    # emulate keeps metadata, as Slack does.
    platform, place = emulated.platform, emulated.control.channels["general"]
    ts = await emulated.control.write(place, "go")

    for address in (at(place), at(place, ts)):
        assert await platform.find(Sought(key=KEY, address=address)) is None
        receipt = await platform.perform(Post(key=KEY, address=address, text="here"))
        await platform.perform(Post(key=PartId("stp_two"), address=address, text="there"))
        assert await platform.find(Sought(key=KEY, address=address)) == receipt
        assert await platform.find(Sought(key=PartId("stp_three"), address=address)) is None


async def test_a_channel_without_the_bot_is_told(emulated: Emulated) -> None:
    with pytest.raises(Permanent, match="invite"):
        await emulated.platform.perform(Post(key=KEY, address=at("C0NOWHERE"), text="hello"))


async def test_a_server_that_goes_away_is_reached_again(new_peer: NewPeer, tmp_path: Path) -> None:
    async with new_peer.local_slack() as server:
        settings = SlackSettings(
            token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=f"{server.url}/api/"
        )
        platform, inlet = make(settings, context(tmp_path)), Recorder()
        await platform.connect()
        async with server.control() as control:
            task = asyncio.create_task(platform.receive(inlet))
            await control.wait_connected()
            await server.kill()
            with pytest.raises(Transient):
                async with asyncio.timeout(DEADLINE_S):
                    await task
        with pytest.raises(Transient, match="cannot be reached"):
            await platform.connect()
        with pytest.raises(Transient, match="cannot be reached"):
            await platform.perform(Post(key=KEY, address=at(GENERAL), text="hello"))

        await server.start()
        await platform.connect()
        async with server.control() as control, receiving(platform, inlet):
            await control.wait_connected()
            await control.mention(GENERAL, "back again")
            assert (await inlet.text("back again")).is_addressed
        await platform.close()


async def acknowledged(control: LocalSlackControl) -> int:
    return sum(1 for entry in await control.log() if entry["kind"] == "ack")


async def test_nothing_is_acknowledged_before_it_is_taken(
    slack: Platform, inlet: Recorder, local_slack: LocalSlackControl
) -> None:
    inlet.failures.append(Transient("the store is down"))
    channel = await local_slack.direct()

    await local_slack.write(channel, "keep this")

    await inlet.text("keep this")
    await wait_until(
        lambda: acknowledged(local_slack), lambda count: count == 1, clock=SystemClock()
    )
