"""Provides the case for the scripted platform. With it the suite shows that this fake keeps the
promises of the port that it implements."""

import msgspec

from perdure.domain.address import Address
from perdure.domain.content.forwards import Forward, ForwardOrigin
from perdure.domain.content.stickers import Sticker
from perdure.domain.errors import Transient
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.ports.platform.adapter import HookRequest, Platform
from perdure.ports.system.clock import Clock
from perdure.testkit.contract.adapter_case import AdapterCase, PlatformCall
from perdure.testkit.contract.receiver import ADA, BOB, SECRET_HEADER, ScriptedReceiver

CLUB = "club"


class ScriptedCase(AdapterCase):
    """Describes the scripted platform to the suite."""

    person = ADA.id
    stranger = BOB.id

    def __init__(self, platform: ScriptedReceiver, *, clock: Clock) -> None:
        super().__init__(platform, clock=clock)
        self._scripted = platform

    async def private(self, *, is_stranger: bool = False) -> Address:
        return self._at(_who(is_stranger=is_stranger).id)

    async def group(self) -> Address:
        return self._at(CLUB)

    def _at(self, place: str) -> Address:
        return Address(adapter=self._scripted.name, account=self._scripted.account, place=place)

    async def say(self, text: str, *, is_stranger: bool = False) -> str:
        return self._scripted.write(text, sender=_who(is_stranger=is_stranger))

    async def say_in_group(self, text: str, *, mention: bool, is_stranger: bool = False) -> str:
        sender = _who(is_stranger=is_stranger)
        return self._scripted.write(text, sender=sender, place=CLUB, is_addressed=mention)

    async def forward(self, text: str) -> str:
        return self._scripted.write(forwards=(_passed_on(text),))

    async def forward_to_group(self, text: str) -> str:
        return self._scripted.write(place=CLUB, forwards=(_passed_on(text),))

    async def edit(self, external_id: str, text: str) -> None:
        self._scripted.rewrite(external_id, text)

    async def delete(self, external_id: str) -> None:
        self._scripted.withdraw(external_id)

    async def send_file(self, name: str, data: bytes) -> str:
        return self._scripted.attach(name, data)

    async def send_sticker(self, data: bytes) -> str:
        return self._scripted.stick(data, Sticker(id="wave", emoji="👋"))

    async def garble(self) -> None:
        self._scripted.garble("nothing that could be read")

    async def click(self, receipt: str, choice: str) -> None:
        self._scripted.press(receipt, choice)

    async def reply(self, receipt: str, text: str) -> str:
        return self._scripted.write(text, reply_to=receipt)

    async def press(self, receipt: str, number: int) -> None:
        self._scripted.press_number(receipt, number)

    async def buttons(self, receipt: str) -> list[str]:
        return list(self._scripted.message(receipt).choices)

    async def shown(self, address: Address | None = None) -> list[str]:
        place = (address or await self.private()).place
        return [shown.text for shown in self._scripted.visible if shown.place == place]

    async def files(self) -> list[bytes]:
        return [upload.data for upload in self._scripted.sent_files().values()]

    async def marks(self, external_id: str) -> list[str]:
        return self._scripted.marked(external_id)

    def wait_next(self, call: PlatformCall, seconds: int) -> None:
        told = Transient("later", retry_after_s=seconds)
        match call:
            case PlatformCall.CONNECT:
                self._scripted.refusals.append(told)
            case PlatformCall.FIND:
                self._scripted.lookups.append(told)
            case PlatformCall.TYPING:
                self.has_no("waits for typing in the script")
            case _:
                self._scripted.failures.append(told)

    def fail_next(self, call: PlatformCall) -> None:
        assert call is PlatformCall.FIND, "nothing else is let fail"
        self._scripted.lookups.append(Transient("out of order"))

    def hooked(self, text: str) -> HookRequest:
        arrival = Arrival(
            external_id="hooked/1",
            place=ADA.id,
            place_kind=PlaceKind.PRIVATE,
            sender=ADA,
            text=text,
        )
        headers = {SECRET_HEADER: "known"}
        body = msgspec.json.encode(arrival)
        return HookRequest(method="POST", path="", headers=headers, query={}, body=body)

    def anew(self) -> Platform:
        """Return the same platform object: it plays the outside world, which outlives the
        process."""
        return self._scripted

    def forged(self) -> HookRequest:
        headers = {SECRET_HEADER: "a guess"}
        return HookRequest(method="POST", path="", headers=headers, query={}, body=b"{}")


def _passed_on(text: str) -> Forward:
    return Forward(origin=ForwardOrigin.PERSON, name=BOB.name, text=text)


def _who(*, is_stranger: bool) -> Sender:
    return BOB if is_stranger else ADA
