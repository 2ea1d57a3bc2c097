"""Implements Discord's gateway protocol for simcord's world: greeting, sessions, replay and
heartbeats.

A session collects events whether or not its socket is open, as on Discord. A client that comes back
with the session's id and the number of the last event it has got receives the rest.
"""

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import discord
from aiohttp import WSMsgType, web
from simcord import intents as rules
from simcord.backend import Backend, serializers

HEARTBEAT_MS: Final = 41_250
_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME = 0, 1, 2, 6
_INVALID_SESSION, _HELLO, _HEARTBEAT_ACK = 9, 10, 11
_WRONG_TOKEN: Final = 4004
_DISALLOWED_INTENTS: Final = 4014


class Session:
    """Holds what one client was told, and the queue of its socket if one is open."""

    def __init__(self, name: str, intents: discord.Intents) -> None:
        self.name = name
        self.intents = intents
        self.told: list[dict[str, Any]] = []
        self.line: asyncio.Queue[dict[str, Any]] | None = None

    def tell(self, event: str, data: object) -> None:
        """Record an event, and send it if a socket is open."""
        frame = {"op": _DISPATCH, "t": event, "s": len(self.told) + 1, "d": data}
        self.told.append(frame)
        if self.line is not None:
            self.line.put_nowait(frame)


class SimcordGateway:
    """Serves the gateway of simcord's world. `shaped` encodes what is sent, with this server's
    addresses in it."""

    def __init__(
        self, backend: Backend, *, token: str, shaped: Callable[[object], str], url: str = ""
    ) -> None:
        self.url = url
        self.identified = 0
        self.resumed = 0
        self.close_code = 0
        self.turned_away = 0
        self.has_message_content = True
        self._backend = backend
        self._token = token
        self._shaped = shaped
        self._sessions: dict[str, Session] = {}
        self._sockets: list[web.WebSocketResponse] = []
        backend.subscribers.append(self._tell_all)

    @property
    def connected(self) -> int:
        """Return how many sessions have a socket open."""
        return sum(1 for session in self._sessions.values() if session.line is not None)

    async def cut(self, code: int = 4000) -> None:
        """Close every socket. The sessions stay."""
        for socket in list(self._sockets):
            await socket.close(code=code)

    def turn_away(self, times: int) -> None:
        """Refuse the next connections before they are open."""
        self.turned_away = times

    def forget(self) -> None:
        """Drop all sessions, so that none can be resumed."""
        self._sessions.clear()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection until it ends."""
        if self.turned_away > 0:
            self.turned_away -= 1
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.close_code:
            await socket.close(code=self.close_code)
            return socket
        self._sockets.append(socket)
        line: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        line.put_nowait({"op": _HELLO, "d": {"heartbeat_interval": HEARTBEAT_MS}})
        writer = asyncio.get_running_loop().create_task(self._write(socket, line))
        session: Session | None = None
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    said = json.loads(message.data)
                    session = await self._hear(said, session, line, socket)
        finally:
            writer.cancel()
            self._sockets.remove(socket)
            if session is not None and session.line is line:
                session.line = None
        return socket

    async def _write(
        self, socket: web.WebSocketResponse, line: asyncio.Queue[dict[str, Any]]
    ) -> None:
        while True:
            await socket.send_str(self._shaped(await line.get()))

    async def _hear(
        self,
        said: dict[str, Any],
        session: Session | None,
        line: asyncio.Queue[dict[str, Any]],
        socket: web.WebSocketResponse,
    ) -> Session | None:
        """Handle a message of a client, and return the session of its connection, if there is
        one."""
        match said["op"]:
            case 1:
                line.put_nowait({"op": _HEARTBEAT_ACK})
            case 2:
                return await self._identify(said["d"], line, socket)
            case 6:
                return self._resume(said["d"], line)
            case _:
                pass
        return session

    async def _identify(
        self,
        data: dict[str, Any],
        line: asyncio.Queue[dict[str, Any]],
        socket: web.WebSocketResponse,
    ) -> Session | None:
        """Open a new session, or close the socket if the client may not have one."""
        intents = discord.Intents.none()
        intents.value = data["intents"]
        if data["token"] != self._token:
            await socket.close(code=_WRONG_TOKEN)
            return None
        if intents.message_content and not self.has_message_content:
            await socket.close(code=_DISALLOWED_INTENTS)
            return None
        self.identified += 1
        session = Session(f"session-{self.identified}", intents)
        session.line = line
        self._sessions[session.name] = session
        session.tell("READY", self._ready(session))
        for guild in self._backend.guilds.values():
            self._tell(
                session, "GUILD_CREATE", serializers.guild_create_payload(self._backend, guild)
            )
        return session

    def _ready(self, session: Session) -> dict[str, Any]:
        """Return the first event of a session."""
        return {
            "v": 10,
            "user": serializers.user_payload(self._backend.bot_user),
            "guilds": [{"id": str(guild), "unavailable": True} for guild in self._backend.guilds],
            "session_id": session.name,
            "resume_gateway_url": self.url,
            "application": {"id": str(self._backend.application_id), "flags": 0},
        }

    def _resume(self, data: dict[str, Any], line: asyncio.Queue[dict[str, Any]]) -> Session | None:
        """Continue a session with the events that the client has missed. Returns None if the
        session is unknown."""
        session = self._sessions.get(data["session_id"])
        if session is None:
            line.put_nowait({"op": _INVALID_SESSION, "d": False})
            return None
        self.resumed += 1
        session.line = line
        for frame in session.told[data["seq"] :]:
            line.put_nowait(frame)
        session.tell("RESUMED", {})
        return session

    def _tell_all(self, event: str, payload: Mapping[str, Any]) -> None:
        for session in self._sessions.values():
            self._tell(session, event, payload)

    def _tell(self, session: Session, event: str, payload: Mapping[str, Any]) -> None:
        """Tell a session of an event if it asked for such events, without the parts that it may not
        read."""
        gate = rules.required_intent(event, payload)
        if gate is not None and not getattr(session.intents, gate):
            return
        told = copy.deepcopy(dict(payload))
        bot = self._backend.bot_user.id
        if event in {"MESSAGE_CREATE", "MESSAGE_UPDATE"} and not session.intents.message_content:
            rules.censor_message(told, bot, backend=self._backend)
        if event == "GUILD_CREATE":
            rules.prune_guild_create(told, session.intents, bot)
        session.tell(event, told)
