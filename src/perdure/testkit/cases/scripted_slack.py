"""Provides the case for those parts of Slack that no imitation by others has: streams, metadata,
tokens, redelivery."""

import hmac
import json
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import msgspec

from perdure.domain.address import Address
from perdure.ports.platform.adapter import HookRequest, Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.peers.slack.scripted_slack import (
    ALICE,
    APP_TOKEN,
    BOT,
    BOT_TOKEN,
    CHANNEL,
    PRIVATE,
    TEAM,
    Bare,
    ScriptedSlack,
)

_BOB: Final = "U0BOB"
_PRIVATE_OF_BOB: Final = "D0BOB"
_SIGNING_SECRET: Final = "shh"  # noqa: S105 it opens nothing
_ROOT: Final = "1.000001"
_REFUSED: Final = {"ok": False, "error": "invalid_auth"}
_NO_THREAD: Final = {"ok": False, "error": "thread_not_found"}
_NO_RENDERING: Final = {"ok": False, "error": "invalid_blocks"}
# In a thread, answers grow as streams; elsewhere they grow as posts that are changed.
_METHODS: Final[Mapping[PlatformCall, tuple[str, ...]]] = {
    PlatformCall.POST: ("chat.postMessage",),
    PlatformCall.EDIT: ("chat.update",),
    PlatformCall.DELETE: ("chat.delete",),
    PlatformCall.UPLOAD: ("files.getUploadURLExternal",),
    PlatformCall.REACT: ("reactions.add",),
    PlatformCall.PREVIEW: ("chat.startStream", "chat.postMessage"),
    PlatformCall.GROW: ("chat.appendStream", "chat.update"),
    PlatformCall.FIND: ("conversations.history",),
    PlatformCall.CONNECT: ("auth.test",),
}


class ScriptedSlackCase(AdapterCase):
    """Describes the scripted Slack to the suite."""

    person, stranger = ALICE, _BOB

    def __init__(self, slack: ScriptedSlack, make: MakePlatform, *, clock: Clock) -> None:
        self._slack = slack
        self._make = make
        self._numbers = count(1)
        self.settings = section(
            "adapters.slack",
            token=BOT_TOKEN,
            app_token=APP_TOKEN,
            signing_secret=_SIGNING_SECRET,
            api_url=slack.api_url,
            allow=[self.person],
        )
        super().__init__(make(self.settings), clock=clock)

    async def private(self, *, is_stranger: bool = False) -> Address:
        place = _PRIVATE_OF_BOB if is_stranger else PRIVATE
        return Address(adapter="slack", account=f"{TEAM}/{BOT}", place=place)

    async def group(self) -> Address:
        """Return a thread in a channel, where answers grow as Slack's own streams."""
        return Address(adapter="slack", account=f"{TEAM}/{BOT}", place=CHANNEL, thread=_ROOT)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        place = (await self.private(is_stranger=is_stranger)).place
        ts = await self._slack.write(place, text, user=_who(is_stranger=is_stranger))
        return f"{place}/{ts}"

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        said = f"<@{BOT}> {text}" if mention else text
        ts = await self._slack.write(CHANNEL, said, user=_who(is_stranger=is_stranger))
        return f"{CHANNEL}/{ts}"

    async def forward(self, text: str) -> str:
        return f"{PRIVATE}/{await self._slack.write(PRIVATE, '', attachments=[_shared(text)])}"

    async def forward_to_group(self, text: str) -> str:
        shared = _shared(f"<@{BOT}> {text}")
        return f"{CHANNEL}/{await self._slack.write(CHANNEL, '', attachments=[shared])}"

    async def edit(self, external_id: str, text: str) -> None:
        before = self._message(external_id)
        edited = {"user": ALICE, "ts": f"2.{next(self._numbers):06}"}
        after = {**before, "text": text, "edited": edited}
        self._slack.messages[before["ts"]] = after
        await self._event("message_changed", message=after, previous_message=before)

    async def delete(self, external_id: str) -> None:
        before = self._message(external_id)
        del self._slack.messages[before["ts"]]
        await self._event("message_deleted", deleted_ts=before["ts"], previous_message=before)

    async def send_file(self, name: str, data: bytes) -> str:
        """Let Alice send a file. Slack tells the bot about the file in the message that it came
        with."""
        self._slack.files[name] = (200, "application/octet-stream", data)
        file = {"id": "F1", "name": name, "url_private": f"{self._slack.url}/files/{name}"}
        ts = f"3.{next(self._numbers):06}"
        said = {"ts": ts, "user": ALICE, "text": "", "files": [file]}
        await self._event("file_share", **said)
        return f"{PRIVATE}/{ts}"

    async def reply(self, receipt: str, text: str) -> str:
        thread = self._message(receipt)["ts"]
        ts = await self._slack.write(PRIVATE, text, thread=thread, parent_user_id=BOT)
        return f"{PRIVATE}/{ts}"

    async def click(self, receipt: str, choice: str) -> None:
        buttons = self._buttons(receipt)
        await self._click(receipt, next(each for each in buttons if each["value"] == choice))

    async def press(self, receipt: str, number: int) -> None:
        await self._click(receipt, self._buttons(receipt)[number])

    async def forge(self, receipt: str, data: str) -> None:
        await self._click(receipt, {**self._buttons(receipt)[0], "value": data})

    async def _click(self, receipt: str, button: dict[str, Any]) -> None:
        """Tell the bot of a press. Slack gives each press a time of its own."""
        pressed = {each: button[each] for each in ("action_id", "value", "type")}
        action = {**pressed, "action_ts": f"5.{next(self._numbers):06}"}
        click = {
            "type": "block_actions",
            "user": {"id": ALICE, "name": "alice"},
            "channel": {"id": PRIVATE},
            "message": self._message(receipt),
            "actions": [action],
        }
        await self._slack.deliver("interactive", click)

    async def buttons(self, receipt: str) -> list[str]:
        return [each["text"]["text"] for each in self._buttons(receipt)]

    def _buttons(self, receipt: str) -> list[dict[str, Any]]:
        blocks = self._message(receipt).get("blocks", [])
        return [element for block in blocks for element in block.get("elements", [])]

    async def garble(self) -> None:
        await self._deliver({"type": "message", "channel": 7})

    def _message(self, external_id: str) -> dict[str, Any]:
        return self._slack.messages[external_id.partition("/")[2]]

    async def _event(self, subtype: str, **fields: object) -> None:
        event = {"type": "message", "subtype": subtype, "channel": PRIVATE, **fields}
        await self._deliver(event)

    async def _deliver(self, event: dict[str, Any]) -> None:
        await self._slack.deliver("events_api", {"type": "event_callback", "event": event})

    async def shown(self, address: Address | None = None) -> list[str]:
        place = (address or await self.private()).place
        return [each.text for each in await self._slack.shown(place)]

    def lookups(self) -> list[str]:
        return [params["user"] for method, params in self._slack.calls if method == "users.info"]

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        self._answer(call, Bare(429, headers={"Retry-After": str(seconds)}))

    def fail_next(self, call: PlatformCall) -> None:
        self._answer(call, Bare(503))

    async def lose_thread(self) -> Address:
        for method in ("chat.postMessage", "chat.startStream", "files.completeUploadExternal"):
            self._slack.script[method] = [_NO_THREAD]
        return msgspec.structs.replace(await self.group(), thread="1.999999")

    def refuse_rendering(self) -> None:
        """Refuse the next text twice: as Markdown, and in Slack's older form."""
        for call in (PlatformCall.POST, PlatformCall.EDIT):
            self._answer(call, _NO_RENDERING, _NO_RENDERING)

    def _answer(self, call: PlatformCall, *answers: dict[str, Any] | Bare) -> None:
        for method in _METHODS[call]:
            self._slack.script[method] = list(answers)

    def impostor(self) -> Platform:
        self._slack.script["auth.test"] = [_REFUSED]
        return self._make(self.settings)

    def hooked(self, text: str) -> HookRequest:
        ts = f"4.{next(self._numbers):06}"
        event = {"type": "message", "channel": PRIVATE, "user": ALICE, "text": text, "ts": ts}
        body = json.dumps({"type": "event_callback", "event": event}).encode()
        at = str(self.clock.now_ms() // 1000)
        digest = hmac.digest(_SIGNING_SECRET.encode(), f"v0:{at}:".encode() + body, "sha256")
        headers = {
            "content-type": "application/json",
            "x-slack-request-timestamp": at,
            "x-slack-signature": f"v0={digest.hex()}",
        }
        return HookRequest(method="POST", path="", headers=headers, query={}, body=body)

    def anew(self) -> Platform:
        return self._make(self.settings)

    async def ready(self) -> None:
        await self.until(lambda: bool(self._slack.connections), "the socket")


def _who(*, is_stranger: bool) -> str:
    return _BOB if is_stranger else ALICE


def _shared(text: str) -> dict[str, Any]:
    """Return a message of another channel, as Slack attaches it to the message that forwards it."""
    return {
        "is_share": True,
        "is_msg_unfurl": True,
        "author_id": _BOB,
        "author_name": "Bob",
        "channel_id": "C0ELSEWHERE",
        "from_url": "https://team.slack.example/archives/C0ELSEWHERE/p1",
        "text": text,
        "fallback": f"[January 1st, 2026 1:00 PM] bob: {text}",
    }
