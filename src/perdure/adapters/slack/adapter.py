"""Implements the `Platform` port for one Slack bot in one workspace.

Events come over Socket Mode (`socket_mode.py`) or to a web hook (`hooks.py`); both are read by
`receive.py`. Requests go out over `wire.py`.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from perdure.adapters.slack.hooks import Hooks
from perdure.adapters.slack.inbound import BY_ID, Bot
from perdure.adapters.slack.manifest import NAME, SlackSettings
from perdure.adapters.slack.payloads import File, SocketEnvelope
from perdure.adapters.slack.people import People
from perdure.adapters.slack.posting.finding import Finding
from perdure.adapters.slack.posting.messages import Messages
from perdure.adapters.slack.posting.streams import Streams
from perdure.adapters.slack.receive import Hearing, Offer
from perdure.adapters.slack.render import CHOICES_MAX, TEXT_MAX, size
from perdure.adapters.slack.send import Sending
from perdure.adapters.slack.socket_mode import Socket
from perdure.adapters.slack.wire import Wire
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Pace, Rate, Streaming
from perdure.domain.errors import Permanent, Transient
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

# With the Events API no connection is open that could show that the token still works, so Slack is
# asked this often.
PROBE_S: Final = 60.0

_PLAIN: Final = Capabilities(
    can_find=True,
    can_edit=True,
    can_delete=True,
    can_react=True,
    streaming=Streaming.EDIT,
    text_max=TEXT_MAX,
    unit=TextUnit.CHARS,
    choices_max=CHOICES_MAX,
    upload_bytes_max=100 * 1024 * 1024,
    # Slack limits each method: one post a second in a channel, and about fifty edits a minute in
    # all.
    pace=Pace(account=Rate(100, 60), place=Rate(1, 1), preview_s=1.2),
)
_STREAMED: Final = msgspec.structs.replace(_PLAIN, streaming=Streaming.NATIVE)


class _Identity(msgspec.Struct, frozen=True):
    """Holds who the bot is, as `auth.test` says."""

    team_id: str
    user_id: str
    bot_id: str | None = None
    user: str | None = None


class _FileAnswer(msgspec.Struct, frozen=True):
    file: File


class Slack:
    """Implements the `Platform` port."""

    def __init__(self, settings: SlackSettings, context: AdapterContext) -> None:
        self.name = context.name or NAME
        self._settings = settings
        self._clock = context.clock
        self._wire = Wire(
            settings.api_url,
            token=settings.token,
            app_token=settings.app_token,
            clock=context.clock,
            outgoing=context.outgoing,
        )
        messages = Messages(self._wire)
        streams = Streams(self._wire, messages)
        self._sending = Sending(self._wire, messages, streams)
        self._finding = Finding(self._wire, context.clock)
        self._hearing = Hearing(People(self._wire), streams)
        self._socket = Socket(self._wire, context.clock, self._heard)
        self._hooks = Hooks(settings.signing_secret, self._hearing, context.clock)
        self._bot: Bot | None = None

    def capabilities(self, address: Address) -> Capabilities:
        # Slack allows streams only in threads.
        return _STREAMED if self._settings.native_stream and address.thread else _PLAIN

    def size(self, text: str) -> int:
        return size(text)

    async def connect(self) -> str:
        """Sign in, and ask for a websocket if Socket Mode is used. Returns the bot's account id."""
        said = await self._wire.ask("auth.test", {}, _Identity)
        self._bot = Bot(
            team=said.team_id,
            user=said.user_id,
            bot_id=said.bot_id or "",
            name=said.user or "",
        )
        if self._settings.app_token is not None:
            await self._socket.open()
        return self._bot.account

    async def receive(self, inlet: Inlet) -> None:
        """Receive events until the connection is lost. With the Events API, only check the
        token."""
        if self._settings.app_token is not None:
            await self._socket.receive(inlet)
        while True:
            inlet.alive()
            await self._clock.sleep(PROBE_S)
            await self._wire.ask("auth.test", {}, _Identity)

    def _heard(self, envelope: SocketEnvelope) -> Offer | None:
        """Read one envelope of Socket Mode. Returns None for one that is not for us."""
        match envelope.type:
            case "events_api":
                return self._hearing.callback(envelope.payload, self._known())
            case "slash_commands":
                return self._hearing.command(envelope.payload)
            case "interactive":
                return self._hearing.interaction(envelope.payload)
            case _:
                return None

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        return await self._hooks.answer(request, inlet, self._bot)

    async def perform(self, effect: Effect) -> Receipt:
        return await self._sending.perform(effect, user=self._known().user)

    async def find(self, sought: Sought) -> Receipt | None:
        return await self._finding.find(sought, self._known())

    async def preview(self, preview: Preview) -> str:
        return await self._sending.preview(preview, team=self._known().team)

    async def typing(self, address: Address) -> None:
        """Do nothing: Slack has no typing signal for bots."""

    async def fetch(self, reference: str) -> AsyncIterator[bytes]:
        async for chunk in self._wire.get(await self._address(reference)):
            yield chunk

    async def _address(self, reference: str) -> str:
        """Return the URL of a file. For a file of another workspace, Slack at first tells only an
        id, so the URL is asked for."""
        if not reference.startswith(BY_ID):
            return reference
        asked = {"file": reference.removeprefix(BY_ID)}
        file = (await self._wire.ask("files.info", asked, _FileAnswer)).file
        address = file.url_private_download or file.url_private
        if not address:
            raise Permanent("Slack does not say where the file is; send it again")
        return address

    def _known(self) -> Bot:
        """Return who the bot is. Raises `Transient` before the first `connect`."""
        if self._bot is None:
            raise Transient("Slack has not been reached since the start")
        return self._bot

    async def close(self) -> None:
        await self._wire.close()


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    """Create the adapter. `MANIFEST.factory` names this function."""
    assert isinstance(settings, SlackSettings)
    return Slack(settings, context)
