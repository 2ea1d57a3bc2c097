"""Keeps the bot's websocket session, with discord.py for the protocol.

discord.py identifies the bot, sends heartbeats, resumes sessions, and keeps the names of channels.
Two things are done here instead. First, every frame is handed over at once and in order, where
discord.py would start a task for each. Second, a lost connection is raised to the caller, who
decides when to connect again. Only if Discord itself asks for a resume does `listen` connect again
at once, and it raises if the next connection closes without a welcome. The session outlives a lost
connection: the next connection resumes it and receives the events that were missed.
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
# After this many failures in a row to resume a session, a new session is begun.
MISSES_MAX: Final = 3
_VERB: Final = "Discord's gateway"
# The events that discord.py still parses: the session itself, and the names of servers, channels
# and roles.
_KEPT: Final = ("READY", "RESUMED", "GUILD_", "CHANNEL_", "THREAD_")

# At lower levels discord.py logs every frame, with what people write.
logging.getLogger("discord").setLevel(logging.WARNING)
# The adapter uses no voice, and discord.py would warn about missing voice libraries at every start.
discord.VoiceClient.warn_nacl = False
discord.VoiceClient.warn_dave = False


def _intents() -> discord.Intents:
    return discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


class _Sockets(HTTPClient):
    """Opens websockets with the HTTP session of our own requests. REST of discord.py is not
    used."""

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
    """Holds one session with Discord's gateway. `hear` is called with every frame."""

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
        # Messages are decoded by `payloads.py`, so a message of a shape that discord.py does not
        # expect cannot end the connection.
        parsers = self._connection.parsers
        for event in [name for name in parsers if not name.startswith(_KEPT)]:
            del parsers[event]
        self._hear = hear
        self._is_welcome = False
        self._past: dict[str, Any] = {}
        self._misses = 0

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Receive every event of discord.py. Only raw frames and the session's start are used."""
        if event == "socket_raw_receive":
            self._hear(args[0])
        elif event in {"connect", "resumed"}:
            self._is_welcome = True

    async def listen(self, url: str) -> None:
        """Receive frames until the connection is lost, and raise the error that ended it."""
        await self._async_setup_hook()
        while True:
            past, self._is_welcome = self._past, False
            try:
                await self._converse(yarl.URL(url))
            except ReconnectWebSocket as asked:
                if not asked.resume:
                    self._past = {}
                # If a resumed session was declared over, a new one is begun at once. A server that
                # refuses a new session, or asks for another reconnect without a welcome in between,
                # would do the same again at once: the caller has to wait.
                is_over = bool(past) and not self._past
                if not self._is_welcome and not is_over:
                    raise Transient(f"{_VERB}: closed without a welcome") from asked
            except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
                self._judge_past(error)
                raise translated(error, _VERB) from error

    def _judge_past(self, error: Exception) -> None:
        """Forget the session if it cannot be resumed any more.

        That is so when the server was reached but did not welcome us back, or when the resume
        address failed `MISSES_MAX` times in a row.
        """
        self._misses = 0 if self._is_welcome else self._misses + 1
        is_ignored = not self._is_welcome and isinstance(
            error, TimeoutError | discord.DiscordException
        )
        if is_ignored or self._misses >= MISSES_MAX:
            self._past = {}

    async def _converse(self, url: yarl.URL) -> None:
        """Open a connection, wait for the welcome, and read frames until the connection ends."""
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
        """Return the channels and threads of a server, each with the id of its newest message."""
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

    def places(self, guild: str) -> tuple[str, ...]:
        """Return the channels of a server that are places of their own."""
        found = self.get_guild(int(guild))
        return tuple(str(each.id) for each in found.channels) if found else ()

    def place_of(self, channel: str, roles: tuple[str, ...]) -> ChannelPlace | None:
        """Return the place of a server's channel, or None if the channel is not known. `roles` are
        the sender's."""
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
        """Close the socket, and remember how to resume the session if it had begun."""
        # `ws` is None until the first handshake is done, and after that the result of the last
        # successful handshake. The socket of a handshake that failed halfway is only in
        # `_sockets.last`, so both are closed.
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
