"""Runs Slack with Socket Mode, by `local-slack`: a workspace with two people and the app.

The peer sends a mention twice, as `message` and as `app_mention`, like Slack. It has no streaming
(`chat.startStream` is an unknown method there), no rate limits and no second delivery: an event is
dropped if no socket is open. It listens on every interface and has no option to change that.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import ShownMessage, wait_until

APP: Final = "A0TEST"
BOT: Final = "U0BOT"
ALICE: Final = "U01ALICE"
BOB: Final = "U02BOB"
GENERAL: Final = "C01GENERAL"
RANDOM: Final = "C02RANDOM"

BOT_TOKEN: Final = "xoxb-of-the-tests"  # noqa: S105 it opens a workspace that lives for one run
APP_TOKEN: Final = "xapp-of-the-tests"  # noqa: S105 likewise
SIGNING_SECRET: Final = "signing-secret-of-the-tests"  # noqa: S105 likewise

_MEMBERS: Final = [ALICE, BOB, BOT]
_WORKSPACE: Final = {
    "workspace": {"name": "Test", "domain": "test", "teamId": "T0TEST"},
    "app": {
        "appId": APP,
        "botUserId": BOT,
        "botName": "perdure",
        "botToken": BOT_TOKEN,
        "appToken": APP_TOKEN,
        "signingSecret": SIGNING_SECRET,
        "mode": "socket",
    },
    "users": [
        {"id": ALICE, "name": "alice", "real_name": "Alice", "email": "alice@example.com"},
        {"id": BOB, "name": "bob", "real_name": "Bob", "email": "bob@example.com"},
    ],
    "channels": [
        {"id": GENERAL, "name": "general", "members": _MEMBERS},
        {"id": RANDOM, "name": "random", "members": _MEMBERS},
    ],
}


class LocalSlackServer(Server):
    """Runs the `local-slack` binary `program`. After a restart it remembers nothing."""

    def __init__(self, site: Site, *, program: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = site.path("workspace.json")
        config.write_text(json.dumps(_WORKSPACE))
        command = [str(program), "--config", str(config), "--port", str(port)]
        command += ["--base-host", "127.0.0.1", "--files-dir", str(site.path("files"))]
        slack = Peer("local-slack", command, site=site, ready=f"{self.url}/_control/state")
        super().__init__(slack, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["LocalSlackControl"]:
        """Open the workspace, emptied of messages."""
        async with aiohttp.ClientSession() as session:
            control = LocalSlackControl(self, session)
            await control.post("reset")
            yield control


class LocalSlackControl:
    """Plays the people of the workspace. The id of a message is its `ts`."""

    bot_token = BOT_TOKEN
    app_token = APP_TOKEN
    signing_secret = SIGNING_SECRET

    def __init__(self, server: LocalSlackServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.api_url = f"{server.url}/api/"
        self._session = session

    async def write(self, channel: str, text: str, *, user: str = ALICE, thread: str = "") -> str:
        """Write in a channel or a thread, and return the message's `ts`."""
        message = {"channel": channel, "user": user, "text": text}
        answer = await self.post("message", **message, **({"thread_ts": thread} if thread else {}))
        ts: str = answer["message"]["ts"]
        return ts

    async def mention(self, channel: str, text: str, *, user: str = ALICE, thread: str = "") -> str:
        """Write to the app by its name, and return the message's `ts`."""
        return await self.write(channel, f"<@{BOT}> {text}", user=user, thread=thread)

    async def direct(self, *, user: str = ALICE) -> str:
        """Return the private channel of a person and the app."""
        answer = await self.call("conversations.open", users=user)
        channel: str = answer["channel"]["id"]
        return channel

    async def edit(self, channel: str, ts: str, text: str, *, user: str = ALICE) -> None:
        await self.post("edit-message", channel=channel, ts=ts, user=user, text=text)

    async def delete(self, channel: str, ts: str, *, user: str = ALICE) -> None:
        await self.post("delete-message", channel=channel, ts=ts, user=user)

    async def react(self, channel: str, ts: str, name: str, *, user: str = ALICE) -> None:
        await self.post("reaction", channel=channel, ts=ts, user=user, name=name)

    async def click(self, channel: str, ts: str, action_id: str, *, user: str = ALICE) -> None:
        """Press a button that the message really has."""
        (message,) = [each for each in await self.shown(channel) if each.id == ts]
        (action,) = [
            {**element, "block_id": block.get("block_id", "")}
            for block in message.raw.get("blocks", [])
            for element in block.get("elements", [])
            if element.get("action_id") == action_id
        ]
        await self.press(channel, ts, action, user=user)

    async def press(
        self, channel: str, ts: str, action: dict[str, Any], *, user: str = ALICE
    ) -> None:
        """Press a button. The message need not have it."""
        await self.post("interact", channel=channel, messageTs=ts, user=user, action=action)

    async def command(
        self, channel: str, command: str, text: str = "", *, user: str = ALICE
    ) -> None:
        """Use a slash command; `command` begins with the slash."""
        await self.post("command", channel=channel, user=user, command=command, text=text)

    async def send_file(
        self, channel: str, name: str, data: bytes, *, text: str = "", user: str = ALICE
    ) -> str:
        """Send a file with a text, and return the message's `ts`."""
        form = aiohttp.FormData({"channel": channel, "user": user, "text": text})
        form.add_field("file", data, filename=name)
        url = f"{self.server.url}/_control/upload"
        async with self._session.post(url, data=form) as response:
            answer = await response.json()
            assert answer["ok"], answer
        ts: str = answer["message"]["ts"]
        return ts

    async def shown(self, channel: str) -> list[ShownMessage]:
        """Return the messages of a channel with its threads, oldest first."""
        answer = await self._get(f"messages/{channel}")
        return [_shown(message) for message in answer["messages"]]

    async def wait_shown(
        self, channel: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the messages of a channel are accepted, and return them."""
        return await wait_until(lambda: self.shown(channel), accept, clock=self.server.clock)

    async def reactions(self, channel: str, ts: str) -> list[tuple[str, str]]:
        """Return who has reacted to a message, and how."""
        (message,) = [each for each in await self.shown(channel) if each.id == ts]
        return [
            (user, reaction["name"])
            for reaction in message.raw.get("reactions", [])
            for user in reaction["users"]
        ]

    async def is_connected(self) -> bool:
        """Tell whether the app has a socket open. Only the peer's own web page shows that."""
        async with self._session.ws_connect(f"{self.server.url}/ui") as page:
            first = await page.receive_json()
        (app,) = first["state"]["apps"]
        return bool(app["connected"])

    async def wait_connected(self) -> None:
        """Wait until the app has a socket open."""
        await wait_until(self.is_connected, bool, clock=self.server.clock)

    async def log(self) -> list[dict[str, Any]]:
        """Return every call, event and answer that the peer has seen, oldest first."""
        answer = await self._get("log")
        entries: list[dict[str, Any]] = answer["log"]
        return entries

    async def call(self, method: str, **params: str) -> dict[str, Any]:
        """Call a method of the Web API as the app."""
        headers = {"Authorization": f"Bearer {BOT_TOKEN}"}
        async with self._session.post(
            self.api_url + method, data=params, headers=headers
        ) as response:
            answer: dict[str, Any] = await response.json()
            assert answer["ok"], answer
            return answer

    async def post(self, verb: str, **fields: object) -> dict[str, Any]:
        """Send a command to the peer's control interface."""
        url = f"{self.server.url}/_control/{verb}"
        async with self._session.post(url, json=fields) as response:
            answer: dict[str, Any] = await response.json()
            assert answer["ok"], (verb, answer)
            return answer

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._session.get(f"{self.server.url}/_control/{path}") as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, answer
            return answer


def _shown(message: dict[str, Any]) -> ShownMessage:
    thread = message.get("thread_ts", "")
    return ShownMessage(
        id=message["ts"],
        author=message.get("user", ""),
        text=message.get("text", ""),
        thread="" if thread == message["ts"] else thread,
        is_edited="edited" in message,
        raw=message,
    )
