"""Puts Matrix into the storm: a real Synapse with direct rooms, a room of several people, and a
thread."""

import json
from urllib.parse import unquote

from aiohttp import web
from tests.fault.storm.platform import Sent, Spot

from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.matrix.synapse import MatrixControl
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.processes.faulty_proxy import PlatformRequest

ACTS = ("send", "redact", "typing")


class MatrixRules:
    """Tells the homeserver's waits, which are for the whole account."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        room, _, rest = path.partition("/rooms/")[2].partition("/")
        verb, _, kind = rest.partition("/")
        is_act = verb in ACTS and method != "GET"
        content = json.loads(body) if is_act and body else {}
        return PlatformRequest(
            verb=f"{verb} {kind.partition('/')[0]}"
            if is_act
            else f"{method} {verb or _name(path)}",
            is_act=is_act,
            place=unquote(room),
            text=str(content.get("m.new_content", content).get("body", "")),
        )

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        body = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests"}
        body_ms = {**body, "retry_after_ms": wait_s * 1000}
        return web.json_response(body_ms, status=429, headers={"Retry-After": str(wait_s)})


class MatrixStorm:
    rules = MatrixRules()
    long_words = 400

    def __init__(
        self,
        control: MatrixControl,
        bot: MatrixPerson,
        people: list[MatrixPerson],
        spots: tuple[Spot, ...],
    ) -> None:
        self.url = control.url
        self._clock = control.server.clock
        self.spots = spots
        self._bot = bot
        self._people = {person.user_id: person for person in people}

    @classmethod
    async def on(cls, control: MatrixControl) -> "MatrixStorm":
        bot, ada, bob, eve = [await control.person(name) for name in ("bot", "ada", "bob", "eve")]
        people = [ada, bob]
        spots = [
            Spot(await each.room(invite=[bot.user_id], is_direct=True), people=(each.user_id,))
            for each in people
        ]
        both = (ada.user_id, bob.user_id)
        for has_thread in (False, True):
            room = await ada.room(invite=[bot.user_id, bob.user_id, eve.user_id], name="club")
            await bob.join(room)
            await eve.join(room)
            root = await eve.write(room, "here") if has_thread else ""
            spots.append(Spot(room, root, both))
        return cls(control, bot, people, tuple(spots))

    def section(self, url: str) -> str:
        return (
            f'[adapters.matrix]\nhomeserver = "{url}"\nuser = "{self._bot.user_id}"\n'
            f'password = "{self._bot.password}"\n'
        )

    async def ready(self) -> None:
        async def joined() -> int:
            _, answer = await self._bot.call("GET", "/_matrix/client/v3/joined_rooms")
            return len(answer["joined_rooms"])

        await wait_until(joined, lambda rooms: rooms == len(self.spots), clock=self._clock)

    async def write(self, spot: Spot, person: str, text: str) -> str:
        return await self._people[person].write(spot.place, text, thread=spot.thread)

    async def edit(self, sent: Sent, text: str) -> str:
        return await self._people[sent.person].edit(sent.spot.place, sent.name, text)

    async def delete(self, sent: Sent) -> str:
        return await self._people[sent.person].delete(sent.spot.place, sent.name)

    async def disturb(self, sent: Sent) -> str:
        return ""  # a sync whose answer was lost already brings everything again

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        reader = self._people[spot.people[0]]
        return [
            (shown.id, shown)
            for shown in await reader.shown(spot.place)
            if shown.author == self._bot.user_id and shown.thread == spot.thread
        ]


def _name(path: str) -> str:
    return path.removeprefix("/_matrix/client/v3/").partition("/")[0]
