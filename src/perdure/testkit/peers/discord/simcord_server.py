"""Serves simcord's model of Discord through real sockets: REST, gateway and file store on loopback.

simcord keeps a world (servers, members, permissions, messages, interactions) that obeys Discord's
rules and answers with its error codes, but has no network. This server gives it one. So a client is
tested with its own HTTP code, and a whole gateway process can talk to it. Some rules that simcord
does not have are added as Discord publishes them: if a nonce must be unique, it brings back the
message that used it, a rate limit names the seconds to wait, and a forum accepts only posts.
"""

import fnmatch
import io
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import discord
import msgspec
from aiohttp import web
from simcord.backend import Backend, serializers
from simcord.backend.cdn import CDN_BASE
from simcord.backend.errors import BackendError
from simcord.backend.models import Channel, Guild, Message, User
from simcord.backend.models.message import MessageSticker
from simcord.enums import ChannelType
from simcord.http import router
from simcord.http import routes as _routes  # noqa: F401  what is not imported is not routed
from simcord.interactions import base_payload

from perdure.ports.system.clock import Clock
from perdure.testkit.peers.discord.simcord_gateway import SimcordGateway
from perdure.testkit.peers.shown import ShownMessage

TOKEN: Final = "a-bots-token"  # noqa: S105
_API: Final = "/api/v10"
_COMMAND, _CLICK = 2, 3


class _RouteFault(msgspec.Struct, kw_only=True):
    """Says how the next requests to a route fail: with `status`, or, if that is 0, they are
    performed and then the connection breaks."""

    method: str
    path: str
    status: int
    code: int = 0
    errors: dict[str, Any] = {}
    retry_after_s: float | None = None
    is_global: bool = False
    times: int = 1


class SimcordServer:
    """Serves one guild with a channel, two people, and the bot."""

    def __init__(self) -> None:
        self.world = Backend()
        self.guild: Guild = self.world.create_guild("Harbour")
        self.general = self.channel("general")
        self.alice = self.person("alice")
        self.bob = self.person("bob")
        self.faults: list[_RouteFault] = []
        self.url = ""
        self.gateway = SimcordGateway(self.world, token=TOKEN, shaped=self._shaped)
        self._stickers: dict[str, int] = {}
        self._nonces: dict[str | None, str] = {}
        self._runner: web.AppRunner | None = None

    @property
    def api_url(self) -> str:
        return f"{self.url}/api"

    @property
    def cdn_url(self) -> str:
        return f"{self.url}/cdn"

    @property
    def bot(self) -> str:
        return str(self.world.bot_user.id)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64_000_000)
        app.router.add_get("/gateway", self.gateway.serve)
        app.router.add_get("/cdn/{tail:.*}", self._file)
        app.router.add_route("*", _API + "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self.gateway.url = f"ws://{host}:{port}/gateway"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.gateway.cut()
        if self._runner is not None:
            await self._runner.cleanup()

    def channel(self, name: str, *, type: int = ChannelType.TEXT) -> Channel:  # noqa: A002
        return self.world.create_channel(self.guild.id, name, type=type)

    def thread(self, parent: Channel, name: str) -> Channel:
        return self.world.create_thread(parent.id, name, self.alice.id)

    def person(self, name: str, *, roles: Sequence[str] = (), is_bot: bool = False) -> User:
        """Add a person or a bot to the guild."""
        user = self.world.make_user(name, bot=is_bot)
        ids = [self.world.create_role(self.guild.id, role).id for role in roles]
        self.world.add_member(self.guild.id, user.id, roles=ids)
        return user

    def keep_our_time(self, clock: Clock) -> None:
        """Set the world's clock to this one, because ids contain the time at which they were
        made."""
        self.world.advance_clock(clock.now_ms() / 1000 - self.world.clock.now().timestamp())

    def direct(self, user: User) -> Channel:
        """Return the private channel of a person and the bot."""
        return self.world.get_dm_channel(user.id)

    def write(
        self,
        user: User,
        channel: Channel,
        text: str,
        *,
        reply_to: str = "",
        files: Sequence[tuple[str, bytes]] = (),
        flags: int = 0,
    ) -> str:
        """Let a person write, and return the message's id."""
        self.world.advance_clock(0.01)
        message = self.world.create_message(
            channel.id,
            user.id,
            text,
            flags=flags,
            reference={"message_id": reply_to} if reply_to else None,
            attachments=self.world.store_attachments(channel.id, files),
        )
        return str(message.id)

    def stick(self, user: User, channel: Channel, name: str, data: bytes) -> str:
        """Let a person send a sticker, and return the message's id. The same name is the same
        sticker."""
        self.world.advance_clock(0.01)
        number = self._stickers.setdefault(name, self.world.snowflake())
        self.world.cdn.store_sticker(number, 1, data)
        sticker = MessageSticker(number, name, format_type=1, guild_id=self.guild.id)
        return str(self.world.create_message(channel.id, user.id, "", stickers=[sticker]).id)

    def forward(self, user: User, channel: Channel, source: Channel, message: str) -> str:
        """Let a person forward a message of another channel, and return the new message's id."""
        self.world.advance_clock(0.01)
        reference = {"type": 1, "channel_id": str(source.id), "message_id": message}
        return str(self.world.create_message(channel.id, user.id, reference=reference).id)

    def edit(self, channel: Channel, message: str, text: str) -> None:
        self.world.advance_clock(0.01)
        self.world.edit_message(channel.id, int(message), {"content": text})

    def delete(self, channel: Channel, message: str) -> None:
        self.world.delete_message(channel.id, int(message))

    def click(self, user: User, channel: Channel, message: str, label: str) -> int:
        """Let a person press the button with this label, and return the interaction's id."""
        buttons = self.buttons(channel, message)
        pressed = next(button for button in buttons if button["label"] == label)
        return self.press(user, channel, message, pressed["custom_id"])

    def buttons(self, channel: Channel, message: str) -> list[dict[str, Any]]:
        """Return the buttons under a message, from the first to the last."""
        stored = self.world.get_message(channel.id, int(message))
        return [button for row in stored.components for button in row["components"]]

    def press(self, user: User, channel: Channel, message: str, custom_id: str) -> int:
        """Let a person press the button with this id, and return the interaction's id. The message
        need not have such a button."""
        stored = self.world.get_message(channel.id, int(message))
        data = {"custom_id": custom_id, "component_type": 2}
        shown = dict(serializers.message_payload(self.world, stored))
        return self._interact(user, channel, _CLICK, data, message=shown)

    def command(self, user: User, channel: Channel, name: str, **options: object) -> int:
        """Let a person choose a command that the bot has put on the menu, and return the
        interaction's id."""
        known = self.world.commands.get(None, {})[name, 1]
        types = {option["name"]: option["type"] for option in known.get("options") or ()}
        given = [
            {"name": option, "type": types[option], "value": value}
            for option, value in options.items()
        ]
        data = {"id": known["id"], "name": name, "type": 1, "options": given}
        return self._interact(user, channel, _COMMAND, data)

    def _interact(
        self,
        user: User,
        channel: Channel,
        kind: int,
        data: dict[str, Any],
        *,
        message: dict[str, Any] | None = None,
    ) -> int:
        record, payload = base_payload(
            self.world,
            type=kind,
            channel_id=channel.id,
            guild_id=channel.guild_id,
            user_id=user.id,
            data=data,
        )
        if message is not None:
            record.source_message_id = int(message["id"])
            payload["message"] = message
        self.world.emit("INTERACTION_CREATE", payload)
        return record.id

    def shown(self, channel: Channel) -> list[ShownMessage]:
        """Return what people see in a channel, oldest first."""
        messages = sorted(self.world.messages[channel.id].values(), key=lambda each: each.id)
        return [self._seen(message) for message in messages if not message.is_ephemeral]

    def _seen(self, message: Message) -> ShownMessage:
        return ShownMessage(
            id=str(message.id),
            author=str(message.author_id),
            text=message.content,
            is_edited=message.edited_timestamp is not None,
            raw=dict(serializers.message_payload(self.world, message)),
        )

    def requests(self, method: str, pattern: str) -> list[Any]:
        """Return the bodies of the requests that were made to a route."""
        return [
            entry.json
            for entry in self.world.http_requests
            if entry.method == method and fnmatch.fnmatch(entry.path, pattern)
        ]

    def fail(self, method: str, path: str, status: int, **more: Any) -> None:
        """Let the next request to a route fail."""
        self.faults.append(_RouteFault(method=method, path=path, status=status, **more))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or let it fail as a fault says."""
        path = request.path.removeprefix(_API)
        needs_no_token = path.startswith(("/interactions/", "/webhooks/"))
        if not needs_no_token and request.headers.get("Authorization") != f"Bot {TOKEN}":
            return self._json({"message": "401: Unauthorized", "code": 0}, status=401)
        fault = self._fault(request.method, path)
        if fault is not None and fault.status:
            refusal: dict[str, Any] = {"message": "as the test wants it", "code": fault.code}
            if fault.errors:
                refusal["errors"] = fault.errors
            if fault.retry_after_s is not None:
                refusal |= {"retry_after": fault.retry_after_s, "global": fault.is_global}
            return self._json(refusal, status=fault.status)
        try:
            answer = await self._obey(request, path)
        except BackendError as error:
            return self._json(error.to_json(), status=error.status)
        if fault is not None and request.transport is not None:
            request.transport.abort()
        return web.Response(status=204) if answer is None else self._json(answer)

    async def _obey(self, request: web.Request, path: str) -> Any:
        """Perform a request in simcord's world."""
        if path == "/gateway/bot":
            return {"url": self.gateway.url, "shards": 1}
        body, files = await _read(request)
        self._refuse_message_in_forum(request.method, path)
        nonce = body.get("nonce") if isinstance(body, dict) and body.get("enforce_nonce") else None
        if nonce in self._nonces:
            return router.dispatch(self.world, "GET", self._nonces[nonce])
        answer = router.dispatch(
            self.world, request.method, path, json=body, params=dict(request.query), files=files
        )
        if nonce is not None:
            self._nonces[nonce] = f"{path}/{answer['id']}"
        return answer

    def _refuse_message_in_forum(self, method: str, path: str) -> None:
        """Refuse a message in a forum, as Discord does, where only posts can be opened. simcord
        would accept the message."""
        channel = path.removeprefix("/channels/").removesuffix("/messages")
        if method != "POST" or not (path.endswith("/messages") and channel.isdecimal()):
            return
        found = self.world.channels.get(int(channel))
        if found is not None and found.type == ChannelType.FORUM:
            raise BackendError(400, 50008, "Cannot send messages in a non-text channel")

    def _fault(self, method: str, path: str) -> _RouteFault | None:
        """Return the next fault of a route, or None."""
        for fault in self.faults:
            if fault.method == method and fnmatch.fnmatch(path, fault.path) and fault.times > 0:
                fault.times -= 1
                return fault
        return None

    async def _file(self, request: web.Request) -> web.Response:
        data = self.world.cdn.get(f"{CDN_BASE}/{request.match_info['tail']}")
        return web.Response(status=404) if data is None else web.Response(body=data)

    def _shaped(self, payload: object) -> str:
        """Return a payload as JSON, with this server's addresses instead of simcord's."""
        return json.dumps(payload).replace(CDN_BASE, f"{self.url}/cdn")

    def _json(self, payload: object, *, status: int = 200) -> web.Response:
        return web.Response(
            text=self._shaped(payload), status=status, content_type="application/json"
        )


async def _read(request: web.Request) -> tuple[Any, list[discord.File]]:
    """Return the body of a request, and the files in it."""
    if not request.content_type.startswith("multipart/"):
        raw = await request.read()
        return (json.loads(raw) if raw else None), []
    body: Any = None
    files: list[discord.File] = []
    fields = await request.post()
    for name, value in fields.items():
        if isinstance(value, web.FileField):
            data = io.BytesIO(value.file.read())
            files.append(discord.File(data, filename=value.filename))
        elif name == "payload_json":
            body = json.loads(value)
    return body, files
