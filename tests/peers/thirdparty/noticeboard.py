"""Connects Perdure to noticeboards: people pin notes, and a bot answers below them.

The adapter polls a board for new events. The board offers each event until a later one is asked
for, so the adapter stores nothing: if the process dies before an event was taken, the event comes
again.
"""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final, TypeVar, assert_never

import aiohttp
import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import GONE, Capabilities, Streaming
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind, Sender
from perdure.domain.kinds import UpdateKind
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ArrivalReading,
    Delete,
    Edit,
    Effect,
    HookRequest,
    HookResponse,
    Inlet,
    Platform,
    Post,
    Preview,
    React,
    Receipt,
    Sought,
    Unrenderable,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext, Manifest, Quality
from perdure.ports.platform.settings import AdapterSettings, Url
from perdure.ports.system.outgoing import Outgoing

POLL_S: Final = 30
T = TypeVar("T")


class NoticeboardSettings(AdapterSettings, frozen=True, kw_only=True):
    url: Url
    token: Secret


MANIFEST: Final = Manifest(
    name="noticeboard",
    title="Noticeboard",
    settings=NoticeboardSettings,
    factory="noticeboard:make",
    quality=Quality.BRONZE,
)

CAPABILITIES: Final = Capabilities(
    takes_key=True,
    can_edit=True,
    can_delete=True,
    streaming=Streaming.EDIT,
    text_max=2000,
)


class Event(msgspec.Struct, frozen=True):
    """Describes what a person did, in the board's words. `id` is unique on the board, and `answers`
    is the id of the note below which a message was written."""

    number: int
    id: str
    board: str
    person: str
    text: str = ""
    kind: UpdateKind = UpdateKind.MESSAGE
    about: str = ""
    answers: str = ""
    is_private: bool = False
    calls_us: bool = False


class Note(msgspec.Struct, frozen=True):
    id: str


def envelope_of(event: Event) -> Arrival:
    return Arrival(
        kind=event.kind,
        external_id=event.id,
        target=event.about,
        place=event.board,
        place_kind=PlaceKind.PRIVATE if event.is_private else PlaceKind.GROUP,
        sender=Sender(id=event.person),
        is_addressed=event.calls_us,
        reply_to=event.answers,
    )


async def whole_of(event: Event) -> Arrival:
    return msgspec.structs.replace(envelope_of(event), text=event.text)


def rendered(text: str) -> str:
    """Return the text as boards show it, which is plain. `@all` would notify everybody, so it is
    broken up."""
    return text.replace("@all", "@\u200ball")


class Noticeboard:
    """Implements the `Platform` port."""

    name = MANIFEST.name

    def __init__(self, settings: NoticeboardSettings, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._url = settings.url.rstrip("/")
        self._token = settings.token
        self._http: aiohttp.ClientSession | None = None
        self._taken = 0

    def capabilities(self, address: Address) -> Capabilities:
        return CAPABILITIES

    def size(self, text: str) -> int:
        return len(rendered(text))

    async def connect(self) -> str:
        if self._http is None:
            self._http = self._outgoing.session()
            self._http.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return (await self._ask("GET", "/me", Note)).id

    async def receive(self, inlet: Inlet) -> None:
        while True:
            path = f"/events?after={self._taken}&wait_s={POLL_S}"
            events = await self._ask("GET", path, list[Event])
            inlet.alive()
            for event in events:
                await self._take(event, inlet)

    async def _take(self, event: Event, inlet: Inlet) -> None:
        payload = msgspec.json.encode(event)
        reading = ArrivalReading(whole=partial(whole_of, event), payload=payload)
        async with inlet.handling(event.id, payload) as may_read:
            try:
                if may_read:
                    await inlet.take(envelope_of(event), reading)
            except Rejected:
                pass  # it can never be taken, and the person was told
            except Ambiguous as error:
                raise Transient(error.message) from error
        # Asking for the next event acknowledges this one, so the number moves once it was taken.
        self._taken = event.number

    async def perform(self, effect: Effect) -> Receipt:
        match effect:
            case Post():
                return Receipt(external_id=await self._pin(effect.address, effect.text, effect.key))
            case Edit():
                await self._change(effect.receipt, effect.text)
                return Receipt(external_id=effect.receipt)
            case Delete():
                await self._remove(effect.receipt)
                return Receipt(external_id=GONE)
            case Upload() | React():
                raise Permanent("boards take notes only; the capabilities say so")
            case _:
                assert_never(effect)

    async def preview(self, preview: Preview) -> str:
        if preview.streaming is not Streaming.EDIT:
            raise Unsupported("a note grows by being changed")
        if not preview.receipt:
            return await self._pin(preview.address, preview.text, preview.key)
        await self._change(preview.receipt, preview.text)
        return preview.receipt

    async def _pin(self, address: Address, text: str, key: PartId) -> str:
        note = {"board": address.place, "text": rendered(text), "key": key}
        return (await self._ask("POST", "/notes", Note, note, is_repeatable=False)).id

    async def _change(self, note: str, text: str) -> None:
        await self._ask("PUT", f"/notes/{note}", Note, {"text": rendered(text)})

    async def _remove(self, note: str) -> None:
        try:
            await self._ask("DELETE", f"/notes/{note}", Note)
        except NotFound:
            return  # the note is gone already

    async def find(self, sought: Sought) -> Receipt | None:
        raise Permanent("a board cannot be asked for a key; send it again under the same one")

    async def typing(self, address: Address) -> None:
        """Do nothing: boards show nobody writing."""

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        return HookResponse(status=404)

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        raise Permanent("boards hold no files; copy the text into the note")

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: object = None,
        *,
        is_repeatable: bool = True,
    ) -> T:
        if self._http is None:
            raise Transient("the board is not connected; it is tried again")
        data = None if body is None else msgspec.json.encode(body)
        limit = aiohttp.ClientTimeout(total=POLL_S + 15)
        try:
            async with self._http.request(
                method, self._url + path, data=data, timeout=limit
            ) as response:
                if response.status >= 400:
                    raise refused(response.status, response.headers)
                return msgspec.json.decode(await response.read(), type=answer)
        except (aiohttp.ClientError, OSError) as error:
            raise translated(error, is_repeatable=is_repeatable) from error


def refused(
    status: int, headers: Mapping[str, str]
) -> Transient | Permanent | NotFound | Unrenderable:
    match status:
        case 401:
            return Permanent("the board does not know us; set token in [adapters.noticeboard]")
        case 404:
            return NotFound("the note is gone from the board")
        case 422:
            return Unrenderable("the board cannot show the note as it is written")
        case 429:
            return Transient("the board is busy", retry_after_s=float(headers["Retry-After"]))
        case _ if status >= 500:
            return Transient(f"the board answered {status}; it is tried again")
        case _:
            return Permanent(f"the board answered {status}; see its log")


def translated(error: Exception, *, is_repeatable: bool) -> Transient | Ambiguous:
    """Return the error that tells whether the call may have happened. Without a connection it did
    not; after that nobody knows."""
    if is_repeatable or isinstance(error, aiohttp.ClientConnectorError):
        return Transient(f"the board cannot be reached ({type(error).__name__}); is it running?")
    return Ambiguous("the board broke off; look whether the note is there")


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    assert isinstance(settings, NoticeboardSettings)
    return Noticeboard(settings, context.outgoing)
