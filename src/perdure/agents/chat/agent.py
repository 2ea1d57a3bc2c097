"""Makes one model call: it sends the request once and streams the answer.

Retries are the caller's decision. Only a failure before the first token is marked `may_retry`:
after that the tokens are paid for, and some may have been shown.
"""

from collections.abc import AsyncGenerator, Iterator

import aiohttp
import msgspec

from perdure.agents.chat.dialects import DIALECTS
from perdure.agents.chat.exchange import Exchange
from perdure.agents.chat.failures import ModelFailure
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.reasoning.efforts import with_own_thoughts
from perdure.agents.chat.wire import ModelWire
from perdure.domain.errors import Rejected
from perdure.domain.ids import TurnId
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.stream import (
    AgentEvent,
    AgentSpent,
    AgentText,
    AgentThoughts,
    Stopped,
    Thinking,
)
from perdure.ports.system.clock import Clock
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.ports.turns.agent import Work


class ChatAgent:
    """Implements the `Agent` port for one model behind one server."""

    def __init__(
        self,
        settings: ChatSettings,
        *,
        session: aiohttp.ClientSession | None,
        clock: Clock,
        outgoing: Outgoing = DIRECT,
    ) -> None:
        self._settings = settings
        self._dialect = DIALECTS[settings.api]
        self._wire = ModelWire(settings, session=session, clock=clock, outgoing=outgoing)

    def encode(self, message: PromptMessage) -> bytes:
        """Encode one message as the server expects it. The same message always gives the same
        bytes."""
        return self._dialect.encode(with_own_thoughts(message, self._settings))

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        """Make one model call and yield its events. Failures are the last event, never raised."""
        own = tuple(with_own_thoughts(each, self._settings) for each in request.messages)
        request = msgspec.structs.replace(request, messages=own)
        try:
            body = self._dialect.body(request, self._settings)
        except (Rejected, UnicodeError) as error:
            yield Stopped(reason=StopReason.INVALID_REQUEST, detail=str(error))
            return
        exchange = await self._wire.post(body, room=request.room)
        if isinstance(exchange, ModelFailure):
            yield exchange.as_stopped()
            return
        is_told = False
        try:
            while (text := await exchange.next_text()) is not None:
                if text:
                    exchange.answer.is_thinking = is_told = False
                    yield AgentText(text)
                elif exchange.answer.is_thinking and not is_told:
                    is_told = True
                    yield Thinking()
        finally:
            exchange.close()
        for event in _ending(exchange, request, self._settings.thinker):
            yield event

    def let_go(self, turn: TurnId) -> None:
        """Do nothing: no answer is under way between two calls."""

    async def lost(self, turn: TurnId) -> bool:
        return False

    async def close(self) -> None:
        await self._wire.close()


def _ending(exchange: Exchange, request: ModelRequest, thinker: str) -> Iterator[AgentEvent]:
    """Yield the events that end the stream: whole tool calls with the thoughts that led to them,
    the usage, and one `Stopped`."""
    answer = exchange.answer
    failure = exchange.ending()
    reason = answer.outcome()
    if failure is None and reason is StopReason.TOOL_CALLS:
        thoughts = answer.reasoning.whole(thinker)
        if thoughts is not None:
            yield AgentThoughts(thoughts)
        yield from answer.calls.whole(request)
    # A call that may be repeated produced no token, so it is not counted.
    if failure is None or not failure.may_retry:
        yield AgentSpent(answer.usage)
    if failure is not None or reason is None:
        assert failure is not None, "an answer without a finish is a failure"
        yield failure.as_stopped()
    else:
        yield Stopped(reason=reason, detail=answer.detail)
