"""Runs Slack with the Events API over HTTP, by `emulate`. Events are signed as Slack signs them.

The peer reads parameters from the body only. It delivers an event inside the request that caused
it, so an app that does not acknowledge at once delays the person. Its events have no
`channel_type`, `client_msg_id` or `app_mention`. It does not deliver again, and has no rate limits.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from perdure.testkit.peers.node_control import NodeControl
from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import ShownMessage, wait_until

# The credentials that the harness puts into the workspace.
BOT_TOKEN: Final = "xoxb-perdure"  # noqa: S105 it opens a workspace that lives for one run
USER_TOKEN: Final = "xoxp-alice"  # noqa: S105 likewise
SIGNING_SECRET: Final = "signing-secret-of-the-tests"  # noqa: S105 likewise


class Delivery(msgspec.Struct, frozen=True):
    """Holds an event that was posted to the app. `status` is the app's answer, or 0 if there was
    none."""

    event: str
    status: int
    payload: dict[str, Any]


class EmulateSlackServer(Server):
    """Runs `harness` with `node`. After a restart it remembers nothing."""

    def __init__(self, site: Site, *, node: Path, harness: Path) -> None:
        port, control_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.control_url = f"http://127.0.0.1:{control_port}"
        command = [str(node), str(harness), str(port), str(control_port)]
        slack = Peer("emulate-slack", command, site=site, ready=f"{self.control_url}/ready")
        super().__init__(slack, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["EmulateSlackControl"]:
        """Open the workspace, emptied of messages and subscriptions."""
        async with aiohttp.ClientSession() as session:
            node = NodeControl(self.control_url, session)
            await node.call("reset")
            control = EmulateSlackControl(self, session, node)
            await control.open()
            yield control


class EmulateSlackControl:
    """Plays the one person of the workspace. The id of a message is its `ts`."""

    bot_token = BOT_TOKEN
    user_token = USER_TOKEN
    signing_secret = SIGNING_SECRET

    def __init__(
        self, server: EmulateSlackServer, session: aiohttp.ClientSession, node: NodeControl
    ) -> None:
        self.server = server
        self.api_url = f"{server.url}/api/"
        self.user = ""
        self.bot_user = ""
        self.channels: dict[str, str] = {}
        self._session = session
        self._node = node

    async def open(self) -> None:
        """Learn the ids, and let the person and the bot join all channels."""
        self.user = (await self.call("auth.test"))["user_id"]
        self.bot_user = (await self.call("auth.test", token=BOT_TOKEN))["user_id"]
        listed = (await self.call("conversations.list"))["channels"]
        self.channels = {channel["name"]: channel["id"] for channel in listed}
        for channel in self.channels.values():
            await self.call("conversations.join", channel=channel)
            await self.call("conversations.join", token=BOT_TOKEN, channel=channel)

    async def subscribe(self, url: str) -> None:
        """Have events posted to this URL from now on."""
        await self._node.call("subscribe", url=url)

    async def deliveries(self) -> list[Delivery]:
        """Return every event that was posted, with the app's answer."""
        return [
            Delivery(each["event"], each["status_code"] or 0, each["payload"])
            for each in await self._node.call("deliveries")
        ]

    async def write(self, channel: str, text: str, *, thread: str = "") -> str:
        """Write in a channel or a thread, and return the message's `ts`."""
        message = {"channel": channel, "text": text}
        if thread:
            message["thread_ts"] = thread
        ts: str = (await self.call("chat.postMessage", **message))["ts"]
        return ts

    async def edit(self, channel: str, ts: str, text: str) -> None:
        await self.call("chat.update", channel=channel, ts=ts, text=text)

    async def delete(self, channel: str, ts: str) -> None:
        await self.call("chat.delete", channel=channel, ts=ts)

    async def react(self, channel: str, ts: str, name: str) -> None:
        await self.call("reactions.add", channel=channel, timestamp=ts, name=name)

    async def direct(self) -> str:
        """Return the private channel of the person and the app."""
        channel: str = (await self.call("conversations.open", users=self.bot_user))["channel"]["id"]
        return channel

    async def shown(self, channel: str) -> list[ShownMessage]:
        """Return the messages of a channel without its threads, oldest first."""
        answer = await self.call("conversations.history", channel=channel, limit="200")
        return [_shown(message) for message in reversed(answer["messages"])]

    async def wait_shown(
        self, channel: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the messages of a channel are accepted, and return them."""
        return await wait_until(lambda: self.shown(channel), accept, clock=self.server.clock)

    async def thread(self, channel: str, ts: str) -> list[ShownMessage]:
        """Return the messages of a thread, beginning with the one that it is below, oldest
        first."""
        answer = await self.call("conversations.replies", channel=channel, ts=ts)
        return [_shown(message) for message in answer["messages"]]

    async def wait_thread(
        self, channel: str, ts: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the messages of a thread are accepted, and return them."""
        return await wait_until(lambda: self.thread(channel, ts), accept, clock=self.server.clock)

    async def call(self, method: str, *, token: str = USER_TOKEN, **params: str) -> dict[str, Any]:
        """Call a method of the Web API, as the person unless another token is given."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.post(
            self.api_url + method, data=params, headers=headers
        ) as response:
            answer: dict[str, Any] = await response.json()
            assert answer["ok"], (method, answer)
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
