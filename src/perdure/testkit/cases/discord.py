"""Provides the case for Discord: simcord's model of it behind real sockets."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from simcord.backend.models import Channel, Message, User

from perdure.domain.address import Address
from perdure.ports.platform.adapter import Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer
from perdure.testkit.peers.shown import ShownMessage

_ROUTES: Final[Mapping[PlatformCall, tuple[str, str]]] = {
    PlatformCall.POST: ("POST", "*/messages"),
    PlatformCall.EDIT: ("PATCH", "*/messages/*"),
    PlatformCall.DELETE: ("DELETE", "*/messages/*"),
    PlatformCall.UPLOAD: ("POST", "*/messages"),
    PlatformCall.REACT: ("GET", "*/messages/*"),
    PlatformCall.PREVIEW: ("POST", "*/messages"),
    PlatformCall.GROW: ("PATCH", "*/messages/*"),
    PlatformCall.TYPING: ("POST", "*/typing"),
    PlatformCall.FIND: ("GET", "*/messages"),
    PlatformCall.CONNECT: ("GET", "/users/@me"),
}
_INVALID_FORM: Final = 50035
# A backslash takes the meaning from the sign after it, and is not shown itself.
_ESCAPED: Final = re.compile(r"\\([^A-Za-z0-9\s])")


class DiscordCase(AdapterCase):
    """Describes Discord to the suite. `alice` is the person, and `bob` the stranger."""

    def __init__(self, server: SimcordServer, make: MakePlatform, *, clock: Clock) -> None:
        self._server = server
        server.keep_our_time(clock)
        self._make = make
        self.person, self.stranger = str(server.alice.id), str(server.bob.id)
        self.settings = self._section(TOKEN)
        super().__init__(make(self.settings), clock=clock)

    def _section(self, token: str) -> str:
        return section(
            "adapters.discord",
            token=token,
            api_url=self._server.api_url,
            cdn_url=self._server.cdn_url,
            allow=[self.person],
        )

    async def private(self, *, is_stranger: bool = False) -> Address:
        return self._at(self._server.direct(self._who(is_stranger=is_stranger)))

    async def group(self) -> Address:
        return self._at(self._server.general)

    def _at(self, channel: Channel) -> Address:
        return Address(adapter="discord", account=self._server.bot, place=str(channel.id))

    def _who(self, *, is_stranger: bool) -> User:
        return self._server.bob if is_stranger else self._server.alice

    @property
    def _direct(self) -> Channel:
        return self._server.direct(self._server.alice)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        who = self._who(is_stranger=is_stranger)
        channel = self._server.direct(who)
        return f"{channel.id}/{self._server.write(who, channel, text)}"

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        channel, who = self._server.general, self._who(is_stranger=is_stranger)
        said = f"<@{self._server.bot}> {text}" if mention else text
        return f"{channel.id}/{self._server.write(who, channel, said)}"

    async def reply_in_group(self, external_id: str, text: str) -> str:
        said, channel = f"<@{self._server.bot}> {text}", self._server.general
        answered = _number(external_id)
        written = self._server.write(self._server.alice, channel, said, reply_to=answered)
        return f"{channel.id}/{written}"

    async def call_another_bot(self, text: str) -> str:
        robot, channel = self._server.person("robot", is_bot=True), self._server.general
        said = f"<@{robot.id}> {text}"
        return f"{channel.id}/{self._server.write(self._server.alice, channel, said)}"

    async def forward(self, text: str) -> str:
        return self._forward(self._direct, text)

    async def forward_to_group(self, text: str) -> str:
        return self._forward(self._server.general, f"<@{self._server.bot}> {text}")

    def _forward(self, channel: Channel, text: str) -> str:
        elsewhere = self._server.channel("elsewhere")
        written = self._server.write(self._server.bob, elsewhere, text)
        passed_on = self._server.forward(self._server.alice, channel, elsewhere, written)
        return f"{channel.id}/{passed_on}"

    async def edit(self, external_id: str, text: str) -> None:
        self._server.edit(self._direct, _number(external_id), text)

    async def delete(self, external_id: str) -> None:
        self._server.delete(self._direct, _number(external_id))

    async def send_file(self, name: str, data: bytes) -> str:
        channel = self._direct
        written = self._server.write(self._server.alice, channel, "", files=[(name, data)])
        return f"{channel.id}/{written}"

    async def send_sticker(self, data: bytes) -> str:
        channel = self._direct
        return f"{channel.id}/{self._server.stick(self._server.alice, channel, 'Wave', data)}"

    async def garble(self) -> None:
        self._server.world.emit("MESSAGE_CREATE", {"id": {}, "channel_id": str(self._direct.id)})

    async def click(self, receipt: str, choice: str) -> None:
        self._server.click(self._server.alice, self._direct, _number(receipt), choice)

    async def reply(self, receipt: str, text: str) -> str:
        channel, answered = self._direct, _number(receipt)
        written = self._server.write(self._server.alice, channel, text, reply_to=answered)
        return f"{channel.id}/{written}"

    async def press(self, receipt: str, number: int) -> None:
        await self.forge(receipt, self._buttons(receipt)[number]["custom_id"])

    async def forge(self, receipt: str, data: str) -> None:
        self._server.press(self._server.alice, self._direct, _number(receipt), data)

    async def buttons(self, receipt: str) -> list[str]:
        return [button["label"] for button in self._buttons(receipt)]

    def _buttons(self, receipt: str) -> list[dict[str, Any]]:
        return self._server.buttons(self._direct, _number(receipt))

    async def shown(self, address: Address | None = None) -> list[str]:
        return [each.text for each in await self._by_bot(address)]

    async def _by_bot(self, address: Address | None = None) -> list[ShownMessage]:
        where = address or await self.private()
        place = int(where.thread or where.place)
        shown = self._server.shown(self._server.world.channels[place])
        return [each for each in shown if each.author == self._server.bot]

    async def files(self) -> list[bytes]:
        files = [file for each in await self._by_bot() for file in each.raw["attachments"]]
        stored = [self._server.world.cdn.get(file["url"]) for file in files]
        return [data for data in stored if data is not None]

    async def marks(self, external_id: str) -> list[str]:
        stored = self._server.world.get_message(self._direct.id, int(_number(external_id)))
        bot = self._server.world.bot_user.id
        return [str(each.emoji) for each in stored.reactions if bot in each.user_ids]

    async def pings(self) -> list[str]:
        ids = [int(each.id) for each in await self._by_bot()]
        stored = [self._server.world.get_message(self._direct.id, each) for each in ids]
        return [ping for message in stored for ping in _pinged(message)]

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        self._server.fail(*_ROUTES[call], 429, retry_after_s=seconds)

    def fail_next(self, call: PlatformCall) -> None:
        self._server.fail(*_ROUTES[call], 503)

    async def lose_thread(self) -> Address:
        thread = self._server.thread(self._server.general, "boats")
        self._server.world.delete_channel(thread.id)
        return msgspec.structs.replace(await self.group(), thread=str(thread.id))

    def refuse_rendering(self) -> None:
        errors = {"content": {"_errors": [{"code": "BASE_TYPE_BAD", "message": "no"}]}}
        for call in (PlatformCall.POST, PlatformCall.EDIT):
            self._server.fail(*_ROUTES[call], 400, code=_INVALID_FORM, errors=errors)

    def legible(self, shown: str) -> str:
        return super().legible(_ESCAPED.sub(r"\1", shown))

    def impostor(self) -> Platform:
        return self._make(self._section("not-the-token"))

    def anew(self) -> Platform:
        return self._make(self.settings)

    async def ready(self) -> None:
        """Wait until the bot is online and has put its commands on the menu. It does that once it
        hears events."""
        server = self._server
        await self.until(lambda: server.gateway.connected == 1, "the bot to come online")
        await self.until(lambda: bool(server.world.commands), "the bot's commands")


def _number(name: str) -> str:
    """Return the message's own id from an external id."""
    return name.partition("/")[2]


def _pinged(message: Message) -> list[str]:
    """Return whom a message notifies."""
    called = [*message.ping_user_ids, *message.ping_role_ids]
    return [*map(str, called), *(["everyone"] if message.mention_everyone else [])]
