"""Plays the model of the soak: it streams, calls tools, is slow, fails, and goes away for a
while."""

import asyncio
import random

from perdure.ports.system.clock import Clock
from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    call_tools,
    cut_after,
    error_in_stream,
    say,
    slow,
    status,
)
from perdure.testkit.models.model_server import ModelServer

# Only an answer that was sent completely ends with this word.
END = "that-is-all."
PACES_MS = (0, 0, 2, 10, 40)


class MoodyModel:
    """Answers with words that occur nowhere else: each holds the number of the request."""

    def __init__(self, dice: random.Random, clock: Clock) -> None:
        self.server = ModelServer(self._reply, requests_max=0)
        self._dice = dice
        self._clock = clock

    async def go_away(self, seconds: float) -> None:
        """Close the server with everything that it is answering, and open it again on its port."""
        await self.server.__aexit__(None, None, None)
        try:
            await self._clock.sleep(seconds)
        finally:
            await asyncio.shield(self.server.__aenter__())

    def _reply(self, request: ScriptedRequest) -> Reply:
        dice = self._dice
        words = " ".join(f"w{request.number}.{n}" for n in range(dice.randrange(3, 25)))
        whole = say(f"{words} {END}", delay_ms=dice.choice(PACES_MS))
        roll = dice.random()
        if roll < 0.08 and request.messages[-1]["role"] != "tool":
            calls = [(f"c{n}", "look", '{"at": "it"}') for n in range(dice.randrange(1, 3))]
            return call_tools(calls, text="Let me see. ", delay_ms=whole.delay_ms)
        if roll < 0.11:
            return cut_after(dice.randrange(1, 60 * len(words.split())), whole)
        if roll < 0.13:
            return error_in_stream(dice.randrange(3), whole)
        if roll < 0.16:
            return status(dice.choice((500, 502, 503, 529)))
        if roll < 0.19:
            return status(429, retry_after=1)
        if roll < 0.25:
            return slow(dice.uniform(100, 3000), whole)
        return say(f"{words} {END}", delay_ms=100) if roll < 0.28 else whole
