"""Runs Discord's gateway and REST by `discord-digital-twin`. Each test has a guild of its own.

The peer knows heartbeats and identifying, but no resuming: it answers a new identify, and never a
resume. It checks no lengths, accepts no uploads and has no rate limits, and its reaction events
lack a field that clients need. `/oauth2/applications/@me` is missing; `/applications/@me` exists.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from perdure.testkit.peers.node_control import NodeControl
from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import ShownMessage, wait_until


class _Guild(msgspec.Struct, frozen=True):
    """Holds a guild as the harness has made it. Channels and users are by their names."""

    world: str
    rest_url: str
    gateway_url: str
    bot_token: str
    bot_user: str
    guild: str
    channels: dict[str, str]
    users: dict[str, str]


class DiscordTwinServer(Server):
    """Runs `harness` with `node`. After a restart it remembers nothing."""

    def __init__(self, site: Site, *, node: Path, harness: Path) -> None:
        port = free_port()
        self.control_url = f"http://127.0.0.1:{port}"
        command = [str(node), str(harness), str(port), str(site.folder)]
        twin = Peer("discord-twin", command, site=site, ready=f"{self.control_url}/ready")
        super().__init__(twin, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["DiscordTwinControl"]:
        """Open a guild with the channels `general` and `random`, and with Alice, Bob and the
        bot."""
        async with aiohttp.ClientSession() as session:
            node = NodeControl(self.control_url, session)
            world = msgspec.convert(await node.call("open"), _Guild)
            try:
                yield DiscordTwinControl(self, node, world)
            finally:
                if self.is_running:
                    await node.call("close", world=world.world)


class DiscordTwinControl:
    """Plays the people of one guild, by their names."""

    def __init__(self, server: DiscordTwinServer, node: NodeControl, world: _Guild) -> None:
        self.server = server
        self.rest_url = world.rest_url
        self.gateway_url = world.gateway_url
        self.bot_token = world.bot_token
        self.bot_user = world.bot_user
        self.guild = world.guild
        self.channels = world.channels
        self.users = world.users
        self._node = node
        self._world = world.world

    @property
    def general(self) -> str:
        return self.channels["general"]

    async def write(
        self, channel: str, text: str, *, user: str = "alice", reply_to: str = ""
    ) -> str:
        """Write in a channel or a thread, and return the message's id."""
        answer = await self._act("write", channel, user, text=text, reply_to=reply_to)
        message: str = answer["id"]
        return message

    async def edit(self, channel: str, message: str, text: str, *, user: str = "alice") -> None:
        await self._act("edit", channel, user, message=message, text=text)

    async def delete(self, channel: str, message: str, *, user: str = "alice") -> None:
        await self._act("delete", channel, user, message=message)

    async def click(
        self, channel: str, message: str, custom_id: str, *, user: str = "alice"
    ) -> str:
        """Press a button, and return the interaction's id."""
        answer = await self._act("click", channel, user, message=message, custom_id=custom_id)
        interaction: str = answer["id"]
        return interaction

    async def command(
        self,
        channel: str,
        name: str,
        options: Sequence[dict[str, object]] = (),
        *,
        user: str = "alice",
    ) -> str:
        """Use a slash command, and return the interaction's id. Options are as Discord sends
        them."""
        answer = await self._act("command", channel, user, name=name, options=list(options))
        interaction: str = answer["id"]
        return interaction

    async def answer(self, channel: str, interaction: str) -> dict[str, Any] | None:
        """Return the bot's answer to an interaction, or None if there is none yet."""
        found: dict[str, Any] | None = await self._look("answer", channel, interaction=interaction)
        return found if found is not None and found["acknowledged"] else None

    async def shown(self, channel: str) -> list[ShownMessage]:
        """Return the messages of a channel or a thread, oldest first."""
        messages = await self._look("messages", channel)
        return [_shown(each) for each in sorted(messages, key=lambda each: int(each["id"]))]

    async def wait_shown(
        self, channel: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the messages of a channel are accepted, and return them."""
        return await wait_until(lambda: self.shown(channel), accept, clock=self.server.clock)

    async def threads(self, channel: str) -> dict[str, str]:
        """Return the ids of a channel's threads by their names."""
        return {each["name"]: each["id"] for each in await self._look("threads", channel)}

    async def typing(self, channel: str) -> int:
        """Return how often the bot has signalled that it is typing."""
        return len(await self._look("typing", channel))

    async def connections(self) -> int:
        """Return how many clients have identified themselves at the gateway."""
        number: int = await self._node.call("connections", world=self._world)
        return number

    async def wait_connected(self) -> None:
        """Wait until a client has identified itself."""
        await wait_until(self.connections, bool, clock=self.server.clock)

    async def cut(self) -> None:
        """Drop every gateway connection without a closing message."""
        await self._node.call("cut", world=self._world)

    async def _look(self, verb: str, channel: str, **fields: object) -> Any:
        return await self._node.call(verb, world=self._world, channel=channel, **fields)

    async def _act(self, verb: str, channel: str, user: str, **fields: object) -> Any:
        return await self._look(verb, channel, user=self.users[user], **fields)


def _shown(message: dict[str, Any]) -> ShownMessage:
    return ShownMessage(
        id=message["id"],
        author=message["author"]["id"],
        text=message["content"],
        is_edited=message.get("edited_timestamp") is not None,
        raw=message,
    )
