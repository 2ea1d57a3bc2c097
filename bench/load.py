"""Runs turns over kept-alive connections, and times each from the first byte sent to the last byte
received."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median, quantiles

import aiohttp
import msgspec

from bench.processes import Program

QUESTION = "What did we say about the garden, the dog and the broken gate last week?"
TURN_TIMEOUT_S = 180.0


class Lap(msgspec.Struct, frozen=True):
    """Holds some turns of one program: the time of each turn, and the program's CPU time for all of
    them."""

    times_s: list[float]
    cpu_s: float

    @property
    def typical_s(self) -> float:
        return median(self.times_s)

    @property
    def cpu_per_turn_s(self) -> float:
        return self.cpu_s / len(self.times_s)


class Client:
    """Runs turns against a program, and measures them."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def turn(self, program: Program, conversation: str, text: str = QUESTION) -> float:
        """Run one whole turn. Returns its time in seconds."""
        body = {"stream": True, "messages": [{"role": "user", "content": text}]}
        headers = {
            "Content-Type": "application/json",
            "X-Perdure-Conversation": conversation,
            "Authorization": f"Bearer {program.token}",
        }
        encoded = msgspec.json.encode(body)
        begun = time.perf_counter()
        async with self._http.post(
            f"{program.url}/v1/chat/completions", data=encoded, headers=headers
        ) as response:
            said = await response.read()
        took_s = time.perf_counter() - begun
        assert response.status == 200, f"{program.name}: {response.status} {said[:300]!r}"
        assert said.endswith(b"data: [DONE]\n\n"), f"{program.name} was cut: {said[-300:]!r}"
        return took_s

    async def lap(self, program: Program, conversations: Sequence[str], turns: int) -> Lap:
        """Run this number of turns in each conversation, one after the other."""
        before_s = program.cpu_s()
        times = [await self.turn(program, each) for each in conversations for _ in range(turns)]
        return Lap(times, program.cpu_s() - before_s)

    async def together(self, program: Program, conversations: Sequence[str]) -> Lap:
        """Run one turn in each conversation, all at once."""
        before_s = program.cpu_s()
        times = await asyncio.gather(*(self.turn(program, each) for each in conversations))
        return Lap(times, program.cpu_s() - before_s)

    async def seen(self, model: Program) -> dict[str, int]:
        """Return what the model has received: bytes and messages of the last request, and turns at
        once."""
        async with self._http.get(f"{model.url}/seen") as response:
            found: dict[str, int] = msgspec.json.decode(await response.read())
            return found


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[Client]:
    timeout = aiohttp.ClientTimeout(total=TURN_TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        yield Client(http)


def p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]
