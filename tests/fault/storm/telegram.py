"""Puts Telegram into the storm: this project's Bot API server with private chats, a group, and
topics of another."""

import json
from typing import Any

from aiohttp import web
from tests.fault.storm.platform import Sent, Spot

from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.faulty_proxy import PlatformRequest

ACTS = ("send", "edit", "delete", "setMessage")


class TelegramRules:
    """Tells Telegram's waits: a wait is for the chat of the refused call."""

    def read(self, method: str, path: str, body: bytes) -> PlatformRequest:
        verb = path.rpartition("/")[2]
        params: dict[str, Any] = json.loads(body) if body else {}
        place = str(params.get("chat_id", ""))
        is_act = verb.startswith(ACTS) and bool(place)  # without a chat it is a probe
        text = params.get("text") or params.get("rich_message", {}).get("markdown", "")
        return PlatformRequest(verb=verb, is_act=is_act, place=place, text=text, wait_for=place)

    def limited(self, asked: PlatformRequest, wait_s: int) -> web.Response:
        words = f"Too Many Requests: retry after {wait_s}"
        body = {"ok": False, "error_code": 429, "description": words}
        return web.json_response({**body, "parameters": {"retry_after": wait_s}}, status=429)


class TelegramStorm:
    rules = TelegramRules()
    spots = (
        *(Spot(str(chat), people=(str(chat),)) for chat in (4201, 4202, 4203, 4204)),
        Spot("-1001", people=("4201", "4202"), calmness=1.5),
        *(Spot("-1002", thread, ("4203", "4204"), calmness=3.0) for thread in ("7", "8")),
    )
    long_words = 700

    def __init__(self, api: BotApi) -> None:
        self.url = api.url
        self._api = api

    def section(self, url: str) -> str:
        return f'[adapters.telegram]\ntoken = "{self._api.token}"\napi_url = "{url}"\n'

    async def ready(self) -> None:
        await self._api.wait(lambda: bool(self._api.made("getUpdates")))

    async def write(self, spot: Spot, person: str, text: str) -> str:
        by = {"id": int(person), "is_bot": False, "first_name": f"P{person}"}
        fields: dict[str, object] = {"from": by}
        if spot.thread:
            fields |= {"message_thread_id": int(spot.thread), "is_topic_message": True}
        number = self._api.write(int(spot.place), text, **fields)
        return f"{spot.place}/{number}"

    async def edit(self, sent: Sent, text: str) -> str:
        self._api.edit(int(sent.spot.place), _number(sent), text)
        return f"{sent.name}/edit/"

    async def delete(self, sent: Sent) -> None:
        return None

    async def disturb(self, sent: Sent) -> str:
        self._api.push(message=self._api.chats.message(int(sent.spot.place), _number(sent)))
        return "told again"

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        return [
            (f"{spot.place}/{shown.id}", shown)
            for shown in await self._api.shown(int(spot.place))
            if shown.thread == spot.thread
        ]


def _number(sent: Sent) -> int:
    return int(sent.name.rpartition("/")[2])
