"""Puts Slack into the storm: this project's scripted server with streams, private chats, and
threads in which several people have conversations of their own."""

from urllib.parse import parse_qsl

from aiohttp import web
from tests.fault.storm.platform import Sent, Spot

from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.slack.scripted_slack import APP_TOKEN, BOT_TOKEN, ScriptedSlack
from perdure.testkit.processes.faulty_proxy import PlatformRequest

ACTS = ("chat.", "reactions.", "conversations.", "files.")
BY_CHANNEL = "chat.postMessage"
STRANGER = "U99"


class SlackRules:
    """Tells Slack's waits: posts are counted by channel, all other calls for the whole app."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        verb = path.rpartition("/")[2]
        params = dict(parse_qsl(body.decode()))
        place = params.get("channel", "")
        return PlatformRequest(
            verb=verb,
            is_act=verb.startswith(ACTS),
            place=place,
            text=" ".join(params.get(each, "") for each in ("markdown_text", "blocks", "text")),
            wait_for=place if verb == BY_CHANNEL else "",
        )

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        headers = {"Retry-After": str(wait_s)}
        return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)


class SlackStorm:
    rules = SlackRules()
    long_words = 1300

    def __init__(self, server: ScriptedSlack, spots: tuple[Spot, ...]) -> None:
        self.url = server.url
        self.spots = spots
        self._server = server

    @classmethod
    async def on(cls, server: ScriptedSlack) -> "SlackStorm":
        """Let a stranger, whom the bot does not answer, begin the threads."""
        first, second = [await server.write("C01", "here", user=STRANGER) for _ in range(2)]
        return cls(
            server,
            (
                *(Spot(f"D0{number}", people=(f"U0{number}",)) for number in (1, 2)),
                *(Spot("C01", first, (person,), calmness=2.0) for person in ("U01", "U02")),
                *(Spot("C01", second, (person,), calmness=2.0) for person in ("U02", "U03")),
            ),
        )

    def section(self, url: str) -> str:
        return (
            f'[adapters.slack]\ntoken = "{BOT_TOKEN}"\napp_token = "{APP_TOKEN}"\n'
            f'api_url = "{url}/api/"\ngroups = "person"\n'
        )

    async def ready(self) -> None:
        await self._server.wait(lambda: bool(self._server.connections))

    async def write(self, spot: Spot, person: str, text: str) -> str:
        ts = await self._server.write(spot.place, text, user=person, thread=spot.thread)
        return f"{spot.place}/{ts}"

    async def edit(self, sent: Sent, text: str) -> str:
        await self._server.edit(_ts(sent), text)
        return f"{sent.name}/"

    async def delete(self, sent: Sent) -> str:
        await self._server.delete(_ts(sent))
        return f"{sent.name}/deleted"

    async def disturb(self, sent: Sent) -> str:
        # Slack sends an event whose acknowledgement it lost again, in another envelope.
        if _ts(sent) not in self._server.messages or sent.number % 2:
            for connection in list(self._server.connections):
                await connection.close()
            return "connection cut"
        event = self._server.messages[_ts(sent)]
        await self._server.deliver("events_api", {"type": "event_callback", "event": event})
        return "told again"

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        return [
            (f"{spot.place}/{shown.id}", shown)
            for shown in await self._server.shown(spot.place)
            if shown.thread == spot.thread
        ]


def _ts(sent: Sent) -> str:
    return sent.name.rpartition("/")[2]
