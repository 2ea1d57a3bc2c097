"""One model call: send it, again if it failed before the first token, and stream the answer.

Once a response has begun the call is never made again: its tokens are paid for, and some of them
may have been shown. Before that the failures that pass by themselves are waited out, as long as
the server asked for and never longer in all than the settings allow.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

import aiohttp

from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.exchange import Exchange
from perdure.agents.chat.failures import Failure
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.wire import Wire
from perdure.domain.errors import Rejected
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt import Message, Request
from perdure.domain.stream import AgentEvent, Spent, Stopped, Text, Thinking
from perdure.ports.clock import Clock

_FIRST_WAIT_S: Final = 0.5
# Multiples of it, without their whole part, spread evenly however many there are.
_GOLDEN: Final = 0.618_033_988_749_895


class ChatAgent:
    def __init__(
        self, settings: ChatSettings, *, session: aiohttp.ClientSession | None, clock: Clock
    ) -> None:
        self._settings = settings
        self._dialect = DIALECTS[settings.api]
        self._wire = Wire(settings, session=session, clock=clock)
        self._clock = clock
        self._waits = 0

    def encode(self, message: Message) -> bytes:
        return self._dialect.encode(message)

    async def run(self, request: Request) -> AsyncGenerator[AgentEvent, None]:
        try:
            body = self._dialect.body(request, self._settings)
        except (Rejected, UnicodeError) as error:
            yield Stopped(reason=StopReason.INVALID_REQUEST, detail=str(error))
            return
        exchange = await self._post(body)
        if isinstance(exchange, Failure):
            yield Stopped(reason=exchange.reason, detail=exchange.detail)
            return
        is_told = False
        try:
            while (text := await exchange.next_text()) is not None:
                if text:
                    exchange.answer.is_thinking = is_told = False
                    yield Text(text)
                elif exchange.answer.is_thinking and not is_told:
                    is_told = True
                    yield Thinking()
        finally:
            exchange.close()
        for event in _ending(exchange, request):
            yield event

    async def close(self) -> None:
        await self._wire.close()

    async def _post(self, body: Sequence[bytes]) -> Exchange | Failure:
        retries, waited_s = 0, 0.0
        while True:
            result = await self._wire.post(body)
            if isinstance(result, Exchange) or not result.may_retry:
                return result
            wait_s = self._wait_s(retries, result)
            if retries == self._settings.retries or (
                waited_s + wait_s > self._settings.retry_wait_max_s
            ):
                return result
            retries += 1
            waited_s += wait_s
            await self._clock.sleep(wait_s)

    def _wait_s(self, retries: int, failure: Failure) -> float:
        """Doubling, and spread out, so that turns that failed together do not return together."""
        self._waits += 1
        own_s = _FIRST_WAIT_S * 2.0**retries * (1 + self._waits * _GOLDEN % 1)
        return max(own_s, failure.retry_after_s or 0.0)


def _ending(exchange: Exchange, request: Request) -> Iterator[AgentEvent]:
    answer = exchange.answer
    failure = exchange.ending()
    reason = answer.outcome()
    if failure is None and reason is StopReason.TOOL_CALLS:
        yield from answer.calls.whole(request)
    yield Spent(answer.usage)
    if failure is not None or reason is None:
        assert failure is not None, "an answer without a finish is a failure"
        yield Stopped(reason=failure.reason, detail=failure.detail)
    else:
        yield Stopped(reason=reason, detail=answer.detail)
