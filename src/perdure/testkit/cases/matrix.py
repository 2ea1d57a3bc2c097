"""Provides the case for Matrix: a bot, two people, and the rooms that they share on Synapse."""

from collections.abc import Mapping
from typing import Final, Self

import msgspec

from perdure.domain.address import Address
from perdure.ports.platform.adapter import Platform
from perdure.testkit.cases.section import MakePlatform, section
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.peers.gate import PeerGate
from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.matrix.synapse import MatrixControl
from perdure.testkit.peers.shown import ShownMessage

_HTML = "formatted_body"
_REQUESTS: Final[Mapping[PlatformCall, tuple[str, str]]] = {
    PlatformCall.POST: ("PUT", "*/send/*"),
    PlatformCall.EDIT: ("GET", "*/event/*"),
    PlatformCall.DELETE: ("PUT", "*/redact/*"),
    PlatformCall.UPLOAD: ("POST", "*/upload"),
    PlatformCall.REACT: ("GET", "*/relations/*"),
    PlatformCall.PREVIEW: ("PUT", "*/send/*"),
    PlatformCall.GROW: ("PUT", "*/send/*"),
    PlatformCall.TYPING: ("PUT", "*/typing/*"),
    PlatformCall.CONNECT: ("GET", "*/whoami"),
}


class MatrixCase(AdapterCase):
    """Describes Matrix to the suite. `alice` is the person, and `bob` the stranger. Synapse cannot
    be told what to refuse, so refusals come from the `gate` that the bot's requests pass."""

    def __init__(
        self,
        control: MatrixControl,
        make: MakePlatform,
        *,
        bot: MatrixPerson,
        alice: MatrixPerson,
        room: str,
        gate: PeerGate | None = None,
    ) -> None:
        self._control = control
        self._gate = gate
        self._make = make
        self._bot = bot
        self._people = {"alice": alice}
        self._rooms = {"alice": room}
        self.person = alice.user_id
        self._sticker = ""
        self.settings = self._section(bot.token)
        super().__init__(make(self.settings), clock=control.server.clock)

    @classmethod
    async def open(
        cls, control: MatrixControl, make: MakePlatform, *, gate: PeerGate | None = None
    ) -> Self:
        """Register the bot and Alice, and open their private room."""
        bot, alice = await control.person("bot"), await control.person("alice")
        room = await together(bot, alice)
        return cls(control, make, gate=gate, bot=bot, alice=alice, room=room)

    def _section(self, token: str) -> str:
        return section(
            "adapters.matrix",
            homeserver=self._gate.url if self._gate else self._control.url,
            user=self._bot.user_id,
            token=token,
            allow=[self.person],
        )

    async def private(self, *, is_stranger: bool = False) -> Address:
        return self._at(await self._private_room(is_stranger=is_stranger))

    async def _private_room(self, *, is_stranger: bool = False) -> str:
        if is_stranger and "bob" not in self._rooms:
            bob = await self._who(is_stranger=True)
            self._rooms["bob"] = await together(self._bot, bob)
        return self._rooms["bob" if is_stranger else "alice"]

    async def group(self) -> Address:
        if "club" not in self._rooms:
            bob = await self._who(is_stranger=True)
            self._rooms["club"] = await together(self._bot, self._alice, bob)
        return self._at(self._rooms["club"])

    def _at(self, room: str) -> Address:
        return Address(adapter="matrix", account=self._bot.user_id, place=room)

    @property
    def _alice(self) -> MatrixPerson:
        return self._people["alice"]

    async def _who(self, *, is_stranger: bool) -> MatrixPerson:
        """Return the person or the stranger. Bob is registered only when a test needs him, because
        that takes a while and most tests need only Alice."""
        if is_stranger and "bob" not in self._people:
            bob = self._people["bob"] = await self._control.person("bob")
            self.stranger = bob.user_id
        return self._people["bob" if is_stranger else "alice"]

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        room = await self._private_room(is_stranger=is_stranger)
        who = await self._who(is_stranger=is_stranger)
        return await who.write(room, text)

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        room, me = (await self.group()).place, self._bot.user_id
        name = me.removeprefix("@").partition(":")[0]
        who = await self._who(is_stranger=is_stranger)
        if not mention:
            return await who.write(room, text)
        return await who.write(room, f"{name}: {text}", mention=me)

    async def reply_in_group(self, external_id: str, text: str) -> str:
        room, me = (await self.group()).place, self._bot.user_id
        name = me.removeprefix("@").partition(":")[0]
        return await self._alice.write(
            room, f"{name}: {text}".strip(), mention=me, reply_to=external_id
        )

    async def forward(self, text: str) -> str:
        room = await self._private_room()
        return await self._alice.forward(room, text, author="@bob:elsewhere")

    async def forward_to_group(self, text: str) -> str:
        room, me = (await self.group()).place, self._bot.user_id
        return await self._alice.forward(room, f"{me}: {text}", author="@bob:elsewhere", mention=me)

    async def edit(self, external_id: str, text: str) -> None:
        await self._alice.edit(await self._private_room(), external_id, text)

    async def delete(self, external_id: str) -> None:
        await self._alice.delete(await self._private_room(), external_id)

    async def send_file(self, name: str, data: bytes) -> str:
        kind = "image/png" if name.endswith(".png") else "text/plain"
        return await self._alice.send_file(await self._private_room(), name, data, kind)

    async def send_sticker(self, data: bytes) -> str:
        if not self._sticker:
            self._sticker = await self._alice.upload("wave.png", data, "image/png")
        return await self._alice.send_sticker(await self._private_room(), "Wave", self._sticker)

    async def reply(self, receipt: str, text: str) -> str:
        return await self._alice.write(await self._private_room(), text, reply_to=receipt)

    async def garble(self) -> None:
        room = await self._private_room()
        path = f"/_matrix/client/v3/rooms/{room}/send/m.room.message/garbled"
        content = {"msgtype": "m.text", "body": "x", "m.relates_to": "nonsense"}
        status, answer = await self._alice.call("PUT", path, content)
        assert status == 200, answer

    async def shown(self, address: Address | None = None) -> list[str]:
        return [shown.text for shown in await self._by_bot(address)]

    async def _by_bot(self, address: Address | None = None) -> list[ShownMessage]:
        room = (address or await self.private()).place
        witness = await self._who(is_stranger=room == self._rooms.get("bob"))
        thread = address.thread if address else ""
        shown = await witness.shown(room)
        by_bot = [each for each in shown if each.author == self._bot.user_id]
        return [each for each in by_bot if not thread or each.thread == thread]

    async def files(self) -> list[bytes]:
        urls = [each.raw["content"]["url"] for each in await self._by_bot()]
        return [await self._alice.download(url) for url in urls]

    async def marks(self, external_id: str) -> list[str]:
        room, me = await self._private_room(), self._bot.user_id
        given = await self._alice.reactions(room, external_id)
        return [key for user, key in given if user == me]

    async def pings(self) -> list[str]:
        """Return whom the bot's messages would notify. That includes messages without `m.mentions`,
        because for those servers look for `@room` and names in the body."""
        contents = [each.raw["content"] for each in await self._by_bot()]
        inner = [each["m.new_content"] for each in contents if "m.new_content" in each]
        return [found for each in [*contents, *inner] if (found := _pinged(each))]

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        self._refuse(call, 429, "M_LIMIT_EXCEEDED", retry_after_ms=seconds * 1000)

    async def lose_thread(self) -> Address:
        """Return a thread below a message that nobody has written here."""
        return msgspec.structs.replace(await self.group(), thread="$gone")

    def refuse_rendering(self) -> None:
        self._refuse(PlatformCall.POST, 400, "M_BAD_JSON", error=f"{_HTML} is not well-formed")

    def _refuse(self, call: PlatformCall, status: int, errcode: str, **more: object) -> None:
        if self._gate is None:
            self.has_no("gate before the server")
        method, path = _REQUESTS[call]
        self._gate.refuse(method, path, status, errcode=errcode, **more)

    def impostor(self) -> Platform:
        return self._make(self._section("not-the-token"))

    def anew(self) -> Platform:
        return self._make(self.settings)


async def together(bot: MatrixPerson, first: MatrixPerson, *others: MatrixPerson) -> str:
    """Return a room that all of them have joined."""
    room = await first.room(invite=[bot.user_id, *(each.user_id for each in others)])
    for person in (bot, *others):
        await person.join(room)
    return room


def _pinged(content: Mapping[str, object]) -> str:
    """Return whom this content would notify, in words. The text is empty if nobody would be
    notified."""
    mentions = content.get("m.mentions", "left to the server")
    if mentions:
        return str(mentions)
    return "a link to a person" if "matrix.to" in str(content.get(_HTML, "")) else ""
