"""Connects to a gateway that may be dead, starting, draining or frozen at any moment.

The client repeats what was not answered, and gives up after a while. A gateway that answers nobody
for that long fails the soak.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from perdure.testkit.processes.http import Client

GONE = (aiohttp.ClientError, ConnectionError, TimeoutError, asyncio.IncompleteReadError)
# The gateway may be busy, may be stopping, or may not know whether it has stored something.
NOT_NOW = (429, 503)
PATIENCE_S = 120.0
ANSWER_S = 30.0
AGAIN_S = 0.1


class Tally:
    """Counts what the traffic has seen, for the table, and collects faults, of which there must be
    none."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def fault(self, text: str) -> None:
        self.counts["faults"] += 1
        if len(self.faults) < 50:
            self.faults.append(text)


class PersistentClient:
    """Calls one gateway as one person; `dice` decides what this person does."""

    def __init__(self, client: Client, dice: random.Random, tally: Tally) -> None:
        self.client = client
        self.dice = dice
        self.tally = tally

    async def pause(self, seconds: float) -> None:
        await self.client.gateway.pause(seconds)

    async def call(
        self,
        method: str,
        path: str,
        wanted: Sequence[int],
        *,
        body: object = None,
        raw: bytes | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Repeat a call until an answer with one of the wanted codes comes."""
        seen = ""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        status, answer = await self._try(method, path, body, raw)
                    except GONE as error:
                        seen = repr(error)
                    else:
                        if status in wanted:
                            return status, answer
                        seen = f"{status} {answer}"
                        if status not in NOT_NOW:
                            self.tally.fault(f"{method} {path}: {seen}")
                            return status, {}
                    self.tally.counts["calls made again"] += 1
                    await self.pause(AGAIN_S)
        except TimeoutError:
            raise AssertionError(
                f"{method} {path} got no answer in {PATIENCE_S:g} s; seen last: {seen}"
            ) from None

    async def _try(
        self, method: str, path: str, body: object, raw: bytes | None
    ) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(ANSWER_S):
            return await self.client.call(method, path, body=body, raw=raw)

    async def call_and_hang_up(self, method: str, path: str, *, body: object) -> None:
        """Make a call and close the connection before its answer is read."""
        try:
            async with asyncio.timeout(self.dice.uniform(0.0, 0.02)):
                await self.client.call(method, path, body=body)
        except GONE:
            self.tally.counts["hung up"] += 1


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the ids that the gateway gave to one message, call or command, and so promised to keep.
    A call is only told its turn; a command may have no turn. A steer may end up in another turn."""

    external_id: str
    turn: str | None
    message: str = ""
    is_steer: bool = False
