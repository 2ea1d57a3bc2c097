"""Provides the case for Telegram, with the testkit's own Bot API server."""

import re
from collections.abc import Mapping
from itertools import count
from typing import Final

from perdure.domain.address import Address
from perdure.ports.platform.adapter import HookRequest, Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault

ADA: Final = 42
BOB: Final = 43
CLUB: Final = -100123
_MOVED: Final = -100456
_TOPIC: Final = 7
_NAME: Final = "@perdure_bot"
_OTHER: Final = "@other_bot"
_METHODS: Final[Mapping[PlatformCall, tuple[str, ...]]] = {
    PlatformCall.POST: ("sendMessage",),
    PlatformCall.EDIT: ("editMessageText",),
    PlatformCall.DELETE: ("deleteMessage",),
    PlatformCall.UPLOAD: ("sendDocument",),
    PlatformCall.REACT: ("setMessageReaction",),
    PlatformCall.PREVIEW: ("sendMessageDraft", "sendMessage"),
    PlatformCall.GROW: ("editMessageText",),
    PlatformCall.TYPING: ("sendChatAction",),
    PlatformCall.CONNECT: ("sendRichMessage",),
}
_WRITER: Final = {"id": BOB, "is_bot": False, "first_name": "Bob"}
_ORIGIN: Final = {"forward_origin": {"type": "user", "date": 1, "sender_user": _WRITER}}
# Matches what Telegram takes for the name of a person, wherever it stands in a text.
_USERNAME: Final = re.compile(r"(?<![\w@/])@\w{3,32}")


class TelegramCase(AdapterCase):
    """Describes Telegram to the suite."""

    person, stranger = str(ADA), str(BOB)

    def __init__(self, api: BotApi, make: MakePlatform, *, clock: Clock) -> None:
        self._api = api
        self._make = make
        self._edits = count(1)
        self.settings = self._section(api.token)
        super().__init__(make(self.settings), clock=clock)

    def _section(self, token: str) -> str:
        return section("adapters.telegram", token=token, api_url=self._api.url, allow=[self.person])

    async def private(self, *, is_stranger: bool = False) -> Address:
        return _at(BOB if is_stranger else ADA)

    async def group(self) -> Address:
        return _at(CLUB)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        chat = BOB if is_stranger else ADA
        return f"{chat}/{self._api.write(chat, text)}"

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        person = {"id": BOB if is_stranger else ADA, "is_bot": False, "first_name": "Somebody"}
        marks = [{"type": "mention", "offset": 0, "length": len(_NAME)}] if mention else []
        said = f"{_NAME} {text}" if mention else text
        number = self._api.write(CLUB, said, entities=marks, **{"from": person})
        return f"{CLUB}/{number}"

    async def reply_in_group(self, external_id: str, text: str) -> str:
        earlier = self._api.chats.message(CLUB, _number(external_id))
        return self._by_ada(f"{_NAME} {text}".strip(), _NAME, reply_to_message=earlier)

    async def call_another_bot(self, text: str) -> str:
        return self._by_ada(f"{_OTHER} {text}", _OTHER)

    async def command_another_bot(self, command: str) -> None:
        self._by_ada(f"{command}{_OTHER}", f"{command}{_OTHER}", kind="bot_command")

    def _by_ada(self, text: str, marked: str, *, kind: str = "mention", **fields: object) -> str:
        """Let the person write in the group, with a mark at the beginning. Returns the external
        id."""
        person = {"id": ADA, "is_bot": False, "first_name": "Ada"}
        marks = [{"type": kind, "offset": 0, "length": len(marked)}]
        number = self._api.write(CLUB, text, entities=marks, **{"from": person, **fields})
        return f"{CLUB}/{number}"

    async def forward(self, text: str) -> str:
        return f"{ADA}/{self._api.write(ADA, text, **_ORIGIN)}"

    async def forward_to_group(self, text: str) -> str:
        marks = [{"type": "mention", "offset": 0, "length": len(_NAME)}]
        person = {"id": ADA, "is_bot": False, "first_name": "Ada"}
        fields = {"entities": marks, "from": person, **_ORIGIN}
        return f"{CLUB}/{self._api.write(CLUB, f'{_NAME} {text}', **fields)}"

    async def edit(self, external_id: str, text: str) -> None:
        self._api.edit(ADA, _number(external_id), text, edit_date=next(self._edits))

    async def send_file(self, name: str, data: bytes) -> str:
        stored = {"file_id": self._api.chats.add_file(data, name=name), "file_unique_id": name}
        about = {**stored, "file_size": len(data)}
        if name.endswith(".png"):
            return f"{ADA}/{self._api.write(ADA, photo=[{**about, 'width': 1, 'height': 1}])}"
        document = {**about, "file_name": name, "mime_type": "text/plain"}
        return f"{ADA}/{self._api.write(ADA, document=document)}"

    async def send_sticker(self, data: bytes) -> str:
        stored = {"file_id": self._api.chats.add_file(data, name="s.webp"), "file_unique_id": "s1"}
        sticker = {**stored, "emoji": "👋", "set_name": "Hands", "width": 1, "height": 1}
        return f"{ADA}/{self._api.write(ADA, sticker=sticker)}"

    async def garble(self) -> None:
        self._api.push(message={"message_id": "no number", "chat": ADA})

    async def click(self, receipt: str, choice: str) -> None:
        self._api.click(ADA, _number(receipt), choice)

    async def reply(self, receipt: str, text: str) -> str:
        answered = self._api.chats.message(ADA, _number(receipt))
        return f"{ADA}/{self._api.write(ADA, text, reply_to_message=answered)}"

    async def press(self, receipt: str, number: int) -> None:
        await self.forge(receipt, self._buttons(receipt)[number]["callback_data"])

    async def forge(self, receipt: str, data: str) -> None:
        self._api.press(ADA, _number(receipt), data)

    async def buttons(self, receipt: str) -> list[str]:
        return [button["text"] for button in self._buttons(receipt)]

    def _buttons(self, receipt: str) -> list[dict[str, str]]:
        return self._api.chats.buttons(ADA, _number(receipt))

    async def shown(self, address: Address | None = None) -> list[str]:
        return [_text(each) for each in await self._by_bot(address)]

    async def _by_bot(self, address: Address | None = None) -> list[ShownMessage]:
        return await self._api.shown(int((address or await self.private()).place))

    async def files(self) -> list[bytes]:
        raws = [each.raw for each in await self._by_bot()]
        files = [
            raw["photo"][-1] if "photo" in raw else raw.get("voice") or raw["document"]
            for raw in raws
        ]
        return [self._api.chats.files[file["file_id"]] for file in files]

    async def marks(self, external_id: str) -> list[str]:
        given = self._api.chats.reactions.get((ADA, _number(external_id)), [])
        return [reaction["emoji"] for reaction in given]

    async def pings(self) -> list[str]:
        return [name for text in await self.shown() for name in _USERNAME.findall(text)]

    def forged(self) -> HookRequest:
        headers = {"x-telegram-bot-api-secret-token": "a guess"}
        return HookRequest(method="POST", path="updates", headers=headers, query={}, body=b"{}")

    def impostor(self) -> Platform:
        return self._make(self._section("700:NOT-THE-TOKEN"))

    def anew(self) -> Platform:
        return self._make(self.settings)

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        for method in _METHODS[call]:
            self._api.fail(method, BotApiFault(status=429, retry_after=seconds))

    async def lose_thread(self) -> Address:
        self._api.chats.lost_threads.add((CLUB, _TOPIC))
        return Address(adapter="telegram", account="700", place=str(CLUB), thread=str(_TOPIC))

    def refuse_rendering(self) -> None:
        self._api.chats.refuses_marks = True

    async def migrate(self, *, keeps_messages: bool) -> Address:
        self._api.migrate(CLUB, _MOVED, keeps_messages=keeps_messages)
        return _at(_MOVED)

    async def quiet_week(self) -> None:
        await self.until(lambda: not self._api.updates, "the acknowledgement of what came")
        self._api.pass_a_quiet_week()

    async def ready(self) -> None:
        """Wait for the first poll. The server answers it only when an update comes, so nothing else
        shows that the bot is connected."""
        await self.until(lambda: bool(self._api.made("getUpdates")), "the first poll")


def _at(chat: int) -> Address:
    return Address(adapter="telegram", account="700", place=str(chat))


def _number(name: str) -> int:
    """Return the message's own number from an external id."""
    return int(name.partition("/")[2])


def _text(shown: ShownMessage) -> str:
    """Return the Markdown of a rich message, or the text of another."""
    rich = shown.raw.get("rich_message")
    return str(rich["markdown"]) if rich else shown.text
