"""Implements the `Platform` port for one bot. `receive.py` and `send.py` do the work."""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from perdure.adapters.telegram.manifest import NAME, TelegramSettings
from perdure.adapters.telegram.names import is_private
from perdure.adapters.telegram.payloads import CHOICES_MAX, TEXT_MAX
from perdure.adapters.telegram.receive import Receiving
from perdure.adapters.telegram.refusals import Refused
from perdure.adapters.telegram.render import size
from perdure.adapters.telegram.send import Sending
from perdure.adapters.telegram.wire import Api
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Pace, Rate, Streaming
from perdure.domain.errors import Permanent
from perdure.domain.markdown.units import TextUnit
from perdure.ports.platform.adapter import (
    Effect,
    HookRequest,
    HookResponse,
    Inlet,
    Platform,
    Preview,
    Receipt,
    Sought,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.ports.platform.settings import AdapterSettings
from perdure.ports.records.media import FOR_SENDER

# The limits of the Bot API for files that a bot sends, and for files that it may download.
UPLOAD_BYTES_MAX: Final = 50 * 1024 * 1024
DOWNLOAD_MB_MAX: Final = 20

_GROUP: Final = Capabilities(
    can_edit=True,
    can_delete=True,
    can_react=True,
    streaming=Streaming.EDIT,
    text_max=TEXT_MAX,
    unit=TextUnit.UTF16,
    typing_s=5,
    choices_max=CHOICES_MAX,
    upload_bytes_max=UPLOAD_BYTES_MAX,
    pace=Pace(account=Rate(30, 1), place=Rate(20, 60), preview_s=3.0),
)
_PRIVATE: Final = msgspec.structs.replace(
    _GROUP,
    streaming=Streaming.DRAFT,
    # Telegram allows about one message a second in a chat, and short bursts. Three in three seconds
    # let an answer follow its typing signal at once.
    pace=Pace(account=Rate(30, 1), place=Rate(3, 3), preview_s=1.0),
)


class _File(msgspec.Struct, frozen=True):
    file_path: str | None = None


class Telegram:
    """Implements the `Platform` port over the Bot API."""

    def __init__(self, settings: TelegramSettings, context: AdapterContext) -> None:
        self.name = context.name or NAME
        self._api = Api(settings.api_url, settings.token, outgoing=context.outgoing)
        self._sending = Sending(self._api, wants_rich=settings.rich)
        self._receiving = Receiving(self._api, settings, context)

    def capabilities(self, address: Address) -> Capabilities:
        return _PRIVATE if is_private(address.place) else _GROUP

    def size(self, text: str) -> int:
        return size(text)

    async def connect(self) -> str:
        account = await self._receiving.connect()
        await self._sending.look_around()
        return account

    async def receive(self, inlet: Inlet) -> None:
        await self._receiving.receive(inlet)

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        return await self._receiving.answer(request, inlet)

    async def perform(self, effect: Effect) -> Receipt:
        return await self._sending.perform(effect)

    async def find(self, sought: Sought) -> Receipt | None:
        """Refuse the question, because Telegram does not tell bots whether a message arrived."""
        raise Permanent("Telegram cannot be asked what it shows; look into the chat")

    async def preview(self, preview: Preview) -> str:
        return await self._sending.preview(preview)

    async def typing(self, address: Address) -> None:
        await self._sending.typing(address)

    async def fetch(self, reference: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file. Raises `Permanent` if Telegram does not hand it out."""
        try:
            said = await self._api.ask("getFile", {"file_id": reference})
        except Refused as refused:
            raise Permanent(
                f"Telegram does not hand out the file ({refused.words}); bots get at most "
                f"{DOWNLOAD_MB_MAX} MB, so send a smaller one or a link",
                code=FOR_SENDER,
            ) from refused
        path = msgspec.json.decode(said, type=_File).file_path
        if not path:
            raise Permanent("Telegram does not say where the file is; send it again")
        async for chunk in self._api.download(path):
            yield chunk

    async def close(self) -> None:
        await self._api.close()


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    """Make the adapter from its settings. This is the factory that the manifest names."""
    assert isinstance(settings, TelegramSettings)
    return Telegram(settings, context)
