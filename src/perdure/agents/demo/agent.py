"""Streams the answers that `questions.py` plans, word by word. The agent keeps no state."""

from collections.abc import AsyncGenerator
from itertools import count
from typing import Final

import msgspec

from perdure.agents.demo.errands import errand_answer
from perdure.agents.demo.manifest import DemoSettings
from perdure.agents.demo.questions import AnswerPlan, QuestionSoFar, hear, plan
from perdure.domain.ids import TurnId
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import (
    MediaBlock,
    ModelRequest,
    PromptMessage,
    ResultBlock,
    TextBlock,
)
from perdure.domain.turn.stream import (
    AgentCall,
    AgentEvent,
    AgentFile,
    AgentSpent,
    AgentText,
    Stopped,
)
from perdure.ports.system.clock import Clock
from perdure.ports.turns.agent import Work

# Quotes inside JSON strings are escaped, so these bytes appear only where a call is.
_CALL_IN_JSON: Final = b'"arguments":'
_COUNTED_MAX: Final = 100_000
_WORD_LENGTH: Final = 6
_DEFAULTS: Final = DemoSettings()


# Errands whose text is a question of its own.
_ASKED: Final = (TurnKind.BACKGROUND, TurnKind.SCHEDULED, TurnKind.DELEGATED)


class DemoAgent:
    """Implements the `Agent` port without a model."""

    def __init__(self, *, clock: Clock, settings: DemoSettings = _DEFAULTS) -> None:
        self._clock = clock
        self._settings = settings

    def encode(self, message: PromptMessage) -> bytes:
        """Encode one message as JSON."""
        # The bytes of a file are not used here, and its name is in the attachment.
        blocks = [
            msgspec.structs.replace(block, data=None) if isinstance(block, MediaBlock) else block
            for block in message.blocks
        ]
        return msgspec.json.encode({"role": message.role, "blocks": blocks})

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        """Answer one request. Never raises: the last event is one `Stopped`."""
        if request.purpose not in ("", *_ASKED):
            yield AgentText(errand_answer(request))
            yield AgentSpent(Usage(model_calls=1))
            yield Stopped(reason=StopReason.STOP)
            return
        heard = hear(request.messages)
        answer = plan(heard)
        if answer.fails:
            detail = "the demo agent was asked to fail; ask something else"
            yield Stopped(reason=StopReason.PROVIDER_ERROR, detail=detail)
            return
        said = 0
        for piece in answer.pieces():
            if said:
                await self._clock.sleep(self._delay_s(answer))
            said += 1
            yield AgentText(piece)
        if answer.file:
            yield AgentFile(name=answer.file, mime="text/plain", data=answer.content.encode())
        if answer.tool:
            yield AgentCall(
                id=_next_id(request, heard), name=answer.tool, arguments=answer.arguments
            )
        yield AgentSpent(_usage(request, said + _words_in(answer.arguments)))
        yield _stopped(answer)

    def let_go(self, turn: TurnId) -> None:
        """Do nothing: no answer is under way between two calls."""

    async def lost(self, turn: TurnId) -> bool:
        return False

    async def close(self) -> None:
        """Do nothing: the agent holds no resources."""

    def _delay_s(self, answer: AnswerPlan) -> float:
        delay_ms = self._settings.delay_ms if answer.delay_ms is None else answer.delay_ms
        return delay_ms / 1000


def _stopped(answer: AnswerPlan) -> Stopped:
    """Return the event that ends the answer as it was planned."""
    if answer.is_cut:
        detail = "the demo agent was asked to break off; send the message again, or another"
        return Stopped(reason=StopReason.PROVIDER_CUT, detail=detail)
    return Stopped(reason=StopReason.TOOL_CALLS if answer.tool else StopReason.STOP)


def _next_id(request: ModelRequest, heard: QuestionSoFar) -> str:
    """Return an id for the next call: its number among all calls, or the next one that is free.
    After the history was shortened, that number may still be in use."""
    calls = sum(stretch.count(_CALL_IN_JSON) for stretch in request.history)
    place = calls + len(heard.call_ids)
    ids = (f"demo_call_{number}" for number in count(place + 1))
    return next(
        call_id
        for call_id in ids
        if call_id not in heard.call_ids
        and not any(f'"{call_id}"'.encode() in stretch for stretch in request.history)
    )


def _usage(request: ModelRequest, said: int) -> Usage:
    """Count words as if they were tokens. The encoded history is not counted."""
    texts = [request.instructions]
    for message in request.messages:
        texts += [b.text for b in message.blocks if isinstance(b, TextBlock | ResultBlock)]
    return Usage(input_tokens=sum(map(_words_in, texts)), output_tokens=said, model_calls=1)


def _words_in(text: str) -> int:
    """Count the words of a text. Those of a long one are guessed, because counting them would hold
    up everybody."""
    return len(text.split()) if len(text) <= _COUNTED_MAX else len(text) // _WORD_LENGTH
