"""Provides a script of a model that thinks before it calls tools, and wants its thoughts back.

It refuses a request in which a call of the answer under way lacks the thoughts that led to it, or
in which thoughts stand that it has not given, as the servers do that require this. What belongs to
the answer under way begins after the last message that a person has written.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.testkit.models.model_script import (
    Reply,
    Script,
    ScriptedAnswer,
    ScriptedDialect,
    ScriptedRequest,
    ScriptedThought,
    status,
)
from perdure.testkit.models.model_wire import thought_block

_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
_BLOCKS: Final = ("thinking", "redacted_thinking")
Given = list[Any]


class ThoughtfulModel:
    """Adds thoughts to what a script answers with tool calls, and checks what comes back.
    `refusals` says what was wrong with each refused request. All thoughts contain `word`."""

    def __init__(
        self, script: Script, *, field: str = "reasoning_content", word: str = "mulling"
    ) -> None:
        self._script = script
        self._field = field
        self._word = word
        self._given: list[Given] = []
        self.refusals: list[str] = []

    def __call__(self, request: ScriptedRequest) -> Reply:
        """Answer a request, or refuse it."""
        problem = self._problem(request)
        if problem:
            self.refusals.append(f"request {request.number}: {problem}")
            return status(400, message=problem)
        reply = self._script(request)
        if not isinstance(reply, ScriptedAnswer) or not reply.calls:
            return reply
        answer = msgspec.structs.replace(
            reply, thoughts=self._thoughts(request.number), thought_field=self._field
        )
        self._given.append(_as_given_back(answer, request.dialect))
        return answer

    def _thoughts(self, number: int) -> tuple[ScriptedThought, ...]:
        """Return new thoughts, one of them with white space and marks that must not change."""
        return (
            ScriptedThought(
                text=f' {self._word} {number}:\n\t"a\\b" <think> é 🐤 ',
                signature=f"sig+/{number}==",
            ),
            ScriptedThought(text=f"{self._word}-hidden-{number}", is_redacted=True),
            ScriptedThought(text=f"{self._word} more {number}", signature=f"sig+/{number}b=="),
        )

    def _problem(self, request: ScriptedRequest) -> str:
        messages = request.messages
        begins = max((n for n, each in enumerate(messages) if _is_persons(each)), default=0)
        last = -1
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            thoughts = thoughts_in(message)
            if not thoughts and _calls(message) and number > begins:
                return f"messages.{number}: the thoughts that led to its tool calls are missing"
            if not thoughts:
                continue
            if thoughts not in self._given:
                return f"messages.{number}: these thoughts were not given, or were changed"
            if self._given.index(thoughts) <= last:
                return f"messages.{number}: these thoughts are not in their order"
            last = self._given.index(thoughts)
            if not _leads(message):
                return f"messages.{number}: thoughts must come first"
        return ""


def thoughts_in(message: dict[str, Any]) -> Given:
    """Return the thoughts in a message of a request, in either dialect."""
    fields = [(name, message[name]) for name in _FIELDS if name in message]
    return [*fields, *(block for block in _blocks(message) if block.get("type") in _BLOCKS)]


def _as_given_back(answer: ScriptedAnswer, dialect: ScriptedDialect) -> Given:
    """Return an answer's thoughts as they must come back."""
    if dialect is ScriptedDialect.ANTHROPIC:
        return [thought_block(each) for each in answer.thoughts]
    if answer.thought_field != "reasoning_details":
        return [(answer.thought_field, "".join(each.text for each in answer.thoughts))]
    return [(answer.thought_field, [_detail(each, n) for n, each in enumerate(answer.thoughts)])]


def _detail(thought: ScriptedThought, index: int) -> dict[str, object]:
    if thought.is_redacted:
        return {"type": "reasoning.encrypted", "data": thought.text, "index": index}
    signed = {"format": None, "signature": thought.signature}
    return {"type": "reasoning.text", "text": thought.text, "index": index} | signed


def _blocks(message: dict[str, Any]) -> Sequence[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _calls(message: dict[str, Any]) -> bool:
    has_uses = any(block.get("type") == "tool_use" for block in _blocks(message))
    return has_uses or bool(message.get("tool_calls"))


def _is_persons(message: dict[str, Any]) -> bool:
    """Tell whether a person has written the message, and no tool has a part in it."""
    has_results = any(block.get("type") == "tool_result" for block in _blocks(message))
    return message["role"] == "user" and not has_results


def _leads(message: dict[str, Any]) -> bool:
    """Tell whether the thoughts come before everything else, where places matter."""
    kinds = [block.get("type") in _BLOCKS for block in _blocks(message)]
    return kinds == sorted(kinds, reverse=True)
