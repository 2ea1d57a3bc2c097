"""Provides a scripted platform on which people talk: a whole `Platform`, and the fake of that port.

Everything that people do waits until the gateway has taken it. If the gateway cannot take an
arrival, the connection ends, and the next connection offers that arrival first. Like the platform
that it extends, this one survives every crash of the gateway.
"""

import asyncio
import hmac
from functools import partial
from itertools import count
from typing import Final

import msgspec

from perdure.domain.content.forwards import Forward
from perdure.domain.content.stickers import Sticker
from perdure.domain.delivery import Capabilities, Pace, Streaming
from perdure.domain.errors import Ambiguous, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import (
    Arrival,
    FileReference,
    PlaceKind,
    Press,
    Sender,
    envelope_of,
)
from perdure.domain.kinds import UpdateKind
from perdure.ports.platform.adapter import (
    ArrivalReading,
    HookRequest,
    HookResponse,
    Inlet,
    Upload,
)
from perdure.testkit.simulator.platform import ScriptedPlatform

ADA: Final = Sender(id="ada", name="Ada")
BOB: Final = Sender(id="bob", name="Bob")
SECRET_HEADER: Final = "x-scripted-secret"  # noqa: S105 its name only
EVERYTHING: Final = Capabilities(
    takes_key=True,
    can_find=True,
    can_edit=True,
    can_delete=True,
    can_react=True,
    streaming=Streaming.EDIT,
    typing_s=5,
    choices_max=5,
    upload_bytes_max=1_000_000,
    pace=Pace(preview_s=0.02),
)


class ScriptedReceiver(ScriptedPlatform):
    """Implements the `Platform` port. Each of the `refusals` fails one connect, oldest first, and
    `connects` counts all connects. `waiting` holds the arrivals that nobody has acknowledged, and
    `offered` the ids of every offer ever made."""

    def __init__(
        self,
        *,
        name: str = "scripted",
        account: str = "bot",
        secret: str = "",
        capabilities: Capabilities = EVERYTHING,
    ) -> None:
        super().__init__(name=name, capabilities=capabilities)
        self.account = account
        self.refusals: list[Transient | Permanent] = []
        self.connects = 0
        self.waiting: list[Arrival] = []
        self.offered: list[str] = []
        self.garbled: list[str] = []
        self.is_receiving = False
        self._secret = secret
        self._arrivals: dict[str, Arrival] = {}
        self._numbers = count(1)
        self._news = asyncio.Event()
        self._loss: Transient | Permanent | None = None

    def write(  # noqa: PLR0913 - what a message may have
        self,
        text: str = "",
        *,
        sender: Sender = ADA,
        place: str = "",
        thread: str = "",
        is_addressed: bool = False,
        files: tuple[FileReference, ...] = (),
        forwards: tuple[Forward, ...] = (),
        album: str = "",
        press: Press | None = None,
        reply_to: str = "",
    ) -> str:
        """Let somebody write a message: in private, unless a place is named. Returns the external
        id."""
        arrival = Arrival(
            external_id=f"{place or sender.id}/{next(self._numbers)}",
            place=place or sender.id,
            place_kind=PlaceKind.GROUP if place else PlaceKind.PRIVATE,
            sender=sender,
            thread=thread,
            text=text,
            is_addressed=is_addressed,
            files=files,
            forwards=forwards,
            album=album,
            press=press,
            reply_to=reply_to,
        )
        return self.offer(arrival)

    def attach(self, name: str, data: bytes, *, sender: Sender = ADA) -> str:
        """Let somebody send a file in private. Returns the external id."""
        reference = f"file-{next(self._numbers)}"
        self.held[reference] = data
        file = FileReference(reference=reference, name=name, size=len(data))
        return self.write(sender=sender, files=(file,))

    def stick(self, data: bytes, sticker: Sticker, *, sender: Sender = ADA, place: str = "") -> str:
        """Let somebody send a sticker. Returns the external id."""
        self.held[sticker.id] = data
        file = FileReference(reference=sticker.id, name="sticker", sticker=sticker)
        return self.write(sender=sender, place=place, is_addressed=bool(place), files=(file,))

    def rewrite(self, external_id: str, text: str) -> str:
        """Let the author change a message. Returns the external id of the edit."""
        return self._about(external_id, UpdateKind.EDIT, text)

    def withdraw(self, external_id: str) -> str:
        """Let the author delete a message. Returns the external id of the deletion."""
        return self._about(external_id, UpdateKind.DELETE, "")

    def press(self, receipt: str, choice: str, *, sender: Sender = ADA) -> str:
        """Let somebody press a button that the bot's message has now. Returns the external id."""
        shown = self.message(receipt)
        assert choice in shown.choices, f"{receipt} offers {shown.choices}"
        return self.press_number(receipt, shown.choices.index(choice), sender=sender)

    def press_number(self, receipt: str, number: int, *, sender: Sender = ADA) -> str:
        """Let somebody press the button with this number, from 0. Returns the external id."""
        shown = self.message(receipt)
        word = shown.choices[number]
        question = shown.question
        return self.write(
            "" if question else word,
            sender=sender,
            place="" if shown.place == sender.id else shown.place,
            is_addressed=True,
            press=Press(question=question, choice=number) if question else None,
        )

    def _about(self, external_id: str, kind: str, text: str) -> str:
        """Offer an edit or a deletion of a message."""
        spoken_of = self._arrivals[external_id]
        changed = msgspec.structs.replace(
            spoken_of,
            kind=kind,
            external_id=f"{external_id}/{kind}/{next(self._numbers)}",
            target=external_id,
            text=text,
        )
        return self.offer(changed)

    def offer(self, arrival: Arrival) -> str:
        """Offer an arrival until it is taken. One that was taken already is offered again."""
        self._arrivals[arrival.external_id] = arrival
        self.waiting.append(arrival)
        self._news.set()
        return arrival.external_id

    def garble(self, payload: str) -> None:
        """Offer something that no arrival can be made of."""
        self.garbled.append(payload)
        self._news.set()

    def repeat(self, external_id: str) -> None:
        """Offer an arrival again, as if its acknowledgement had been lost."""
        self.offer(self._arrivals[external_id])

    def cut(self, loss: Transient | Permanent | None = None) -> None:
        """End the connection with an error."""
        self._loss = loss or Transient("the connection was cut")
        self._news.set()

    async def connect(self) -> str:
        self.connects += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self._loss = None
        self._news.set()
        return self.account

    async def receive(self, inlet: Inlet) -> None:
        self.is_receiving = True
        inlet.alive()
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self.garbled:
                    name = f"garbled/{next(self._numbers)}"
                    await inlet.spoil(name, self.garbled[0], "it is not in our form")
                    self.garbled.pop(0)
                while self.waiting and self._loss is None:
                    await self._hand_over(self.waiting[0], inlet)
                if self._loss is not None:
                    raise self._loss
        finally:
            self.is_receiving = False

    async def _hand_over(self, arrival: Arrival, inlet: Inlet) -> None:
        """Offer an arrival to the gateway, and forget it once it is taken. If the gateway dies
        before the last line, the arrival is offered again."""
        self.offered.append(arrival.external_id)
        payload = msgspec.json.encode(arrival)
        async with inlet.handling(arrival.external_id, payload) as may_read:
            try:
                if may_read:
                    whole = partial(self._whole, arrival)
                    await inlet.take(
                        envelope_of(arrival), ArrivalReading(whole=whole, payload=payload)
                    )
            except Rejected:
                pass  # it will never be taken, and the person was told
            except Ambiguous as error:
                raise Transient(error.message) from error
        self.waiting.remove(arrival)

    async def _whole(self, arrival: Arrival) -> Arrival:
        self.read(arrival)
        return arrival

    def read(self, arrival: Arrival) -> None:
        """Make sense of what came. Does nothing here; a test may let it fail."""

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Take the one arrival in a request that carries the secret."""
        # What is not UTF-8 comes as half characters.
        given = request.headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
        if not self._secret or not hmac.compare_digest(given, self._secret.encode()):
            return HookResponse(status=401)
        inlet.alive()
        await inlet.take(msgspec.json.decode(request.body, type=Arrival))
        return HookResponse()

    def sent_files(self) -> dict[PartId, Upload]:
        """Return the files that people see, by key: the platform shows one file per key."""
        return {upload.key: upload for upload in self.files}

    def marked(self, external_id: str) -> list[str]:
        """Return the bot's mark on a message, as a list of one or none."""
        marks = [mark for mark in self.marks if mark.external_id == external_id]
        return [mark.emoji for mark in marks[-1:] if mark.emoji]

    async def close(self) -> None:
        return
