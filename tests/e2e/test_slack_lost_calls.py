"""Checks Slack calls whose answer was lost: which are found again, which are not there, and which
stay unknown.

The server is this project's own: it does what Slack documents, and breaks a call before or after it
was done.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.slack.adapter import make
from perdure.adapters.slack.manifest import SlackSettings
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import PartId
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    Delete,
    Edit,
    Platform,
    Post,
    Preview,
    Receipt,
    Sought,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.peers.slack.scripted_slack import (
    ALICE,
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    CHANNEL,
    Bare,
    ScriptedSlack,
    SlackAnswer,
)

CLOCK = SystemClock()
ROOT = "1700000000.000001"
KEY = PartId("stp_one")
OTHER = PartId("stp_other")
BOB = "U02"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSlack]:
    async with ScriptedSlack(CLOCK) as slack:
        yield slack


@asynccontextmanager
async def connected(server: ScriptedSlack, folder: Path) -> AsyncIterator[Platform]:
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=server.api_url
    )
    platform = make(settings, AdapterContext(clock=CLOCK, entropy=SystemEntropy(), folder=folder))
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


def at(place: str = CHANNEL, thread: str = ROOT, person: str = "") -> Address:
    return Address(adapter="slack", account="T01/U0BOT", place=place, thread=thread, person=person)


def growing(key: PartId, text: str, person: str = ALICE) -> Preview:
    return Preview(
        key=key,
        address=at(person=person),
        text=text,
        streaming=Streaming.NATIVE,
        reply_to=f"{CHANNEL}/{ROOT}",
    )


def sought(
    text: str = "",
    *,
    key: PartId = KEY,
    owned: tuple[str, ...] = (),
    ago_s: int = 0,
    address: Address | None = None,
    name: str = "",
) -> Sought:
    return Sought(
        key=key,
        address=address or at(),
        text=text,
        name=name,
        tried_at=CLOCK.now_ms() - ago_s * 1000,
        owned=frozenset(owned),
    )


def put(server: ScriptedSlack, text: str, *, age_s: int = 0, **fields: Any) -> str:
    """Show a message of the bot without a key. Returns its external id."""
    ts = f"{CLOCK.now_ms() // 1000 - age_s}.{len(server.messages):06}"
    message = {"ts": ts, "channel": CHANNEL, "thread_ts": ROOT, "user": BOT, "text": text}
    server.messages[ts] = message | fields
    return f"{CHANNEL}/{ts}"


def texts(server: ScriptedSlack) -> list[str]:
    return [message["text"] for message in server.messages.values()]


async def test_the_second_message_of_an_answer_never_takes_over_the_first(
    slack: Platform, server: ScriptedSlack
) -> None:
    first = await slack.preview(growing(OTHER, "740 words that must stay"))
    server.script["chat.startStream"] = [None]
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "and what does not fit"))
    server.script["chat.postMessage"] = [None]
    with pytest.raises(Ambiguous):
        await slack.perform(Post(key=KEY, address=at(), text="and what does not fit"))

    assert await slack.find(sought("and what does not fit", owned=(first,))) is None

    await slack.perform(Post(key=KEY, address=at(), text="and what does not fit"))
    assert texts(server) == ["740 words that must stay", "and what does not fit"]


async def test_the_stream_of_another_person_is_never_taken_over(
    slack: Platform, server: ScriptedSlack
) -> None:
    alices = await slack.preview(growing(OTHER, "You said"))
    server.script["chat.startStream"] = [None]
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "You said", person=BOB))

    looked_for = sought("You said", owned=(alices,), address=at(person=BOB))
    assert await slack.find(looked_for) is None

    bobs = await slack.preview(growing(KEY, "You said", person=BOB))
    assert bobs != alices
    assert texts(server) == ["You said", "You said"]


async def test_a_lost_stream_is_known_by_its_text_beside_that_of_another(
    slack: Platform, server: ScriptedSlack
) -> None:
    alices = await slack.preview(growing(OTHER, "You said"))
    server.lost.append("chat.startStream")
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "You said", person=BOB))

    found = await slack.find(sought("You said", owned=(alices,), address=at(person=BOB)))

    assert found is not None
    assert found.external_id not in ("", alices)
    assert texts(server) == ["You said", "You said"]


async def test_a_stream_of_a_process_now_gone_becomes_the_final_message(
    slack: Platform, server: ScriptedSlack, tmp_path: Path
) -> None:
    server.lost.append("chat.startStream")
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "one"))

    async with connected(server, tmp_path) as reborn:
        found = await reborn.find(sought("one"))
        assert found is not None
        final = Edit(key=OTHER, address=at(), receipt=found.external_id, text="one two")
        for _ in range(2):
            assert await reborn.perform(final) == found
    assert texts(server) == ["one two"]
    (message,) = server.messages.values()
    assert message["streaming_state"] == "completed"


async def test_a_post_preview_whose_answer_was_lost_becomes_the_final_message(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.startStream"] = [{"ok": False, "error": "channel_type_not_supported"}]
    server.lost.append("chat.postMessage")
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "one"))
    found = await slack.find(sought("one"))
    assert found is not None
    await slack.perform(Edit(key=OTHER, address=at(), receipt=found.external_id, text="one two"))
    assert texts(server) == ["one two"]


async def test_the_key_proves_a_post(slack: Platform, server: ScriptedSlack) -> None:
    assert await slack.find(sought("here")) is None
    put(server, "here")
    posted = await slack.perform(Post(key=KEY, address=at(), text="here"))
    await slack.perform(Post(key=OTHER, address=at(), text="here"))
    assert await slack.find(sought("here")) == posted


async def test_the_key_proves_a_file(slack: Platform, server: ScriptedSlack) -> None:
    def upload(key: PartId) -> Upload:
        return Upload(key=key, address=at(), name="a.txt", mime="text/plain", data=b"x")

    others = await slack.perform(upload(OTHER))
    assert await slack.find(sought(name="a.txt")) is None
    server.lost.append("files.completeUploadExternal")
    with pytest.raises(Ambiguous):
        await slack.perform(upload(KEY))
    found = await slack.find(sought(name="a.txt", owned=(others.external_id,)))
    assert found == Receipt(external_id=f"{CHANNEL}/F02")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** & <b>", "**bold** & <b>"),
        ("**bold** & <b>", "*bold* &amp; &lt;b&gt;"),
        ("see https://x.org now", "see <https://x.org> now"),
        ("[here](https://x.org)", "<https://x.org|here>"),
        ("- one\n- two", "• one\n• two"),
        ("@here", "@her\u200be"),
    ],
)
async def test_what_slack_shows_of_a_text_is_known_again(
    slack: Platform, server: ScriptedSlack, text: str, shown: str
) -> None:
    there = put(server, shown, streaming_state="in_progress")
    found = await slack.find(sought(text))
    assert found is not None
    assert found.external_id == there


async def test_a_long_text_is_known_by_all_of_it(slack: Platform, server: ScriptedSlack) -> None:
    # A notification shows only the beginning of a text.
    text = "word " * 1_000
    cut = text[:3_000]
    blocks = [{"type": "markdown", "text": f"{text}and more"}]
    other = put(server, cut, blocks=blocks)
    with pytest.raises(Ambiguous):
        await slack.find(sought(text))
    there = put(server, cut, blocks=[{"type": "markdown", "text": text}])
    found = await slack.find(sought(text, owned=(other,)))
    assert found is not None
    assert found.external_id == there


class TestDoubt:
    """Checks that a message which may be the sought one, without a proof, is neither taken for it
    nor called absent."""

    async def test_the_same_text_twice_is_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        first, second = put(server, "here"), put(server, "here")
        with pytest.raises(Ambiguous):
            await slack.find(sought("here"))
        found = await slack.find(sought("here", owned=(first,)))
        assert found == Receipt(external_id=second)

    async def test_the_same_text_at_another_time_is_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        put(server, "here", age_s=900)
        with pytest.raises(Ambiguous):
            await slack.find(sought("here"))
        assert await slack.find(sought("here", ago_s=880)) is not None

    async def test_a_stream_whose_text_slack_may_have_rewritten_is_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        await slack.perform(Post(key=OTHER, address=at(), text="keeps metadata"))
        there = put(server, "rewritten", streaming_state="errored")
        with pytest.raises(Ambiguous) as raised:
            await slack.find(sought("written"))
        assert there in raised.value.message
        assert "look" in raised.value.message
        assert await slack.find(sought("written", owned=(there,))) is None
        assert await slack.find(sought("written", ago_s=900)) is None

    async def test_a_server_that_may_keep_no_metadata_leaves_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        there = put(server, "something else")
        with pytest.raises(Ambiguous):
            await slack.find(sought("here"))
        assert await slack.find(sought("here", owned=(there,))) is None
        assert await slack.find(sought("here", ago_s=900)) is None
        await slack.perform(Post(key=OTHER, address=at(), text="proves that it does"))
        assert await slack.find(sought("here")) is None

    async def test_a_time_that_is_not_known_leaves_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        put(server, "here", streaming_state="in_progress")
        with pytest.raises(Ambiguous):
            await slack.find(Sought(key=KEY, address=at(), text="here"))

    async def test_a_file_that_lost_its_name_is_a_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        nameless = {"id": "F07", "title": "b.txt"}
        put(server, "", files=[nameless])
        assert await slack.find(sought("a text is no file")) is None
        with pytest.raises(Ambiguous):
            await slack.find(sought(name="a.txt"))
        found = await slack.find(sought(name="b.txt"))
        assert found == Receipt(external_id=f"{CHANNEL}/F07")

    async def test_what_another_person_or_bot_has_written_is_no_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        put(server, "here", user=ALICE)
        put(server, "here", user=None, bot_id="B0OTHER")
        assert await slack.find(sought("here")) is None

    async def test_another_channel_or_thread_leaves_no_doubt(
        self, slack: Platform, server: ScriptedSlack
    ) -> None:
        put(server, "here", thread_ts="1700000000.000002")
        put(server, "here", channel="C02")
        assert await slack.find(sought("here")) is None
        assert await slack.find(sought("here", address=at(thread=""))) is None


LIMITED = Bare(
    429,
    json.dumps({"ok": False, "error": "ratelimited"}),
    "application/json",
    {"Retry-After": "7"},
)


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (LIMITED, 7),
        (Bare(503, "<html>", headers={"Retry-After": "3"}), 3),
        (Bare(503, "<html>"), None),
        ({"ok": False, "error": "internal_error"}, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("thread", ["", ROOT])
async def test_what_cannot_be_told_now_can_be_asked_again(
    slack: Platform, server: ScriptedSlack, answer: SlackAnswer, wait_s: float | None, thread: str
) -> None:
    method = "conversations.replies" if thread else "conversations.history"
    server.script[method] = [answer]
    with pytest.raises(Transient) as raised:
        await slack.find(sought("here", address=at(thread=thread)))
    assert raised.value.retry_after_s == wait_s
    assert (raised.value.code == ACCOUNT_WAIT) == (answer is LIMITED)
    assert "again" not in raised.value.message


async def test_find_reads_every_page(slack: Platform, server: ScriptedSlack) -> None:
    page = {"ok": True, "messages": [], "response_metadata": {"next_cursor": "more"}}
    key = {"event_type": "perdure_part", "event_payload": {"key": KEY}}
    ours = {"ts": "2.2", "user": BOT, "metadata": key}
    server.script["conversations.history"] = [page, {"ok": True, "messages": [ours]}]
    channel = at(thread="")

    assert await slack.find(sought(address=channel)) == Receipt(external_id=f"{CHANNEL}/2.2")

    assert server.last("conversations.history")["cursor"] == "more"
    server.script["conversations.history"] = [page] * 10
    with pytest.raises(Ambiguous, match="too much"):
        await slack.find(sought(address=channel))
    server.script["conversations.history"] = [{"ok": False, "error": "missing_scope"}]
    with pytest.raises(Ambiguous, match="missing_scope"):
        await slack.find(sought(address=channel))


async def test_nothing_stands_in_a_thread_that_is_gone(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["conversations.replies"] = [{"ok": False, "error": "thread_not_found"}]
    assert await slack.find(sought("here")) is None


async def test_a_found_stream_is_ended_before_it_is_deleted(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.lost.append("chat.startStream")
    with pytest.raises(Ambiguous):
        await slack.preview(growing(KEY, "one"))
    found = await slack.find(sought("one"))
    assert found is not None
    await slack.perform(Delete(address=at(), receipt=found.external_id))
    assert server.messages == {}
