"""The bot's websocket: discord.py identifies, beats the heart, resumes and keeps channels' names.

Two things are done here rather than there. Every frame is handed over as it came, at once and in
order, where discord.py would start a task for each. And a lost connection is the caller's to wait
out: only what Discord asks to be resumed is resumed here, at once, and never twice in a row without
a word between. The session outlives a lost connection, so the next one hears what it missed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient

from perdure.adapters.discord.inbound import ChannelPlace
from perdure.adapters.discord.wire import translated
from perdure.domain.errors import Transient
from perdure.domain.secret import Secret
from perdure.ports.system.time_limits import time_limit

HANDSHAKE_TIMEOUT_S: Final = 30
CLOSE_TIMEOUT_S: Final = 2
MISSES_MAX: Final = 3
_VERB: Final = "Discord's gateway"
# What discord.py keeps for us: the session, and the names of servers, channels and roles.
_KEPT: Final = ("READY", "RESUMED", "GUILD_", "CHANNEL_", "THREAD_")

# Below this it logs what people write, frame by frame.
logging.getLogger("discord").setLevel(logging.WARNING)
# We never speak, and it would say so at every start.
discord.VoiceClient.warn_nacl = False
discord.VoiceClient.warn_dave = False


def _intents() -> discord.Intents:
    return discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


class _Sockets(HTTPClient):
    """Opens websockets with the session of our own requests; discord.py's REST is not used."""

    def __init__(self, session: aiohttp.ClientSession, token: Secret) -> None:
        super().__init__(asyncio.get_running_loop())
        self._session = session
        self.token = token.reveal()
        self.last: aiohttp.ClientWebSocketResponse | None = None

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        self.last = await self._session.ws_connect(
            url,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
            autoclose=False,
            headers={"User-Agent": self.user_agent},
            compress=compress,
        )
        return self.last


class GatewaySession(discord.Client):
    """One session with Discord's gateway. `hear` gets every frame."""

    def __init__(
        self, session: aiohttp.ClientSession, *, token: Secret, hear: Callable[[str], None]
    ) -> None:
        super().__init__(
            intents=_intents(),
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            guild_ready_timeout=0,
            enable_debug_events=True,
        )
        self._sockets = self.http = _Sockets(session, token)
        # Messages are read by ourselves, so one of a shape that discord.py does not expect cannot
        # end the connection.
        parsers = self._connection.parsers
        for event in [name for name in parsers if not name.startswith(_KEPT)]:
            del parsers[event]
        self._hear = hear
        self._is_welcome = False
        self._past: dict[str, Any] = {}
        self._misses = 0

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """discord.py tells everything here; the frames themselves are all that we take."""
        if event == "socket_raw_receive":
            self._hear(args[0])
        elif event in {"connect", "resumed"}:
            self._is_welcome = True

    async def listen(self, url: str) -> None:
        """Hear until the connection is lost, which is raised."""
        await self._async_setup_hook()
        while True:
            past, self._is_welcome = self._past, False
            try:
                await self._converse(yarl.URL(url))
            except ReconnectWebSocket as asked:
                if not asked.resume:
                    self._past = {}
                # A session that is over is begun anew at once; whoever turns away a new one, or
                # says nothing between two requests to come again, will do so again.
                is_over = bool(past) and not self._past
                if not self._is_welcome and not is_over:
                    raise Transient(f"{_VERB}: closed without a welcome") from asked
            except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
                self._judge_past(error)
                raise translated(error, _VERB) from error

    def _judge_past(self, error: Exception) -> None:
        """A session is given up when the server heard us and did not take us back, or when the
        address it gave us for coming back does not answer any more."""
        self._misses = 0 if self._is_welcome else self._misses + 1
        is_ignored = not self._is_welcome and isinstance(
            error, TimeoutError | discord.DiscordException
        )
        if is_ignored or self._misses >= MISSES_MAX:
            self._past = {}

    async def _converse(self, url: yarl.URL) -> None:
        try:
            async with time_limit(HANDSHAKE_TIMEOUT_S):
                self.ws = await DiscordWebSocket.from_client(
                    self, initial=True, **{"gateway": url, **self._past}
                )
                while not self._is_welcome:
                    await self.ws.poll_event()
            while True:
                await self.ws.poll_event()
        finally:
            await self._hang_up()

    def channels(self, guild: str) -> list[tuple[str, int]]:
        """The channels and threads of a server, each with its newest message."""
        found = self.get_guild(int(guild))
        if found is None:
            return []
        heard: list[
            discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread
        ] = [
            *found.text_channels,
            *found.voice_channels,
            *found.stage_channels,
            *found.threads,
        ]
        return [(str(each.id), each.last_message_id or 0) for each in heard]

    def place_of(self, channel: str, roles: tuple[str, ...]) -> ChannelPlace | None:
        """Where a channel of a server stands, if it is known. `roles` are the sender's."""
        found = self.get_channel(int(channel))
        if found is None or isinstance(found, discord.abc.PrivateChannel):
            return None
        guild, own = found.guild, found.guild.self_role
        names = (guild.get_role(int(role)) for role in roles)
        return ChannelPlace(
            place=str(found.parent_id) if isinstance(found, discord.Thread) else channel,
            thread=channel if isinstance(found, discord.Thread) else "",
            label=_label(found),
            own_role=str(own.id) if own else "",
            role_names=tuple(role.name for role in names if role),
            opener=str(found.owner_id) if isinstance(found, discord.Thread) else "",
        )

    async def _hang_up(self) -> None:
        # `ws` is None until the first handshake is done, and then the last one that was done; the
        # socket of the one under way may be open.
        if self.ws is not None:
            if self._is_welcome and self.ws.session_id is not None:
                self._past = {
                    "gateway": self.ws.gateway,
                    "session": self.ws.session_id,
                    "sequence": self.ws.sequence,
                    "resume": True,
                }
            await self.ws.close()
        if self._sockets.last is not None:
            await self._sockets.last.close()
            self._sockets.last = None


def _label(channel: discord.abc.GuildChannel | discord.Thread) -> str:
    if not isinstance(channel, discord.Thread):
        return f"#{channel.name} ({channel.guild.name})"
    parent = f"#{channel.parent.name} / " if channel.parent else ""
    return f"{parent}{channel.name} ({channel.guild.name})"
