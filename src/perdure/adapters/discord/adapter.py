"""Discord as a platform: a bot account in servers, threads and direct messages.

Requests go out by REST, events come in by the websocket. The two share a session and nothing else:
answers are delivered while the websocket is away, and the other way round.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from perdure.adapters.discord import render
from perdure.adapters.discord.archive import ChannelHistory
from perdure.adapters.discord.bodies import CHOICES_MAX
from perdure.adapters.discord.finding import Finding
from perdure.adapters.discord.gateway import GatewaySession
from perdure.adapters.discord.manifest import NAME, DiscordSettings
from perdure.adapters.discord.memory import ConnectionMemory
from perdure.adapters.discord.payloads import GatewayLocation, Ready, Unread, User, event_of
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
    # What a server without boosts takes.
    upload_bytes_max=10_000_000,
    pace=Pace(account=Rate(45, 1), place=Rate(5, 5), preview_s=1.2),
)
SAVE_S: Final = 1.0

log = structlog.get_logger("discord")


class Discord:
    """The `Platform` port."""

    name = NAME

    def __init__(self, settings: DiscordSettings, context: AdapterContext) -> None:
        self._settings = settings
        self._clock = context.clock
        self._rest = Rest(token=settings.token, api_url=settings.api_url)
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
        return HookResponse(status=404)

    async def connect(self) -> str:
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
        self._alive = inlet.alive
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._joined.listen(self._url))
                tasks.create_task(self._take(inlet))
                tasks.create_task(self._save())
        except ExceptionGroup as group:
            # One is enough: the others failed for the same reason, or are told next time.
            raise group.exceptions[0] from group
        finally:
            await self._memory.cursors.save()

    async def _take(self, inlet: Inlet) -> None:
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
        while True:
            await self._memory.cursors.changed()
            await self._memory.cursors.save()
            await self._clock.sleep(SAVE_S)

    async def _offer(self, application: str) -> None:
        if self._has_offered:
            return
        try:
            await self._effects.offer_commands(application)
        except PerdureError as error:
            if error.code == ACCOUNT_WAIT:
                raise
            # Commands work as plain text all the same.
            log.warning("commands_not_offered", error=str(error))
        else:
            self._has_offered = True

    def _hear(self, frame: str) -> None:
        self._alive()
        try:
            event = event_of(frame)
        except msgspec.DecodeError as error:
            log.warning("event_not_understood", error=str(error))
            event = Unread(frame, str(error))
        if event is not None:
            self._memory.line.add(event)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None
        await self._rest.close()

    @property
    def _joined(self) -> GatewaySession:
        if self._link is None:
            raise Transient("Discord is not connected yet; connect comes first")
        return self._link


def _nobody() -> None:
    """Nobody listens yet."""


def make(settings: AdapterSettings, context: AdapterContext) -> Platform:
    assert isinstance(settings, DiscordSettings)
    return Discord(settings, context)
