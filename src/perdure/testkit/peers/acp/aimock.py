"""Runs `aimock`, the model that agents by others ask. It speaks the wires of OpenAI (chat and
responses), Anthropic and Gemini.

The prompt says what the model does. The directives are in `tests/peers/aimock.mjs`. A prompt
without any gets `HELLO`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from perdure.testkit.peers.node_control import NodeControl
from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import wait_until

HELLO: Final = "hello from the model"


class AskedModel(msgspec.Struct, frozen=True):
    """Holds one request that an agent has sent to the model."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """Return the whole body as text, to look for words that must or must not be in it."""
        return msgspec.json.encode(self.body).decode()


class AimockServer(Server):
    """Runs `harness` with `node`. All sessions and tests of a worker may use it at once."""

    def __init__(self, site: Site, *, node: Path, harness: Path) -> None:
        port, control_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.control_url = f"http://127.0.0.1:{control_port}"
        command = [str(node), str(harness), str(port), str(control_port)]
        model = Peer("aimock", command, site=site, ready=f"{self.control_url}/ready")
        super().__init__(model, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["AimockControl"]:
        """Open the model's control interface, with no request in it."""
        async with aiohttp.ClientSession() as session:
            node = NodeControl(self.control_url, session)
            await node.call("reset")
            yield AimockControl(self, node)


class AimockControl:
    """Shows what the model was asked."""

    def __init__(self, server: AimockServer, node: NodeControl) -> None:
        self.server = server
        self.url = server.url
        self._node = node

    async def asked(self, words: str = "") -> list[AskedModel]:
        """Return the requests whose body holds some words, oldest first."""
        kept = (await self._node.call("requests"))["requests"]
        return [each for each in msgspec.convert(kept, list[AskedModel]) if words in each.text]

    async def wait_asked(
        self, accept: Callable[[list[AskedModel]], bool], *, words: str = ""
    ) -> list[AskedModel]:
        """Wait until the requests that hold some words are accepted, and return them."""
        return await wait_until(lambda: self.asked(words), accept, clock=self.server.clock)

    async def abandoned(self) -> int:
        """Return how many requests were given up by the agent before their answer was complete."""
        number: int = (await self._node.call("requests"))["gone"]
        return number
