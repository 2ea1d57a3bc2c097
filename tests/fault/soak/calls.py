"""Runs programs that call `/v1`: alone or in a conversation, streamed or not, with a key or
without.

Some hang up in the middle. A program with a key repeats the call under it until the turn has ended,
and sometimes once more afterwards. It must always get the same turn, and in the end the same
answer.
"""

import asyncio
import json
from itertools import count

import aiohttp
import msgspec
from tests.fault.soak.persistent_client import (
    AGAIN_S,
    GONE,
    PATIENCE_S,
    Acknowledged,
    PersistentClient,
)

PAUSE_S = (0.3, 3.0)
# The turn is over without an answer: these errors stay the same however often the call is repeated.
# `interrupted` is not among them: the turn goes on after the start, and then a repeat is answered.
ENDED = {"provider_failed", "rate_limit_exceeded", "suspended", "refused"}


class Heard(msgspec.Struct, frozen=True):
    """Holds one reply as it reached the caller. `is_final` tells that its turn is over."""

    turn: str
    text: str
    is_final: bool


class Caller:
    """Makes one call after the other, about half of them in a conversation of this caller's."""

    def __init__(self, caller: PersistentClient, name: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._answered: list[tuple[dict[str, object], dict[str, str], Heard]] = []
        self._caller = caller
        self._dice = caller.dice
        self._name = name
        self._numbers = count()

    async def call_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._caller.pause(self._dice.uniform(*PAUSE_S))
            await self.call()

    async def call(self) -> None:
        number, dice = next(self._numbers), self._dice
        room = f"{self._name}-room" if dice.random() < 0.5 else ""
        key = f"{self._name}-key-{number}" if dice.random() < 0.7 else ""
        body = {
            "model": "main",
            "stream": dice.random() < 0.5,
            "messages": [{"role": "user", "content": f"{self._name} asks {number}"}],
        }
        headers = {"X-Perdure-Conversation": room} if room else {}
        self._caller.tally.counts["calls in a conversation" if room else "calls alone"] += 1
        if not key:
            await self._once(body, headers)
            return
        headers["Idempotency-Key"] = key
        heard = await self._until_answered(body, headers)
        self._answered.append((body, headers, heard))
        self.acknowledged.append(Acknowledged(external_id=f"{key}\n{room}", turn=heard.turn))

    async def repeat_some(self) -> None:
        """Make a few calls again that were answered long ago: the answer must be the same."""
        for body, headers, first in self._dice.sample(self._answered, min(10, len(self._answered))):
            again = await self._until_answered(body, headers)
            self._caller.tally.counts["repeats"] += 1
            if again != first:
                self._caller.tally.fault(f"{headers}: {first} became {again}")

    async def _once(self, body: dict[str, object], headers: dict[str, str]) -> None:
        """Call without a key; a caller who is impatient hangs up."""
        wait_s = self._dice.uniform(0.05, 2.0) if self._dice.random() < 0.3 else PATIENCE_S
        try:
            async with asyncio.timeout(wait_s):
                await self._ask(body, headers)
        except GONE:
            self._caller.tally.counts["hung up"] += 1

    async def _until_answered(self, body: dict[str, object], headers: dict[str, str]) -> Heard:
        """Repeat the call under its key until its turn is over, and sometimes once more."""
        turns: set[str] = set()
        finals: list[Heard] = []
        wanted = self._dice.choice((1, 1, 2))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(finals) < wanted:
                    heard = await self._attempt(body, headers)
                    if heard is not None and heard.turn:
                        turns.add(heard.turn)
                    if heard is not None and heard.is_final:
                        finals.append(heard)
                    else:
                        await self._caller.pause(AGAIN_S)
        except TimeoutError:
            self._caller.tally.fault(f"{headers}: no answer in {PATIENCE_S:g} s, of {turns}")
        if len(turns) > 1 or len({final.text for final in finals}) > 1:
            self._caller.tally.fault(f"{headers}: {turns} answered {finals}")
        return finals[0] if finals else Heard("", "", is_final=False)

    async def _attempt(self, body: dict[str, object], headers: dict[str, str]) -> Heard | None:
        wait_s = self._dice.uniform(0.0, 1.0) if self._dice.random() < 0.2 else PATIENCE_S
        try:
            async with asyncio.timeout(wait_s):
                return await self._ask(body, headers)
        except GONE:
            self._caller.tally.counts["calls made again"] += 1
            return None

    async def _ask(self, body: dict[str, object], headers: dict[str, str]) -> Heard:
        client = self._caller.client
        sent = {"Authorization": f"Bearer {client.token}", **headers}
        url = f"{client.gateway.url}/v1/chat/completions"
        async with client.session.post(url, json=body, headers=sent) as response:
            told = await response.read()
            turn = response.headers.get("X-Perdure-Turn", "")
            return self._heard(response, turn, told)

    def _heard(self, response: aiohttp.ClientResponse, turn: str, told: bytes) -> Heard:
        self._caller.tally.counts[f"/v1 {response.status}"] += 1
        if response.status != 200:
            error = json.loads(told)["error"]
            if response.status not in (429, 502, 503):
                self._caller.tally.fault(f"/v1: {response.status} {error}")
            return Heard(turn, error["code"], is_final=bool(turn) and error["code"] in ENDED)
        if response.content_type == "application/json":
            said = json.loads(told)["choices"][0]["message"]["content"] or ""
            return Heard(turn, said, is_final=True)
        return self._streamed(turn, told)

    def _streamed(self, turn: str, told: bytes) -> Heard:
        """Join a stream. One that ends with an error is final if its turn is over."""
        data = [line[6:] for line in told.decode().splitlines() if line.startswith("data: ")]
        is_done = bool(data) and data[-1] == "[DONE]"
        chunks = [json.loads(each) for each in data if each != "[DONE]"]
        said = "".join(
            choice["delta"].get("content") or ""
            for chunk in chunks
            for choice in chunk.get("choices", ())
        )
        errors = [chunk["error"]["code"] for chunk in chunks if "error" in chunk]
        is_over = is_done or any(code in ENDED for code in errors)
        return Heard(turn, said, is_final=is_over)
