"""Checks refusals by Slack that another form of the same words can heal: a thread that is gone, and
a rendering that is refused.

The server is this project's own; it refuses with the words that Slack documents.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.adapters.slack.adapter import make
from perdure.adapters.slack.manifest import SlackSettings
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import NotFound, Permanent
from perdure.domain.ids import PartId
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    Edit,
    Platform,
    Post,
    Preview,
    Sought,
    ThreadGone,
    Unrenderable,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.peers.slack.scripted_slack import (
    ALICE,
    APP_TOKEN,
    BOT_TOKEN,
    CHANNEL,
    ScriptedSlack,
    SlackAnswer,
)

CLOCK = SystemClock()
ROOT = "1700000000.000001"
KEY = PartId("stp_one")
MARKS = "# <!channel> **bold** `x` :tada: & [a](https://x.org)\n@here"
SHOWN = "# <!\u200bchannel> **bold** `x` :tada: & [a](https://x.org)\n@her\u200be"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSlack]:
    async with ScriptedSlack(CLOCK) as slack:
        yield slack


@pytest.fixture
async def slack(server: ScriptedSlack, tmp_path: Path) -> AsyncIterator[Platform]:
    settings = SlackSettings(
        token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), api_url=server.api_url
    )
    platform = make(settings, AdapterContext(clock=CLOCK, entropy=SystemEntropy(), folder=tmp_path))
    await platform.connect()
    server.calls.clear()
    yield platform
    await platform.close()


def at(thread: str = ROOT) -> Address:
    return Address(adapter="slack", account="T01/U0BOT", place=CHANNEL, thread=thread, person=ALICE)


def refused(error: str) -> SlackAnswer:
    return {"ok": False, "error": error}


def post(text: str, *, thread: str = ROOT, is_plain: bool = False, choices: str = "") -> Post:
    offered = tuple(choices.split())
    return Post(key=KEY, address=at(thread), text=text, is_plain=is_plain, choices=offered)


PREVIEW = Preview(key=KEY, address=at(), text="one", streaming=Streaming.NATIVE)
FILE = Upload(key=KEY, address=at(), name="a.txt", mime="text/plain", data=b"x")
THREADS = (
    "thread_not_found",
    "invalid_thread_ts",
    "cannot_reply_to_message",
    "restricted_action_non_threadable_channel",
)


@pytest.mark.parametrize("error", THREADS)
async def test_a_thread_that_is_gone_is_told(
    slack: Platform, server: ScriptedSlack, error: str
) -> None:
    server.script["chat.postMessage"] = [refused(error)]
    with pytest.raises(ThreadGone, match=error):
        await slack.perform(post("hello"))
    server.script["chat.startStream"] = [refused(error)]
    with pytest.raises(ThreadGone, match=error):
        await slack.preview(PREVIEW)
    server.script["files.completeUploadExternal"] = [refused(error)]
    with pytest.raises(ThreadGone, match=error):
        await slack.perform(FILE)
    assert len(server.made("chat.postMessage", "chat.startStream")) == 2
    assert server.messages == {}


async def test_only_a_thread_can_be_gone(slack: Platform, server: ScriptedSlack) -> None:
    server.script["chat.postMessage"] = [refused("thread_not_found"), refused("is_archived")]
    with pytest.raises(Permanent) as raised:
        await slack.perform(post("hello", thread=""))
    assert not isinstance(raised.value, ThreadGone)
    with pytest.raises(Permanent, match="unarchive"):
        await slack.perform(post("hello"))


RENDERINGS = ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "invalid_markdown")


@pytest.mark.parametrize("error", RENDERINGS)
async def test_a_rendering_that_is_refused_in_every_form_is_told(
    slack: Platform, server: ScriptedSlack, error: str
) -> None:
    server.script["chat.postMessage"] = [refused(error)] * 2
    with pytest.raises(Unrenderable, match=error):
        await slack.perform(post("**hello**"))
    assert len(server.made("chat.postMessage")) == 2

    shown = await slack.perform(post("before"))
    edit = Edit(key=KEY, address=at(), receipt=shown.external_id, text="**after**")
    server.script["chat.update"] = [refused(error)] * 2
    with pytest.raises(Unrenderable, match=error):
        await slack.perform(edit)
    assert [each.text for each in await server.shown(CHANNEL)] == ["before"]


async def test_the_stream_that_ends_in_words_that_are_refused_is_told(
    slack: Platform, server: ScriptedSlack
) -> None:
    receipt = await slack.preview(PREVIEW)
    server.script["chat.stopStream"] = [refused("invalid_blocks")]
    edit = Edit(key=KEY, address=at(), receipt=receipt, text="one **two**", shown="one")
    with pytest.raises(Unrenderable):
        await slack.perform(edit)
    plain = Edit(
        key=KEY, address=at(), receipt=receipt, text="one **two**", shown="one", is_plain=True
    )
    await slack.perform(plain)
    (shown,) = await server.shown(CHANNEL)
    assert (shown.text, shown.raw["streaming_state"]) == ("one **two**", "completed")


async def test_a_text_that_is_too_long_is_no_matter_of_rendering(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.postMessage"] = [refused("msg_too_long")]
    with pytest.raises(Permanent) as raised:
        await slack.perform(post("hello"))
    assert not isinstance(raised.value, Unrenderable)


async def test_plain_text_is_shown_letter_by_letter(slack: Platform, server: ScriptedSlack) -> None:
    receipt = await slack.perform(post(MARKS, is_plain=True))

    sent = server.last("chat.postMessage")
    assert sent["mrkdwn"] == "false"
    assert "<" not in sent["text"]
    letters = {"type": "plain_text", "text": SHOWN, "emoji": False}
    assert sent["blocks"] == [{"type": "section", "text": letters}]
    assert sent["metadata"]["event_payload"] == {"key": KEY}
    sought = Sought(key=KEY, address=at(), text=MARKS, tried_at=CLOCK.now_ms())
    assert await slack.find(sought) == receipt


async def test_plain_text_replaces_what_was_shown(slack: Platform, server: ScriptedSlack) -> None:
    receipt = (await slack.perform(post("before"))).external_id
    edit = Edit(
        key=KEY, address=at(), receipt=receipt, text=MARKS, is_plain=True, choices=("Yes", "No")
    )
    await slack.perform(edit)
    letters, actions = server.last("chat.update")["blocks"]
    assert letters["text"]["type"] == "plain_text"
    assert [each["value"] for each in actions["elements"]] == ["Yes", "No"]
    assert [each.text for each in await server.shown(CHANNEL)] == [SHOWN]


async def test_a_server_that_takes_no_blocks_gets_the_bare_text(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.postMessage"] = [refused("invalid_blocks")]
    await slack.perform(post("1 < 2", is_plain=True, choices="Yes No"))
    sent = server.last("chat.postMessage")
    assert "blocks" not in sent
    assert sent["text"] == "1 &lt; 2\n\n(Answer: Yes / No)"
    assert sent["mrkdwn"] == "false"


async def test_an_edit_to_the_bare_text_removes_the_buttons(
    slack: Platform, server: ScriptedSlack
) -> None:
    """Check that blocks are emptied and not left out: Slack may keep what is left out."""
    receipt = (await slack.perform(post("Sure?", choices="Yes No"))).external_id
    assert len((await server.shown(CHANNEL))[0].raw["blocks"]) == 2
    server.script["chat.update"] = [refused("invalid_blocks")]
    await slack.perform(Edit(key=KEY, address=at(), receipt=receipt, text="Yes.", is_plain=True))
    assert server.last("chat.update")["blocks"] == []
    assert (await server.shown(CHANNEL))[0].raw["blocks"] == []


async def test_a_long_plain_text_arrives_whole(slack: Platform, server: ScriptedSlack) -> None:
    text = "\n".join(["x" * 700] * 10 + ["&" * 3_500])
    await slack.perform(post(text, is_plain=True))
    sent = server.last("chat.postMessage")
    pieces = [block["text"]["text"] for block in sent["blocks"]]
    assert max(map(len, pieces)) <= 3_000
    assert "".join(pieces).replace("\n", "") == text.replace("\n", "")
    assert len(sent["text"]) <= 3_000


async def test_an_edit_of_what_is_gone_is_no_matter_of_threads(
    slack: Platform, server: ScriptedSlack
) -> None:
    server.script["chat.update"] = [refused("thread_not_found")]
    with pytest.raises(NotFound):
        await slack.perform(Edit(key=KEY, address=at(), receipt=f"{CHANNEL}/1.1", text="x"))
