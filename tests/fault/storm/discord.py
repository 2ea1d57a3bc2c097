"""Puts Discord into the storm: simcord's world behind sockets, with direct messages, a channel, and
threads."""

import asyncio
import json
from urllib.parse import unquote

from aiohttp import web
from simcord.backend.models import Channel
from tests.fault.storm.platform import Sent, Spot

from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.processes.faulty_proxy import PlatformRequest

WORLD_WIDE = "typing"


class DiscordRules:
    """Tells Discord's waits: a wait is for the channel, except for one kind of call, whose wait is
    for the whole account."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        parts = unquote(path).split("/channels/")[-1].split("/")
        place, verb = parts[0], f"{method} {'/'.join(parts[1:2] + parts[3:4])}"
        is_act = "/channels/" in path and len(parts) > 1 and method != "GET"
        return PlatformRequest(
            verb=verb if is_act else f"{method} {path}",
            is_act=is_act,
            place=place,
            text=str(json.loads(body).get("content", "")) if is_act and body else "",
            wait_for="" if parts[1:2] == [WORLD_WIDE] else place,
        )

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        body = {"message": "You are being rate limited.", "retry_after": float(wait_s)}
        is_global = asked.is_act and not asked.wait_for
        return web.json_response({**body, "global": is_global}, status=429)


class DiscordStorm:
    rules = DiscordRules()
    long_words = 300

    def __init__(self, server: SimcordServer) -> None:
        self.url = server.url
        self._server = server
        people = {str(user.id): user for user in (server.alice, server.bob)}
        self._people = people
        self._direct = direct = [server.direct(user) for user in people.values()]
        threads = [server.thread(server.general, name) for name in ("one", "two")]
        rooms = [*direct, server.general, server.channel("random"), *threads]
        self._channels: dict[str, Channel] = {str(room.id): room for room in rooms}
        alone = [
            Spot(str(room.id), people=(person,))
            for room, person in zip(direct, people, strict=True)
        ]
        self.spots = (*alone, *(Spot(str(room.id), people=tuple(people)) for room in rooms[2:]))

    def section(self, url: str) -> str:
        return f'[adapters.discord]\ntoken = "{TOKEN}"\napi_url = "{url}/api"\n'

    async def ready(self) -> None:
        """Wait until the bot is connected and knows everybody. Discord tells a new session of no
        direct channel, so a bot that is away for somebody's very first words never learns of them:
        here they are said before the storm."""
        while not self._server.gateway.connected:
            await asyncio.sleep(0.02)
        for person, room in zip(self._people.values(), self._direct, strict=True):
            self._server.write(person, room, "/whoami")
        while not all(map(self._is_answered, self._direct)):
            await asyncio.sleep(0.02)

    def _is_answered(self, room: Channel) -> bool:
        return any(each.author == self._server.bot for each in self._server.shown(room))

    async def write(self, spot: Spot, person: str, text: str) -> str:
        message = self._server.write(self._people[person], self._channels[spot.place], text)
        return f"{spot.place}/{message}"

    async def edit(self, sent: Sent, text: str) -> str:
        self._server.edit(self._channels[sent.spot.place], _id(sent), text)
        return ""

    async def delete(self, sent: Sent) -> str:
        self._server.delete(self._channels[sent.spot.place], _id(sent))
        return ""

    async def disturb(self, sent: Sent) -> str:
        await self._server.gateway.cut()
        if sent.number % 2:
            self._server.gateway.forget()
            return "connection cut, session forgotten"
        return "connection cut"

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        return [
            (f"{spot.place}/{shown.id}", shown)
            for shown in self._server.shown(self._channels[spot.place])
            if shown.author == self._server.bot
        ]


def _id(sent: Sent) -> str:
    return sent.name.rpartition("/")[2]
