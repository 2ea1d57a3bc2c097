"""Collects a model's answer while it arrives.

A dialect's reader fills in one event after another. The agent drains the text after each network
read, and asks for the rest at the end. Only the provider's own marker sets `finish`, so an answer
without one was cut off, whatever else is in it.
"""

import json
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from perdure.agents.chat.answer.calls import CallSlots
from perdure.agents.chat.answer.thoughts import ThoughtScanner
from perdure.agents.chat.complaints import Complaint
from perdure.agents.chat.reasoning.collected import Reasoning
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import ROOM, Measure
from perdure.domain.text import storable

T = TypeVar("T")


class Garbage(Exception):
    """Reports that a server sent what its dialect does not know."""


@dataclass(slots=True)
class ModelAnswer:
    """Holds the state of one answer.

    `texts` is text that was not drained yet and may contain thoughts. `has_begun` says that a first
    token of any kind came. `is_thinking` says that thoughts came and no text after them. `is_over`
    says that nothing more will come. `measure` bounds how much may come, thoughts included.
    `reasoning` holds the thoughts that came apart from the text.
    """

    texts: list[str] = field(default_factory=list)
    calls: CallSlots = field(default_factory=CallSlots)
    reasoning: Reasoning = field(default_factory=Reasoning)
    usage: Usage = field(default_factory=lambda: Usage(model_calls=1))
    finish: StopReason | None = None
    detail: str = ""
    error: Complaint | None = None
    has_begun: bool = False
    is_thinking: bool = False
    is_over: bool = False
    measure: Measure = field(default_factory=lambda: Measure(ROOM))
    _thoughts: ThoughtScanner = field(default_factory=ThoughtScanner)
    # Text without thoughts that was not drained yet, and how long all of it is up to here.
    _told: list[str] = field(default_factory=list)
    _told_length: int = 0

    def drain(self) -> str:
        """Return the text that came since the last call, without the thoughts in it."""
        self._read_texts()
        text = "".join(self._told)
        self._told.clear()
        return text

    def _read_texts(self) -> None:
        """Separate the text that came from the thoughts in it."""
        if not self.texts:
            return
        text = self._thoughts.feed(self.measure.text(storable("".join(self.texts))))
        self.texts.clear()
        self._end_if_too_much()
        if self._thoughts.is_inside:
            self.is_thinking = True
        self._told.append(text)
        self._told_length += len(text)

    def add_thought(self, name: str, piece: str) -> None:
        """Take a piece of the reasoning that comes as text in the field with this name."""
        if self._think(piece):
            self.reasoning.add_words(name, piece)

    def add_detail(self, raw: dict[str, object]) -> None:
        """Take a piece of the reasoning that comes as a list of objects."""
        if self._think("".join(each for each in raw.values() if isinstance(each, str))):
            self.reasoning.add_detail(raw)

    def add_extra(self, value: object) -> None:
        """Take what came beside the newest tool call and must come back with it."""
        self.measure.add(str(value))
        self._end_if_too_much()
        if not self.measure.excess:
            self.reasoning.add_extra(value, call_at=len(self.calls) - 1)

    def begin_thought(self, index: int, kind: str) -> None:
        """Begin a block of reasoning, which stands after everything that came so far."""
        self._read_texts()
        self._think("")
        place = {"text_at": self._told_length, "call_at": len(self.calls)}
        self.reasoning.begin_block(index, kind, **place)

    def grow_thought(self, index: int, name: str, piece: str) -> None:
        """Take a piece of a field of a block of reasoning."""
        if self._think(piece):
            self.reasoning.grow_block(index, name, piece)

    def _think(self, piece: str) -> bool:
        """Count a piece of reasoning: a server may send whatever it likes. Returns False if it does
        not fit any more."""
        self.has_begun = self.is_thinking = True
        self.measure.add(piece)
        self._end_if_too_much()
        return not self.measure.excess

    def rest(self) -> str:
        """Return text that was held back because it could have become a thought, and did not."""
        return self._thoughts.rest(is_finished=self.outcome() is StopReason.STOP)

    def add_call(
        self, *, index: int | None = None, call_id: str = "", name: str = "", arguments: str = ""
    ) -> None:
        """Take a piece of a tool call."""
        self.has_begun = True
        self.calls.add(index=index, call_id=call_id, name=name, arguments=arguments)
        self.measure.add(call_id + name + arguments)
        self.measure.count_calls(len(self.calls))
        self._end_if_too_much()

    def exceed(self) -> None:
        """Note that the response is too long, before all of it was read."""
        self.measure.exceed(self.measure.room.too_long())
        self._end_if_too_much()

    def _end_if_too_much(self) -> None:
        """End the answer if it exceeds its bounds. Its calls may be incomplete, so they are
        dropped."""
        if self.measure.excess:
            self.is_over = True
            self.calls.clear()
            self.reasoning.clear()

    def finished(self, reason: StopReason | None, *, said: str) -> None:
        """Take the provider's finish marker. An unknown reason counts as a finish all the same."""
        self.has_begun = True
        self.finish = reason or StopReason.STOP
        if reason is None:
            self.detail = f"the provider gave {said[:64]!r} as its finish reason"

    def outcome(self) -> StopReason | None:
        """Return the finish, corrected by whether there are tool calls: some servers confuse the
        two."""
        if self.finish is StopReason.STOP and self.calls:
            return StopReason.TOOL_CALLS
        if self.finish is StopReason.TOOL_CALLS and not self.calls:
            return StopReason.STOP
        return self.finish

    def failed(self, said: Complaint) -> None:
        """Take an error that the provider sent instead of the rest. The first one is kept as the
        cause."""
        self.is_over = True
        self.error = self.error or said


def decode(decoder: msgspec.json.Decoder[T], event: bytes) -> T:
    """Decode what a server sent. Raises `Garbage` if it does not have the expected shape."""
    try:
        return decoder.decode(event)
    except msgspec.ValidationError as error:
        raise Garbage from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_mended(decoder, event)


def _decode_mended(decoder: msgspec.json.Decoder[T], event: bytes) -> T:
    """Decode again, less strictly: a model that emits bytes can split a character into two
    tokens."""
    try:
        value = json.loads(event.decode("utf-8", "replace"), strict=False)
        return decoder.decode(storable(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise Garbage from error
