"""Implements the `Platform` port for Discord: a bot account in servers, threads and direct
messages.

Requests go out over REST and events come in over the websocket. Both use the same HTTP session but
do not depend on each other: replies are delivered while the websocket is down, and events are
received while REST fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from perdure.adapters.discord import render
from perdure.adapters.discord.bodies import CHOICES_MAX
from perdure.adapters.discord.catching_up.archive import ChannelHistory
from perdure.adapters.discord.catching_up.memory import ConnectionMemory
from perdure.adapters.discord.finding import Finding
from perdure.adapters.discord.gateway import GatewaySession
from perdure.adapters.discord.manifest import NAME, DiscordSettings
from perdure.adapters.discord.payloads import (
    GatewayLocation,
    GuildGone,
    Ready,
    Unread,
    User,
    event_of,
)
from perdure.adapters.discord.receive import Hearing
from perdure.adapters.discord.send import Effects
from perdure.adapters.discord.wire import Rest, RestRequest, path
from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities, Pace, Rate, Streaming
from perdure.domain.errors import PerdureError, Transient
from perdure.domain.markdown.units import TextUnit
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    Effect,
    HookRequest,
    HookResponse,
    Inlet,
    Platform,
    Preview,
    Receipt,
    Sought,
    Unsupported,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.ports.platform.settings import AdapterSettings

CAPABILITIES: Final = Capabilities(
    takes_key=True,
    key_s=120,
    can_find=True,
    can_edit=True,
    can_delete=True,
    can_react=True,
    streaming=Streaming.EDIT,
    text_max=render.TEXT_MAX,
    unit=TextUnit.CHARS,
    typing_s=9,
    choices_max=CHOICES_MAX,
    # The limit of a server without boosts. Servers with boosts allow larger files.
    upload_bytes_max=10_000_000,
    pace=Pace(account=Rate(45, 1), place=Rate(5, 5), preview_s=1.2),
)
# The least time between two writes of the cursor file. A cursor that is a second old only means
# that a second of messages is offered again after a crash.
SAVE_S: Final = 1.0

log = structlog.get_logger("discord")


class Discord:
    """Implements the `Platform` port for one bot account."""

    def __init__(self, settings: DiscordSettings, context: AdapterContext) -> None:
        self.name = context.name or NAME
        self._settings = settings
        self._clock = context.clock
        self._rest = Rest(token=settings.token, api_url=settings.api_url, outgoing=context.outgoing)
        self._effects = Effects(self._rest, context.clock, cdn_url=settings.cdn_url)
        self._finding = Finding(self._rest)
        self._archive = ChannelHistory(self._rest, context.clock)
        self._memory = ConnectionMemory(context.folder)
        self._link: GatewaySession | None = None
        self._account = ""
        self._url = ""
        self._has_offered = not settings.slash_commands
        self._alive: Callable[[], None] = _nobody

    def capabilities(self, address: Address) -> Capabilities:
        return CAPABILITIES

    def size(self, text: str) -> int:
        return render.size(text)

    async def perform(self, effect: Effect) -> Receipt:
        return await self._effects.perform(effect)

    async def find(self, sought: Sought) -> Receipt | None:
        if not self._account:
            raise Transient("Discord is not connected yet; connect comes first")
        return await self._finding.find(sought, self._account)

    async def preview(self, preview: Preview) -> str:
        if preview.streaming is not Streaming.EDIT:
            raise Unsupported("Discord shows a growing answer by editing it")
        return await self._effects.preview(preview)

    async def typing(self, address: Address) -> None:
        await self._effects.typing(address)

    def fetch(self, reference: str) -> AsyncIterator[bytes]:
        return self._effects.file(reference)

    async def answer(self, request: HookRequest, inlet: Inlet) -> HookResponse:
        """Refuse every web hook request: Discord sends us its events over the websocket."""
        return HookResponse(status=404)

    async def connect(self) -> str:
        """Sign in, and find out the websocket's URL. Returns the bot's account id."""
        if self._link is None:
            self._rest.open()
            self._link = GatewaySession(
                self._rest.session, token=self._settings.token, hear=self._hear
            )
            await self._memory.cursors.load()
        ask = RestRequest(verb="Discord, signing in", method="GET", path=path("users", "@me"))
        self._account = (await self._rest.ask(ask, User)).id
        self._url = self._settings.gateway_url or await self._gateway()
        return self._account

    async def _gateway(self) -> str:
        """Return the websocket's URL. Raises `Transient` if the bot has no connections left
        today."""
        ask = RestRequest(verb="Discord, signing in", method="GET", path=path("gateway", "bot"))
        gateway = await self._rest.ask(ask, GatewayLocation)
        starts = gateway.session_start_limit
        if starts.remaining < 1:
            raise Transient(
                "the bot has connected too often today; Discord lets it in again later",
                retry_after_s=starts.reset_after / 1000,
            )
        return gateway.url

    async def receive(self, inlet: Inlet) -> None:
        """Receive events until the connection is lost, and save the cursors at the end."""
        self._alive = inlet.alive
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._joined.listen(self._url))
                tasks.create_task(self._take(inlet))
                tasks.create_task(self._save())
        except ExceptionGroup as group:
            # The caller expects one error. The other tasks failed for the same reason, or their
            # error appears again at the next connection.
            raise group.exceptions[0] from group
        finally:
            await self._memory.cursors.save()

    async def _take(self, inlet: Inlet) -> None:
        """Take events from the queue, one after another.

        An event leaves the queue only after it was taken. If the store refuses it, the event stays
        at the head, and the next connection begins with it.
        """
        hearing = Hearing(
            self._joined,
            self._effects,
            self._archive,
            self._memory,
            account=self._account,
            needs_roles=bool(self._settings.allow_roles),
        )
        while True:
            event = await self._memory.line.head()
            if isinstance(event, Ready):
                await self._offer(event.application.id)
            await hearing.take(event, inlet)
            self._memory.line.drop_head()

    async def _save(self) -> None:
        """Write the cursor file after changes, at most once every `SAVE_S` seconds."""
        while True:
            await self._memory.cursors.changed()
            await self._memory.cursors.save()
            await self._clock.sleep(SAVE_S)

    async def _offer(self, application: str) -> None:
        """Register our commands in Discord's menu, once in the life of the process."""
        if self._has_offered:
            return
        try:
            await self._effects.offer_commands(application)
        except PerdureError as error:
            if error.code == ACCOUNT_WAIT:
                raise
            # Commands also work as plain text, so a failure here must not hold up messages.
            log.warning("commands_not_offered", error=str(error))
        else:
            self._has_offered = True

    def _hear(self, frame: str) -> None:
        """Decode one websocket frame and put its event into the queue."""
        self._alive()
        try:
            event = event_of(frame)
        except msgspec.DecodeError as error:
            log.warning("event_not_understood", error=str(error))
            event = Unread(frame, str(error))
        if isinstance(event, GuildGone):
            # discord.py reads the frame after us, and then knows the server's channels no more.
            event = msgspec.structs.replace(event, channels=self._joined.places(event.id))
        if event is not None:
            self._memory.line.add(event)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None
        await self._rest.close()

    @property
    def _joined(self) -> GatewaySession:
        """Return the websocket session. Raises `Transient` before `connect`."""
        if self._link is None:
            raise Transient("Discord is not connected yet; connect comes first")
        return self._link


def _nobody() -> None:
    """Ignore the signal that the connection is alive; used until `receive` has an inlet."""


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    """Create the adapter. `MANIFEST.factory` names this function."""
    assert isinstance(settings, DiscordSettings)
    return Discord(settings, context)
