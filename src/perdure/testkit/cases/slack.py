"""Provides the case for Slack: Socket Mode with `local-slack`."""

import html
import re
from typing import Any, Final, Self

from perdure.domain.address import Address
from perdure.ports.platform.adapter import HookRequest, Platform
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.slack.local_slack import ALICE, BOB, BOT, GENERAL, LocalSlackControl

_ACCOUNT: Final = f"T0TEST/{BOT}"
_PINGS: Final = re.compile(r"<[!@#]\w[^<>]*>|(?<!\w)@(?:here|channel|everyone)\b")


class SlackCase(AdapterCase):
    """Describes Slack to the suite."""

    person, stranger = ALICE, BOB

    def __init__(self, control: LocalSlackControl, make: MakePlatform, *, direct: str) -> None:
        self._control = control
        self._direct = direct
        self._root = ""
        self.settings = self._section()
        super().__init__(make(self.settings), clock=control.server.clock)

    @classmethod
    async def open(cls, control: LocalSlackControl, make: MakePlatform) -> Self:
        """Open the private channel of Alice and the bot."""
        return cls(control, make, direct=await control.direct())

    def _section(self) -> str:
        return section(
            "adapters.slack",
            token=self._control.bot_token,
            app_token=self._control.app_token,
            signing_secret=self._control.signing_secret,
            api_url=self._control.api_url,
            allow=[self.person],
        )

    async def private(self, *, is_stranger: bool = False) -> Address:
        place = await self._control.direct(user=BOB) if is_stranger else self._direct
        return Address(adapter="slack", account=_ACCOUNT, place=place)

    async def group(self) -> Address:
        """Return a thread in a channel, because in channels the bot answers in threads."""
        if not self._root:
            self._root = await self._control.write(GENERAL, "something to talk about")
        return Address(adapter="slack", account=_ACCOUNT, place=GENERAL, thread=self._root)

    async def answered_at(self, external_id: str) -> Address:
        thread = external_id.partition("/")[2]
        return Address(adapter="slack", account=_ACCOUNT, place=GENERAL, thread=thread)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        place = (await self.private(is_stranger=is_stranger)).place
        ts = await self._control.write(place, text, user=_who(is_stranger=is_stranger))
        return f"{place}/{ts}"

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        write = self._control.mention if mention else self._control.write
        return f"{GENERAL}/{await write(GENERAL, text, user=_who(is_stranger=is_stranger))}"

    async def forward(self, text: str) -> str:
        self.has_no("shared messages in local-slack")

    async def forward_to_group(self, text: str) -> str:
        self.has_no("shared messages in local-slack")

    async def edit(self, external_id: str, text: str) -> None:
        await self._control.edit(self._direct, _ts(external_id), text)

    async def delete(self, external_id: str) -> None:
        await self._control.delete(self._direct, _ts(external_id))

    async def send_file(self, name: str, data: bytes) -> str:
        return f"{self._direct}/{await self._control.send_file(self._direct, name, data)}"

    async def click(self, receipt: str, choice: str) -> None:
        buttons = await self._buttons(receipt)
        (action,) = [each["action_id"] for each in buttons if each.get("value") == choice]
        await self._control.click(self._direct, _ts(receipt), action)

    async def reply(self, receipt: str, text: str) -> str:
        self.has_no("word in local-slack's messages about who began their thread")

    async def press(self, receipt: str, number: int) -> None:
        pressed = (await self._buttons(receipt))[number]
        await self._control.click(self._direct, _ts(receipt), pressed["action_id"])

    async def forge(self, receipt: str, data: str) -> None:
        pressed = (await self._buttons(receipt))[0]
        await self._control.press(self._direct, _ts(receipt), {**pressed, "value": data})

    async def buttons(self, receipt: str) -> list[str]:
        return [each["text"]["text"] for each in await self._buttons(receipt)]

    async def _buttons(self, receipt: str) -> list[dict[str, Any]]:
        (shown,) = [each for each in await self._by_bot() if each.id == _ts(receipt)]
        blocks = shown.raw.get("blocks") or []
        return [element for block in blocks for element in block.get("elements", [])]

    async def shown(self, address: Address | None = None) -> list[str]:
        return [_text(each) for each in await self._by_bot(address)]

    async def _by_bot(self, address: Address | None = None) -> list[ShownMessage]:
        where = address or await self.private()
        shown = await self._control.shown(where.place)
        return [each for each in shown if each.author == BOT and each.thread == where.thread]

    async def files(self) -> list[bytes]:
        files = [file for each in await self._by_bot() for file in each.raw.get("files", [])]
        return [await self._content(file) for file in files]

    async def _content(self, file: dict[str, Any]) -> bytes:
        chunks = [chunk async for chunk in self.platform.fetch(file["url_private"])]
        return b"".join(chunks)

    async def marks(self, external_id: str) -> list[str]:
        given = await self._control.reactions(self._direct, _ts(external_id))
        return [name for user, name in given if user == BOT]

    async def pings(self) -> list[str]:
        shown = await self._by_bot()
        texts = [text for each in shown for text in (each.text, _text(each))]
        return [ping for text in texts for ping in _PINGS.findall(text)]

    def legible(self, shown: str) -> str:
        return super().legible(html.unescape(shown))

    def keeps_keys(self) -> None:
        self.has_no("metadata in local-slack's history")

    def forged(self) -> HookRequest:
        headers = {
            "x-slack-request-timestamp": str(self.clock.now_ms() // 1000),
            "x-slack-signature": "v0=" + "0" * 64,
        }
        return HookRequest(method="POST", path="", headers=headers, query={}, body=b"{}")

    def impostor(self) -> Platform:
        self.has_no("check of tokens in local-slack")

    def anew(self) -> Platform:
        self.has_no("second delivery by local-slack")

    async def ready(self) -> None:
        await self._control.wait_connected()


def _who(*, is_stranger: bool) -> str:
    return BOB if is_stranger else ALICE


def _ts(name: str) -> str:
    """Return Slack's own id of a message from an external id."""
    return name.partition("/")[2]


def _text(shown: ShownMessage) -> str:
    """Return a message's Markdown blocks, or its text if it has none."""
    texts = [
        str(block["text"])
        for block in shown.raw.get("blocks", [])
        if block.get("type") == "markdown"
    ]
    return "\n".join(texts) or shown.text
